//! Launches: their limits, and the layout of their parameters.

use super::ahead::Ahead;
use super::cx::Launched;
use super::undefined;
use super::wgmma_regs;
use crate::ir::{Class, Code, Inst, Op, Program, Reg};
use crate::launch::{Checks, Launch, Options};
use crate::lower;
use crate::occupancy::{Device, H200, occupancy};

/// Maximum static shared memory of a block.
const MAX_STATIC: u32 = 48 << 10;
/// Maximum number of registers of a thread.
const MAX_REGISTERS: u32 = 255;

/// Checks a launch against the kernel and lays out its parameters.
pub fn prepare(prog: &Program, l: &Launch<'_>, opts: &Options, globals: Vec<u64>) -> Result<Launched, String> {
    let product = |v: [u32; 3]| v.iter().fold(1, |n: u64, x| n.saturating_mul((*x).into()));
    let threads = product(l.block);
    if !(1..=1024).contains(&threads) || l.block[2] > 64 {
        return Err(format!(
            "a block of {:?}: 1 to 1024 threads are possible, at most 64 in the third dimension",
            l.block
        ));
    }
    if product(l.grid) == 0 || l.grid[0] >= 1 << 31 || l.grid[1] > 65535 || l.grid[2] > 65535 {
        return Err(format!("a grid of {:?}: 1 to 2147483647 x 65535 x 65535 blocks are possible", l.grid));
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
    if !(1..=16).contains(&product(cluster)) {
        return Err(format!("clusters of {cluster:?}: a cluster has 1 to 16 blocks"));
    }
    if (0..3).any(|k| !l.grid[k].is_multiple_of(cluster[k])) {
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
    // If no device is given, any GPU may be meant.
    let device = opts.device.unwrap_or(H200);
    let most = device.shared_per_block();
    if shared_bytes > most {
        return Err(format!("{shared_bytes} bytes of shared memory: at most {most} are possible on {}", device.name));
    }
    if prog.static_shared > MAX_STATIC {
        let has = prog.static_shared;
        return Err(format!("{has} bytes of static shared memory: more than {MAX_STATIC} have to be dynamic"));
    }
    let variables = prog.shared_vars.len();
    let guarded = dyn_offset.saturating_add(lower::guards(variables));
    let between = lower::guards(if l.shared_bytes == 0 { variables.saturating_sub(1) } else { variables });
    let registers = registers(prog, threads as u32, opts, device)?;
    if l.cooperative {
        super::coop::admit(prog, l, opts.device, registers, shared_bytes)?;
    }
    let wgmma: Vec<_> = prog.funcs.iter().map(wgmma_regs::named).collect();
    let watch = prog.funcs.iter().zip(&wgmma).map(|(code, named)| watched(prog, code, named)).collect();
    Ok(Launched {
        grid: l.grid,
        block: l.block,
        cluster,
        dynamic_shared: l.shared_bytes,
        dyn_offset: guarded,
        shared_bytes,
        shared_span: shared_bytes.saturating_add(between),
        owned: if opts.checks == Checks::NONE { vec![] } else { owned(prog, guarded) },
        params,
        globals,
        grid_barrier: None,
        ahead: Ahead::default(),
        threads: threads as u32,
        registers,
        watch,
        wgmma,
    })
}

/// Which words of static shared memory, up to `end`, belong to a variable; empty if there is no variable.
fn owned(prog: &Program, end: u32) -> Vec<u64> {
    if prog.shared_vars.is_empty() {
        return vec![];
    }
    let mut owned = vec![0u64; end.div_ceil(4 * 64) as usize];
    for &(at, bytes, _) in &prog.shared_vars {
        for word in at / 4..at.saturating_add(bytes).div_ceil(4) {
            owned[word as usize / 64] |= 1 << (word % 64);
        }
    }
    // Dynamic shared memory follows them.
    for word in end / 4..(owned.len() * 64) as u32 {
        owned[word as usize / 64] |= 1 << (word % 64);
    }
    owned
}

/// Registers per thread at the start, if they are known; 0 if not.
///
/// For a kernel that changes the number later, ptxas allocates as many registers at the start as the launch bounds allow for whole
/// warpgroups, but no more than the kernel will request. Without a minimum number of blocks, ptxas ignores `setmaxnreg`.
fn registers(prog: &Program, threads: u32, opts: &Options, device: Device) -> Result<u32, String> {
    let product = |v: [u32; 3]| v.iter().fold(1u32, |n, x| n.saturating_mul(*x));
    let changes = || prog.funcs.iter().flat_map(|f| &f.insts).filter(|i| matches!(i.op, Op::SetMaxNReg));
    let bounds = &prog.bounds;
    let threads_of = bounds.required_threads.or(bounds.max_threads);
    let registers = match (opts.registers, bounds.max_registers, threads_of.zip(bounds.min_blocks)) {
        (0, ..) if changes().next().is_none() => return Ok(0),
        (0, Some(n), _) => start(n / 8 * 8, changes()),
        (0, None, Some((most, blocks))) => {
            let resident = product(most).max(1).next_multiple_of(128).saturating_mul(blocks.max(1));
            start((device.registers / resident).min(MAX_REGISTERS) / 8 * 8, changes())
        }
        (0, None, None) => return Ok(0),
        (n, ..) => n,
    };
    if registers > MAX_REGISTERS {
        return Err(format!("{registers} registers a thread: {MAX_REGISTERS} are possible"));
    }
    if occupancy(device, threads, registers, 0, 1).blocks_per_sm == 0 {
        let (needs, has) = (threads.next_multiple_of(32) * registers, device.registers);
        return Err(format!(
            "too many resources requested: {threads} threads of {registers} registers need {needs}, a multiprocessor has {has}"
        ));
    }
    Ok(registers)
}

/// The initial register count of a kernel that could have `most` registers: at most the largest number that it requests.
fn start<'a>(most: u32, changes: impl Iterator<Item = &'a Inst>) -> u32 {
    changes.filter(|i| i.imm >> 32 != 0).map(|i| i.imm as u32).max().map_or(most, |asked| asked.min(most))
}

/// The instructions that the register checkers examine: see [`Launched::watch`].
fn watched(prog: &Program, code: &Code, named: &[bool]) -> Vec<u8> {
    let wgmma = |r: &Reg| r.is_some() && r.class() == Class::R && named[r.slot()];
    let any = named.contains(&true);
    code.insts
        .iter()
        .zip(&code.tracks)
        .zip(&code.origins)
        .map(|((i, track), origin)| {
            let text = prog.texts.get(origin.text as usize).map_or("", String::as_str);
            let list = &code.lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
            let regs = || [i.a, i.b, i.c, i.d, i.guard].into_iter().chain(list.iter().copied());
            let first = regs().any(|r| code.follows(r)) || undefined::divides(text, i);
            let second = any && !matches!(i.op, Op::Wgmma(_)) && regs().any(|r| wgmma(&r));
            u8::from(first) | u8::from(second) << 1 | u8::from(track.defines || track.accesses) << 2
        })
        .collect()
}
