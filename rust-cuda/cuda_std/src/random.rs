//! Random numbers by counting: number i of a sequence needs none of those before it.

use crate::math::mul_wide;

/// Four random words for a counter and a key: Philox4x32 with 10 rounds.
///
/// A bijection of the counters for every key; every counter of every key gives independent words. Plain arithmetic, the same on
/// the device and on the host.
///
/// Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    // The golden ratio's and √3 − 1's first bits.
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    const ROUNDS: u32 = 10;
    let [mut a, mut b, mut c, mut d] = counter;
    let mut round = 0;
    while round < ROUNDS {
        let key_0 = key[0].wrapping_add(WEYL[0].wrapping_mul(round));
        let key_1 = key[1].wrapping_add(WEYL[1].wrapping_mul(round));
        let [first, second] = [mul_wide(a, MULTIPLIERS[0]), mul_wide(c, MULTIPLIERS[1])];
        [a, b, c, d] = [second[1] ^ b ^ key_0, second[0], first[1] ^ d ^ key_1, first[0]];
        round += 1;
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the paper's authors publish with Random123.
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        // The digits of π.
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let key = [0xa409_3822, 0x299f_31d0];
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(philox4x32(counter, key), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
