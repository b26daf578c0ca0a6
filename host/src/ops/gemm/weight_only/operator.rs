//! Products with a low-bit weight in the registry.

use gpu_kernels::ops::gemm::gemm_w4a16::{DEPTH, SKINNY_MOST, lane_depth};

use super::Path;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// The two paths of an operator, launched with `$run`, for a weight stored this way.
macro_rules! variants {
    ($run:path, $scaling:expr) => {
        &[
            Variant {
                name: "skinny",
                doc: "the weight from memory to registers: what is picked for at most 8 rows of a, with k > 0 of whole packs of 16 bytes of w, and rows of a and w at multiples of them",
                applies: |_, case| $scaling.fits_skinny(case),
                launch: |stream, args, _| $run(stream, args, Path::Skinny),
            },
            Variant {
                name: "cluster",
                doc: "blocks of a cluster share k, compute capability 9.0: what is picked there where k > 0 and rows of a and w are at multiples of 16 bytes",
                applies: |device, case| $scaling.fits_cluster(device, case),
                launch: |stream, args, _| $run(stream, args, Path::Cluster),
            },
            Variant {
                name: "parts",
                doc: "blocks leave parts of sums that a second launch adds, compute capability 8.0 and above: what is picked elsewhere",
                applies: |_, _| true,
                launch: |stream, args, _| $run(stream, args, Path::Parts),
            },
        ]
    };
}
pub(in super::super) use variants;

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Scaling {
    /// Integers of 8 bits, with a scale for each row.
    Rows,
    /// 4-bit integers, two per byte, with a scale and, optionally, a zero point for each [`GROUP`] of a row.
    Groups,
}

/// Elements along k that share a scale.
const GROUP: usize = DEPTH as usize;

impl Scaling {
    /// The type of the stored elements.
    const fn dtype(self) -> DType {
        match self {
            Self::Rows => DType::I8,
            Self::Groups => DType::U8,
        }
    }

    /// The shape of a weight of `n` rows of `k`.
    pub(in super::super) const fn weight(self, n: usize, k: usize) -> [usize; 2] {
        match self {
            Self::Rows => [n, k],
            Self::Groups => [n, k.div_ceil(2)],
        }
    }

    /// The shape of the weight's scales.
    pub(in super::super) fn scales(self, n: usize, k: usize) -> Vec<usize> {
        match self {
            Self::Rows => vec![n],
            Self::Groups => vec![n, k.div_ceil(GROUP)],
        }
    }

    /// Whether the path for few rows can run a case.
    pub(in super::super) fn fits_skinny(self, case: &Case) -> bool {
        let pack = match self {
            Self::Rows => lane_depth(8),
            Self::Groups => lane_depth(4),
        };
        let whole =
            case.dims(["m", "k"]).is_ok_and(|[m, k]| m <= SKINNY_MOST as usize && k.is_multiple_of(pack as usize));
        whole && self.is_packed(case)
    }

    /// Whether the path with clusters can run a case.
    pub(in super::super) fn fits_cluster(self, device: &DeviceInfo, case: &Case) -> bool {
        device.compute_capability == (9, 0) && self.is_packed(case)
    }

    /// Whether a case has rows, all at multiples of 16 bytes.
    fn is_packed(self, case: &Case) -> bool {
        let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else {
            return false;
        };
        let aligned = |name, size: usize, shape: [usize; 2]| {
            let layout = case.arrangement(name);
            let whole = |elements: usize| (elements * size).is_multiple_of(16);
            whole(layout.offset) && (shape[0] < 2 || whole(layout.strides(&shape)[0]))
        };
        let (of_a, of_w) = (case.dtype.size(), self.dtype().size());
        k > 0 && aligned("a", of_a, [m, k]) && aligned("w", of_w, self.weight(n, k))
    }

    /// The greatest magnitude of an element, with zero points or without.
    const fn greatest(self, zeros: bool) -> f64 {
        match self {
            Self::Rows => 128.0,
            Self::Groups if zeros => 15.0,
            Self::Groups => 8.0,
        }
    }

    /// A row of the weight, of `k` elements; `zeros` is empty if there are no zero points.
    fn row(self, w: &HostTensor, scales: &[f64], zeros: &[f64], row: usize, k: usize) -> Vec<f64> {
        let bytes = reference::row(w, row);
        match self {
            Self::Rows => bytes.into_iter().map(|x| x * scales[row]).collect(),
            Self::Groups => {
                let group = |i: usize| row * k.div_ceil(GROUP) + i / GROUP;
                let zero = |i: usize| zeros.get(group(i)).map_or(8.0, |zero| zero % 16.0);
                let value = |i: usize| f64::from((bytes[i / 2] as u32 >> (4 * (i % 2))) & 15) - zero(i);
                (0..k).map(|i| value(i) * scales[group(i)]).collect()
            }
        }
    }
}

/// A product with a low-bit weight in the registry.
pub struct WeightOnly {
    pub(in super::super) info: &'static OpInfo,
    pub(in super::super) scaling: Scaling,
    pub(in super::super) launch: fn(&Stream, &mut Arguments<'_>, Path) -> Result<()>,
}

impl Operator for WeightOnly {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims = |m, n, k| [("m", m), ("n", n), ("k", k)];
        let mut cases: Vec<_> = [
            (1, 8192, 8192),
            (8, 8192, 8192),
            (16, 8192, 8192),
            (32, 8192, 8192),
            (64, 8192, 8192),
            (128, 8192, 8192),
            (1, 4096, 4096),
            (8, 28672, 8192),
            (16, 28672, 8192),
            (16, 8192, 28672),
            (16, 4096, 4096),
            (4096, 8192, 8192),
        ]
        .map(|(m, n, k)| Case::production(info, format!("m={m} n={n} k={k} bf16"), DType::BF16, dims(m, n, k)))
        .into();
        cases.push(Case::production(info, "m=16 n=8192 k=8192 f16", DType::F16, dims(16, 8192, 8192)));
        let zeros = info.inputs().any(|arg| arg.name == "zeros");
        if zeros {
            let asymmetric = |mut case: Case| {
                case.name.push_str(" zeros");
                case
            };
            let few = cases.iter().filter(|case| case.dims.get("n") == Some(8192)).cloned().map(asymmetric);
            cases = few.chain(cases.iter().cloned().map(|case| case.without("zeros"))).collect();
        }
        for &dtype in info.dtypes {
            let pad = |case: Case, name, pad| case.arrange(name, Arrangement::DENSE.row_pad(pad));
            cases.extend([
                Case::odd(info, dtype, dims(5, 70, 203)),
                Case::odd(info, dtype, dims(1, 70, 224)),
                // More blocks of few rows of A than multiprocessors.
                Case::odd(info, dtype, dims(1, 300, 224)),
                Case::odd(info, dtype, dims(5, 300, 96)),
                pad(pad(pad(Case::odd(info, dtype, dims(6, 35, 96)), "a", 8), "w", 16), "c", 3),
                pad(pad(Case::odd(info, dtype, dims(2, 9, 40)), "a", 3), "w", 5),
                Case::tiny(info, dtype, dims(1, 1, 1)),
                Case::tiny(info, dtype, dims(2, 3, 6)),
                Case::empty(info, dtype, dims(0, 8, 16)),
                Case::empty(info, dtype, dims(8, 0, 16)),
                Case::empty(info, dtype, dims(8, 12, 0)),
                Case::boundary(info, dtype, dims(17, 129, 96)),
                Case::boundary(info, dtype, dims(33, 128, 160)),
                Case::boundary(info, dtype, dims(129, 16, 32)),
                // More tiles than the simulator has multiprocessors, and more slices of rows than are adjacent.
                Case::boundary(info, dtype, dims(2, 520, 96)),
                Case::boundary(info, dtype, dims(18, 513, 64)),
                Case::boundary(info, dtype, dims(64, 514, 128)),
                Case::boundary(info, dtype, dims(1030, 130, 32)),
                Case::boundary(info, dtype, dims(4, 24, 160)).offset(1),
            ]);
        }
        // Of each number of rows of A that a block takes: one tile for four blocks, two for three each, three for two each, and five for
        // one or two each.
        let kinds = [
            [(16, 128, 128), (9, 130, 96), (9, 260, 96), (9, 520, 416), (9, 520, 96)],
            [(20, 40, 96), (20, 130, 96), (20, 260, 96), (20, 520, 416), (20, 520, 96)],
            [(50, 40, 96), (50, 130, 96), (50, 260, 96), (50, 520, 160), (50, 520, 96)],
        ];
        // And of more rows of A, slices of 96, 128, 160 and 192.
        let slices = [
            [(70, 40, 96), (100, 40, 96), (200, 40, 96), (390, 40, 96)],
            [(100, 40, 3584), (200, 40, 1056), (390, 40, 416), (390, 130, 96)],
            [(130, 260, 1184), (130, 520, 96), (330, 130, 2464), (330, 260, 96)],
        ];
        let kinds = || kinds.as_flattened().iter().chain(slices.as_flattened());
        for &dtype in info.dtypes {
            cases.extend(kinds().map(|&(m, n, k)| Case::boundary(info, dtype, dims(m, n, k))));
        }
        // More stages than the rings have, in each part of k.
        let long = [
            [(1, 40, 4640), (9, 40, 10304), (9, 130, 7744), (9, 260, 5184), (9, 520, 3584), (9, 520, 1664)],
            [(20, 40, 8224), (20, 130, 6304), (20, 260, 4224), (20, 520, 2464), (20, 520, 1056), (50, 520, 800)],
            [(50, 40, 5184), (50, 130, 3904), (50, 260, 2624), (50, 520, 1504), (70, 40, 3744), (100, 40, 2784)],
            [(200, 40, 1984), (130, 260, 928), (200, 40, 2464), (390, 40, 1664), (390, 130, 800), (130, 520, 672)],
        ];
        cases.extend(long.as_flattened().iter().map(|&(m, n, k)| Case::odd(info, DType::F16, dims(m, n, k))));
        // And than the rings of few rows of A, of large blocks and of others.
        cases.extend(
            [(3, 40, 4640), (5, 300, 4640), (330, 260, 544)]
                .map(|(m, n, k)| Case::odd(info, DType::F16, dims(m, n, k))),
        );
        // Sums are formed before scaling: with bf16's greatest values they would overflow f32, but not the f64 reference.
        cases.push(Case::boundary(info, DType::F16, dims(8, 16, 48)).values("a", Values::Specials));
        if zeros {
            let small = cases.iter().filter(|case| case.class != CaseClass::Production);
            let symmetric: Vec<_> = small.map(|case| case.clone().without("zeros")).collect();
            cases.extend(symmetric);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let (low, high) = if self.scaling.dtype() == DType::I8 { (-128, 127) } else { (0, 255) };
        // No weight is greater than one.
        let scales = Values::Uniform { low: 0.0, high: 1.0 / self.scaling.greatest(case.has("zeros")) };
        let specs = [
            InputSpec::normal("a", case.dtype, [m, k]),
            InputSpec::new("w", self.scaling.dtype(), self.scaling.weight(n, k), Values::Integers { low, high }),
            InputSpec::new("scales", DType::F32, self.scaling.scales(n, k), scales),
            // The upper bits are ignored.
            InputSpec::new("zeros", DType::U8, self.scaling.scales(n, k), Values::Integers { low: 0, high: 255 }),
        ];
        let wanted = |name| self.info.inputs().any(|arg| arg.name == name) && case.has(name);
        Ok(specs.into_iter().filter(|spec| wanted(spec.name)).map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, w) = (inputs.get("a")?, inputs.get("w")?);
        let [m, k] = a.dims()?;
        let [n, _] = w.dims()?;
        w.has_shape(&self.scaling.weight(n, k))?;
        inputs.get("scales")?.has_shape(&self.scaling.scales(n, k))?;
        if let Some(zeros) = inputs.optional("zeros") {
            zeros.has_shape(&self.scaling.scales(n, k))?;
        }
        Ok(vec![TensorMeta::new("c", a.dtype(), [m, n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, w, scales) = (inputs.get("a")?, inputs.get("w")?, inputs.get("scales")?.to_f64());
        let ([n, k], wanted) = ([w.shape()[0], a.shape()[1]], rows.iter().map(|row| reference::row(a, *row)));
        let wanted: Vec<_> = wanted.collect();
        let zeros = inputs.optional("zeros").map_or(Vec::new(), |zeros| zeros.to_f64());
        let column = |j: usize| -> Vec<f64> {
            let w = self.scaling.row(w, &scales, &zeros, j, k);
            wanted.iter().map(|a| reference::dot(a, &w)).collect()
        };
        let columns: Vec<_> = (0..n).map(column).collect();
        Ok((0..rows.len()).flat_map(|i| columns.iter().map(move |column| column[i])).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        // Weights are exact, and at most one after scaling. The tensor core truncates each addend to the grid of the largest
        // one, with f32 spacing: up to 2⁻²² of a running sum of size √k for each step of 16 products, always towards zero, so
        // these errors add up instead of cancelling. Scales and the parts of k round a few times more.
        let abs = (k as f64).sqrt() * ((k as f64 / 16.0).max(1.0) * 4.0 + 16.0) * roundoff(DType::F32);
        let why = "one rounding of the result, k/16 truncations of sums of size √k, and those of scales and parts";
        Ok(Tolerance::rounded(case.dtype, abs, 2.0 * roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let weight: usize = self.scaling.weight(n, k).iter().product();
        let scales: usize = self.scaling.scales(n, k).iter().product();
        // Bytes per group: its scale, and its zero point.
        let of_group = if self.info.inputs().any(|arg| arg.name == "zeros") && case.has("zeros") { 5 } else { 4 };
        let (bytes, flops) = (weight + of_group * scales + case.dtype.size() * (m * k + m * n), 2 * m * n * k);
        // The number of operations that the tensor cores perform while a byte is read.
        let bound = if flops < 200 * bytes { Bound::Memory } else { Bound::Tensor(case.dtype) };
        Ok(Cost::compute(bytes as u64, flops as u64, bound))
    }
}
