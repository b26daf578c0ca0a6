//! What instructions do, beyond register arithmetic: their decoded parameters.

use crate::num::Rnd;

/// Address spaces an instruction can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemSpace {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// What `isspacep` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    Global,
    Const,
    /// The block's own shared memory, or that of any block of the cluster.
    Shared {
        cluster: bool,
    },
    Local,
    Param,
}

/// Memory ordering, as far as the race checker cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Weak,
    /// Relaxed.
    Strong,
    /// Relaxed, and as code before independent thread scheduling relied on it within a warp.
    Volatile,
    Acquire,
    Release,
    AcqRel,
}

impl Order {
    pub fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }
}

/// Which threads a strong access or a fence is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Block,
    Cluster,
    /// And the host.
    Gpu,
}

/// A load or store.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub space: MemSpace,
    /// Bytes of one element.
    pub bytes: u8,
    /// Elements.
    pub count: u8,
    /// Sign-extend a loaded element to this many bits (0: zero-extend).
    pub sext: u8,
    pub order: Order,
    pub scope: Scope,
    /// `.nc`: of what nobody writes while the grid runs.
    pub constant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumTy {
    U32,
    S32,
    U64,
    S64,
    F32,
    F64,
    F16,
    BF16,
    F16x2,
    BF16x2,
    U16,
}

impl NumTy {
    pub fn bytes(self) -> u8 {
        match self {
            NumTy::U64 | NumTy::S64 | NumTy::F64 => 8,
            NumTy::F16 | NumTy::BF16 | NumTy::U16 => 2,
            _ => 4,
        }
    }
}

/// An atomic or reduction.
#[derive(Debug, Clone, Copy)]
pub struct Atomic {
    pub op: AtomOp,
    pub ty: NumTy,
    pub space: MemSpace,
    pub count: u8,
    pub order: Order,
    pub scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduxOp {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

/// What a warp-wide instruction does once its lanes are together.
#[derive(Debug, Clone, Copy)]
pub enum WarpOp {
    /// `d|c = shfl(a, b, ext[0])`
    Shfl(ShflMode),
    Vote(VoteMode),
    MatchAny(bool),
    MatchAll(bool),
    Redux(ReduxOp),
    SyncWarp,
    Elect,
}

/// Element type of a matrix fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elem {
    F16,
    BF16,
    TF32,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    E4M3,
    E5M2,
    F32,
    S32,
}

impl Mma {
    /// Four multiplications, one for each pair of four lanes and the four that are 16 further.
    pub fn quads(&self) -> bool {
        self.a == Elem::F16 && self.k == 4
    }
}

impl Elem {
    pub fn bits(self) -> u32 {
        match self {
            Elem::F16 | Elem::BF16 => 16,
            Elem::TF32 | Elem::F32 | Elem::S32 => 32,
            Elem::F64 => 64,
            Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => 8,
            Elem::S4 | Elem::U4 => 4,
            Elem::B1 => 1,
        }
    }

    /// Elements of a row that four bits of sparse metadata choose half of.
    pub fn sparse_chunk(self) -> u16 {
        match self.bits() {
            32 => 2,
            4 => 8,
            _ => 4,
        }
    }
}

/// `mma.sync` and the arithmetic half of `wgmma`.
#[derive(Debug, Clone, Copy)]
pub struct Mma {
    pub m: u16,
    pub n: u16,
    pub k: u16,
    pub a: Elem,
    pub b: Elem,
    pub d: Elem,
    pub c: Elem,
    /// Saturate integer accumulation.
    pub sat: bool,
    /// How sums in f64 round.
    pub rnd: Rnd,
    /// For `.b1`: AND instead of XOR.
    pub and: bool,
    /// `.sp`: A holds only what its metadata names.
    pub sparse: Option<Sparse>,
    /// wgmma: A comes from registers.
    pub a_regs: bool,
    pub neg_a: bool,
    pub neg_b: bool,
    /// wgmma: the matrix in shared memory is M/N-major. The shape m8n8k4 of f16: A by columns, and B by rows.
    pub trans_a: bool,
    pub trans_b: bool,
}

/// What a sparse multiplication says about its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Sparse {
    /// Which lanes of each group of four hold the metadata.
    pub selector: u8,
    /// `.sp::ordered_metadata`: the indices of a chunk ascend.
    pub ordered: bool,
}

/// A matrix between memory and `wmma` fragments.
#[derive(Debug, Clone, Copy)]
pub struct WmmaCopy {
    pub store: bool,
    pub rows: u16,
    pub cols: u16,
    pub by_rows: bool,
    pub elem: Elem,
    pub space: MemSpace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkDir {
    GlobalToShared,
    SharedToGlobal,
    SharedToCluster,
}

/// A bulk (non-tensor) copy or reduction.
#[derive(Debug, Clone, Copy)]
pub struct Bulk {
    pub dir: BulkDir,
    pub multicast: bool,
    pub reduce: Option<(AtomOp, NumTy)>,
}

/// Where a tensor copy goes. A prefetch goes nowhere, but is refused like a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Load,
    Store,
    Prefetch,
}

/// A tensor copy or reduction.
#[derive(Debug, Clone, Copy)]
pub struct TensorCopy {
    pub way: Way,
    pub rank: u8,
    pub multicast: bool,
    pub reduce: Option<AtomOp>,
    /// Of pixels, by an im2col map.
    pub im2col: bool,
}

/// `st.async` and `red.async`: elements of so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct StAsync {
    pub bytes: u8,
    pub count: u8,
    pub reduce: Option<(AtomOp, NumTy)>,
}

/// mbarrier instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mbar {
    Init,
    Inval,
    /// `arrive{.noComplete}`: count in `b` when present.
    Arrive {
        drop: bool,
        no_complete: bool,
        expect: bool,
        relaxed: bool,
        /// `.cta`: it tells the threads of its own block alone.
        narrow: bool,
    },
    ExpectTx,
    CompleteTx,
    /// Wait with a state token or a parity; `blocking` for `try_wait`.
    Test {
        parity: bool,
        blocking: bool,
        relaxed: bool,
        /// `.cta`: it hears the threads of its own block alone.
        narrow: bool,
    },
    PendingCount,
}

impl Mbar {
    /// It changes nothing.
    pub fn waits(self) -> bool {
        matches!(self, Mbar::Test { .. } | Mbar::PendingCount)
    }
}

/// What an instruction makes of the offsets that it is given, for the checker of their overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offset {
    /// A new number.
    #[default]
    Opaque,
    Copy,
    Negate,
    Add,
    Sub,
    Mul,
    Mad,
    Shl,
    Select,
    /// The least or the most of two.
    Extreme {
        most: bool,
        signed: bool,
    },
    /// Into, or out of, what a call passes.
    Pass,
    /// From 32 bits to 64, perhaps multiplied on the way, and added to.
    Widen {
        signed: bool,
    },
    /// From 64 bits to 32.
    Cut,
    /// What another lane has.
    Shuffle,
}

impl Offset {
    /// Whether a 32-bit result may have lost bits.
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Offset::Negate | Offset::Add | Offset::Sub | Offset::Mul | Offset::Mad | Offset::Shl)
    }
}

/// What the checker of offsets does at an instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Track {
    /// Its result is followed.
    pub defines: bool,
    /// It accesses memory at an address that is followed.
    pub accesses: bool,
    /// Which of its operands `a`, `b`, `c` are followed.
    pub followed: [bool; 3],
    /// Which of them are constants.
    pub constant: [bool; 3],
}
