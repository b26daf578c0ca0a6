//! Calls through pointers, whose targets differ between the lanes of a warp.

use crate::common::*;
use warpsim::{Checks, Gpu, Kind, Launch, Module, Options};

/// Lane l calls `thrice` or `square` as bit 1 of l says; lanes whose bit 2 is set do not call. A shuffle after the call needs all lanes.
/// The call is written as nvcc writes it.
fn kernel(pointer: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .func (.param .b32 func_retval0) thrice(.param .b32 x);\n\
         .func (.param .b32 func_retval0) square(.param .b32 x)\n{{\n.reg .b32 %r<4>;\nld.param.u32 %r1, [x];\nmul.lo.s32 %r2, %r1, %r1;\nst.param.b32 [func_retval0+0], %r2;\nret;\n}}\n\
         .func (.param .b32 func_retval0) thrice(.param .b32 x)\n{{\n.reg .b32 %r<4>;\n.reg .pred %p<2>;\nld.param.u32 %r1, [x];\n\
         setp.eq.u32 %p1, %r1, 9;\n@%p1 bra L;\nmul.lo.s32 %r1, %r1, 3;\nL:\nst.param.b32 [func_retval0+0], %r1;\nret;\n}}\n\
         .global .align 8 .u64 table[2] = {{square, thrice}};\n\
         .visible .entry k(.param .u64 out)\n{{\n.reg .pred %p<3>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n\
         bfe.u32 %r2, %r1, 1, 1;\nsetp.ne.u32 %p1, %r2, 0;\n{pointer}\nand.b32 %r3, %r1, 4;\nsetp.ne.u32 %p2, %r3, 0;\nmov.u32 %r4, 1000;\n@%p2 bra JOIN;\n\
         {{ // callseq 0, 0\n.reg .b32 temp_param_reg;\n.param .b32 param0;\nst.param.b32 [param0+0], %r1;\n.param .b32 retval0;\n\
         prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (retval0),\n%rd3,\n(\nparam0\n)\n, prototype_0;\nld.param.b32 %r4, [retval0+0];\n}} // callseq 0\n\
         JOIN:\nshfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;\nadd.s32 %r6, %r5, %r4;\nst.global.u32 [%rd1], %r6;\nret;\n}}"
    )
}

const SELECTED: &str = "mov.u64 %rd4, square;\nmov.u64 %rd5, thrice;\nselp.b64 %rd3, %rd5, %rd4, %p1;";
const LOADED: &str =
    "mov.u64 %rd4, table;\nmul.wide.u32 %rd5, %r2, 8;\nadd.s64 %rd4, %rd4, %rd5;\nld.global.u64 %rd3, [%rd4];";

fn result(l: u32) -> u32 {
    match (l & 4 != 0, l & 2 != 0) {
        (true, _) => 1000,
        (_, false) => l * l,
        (_, true) if l == 9 => 9,
        (_, true) => 3 * l,
    }
}

#[test]
fn lanes_of_a_warp_call_different_functions() {
    for pointer in [SELECTED, LOADED] {
        for o in all_options() {
            let mut g = Gpu::new();
            let q = g.alloc(256, "out");
            let o = Options { metrics: true, ..o };
            let r = run(&mut g, &kernel(pointer), "k", 1, 64, 0, &[&q.to_le_bytes()], &o);
            let want: Vec<u32> = (0..64).map(|l| result(l) + result(l ^ 1)).collect();
            assert_eq!(read::<u32>(&g, q, 64), want);
            // The lanes met again: each warp executed the shuffle once.
            let m = r.metrics.unwrap();
            let shuffles: Vec<_> = m.lines.iter().filter(|l| l.place.instruction.starts_with("shfl")).collect();
            assert_eq!((shuffles.len(), shuffles[0].executed, shuffles[0].threads), (1, 2, 64));
        }
    }
}

#[test]
fn a_pointer_to_no_function_is_a_fault() {
    for value in ["0", "77", "-1", "0x100000000"] {
        let mut g = Gpu::new();
        let q = g.alloc(256, "out");
        let text = kernel(&format!("mov.u64 %rd3, {value};"));
        let f =
            try_run(&mut g, &text, "k", [1; 3], [64, 1, 1], 0, &[&q.to_le_bytes()], &Options::default()).unwrap_err();
        assert_eq!(f.finding.kind, Kind::IllegalInstruction);
        assert!(f.to_string().contains("not a function"), "{f}");
    }
}

#[test]
fn a_recursion_without_an_end_overflows_the_stack() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.func deeper()\n{\ncall deeper;\nret;\n}\n\
                .visible .entry k()\n{\ncall deeper;\nret;\n}";
    let kernel = Module::parse(text).unwrap().kernel("k").unwrap();
    let fault = Gpu::new().launch(&kernel, &Launch::default(), &Options::default()).unwrap_err();
    assert_eq!(fault.finding.kind, Kind::OutOfBounds);
    assert!(fault.finding.message.contains("calls nested more than 256 deep"), "{fault}");
}

#[test]
fn a_called_function_knows_its_rank() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n\
        .func (.param .b32 out) rank()\n{\n.reg .b32 %r<2>; mov.u32 %r1, %cluster_ctarank; st.param.b32 [out], %r1; ret;\n}\n\
        .visible .entry k(.param .u64 q)\n.reqnctapercluster 2, 1, 1\n{\n.reg .b32 %r<4>; .reg .b64 %rd<4>; .param .b32 ret;\n\
        ld.param.u64 %rd1, [q]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n\
        call (ret), rank; ld.param.b32 %r2, [ret]; st.global.u32 [%rd1], %r2; ret;\n}";
    let mut g = Gpu::new();
    let q = g.alloc(16, "out");
    run(&mut g, text, "k", 4, 1, 0, &[&q.to_le_bytes()], &Options::default());
    assert_eq!(read::<u32>(&g, q, 4), [0, 1, 0, 1]);
}

#[test]
fn virtual_functions_and_tables_of_nvcc() {
    let Some(text) = nvcc::ptx("calls") else { return };
    for o in all_options() {
        let mut g = Gpu::new();
        let q = g.alloc(256, "out");
        run(&mut g, &text, "calls", 1, 64, 0, &[&q.to_le_bytes()], &o);
        let want = |t: i32| {
            let area = if t & 1 == 1 { t * t } else { t * 10 };
            let second = match t % 3 {
                0 => t + 1,
                1 if t & 8 != 0 => 7,
                1 => t * 3,
                _ => t + (t & 7),
            };
            area * 1000 + second
        };
        assert_eq!(read::<i32>(&g, q, 64), (0..64).map(want).collect::<Vec<_>>());
    }
}

/// Two functions with a local variable each, called one after the other: they lie in the same place.
fn frames(second: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .func (.param .b32 result) writes()\n{{\n.local .align 4 .b8 depot[8];\n.reg .b32 %r<2>;\nst.local.u32 [depot], 5;\nld.local.u32 %r1, [depot];\n\
         st.param.b32 [result], %r1;\nret;\n}}\n\
         .func (.param .b32 result) reads()\n{{\n.local .align 4 .b8 depot[8];\n.reg .b32 %r<2>;\n{second}\nld.local.u32 %r1, [depot];\n\
         st.param.b32 [result], %r1;\nret;\n}}\n\
         .visible .entry k(.param .u64 out)\n{{\n.reg .b32 %r<4>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [out];\n\
         {{\n.param .b32 a;\ncall (a), writes, ();\nld.param.b32 %r1, [a];\n}}\n{{\n.param .b32 b;\ncall (b), reads, ();\nld.param.b32 %r2, [b];\n}}\n\
         add.s32 %r3, %r1, %r2;\nst.global.u32 [%rd1], %r3;\nret;\n}}"
    )
}

#[test]
fn a_frame_begins_unwritten() {
    for o in all_options().into_iter().filter(|o| o.checks.init) {
        let mut g = Gpu::new();
        let q = g.alloc(4, "out");
        run(&mut g, &frames("st.local.u32 [depot], 6;"), "k", 1, 32, 0, &[&q.to_le_bytes()], &o);
        assert_eq!(read::<u32>(&g, q, 1), [11]);
        let one = [1, 1, 1];
        let r =
            try_run(&mut g, &frames(""), "k", one, one, 0, &[&q.to_le_bytes()], &o).unwrap_or_else(|f| panic!("{f}"));
        let found = r.findings.iter().find(|f| f.kind == Kind::UninitialisedLocal);
        let found = found.unwrap_or_else(|| panic!("{:?}", r.findings));
        assert_eq!(found.place.instruction, "st.global.u32");
        assert!(found.message.contains("what it stores depends on local memory"), "{}", found.message);
    }
}

/// Two functions write to the same word, by instructions that have the same place in them.
#[test]
fn the_earlier_access_of_a_race_is_named_in_its_own_function() {
    for (space, place) in [("shared", "tile"), ("global", "out")] {
        let function = |name: &str, skip: usize| {
            let front = "add.u64 %x1, %x1, 0; ".repeat(skip);
            format!(
                ".func {name}(.param .u64 a, .param .u32 v)\n{{\n.reg .b64 %x<2>; .reg .b32 %r<2>;\n\
                 ld.param.u64 %x1, [a]; ld.param.u32 %r1, [v]; {front}\nst.{space}.u32 [%x1], %r1;\nret;\n}}\n"
            )
        };
        for skip in [0, 9] {
            let text = format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n{}{}.visible .entry k(.param .u64 out)\n{{\n\
                 .reg .pred %p; .reg .b64 %x<2>; .reg .b32 %r<3>; .shared .b32 tile[4];\n\
                 ld.param.u64 %x1, [out]; {} mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 32; @%p bra A;\n\
                 {{ .param .u64 a; .param .u32 v; st.param.u64 [a], %x1; st.param.u32 [v], %r1; call one, (a, v); }} bra E;\n\
                 A: {{ .param .u64 a; .param .u32 v; st.param.u64 [a], %x1; st.param.u32 [v], %r1; call other, (a, v); }}\nE: ret;\n}}",
                function("one", 0),
                function("other", skip),
                if space == "shared" { "mov.u64 %x1, tile;" } else { "" },
            );
            let mut g = Gpu::new();
            let out = g.alloc(16, "out");
            let o = Options { checks: Checks::ALL, ..Options::default() };
            let r = try_run(&mut g, &text, "k", [1; 3], [64, 1, 1], 0, &[&out.to_le_bytes()], &o).unwrap();
            let lines = [8, 15];
            let pair =
                r.findings.iter().filter_map(|f| f.earlier.as_ref().map(|e| (f.place.ptx_line, e.place.ptx_line)));
            let between = pair.filter(|(a, b)| a != b).collect::<Vec<_>>();
            assert!(!between.is_empty(), "{space} {place}: {:?}", r.findings);
            for (a, b) in between {
                assert!(lines.contains(&a) && lines.contains(&b), "{space}: lines {a} and {b}");
            }
        }
    }
}

/// The sum of as many arguments as the first one says, of which the call passes three.
#[test]
fn a_variadic_function_reads_the_arguments_that_there_are() {
    let text = |count: u32| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n\
             .func (.param .b32 out) sum(.param .b32 n, .param .align 8 .b8 %VAParam[])\n{{\n\
             .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<3>;\nld.param.u32 %r1, [n]; mov.u64 %rd1, %VAParam; mov.u32 %r2, 0;\n\
             L: ld.local.u32 %r3, [%rd1]; add.u32 %r2, %r2, %r3; add.u64 %rd1, %rd1, 4; sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;\n\
             @%p1 bra L;\nst.param.b32 [out], %r2; ret;\n}}\n\
             .visible .entry k(.param .u64 q)\n{{\n.reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [q];\n\
             {{ .param .b32 n; .param .align 8 .b8 args[12]; .param .b32 out; st.param.b32 [n], {count};\n\
             st.param.b32 [args], 5; st.param.b32 [args+4], 6; st.param.b32 [args+8], 7;\n\
             call (out), sum, (n, args); ld.param.b32 %r1, [out]; }}\nst.global.u32 [%rd1], %r1; ret;\n}}"
        )
    };
    for o in all_options() {
        let mut g = Gpu::new();
        let q = g.alloc(4, "out");
        run(&mut g, &text(3), "k", 1, 32, 0, &[&q.to_le_bytes()], &o);
        assert_eq!(read::<u32>(&g, q, 1), [18]);
        let caught = match try_run(&mut g, &text(4), "k", [1; 3], [32, 1, 1], 0, &[&q.to_le_bytes()], &o) {
            Ok(report) => report.findings,
            Err(fault) => vec![*fault.finding],
        };
        assert!(caught.iter().any(|f| matches!(f.kind, Kind::UninitialisedLocal | Kind::OutOfBounds)), "{caught:?}");
    }
}

/// A format for two numbers, of which the caller has written as many as it says.
#[test]
fn printf_has_the_arguments_that_its_format_names() {
    let text = |second: &str| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
             .global .align 1 .b8 format[7] = {{37, 100, 32, 37, 100, 10, 0}};\n\
             .visible .entry k()\n{{\n.local .align 8 .b8 depot[8]; .reg .b64 %rd<4>;\nst.local.u32 [depot], 3; {second}\n\
             mov.u64 %rd1, depot; cvta.local.u64 %rd1, %rd1; mov.u64 %rd2, format; cvta.global.u64 %rd2, %rd2;\n\
             {{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd2; st.param.b64 [b], %rd1;\n\
             call (r), vprintf, (a, b); }}\nret;\n}}"
        )
    };
    for o in all_options() {
        let mut g = Gpu::new();
        let r = run(&mut g, &text("st.local.u32 [depot+4], 4;"), "k", 1, 1, 0, &[], &o);
        assert_eq!(r.output, "3 4\n");
        let r = try_run(&mut g, &text(""), "k", [1; 3], [1; 3], 0, &[], &o).unwrap();
        let says = "prints an argument that nobody wrote: does `%d %d` have more than it is given?";
        assert!(r.findings[0].kind == Kind::UninitialisedLocal && r.findings[0].message == says, "{:?}", r.findings);
    }
}
