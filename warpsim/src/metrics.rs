//! Counts under the names and definitions of Nsight Compute, for the metrics that need no clock.

use std::collections::{HashMap, HashSet};

use crate::ir::{Inst, Op, Program};
use crate::report::Place;

/// Accesses to one memory space in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Warp-level instructions.
    pub requests: u64,
    /// 32-byte sectors (global memory; for `cp.async.cg`, what ncu counts as sectors) or wavefronts (shared memory).
    pub units: u64,
    /// The minimum units for the same bytes, without waste or conflicts.
    pub ideal: u64,
    /// Bytes that threads requested.
    pub bytes: u64,
    /// Requested bytes, where bytes that several threads of a warp request at once count once.
    pub distinct: u64,
}

impl Traffic {
    fn add(&mut self, o: &Traffic) {
        self.requests += o.requests;
        self.units += o.units;
        self.ideal += o.ideal;
        self.bytes += o.bytes;
        self.distinct += o.distinct;
    }
    /// Units per request.
    pub fn per_request(&self) -> f64 {
        self.units as f64 / self.requests.max(1) as f64
    }
}

/// Counts of one PTX instruction.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// The instruction.
    pub place: Place,
    /// Number of times that a warp executed it.
    pub executed: u64,
    /// Number of thread-level executions, summed over warps.
    pub threads: u64,
    /// Conditional branches executed here.
    pub branches: u64,
    /// Conditional branches that diverged.
    pub divergent: u64,
    /// Global memory traffic, both directions.
    pub global: Traffic,
    /// Shared memory traffic, both directions.
    pub shared: Traffic,
}

/// Counts of a whole launch.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// `smsp__inst_executed.sum`, but of PTX instructions; the hardware counts SASS.
    pub instructions: u64,
    /// Thread-level executions, summed over all warp instructions.
    pub thread_instructions: u64,
    /// Conditional branches.
    pub branches: u64,
    /// Conditional branches that diverged.
    pub divergent_branches: u64,
    /// Global loads: units are sectors.
    pub global_loads: Traffic,
    /// Global stores and atomics: units are sectors.
    pub global_stores: Traffic,
    /// Shared loads: units are wavefronts.
    pub shared_loads: Traffic,
    /// Shared stores: units are wavefronts.
    pub shared_stores: Traffic,
    /// Distinct 32-byte sectors accessed, times 32: the minimum global memory traffic.
    pub unique_bytes: u64,
    /// Bytes that bulk and tensor copies wrote to shared memory.
    pub bulk_load_bytes: u64,
    /// Bytes that bulk and tensor copies read from shared memory.
    pub bulk_store_bytes: u64,
    /// Floating-point operations outside the tensor cores; a fused multiply-add is two.
    pub flops: u64,
    /// Floating-point operations of `mma`, `wmma` and `wgmma`.
    pub tensor_flops: u64,
    /// Instruction mix by opcode root.
    pub mix: Vec<(String, u64)>,
    /// Every instruction that was executed, hottest first.
    pub lines: Vec<Line>,
    /// Theoretical occupancy of the target's multiprocessors.
    pub occupancy: Option<crate::occupancy::Occupancy>,
    /// An upper estimate of the registers per thread, from the PTX (ptxas reports the exact number).
    pub register_pressure: u32,
}

impl Metrics {
    /// `smsp__thread_inst_executed_per_inst_executed.ratio`
    pub fn threads_per_instruction(&self) -> f64 {
        self.thread_instructions as f64 / self.instructions.max(1) as f64
    }
    /// `smsp__sass_average_branch_targets_threads_uniform.pct`
    pub fn branch_uniformity(&self) -> f64 {
        if self.branches == 0 {
            100.0
        } else {
            100.0 * (self.branches - self.divergent_branches) as f64 / self.branches as f64
        }
    }
    /// Bytes that left or entered the first-level cache: sectors times 32, plus bulk copies.
    pub fn sector_bytes(&self) -> u64 {
        32 * (self.global_loads.units + self.global_stores.units) + self.bulk_load_bytes + self.bulk_store_bytes
    }
    /// Arithmetic intensity in FLOPs per byte: for the minimum traffic, and for the sectors moved.
    pub fn arithmetic_intensity(&self) -> (f64, f64) {
        let f = (self.flops + self.tensor_flops) as f64;
        (f / self.unique_bytes.max(1) as f64, f / self.sector_bytes().max(1) as f64)
    }

    /// Rows of metric name and value, with Nsight Compute's names.
    pub fn rows(&self) -> Vec<(&'static str, f64)> {
        let t = |v: &Traffic| {
            (
                v.requests as f64,
                v.units as f64,
                v.per_request(),
                100.0 * v.distinct as f64 / (32 * v.units).max(1) as f64,
            )
        };
        let (ld, st) = (t(&self.global_loads), t(&self.global_stores));
        vec![
            ("smsp__inst_executed.sum", self.instructions as f64),
            ("smsp__thread_inst_executed_per_inst_executed.ratio", self.threads_per_instruction()),
            ("smsp__sass_average_branch_targets_threads_uniform.pct", self.branch_uniformity()),
            ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", ld.0),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", ld.1),
            ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio", ld.2),
            ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", ld.3),
            ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", st.0),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", st.1),
            ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio", st.2),
            ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct", st.3),
            ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", self.shared_loads.units as f64),
            (
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
                (self.shared_loads.units - self.shared_loads.ideal) as f64,
            ),
            ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", self.shared_stores.units as f64),
            (
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
                (self.shared_stores.units - self.shared_stores.ideal) as f64,
            ),
            ("flops", self.flops as f64),
            ("tensor flops", self.tensor_flops as f64),
            ("loaded bytes", self.global_loads.bytes as f64),
            ("unique bytes", self.unique_bytes as f64),
            ("sector bytes", self.sector_bytes() as f64),
        ]
    }
}

#[derive(Clone, Copy, Default)]
struct Stat {
    executed: u64,
    threads: u64,
    branches: u64,
    divergent: u64,
    loads: Traffic,
    stores: Traffic,
    shared_loads: Traffic,
    shared_stores: Traffic,
}

/// Collects counts while a host thread runs blocks.
pub struct Collector {
    stats: Vec<Vec<Stat>>,
    unique: HashSet<u64>,
    bulk: [u64; 2],
    tensor: u64,
}

/// The address of the last byte of an access; the address has not necessarily been checked.
fn last(addr: u64, bytes: u32) -> u64 {
    addr.saturating_add(u64::from(bytes) - 1)
}

impl Collector {
    pub fn new(prog: &Program) -> Self {
        Collector {
            stats: prog.funcs.iter().map(|f| vec![Stat::default(); f.insts.len()]).collect(),
            unique: HashSet::new(),
            bulk: [0; 2],
            tensor: 0,
        }
    }

    fn stat(&mut self, func: u32, pc: u32) -> &mut Stat {
        &mut self.stats[func as usize][pc as usize]
    }

    pub fn count(&mut self, func: u32, pc: u32, i: &Inst, m: u32, all: u32) {
        if let (Op::Mma(info) | Op::Wmma(info), true) = (&i.op, m != 0) {
            let each = 2 * u64::from(info.m) * u64::from(info.n) * u64::from(info.k);
            self.tensor += each * if info.quads() { 4 } else { 1 };
        }
        if !i.first {
            return;
        }
        // A thread whose predicate is false still executes the branch instruction.
        let branch = matches!(i.op, Op::Bra { .. });
        let s = self.stat(func, pc);
        s.executed += 1;
        s.threads += u64::from(if branch { all } else { m }.count_ones());
    }

    pub fn branch(&mut self, func: u32, pc: u32, divergent: bool) {
        let s = self.stat(func, pc);
        s.branches += 1;
        s.divergent += u64::from(divergent);
    }

    pub fn tensor_flops(&mut self, n: u64) {
        self.tensor += n;
    }

    /// Counts the bytes that a bulk copy moves to or from shared memory.
    pub fn bulk(&mut self, bytes: u64, load: bool) {
        self.bulk[usize::from(!load)] += bytes;
    }

    /// Counts the global memory that the bulk copy touches.
    pub fn touch(&mut self, addr: u64, bytes: u64) {
        self.unique.extend(addr / 32..(addr + bytes).div_ceil(32));
    }

    pub fn global(&mut self, func: u32, pc: u32, addr: &[u64; 32], m: u32, bytes: u32, write: bool) {
        let t = self.sectors(addr, m, bytes);
        let s = self.stat(func, pc);
        if write { s.stores.add(&t) } else { s.loads.add(&t) }
    }

    /// A copy that bypasses the first-level cache. A pair of lanes makes one request for each 128-byte line that it reads, and
    /// ncu counts these requests as sectors. This matched an H200's counts for 74 address patterns.
    pub fn bypass(&mut self, func: u32, pc: u32, addr: &[u64; 32], m: u32, bytes: u32) {
        let line = |l: usize| (m >> l & 1 == 1).then(|| addr[l] / 128);
        let asked = |l: usize| match (line(l), line(l + 1)) {
            (Some(a), Some(b)) if a != b => 2,
            (None, None) => 0,
            _ => 1,
        };
        let t = Traffic { units: (0..32).step_by(2).map(asked).sum(), ..self.sectors(addr, m, bytes) };
        self.stat(func, pc).loads.add(&t);
    }

    fn sectors(&mut self, addr: &[u64; 32], m: u32, bytes: u32) -> Traffic {
        let mut sectors: Vec<u64> =
            (0..32).filter(|l| m >> l & 1 == 1).flat_map(|l| addr[l] / 32..=last(addr[l], bytes) / 32).collect();
        sectors.sort_unstable();
        sectors.dedup();
        self.unique.extend(&sectors);
        let asked = u64::from(m.count_ones() * bytes);
        let mut places: Vec<u64> = (0..32).filter(|l| m >> l & 1 == 1).map(|l| addr[l]).collect();
        places.sort_unstable();
        places.dedup();
        let distinct = places.len() as u64 * u64::from(bytes);
        Traffic { requests: 1, units: sectors.len() as u64, ideal: asked.div_ceil(32), bytes: asked, distinct }
    }

    pub fn shared(&mut self, func: u32, pc: u32, addr: &[u64; 32], m: u32, bytes: u32, write: bool) {
        let (mut units, mut ideal) = (0, 0);
        let lanes = lanes_together(addr, m, bytes);
        for first in (0..32).step_by(lanes) {
            let mut words: Vec<u64> = (first..first + lanes)
                .filter(|l| m >> l & 1 == 1)
                .flat_map(|l| addr[l] / 4..=last(addr[l], bytes) / 4)
                .collect();
            words.sort_unstable();
            words.dedup();
            let mut banks = [0u64; 32];
            for w in &words {
                banks[(w % 32) as usize] += 1;
            }
            units += banks.iter().copied().max().unwrap_or(0);
            ideal += (words.len() as u64).div_ceil(32);
        }
        let bytes = u64::from(m.count_ones() * bytes);
        let t = Traffic { requests: 1, units: units.max(1), ideal: ideal.max(1), bytes, distinct: bytes };
        let s = self.stat(func, pc);
        if write { s.shared_stores.add(&t) } else { s.shared_loads.add(&t) }
    }

    /// Adds another thread's counts.
    pub fn merge(&mut self, o: Collector) {
        for (a, b) in self.stats.iter_mut().flatten().zip(o.stats.iter().flatten()) {
            a.executed += b.executed;
            a.threads += b.threads;
            a.branches += b.branches;
            a.divergent += b.divergent;
            a.loads.add(&b.loads);
            a.stores.add(&b.stores);
            a.shared_loads.add(&b.shared_loads);
            a.shared_stores.add(&b.shared_stores);
        }
        self.unique.extend(o.unique);
        self.bulk[0] += o.bulk[0];
        self.bulk[1] += o.bulk[1];
        self.tensor += o.tensor;
    }

    pub fn finish(self, prog: &Program, place: impl Fn(u32, u32) -> Place) -> Metrics {
        let mut out =
            Metrics { unique_bytes: 32 * self.unique.len() as u64, tensor_flops: self.tensor, ..Metrics::default() };
        [out.bulk_load_bytes, out.bulk_store_bytes] = self.bulk;
        let mut mix: HashMap<String, u64> = HashMap::new();
        for (f, stats) in self.stats.iter().enumerate() {
            let code = &prog.funcs[f];
            out.register_pressure = out.register_pressure.max(code.pressure);
            for (pc, s) in stats.iter().enumerate() {
                out.instructions += s.executed;
                out.thread_instructions += s.threads;
                out.branches += s.branches;
                out.divergent_branches += s.divergent;
                out.global_loads.add(&s.loads);
                out.global_stores.add(&s.stores);
                out.shared_loads.add(&s.shared_loads);
                out.shared_stores.add(&s.shared_stores);
                if s.executed == 0 {
                    continue;
                }
                let text = &prog.texts[code.origins[pc].text as usize];
                *mix.entry(text.split('.').next().unwrap_or("").to_string()).or_default() += s.executed;
                out.flops += s.threads * flops(text);
                let mut global = s.loads;
                global.add(&s.stores);
                let mut shared = s.shared_loads;
                shared.add(&s.shared_stores);
                out.lines.push(Line {
                    place: place(f as u32, pc as u32),
                    executed: s.executed,
                    threads: s.threads,
                    branches: s.branches,
                    divergent: s.divergent,
                    global,
                    shared,
                });
            }
        }
        out.mix = mix.into_iter().collect();
        out.mix.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        out.lines.sort_by(|a, b| b.executed.cmp(&a.executed).then(a.place.ptx_line.cmp(&b.place.ptx_line)));
        out
    }
}

/// Floating-point operations of one thread for one instruction.
fn flops(text: &str) -> u64 {
    let mut parts = text.split('.');
    let root = parts.next().unwrap_or("");
    let width = match parts.next_back().unwrap_or("") {
        "f32" | "f64" | "f16" | "bf16" => 1,
        "f16x2" | "bf16x2" => 2,
        _ => return 0,
    };
    width
        * match root {
            "fma" | "mad" => 2,
            "add" | "sub" | "mul" => 1,
            _ => 0,
        }
}

/// How many lanes of a shared access are served in one pass: as many as 128 bytes hold, and twice as many if neighbours (or next
/// neighbours) all request the same data. Measured with ncu on an H100; the ISA does not specify it.
fn lanes_together(addr: &[u64; 32], m: u32, bytes: u32) -> usize {
    let lanes = (128 / bytes.max(4)) as usize;
    let paired =
        |by: usize| (0..32).filter(|l| m >> l & 1 == 1).all(|l| m >> (l ^ by) & 1 == 0 || addr[l] == addr[l ^ by]);
    if lanes < 32 && (paired(1) || paired(2)) { lanes * 2 } else { lanes }
}
