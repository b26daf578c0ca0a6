//! The executable form: dense, pre-decoded instructions over register slots.

use std::sync::Arc;

pub use crate::ops::*;

use crate::exec::regs::Regs;
use crate::ptx::ast::Bounds;

/// A register: its class in the top two bits, and its number (after register allocation, its slot) below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reg(pub u32);

/// The three register files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// 32 bits or fewer.
    R,
    /// 64 bits.
    Q,
    /// Predicates: one bit per lane.
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

/// A register-only operation, applied to the lanes of `mask`.
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
    /// For a helper instruction, which all lanes execute: the guard of the PTX instruction that it belongs to. `guard_neg` applies to it.
    pub under: Reg,
    /// Whether it is the first instruction of its PTX instruction (helper instructions are not counted).
    pub first: bool,
    /// Whether it only copies a register.
    pub moves: bool,
    /// Whether it only joins two halves, its operands `a` and `b`.
    pub joins: bool,
    /// Whether its shared-memory address is in the executing thread's own block: `.shared`, without `::cluster`.
    pub own: bool,
    /// Whether it keeps bits of a word that is written back with other bits changed: the result counts as defined, whatever these bits are.
    pub keeps: bool,
    /// How the overflow checker for offsets treats the result.
    pub offset: Offset,
    /// Meaning depends on the operation: an offset, packed flags.
    pub imm: i64,
    /// More operands: `Code::lists[ext..ext + defs]` are written, and the following ones up to `len` are read.
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
            joins: false,
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

impl Inst {
    /// The registers that it only copies, or joins, into its destination.
    pub fn copied(&self) -> impl Iterator<Item = Reg> {
        let copied = if self.joins { [self.a, self.b] } else { [self.a, Reg::NONE] };
        copied.into_iter().filter(|r| (self.moves || self.joins) && r.is_some())
    }
}

/// An operation. Register-only operations are `Alu`.
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
    /// `a` address, `b` leading dimension: checks only that a prefetch names a known space.
    Prefetch,
    /// Checks the operands of `createpolicy`: a fraction in `a`, or two sizes in `b` and `c`.
    Policy,
    Fence(Fence),
    /// Waits for the launches ahead (`griddepcontrol.wait`).
    GridWait,
    /// Lets the next launch start (`griddepcontrol.launch_dependents`).
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
        /// `.cg`: bypasses the first-level cache.
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
    /// Number of registers of A in bits 0-7 of `imm`, of B in bits 8-15.
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
    /// Size in bytes in `a`; stack pointer in `b`, whose new value is a second result beside `d`; alignment in `imm`.
    Alloca,
    Discard,
    Printf,
    AssertFail,
    /// Size in bytes in `a`, resulting pointer in `d`.
    Malloc,
    /// Pointer in `a`.
    Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    Generic(Scope),
    /// Proxy fences for shared memory and for global memory.
    ProxyAsync {
        shared: bool,
        global: bool,
    },
    MbarrierInit,
    /// Acquires writes of other threads and the tensor map at an address.
    AcquireMap(Scope),
    /// Releases earlier writes, including those of tensor maps.
    ReleaseMaps(Scope),
    /// Fences for proxies that this simulator keeps coherent (alias).
    Other,
}

/// The initial value of a constant or special register slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Init {
    Imm(u64),
    Special(Special),
    /// Module variable and byte offset.
    Global(u32, i64),
    DynShared(i64),
    /// Offset in the function's local frame; converted to a generic address if true.
    Local(u32),
    /// The first byte after the function's local frame.
    FrameEnd,
    /// The address of a function: its index in the module, plus one.
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
    /// 1 and 2: the two halves of the address of a cooperative launch's workspace.
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
    /// Source file index and line from `.loc`; 0 if unknown.
    pub source: (u32, u32),
    /// Source location of the outermost call that this code was inlined from, in a function that was not itself inlined; 0 if there is none.
    pub caller: (u32, u32),
}

/// Byte copies between a caller's and a callee's frames.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// Caller offset and size, in parameter order.
    pub args: Vec<(u32, u32)>,
    pub rets: Vec<(u32, u32)>,
}

/// One lowered function.
pub struct Code {
    /// Number of instructions in the functions before it. Added to an index in `insts`, it gives the instruction's unique number in the
    /// program.
    pub base: u32,
    pub insts: Vec<Inst>,
    pub origins: Vec<Origin>,
    /// One entry per instruction.
    pub tracks: Vec<Track>,
    pub lists: Vec<Reg>,
    /// Branch targets of `brx.idx`.
    pub tables: Vec<Vec<u32>>,
    pub copies: Vec<Copies>,
    /// Slots that are initialised when the function starts.
    pub consts: Vec<(Reg, Init)>,
    pub nr: u32,
    pub nq: u32,
    pub np: u32,
    /// Registers whose slot may be read before it is written (for checkers).
    pub maybe_uninit: Vec<Reg>,
    /// By class and slot: whether the register is one of those, or is computed from one.
    pub followed: [Vec<bool>; 3],
    pub local_bytes: u32,
    /// `local_bytes` before rounding up.
    pub frame_bytes: u32,
    /// The stack pointer, for a function that uses `alloca`.
    pub stack_top: Reg,
    /// Frame offset and size of parameters and return values.
    pub params: Vec<(u32, u32)>,
    pub rets: Vec<(u32, u32)>,
    /// The maximum number of live 32-bit register words: an estimate of register pressure.
    pub pressure: u32,
    /// Whether each `wgmma` is complete before the next instruction.
    pub serial: bool,
}

impl Code {
    /// Whether a register may hold an uninitialised value, or one that is computed from an uninitialised value.
    pub fn follows(&self, r: Reg) -> bool {
        r.is_some() && self.followed[r.class() as usize][r.slot()]
    }
}

/// The name, among the shared variables, of the part of shared memory that the system reserves.
pub const RESERVED_NAME: &str = "%reserved";

/// A kernel with all functions that it can call.
pub struct Program {
    pub kernel: String,
    pub funcs: Vec<Code>,
    /// By index in the module: index in `funcs`, or `u32::MAX` for a function that this kernel does not reach.
    pub places: Vec<u32>,
    pub texts: Vec<String>,
    pub files: Vec<(u32, String)>,
    /// Kernel parameters: offset, size, name.
    pub params: Vec<(u32, u32, String)>,
    pub param_bytes: u32,
    /// Bytes of static shared variables, without the guard regions that the simulator inserts between them.
    pub static_shared: u32,
    /// Alignment of dynamic shared memory, 0 if the kernel does not name any.
    pub dyn_align: u32,
    /// Static shared variables: offset, size, name. A guard region follows each of them: see [`guards`](crate::lower::guards).
    pub shared_vars: Vec<(u32, u32, String)>,
    /// Constant variables: index of the module variable, and size.
    pub constants: Vec<(u32, u64)>,
    pub bounds: Bounds,
    /// Smallest shared access in bytes (determines the shadow's granularity).
    pub shared_grain: u32,
    pub global_grain: u32,
    /// Whether it calls `malloc` or `free`.
    pub heap: bool,
    /// Whether some strong access or fence has only block scope.
    pub narrow: bool,
    /// Whether some arrivals or waits at mbarriers are relaxed.
    pub relaxed: bool,
    /// Whether it has an `mbarrier.inval`.
    pub invalidates: bool,
    /// Whether it has a `fence.proxy.async` for global memory.
    pub fences_global: bool,
    /// Whether the target is older than sm_70, where the lanes of a warp run in lockstep and may pass values through volatile memory.
    pub in_step: bool,
    pub target: String,
}
