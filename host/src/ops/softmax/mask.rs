//! Masks of rows of scores.

use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::View;

use crate::ops::model::OpInfo;
use cuda_std::launch::DevicePtr;

/// A query sees the keys up to its own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Causal {
    /// The number of queries of a head: row r is query r mod `q_len`.
    pub q_len: usize,
    /// The first query's position among the keys; if queries and keys end together, the number of keys minus the number of queries.
    pub offset: i64,
}

/// The columns that rows of scores see; all by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxMask<'a> {
    /// The columns up to the query's own.
    pub causal: Option<Causal>,
    /// Only this number of columns from the first on. The number of lengths must divide the rows into equal parts: one for each
    /// row, or for the rows of each sequence of a batch. A length is clamped to 0..=d.
    pub key_lengths: Option<View<'a, i32>>,
}

/// A mask in the form that the kernel takes.
pub(super) struct MaskArgs {
    pub(super) lengths: DevicePtr<i32>,
    pub(super) q_len: u64,
    pub(super) offset: i64,
    pub(super) rows_per_length: u64,
}

impl SoftmaxMask<'_> {
    /// Checks the mask for that number of rows.
    pub(super) fn args(&self, info: &OpInfo, stream: &Stream, rows: usize) -> Result<MaskArgs> {
        let mut args = MaskArgs { lengths: DevicePtr::null(), q_len: 0, offset: 0, rows_per_length: 1 };
        if let Some(Causal { q_len, offset }) = self.causal {
            if q_len == 0 {
                return Err(info.param_error("q_len", q_len, "at least 1"));
            }
            if offset.unsigned_abs() >= 1 << 32 {
                return Err(info.param_error("offset", offset, "less than 2^32 either way"));
            }
            (args.q_len, args.offset) = (q_len as u64, offset);
        }
        if let Some(lengths) = self.key_lengths {
            let [n] = lengths.dims(info.name, "key_lengths")?;
            lengths.require_contiguous(info.name, "key_lengths")?;
            if rows > 0 && (n == 0 || !rows.is_multiple_of(n)) {
                let wanted = format!("a number of lengths that divides the {rows} rows");
                return Err(info.shape_error("key_lengths", lengths.shape(), wanted));
            }
            args.lengths = lengths.ptr(stream)?;
            args.rows_per_length = rows.checked_div(n).unwrap_or(1) as u64;
        }
        Ok(args)
    }
}
