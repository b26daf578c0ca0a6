//! What the simulator counts while a kernel runs, under Nsight Compute's names.

use warpsim::Metrics;

/// Counts of one launch.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "check", derive(serde::Serialize))]
pub struct Profile {
    /// The kernel's symbol.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Nsight Compute's name of a count, or a plain one where it has none, and the value.
    pub metrics: Vec<(&'static str, f64)>,
    /// Floating-point operations a byte, if every byte moved once.
    pub intensity: f64,
    /// Opcodes and how often a warp executed them, most first.
    pub mix: Vec<(String, u64)>,
    /// The instructions that cost most.
    pub lines: Vec<HotLine>,
    /// How many blocks fit on a multiprocessor of the simulated GPU.
    pub occupancy: Occupancy,
    #[cfg_attr(feature = "check", serde(skip))]
    gpu: warpsim::Device,
    #[cfg_attr(feature = "check", serde(skip))]
    shared_bytes: u32,
}

/// One instruction of the PTX.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "check", derive(serde::Serialize))]
pub struct HotLine {
    /// Line of the PTX, as `warpsmith inspect OP --ptx` prints it.
    pub ptx_line: u32,
    /// The opcode.
    pub instruction: String,
    /// The lines of the source that it comes from, where the PTX tells.
    pub source: Option<String>,
    /// Times that a warp executed it.
    pub executed: u64,
    /// Threads that took part, of 32.
    pub threads: f64,
    /// Sectors of global memory a request, and what the bytes asked for would take.
    pub sectors: Option<(f64, f64)>,
    /// Shared memory wavefronts a request, and what would do without bank conflicts.
    pub wavefronts: Option<(f64, f64)>,
    /// Share of executions in which a warp's threads went different ways.
    pub divergent: f64,
}

/// How much of a multiprocessor a kernel can fill.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "check", derive(serde::Serialize))]
pub struct Occupancy {
    /// The GPU.
    pub device: &'static str,
    /// Blocks that fit.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// Warps that a multiprocessor holds.
    pub of: u32,
    /// What keeps more from fitting.
    pub limiter: &'static str,
    /// Registers of a thread that this assumes; `None`: registers are left out.
    pub registers: Option<u32>,
    /// The grid as a multiple of what all of the GPU's multiprocessors hold.
    pub waves: f64,
    /// The share of the last wave that stays empty.
    pub tail: f64,
}

/// Lines that a profile keeps.
const LINES: usize = 20;

impl Profile {
    pub(super) fn new(kernel: &str, launch: &warpsim::Launch<'_>, metrics: Metrics, gpu: warpsim::Device) -> Self {
        let mut profile = Self {
            kernel: kernel.to_owned(),
            grid: launch.grid,
            block: launch.block,
            intensity: metrics.arithmetic_intensity().0,
            lines: lines(&metrics),
            metrics: metrics.rows(),
            mix: metrics.mix,
            occupancy: Occupancy::default(),
            gpu,
            shared_bytes: launch.shared_bytes,
        };
        profile.set_registers(None);
        profile
    }

    /// The count of that name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Counts with the registers of a thread that ptxas reports.
    pub fn set_registers(&mut self, registers: Option<u32>) {
        let threads = self.block.iter().product();
        let blocks = self.grid.iter().map(|n| u64::from(*n)).product();
        let found = warpsim::occupancy(self.gpu, threads, registers.unwrap_or(0), self.shared_bytes, blocks);
        self.occupancy = Occupancy {
            device: self.gpu.name,
            blocks: found.blocks_per_sm,
            warps: found.warps_per_sm,
            of: self.gpu.warps,
            limiter: found.limiter.name(),
            registers,
            waves: found.waves,
            tail: found.tail,
        };
    }
}

/// The lines that cost most: executions, and a turn for every sector and wavefront.
fn lines(metrics: &Metrics) -> Vec<HotLine> {
    let ratio = |units: u64, requests: u64| units as f64 / requests.max(1) as f64;
    let pair =
        |t: &warpsim::Traffic| (t.requests > 0).then(|| (ratio(t.units, t.requests), ratio(t.ideal, t.requests)));
    let cost = |line: &warpsim::Line| line.executed + line.global.units + line.shared.units + line.divergent;
    let mut hot: Vec<_> = metrics.lines.iter().collect();
    hot.sort_by_key(|line| (std::cmp::Reverse(cost(line)), line.place.ptx_line));
    let hot = hot.into_iter().take(LINES).map(|line| HotLine {
        ptx_line: line.place.ptx_line,
        instruction: line.place.instruction.clone(),
        source: line.place.sources(),
        executed: line.executed,
        threads: ratio(line.threads, line.executed),
        sectors: pair(&line.global),
        wavefronts: pair(&line.shared),
        divergent: ratio(line.divergent, line.branches),
    });
    hot.collect()
}
