//! Kernels of the kinds that people write (`cuda/planted.cu`), each with two planted bugs: both are found, and the one without is quiet.

use crate::common::*;
use warpsim::{Finding, Gpu, Kind, Launch, Module, Options};

/// Runs twin `bug` of a kernel over 1024 words, of which the first 256 are numbers and the rest zero.
fn found(module: &Module, name: &str, bug: usize, (grid, block): (u32, u32), o: &Options) -> Vec<Finding> {
    let kernel = module.kernel(&format!("{name}_{bug}")).unwrap_or_else(|e| panic!("{e}"));
    let words: Vec<u32> = (0..1024).map(|i| if i < 256 { i * 37 % 101 } else { 0 }).collect();
    let mut g = Gpu::new();
    let x = g.alloc_with(&bytes(&words), "x");
    let args: [&[u8]; 2] = [&x.to_le_bytes(), &1024u32.to_le_bytes()];
    let launch = Launch { grid: [grid, 1, 1], block: [block, 1, 1], args: &args, ..Launch::default() };
    match g.launch(&kernel, &launch, &Options { instruction_limit: 1_000_000, ..o.clone() }) {
        Ok(r) => r.findings,
        Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
    }
}

/// Which kind of finding each bug of a kernel is.
fn check(name: &str, shape: (u32, u32), bugs: [&[Kind]; 2]) {
    let Some(ptx) = nvcc::ptx("planted") else { return };
    let module = Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}"));
    for o in all_options() {
        let clean = found(&module, name, 0, shape, &o);
        assert!(clean.is_empty(), "{name} without a bug: {}", clean[0]);
        for (k, kinds) in bugs.iter().enumerate() {
            let bad = found(&module, name, k + 1, shape, &o);
            let hit = bad.iter().find(|f| kinds.contains(&f.kind));
            let hit = hit.unwrap_or_else(|| panic!("{name}, bug {}: {bad:?}", k + 1));
            assert!(hit.to_string().contains("planted.cu"), "{hit}");
        }
    }
}

macro_rules! planted {
    ($($name:ident $grid:literal x $block:literal: [$($a:ident)|*] [$($b:ident)|*];)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), ($grid, $block), [&[$(Kind::$a),*], &[$(Kind::$b),*]]);
        }
    )*};
}

planted! {
    bitonic 1 x 256: [SharedRace] [DivergentBarrier | Deadlock | BarrierCount];
    histogram 1 x 64: [UninitialisedShared] [OutOfBounds];
    compact 2 x 64: [Deadlock | DivergentBarrier] [UninitialisedRegister];
    ring 1 x 64: [AsyncRace] [AsyncRace | SharedRace];
    specialised 1 x 64: [SharedRace | UninitialisedShared | Deadlock] [SharedRace | Deadlock];
    lookback 4 x 32: [GlobalRace] [GlobalRace];
    insert 2 x 64: [GlobalRace] [OutOfBounds];
    cluster_bins 2 x 32: [SharedRace | UninitialisedShared] [EarlyExit | SharedRace];
    layernorm 4 x 32: [Misaligned] [UninitialisedRegister];
    softmax 1 x 128: [UninitialisedShared] [SharedRace];
    last_block 4 x 64: [GlobalRace] [GlobalRace];
    neighbours 1 x 64: [OutOfBounds] [OutOfBounds];
    named 1 x 128: [SharedRace] [SharedRace | UninitialisedShared | Deadlock];
    half_warp 1 x 48: [UninitialisedRegister] [UninitialisedRegister];
    arrivals 1 x 64: [SharedRace] [SharedRace | Deadlock];
    peers 2 x 32: [SharedRace | BarrierMisuse] [AsyncRace | BarrierMisuse];
}
