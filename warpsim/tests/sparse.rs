//! `mma.sp` against dense products. Where metadata lies was measured on an H200 for every shape, selector and form below
//! but bf16's k16 and e5m2, which have their places from f16 and e4m3.
#![allow(clippy::precedence)]

use crate::common::*;
use warpsim::{Gpu, Kind, bf16_bits, f16_bits};

/// Where the metadata of columns lies: (lane of a group, first bit) by selector, row / 8 and chunk.
pub(crate) type Place = fn(usize, usize, usize) -> (usize, usize);

pub(crate) struct Case {
    pub types: &'static str,
    pub k: usize,
    pub bits: usize,
    pub selectors: usize,
    pub encode: fn(i32) -> u32,
    pub place: Place,
}

/// Both rows of a group in one word.
fn shared(f: usize, high: usize, c: usize) -> (usize, usize) {
    (f, 16 * high + 4 * c)
}
/// The same, the right half of the columns in the next lane.
fn halves(f: usize, high: usize, c: usize) -> (usize, usize) {
    (2 * f + c / 4, 16 * high + c % 4 * 4)
}
/// A word a row.
fn words(f: usize, high: usize, c: usize) -> (usize, usize) {
    (2 * f + high, 4 * c)
}
/// Two words a row, the right half two lanes further.
fn wide(_: usize, high: usize, c: usize) -> (usize, usize) {
    (high + if c < 8 { 0 } else { 2 }, c % 8 * 4)
}

pub(crate) fn cases() -> Vec<Case> {
    let f16 = |v: i32| u32::from(f16_bits(v.into()));
    let bf16 = |v: i32| u32::from(bf16_bits(v.into()));
    let tf32 = |v: i32| (v as f32).to_bits();
    let s8 = |v: i32| v as u8 as u32;
    let s4 = |v: i32| v as u32 & 15;
    // Bits of 0 to 3; e5m2 has one bit less for the fraction.
    let e4m3 = |v: i32| [0, 0x38, 0x40, 0x44][v.unsigned_abs() as usize] | u32::from(v < 0) << 7;
    let e5m2 = |v: i32| [0, 0x3c, 0x40, 0x42][v.unsigned_abs() as usize] | u32::from(v < 0) << 7;
    let case = |types, k, bits, selectors, encode, place| Case { types, k, bits, selectors, encode, place };
    vec![
        case("f32.f16.f16.f32", 16, 16, 4, f16, shared as Place),
        case("f32.f16.f16.f32", 32, 16, 2, f16, halves),
        case("f32.bf16.bf16.f32", 16, 16, 4, bf16, shared),
        case("f32.bf16.bf16.f32", 32, 16, 2, bf16, halves),
        case("f32.tf32.tf32.f32", 8, 32, 4, tf32, shared),
        case("f32.tf32.tf32.f32", 16, 32, 2, tf32, halves),
        case("s32.s8.s8.s32", 32, 8, 2, s8, words),
        case("s32.s8.s8.s32", 64, 8, 1, s8, wide),
        case("s32.s4.s4.s32", 64, 4, 2, s4, words),
        case("s32.s4.s4.s32", 128, 4, 1, s4, wide),
        case("f32.e4m3.e4m3.f32", 64, 8, 1, e4m3, wide),
        case("f32.e5m2.e5m2.f32", 64, 8, 1, e5m2, wide),
    ]
}

/// D = A·B + 1 of registers that lie one behind the other, 32 words each, the metadata last.
fn module(c: &Case, form: &str, selector: usize) -> String {
    let (na, nb) = (c.k * c.bits / 128, c.k * c.bits / 128);
    let list = |base: usize, n: usize| (base..base + n).map(|r| format!("%r{r}")).collect::<Vec<_>>().join(",");
    let loads: String = (0..=na + nb).map(|r| format!("ld.global.b32 %r{}, [%rd3+{}];\n", 10 + r, 128 * r)).collect();
    let one = if c.types.starts_with('s') { "1" } else { "0x3f800000" };
    format!(
        ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n.reg .b32 %r<64>; .reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %laneid; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd1, %rd4;\n{loads}\
         mov.b32 %r6, {one};\n\
         mma.{form}.sync.aligned.m16n8k{}.row.col.{} {{%r2,%r3,%r4,%r5}}, {{{}}}, {{{}}}, {{%r6,%r6,%r6,%r6}}, %r{}, {selector};\n\
         add.u64 %rd3, %rd2, %rd4;\n\
         st.global.b32 [%rd3], %r2; st.global.b32 [%rd3+128], %r3; st.global.b32 [%rd3+256], %r4; st.global.b32 [%rd3+384], %r5;\nret;\n}}",
        c.k,
        c.types,
        list(10, na),
        list(10 + na, nb),
        10 + na + nb
    )
}

/// Elements of a chunk that four bits of metadata speak of.
pub(crate) fn chunk_of(bits: usize) -> usize {
    [(32, 2), (16, 4), (8, 4), (4, 8)].iter().find(|c| c.0 == bits).unwrap().1
}

/// Four bits of metadata, and the places in the chunk that they name.
pub(crate) fn chosen(chunk: usize, choice: usize) -> (u32, Vec<usize>) {
    if chunk == 2 {
        return [(0b0100, vec![0]), (0b1110, vec![1])][choice % 2].clone();
    }
    let (x, y) = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)][choice % 6];
    let width = chunk / 4;
    let places = [x, y].iter().flat_map(|p| (0..width).map(move |e| p * width + e)).collect();
    (x as u32 | (y as u32) << 2, places)
}

/// The registers, and the dense product plus one.
fn problem(c: &Case, selector: usize, seed: u64) -> (Vec<u32>, Vec<i32>) {
    let (k, held, per) = (c.k, c.k / 2, 32 / c.bits);
    let registers = held * 16 / 32 / per;
    let small = |n: usize, seed: u64| noise(n, seed).iter().map(|v| (v * 3.9) as i32).collect::<Vec<_>>();
    let (packed, b) = (small(16 * held, seed), small(8 * k, seed + 1));
    let chunk = chunk_of(c.bits);
    let mut choices = noise(16 * k / chunk, seed + 2).into_iter().map(|v| ((v + 1.0) * 1000.0) as usize);
    // Lanes that the selector does not name hold no valid metadata.
    let (mut dense, mut metadata) = (vec![0; 16 * k], [0u32; 32]);
    for row in 0..16 {
        for at in 0..k / chunk {
            let (nibble, places) = chosen(chunk, choices.next().unwrap());
            for (e, place) in places.iter().enumerate() {
                dense[row * k + at * chunk + place] = packed[row * held + at * chunk / 2 + e];
            }
            let (lane, bit) = (c.place)(selector, row / 8, at);
            metadata[row % 8 * 4 + lane] |= nibble << bit;
        }
    }
    let pack = |f: &dyn Fn(usize) -> i32| (0..per).fold(0, |w, e| w | (c.encode)(f(e)) << (c.bits * e) as u32 % 32);
    let mut words = vec![];
    for r in 0..registers {
        words.extend((0..32).map(|l| pack(&|e| packed[(l / 4 + r % 2 * 8) * held + (l % 4 + r / 2 * 4) * per + e])));
    }
    for r in 0..registers {
        words.extend((0..32).map(|l| pack(&|e| b[l / 4 * k + (l % 4 + 4 * r) * per + e])));
    }
    words.extend(metadata);
    let product = (0..128).map(|i| 1 + (0..k).map(|x| dense[i / 8 * k + x] * b[i % 8 * k + x]).sum::<i32>()).collect();
    (words, product)
}

fn launch(text: &str, words: &[u32]) -> Result<Vec<u32>, warpsim::Fault> {
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&bytes(words), "fragments"), g.alloc(512, "d"));
    let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
    let report = try_run(&mut g, text, "k", [1; 3], [32, 1, 1], 0, &args, &all_options()[0])?;
    assert!(report.clean(), "{:?}", report.findings);
    Ok(read(&g, q, 128))
}

#[test]
fn every_shape_selector_and_form() {
    for (n, c) in cases().iter().enumerate() {
        for selector in 0..c.selectors {
            for form in ["sp", "sp::ordered_metadata"] {
                let (words, want) = problem(c, selector, 100 * n as u64 + selector as u64 + 1);
                let out = launch(&module(c, form, selector), &words).unwrap_or_else(|f| panic!("{f}"));
                for (i, word) in out.into_iter().enumerate() {
                    let (register, lane) = (i / 32, i % 32);
                    let (row, col) = (lane / 4 + register / 2 * 8, lane % 4 * 2 + register % 2);
                    let got = if c.types.starts_with('s') { word as i32 } else { f32::from_bits(word) as i32 };
                    assert_eq!(got, want[row * 8 + col], "{} k{} selector {selector} ({row},{col})", c.types, c.k);
                }
            }
        }
    }
}

/// A planted bug and its twin for each rule: the last nibble of row 8 as it is, and as it should be.
#[test]
fn metadata_that_names_no_places() {
    let all = cases();
    let f16 = &all[0];
    let tf32 = &all[4];
    let runs = |c: &Case, form: &str, nibble: u32| {
        let (mut words, _) = problem(c, 1, 5);
        let at = words.len() - 32 + 1;
        words[at] = words[at] & 0x0fff_ffff | nibble << 28;
        launch(&module(c, form, 1), &words).map(drop)
    };
    for (c, form, bad, good, rule) in [
        (f16, "sp", 0b0101, 0b0001, "two different places"),
        (f16, "sp::ordered_metadata", 0b0010, 0b1000, "the lower one in its low bits"),
        (f16, "sp::ordered_metadata", 0b1111, 0b1110, "the lower one in its low bits"),
        (tf32, "sp", 0b1000, 0b0100, "0b0100 or 0b1110"),
    ] {
        let fault = runs(c, form, bad).expect_err(rule);
        assert_eq!(fault.finding.kind, Kind::IllegalInstruction);
        let text = fault.to_string();
        assert!(text.contains(rule) && text.contains("row 8, bit 28"), "{text}");
        runs(c, form, good).unwrap_or_else(|f| panic!("{f}"));
    }
    // Without the promise of an order there is none to break.
    runs(f16, "sp", 0b0010).unwrap_or_else(|f| panic!("{f}"));
}
