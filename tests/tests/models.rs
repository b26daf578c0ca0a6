//! Simulated devices pick the kernels and size the grids of the GPU they stand for.

use warpsmith::check::bench::mlp::{Mlp, Sizes};
use warpsmith::sim::{self, GpuModel};
use warpsmith::{BackendKind, Device, Float8, Tensor, bf16, f8e4m3, f8e5m2, kernels, ops};

/// The kernel of a square product of 2048 rows and next to no depth, and its blocks.
fn launched(device: &Device) -> (String, u32) {
    launched_by(device, [2048; 2])
}

/// Those of a product of `m` rows and `n` columns.
fn launched_by(device: &Device, [m, n]: [usize; 2]) -> (String, u32) {
    let stream = device.stream().unwrap();
    let [a, b] = [m, n].map(|rows| Tensor::<bf16>::zeros(&stream, [rows, 8]).unwrap());
    let simulator = device.simulator().unwrap();
    let (result, profiles) = simulator.profile(|| ops::gemm_bf16(&stream, &a, &b));
    result.unwrap();
    let [profile] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!(profile.grid[1..], [1, 1]);
    (profile.kernel.clone(), profile.grid[0])
}

#[test]
fn kernels_and_grids_are_those_of_the_model() {
    if kernels::not_built().is_some() {
        return;
    }
    // 16 x 8 tiles of 256 columns are one wave of 132 multiprocessors; 114 need two, where tiles of 160 do less in each.
    let (widest, narrower) = ("gemm_hopper_bf16_bf16_a_mn0_b_mn0_n256", "gemm_fine_bf16_bf16_b_mn0_n160");
    let mma = "gemm_mma_bf16_bf16_a_mn0_b_mn0_v8";
    for (key, kernel, blocks) in [("h100", widest, 128), ("h100-pcie", narrower, 114), ("l4", mma, 256)] {
        let model: GpuModel = key.parse().unwrap();
        let device = sim::open(&model).unwrap();
        assert_eq!(device.info().multiprocessors, model.multiprocessors);
        assert_eq!(launched(&device), (kernel.to_owned(), blocks), "{key}");
    }
    let shared = Device::open_backend(BackendKind::Sim).unwrap();
    assert_eq!(launched(&shared), (widest.to_owned(), 8));
    assert_ne!(sim::open(&GpuModel::H100).unwrap(), shared);
    assert_eq!(Device::open_backend(BackendKind::Sim).unwrap(), shared);
}

#[test]
fn few_rows_and_few_columns_take_tiles_that_they_fill() {
    if kernels::not_built().is_some() {
        return;
    }
    let device = sim::open(&GpuModel::H100).unwrap();
    let kernel = |m, n| launched_by(&device, [m, n]);
    assert_eq!(kernel(64, 5888), ("gemm_swapped_bf16_bf16_n64_narrow0".to_owned(), 46));
    assert_eq!(kernel(128, 5888), ("gemm_swapped_bf16_bf16_n128_narrow1".to_owned(), 92));
    assert_eq!(kernel(64, 4096), ("gemm_thin_bf16_bf16_n32".to_owned(), 128));
    assert_eq!(kernel(96, 8192), ("gemm_swapped_bf16_bf16_n96_narrow1".to_owned(), 128));
    assert_eq!(kernel(8192, 96), ("gemm_thin_bf16_bf16_n64".to_owned(), 128));
    assert_eq!(kernel(5888, 64), ("gemm_hopper_bf16_bf16_a_mn0_b_mn0_n64".to_owned(), 46));
    // Rows of C that are no whole number of 16 bytes, few tiles, and few rows in them.
    for [m, n] in [[64, 5889], [64, 2048], [16, 5888]] {
        assert!(kernel(m, n).0.starts_with("gemm_skinny_bf16_bf16"), "{m} x {n}");
    }
}

/// Every value of an 8-bit float, every middle between two and the nearest f32 to either side of it, in blocks whose scale is 1.
fn values<Q: Float8>(code: fn(u8) -> Q) -> Vec<f32> {
    let mut positive: Vec<_> = (0..128).map(|bits| code(bits).to_f64() as f32).filter(|x| x.is_finite()).collect();
    let ties: Vec<_> = positive.windows(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
    positive.extend(ties.iter().flat_map(|tie| [tie.next_down(), *tie, tie.next_up()]));
    let all: Vec<_> = positive.iter().flat_map(|x| [*x, -x]).collect();
    let largest = positive.iter().copied().fold(0.0, f32::max);
    all.chunks(127).flat_map(|chunk| [&[largest][..], chunk, &vec![0.0; 127 - chunk.len()]].concat()).collect()
}

/// Ampere's kernels round by integer arithmetic, Hopper's by an instruction.
fn check_rounding<Q: Float8>(code: fn(u8) -> Q) {
    let x = values(code);
    let codes: Vec<Q> = (0..=255).map(code).collect();
    for key in ["l4", "h100"] {
        let stream = sim::open(&key.parse().unwrap()).unwrap().stream().unwrap();
        let tensor = Tensor::from_slice(&stream, [x.len() / 128, 128], &x).unwrap();
        let (q, scales) = ops::quantize_fp8_1x128::<f32, Q>(&stream, &tensor).unwrap();
        assert!(scales.to_vec(&stream).unwrap().iter().all(|scale| *scale == 1.0));
        for (q, x) in q.to_vec(&stream).unwrap().into_iter().zip(&x) {
            assert_eq!(q.to_f64(), Q::from_f64(f64::from(*x)).to_f64(), "{x:e} on {key}");
        }
        let q = Tensor::from_slice(&stream, [2, 128], &codes).unwrap();
        let ones = Tensor::from_slice(&stream, [2, 1], &[1.0f32; 2]).unwrap();
        let widened = ops::dequantize_fp8::<f32, Q>(&stream, &q, &ones).unwrap().to_vec(&stream).unwrap();
        for (q, y) in codes.iter().zip(widened) {
            let (want, y) = (q.to_f64(), f64::from(y));
            assert!(y == want || (y.is_nan() && want.is_nan()), "{y} for {want} on {key}");
        }
    }
}

#[test]
fn models_agree_on_eight_bit_floats() {
    if kernels::not_built().is_none() {
        check_rounding(f8e4m3::from_bits);
        check_rounding(f8e5m2::from_bits);
    }
}

/// The perceptron and its gradients in f64, by the obvious loops.
fn check_perceptron(sizes: Sizes) {
    let Sizes { layers, batch, width } = sizes;
    let stream = sim::open(&GpuModel::H100).unwrap().stream().unwrap();
    let mut mlp = Mlp::new(&stream, sizes).unwrap();
    mlp.forward(&stream).unwrap();
    mlp.backward(&stream).unwrap();
    let values =
        |tensor: &Tensor<bf16>| -> Vec<f64> { tensor.to_vec(&stream).unwrap().iter().map(|x| x.to_f64()).collect() };
    let close = |what: &str, got: &Tensor<bf16>, want: &[f64]| {
        let (got, largest) = (values(got), want.iter().fold(0.0f64, |most, x| most.max(x.abs())));
        assert_eq!(got.len(), want.len());
        // Values are rounded by up to 2⁻⁸ of themselves, half of that on average, at four places a layer: there and back sixteen times.
        let worst = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
        assert!(largest > 0.1 && worst <= 0.03 * largest, "{sizes:?} {what}: {worst} of {largest}");
    };
    let inner = |z: f64| (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044715 * z.powi(3));
    let gelu = |z: f64| z / 2.0 * (1.0 + inner(z).tanh());
    let slope = |z: f64| (gelu(z + 1e-6) - gelu(z - 1e-6)) / 2e-6;
    let (mut h, mut z) = (vec![values(&mlp.activations[0])], Vec::new());
    for (layer, (weight, bias)) in mlp.weights.iter().enumerate() {
        let (w, b) = (values(weight), values(bias));
        let dot = |i: usize, j: usize| (0..width).map(|k| h[layer][i * width + k] * w[j * width + k]).sum::<f64>();
        let before: Vec<_> = (0..batch * width).map(|at| dot(at / width, at % width) + b[at % width]).collect();
        let after: Vec<_> = before.iter().map(|z| gelu(*z)).collect();
        close("result", &mlp.activations[layer + 1], &after);
        z.push(before);
        h.push(after);
    }
    let mut down = values(&mlp.upstream);
    for layer in (0..layers).rev() {
        let dz: Vec<_> = down.iter().zip(&z[layer]).map(|(dy, z)| dy * slope(*z)).collect();
        let sum = |j: usize, of: &dyn Fn(usize) -> f64| (0..batch).map(|i| dz[i * width + j] * of(i)).sum::<f64>();
        let dw: Vec<_> = (0..width * width).map(|at| sum(at / width, &|i| h[layer][i * width + at % width])).collect();
        close("weights", &mlp.gradients[layer].0, &dw);
        close("bias", &mlp.gradients[layer].1, &(0..width).map(|j| sum(j, &|_| 1.0)).collect::<Vec<_>>());
        let w = values(&mlp.weights[layer].0);
        let dot = |i: usize, j: usize| (0..width).map(|k| dz[i * width + k] * w[k * width + j]).sum::<f64>();
        down = (0..batch * width).map(|at| dot(at / width, at % width)).collect();
    }
}

#[test]
fn the_perceptron_that_is_timed_computes_its_gradients() {
    if kernels::not_built().is_none() {
        check_perceptron(Sizes { layers: 2, batch: 40, width: 24 });
        check_perceptron(Sizes { layers: 1, batch: 3, width: 56 });
    }
}
