//! Decoded parameters of the instructions that are more than register arithmetic.

use crate::num::Rnd;

/// Address spaces that an instruction can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemSpace {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// The space that `isspacep` tests for.
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

/// Memory ordering, as far as the race checker distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Weak,
    /// Relaxed.
    Strong,
    /// Relaxed. In addition, code that predates independent thread scheduling relies on it for order within a warp.
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

/// The scope of a strong access or a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Block,
    Cluster,
    /// All threads, and the host.
    Gpu,
}

/// A load or store.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub space: MemSpace,
    /// Size of one element in bytes.
    pub bytes: u8,
    /// Number of elements.
    pub count: u8,
    /// Sign-extends a loaded element to this many bits (0: zero-extends).
    pub sext: u8,
    pub order: Order,
    pub scope: Scope,
    /// `.nc`: reads data that no thread writes while the grid runs.
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

/// The operation of a warp-wide instruction, performed once its lanes have converged.
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
    /// Whether this is m8n8k4 of f16: four multiplications, one for each group of four adjacent lanes plus the four lanes 16 higher.
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

    /// The chunk of a row, in elements, of which four bits of sparse metadata choose half.
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
    /// Rounding mode of sums in f64.
    pub rnd: Rnd,
    /// For `.b1`: AND instead of XOR.
    pub and: bool,
    /// `.sp`: A holds only the elements that its metadata selects.
    pub sparse: Option<Sparse>,
    /// wgmma: A comes from registers.
    pub a_regs: bool,
    pub neg_a: bool,
    pub neg_b: bool,
    /// wgmma: the matrix in shared memory is M/N-major. For shape m8n8k4 of f16: A is column-major, or B row-major.
    pub trans_a: bool,
    pub trans_b: bool,
}

/// How a sparse multiplication reads its metadata.
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

/// The destination of a tensor copy. A prefetch has no destination, but is refused under the same conditions as a load.
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
    /// Copies pixels, with an im2col map.
    pub im2col: bool,
}

/// `st.async` and `red.async`: elements of this many bytes.
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
        /// `.cta`: synchronises only with threads of its own block.
        narrow: bool,
    },
    ExpectTx,
    CompleteTx,
    /// Wait with a state token or a parity; `blocking` for `try_wait`.
    Test {
        parity: bool,
        blocking: bool,
        relaxed: bool,
        /// `.cta`: synchronises only with threads of its own block.
        narrow: bool,
    },
    PendingCount,
}

impl Mbar {
    /// Changes nothing.
    pub fn waits(self) -> bool {
        matches!(self, Mbar::Test { .. } | Mbar::PendingCount)
    }
}

/// How an instruction treats the offsets in its operands, for the checker of 32-bit overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offset {
    /// The result is a new number.
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
    /// The minimum or the maximum of two offsets.
    Extreme {
        most: bool,
        signed: bool,
    },
    /// Stores an offset into, or loads it from, the frame of a call.
    Pass,
    /// Widens 32 bits to 64, possibly with a multiplication, and adds to the result.
    Widen {
        signed: bool,
    },
    /// Narrows 64 bits to 32.
    Cut,
    /// Takes the value of another lane.
    Shuffle,
}

impl Offset {
    /// Whether a 32-bit result may have lost bits.
    pub fn is_arithmetic(self) -> bool {
        matches!(self, Offset::Negate | Offset::Add | Offset::Sub | Offset::Mul | Offset::Mad | Offset::Shl)
    }
}

/// What the checker of offsets does for an instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Track {
    /// Whether its result is tracked.
    pub defines: bool,
    /// Whether it accesses memory at an address that is tracked.
    pub accesses: bool,
    /// Which of its operands `a`, `b`, `c` are tracked.
    pub followed: [bool; 3],
    /// Which of its operands are constants.
    pub constant: [bool; 3],
}
