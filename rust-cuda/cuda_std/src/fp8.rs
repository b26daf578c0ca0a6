//! 8-bit floats, two at a time: E4M3 (4 bits of exponent, 3 of mantissa, largest 448) and E5M2 (largest 57344). sm_89.

macro_rules! conversions {
    ($pack:ident, $unpack:ident, $format:literal, $doc:literal) => {
        #[doc = concat!("Rounds two values to ", $doc, ", `low` in the lower byte; beyond the range they saturate.")]
        #[doc = concat!("\n\nPTX `cvt.rn.satfinite.", $format, ".f32`.")]
        #[inline(always)]
        pub fn $pack(low: f32, high: f32) -> u16 {
            let pair: u16;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("cvt.rn.satfinite.", $format, ".f32 {}, {}, {};"),
                    out(reg16) pair, in(reg32) high, in(reg32) low,
                    options(pure, nomem, nostack),
                );
            }
            pair
        }

        #[doc = concat!("Two ", $doc, " values as a pair of `f16`, exactly.\n\nPTX `cvt.rn.f16x2.", $format, "`.")]
        #[inline(always)]
        pub fn $unpack(pair: u16) -> u32 {
            let halves: u32;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("cvt.rn.f16x2.", $format, " {}, {};"),
                    out(reg32) halves, in(reg16) pair,
                    options(pure, nomem, nostack),
                );
            }
            halves
        }
    };
}

conversions!(pack_e4m3, unpack_e4m3, "e4m3x2", "E4M3");
conversions!(pack_e5m2, unpack_e5m2, "e5m2x2", "E5M2");
