//! What every executing function can reach: the program, memory, options, and where findings go.

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

/// A launch with its addresses settled.
pub struct Launched {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared: u32,
    /// Offset of dynamic shared memory.
    pub dyn_offset: u32,
    pub shared_bytes: u32,
    /// The same with what lies between static variables.
    pub shared_span: u32,
    /// A bit for each word of static shared memory: whether it is a variable's. Empty where nobody asks.
    pub owned: Vec<u64>,
    pub params: Vec<u8>,
    pub globals: Vec<u64>,
    /// Of a cooperative launch.
    pub grid_barrier: Option<GridBarrier>,
    /// Of a programmatic launch: what it may run beside.
    pub ahead: Ahead,
    pub threads: u32,
    /// Registers of a thread at the start; 0: unknown.
    pub registers: u32,
    /// By function: instructions with an operand that may be uninitialised (1), or that a `wgmma` works on (2), or that compute or
    /// use an address in 32 bits (4).
    pub watch: Vec<Vec<u8>>,
    /// By function and register: a `wgmma` works on it.
    pub wgmma: Vec<Vec<bool>>,
}

impl Launched {
    /// Whether `n` bytes of shared memory from `off` on begin and end in variables, or in dynamic memory.
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
    /// What threads did since the last turn that others may see.
    pub effects: u64,
    /// Those among them that only looked at the clock.
    pub glances: u64,
    /// Since the same moment somebody may have asked whether others have got on.
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

    /// The next number of a small generator (splitmix64).
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

    /// Whether the instruction that a split has come to may have to do with what nobody made.
    pub fn watches(&self, w: &Warp, s: &Split) -> bool {
        self.opts.checks.init && (w.follows_all || self.launch.watch[s.func as usize][s.pc as usize] & 1 != 0)
    }

    /// The number in the program of the instruction that is executed.
    #[inline(always)]
    pub fn number(&self, s: &Split) -> u32 {
        self.prog.funcs[s.func as usize].base + s.pc
    }

    /// The function of a numbered instruction, and where it is there.
    pub fn numbered(&self, number: u32) -> (u32, u32) {
        let func = self.prog.funcs.partition_point(|f| f.base <= number).saturating_sub(1);
        (func as u32, number - self.prog.funcs[func].base)
    }

    /// Where a numbered instruction was written.
    pub fn place_of(&self, number: u32) -> Place {
        let (func, pc) = self.numbered(number);
        self.place(func, pc)
    }

    /// The opcode of the instruction that a split has come to.
    pub fn text(&self, s: &Split) -> &'a str {
        let origin = self.prog.funcs[s.func as usize].origins[s.pc as usize];
        self.prog.texts.get(origin.text as usize).map_or("", String::as_str)
    }

    /// The same of an access to global memory, which long programs do not tell.
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

    /// Ends the launch.
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
