//! Runs one instruction, or a few, for 32 lanes.
#![allow(dead_code, unreachable_pub)]

use super::{bytes, read, run};
use warpsim::{Gpu, Options};

/// Runs `body` for 32 lanes: `%a`, `%b`, `%c` hold the inputs, `%d` the result; all 64-bit in memory, moved as 32 bits unless `wide`.
pub fn lanes(body: &str, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)\n{{\n\
         .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %a, %b, %c, %d, %r<9>; .reg .b64 %la, %lb, %lc, %ld, %x<9>;\n\
         ld.param.u64 %x1, [pa]; ld.param.u64 %x2, [pb]; ld.param.u64 %x3, [pc]; ld.param.u64 %x4, [pd]; mov.u32 %r1, %tid.x; mul.wide.u32 %x5, %r1, 8;\n\
         add.u64 %x1, %x1, %x5; add.u64 %x2, %x2, %x5; add.u64 %x3, %x3, %x5; add.u64 %x4, %x4, %x5;\n\
         ld.global.u64 %la, [%x1]; ld.global.u64 %lb, [%x2]; ld.global.u64 %lc, [%x3]; cvt.u32.u64 %a, %la; cvt.u32.u64 %b, %lb; cvt.u32.u64 %c, %lc;\n\
         mov.u64 %ld, 0; mov.u32 %d, 0;\n{body}\nst.global.u64 [%x4], %ld;\nret;\n}}"
    );
    let mut g = Gpu::new();
    let pad = |v: &[u64]| bytes(&(0..32).map(|k| v[k % v.len()]).collect::<Vec<u64>>());
    let (pa, pb, pc, pd) =
        (g.alloc_with(&pad(a), "a"), g.alloc_with(&pad(b), "b"), g.alloc_with(&pad(c), "c"), g.alloc(256, "d"));
    let args = [pa, pb, pc, pd].map(u64::to_le_bytes);
    let args: Vec<&[u8]> = args.iter().map(|v| v.as_slice()).collect();
    run(&mut g, &text, "k", 1, 32, 0, &args, &Options::default());
    read(&g, pd, 32)
}

pub const INTS: [u64; 16] =
    [0, 1, 2, 7, 31, 32, 33, 255, 256, 65535, 65536, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1234_5678, 0xdead_beef];
pub const SHIFTS: [u64; 8] = [0, 1, 5, 31, 32, 33, 64, 255];

/// Checks a 32-bit instruction for all combinations of some inputs.
pub fn int32(op: &str, want: impl Fn(u32, u32, u32) -> u32) {
    for (k, _) in INTS.iter().enumerate() {
        let a: Vec<u64> = (0..32).map(|l| INTS[l % 16]).collect();
        let b: Vec<u64> = (0..32).map(|l| INTS[(l + k) % 16]).collect();
        let c: Vec<u64> = (0..32).map(|l| SHIFTS[(l / 2 + k) % 8]).collect();
        let out = lanes(&format!("{op}\ncvt.u64.u32 %ld, %d;"), &a, &b, &c);
        for l in 0..32 {
            let (x, y, z) = (a[l] as u32, b[l] as u32, c[l] as u32);
            assert_eq!(out[l] as u32, want(x, y, z), "{op} with {x:#x}, {y:#x}, {z:#x}");
        }
    }
}
