//! Guarded instructions: lanes that are switched off read nothing, however the instruction is executed.

use crate::common::*;
use warpsim::{Checks, Gpu, Options};

/// Only lanes below 16 write `%r2`, and only they may use it.
fn kernel(guard: &str) -> String {
    format!(
        ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .pred %p<5>; .reg .b32 %r<9>; .reg .b16 %h<5>; .reg .b64 %x<5>; .shared .align 4 .b8 tile[128];\n\
         ld.param.u64 %x1, [out]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; setp.ge.u32 %p2, %r1, 16; mul.wide.u32 %x2, %r1, 4; add.u64 %x1, %x1, %x2;\n\
         mov.u32 %r4, 1000; @%p1 mov.u32 %r2, 5;\n\
         {guard} mad.hi.u32 %r4, %r2, %r2, 3;\n\
         {guard} add.cc.u32 %r5, %r2, -1;\n\
         {guard} addc.u32 %r4, %r4, %r2;\n\
         {guard} bfi.b32 %r4, %r4, %r4, %r2, 1;\n\
         {guard} mov.b32 {{%h1, %h2}}, %r2;\n\
         {guard} mov.b32 %r6, {{%h2, %h1}};\n\
         {guard} add.u32 %r4, %r4, %r6;\n\
         {guard} lop3.or.b32 %r4|%p3, %r4, %r2, %r2, 0xf0, %p1;\n\
         st.global.u32 [%x1], %r4;\nret;\n}}"
    )
}

#[test]
fn lanes_that_are_off_read_nothing() {
    let o = Options { checks: Checks { init: true, ..Checks::NONE }, ..Options::default() };
    let mut g = Gpu::new();
    let q = g.alloc(128, "out");
    for guard in ["@%p1", "@!%p2"] {
        run(&mut g, &kernel(guard), "k", 1, 32, 0, &[&q.to_le_bytes()], &o);
        let out = read::<u32>(&g, q, 32);
        // 3 + 5 + 1 = 9; its lowest bit into bit 5: 41; 5 << 16 on top.
        assert_eq!((out[0], out[15], out[16], out[31]), (41 + (5 << 16), 41 + (5 << 16), 1000, 1000));
    }
    for (guard, lanes) in [("", "0xffff0000"), ("@%p2", "0xffff0000")] {
        let r = try_run(&mut g, &kernel(guard), "k", [1; 3], [32, 1, 1], 0, &[&q.to_le_bytes()], &o).unwrap();
        assert!(r.findings.iter().any(|f| f.message.contains(lanes) && f.place.instruction == "st.global.u32"));
    }
}
