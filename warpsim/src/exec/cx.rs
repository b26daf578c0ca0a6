//! The context of all executing functions: the program, memory, options, and where findings are recorded.

use rustc_hash::FxHashMap;

use super::ahead::Ahead;
use super::coop::GridBarrier;
use super::state::{Split, Warp};
use crate::check::global::{GStamp, GlobalShadow};
use crate::ir::Program;
use crate::launch::Options;
use crate::memory::Memory;
use crate::metrics::Collector;
use crate::report::{Earlier, Fault, Finding, Kind, Place};

/// A launch with its addresses resolved.
pub struct Launched {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared: u32,
    /// Offset of dynamic shared memory.
    pub dyn_offset: u32,
    pub shared_bytes: u32,
    /// Size including the guard regions between static variables.
    pub shared_span: u32,
    /// One bit for each word of static shared memory: whether it belongs to a variable. Empty if no checker needs it.
    pub owned: Vec<u64>,
    pub params: Vec<u8>,
    pub globals: Vec<u64>,
    /// For a cooperative launch.
    pub grid_barrier: Option<GridBarrier>,
    /// For a programmatic launch: the launches that it may overlap with.
    pub ahead: Ahead,
    pub threads: u32,
    /// Registers per thread at the start; 0: unknown.
    pub registers: u32,
    /// By function, flags of each instruction: it has an operand that may be uninitialised (1), it uses a register that a `wgmma` uses (2),
    /// or it computes or uses an address in 32 bits (4).
    pub watch: Vec<Vec<u8>>,
    /// By function and register: whether a `wgmma` uses it.
    pub wgmma: Vec<Vec<bool>>,
}

impl Launched {
    /// Whether the `n` bytes of shared memory at `off` begin and end in variables, or in dynamic memory.
    #[inline(always)]
    pub fn owns(&self, off: usize, n: usize) -> bool {
        let word = |at: usize| self.owned.get(at / 256).is_none_or(|bits| bits >> (at / 4 % 64) & 1 != 0);
        word(off) && word(off + n.max(1) - 1)
    }
}

pub struct Cx<'a> {
    pub prog: &'a Program,
    pub mem: &'a Memory,
    pub launch: &'a Launched,
    pub opts: &'a Options,
    pub global_shadow: Option<&'a GlobalShadow>,
    pub instructions: u64,
    /// Number of actions since the last turn that other threads can observe.
    pub effects: u64,
    /// The number of these actions that only read a clock.
    pub glances: u64,
    /// Whether, since the same moment, a thread may have tested for the progress of others.
    pub polls: bool,
    pub findings: Vec<Finding>,
    seen: FxHashMap<(Kind, u32, u32), usize>,
    pub metrics: Option<Box<Collector>>,
    pub output: String,
    pub rng: u64,
    pub last_alloc: usize,
}

const MAX_FINDINGS: usize = 1000;

impl<'a> Cx<'a> {
    pub fn new(
        prog: &'a Program,
        mem: &'a Memory,
        launch: &'a Launched,
        opts: &'a Options,
        shadow: Option<&'a GlobalShadow>,
    ) -> Self {
        let metrics = opts.metrics.then(|| Box::new(Collector::new(prog)));
        Cx {
            prog,
            mem,
            launch,
            opts,
            global_shadow: shadow,
            instructions: 0,
            effects: 0,
            glances: 0,
            polls: false,
            findings: vec![],
            seen: FxHashMap::default(),
            metrics,
            output: String::new(),
            rng: opts.seed,
            last_alloc: 0,
        }
    }

    /// The next number of a small random number generator (splitmix64).
    pub fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.rng ^ self.rng >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn place(&self, func: u32, pc: u32) -> Place {
        let Some(o) = self.prog.funcs.get(func as usize).and_then(|f| f.origins.get(pc as usize)) else {
            return Place::default();
        };
        let source = |(number, line): (u32, u32)| {
            let file = self.prog.files.iter().find(|f| f.0 == number && line != 0)?;
            Some((file.1.clone(), line))
        };
        Place {
            ptx_line: o.line,
            instruction: self.prog.texts.get(o.text as usize).cloned().unwrap_or_default(),
            source: source(o.source),
            caller: source(o.caller),
        }
    }

    /// Whether the current instruction of a split may involve uninitialised values.
    pub fn watches(&self, w: &Warp, s: &Split) -> bool {
        self.opts.checks.init && (w.follows_all || self.launch.watch[s.func as usize][s.pc as usize] & 1 != 0)
    }

    /// The number, in the program, of the instruction that is being executed.
    #[inline(always)]
    pub fn number(&self, s: &Split) -> u32 {
        self.prog.funcs[s.func as usize].base + s.pc
    }

    /// The function that contains an instruction with this number, and the instruction's index there.
    pub fn numbered(&self, number: u32) -> (u32, u32) {
        let func = self.prog.funcs.partition_point(|f| f.base <= number).saturating_sub(1);
        (func as u32, number - self.prog.funcs[func].base)
    }

    /// The location of the instruction with this number.
    pub fn place_of(&self, number: u32) -> Place {
        let (func, pc) = self.numbered(number);
        self.place(func, pc)
    }

    /// The opcode of the current instruction of a split.
    pub fn text(&self, s: &Split) -> &'a str {
        let origin = self.prog.funcs[s.func as usize].origins[s.pc as usize];
        self.prog.texts.get(origin.text as usize).map_or("", String::as_str)
    }

    /// The location of an access to global memory; it is unknown for large numbers, which a stamp cannot hold.
    pub fn place_of_far(&self, stamp: GStamp) -> Place {
        if stamp.pc() < GStamp::LAST { self.place_of(stamp.pc()) } else { Place::default() }
    }

    pub fn thread(&self, warp: usize, lane: u32) -> [u32; 3] {
        thread_of(self.launch.block, warp as u32 * 32 + lane)
    }

    pub fn finding(
        &self,
        w: &Warp,
        s: &Split,
        lane: u32,
        kind: Kind,
        message: String,
        address: Option<u64>,
    ) -> Finding {
        Finding {
            kind,
            message,
            kernel: self.prog.kernel.clone(),
            place: self.place(s.func, s.pc),
            block: w.ctaid,
            thread: self.thread(w.id, lane),
            address,
            earlier: None,
            count: 1,
        }
    }

    /// Creates the fault that ends the launch.
    pub fn fault<T>(
        &self,
        w: &Warp,
        s: &Split,
        lane: u32,
        kind: Kind,
        message: impl Into<String>,
        address: Option<u64>,
    ) -> Result<T, Fault> {
        Err(Fault::new(self.finding(w, s, lane, kind, message.into(), address)))
    }

    /// Whether the current instruction of a split already has such a finding.
    pub fn reported(&self, kind: Kind, s: &Split) -> bool {
        self.seen.contains_key(&(kind, s.func, s.pc))
    }

    /// Records a finding, once for each instruction and kind.
    pub fn report(
        &mut self,
        w: &Warp,
        s: &Split,
        lane: u32,
        kind: Kind,
        address: Option<u64>,
        earlier: Option<Earlier>,
        message: impl FnOnce(&Self) -> String,
    ) {
        if let Some(&k) = self.seen.get(&(kind, s.func, s.pc)) {
            self.findings[k].count += 1;
            return;
        }
        if self.findings.len() >= MAX_FINDINGS {
            return;
        }
        let mut f = self.finding(w, s, lane, kind, message(self), address);
        f.earlier = earlier;
        self.seen.insert((kind, s.func, s.pc), self.findings.len());
        self.findings.push(f);
    }
}

/// The thread index with a linear number.
pub fn thread_of(block: [u32; 3], n: u32) -> [u32; 3] {
    let [x, y, _] = block.map(|v| v.max(1));
    [n % x, n / x % y, n / (x * y)]
}

/// The index of the block with a linear number.
pub fn block_of(grid: [u32; 3], n: u64) -> [u32; 3] {
    let (x, y) = (u64::from(grid[0].max(1)), u64::from(grid[1].max(1)));
    [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32]
}
