//! The cases that decoding is checked and timed on.

use super::operator::{Decode, TENSORS};
use crate::ops::model::*;
use crate::runtime::dtype::DType;

/// Caches of 8-bit elements.
const QUANTIZED: [&str; 2] = ["int8", "float8_e4m3fn"];

/// Sequences, heads of q, heads of the cache, queries, d, and positions: of a page if `pages`, the pages of a sequence, is not 0.
fn dims(sizes: [usize; 6], pages: usize) -> Dims {
    let [b, hq, hkv, q, d, size] = sizes;
    let mut dims = Dims::from([("b", b), ("hq", hq), ("hkv", hkv), ("q", q), ("d", d), ("size", size)]);
    if pages > 0 {
        dims.push("pages", pages);
    }
    dims
}

impl Decode {
    pub(super) fn production(&self) -> Vec<Case> {
        let case = |name: String, sizes, pages: usize, keys: usize| {
            let case = Case::production(self.info, name, DType::BF16, dims(sizes, pages));
            let case = case.only(if pages > 0 { &["page_table"] } else { &[] });
            case.values(self.lengths(), Values::Constant(keys as f64))
        };
        let name = |b, keys, more: &str| format!("b={b} hq=32 hkv=8 ctx={keys} d=128{more} bf16");
        let mut cases: Vec<_> = [(16, 8192), (64, 4096), (1, 131_072)]
            .into_iter()
            .map(|(b, keys)| case(name(b, keys, ""), [b, 32, 8, 1, 128, keys], 0, keys))
            .collect();
        if !self.appends() {
            cases.push(case(name(16, 8192, " q=4"), [16, 32, 8, 4, 128, 8192], 0, 8192));
            cases.push(case(name(16, 8192, " pages of 16"), [16, 32, 8, 1, 128, 16], 512, 8192));
            for cache in QUANTIZED {
                let name = name(16, 8192, &format!(" {cache} cache"));
                let case = Case::production(self.info, name, DType::BF16, dims([16, 32, 8, 1, 128, 8192], 0));
                let case = case.only(&["k_scales", "v_scales"]).param("cache", ParamValue::Choice(cache));
                let order = Arrangement::DENSE.order(&[0, 2, 1]);
                let case = case.arrange("k_scales", order).arrange("v_scales", order);
                cases.push(case.values(self.lengths(), Values::Constant(8192.0)));
            }
        }
        cases
    }

    /// Small cases: every kernel, every option, both sides of each limit.
    pub(super) fn small(&self) -> Vec<Case> {
        let (f16, bf16, f32) = (DType::F16, DType::BF16, DType::F32);
        let odd = |dtype, sizes| Case::odd(self.info, dtype, dims(sizes, 0)).only(&[]);
        let paged = |dtype, sizes, pages| Case::odd(self.info, dtype, dims(sizes, pages)).only(&["page_table"]);
        let sinks = |dtype, sizes| Case::odd(self.info, dtype, dims(sizes, 0)).only(&["sinks"]);
        let length = |case: Case, keys: usize| case.values(self.lengths(), Values::Constant(keys as f64));
        let tensors = &TENSORS[if self.appends() { 0 } else { 3 }..];
        let padded = |case: Case, unit: usize| {
            let rows = ["q"].iter().chain(tensors).zip(1..);
            rows.fold(case, |case, (x, i)| case.arrange(x, Arrangement::DENSE.row_pad(i * unit)))
        };
        let mut cases = vec![
            // Groups of 4, 1, 8 and 16 queries; one, two and three products' worth of rows; keys split into pieces.
            odd(bf16, [3, 8, 2, 1, 128, 150]),
            odd(bf16, [2, 3, 3, 1, 64, 140]),
            odd(f16, [2, 8, 1, 3, 128, 70]),
            odd(bf16, [1, 3, 1, 16, 64, 100]),
            length(odd(bf16, [1, 4, 1, 1, 64, 600]), 577),
            length(odd(f16, [1, 4, 1, 2, 128, 300]).param("splits", 2), 290),
            length(odd(f16, [1, 2, 1, 1, 64, 300]).param("splits", 1), 300),
            odd(bf16, [1, 2, 1, 2, 256, 150]),
            odd(f16, [1, 18, 1, 1, 64, 40]),
            // Values of d between those that kernels are built for.
            odd(f16, [1, 2, 1, 1, 40, 60]),
            odd(bf16, [1, 2, 2, 2, 96, 150]),
            odd(f16, [1, 2, 1, 1, 136, 70]),
            // Options.
            odd(bf16, [2, 2, 1, 3, 64, 260]).param("left", 40),
            length(odd(f16, [1, 1, 1, 5, 64, 400]).param("left", 150).param("splits", 2), 390),
            odd(f16, [2, 2, 2, 2, 64, 30]).param("left", 0),
            odd(bf16, [2, 2, 1, 1, 64, 70]).param("softcap", 2.0).param("scale", 0.3),
            odd(bf16, [1, 2, 1, 1, 64, 40]).param("softcap", 1e30),
            // Sinks: with one piece and with several, with queries that see nothing else, and with the kernels that read first.
            sinks(bf16, [3, 4, 2, 2, 64, 30]),
            length(sinks(f16, [1, 4, 1, 1, 64, 300]).param("splits", 2), 290),
            length(sinks(bf16, [2, 2, 1, 3, 64, 20]), 1),
            sinks(f32, [2, 4, 2, 2, 12, 10]),
            // Pages.
            paged(bf16, [3, 4, 2, 2, 64, 16], 6),
            length(paged(f16, [1, 2, 1, 1, 128, 10], 40).param("splits", 3), 385),
            paged(f32, [2, 2, 1, 2, 12, 5], 3),
            // Invalid lengths and pages; fewer keys than queries; no keys.
            odd(bf16, [9, 1, 1, 2, 64, 20]).values(self.lengths(), Values::Hostile { bound: 21 }),
            odd(f32, [9, 1, 1, 2, 8, 6]).values(self.lengths(), Values::Hostile { bound: 7 }),
            length(odd(f16, [1, 2, 1, 5, 64, 20]), 3),
            length(odd(f16, [2, 2, 1, 1, 64, 300]).param("splits", 2), 0),
            // Memory.
            odd(f32, [2, 4, 2, 3, 20, 30]),
            odd(f32, [1, 2, 1, 1, 8, 20]).param("softcap", 1.5).param("left", 7),
            padded(odd(bf16, [2, 4, 2, 2, 64, 30]), 8),
            padded(odd(bf16, [2, 4, 2, 2, 24, 20]), 1),
            odd(bf16, [1, 2, 1, 1, 24, 20]).offset(1),
            odd(f16, [1, 2, 1, 1, 20, 10]),
            odd(bf16, [2, 4, 2, 2, 64, 30]).arrange("k_cache", Arrangement::DENSE.order(&[0, 2, 1, 3])),
            odd(f16, [1, 1, 1, 2, 48, 70]).fill(Values::Normal { std: 8.0 }),
            Case::boundary(self.info, bf16, dims([1, 4, 1, 4, 128, 128], 0)).only(&[]),
            Case::boundary(self.info, bf16, dims([1, 17, 1, 1, 128, 64], 0)).only(&[]),
        ];
        // A page that the table names twice must not receive two tokens: one sequence, with fewer tokens than a page holds.
        let hostile = |sizes, keys| {
            let case = paged(bf16, sizes, 20).values("page_table", Values::Hostile { bound: 20 });
            length(case, keys)
        };
        if self.appends() {
            // Only the last page is written to: no key there is read before it is new.
            cases.extend([length(
                paged(bf16, [1, 2, 1, 8, 64, 8], 1).values("page_table", Values::Hostile { bound: 1 }),
                8,
            )]);
        } else {
            cases.extend([hostile([2, 2, 1, 2, 64, 8], 155), hostile([1, 2, 1, 1, 20, 8], 60)]);
        }
        // Every tensor-core kernel wraps around its ring buffer.
        for (d, heads) in [(64, 2), (64, 20), (128, 3), (128, 10), (256, 1), (256, 9)] {
            let case = |dtype| length(odd(dtype, [1, heads, 1, 1, d, 330]).param("splits", 1), 325);
            cases.extend([f16, bf16].map(case));
        }
        for &dtype in self.info.dtypes {
            cases.extend([
                Case::tiny(self.info, dtype, dims([1, 1, 1, 1, 8, 1], 0)).only(&[]),
                Case::empty(self.info, dtype, dims([2, 2, 1, 0, 8, 4], 0)).only(&[]),
                Case::empty(self.info, dtype, dims([2, 2, 1, 2, 8, 0], 0)).only(&[]),
            ]);
        }
        cases
    }

    /// Caches of 8-bit elements.
    pub(super) fn quantized(&self) -> Vec<Case> {
        let (f16, bf16, f32) = (DType::F16, DType::BF16, DType::F32);
        let length = |case: Case, keys: usize| case.values(self.lengths(), Values::Constant(keys as f64));
        let mut cases = Vec::new();
        for cache in QUANTIZED {
            let with = |case: Case, tensors: &[&str]| case.only(tensors).param("cache", ParamValue::Choice(cache));
            let odd = |dtype, sizes| with(Case::odd(self.info, dtype, dims(sizes, 0)), &["k_scales", "v_scales"]);
            let paged = |dtype, sizes, pages| {
                let case = Case::odd(self.info, dtype, dims(sizes, pages));
                with(case, &["k_scales", "v_scales", "page_table"])
            };
            // Every tensor-core kernel wraps around its ring buffer.
            for dtype in [f16, bf16] {
                for (d, heads) in [(64, 3), (64, 9), (128, 3), (128, 10)] {
                    cases.push(length(odd(dtype, [1, heads, 1, 1, d, 330]).param("splits", 1), 325));
                }
            }
            let padded = |case: Case, unit: usize| {
                let rows = [("q", 8), ("k_cache", unit), ("v_cache", 2 * unit), ("o", 16)].into_iter();
                let case = rows.fold(case, |case, (x, pad)| case.arrange(x, Arrangement::DENSE.row_pad(pad)));
                case.arrange("k_scales", Arrangement::DENSE.row_pad(1))
                    .arrange("v_scales", Arrangement::DENSE.order(&[0, 2, 1]).row_pad(3))
            };
            cases.extend([
                // More rows than a product has, keys split into pieces, options, and values of d between those
                // that kernels are built for.
                odd(bf16, [2, 9, 1, 2, 128, 70]),
                length(odd(f16, [1, 8, 2, 1, 64, 300]).param("splits", 2), 290),
                odd(bf16, [2, 4, 2, 3, 48, 90]).param("left", 20).param("softcap", 2.0).param("scale", 0.3),
                odd(f16, [1, 2, 1, 2, 80, 50]),
                padded(odd(bf16, [2, 4, 2, 2, 64, 30]), 16),
                // Cases that the tensor cores do not take.
                padded(odd(f16, [2, 4, 2, 2, 32, 20]), 8),
                odd(bf16, [1, 2, 1, 1, 24, 20]),
                odd(f16, [1, 2, 1, 1, 136, 20]),
                odd(f32, [2, 4, 2, 3, 20, 30]),
                // Invalid lengths and pages.
                odd(bf16, [9, 1, 1, 2, 64, 20]).values(self.lengths(), Values::Hostile { bound: 21 }),
                length(paged(f16, [2, 2, 1, 2, 64, 8], 20).values("page_table", Values::Hostile { bound: 20 }), 155),
                paged(bf16, [2, 4, 2, 2, 128, 10], 6),
                // Scales that are NaN: of keys, and of values of which a query sees one.
                odd(bf16, [2, 2, 1, 2, 64, 20]).values("k_scales", Values::Constant(f64::NAN)),
                odd(bf16, [4, 2, 1, 5, 64, 40]).param("left", 0).values("v_scales", Values::Specials),
                // Elements at the edges, NaN among them, all seen.
                odd(f16, [2, 2, 1, 1, 64, 20]).values("k_cache", Values::Specials).values("v_cache", Values::Specials),
            ]);
        }
        cases
    }
}
