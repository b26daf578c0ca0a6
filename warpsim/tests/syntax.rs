//! What people write by hand and compilers do not: constant expressions, vectors of registers, functions that take registers.

use crate::common::{ToBytes, all_options, read, run};
use warpsim::{Gpu, Module};

/// What one thread stores at `[%o]`, with more functions and variables in front of the kernel.
fn words(front: &str, body: &str, n: usize) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{front}\n.visible .entry k(.param .u64 o)\n{{\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .f64 %d<4>; .reg .b64 %o, %x<4>;\nld.param.u64 %o, [o];\n{body}\nret;\n}}"
    );
    let mut found = vec![];
    for o in all_options() {
        let mut g = Gpu::new();
        let out = g.alloc_with(&vec![0; 4 * n], "out");
        run(&mut g, &text, "k", 1, 1, 0, &[&out.to_bytes()], &o);
        found.push(read(&g, out, n));
    }
    assert!(found.iter().all(|f| *f == found[0]));
    found.remove(0)
}

#[test]
fn constants_are_computed() {
    let cases: [(&str, u32); 16] = [
        ("(3 * 4 + 1) << 2", 52),
        ("2 + 3 * 4 - 1", 13),
        ("-7 / 2", 3u32.wrapping_neg()),
        ("-8 >> 1", 4u32.wrapping_neg()),
        ("7 % 4", 3),
        ("5 > 3 ? 10 : 20", 10),
        ("(1 == 2) || (3 != 3)", 0),
        ("!0 + ~0", 0),
        ("0xf0 & 0x3c ^ 1 | 0x100", 0x131),
        ("0b101 + 010 + 0x10U", 29),
        ("- -5", 5),
        ("WARP_SZ * 2", 64),
        ("(.s64) 3 - (.u64) 1", 2),
        ("0xffffffffffffffff / 2 == 0x7fffffffffffffff", 1),
        ("1.5 + 1.5 < 4.0", 1),
        ("((((1))))", 1),
    ];
    for (expression, want) in cases {
        assert_eq!(
            words("", &format!("mov.b32 %r1, {expression}; st.global.b32 [%o], %r1;"), 1),
            [want],
            "{expression}"
        );
    }
    assert_eq!(words("", "st.global.u32 [%o+(1+1)*2], 7; st.global.u32 [%o+4*3-4], 8;", 3), [0, 7, 8]);
    assert_eq!(
        words(".global .u32 a[2*2] = {1<<4, 7-2, -(3)};", "ld.global.u32 %r1, [a+8]; st.global.u32 [%o], %r1;", 1),
        [3u32.wrapping_neg()]
    );
}

#[test]
fn constants_without_a_value_are_errors() {
    let nested = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    let minus = "-".repeat(5000) + "1";
    for bad in ["1 / 0", "1 % 0", "1.5 % 2.0", "(3", "~1.5", "1 ? 2", "-9223372036854775807 / 0", &nested, &minus] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{ .reg .b32 %r<2>;\nmov.b32 %r1, {bad};\nret; }}"
        );
        let error = Module::parse(&text).map(drop).expect_err(bad).to_string();
        assert!(error.contains("line 6"), "{error}");
    }
}

#[test]
fn lists_within_lists_may_be_incomplete() {
    let front = ".global .u32 a[2][3] = {{1, 2}, {4}};\n.global .u64 place = generic(a) + 12;";
    let body = "ld.global.v2.u32 {%r1, %r2}, [a+8]; ld.global.u64 %x1, [place]; ld.u32 %r3, [%x1]; ld.global.u32 %r4, [a+16]; \
                st.global.v2.u32 [%o], {%r1, %r2}; st.global.v2.u32 [%o+8], {%r3, %r4};";
    assert_eq!(words(front, body, 4), [0, 4, 4, 0]);
}

#[test]
fn an_address_is_taken_byte_by_byte() {
    let front = ".global .u32 a = 77;\n.global .align 8 .u8 bytes[8] = {0xff(a), 0xff00(a), 0xff0000(a), 0xff000000(a), \
                 0xff00000000(a), 0xff0000000000(a), 0xff000000000000(a), 0xff00000000000000(a)};";
    assert_eq!(words(front, "ld.global.u64 %x1, [bytes]; ld.global.u32 %r1, [%x1]; st.global.u32 [%o], %r1;", 1), [77]);
}

#[test]
fn vectors_of_registers_are_operands() {
    let body = ".reg .v4 .u32 v; .reg .v2 .u32 w;\n\
                mov.u32 v.x, 1; mov.u32 v.y, 2; mov.u32 v.b, 3; mov.u32 v.a, 4; st.global.v4.u32 [%o], v;\n\
                ld.global.v2.u32 w, [%o+8]; st.global.u32 [%o+16], w.x; st.global.u32 [%o+20], w.g;";
    assert_eq!(words("", body, 6), [1, 2, 3, 4, 3, 4]);
}

#[test]
fn vectors_are_moved() {
    // %tid has four elements, of which one means nothing.
    let body = ".reg .v4 .u32 v; .reg .v2 .b32 w;\n\
                mov.u32 %r1, 1; mov.u32 %r2, 2; mov.v2.u32 {%r1, %r2}, {%r2, %r1}; mov.v2.b32 w, {%r2, 7};\n\
                mov.v4.u32 v, %ntid; mov.v4.u32 {_, %r3, %r4, _}, %nctaid; mov.u32 %r5, %tid.w; add.u32 %r4, %r4, v.w;\n\
                mov.v2.b64 {%x1, %x2}, {4294967296, 3}; st.global.v2.u32 [%o], {%r1, %r2}; st.global.v2.u32 [%o+8], w;\n\
                st.global.v4.u32 [%o+16], {v.x, %r3, %r4, %r5}; st.global.v2.u64 [%o+32], {%x1, %x2};";
    assert_eq!(words("", body, 12), [2, 1, 1, 7, 1, 1, 1, 0, 0, 1, 3, 0]);
    // What a driver may pass on says nothing here.
    assert_eq!(words("", "mov.b32 %r1, %envreg3; st.global.u32 [%o], %r1;", 1), [0]);
}

#[test]
fn functions_take_and_give_registers() {
    let front = ".func (.reg .u32 r) fact(.reg .u32 n)\n{ .reg .pred q; .reg .u32 m; setp.lt.u32 q, n, 2; mov.u32 r, 1; @q ret;\n\
                 sub.u32 m, n, 1; call (m), fact, (m); mul.lo.u32 r, n, m; ret; }\n\
                 .func (.reg .f64 r, .reg .u16 h) both(.reg .f64 a, .reg .u16 b, .param .u32 c)\n\
                 { .reg .u32 x; ld.param.u32 x, [c]; cvt.rn.f64.u32 r, x; add.f64 r, r, a; add.u16 h, b, 1; ret; }\n\
                 .func (.param .u32 r) old(.param .u32 a)\n{ .reg .u32 x; ld.param.u32 x, [a]; add.u32 x, x, 1; st.param.u32 [r], x; ret; }\n\
                 .func (.param .u32 r) other(.param .u32 a);\n.alias other, old;";
    let body = "call (%r1), fact, (5); mov.f64 %d1, 0d3ff8000000000000; call (%d2, %h1), both, (%d1, 41, 7);\n\
                call (%r2), old, (9); mov.u64 %x1, old; pr: .callprototype (.param .u32 _) _ (.param .u32 _);\n\
                call (%r3), %x1, (%r2), pr; call (%r4), other, (%r3); cvt.rni.u32.f64 %r5, %d2; cvt.u32.u16 %r6, %h1;\n\
                st.global.v2.u32 [%o], {%r1, %r2}; st.global.v2.u32 [%o+8], {%r3, %r4}; st.global.v2.u32 [%o+16], {%r5, %r6};";
    assert_eq!(words(front, body, 6), [120, 10, 11, 12, 8, 42]);
}

#[test]
fn what_has_no_end_or_too_much_is_an_error_with_its_line() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let kernel = |body: &str| {
        format!(
            "{head}.func f(.param .u32 a, .param .u32 b) {{ ret; }}\n.visible .entry k()\n{{ .reg .b32 %r<3>; .reg .f32 %f<2>;\n{body}\nret; }}"
        )
    };
    for (text, line, says) in [
        (format!("{head}/* a comment\n\n.visible .entry k() {{ ret; }}"), 4, "a comment that begins here has no end"),
        (format!("{head}.file 1 \"k.cu\n\n.visible .entry k() {{ ret; }}"), 4, "a text that begins here has no end"),
        (
            format!("{head}.global .b8 a[2] = {{1, 2, 3}};\n.visible .entry k() {{ ret; }}"),
            4,
            "more initial values than elements",
        ),
        (kernel("mov.f32 %f1, 0f3f80;"), 7, "bad number `0f3f80`"),
        (kernel("call f, (%r1);"), 7, "`f` takes 2 arguments and gives 0 results, not 1 and 0"),
        (kernel("call (%r1), f, (%r1, %r2);"), 7, "not 2 and 1"),
    ] {
        let error = Module::parse(&text).and_then(|m| m.kernel("k").map(drop)).expect_err(says).to_string();
        assert!(error.contains(&format!("line {line}")) && error.contains(says), "{error}");
    }
}

#[test]
fn names_are_declared_once() {
    let k = ".visible .entry k(.param .u64 o) { ret; }";
    let inside = |body: &str| format!(".visible .entry k(.param .u64 o)\n{{ {body} ret; }}");
    let load = |front: &str| {
        let text = format!(".version 8.6\n.target sm_90a\n.address_size 64\n{front}");
        Module::parse(&text).and_then(|m| m.kernel("k").map(drop)).map_err(|e| e.to_string())
    };
    for (body, says) in [
        (".reg .b32 %r<5>; .reg .b64 %r1;", "a second register `%r1`"),
        (".reg .b64 %r01; .reg .b32 %r<5>;", "a second register `%r01`"),
        (".reg .b32 %r<3>; .reg .b32 %r<5>;", "a second register `%r<5>`"),
        (".reg .b32 r<5>; .shared .b32 r1;", "a second variable `r1`"),
        (".shared .b32 s; .local .b64 s;", "a second variable `s`"),
        (".shared .b32 o;", "a second variable `o`"),
        (".shared .b32 L; L:", "a second variable `L`"),
        ("L: .callprototype _ (.param .b32 _); L:", "a second label `L`"),
        (".shared .b32 s[];", "`s` has no size"),
    ] {
        let e = load(&inside(body)).expect_err(body);
        assert!(e.contains("line 5") && e.contains(says), "{body}: {e}");
    }
    for (front, says) in [
        (".global .b32 s; .shared .b32 s;", "a second variable `s`"),
        (".extern .shared .b32 s[]; .extern .shared .b64 s[];", "`s` was declared with another type"),
        (".extern .global .b32 s[4]; .global .b32 s[8];", "`s` was declared with another type or size"),
        (".global .b32 k;", "a variable is called `k` too"),
        (".func f() { ret; } .global .b32 f;", "a function is called `f` too"),
        (".func f() { ret; } .func f();", "a second function `f`"),
        (".func f(.param .b32 x); .func f(.param .u32 x) { ret; }", "`f` was declared with other parameters"),
        (".func (.param .b32 r) f(); .func f() { ret; }", "`f` was declared with other parameters"),
        (".func k(.param .u64 o);", "`k` was declared with other parameters"),
        (".entry k(.param .u32 o);", "`k` was declared with other parameters"),
    ] {
        let e = load(&format!("{front}\n{k}")).expect_err(front);
        assert!(e.contains(says), "{front}: {e}");
    }
    for good in [
        inside(".reg .b32 %r<5>; .reg .b64 %r5; { .reg .b64 %r1; .reg .f32 %r<1>; } { .reg .b32 o; }"),
        inside(".reg .b32 %r, %r1<5>, %r<20>, k, r<3>; r1: { r1: }"),
        format!(".extern .shared .b32 s[]; .extern .shared .align 16 .b32 s[]; .visible .entry k(.param .u64 a);\n{k}"),
        format!(".extern .global .b32 s[]; .visible .global .b32 s[4]; .extern .global .b32 s[];\n{k}"),
        format!(".func f(.param .b32 a); .func f(.param .b32 b); .func f(.param .b32 c) {{ ret; }}\n{k}"),
    ] {
        load(&good).unwrap_or_else(|e| panic!("{good}: {e}"));
    }
}

#[test]
fn what_a_name_means_depends_on_its_scope() {
    // Two variables of a name in scopes of their own, of which the second is larger.
    let body = "{ .shared .b32 s; st.shared.u32 [s], 5; { .shared .b64 s[8]; st.shared.u64 [s+56], 6; ld.shared.u64 %x1, [s+56]; }\n\
                ld.shared.u32 %r1, [s]; } st.global.u32 [%o], %r1; st.global.u64 [%o+8], %x1;";
    assert_eq!(words("", body, 4), [5, 0, 6, 0]);
    let front = ".visible .global .u32 a = 7; .extern .global .u32 a;";
    assert_eq!(words(front, "ld.global.u32 %r1, [a]; st.global.u32 [%o], %r1;", 1), [7]);
}

#[test]
fn a_named_variable_says_its_space() {
    let body = ".shared .b32 s[4]; .local .b32 l[4]; st.u32 [s+4], 5; st.u32 [l+8], 6; atom.add.u32 %r1, [s+4], 2; ld.u32 %r2, [s+4];\n\
                ld.volatile.u32 %r3, [l+8]; ld.u32 %r4, [g]; st.global.v2.u32 [%o], {%r1, %r2}; st.global.v2.u32 [%o+8], {%r3, %r4};";
    assert_eq!(words(".global .u32 g = 9;", body, 4), [5, 7, 6, 9]);
}
