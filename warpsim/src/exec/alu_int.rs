//! Integer, bit and move instructions.

use super::lane::lane;
use super::regs::{blend, cmp2, map1, map2, map3};

fn s16(v: u32) -> i32 {
    v as u16 as i16 as i32
}

/// Signed result kept as a 16-bit register value.
fn w16(v: i32) -> u32 {
    v as u32 & 0xffff
}

lane! {
    mov32 = |r, i, m| map1(r, i, m, |a: u32| a);
    mov64 = |r, i, m| map1(r, i, m, |a: u64| a);
    trunc64 = |r, i, m| map1(r, i, m, |a: u64| a as u32);
    zext = |r, i, m| map1(r, i, m, |a: u32| u64::from(a));
    /// Sign-extends from `imm` bits to 32.
    sext32 = |r, i, m| { let s = 32 - i.imm as u32; map1(r, i, m, |a: u32| ((a << s) as i32 >> s) as u32) };
    /// Sign-extends from `imm` bits to 64.
    sext64 = |r, i, m| { let s = 32 - i.imm as u32; map1(r, i, m, |a: u32| i64::from((a << s) as i32 >> s) as u64) };
    mask32 = |r, i, m| { let k = i.imm as u32; map1(r, i, m, |a: u32| a & k) };
    /// Low and high 32-bit halves.
    hi64 = |r, i, m| map1(r, i, m, |a: u64| (a >> 32) as u32);
    pack64 = |r, i, m| map2(r, i, m, |a: u32, b: u32| u64::from(a) | u64::from(b) << 32);
    pack32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a & 0xffff | b << 16);
    shr_imm = |r, i, m| { let s = i.imm as u32; map1(r, i, m, |a: u32| a >> s) };
    /// a | (b & 0xff) << imm
    insert8 = |r, i, m| { let s = i.imm as u32; map2(r, i, m, |a: u32, b: u32| a | (b & 0xff) << s) };

    add32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_add(b));
    sub32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_sub(b));
    mul32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_mul(b));
    mad32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c));
    add16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_add(b) & 0xffff);
    sub16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_sub(b) & 0xffff);
    mul16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_mul(b) & 0xffff);
    mad16 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c) & 0xffff);
    mulhi_u16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a & 0xffff) * (b & 0xffff) >> 16);
    mulhi_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| w16(s16(a) * s16(b) >> 16));
    mulwide_u16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a & 0xffff) * (b & 0xffff));
    mulwide_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (s16(a) * s16(b)) as u32);
    add64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.wrapping_add(b));
    sub64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.wrapping_sub(b));
    mul64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.wrapping_mul(b));
    mad64 = |r, i, m| map3(r, i, m, |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c));
    mulhi_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (u64::from(a) * u64::from(b) >> 32) as u32);
    mulhi_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32);
    mulhi_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| (u128::from(a) * u128::from(b) >> 64) as u64);
    mulhi_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| (i128::from(a as i64) * i128::from(b as i64) >> 64) as u64);
    mulwide_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| u64::from(a) * u64::from(b));
    mulwide_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (i64::from(a as i32) * i64::from(b as i32)) as u64);
    madwide_u32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c));
    madwide_s32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u64| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c));
    mul24_u = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff));
    mul24_s = |r, i, m| map2(r, i, m, |a: u32, b: u32| (((a << 8) as i32 >> 8).wrapping_mul((b << 8) as i32 >> 8)) as u32);
    addsat_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).saturating_add(b as i32) as u32);
    subsat_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).saturating_sub(b as i32) as u32);

    // Division by zero gives all ones, as the hardware's software division does.
    div_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.checked_div(b).unwrap_or(!0));
    div_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b == 0 { !0 } else { (a as i32).wrapping_div(b as i32) as u32 });
    rem_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.checked_rem(b).unwrap_or(!0));
    rem_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b == 0 { !0 } else { (a as i32).wrapping_rem(b as i32) as u32 });
    div_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b & 0xffff == 0 { 0xffff } else { w16(s16(a) / s16(b)) });
    rem_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b & 0xffff == 0 { 0xffff } else { w16(s16(a) % s16(b)) });
    div_u16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a & 0xffff).checked_div(b & 0xffff).unwrap_or(0xffff));
    rem_u16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a & 0xffff).checked_rem(b & 0xffff).unwrap_or(0xffff));
    div_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.checked_div(b).unwrap_or(!0));
    div_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| if b == 0 { !0 } else { (a as i64).wrapping_div(b as i64) as u64 });
    rem_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.checked_rem(b).unwrap_or(!0));
    rem_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| if b == 0 { !0 } else { (a as i64).wrapping_rem(b as i64) as u64 });

    min_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.min(b));
    max_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.max(b));
    min_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).min(b as i32) as u32);
    max_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).max(b as i32) as u32);
    min_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| w16(s16(a).min(s16(b))));
    max_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| w16(s16(a).max(s16(b))));
    min_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.min(b));
    max_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a.max(b));
    min_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| (a as i64).min(b as i64) as u64);
    max_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| (a as i64).max(b as i64) as u64);
    neg32 = |r, i, m| map1(r, i, m, |a: u32| a.wrapping_neg());
    neg16 = |r, i, m| map1(r, i, m, |a: u32| a.wrapping_neg() & 0xffff);
    neg64 = |r, i, m| map1(r, i, m, |a: u64| a.wrapping_neg());
    abs32 = |r, i, m| map1(r, i, m, |a: u32| (a as i32).wrapping_abs() as u32);
    abs16 = |r, i, m| map1(r, i, m, |a: u32| w16(s16(a).wrapping_abs()));
    abs64 = |r, i, m| map1(r, i, m, |a: u64| (a as i64).wrapping_abs() as u64);
    sad_u32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b)));
    sad_s32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| c.wrapping_add((a as i32).abs_diff(b as i32)));

    and32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a & b);
    or32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a | b);
    xor32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a ^ b);
    not32 = |r, i, m| map1(r, i, m, |a: u32| !a);
    not16 = |r, i, m| map1(r, i, m, |a: u32| !a & 0xffff);
    cnot32 = |r, i, m| map1(r, i, m, |a: u32| u32::from(a == 0));
    cnot64 = |r, i, m| map1(r, i, m, |a: u64| u64::from(a == 0));
    and64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a & b);
    or64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a | b);
    xor64 = |r, i, m| map2(r, i, m, |a: u64, b: u64| a ^ b);
    not64 = |r, i, m| map1(r, i, m, |a: u64| !a);
    shl32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b > 31 { 0 } else { a << (b & 31) });
    shr_u32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b > 31 { 0 } else { a >> (b & 31) });
    shr_s32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32 >> b.min(31)) as u32);
    shl16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b > 15 { 0 } else { a << (b & 15) & 0xffff });
    shr_u16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| if b > 15 { 0 } else { (a & 0xffff) >> (b & 15) });
    shr_s16 = |r, i, m| map2(r, i, m, |a: u32, b: u32| w16(s16(a) >> b.min(15)));
    shl64 = |r, i, m| map2(r, i, m, |a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) });
    shr_u64 = |r, i, m| map2(r, i, m, |a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) });
    shr_s64 = |r, i, m| map2(r, i, m, |a: u64, b: u32| (a as i64 >> b.min(63)) as u64);
    shf_l_wrap = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| (funnel(a, b) << (c & 31) >> 32) as u32);
    shf_r_wrap = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| (funnel(a, b) >> (c & 31)) as u32);
    shf_l_clamp = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| (funnel(a, b) << c.min(32) >> 32) as u32);
    shf_r_clamp = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| (funnel(a, b) >> c.min(32)) as u32);
    lop3 = |r, i, m| { let t = i.imm as u32; map3(r, i, m, |a: u32, b: u32, c: u32| lop(t, a, b, c)) };

    popc32 = |r, i, m| map1(r, i, m, |a: u32| a.count_ones());
    popc64 = |r, i, m| map1(r, i, m, |a: u64| a.count_ones());
    clz32 = |r, i, m| map1(r, i, m, |a: u32| a.leading_zeros());
    clz64 = |r, i, m| map1(r, i, m, |a: u64| a.leading_zeros());
    brev32 = |r, i, m| map1(r, i, m, |a: u32| a.reverse_bits());
    brev64 = |r, i, m| map1(r, i, m, |a: u64| a.reverse_bits());
    /// `imm`: bit 0 signed, bit 1 shift amount.
    bfind32 = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| bfind(u64::from(if k & 1 != 0 && (a as i32) < 0 { !a } else { a }), 31, k & 2 != 0)) };
    bfind64 = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u64| bfind(if k & 1 != 0 && (a as i64) < 0 { !a } else { a }, 63, k & 2 != 0)) };
    bfe_u32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| bfe(u64::from(a), b, c, 32, false) as u32);
    bfe_s32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| bfe(i64::from(a as i32) as u64, b, c, 32, true) as u32);
    bfe_u64 = |r, i, m| map3(r, i, m, |a: u64, b: u32, c: u32| bfe(a, b, c, 64, false));
    bfe_s64 = |r, i, m| map3(r, i, m, |a: u64, b: u32, c: u32| bfe(a, b, c, 64, true));
    /// prmt modes other than the default are in `imm`.
    prmt = |r, i, m| { let k = i.imm as u32; map3(r, i, m, |a: u32, b: u32, c: u32| permute(k, a, b, c)) };
    bmsk_clamp = |r, i, m| map2(r, i, m, |a: u32, b: u32| bmsk(a.min(32), b.min(32)));
    bmsk_wrap = |r, i, m| map2(r, i, m, |a: u32, b: u32| bmsk(a & 31, b & 31));
    szext_u = |r, i, m| { let wrap = i.imm != 0; map2(r, i, m, |a: u32, b: u32| { let n = if wrap { b & 31 } else { b.min(32) }; (u64::from(a) & ((1u64 << n) - 1)) as u32 }) };
    szext_s = |r, i, m| { let wrap = i.imm != 0; map2(r, i, m, |a: u32, b: u32| { let n = if wrap { b & 31 } else { b.min(32) }; if n == 0 { 0 } else { ((a << (32 - n)) as i32 >> (32 - n)) as u32 } }) };
    /// `imm`: bit 0 `a` signed, bit 1 `b` signed.
    dp4a = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| {
        (0..4).fold(c, |s, n| s.wrapping_add((byte(a, n, k & 1 != 0).wrapping_mul(byte(b, n, k & 2 != 0))) as u32))
    }) };
    /// As `dp4a`; bit 2 picks the high half of `b`.
    dp2a = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| {
        (0..2).fold(c, |s, n| {
            let h = a >> (16 * n) & 0xffff;
            let h = if k & 1 != 0 { s16(h) } else { h as i32 };
            s.wrapping_add(h.wrapping_mul(byte(b, n + if k & 4 != 0 { 2 } else { 0 }, k & 2 != 0)) as u32)
        })
    }) };

    eq32 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| a == b);
    lt_u32 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| a < b);
    lt_s32 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| (a as i32) < (b as i32));
    eq16 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| a as u16 == b as u16);
    lt_u16 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| (a as u16) < (b as u16));
    lt_s16 = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| s16(a) < s16(b));
    eq64 = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| a == b);
    lt_u64 = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| a < b);
    lt_s64 = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| (a as i64) < (b as i64));

    selp32 = |r, i, m| { let p = r.pred(i.c); let (a, b) = (*r.r(i.a), *r.r(i.b)); let mut t = b; blend(&mut t, &a, p); blend(&mut r.r[r.rb + i.d.slot()], &t, m) };
    selp64 = |r, i, m| { let p = r.pred(i.c); let (a, b) = (*r.q(i.a), *r.q(i.b)); let mut t = b; blend(&mut t, &a, p); blend(&mut r.q[r.qb + i.d.slot()], &t, m) };
    slct32_s32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| if c as i32 >= 0 { a } else { b });
    slct32_f32 = |r, i, m| { let z = i.imm != 0; map3(r, i, m, |a: u32, b: u32, c: u32| if not_below_zero(c, z) { a } else { b }) };
    slct64_s32 = |r, i, m| map3(r, i, m, |a: u64, b: u64, c: u32| if c as i32 >= 0 { a } else { b });
    slct64_f32 = |r, i, m| { let z = i.imm != 0; map3(r, i, m, |a: u64, b: u64, c: u32| if not_below_zero(c, z) { a } else { b }) };

    // Predicates. `imm` 1 inverts the result.
    pmov = |r, i, m| { let a = r.pred(i.a); r.set_pred(i.d, a, m) };
    pnot = |r, i, m| { let a = r.pred(i.a); r.set_pred(i.d, !a, m) };
    pand = |r, i, m| { let v = r.pred(i.a) & r.pred(i.b); r.set_pred(i.d, v, m) };
    por = |r, i, m| { let v = r.pred(i.a) | r.pred(i.b); r.set_pred(i.d, v, m) };
    pxor = |r, i, m| { let v = r.pred(i.a) ^ r.pred(i.b); r.set_pred(i.d, v, m) };

    // Extended precision: the carry lives in predicate `c` (read) or `ext`-free `d2` by a second instruction.
    // Subtractions add the complement, as the hardware does: they leave the carry of that addition, which is the opposite of a borrow, and
    // nvcc's 128-bit division reads it by `addc`.
    carry_add32 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (r.r(i.a), r.r(i.b)); let mut o = 0; for k in 0..32 { o |= u32::from(u64::from(a[k]) + u64::from(b[k]) + u64::from(c >> k & 1) > u64::from(u32::MAX)) << k; } r.set_pred(i.d, o, m) };
    carry_add64 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (r.q(i.a), r.q(i.b)); let mut o = 0; for k in 0..32 { o |= u32::from(u128::from(a[k]) + u128::from(b[k]) + u128::from(c >> k & 1) > u128::from(u64::MAX)) << k; } r.set_pred(i.d, o, m) };
    carry_sub32 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (r.r(i.a), r.r(i.b)); let mut o = 0; for k in 0..32 { o |= u32::from(u64::from(a[k]) + u64::from(!b[k]) + u64::from(c >> k & 1) > u64::from(u32::MAX)) << k; } r.set_pred(i.d, o, m) };
    carry_sub64 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (r.q(i.a), r.q(i.b)); let mut o = 0; for k in 0..32 { o |= u32::from(u128::from(a[k]) + u128::from(!b[k]) + u128::from(c >> k & 1) > u128::from(u64::MAX)) << k; } r.set_pred(i.d, o, m) };
    addc32 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (*r.r(i.a), *r.r(i.b)); let mut t = a; for k in 0..32 { t[k] = a[k].wrapping_add(b[k]).wrapping_add(c >> k & 1); } r.set_r(i.d, &t, m) };
    addc64 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (*r.q(i.a), *r.q(i.b)); let mut t = a; for k in 0..32 { t[k] = a[k].wrapping_add(b[k]).wrapping_add(u64::from(c >> k & 1)); } r.set_q(i.d, &t, m) };
    subc32 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (*r.r(i.a), *r.r(i.b)); let mut t = a; for k in 0..32 { t[k] = a[k].wrapping_add(!b[k]).wrapping_add(c >> k & 1); } r.set_r(i.d, &t, m) };
    subc64 = |r, i, m| { let c = r.pred(i.c); let (a, b) = (*r.q(i.a), *r.q(i.b)); let mut t = a; for k in 0..32 { t[k] = a[k].wrapping_add(!b[k]).wrapping_add(u64::from(c >> k & 1)); } r.set_q(i.d, &t, m) };

    /// `bfi`: `a` into `b`; position and length packed as `c | len << 8`.
    bfi32 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| bfi(u64::from(a), u64::from(b), c, 32) as u32);
    bfi64 = |r, i, m| map3(r, i, m, |a: u64, b: u64, c: u32| bfi(a, b, c, 64));
    /// c = (a & 255) | (b & 255) << 8, for `bfi`.
    pack_pos_len = |r, i, m| map2(r, i, m, |a: u32, b: u32| a & 255 | (b & 255) << 8);
}

#[inline(always)]
fn not_below_zero(v: u32, ftz: bool) -> bool {
    let x = f32::from_bits(v);
    (if ftz { crate::num::ftz(x) } else { x }) >= 0.0
}

#[inline(always)]
fn funnel(a: u32, b: u32) -> u64 {
    u64::from(a) | u64::from(b) << 32
}

#[inline(always)]
fn lop(t: u32, a: u32, b: u32, c: u32) -> u32 {
    let mut r = 0;
    for k in 0..8 {
        let x = if k & 4 != 0 { a } else { !a };
        let y = if k & 2 != 0 { b } else { !b };
        let z = if k & 1 != 0 { c } else { !c };
        r |= x & y & z & 0u32.wrapping_sub(t >> k & 1);
    }
    r
}

fn bfind(a: u64, top: u32, shift: bool) -> u32 {
    match a {
        0 => !0,
        _ if shift => top - a.ilog2(),
        _ => a.ilog2(),
    }
}

#[inline(always)]
fn bfe(a: u64, pos: u32, len: u32, width: u32, signed: bool) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    let msb = width - 1;
    if len == 0 {
        return 0;
    }
    let sign = signed && a >> (pos + len - 1).min(msb) & 1 == 1;
    let field = if pos > msb { 0 } else { a >> pos };
    let avail = width.saturating_sub(pos);
    let kept = len.min(avail);
    let mask = if kept >= 64 { !0 } else { (1u64 << kept) - 1 };
    field & mask | if sign { !mask } else { 0 }
}

#[inline(always)]
fn bfi(a: u64, b: u64, packed: u32, width: u32) -> u64 {
    let (pos, len) = (packed & 255, packed >> 8 & 255);
    if pos >= width || len == 0 {
        return b;
    }
    let len = len.min(width - pos);
    let mask = (if len >= 64 { !0 } else { (1u64 << len) - 1 }) << pos;
    b & !mask | a << pos & mask
}

fn bmsk(a: u32, b: u32) -> u32 {
    if a > 31 || b == 0 { 0 } else { ((((1u64 << b) - 1) as u32 as u64) << a) as u32 }
}

fn byte(v: u32, n: u32, signed: bool) -> i32 {
    let b = (v >> (8 * n)) as u8;
    if signed { i32::from(b as i8) } else { i32::from(b) }
}

#[inline(always)]
fn permute(mode: u32, a: u32, b: u32, c: u32) -> u32 {
    let all = u64::from(a) | u64::from(b) << 32;
    let pick = |n: u32| (all >> (8 * (n & 7))) as u32 & 0xff;
    let s = c & 3;
    let mut out = 0;
    for k in 0..4u32 {
        let v = match mode {
            0 => {
                let sel = c >> (4 * k);
                let v = pick(sel);
                if sel & 8 != 0 { if v & 0x80 != 0 { 0xff } else { 0 } } else { v }
            }
            1 => pick(s + k),
            2 => pick((s + 8 - k) & 7),
            3 => pick(s),
            4 => pick(s.max(k)),
            5 => pick(s.min(k)),
            _ => pick((s & 1) * 2 + (k & 1)),
        };
        out |= v << (8 * k);
    }
    out
}
