//! State spaces and memory that is not just loaded and stored: windows, the stack, discarded lines.

use crate::common::*;
use warpsim::{Checks, Gpu, Kind, Launch, Module, Options};

fn text(globals: &str, head: &str, body: &str) -> String {
    format!(
        ".version 8.1\n.target sm_90\n.address_size 64\n{globals}\n.visible .entry k(.param .u64 out, .param .u64 p)\n{head}\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %x<20>;\n\
         ld.param.u64 %x1, [out]; ld.param.u64 %x2, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mul.wide.u32 %x3, %r1, 4; add.u64 %x1, %x1, %x3;\n{body}\nret;\n}}"
    )
}

#[test]
fn isspacep_knows_every_window() {
    let asks = ["global", "const", "shared", "shared::cta", "shared::cluster", "local", "param"];
    let addresses = [
        ("mov.u64 %x4, %x2;", 1),
        ("mov.u64 %x4, ordinary; cvta.global.u64 %x4, %x4;", 1),
        ("mov.u64 %x4, konst; cvta.const.u64 %x4, %x4; add.u64 %x4, %x4, 7;", 2),
        ("mov.u64 %x4, konst; cvta.const.u64 %x4, %x4; add.u64 %x4, %x4, 8;", 1),
        ("cvta.shared.u64 %x4, tile;", 0b1_1100),
        ("cvta.shared.u64 %x4, tile; xor.b32 %r3, %r2, 1; mapa.u64 %x4, %x4, %r3;", 0b1_0000),
        ("cvta.shared.u64 %x4, tile; mapa.u64 %x4, %x4, %r2;", 0b1_1100),
        ("cvta.local.u64 %x4, depot;", 0b10_0000),
        ("mov.b64 %x4, p; cvta.param.u64 %x4, %x4;", 0b100_0001),
    ];
    for (address, want) in addresses {
        let tests: String = (0..asks.len())
            .map(|k| format!("isspacep.{} %p1, %x4; @%p1 or.b32 %r4, %r4, {};\n", asks[k], 1 << k))
            .collect();
        let body = format!(
            ".shared .b8 tile[16]; .local .b8 depot[8];\n{address}\nmov.b32 %r4, 0;\n{tests}\
             mad.lo.u32 %r5, %r2, 4, 0; cvt.u64.u32 %x5, %r5; add.u64 %x1, %x1, %x5; st.global.u32 [%x1], %r4;"
        );
        let globals = ".global .b32 ordinary = 1; .const .b32 konst[2] = {1, 2};";
        let mut g = Gpu::new();
        let (q, p) = (g.alloc(8, "out"), g.alloc(8, "p"));
        let args: [&[u8]; 2] = [&q.to_le_bytes(), &p.to_le_bytes()];
        run(&mut g, &text(globals, ".reqnctapercluster 2, 1, 1", &body), "k", 2, 1, 0, &args, &Options::default());
        assert_eq!(read::<u32>(&g, q, 2), [want; 2], "{address}");
    }
}

/// Lane l allocates 4 × (l + 1) bytes twice, fills them, calls a function that fills its own frame, and sums.
const STACK: &str = "\
    .reg .b64 %sp; add.u32 %r3, %r1, 1; shl.b32 %r3, %r3, 2; cvt.u64.u32 %x4, %r3;\n\
    stacksave.u64 %sp; alloca.u64 %x5, %x4; alloca.u64 %x6, %x4, 64; and.b64 %x9, %x6, 63; cvt.u32.u64 %r9, %x9;\n\
    mov.u32 %r4, 0;\nL: cvt.u64.u32 %x7, %r4; add.u64 %x8, %x5, %x7; st.local.u32 [%x8], %r4; add.u64 %x8, %x6, %x7;\n\
    cvta.local.u64 %x8, %x8; st.u32 [%x8], 1000; add.u32 %r4, %r4, 4; setp.lt.u32 %p1, %r4, %r3; @%p1 bra L;\n\
    { .param .b32 a; st.param.b32 [a], %r1; call scribble, (a); }\n\
    mov.u32 %r4, 0; mov.u32 %r5, 0;\nM: cvt.u64.u32 %x7, %r4; add.u64 %x8, %x5, %x7; ld.local.u32 %r6, [%x8]; add.u32 %r5, %r5, %r6; add.u64 %x8, %x6, %x7;\n\
    ld.local.u32 %r6, [%x8]; add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, 4; setp.lt.u32 %p1, %r4, %r3; @%p1 bra M;\n\
    stackrestore.u64 %sp; alloca.u64 %x10, 8; setp.ne.u64 %p2, %x10, %x5; @%p2 add.u32 %r5, %r5, 1000000;\n\
    add.u32 %r5, %r5, %r9; st.global.u32 [%x1], %r5;";

const SCRIBBLE: &str = ".func scribble(.param .b32 a)\n{\n.reg .b32 %r<4>; .reg .b64 %x<4>; .local .align 16 .b8 mine[64];\n\
    mov.u32 %r1, -1; st.local.v4.b32 [mine], {%r1, %r1, %r1, %r1}; st.local.v4.b32 [mine+48], {%r1, %r1, %r1, %r1};\n\
    alloca.u64 %x1, 32; st.local.u64 [%x1+24], -1; ret;\n}";

#[test]
fn the_stack_grows_and_shrinks() {
    for o in all_options() {
        let mut g = Gpu::new();
        let (q, p) = (g.alloc(256, "out"), g.alloc(8, "p"));
        let args: [&[u8]; 2] = [&q.to_le_bytes(), &p.to_le_bytes()];
        run(&mut g, &text(SCRIBBLE, "", STACK), "k", 1, 64, 0, &args, &o);
        let want: Vec<u32> = (0..64u32).map(|l| (0..=l).map(|k| 4 * k + 1000).sum()).collect();
        assert_eq!(read::<u32>(&g, q, 64), want);
    }
}

#[test]
fn the_stack_has_an_end() {
    for size in ["2000000", "-1", "1048577"] {
        let mut g = Gpu::new();
        let args: [&[u8]; 2] = [&[0; 8], &[0; 8]];
        let body = format!("alloca.u64 %x4, {size};");
        let f = try_run(&mut g, &text("", "", &body), "k", [1; 3], [32, 1, 1], 0, &args, &Options::default());
        let f = f.unwrap_err();
        assert!(f.finding.kind == Kind::OutOfBounds && f.to_string().contains("local memory is exhausted"), "{f}");
    }
}

#[test]
fn discarded_memory_counts_as_never_written() {
    let body = "discard.global.L2 [%x2+128], 128; ld.global.u32 %r3, [%x2+124]; ld.global.u32 %r4, [%x2+128]; st.global.u32 [%x2+252], 1; ld.global.u32 %r4, [%x2+252];";
    let o = Options { checks: Checks { init: true, ..Checks::NONE }, ..Options::default() };
    let mut g = Gpu::new();
    let (q, p) = (g.alloc(256, "out"), g.alloc_with(&[1; 256], "p"));
    let args: [&[u8]; 2] = [&q.to_le_bytes(), &p.to_le_bytes()];
    let r = try_run(&mut g, &text("", "", body), "k", [1; 3], [1; 3], 0, &args, &o).unwrap();
    assert_eq!(r.findings.len(), 1, "{}", r.findings[0]);
    assert!(r.findings[0].kind == Kind::UninitialisedGlobal && r.findings[0].address == Some(p + 128));
    let past = text("", "", "discard.global.L2 [%x2+256], 128;");
    assert_eq!(try_run(&mut g, &past, "k", [1; 3], [1; 3], 0, &args, &o).unwrap_err().finding.kind, Kind::OutOfBounds);
    let odd = text("", "", "discard.global.L2 [%x2+64], 128;");
    assert_eq!(try_run(&mut g, &odd, "k", [1; 3], [1; 3], 0, &args, &o).unwrap_err().finding.kind, Kind::Misaligned);
}

#[test]
fn an_alignment_beyond_the_stack_is_a_fault() {
    let args: [&[u8]; 2] = [&[0; 8], &[0; 8]];
    let text = text("", "", "alloca.u64 %x4, 4; alloca.u64 %x4, 4, 8388608;");
    let f = try_run(&mut Gpu::new(), &text, "k", [1; 3], [1; 3], 0, &args, &Options::default()).unwrap_err();
    assert_eq!(f.finding.kind, Kind::OutOfBounds);
}

#[test]
fn constant_memory_is_not_written() {
    let globals = ".global .b32 ordinary[4] = {1, 2, 3, 4}; .const .align 16 .b32 konst[4] = {1, 2, 3, 4};";
    let head = ".shared .align 16 .b8 tile[16]; cvta.const.u64 %x4, konst; mov.u32 %r3, 7;\n";
    for store in [
        "st.u32 [%x4+4], %r3;",
        "st.global.v2.u32 [%x4+8], {%r3, %r3};",
        "setp.eq.u32 %p1, %r1, 3; selp.b64 %x4, %x4, %x1, %p1; st.global.u32 [%x4], %r3;",
        "red.global.add.u32 [%x4], %r3;",
        "atom.cas.b32 %r4, [%x4], %r3, %r3;",
        "mov.u32 %r4, tile; cp.async.bulk.global.shared::cta.bulk_group [%x4], [%r4], 16; cp.async.bulk.commit_group;",
    ] {
        let run = |text: &str| {
            let mut g = Gpu::new();
            let (q, p) = (g.alloc_with(&[0; 128], "out"), g.alloc(8, "p"));
            let args: [&[u8]; 2] = [&q.to_le_bytes(), &p.to_le_bytes()];
            try_run(&mut g, text, "k", [1; 3], [32, 1, 1], 0, &args, &Options::default())
        };
        let bad = text(globals, "", &format!("{head}{store}"));
        let f = run(&bad).unwrap_err();
        assert!(f.finding.kind == Kind::OutOfBounds && f.to_string().contains("of `konst` (16 bytes)"), "{store} {f}");
        let good = bad.replace("cvta.const.u64 %x4, konst", "cvta.global.u64 %x4, ordinary");
        run(&good).unwrap_or_else(|f| panic!("{store} {f}"));
    }
    for form in ["st.const.u32 [konst], 7;", "red.const.add.u32 [konst], 7;"] {
        let e = warpsim::Module::parse(&text(globals, "", form)).unwrap().kernel("k").err().unwrap();
        assert!(e.message.contains("a kernel cannot write constant memory"), "{e}");
    }
}

/// The message of the fault that a thread of a block of one makes, which has that much dynamic shared memory.
fn fault(body: &str, shared_bytes: u32) -> String {
    let mut g = Gpu::new();
    let (q, p) = (g.alloc(8, "out"), g.alloc(8, "p"));
    let kernel = Module::parse(&text("", "", body)).unwrap().kernel("k").unwrap();
    let args: [&[u8]; 2] = [&q.to_le_bytes(), &p.to_le_bytes()];
    g.launch(&kernel, &Launch { args: &args, shared_bytes, ..Launch::default() }, &Options::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn addresses_outside_say_where_they_are() {
    let shared = ".shared .align 4 .b8 tile[16];\nmov.u32 %r3, tile;";
    for (body, words) in [
        (format!("{shared} add.u32 %r3, %r3, -12; st.shared.u32 [%r3], 1;"), "(12 bytes before its start)"),
        (format!("{shared} st.shared.u32 [%r3+20], 1;"), "(4 bytes past the end of `tile`)"),
        (
            format!("{shared} cvta.shared.u64 %x4, tile; ld.global.nc.u32 %r4, [%x4]; st.global.u32 [%x1], %r4;"),
            "a generic address of shared memory, which is not global memory",
        ),
        ("ld.param.u32 %r4, [p+2];".into(), "4 bytes at byte 10 of the parameters: not a multiple of 4"),
        ("mov.u64 %x4, 5000; st.global.u8 [%x4], 1;".into(), "1 byte at address 0x1388, before every allocation"),
        ("st.global.u16 [%x2+10], 1;".into(), "2 bytes at 2 bytes past the end of `p` (8 bytes)"),
    ] {
        let message = fault(&body, 0);
        assert!(message.contains(words), "{message}");
    }
    // Dynamic memory that the launch was to give, without a variable before it and behind one.
    for variable in ["", shared] {
        let body = format!("{variable} mov.u32 %r3, more; st.shared.u32 [%r3], 1;");
        let ptx = text(".extern .shared .align 16 .b8 more[];", "", &body);
        let kernel = Module::parse(&ptx).unwrap().kernel("k").unwrap();
        let args: [&[u8]; 2] = [&[0; 8]; 2];
        let launch = Launch { args: &args, ..Launch::default() };
        let message = Gpu::new().launch(&kernel, &launch, &Options::default()).unwrap_err().to_string();
        assert!(message.contains("(dynamic shared memory, of which the launch has none)"), "{message}");
    }
    // A kilobyte of nobody's lies between the variable and dynamic memory.
    let message = fault(&format!("{shared} st.shared.u32 [%r3+1104], 1;"), 64);
    assert!(message.contains("(0 bytes past the end of dynamic shared memory)"), "{message}");
}
