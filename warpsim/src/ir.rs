//! The executable form: dense, pre-decoded instructions over register slots.

use std::sync::Arc;

pub use crate::ops::*;

use crate::exec::regs::Regs;
use crate::ptx::ast::Bounds;

/// A register: its class in the top two bits, its number (later its slot) below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reg(pub u32);

/// The three register files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// 32 bits or fewer.
    R,
    /// 64 bits.
    Q,
    /// Predicates: one bit a lane.
    P,
}

impl Reg {
    pub const NONE: Reg = Reg(u32::MAX);
    pub fn new(class: Class, id: u32) -> Self {
        Reg((class as u32) << 30 | id)
    }
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
    pub fn class(self) -> Class {
        match self.0 >> 30 {
            0 => Class::R,
            1 => Class::Q,
            _ => Class::P,
        }
    }
    #[inline(always)]
    pub fn slot(self) -> usize {
        (self.0 & 0x3fff_ffff) as usize
    }
}

/// Works on registers alone: all lanes of `mask`.
pub type LaneFn = unsafe fn(&mut Regs, &Inst, u32);

/// One executable instruction.
#[derive(Clone)]
pub struct Inst {
    pub op: Op,
    pub d: Reg,
    pub a: Reg,
    pub b: Reg,
    pub c: Reg,
    pub guard: Reg,
    pub guard_neg: bool,
    /// The guard of the PTX instruction that this helper, which all lanes execute, belongs to: `guard_neg` is for it.
    pub under: Reg,
    /// First of its PTX instruction (helper instructions are not counted).
    pub first: bool,
    /// A plain copy of a register.
    pub moves: bool,
    /// Its address in shared memory is of the own block: `.shared`, without `::cluster`.
    pub own: bool,
    /// It keeps bits of a word that is written back with others changed: defined, whatever they are.
    pub keeps: bool,
    /// What it makes of offsets.
    pub offset: Offset,
    /// What the operation makes of it: an offset, packed flags.
    pub imm: i64,
    /// More operands: `Code::lists[ext..ext + defs]` are written, up to `len` read.
    pub ext: u32,
    pub defs: u16,
    pub len: u16,
}

impl Inst {
    pub fn new(op: Op) -> Self {
        let n = Reg::NONE;
        Inst {
            op,
            d: n,
            a: n,
            b: n,
            c: n,
            guard: n,
            guard_neg: false,
            first: false,
            moves: false,
            own: false,
            keeps: false,
            offset: Offset::Opaque,
            under: n,
            imm: 0,
            ext: 0,
            defs: 0,
            len: 0,
        }
    }
}

/// An operation. Anything register-only is `Alu`.
#[derive(Clone)]
pub enum Op {
    Alu(LaneFn),
    Nop,
    Bra {
        target: u32,
        join: u32,
    },
    BrxIdx {
        table: u32,
        join: u32,
    },
    Call {
        func: u32,
        copies: u32,
    },
    CallIndirect {
        copies: u32,
    },
    Ret,
    Exit,
    Trap,
    Ld(Access),
    St(Access),
    Atom(Atomic),
    /// An exchange or compare-and-swap of 128 bits.
    AtomWide(Atomic),
    /// `a` address, `b` leading dimension: checks that a prefetch is of a known space only.
    Prefetch,
    Fence(Fence),
    /// Waits for the launches ahead.
    GridWait,
    /// Lets the launch behind start.
    GridRelease,
    /// Barrier id in `a`, thread count in `b` (may be absent).
    BarSync {
        aligned: bool,
    },
    BarArrive {
        aligned: bool,
    },
    /// `bar.red`: result `d`, predicate `c`.
    BarRed(VoteMode, bool),
    Warp(WarpOp),
    ActiveMask,
    Clock(u8),
    Nanosleep,
    IsSpacep(Window),
    CpAsync {
        bytes: u8,
        /// `.cg`: past the first-level cache.
        bypass: bool,
    },
    CpAsyncCommit,
    CpAsyncWait {
        all: bool,
    },
    CpAsyncMbar {
        noinc: bool,
    },
    LdMatrix {
        num: u8,
        trans: bool,
    },
    StMatrix {
        num: u8,
        trans: bool,
    },
    MovMatrix,
    Mma(Arc<Mma>),
    /// Registers of A in bits 0-7 of `imm`, of B in 8-15.
    Wmma(Arc<Mma>),
    WmmaCopy(WmmaCopy),
    Mbar(Mbar),
    Mapa {
        shared: bool,
    },
    GetCtaRank {
        shared: bool,
    },
    ClusterArrive {
        relaxed: bool,
        aligned: bool,
    },
    ClusterWait {
        aligned: bool,
    },
    Bulk(Bulk),
    /// Address in `a`, mbarrier in `b`.
    StAsync(StAsync),
    Tensor(TensorCopy),
    BulkCommit,
    BulkWait {
        read: bool,
    },
    WgFence,
    WgCommit,
    WgWait,
    Wgmma(Arc<Mma>),
    SetMaxNReg,
    /// Bytes in `a`, stack pointer in `b` and as the result beside `d`; alignment in `imm`.
    Alloca,
    Discard,
    Printf,
    AssertFail,
    /// Bytes in `a`, pointer in `d`.
    Malloc,
    /// Pointer in `a`.
    Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    Generic(Scope),
    /// Of shared memory, of global memory.
    ProxyAsync {
        shared: bool,
        global: bool,
    },
    MbarrierInit,
    /// Acquires what others wrote, and the tensor map at an address.
    AcquireMap(Scope),
    /// Releases what was written, tensor maps among it.
    ReleaseMaps(Scope),
    /// Proxies that this simulator keeps coherent (alias).
    Other,
}

/// What a constant or special register slot starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Init {
    Imm(u64),
    Special(Special),
    /// Module variable and byte offset.
    Global(u32, i64),
    DynShared(i64),
    /// Offset in the function's local frame; generic address when true.
    Local(u32),
    /// The first byte behind the function's local frame.
    FrameEnd,
    /// The address of a function: its place in the module, plus one.
    Func(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(u8),
    NTid(u8),
    CtaId(u8),
    NCtaId(u8),
    ClusterId(u8),
    NClusterId(u8),
    ClusterCtaId(u8),
    ClusterNCtaId(u8),
    ClusterCtaRank,
    ClusterNCtaRank,
    IsExplicitCluster,
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    /// 1 and 2: the halves of the address of a cooperative launch's workspace.
    EnvReg(u8),
    LaneMask(MaskRel),
    DynamicSmem,
    TotalSmem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaskRel {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Where an executable instruction came from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    /// PTX line.
    pub line: u32,
    /// Index in `Program::texts`.
    pub text: u32,
    /// Source file number and line from `.loc`; 0 when unknown.
    pub source: (u32, u32),
    /// The same of the call that it was inlined from, in the function that was not inlined itself; 0 when there is none.
    pub caller: (u32, u32),
}

/// Byte moves between a caller's and a callee's frames.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// Caller offset, size: in parameter order.
    pub args: Vec<(u32, u32)>,
    pub rets: Vec<(u32, u32)>,
}

/// One lowered function.
pub struct Code {
    /// Instructions of the functions before it: with these, an instruction has a number of its own in the program.
    pub base: u32,
    pub insts: Vec<Inst>,
    pub origins: Vec<Origin>,
    /// By instruction.
    pub tracks: Vec<Track>,
    pub lists: Vec<Reg>,
    /// Branch targets of `brx.idx`.
    pub tables: Vec<Vec<u32>>,
    pub copies: Vec<Copies>,
    /// Slots filled when the function starts.
    pub consts: Vec<(Reg, Init)>,
    pub nr: u32,
    pub nq: u32,
    pub np: u32,
    /// Registers whose slot may be read before it is written (for checks).
    pub maybe_uninit: Vec<Reg>,
    /// By class and slot: such a register, or one that is computed from them.
    pub followed: [Vec<bool>; 3],
    pub local_bytes: u32,
    /// The same without what it is rounded up by.
    pub frame_bytes: u32,
    /// The stack pointer of a function that uses `alloca`.
    pub stack_top: Reg,
    /// Frame offset and size of parameters and return values.
    pub params: Vec<(u32, u32)>,
    pub rets: Vec<(u32, u32)>,
    /// Most 32-bit register words live at once: an estimate of pressure.
    pub pressure: u32,
    /// Nothing of its `wgmma` goes on behind it.
    pub serial: bool,
}

impl Code {
    /// Whether a register may hold what nobody wrote, or what was computed from that.
    pub fn follows(&self, r: Reg) -> bool {
        r.is_some() && self.followed[r.class() as usize][r.slot()]
    }
}

/// The name among the shared variables of what the system reserves.
pub const RESERVED_NAME: &str = "%reserved";

/// A kernel with everything that it can call.
pub struct Program {
    pub kernel: String,
    pub funcs: Vec<Code>,
    /// By place in the module: index in `funcs`, `u32::MAX` for a function that this kernel does not reach.
    pub places: Vec<u32>,
    pub texts: Vec<String>,
    pub files: Vec<(u32, String)>,
    /// Kernel parameters: offset, size, name.
    pub params: Vec<(u32, u32, String)>,
    pub param_bytes: u32,
    /// Bytes of static shared variables, without what the simulator keeps between them.
    pub static_shared: u32,
    pub dyn_align: u32,
    /// Static shared variables: offset, size, name. Behind each is a stretch that is nobody's: see [`guards`](crate::lower::guards).
    pub shared_vars: Vec<(u32, u32, String)>,
    /// Constant variables: module variable and size.
    pub constants: Vec<(u32, u64)>,
    pub bounds: Bounds,
    /// Smallest shared access in bytes (decides the shadow's grain).
    pub shared_grain: u32,
    pub global_grain: u32,
    /// It calls `malloc` or `free`.
    pub heap: bool,
    /// Some strong access or fence is for the threads of its block only.
    pub narrow: bool,
    /// Some arrivals at mbarriers, or waits there, are relaxed.
    pub relaxed: bool,
    /// Of a target before sm_70, for which the lanes of a warp go in step: they may pass values through volatile memory.
    pub in_step: bool,
    pub target: String,
}
