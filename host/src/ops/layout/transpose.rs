//! Transpose of matrices.

use gpu_kernels::ops::layout::transpose as gk;

use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Returns `x` with its last two dimensions swapped in memory: `[rows, columns]` becomes `[columns, rows]`, for a matrix or a
/// batch of matrices.
///
/// [`View::t`] does the same without moving data; use this operator where elements are needed in the new order. `x` has two or
/// three dimensions and contiguous rows, which may be padded. The result is a new dense tensor with bitwise copies; the work is
/// queued on `stream`. Elements of up to 4 bytes are moved fastest if the rows of both tensors start at multiples of 16 bytes
/// and have lengths that are multiples of 16 bytes.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if `x` has other than two or three dimensions, [`Error::Layout`](crate::Error::Layout) if its
/// rows are not contiguous, [`Error::TooLarge`](crate::Error::TooLarge) beyond 2³¹ − 1 tiles,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 3], &[1i32, 2, 3, 4, 5, 6])?;
/// assert_eq!(ops::transpose(&stream, &x)?.to_vec(&stream)?, [1, 4, 2, 5, 3, 6]);
/// # Ok(())
/// # }
/// ```
pub fn transpose<'a, T: Dtype>(stream: &Stream, x: impl Into<View<'a, T>>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, turned(x.shape())?)?;
    transpose_into(stream, x, &mut y)?;
    Ok(y)
}

/// [`transpose`] into `y`, `[columns, rows]` or a batch of such, whose rows are contiguous and may be padded.
///
/// # Errors
/// Same as [`transpose`], and [`Error::Shape`](crate::Error::Shape) if `y` has another shape.
pub fn transpose_into<'a, T: Dtype>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    Problem::new(x.into(), y.into())?.launch(stream)
}

/// The shape of the transpose.
fn turned(shape: &[usize]) -> Result<Vec<usize>> {
    match *shape {
        [rows, columns] => Ok(vec![columns, rows]),
        [batch, rows, columns] => Ok(vec![batch, columns, rows]),
        _ => Err(INFO.shape_error("x", shape, "two or three dimensions")),
    }
}

/// The kernel to launch.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    Packs,
    Padded,
    Conflicted,
    Swizzled,
    Naive,
}

/// Matrices with checked shapes.
struct Problem<'a, T> {
    x: View<'a, T>,
    y: ViewMut<'a, T>,
    batch: usize,
    rows: usize,
    columns: usize,
}

impl<'a, T: Dtype> Problem<'a, T> {
    fn new(x: View<'a, T>, y: ViewMut<'a, T>) -> Result<Self> {
        y.require_shape(INFO.name, "y", &turned(x.shape())?)?;
        x.require_inner_contiguous(INFO.name, "x")?;
        y.require_inner_contiguous(INFO.name, "y")?;
        let batch = if let [batch, _, _] = *x.shape().dims() { batch } else { 1 };
        let [.., rows, columns] = *x.shape().dims() else { return Err(INFO.shape_error("x", x.shape(), "a matrix")) };
        Ok(Self { x, y, batch, rows, columns })
    }

    fn fits_packs(&self) -> bool {
        let lanes = gpu_kernels::lanes::<T>();
        let sizes = self.rows.is_multiple_of(lanes) && self.columns.is_multiple_of(lanes);
        size_of::<T>() <= 4 && sizes && self.x.rows_aligned(16) && self.y.rows_aligned(16)
    }

    fn launch(self, stream: &Stream) -> Result<()> {
        let path = if self.fits_packs() { Path::Packs } else { Path::Padded };
        self.launch_by(stream, path)
    }

    fn launch_by(mut self, stream: &Stream, path: Path) -> Result<()> {
        stream.require_devices(INFO.name, &[("x", &self.x), ("y", &self.y)])?;
        let size = size_of::<T>();
        let fits = match path {
            Path::Packs => self.fits_packs(),
            Path::Padded => true,
            _ => size == 4,
        };
        if !fits {
            let found = format!("{} of {}", self.x.shape(), T::DTYPE);
            return Err(INFO.param_error("variant", found, "a problem that the variant takes"));
        }
        let tile = if path == Path::Packs { gk::pack_tile(size) } else { gk::TILE } as usize;
        let (across, down) = (self.columns.div_ceil(tile), self.rows.div_ceil(tile));
        let tiles = self.batch.saturating_mul(across).saturating_mul(down);
        let Some(grid) = grid(&INFO, "x", tiles, 1)? else { return Ok(()) };
        let (x, y) = (self.x.ptr(stream)?, self.y.ptr_mut(stream)?);
        let strides = |strides: &[usize]| match *strides {
            [batch, row, _] => [row as u64, batch as u64],
            [row, _] => [row as u64, 0],
            _ => [0, 0],
        };
        let ([x_stride, x_batch], [y_stride, y_batch]) = (strides(self.x.strides()), strides(self.y.strides()));
        let (rows, columns, across, down) = (self.rows as u64, self.columns as u64, across as u32, down as u32);
        macro_rules! launch {
            ($word:ty, $kernel:ty) => {{
                let (x, y) = (x.cast::<$word>(), y.cast::<$word>());
                let args = (x, y, rows, columns, across, down, x_stride, y_stride, x_batch, y_batch);
                // SAFETY: both tensors are live and hold these matrices at these strides, words are as large as elements, the tiles
                // cover them once, y is borrowed mutably, and packs are taken only where they are aligned and whole.
                unsafe { stream.launch::<$kernel>(grid, args) }
            }};
        }
        match (path, size) {
            (Path::Packs, 1) => launch!(u8, gk::TransposePacks<u8>),
            (Path::Packs, 2) => launch!(u16, gk::TransposePacks<u16>),
            (Path::Packs, _) => launch!(u32, gk::TransposePacks<u32>),
            (Path::Padded, 1) => launch!(u8, gk::TransposeTiles<u8, gk::Padded>),
            (Path::Padded, 2) => launch!(u16, gk::TransposeTiles<u16, gk::Padded>),
            (Path::Padded, 4) => launch!(u32, gk::TransposeTiles<u32, gk::Padded>),
            (Path::Padded, _) => launch!(u64, gk::TransposeTiles<u64, gk::Padded>),
            (Path::Conflicted, _) => launch!(u32, gk::TransposeTiles<u32, gk::Conflicted>),
            (Path::Swizzled, _) => launch!(u32, gk::TransposeTiles<u32, gk::Swizzled>),
            (Path::Naive, _) => launch!(u32, gk::TransposeNaive<u32>),
        }
    }
}

/// The operator's entry in the registry.
pub struct Transpose;

/// A variant: its name, its description, the cases that it takes, and its path.
macro_rules! variant {
    ($name:literal, $doc:literal, $applies:expr, $path:ident) => {
        Variant {
            name: $name,
            doc: $doc,
            applies: $applies,
            launch: |stream, args, _| {
                dispatch!(INFO, args.dtype("x")?, all => |T| {
                    Problem::<T>::new(args.input("x")?, args.output("y")?)?.launch_by(stream, Path::$path)
                })
            },
        }
    };
}

static INFO: OpInfo = OpInfo {
    name: "transpose",
    bench_name: "layout.transpose",
    summary: "transpose of a matrix or a batch of them",
    math: "y[b, j, i] = x[b, i, j]",
    args: &[
        ArgInfo::input("x", "[rows, columns] or [batch, rows, columns], rows may be padded"),
        ArgInfo::output("y", "[columns, rows] or [batch, columns, rows], rows may be padded"),
    ],
    params: &[],
    dtypes: DType::ALL,
    kernels: &[gk::TRANSPOSE_PACKS, gk::TRANSPOSE_TILES, gk::TRANSPOSE_NAIVE],
    variants: &[
        variant!(
            "padded",
            "single elements through padded tiles: for sizes and addresses that packs do not fit",
            |_, _| true,
            Padded
        ),
        variant!(
            "swizzled",
            "single elements through swizzled tiles: as padded, without the padding",
            |_, case| is_word(case),
            Swizzled
        ),
        variant!(
            "conflicted",
            "single elements through plain tiles: every column in one bank",
            |_, case| is_word(case),
            Conflicted
        ),
        variant!("naive", "single elements, without shared memory", |_, case| is_word(case), Naive),
    ],
};

/// Whether the lesson's variants, which support one element size, take the case.
fn is_word(case: &Case) -> bool {
    case.dtype.size() == 4
}

impl Operator for Transpose {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, rows, columns| [("batch", batch), ("rows", rows), ("columns", columns)];
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::BF16, DType::I8] {
            let name = format!("16384x16384 {dtype}");
            cases.push(Case::production(&INFO, name, dtype, dims(1, 16384, 16384)));
        }
        for &dtype in DType::ALL {
            let lanes = 16 / dtype.size();
            let pads = |case: Case, x, y| {
                case.arrange("x", Arrangement::DENSE.row_pad(x)).arrange("y", Arrangement::DENSE.row_pad(y))
            };
            // A tile and a part of the next.
            let more = 17 * lanes;
            cases.extend([
                Case::odd(&INFO, dtype, dims(1, 37, 71)),
                Case::odd(&INFO, dtype, dims(1, more, 3 * lanes)),
                pads(Case::odd(&INFO, dtype, dims(2, 2 * lanes, more)), lanes, 3 * lanes),
                pads(Case::odd(&INFO, dtype, dims(3, 2 * lanes, 33)), 1, 3),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
            ]);
        }
        let f32 = DType::F32;
        cases.extend([
            Case::odd(&INFO, f32, dims(1, 64, 64)).offset(1),
            Case::boundary(&INFO, f32, dims(1, 64, 64)),
            Case::boundary(&INFO, f32, dims(1, 1, 1000)),
            Case::boundary(&INFO, f32, dims(1, 1000, 1)),
            Case::boundary(&INFO, f32, dims(2, 40, 36)).values("x", Values::Specials),
            Case::empty(&INFO, f32, dims(0, 4, 4)),
            Case::empty(&INFO, f32, dims(1, 0, 8)),
            Case::empty(&INFO, f32, dims(1, 8, 0)),
            Case::boundary(&INFO, DType::I8, dims(1, 65_536 + 16, 65_536 + 16)).huge(),
        ]);
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, rows, columns] = case.dims(["batch", "rows", "columns"])?;
        let shape = if batch == 1 { vec![rows, columns] } else { vec![batch, rows, columns] };
        let values = if case.dtype.is_float() { Values::NORMAL } else { Values::Integers { low: 0, high: 127 } };
        Ok(vec![InputSpec::new("x", case.dtype, shape, values).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        Ok(vec![TensorMeta::new("y", x.dtype(), turned(x.shape())?)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("x")?, all => |T| {
            transpose_into::<T>(stream, args.input("x")?, args.output("y")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let [.., height, width] = *x.shape().dims() else { return Ok(Vec::new()) };
        let mut values = Vec::with_capacity(rows.len() * height);
        for row in rows {
            let (batch, column) = (row / width, row % width);
            values.extend(x.select_f64((0..height).map(|i| (batch * height + i) * width + column))?);
        }
        Ok(values)
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, rows, columns] = case.dims(["batch", "rows", "columns"])?;
        Ok(Cost::memory((2 * batch * rows * columns * case.dtype.size()) as u64))
    }
}
