//! Video instructions against values computed in Rust, 128-bit atomics, and names for what is not there.

use crate::common::lanes::*;
use crate::common::*;
use warpsim::{Gpu, Kind, Module, Options};

fn bytes_of(a: u32, b: u32, c: u32, f: impl Fn(u8, u8, u8) -> u8) -> u32 {
    (0..4).fold(0, |d, k| d | u32::from(f((a >> (8 * k)) as u8, (b >> (8 * k)) as u8, (c >> (8 * k)) as u8)) << (8 * k))
}

fn sum(a: u32, b: u32, c: u32, f: impl Fn(u8, u8) -> i32) -> u32 {
    (0..4).fold(c, |d, k| d.wrapping_add(f((a >> (8 * k)) as u8, (b >> (8 * k)) as u8) as u32))
}

#[test]
fn bytes_and_halves() {
    int32("vabsdiff4.u32.u32.u32 %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| x.abs_diff(y)));
    int32("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", |a, b, c| sum(a, b, c, |x, y| x.abs_diff(y).into()));
    int32("vabsdiff4.s32.s32.s32.sat %d, %a, %b, %c;", |a, b, c| {
        bytes_of(a, b, c, |x, y, _| (x as i8).abs_diff(y as i8).min(127))
    });
    int32("vadd4.u32.u32.u32.sat %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| x.saturating_add(y)));
    int32("vadd4.s32.s32.s32 %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| x.wrapping_add(y)));
    int32("vsub4.s32.s32.s32.sat %d, %a, %b, %c;", |a, b, c| {
        bytes_of(a, b, c, |x, y, _| (x as i8).saturating_sub(y as i8) as u8)
    });
    int32("vsub4.u32.u32.u32.sat %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| x.saturating_sub(y)));
    int32("vavrg4.u32.u32.u32 %d, %a, %b, %c;", |a, b, c| {
        bytes_of(a, b, c, |x, y, _| (x as u16 + y as u16).div_ceil(2) as u8)
    });
    int32("vavrg4.s32.s32.s32 %d, %a, %b, %c;", |a, b, c| {
        bytes_of(a, b, c, |x, y, _| {
            let s = i32::from(x as i8) + i32::from(y as i8);
            (if s >= 0 { (s + 1) >> 1 } else { s >> 1 }) as u8
        })
    });
    int32("vmin4.s32.s32.s32 %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| (x as i8).min(y as i8) as u8));
    int32("vmax4.u32.u32.u32 %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| x.max(y)));
    int32("vset4.u32.u32.ge %d, %a, %b, %c;", |a, b, c| bytes_of(a, b, c, |x, y, _| (x >= y).into()));
    int32("vset4.s32.s32.lt.add %d, %a, %b, %c;", |a, b, c| sum(a, b, c, |x, y| ((x as i8) < y as i8).into()));
    let half = |v: u32, k: u32| (v >> (16 * k)) as u16;
    int32("vabsdiff2.u32.u32.u32 %d, %a, %b, %c;", |a, b, _| {
        u32::from(half(a, 0).abs_diff(half(b, 0))) | u32::from(half(a, 1).abs_diff(half(b, 1))) << 16
    });
    int32("vadd2.s32.s32.s32.sat %d, %a, %b, %c;", |a, b, _| {
        let add = |k| (half(a, k) as i16).saturating_add(half(b, k) as i16) as u16;
        u32::from(add(0)) | u32::from(add(1)) << 16
    });
}

#[test]
fn chosen_parts() {
    // Lanes 0 and 2 are computed, the others come from `c`; bytes of `a` are turned around.
    int32("vadd4.u32.u32.u32 %d.b20, %a.b0123, %b, %a;", |a, b, _| {
        bytes_of(a.swap_bytes(), b, 0, |x, y, _| x.wrapping_add(y)) & 0x00ff_00ff | a & 0xff00_ff00
    });
    // Both operands may take parts of both registers.
    int32("vsub2.u32.u32.u32 %d, %a.h21, %b.h03, %c;", |a, b, _| {
        let low = (a >> 16).wrapping_sub(b >> 16) & 0xffff;
        low | (b.wrapping_sub(a) & 0xffff) << 16
    });
    int32("vset2.u32.u32.eq.add %d.h1, %a, %b, %c;", |a, b, c| c + u32::from(a >> 16 == b >> 16));
}

#[test]
fn scalars() {
    int32("vabsdiff.s32.s32.s32 %d, %a, %b;", |a, b, _| (a as i32).abs_diff(b as i32));
    int32("vabsdiff.u32.u32.u32.add %d, %a.b1, %b.h1, %c;", |a, b, c| (a >> 8 & 255).abs_diff(b >> 16) + c);
    int32("vadd.s32.u32.s32.sat %d, %a, %b;", |a, b, _| {
        (i64::from(a) + i64::from(b as i32)).clamp(i32::MIN.into(), i32::MAX.into()) as u32
    });
    int32("vsub.u32.u32.u32.sat %d, %a, %b.b0;", |a, b, _| a.saturating_sub(b & 255));
    int32("vmin.s32.s32.s32.max %d, %a.h0, %b, %c;", |a, b, c| i32::from(a as i16).min(b as i32).max(c as i32) as u32);
    int32("vmax.u32.u32.u32.sat %d.b2, %a, %b, %a;", |a, b, _| a & 0xff00_ffff | a.max(b).min(255) << 16);
}

#[test]
fn shifts_and_comparisons_of_parts() {
    int32("vshl.u32.u32.u32.clamp %d, %a, %b;", |a, b, _| a.checked_shl(b).unwrap_or(0));
    int32("vshl.u32.u32.u32.wrap %d, %a.b1, %b.b0;", |a, b, _| (a >> 8 & 255) << (b & 31));
    // Before a result saturates it has 34 bits, as an H200 has it.
    let shifted = |a: i64, b: u32| (a << b) << 30 >> 30;
    int32("vshl.s32.s32.u32.wrap.sat %d, %a.h0, %b;", |a, b, _| {
        shifted((a as i16).into(), b & 31).clamp(i32::MIN.into(), i32::MAX.into()) as u32
    });
    int32("vshl.u32.u32.u32.clamp.sat %d, %a, %b;", |a, b, _| {
        shifted(a.into(), b.min(32)).clamp(0, u32::MAX.into()) as u32
    });
    int32("vshr.u32.u32.u32.wrap %d, %a, %b;", |a, b, _| a >> (b & 31));
    int32("vshr.s32.s32.u32.clamp.add %d, %a.h1, %b, %c;", |a, b, c| {
        (i64::from((a >> 16) as i16) >> b.min(32)).wrapping_add((c as i32).into()) as u32
    });
    int32("vshr.u32.u32.u32.wrap %d.b2, %a, %b, %c;", |a, b, c| c & 0xff00_ffff | (a >> (b & 31) & 255) << 16);
    int32("vset.u32.u32.lt %d, %a, %b.h0;", |a, b, _| (a < b & 0xffff).into());
    int32("vset.s32.s32.ge.add %d, %a, %b, %c;", |a, b, c| c.wrapping_add((a as i32 >= b as i32).into()));
    // The second operation has the type of the first operand.
    int32("vset.u32.s32.ne.min %d, %a, %b, %c;", |a, b, c| c.min((i64::from(a) != i64::from(b as i32)).into()));
    int32("vset.s32.u32.lt.max %d, %a, %b, %c;", |a, b, c| {
        (c as i32).max((i64::from(a as i32) < i64::from(b)).into()) as u32
    });
    int32("vset.u32.u32.eq %d.h1, %a.b0, %b.b0, %c;", |a, b, c| c & 0xffff | u32::from(a & 255 == b & 255) << 16);
}

#[test]
fn products_and_sums_of_parts() {
    int32("vmad.u32.u32.u32 %d, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    int32("vmad.s32.s32.s32.sat %d, %a, %b, %c;", |a, b, c| {
        let sum = i64::from(a as i32) * i64::from(b as i32) + i64::from(c as i32);
        sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    });
    int32("vmad.u32.u32.u32.sat.shr7 %d, %a, %b, %c;", |a, b, c| {
        ((u64::from(a) * u64::from(b) + u64::from(c)) >> 7).min(u32::MAX.into()) as u32
    });
    int32("vmad.s32.u32.s32.shr15 %d, %a.h1, %b.b2, %c;", |a, b, c| {
        ((i64::from(a >> 16) * i64::from((b >> 16) as i8) + i64::from(c as i32)) >> 15) as u32
    });
    int32("vmad.s32.u32.u32.sat %d, -%a.h0, %b.h0, %c;", |a, b, c| {
        let sum = i64::from(c as i32) - i64::from(a & 0xffff) * i64::from(b & 0xffff);
        sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    });
    int32("vmad.u32.u32.u32 %d, -%a, -%b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    int32("vmad.s32.u32.u32 %d, %a.b0, %b.b1, -%c;", |a, b, c| (a & 255).wrapping_mul(b >> 8 & 255).wrapping_sub(c));
    int32("vmad.u32.u32.u32.po.shr7 %d, %a.b3, %b.b3, %c;", |a, b, c| {
        ((u64::from((a >> 24) * (b >> 24)) + u64::from(c) + 1) >> 7) as u32
    });
}

fn wide(body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 place, .param .u64 out)\n{{\n\
         .reg .b32 %r<4>; .reg .b64 %x<9>; .reg .b128 %w<5>; .reg .pred %p<3>;\n\
         ld.param.u64 %x1, [place]; ld.param.u64 %x2, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %x3, %r1, 16; add.u64 %x2, %x2, %x3;\n\
         cvt.u64.u32 %x4, %r1; add.u64 %x4, %x4, 1; mov.u64 %x5, 100; sub.u64 %x5, %x5, %x4; mov.b128 %w1, {{%x4, %x5}};\n\
         mov.u64 %x6, 0; mov.b128 %w2, {{%x6, %x6}};\n{body}\nst.global.b128 [%x2], %w3;\nret;\n}}\n"
    )
}

#[test]
fn atomics_of_128_bits() {
    for o in all_options() {
        let mut g = Gpu::new();
        let (place, out) = (g.alloc_with(&[0; 32], "place"), g.alloc(64 * 16, "out"));
        let args = [place, out].map(u64::to_le_bytes);
        let args: Vec<&[u8]> = args.iter().map(|a| a.as_slice()).collect();
        let pairs =
            |g: &Gpu, at, n: usize| read::<u64>(g, at, 2 * n).chunks(2).map(|c| (c[0], c[1])).collect::<Vec<_>>();
        run(&mut g, &wide("atom.exch.b128 %w3, [%x1], %w1;"), "k", 1, 64, 0, &args, &o);
        // Every value was there once.
        let mut seen = pairs(&g, out, 64);
        seen.extend(pairs(&g, place, 1));
        seen.sort_unstable();
        assert_eq!(seen, (0..65).map(|k| (k, if k == 0 { 0 } else { 100 - k })).collect::<Vec<_>>());

        g.write(place, &[0; 16]).unwrap();
        run(&mut g, &wide("atom.global.cas.b128 %w3, [%x1], %w2, %w1;"), "k", 1, 64, 0, &args, &o);
        let won = pairs(&g, place, 1)[0];
        assert!(won.0 > 0 && won.0 + won.1 == 100);
        let found = pairs(&g, out, 64);
        assert_eq!(found.iter().filter(|old| **old == (0, 0)).count(), 1);
        assert!(found.iter().all(|old| *old == (0, 0) || *old == won));

        let shared = "{ .shared .align 16 .b8 tile[16]; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.b128 [tile], %w2; bar.sync 0;\n\
                      atom.shared.exch.b128 %w3, [tile], %w1; }";
        run(&mut g, &wide(shared), "k", 1, 64, 0, &args, &o);
        assert_eq!(pairs(&g, out, 64).iter().filter(|old| **old == (0, 0)).count(), 1);

        let odd = wide("atom.exch.b128 %w3, [%x1+8], %w1;");
        let fault = try_run(&mut g, &odd, "k", [1; 3], [1; 3], 0, &args, &o).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::Misaligned);
    }
}

#[test]
fn what_is_not_there_is_named() {
    let refused = |body: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<9>; .reg .b64 %x<4>; .reg .f32 %f<5>;\n{body}\nret;\n}}\n"
        );
        let error = Module::parse(&text).unwrap().kernel("k").err().unwrap();
        assert_eq!(error.line, 7);
        error.message
    };
    for body in [
        "tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%x1, {%r1,%r2}];",
        "suld.b.1d.b32.trap %r1, [%x1, {%r2}];",
        "sust.b.1d.b32.trap [%x1, {%r2}], %r1;",
        "txq.width.b32 %r1, [%x1];",
    ] {
        let op = body.split(' ').next().unwrap();
        let message = refused(body);
        assert!(
            message.contains(&format!("`{op}`")) && message.contains("through a pointer to global memory"),
            "{message}"
        );
    }
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.global .texref image;\n";
    let error = Module::parse(text).err().unwrap();
    assert_eq!(
        (error.line, error.message.as_str()),
        (4, "`image` is a `.texref`: textures and surfaces are not modelled")
    );
    assert!(refused("vavrg.u32.u32.u32 %r1, %r2, %r3;").contains("unsupported video instruction `vavrg`"));
    assert!(refused("vadd4.u32.u32.u32 %r1.h0, %r2, %r3, %r4;").contains("`.h0` does not select parts of a register"));
}

#[test]
fn what_is_reserved_of_shared_memory_is_beside_what_is_declared() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<9>; .reg .b64 %x<4>;\n\
                .shared .align 4 .b8 own[64];\n\
                ld.param.u64 %x1, [out]; mov.u32 %r1, %reserved_smem_offset_begin; mov.u32 %r2, %reserved_smem_offset_end;\n\
                mov.u32 %r3, %reserved_smem_offset_cap; mov.u32 %r4, %reserved_smem_offset_0; mov.u32 %r5, %reserved_smem_offset_1;\n\
                mov.u32 %r6, own; sub.u32 %r2, %r2, %r1; sub.u32 %r4, %r4, %r1; sub.u32 %r5, %r5, %r1; sub.u32 %r1, %r1, %r6;\n\
                st.global.v4.u32 [%x1], {%r2,%r3,%r4,%r5}; st.global.u32 [%x1+16], %r1;\nret;\n}\n";
    let mut g = Gpu::new();
    let out = g.alloc(20, "out");
    run(&mut g, text, "k", 1, 1, 0, &[&out.to_le_bytes()], &Options::default());
    let [size, cap, first, second, from_own]: [u32; 5] = read::<u32>(&g, out, 5).try_into().unwrap();
    assert_eq!([size, cap, first, second], [1024, 1024, 0, 512]);
    assert!((64..i32::MAX as u32).contains(&from_own) || from_own as i32 <= -1024, "{}", from_own as i32);
}
