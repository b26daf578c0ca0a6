//! Asynchronous work at the earliest and at the latest point: a missing wait shows as stale data.

use crate::common::*;
use warpsim::{Completion, Gpu, Options};

/// Copies 32 words to shared memory with `cp.async` over old contents, waits or not, and stores what it sees.
fn kernel(wait: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 16 .b8 tile[128];\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\n\
         shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], 77;\n\
         cp.async.ca.shared.global [%r3], [%rd1], 4; cp.async.commit_group;\n{wait}\nld.shared.u32 %r4, [%r3]; st.global.u32 [%rd2], %r4;\nret;\n}}"
    )
}

#[test]
fn a_missing_wait_reads_old_data() {
    let data: Vec<u32> = (0..32).collect();
    let see = |wait: &str, async_completion| {
        let mut g = Gpu::new();
        let (p, q) = (g.alloc_with(&bytes(&data), "p"), g.alloc(128, "q"));
        let o = Options { async_completion, ..Options::default() };
        run(&mut g, &kernel(wait), "k", 1, 32, 0, &[&p.to_le_bytes(), &q.to_le_bytes()], &o);
        read::<u32>(&g, q, 32)
    };
    let wait = "cp.async.wait_group 0;";
    assert_eq!(see(wait, Completion::Earliest), data);
    assert_eq!(see(wait, Completion::Latest), data);
    assert_eq!(see("", Completion::Earliest), data);
    assert_eq!(see("", Completion::Latest), [77; 32]);
}

#[test]
fn unsupported_instructions_are_errors_with_a_line() {
    let text = kernel("tex.2d.v4.f32.f32 {%r1, %r1, %r1, %r1}, [%rd1, {%r1, %r1}];");
    let e = warpsim::Module::parse(&text).unwrap().kernel("k").err().unwrap();
    assert!(e.line == 10 && e.message.contains("textures and surfaces are not modelled"), "{e}");
    let launches = ".extern .func (.param .b64 p) __cudaCDP2GetParameterBufferV2();\n.visible .entry";
    let text =
        kernel("{ .param .b64 p; call (p), __cudaCDP2GetParameterBufferV2; }").replacen(".visible .entry", launches, 1);
    let e = warpsim::Module::parse(&text).unwrap().kernel("k").err().unwrap();
    assert!(e.message.contains("dynamic parallelism) is not modelled: launch from the host"), "{e}");
    let e = warpsim::Module::parse(&kernel("add.wrong.u32 %r1, %r1, %r1;")).unwrap().kernel("k").err().unwrap();
    assert!(e.message.contains("`add.wrong.u32`: unsupported modifier `.wrong` for `.u32`"), "{e}");
    let e = warpsim::Module::parse(&kernel("add.u32 %r1 %r1, %r1;")).err().unwrap();
    assert_eq!(e.line, 10);
    let e = warpsim::Module::parse(&kernel("L: add.u32 %r1, %r1, %r1;\nL: bra L;")).unwrap().kernel("k").err().unwrap();
    assert!(e.line == 11 && e.message.contains("a second label `L`"), "{e}");
    let twice = ".entry k() { ret; }\n.entry k() { ret; }";
    let e = warpsim::Module::parse(&format!(".version 8.0\n.target sm_80\n.address_size 64\n{twice}")).err().unwrap();
    assert!(e.message.contains("a second function `k`"), "{e}");
}
