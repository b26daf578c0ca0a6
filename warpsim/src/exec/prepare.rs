//! Launches: their limits, and the layout of their parameters.

use super::cx::Launched;
use super::wgmma_regs;
use crate::ir::{Class, Code, Op, Program, Reg};
use crate::launch::Launch;

const MAX_SHARED: u32 = 232_448;

/// Checks a launch against the kernel and lays out its parameters.
pub fn prepare(prog: &Program, l: &Launch<'_>, globals: Vec<u64>) -> Result<Launched, String> {
    let product = |v: [u32; 3]| v.iter().map(|x| u64::from(*x)).product::<u64>();
    let threads = product(l.block);
    if !(1..=1024).contains(&threads) || l.block[2] > 64 {
        return Err(format!("a block of {:?}: 1 to 1024 threads are possible", l.block));
    }
    if product(l.grid) == 0 || l.grid[0] >= 1 << 31 || l.grid[1] > 65535 || l.grid[2] > 65535 {
        return Err(format!("a grid of {:?}", l.grid));
    }
    if let Some(b) = prog.bounds.required_threads
        && b != l.block
    {
        return Err(format!("the kernel requires blocks of {b:?}, not {:?}", l.block));
    }
    if let Some(b) = prog.bounds.max_threads
        && product(b) < threads
    {
        return Err(format!("the kernel allows blocks of at most {} threads, not {threads}", product(b)));
    }
    let mut cluster = l.cluster;
    if let Some(c) = prog.bounds.required_cluster {
        if cluster != [1; 3] && cluster != c {
            return Err(format!("the kernel requires clusters of {c:?}, not {cluster:?}"));
        }
        cluster = c;
    }
    if !(1..=16).contains(&product(cluster)) || (0..3).any(|k| !l.grid[k].is_multiple_of(cluster[k])) {
        return Err(format!("a grid of {:?} does not divide into clusters of {cluster:?}", l.grid));
    }
    if l.args.len() != prog.params.len() {
        return Err(format!("{} arguments for {} parameters", l.args.len(), prog.params.len()));
    }
    let mut params = vec![0u8; prog.param_bytes as usize];
    for (k, (a, (at, n, name))) in l.args.iter().zip(&prog.params).enumerate() {
        if a.len() != *n as usize {
            return Err(format!("argument {k} (`{name}`) has {} bytes, not {n}", a.len()));
        }
        params[*at as usize..(at + n) as usize].copy_from_slice(a);
    }
    let dyn_offset = prog.static_shared.checked_next_multiple_of(prog.dyn_align.max(16)).unwrap_or(u32::MAX);
    let shared_bytes = if l.shared_bytes == 0 { prog.static_shared } else { dyn_offset.saturating_add(l.shared_bytes) };
    if shared_bytes > MAX_SHARED {
        return Err(format!("{shared_bytes} bytes of shared memory: at most {MAX_SHARED} are possible"));
    }
    let wgmma: Vec<_> = prog.funcs.iter().map(wgmma_regs::named).collect();
    let watch = prog.funcs.iter().zip(&wgmma).map(|(code, named)| watched(code, named)).collect();
    Ok(Launched {
        grid: l.grid,
        block: l.block,
        cluster,
        dynamic_shared: l.shared_bytes,
        dyn_offset,
        shared_bytes,
        params,
        globals,
        threads: threads as u32,
        watch,
        wgmma,
    })
}

/// Which instructions the checkers of registers look at: see [`Launched::watch`].
fn watched(code: &Code, named: &[bool]) -> Vec<u8> {
    let wgmma = |r: &Reg| r.is_some() && r.class() == Class::R && named[r.slot()];
    let any = named.contains(&true);
    code.insts
        .iter()
        .zip(&code.tracks)
        .map(|(i, track)| {
            let list = &code.lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
            let regs = || [i.a, i.b, i.c, i.d, i.guard].into_iter().chain(list.iter().copied());
            let first = !code.maybe_uninit.is_empty() && regs().any(|r| code.follows(r));
            let second = any && !matches!(i.op, Op::Wgmma(_)) && regs().any(|r| wgmma(&r));
            u8::from(first) | u8::from(second) << 1 | u8::from(track.defines || track.accesses) << 2
        })
        .collect()
}
