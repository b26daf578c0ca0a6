//! Loading, storing and transposing the fragments of tensor-core instructions: 8x8 matrices of 16-bit elements.
//!
//! For a matrix, lane `l` holds row `l / 4`, columns `2 (l % 4)` and the next, in one register. Row addresses come from
//! lanes: lanes 0 to 7 name the rows of the first matrix, 8 to 15 those of the second, and so on; each row is 16 bytes,
//! aligned to 16. The transposed forms exchange rows and columns on the way.

use cuda_std_macros::ptx_registers;

use crate::shared::SharedPtr;

macro_rules! load {
    ($name:ident, $count:literal, $instruction:literal, $doc:literal) => {
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`, sm_75.\n\n# Safety\nWarp-wide; the row addresses of the lanes that name one are valid and aligned to 16 bytes.")]
        #[inline(always)]
        pub unsafe fn $name<T>(row: SharedPtr<T>) -> [u32; $count] {
            let mut matrices = [0; $count];
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!($instruction, " {{{m*}}}, [{row}];"),
                    array m = [$count] out(reg32) matrices,
                    row = in(reg32) row.addr(),
                    options(nostack),
                );
            }
            matrices
        }
    };
}

macro_rules! store {
    ($name:ident, $count:literal, $instruction:literal, $doc:literal) => {
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`, sm_90.\n\n# Safety\nWarp-wide; the row addresses of the lanes that name one are valid and aligned to 16 bytes.")]
        #[inline(always)]
        pub unsafe fn $name<T>(row: SharedPtr<T>, matrices: [u32; $count]) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!($instruction, " [{row}], {{{m*}}};"),
                    array m = [$count] in(reg32) matrices,
                    row = in(reg32) row.addr(),
                    options(nostack),
                );
            }
        }
    };
}

load!(load_x1, 1, "ldmatrix.sync.aligned.m8n8.x1.shared.b16", "Loads one matrix.");
load!(load_x2, 2, "ldmatrix.sync.aligned.m8n8.x2.shared.b16", "Loads two matrices.");
load!(load_x4, 4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "Loads four matrices.");
load!(load_x1_transposed, 1, "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", "Loads one matrix, transposed.");
load!(load_x2_transposed, 2, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "Loads two matrices, transposed.");
load!(load_x4_transposed, 4, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "Loads four matrices, transposed.");

/// Transposes the matrix whose elements the lanes have.
///
/// PTX `movmatrix.sync.aligned.m8n8.trans.b16`, sm_75.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn transpose(matrix: u32) -> u32 {
    let mut transposed = 0;
    // SAFETY: the caller's promise.
    unsafe {
        ptx_registers!(
            "movmatrix.sync.aligned.m8n8.trans.b16 {to}, {from};",
            to = out(reg32) transposed,
            from = in(reg32) matrix,
            options(nomem, nostack),
        );
    }
    transposed
}

store!(store_x1, 1, "stmatrix.sync.aligned.m8n8.x1.shared.b16", "Stores one matrix.");
store!(store_x2, 2, "stmatrix.sync.aligned.m8n8.x2.shared.b16", "Stores two matrices.");
store!(store_x4, 4, "stmatrix.sync.aligned.m8n8.x4.shared.b16", "Stores four matrices.");
store!(store_x1_transposed, 1, "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16", "Stores one matrix, transposed.");
store!(store_x2_transposed, 2, "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "Stores two matrices, transposed.");
store!(store_x4_transposed, 4, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "Stores four matrices, transposed.");
