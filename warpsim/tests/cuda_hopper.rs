//! Kernels for Hopper as people write them (`cuda/tma.cu`, `cuda/wgmma.cu`, `cuda/remote.cu`), each with three planted bugs: all are found, and the one
//! without is quiet.

use crate::common::*;
use warpsim::{DataType, Finding, Gpu, Kind, Launch, Module, Options, Swizzle, TensorMap};

/// Runs twin `bug` of a kernel: what is found, and what it wrote.
fn found(
    module: &Module,
    name: &str,
    bug: usize,
    (grid, block, shared_bytes): (u32, u32, u32),
    o: &Options,
) -> (Vec<Finding>, Vec<u32>) {
    let kernel = module.kernel(&format!("{name}_{bug}")).unwrap_or_else(|e| panic!("{e}"));
    let mut g = Gpu::new();
    let x = g.alloc_with(&bytes(&(0..4096u32).map(|i| i * 37 % 101).collect::<Vec<_>>()), "x");
    let y = g.alloc_with(&bytes(&[0u32; 8192]), "y");
    let h = g.alloc_with(&bytes(&(0..8192u16).map(|i| 0x3f80 | (i * 5 % 128)).collect::<Vec<_>>()), "h");
    let words = |at| TensorMap::tiled(DataType::U32, at, &[32, 128], &[128], &[32, 8], Swizzle::None).unwrap().encode();
    let half = TensorMap::tiled(DataType::BF16, h, &[64, 128], &[128], &[64, 64], Swizzle::B128).unwrap().encode();
    let (inn, out) = (words(x), words(y));
    let args: [&[u8]; 6] = [&x.to_le_bytes(), &y.to_le_bytes(), &h.to_le_bytes(), &inn, &out, &half];
    let launch = Launch { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes, args: &args, ..Launch::default() };
    let findings = match g.launch(&kernel, &launch, &Options { instruction_limit: 1_000_000, ..o.clone() }) {
        Ok(r) => r.findings,
        Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
    };
    (findings, read(&g, y, 8192))
}

/// Which kind of finding each bug of a kernel is.
fn check(file: &str, name: &str, shape: (u32, u32, u32), bugs: [&[Kind]; 3]) {
    let Some(ptx) = nvcc::ptx(file) else { return };
    let module = Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}"));
    let mut results = vec![];
    for o in all_options() {
        let (clean, result) = found(&module, name, 0, shape, &o);
        assert!(clean.is_empty(), "{name} without a bug: {}", clean[0]);
        results.push(result);
        for (k, kinds) in bugs.iter().enumerate() {
            let (bad, _) = found(&module, name, k + 1, shape, &o);
            let hit = bad.iter().find(|f| kinds.contains(&f.kind));
            let hit = hit.unwrap_or_else(|| panic!("{name}, bug {}: {bad:?}", k + 1));
            assert!(hit.to_string().contains(&format!("{file}.cu")), "{hit}");
        }
    }
    assert!(results.iter().all(|r| *r == results[0] && r.iter().any(|v| *v != 0)), "{name}");
}

macro_rules! hopper {
    ($($file:ident $name:ident $grid:literal x $block:literal + $shared:literal: $([$($kind:ident)|*])*;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($file), stringify!($name), ($grid, $block, $shared), [$(&[$(Kind::$kind),*]),*]);
        }
    )*};
}

hopper! {
    tma ring 1 x 96 + 0: [Deadlock | AsyncRace] [Deadlock | AsyncRace] [Deadlock];
    tma stores 1 x 64 + 0: [MissingProxyFence] [AsyncRace] [EarlyExit];
    tma fences 1 x 64 + 0: [MissingProxyFence] [SharedRace] [SharedRace];
    tma multicast 2 x 32 + 0: [SharedRace] [AsyncRace | SharedRace] [EarlyExit];
    tma shapes 1 x 64 + 0: [OutOfBounds] [Misaligned] [IllegalInstruction];
    tma back 1 x 64 + 0: [AsyncRace] [GlobalRace] [MissingProxyFence];
    tma reduce 1 x 64 + 0: [MissingProxyFence] [AsyncRace] [AsyncRace];
    tma persistent 1 x 96 + 0: [AsyncRace | Deadlock] [Deadlock | BarrierMisuse] [SharedRace];
    tma remade 1 x 64 + 0: [MissingProxyFence] [GlobalRace | IllegalInstruction] [OutOfBounds];
    wgmma gemm 1 x 160 + 0: [AsyncRace] [AsyncRace] [AsyncRace];
    wgmma written 1 x 128 + 0: [MissingProxyFence] [MissingProxyFence] [SharedRace | UninitialisedShared];
    wgmma fragments 1 x 128 + 0: [AsyncRace] [AsyncRace] [AsyncRace];
    wgmma descriptors 1 x 128 + 8192: [OutOfBounds] [OutOfBounds] [IllegalInstruction];
    wgmma epilogue 1 x 128 + 0: [AsyncRace] [MissingProxyFence] [Deadlock];
    wgmma turns 1 x 256 + 0: [Deadlock] [Deadlock | BarrierMisuse] [SharedRace | Deadlock];
    wgmma registers 1 x 384 + 0: [BarrierMisuse] [Deadlock] [IllegalInstruction];
    remote exchange 2 x 32 + 0: [SharedRace] [Deadlock] [AsyncRace];
    remote halo 2 x 32 + 0: [SharedRace] [EarlyExit] [OutOfBounds];
    remote copied 2 x 32 + 0: [MissingProxyFence] [AsyncRace] [UninitialisedShared | SharedRace];
    remote sums 2 x 32 + 0: [UninitialisedShared] [SharedRace | AsyncRace] [EarlyExit];
    remote counted 2 x 32 + 0: [UninitialisedShared | SharedRace] [SharedRace] [BarrierMisuse];
}
