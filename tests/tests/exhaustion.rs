//! Memory that there is not: errors that name what it was for, behind what is wrong with arguments.

use std::error::Error as _;

use warpsmith::check::io;
use warpsmith::ops::{self, Attention, Entropy, Epilogue, Linear, Philox};
use warpsmith::{Error, HostTensor, Stream, Tensor, f16};
use warpsmith_tests::{device, warpsmith};

fn said<T>(result: warpsmith::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn more_memory_than_there_is_is_refused_and_the_device_goes_on() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let total = device.memory().unwrap().1;
    let error = Tensor::<u8>::zeros(&stream, [2 * total as usize]).unwrap_err();
    match &error {
        Error::OutOfMemory { requested, total: seen, .. } => assert_eq!((*requested, *seen), (2 * total, total)),
        other => panic!("{other}"),
    }
    assert!(error.source().is_none());
    assert!(Tensor::<u8>::zeros(&stream, [usize::MAX]).is_err());
    assert!(Tensor::<i64>::zeros(&stream, [1 << 62]).is_err());
    works(&stream);
}

#[test]
fn results_that_there_is_no_memory_for_are_named_behind_what_is_wrong_with_arguments() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&stream, shape).unwrap();
    let halves = |shape: &[usize]| Tensor::<f16>::zeros(&stream, shape).unwrap();
    // One row, as often as no memory holds it.
    let (d, rows) = (1 << 12, 1 << 30);
    let row = zeros(&[1, d]);
    let x = || row.view().broadcast([rows, d]).unwrap();
    let (small, weight, short) = (zeros(&[2, d]), zeros(&[d]), zeros(&[d - 1]));
    let memory = |of: &str, bytes: &str, error: String| {
        assert!(error.starts_with(&format!("{of}: out of device memory: {bytes} requested, ")), "{of}: {error}");
    };
    let all = "16384.0 GiB";
    memory("gelu: `y`", all, said(ops::gelu(&stream, x())));
    memory("gelu_backward: `dx`", all, said(ops::gelu_backward(&stream, x(), x())));
    memory("add: `z`", all, said(ops::add(&stream, x(), x())));
    memory("softmax: `y`", all, said(ops::softmax(&stream, x(), 1.0)));
    memory("rms_norm: `y`", all, said(ops::rms_norm(&stream, x(), &weight, 1e-6)));
    memory("dropout: `y`", all, said(ops::dropout(&stream, x(), 0.5, Philox::new(0))));
    memory("random_uniform: `y`", all, said(ops::random_uniform::<f32>(&stream, [rows, d], 0.0..1.0, Philox::new(0))));
    let line = halves(&[1, 8]);
    let tall = || line.view().broadcast([1 << 22, 8]).unwrap();
    memory("gemm: `c`", "32768.0 GiB", said(ops::gemm(&stream, tall(), tall().t())));
    let of = |tokens| line.view().broadcast([1 << 20, 1, tokens, 8]).unwrap();
    let o = ops::attention(&stream, of(1 << 14), of(1), of(1), &Attention::full());
    memory("attention: `o`", "256.0 GiB", said(o));
    // The operator's own name, not that of what it is made of.
    memory("linear: `y`", "32768.0 GiB", said(ops::linear(&stream, tall(), tall(), Epilogue::default())));
    memory("matmul_int8: `a`", "4096.0 GiB", said(ops::matmul_int8(&stream, x(), &small)));
    let many = halves(&[1, 1, 8]);
    let many = || many.view().broadcast([1 << 22, 1 << 20, 8]).unwrap();
    let (one, counts) = (halves(&[1, 1, 8]), Tensor::<i32>::zeros(&stream, [1]).unwrap());
    let (one, counts) = (one.view().broadcast([1 << 22, 1, 8]).unwrap(), counts.view().broadcast([1 << 22]).unwrap());
    memory("gemm_grouped_masked: `y`", "8192.0 GiB", said(ops::gemm_grouped_masked(&stream, many(), one, counts)));
    // On the way to a result that there is memory for.
    let (hidden, all) = (line.view().broadcast([1 << 22, 8]).unwrap(), Linear::new(Entropy::new()).memory(usize::MAX));
    let entropies = said(ops::linear_entropy(&stream, hidden, tall(), &all));
    memory("linear_entropy: `workspace`", "32768.0 GiB", entropies);
    // More bytes than can be counted.
    let endless = small.slice(0..1).unwrap().broadcast([1 << 50, d]).unwrap();
    let wrong = said(ops::gelu(&stream, endless));
    assert!(wrong.starts_with("gelu: `x` is too large: 1125899906842624 rows"), "{wrong}");
    let wrong = said(ops::matmul_int8(&stream, endless, &small));
    assert!(wrong.starts_with("matmul_int8: `a` is too large: "), "{wrong}");
    let pack = row.view().strided(0, [1, 1, 1, 8], &[8, 8, 8, 1]).unwrap().broadcast([1, 1, 1 << 27, 8]).unwrap();
    let wrong = said(ops::repeat_kv(&stream, pack, u32::MAX as usize));
    let reason = "[1, 4294967295, 134217728, 8] of float32 has more than 2^63 bytes";
    assert_eq!(wrong, format!("repeat_kv: `y` is too large: {reason}"));
    let wrong = said(ops::rms_norm(&stream, endless, &short, 1e-6));
    assert_eq!(wrong, "rms_norm: `weight` has shape [4095], expected [4096]");

    let wrong = said(ops::gelu_backward(&stream, x(), &small));
    assert_eq!(wrong, "gelu_backward: `dy` has shape [2, 4096], expected [1073741824, 4096] as `x`");
    let wrong = said(ops::rms_norm(&stream, x(), &short, 1e-6));
    assert_eq!(wrong, "rms_norm: `weight` has shape [4095], expected [4096]");
    let wrong = said(ops::rms_norm(&stream, x(), &weight, -1.0));
    assert!(wrong.starts_with("rms_norm: parameter `eps` = -1"), "{wrong}");
    works(&stream);
}

#[test]
fn a_result_without_a_possible_shape_is_named() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let (float, half, id) = (
        Tensor::<f32>::zeros(&stream, [1, 1]).unwrap(),
        Tensor::<f16>::zeros(&stream, [1, 8]).unwrap(),
        Tensor::<i32>::zeros(&stream, [1]).unwrap(),
    );
    let many = 1 << 40;
    let tall = || half.view().broadcast([many, 8]).unwrap();
    let uncountable = |of: &str, dims: &str, error: String| {
        assert_eq!(error, format!("{of} is too large: {dims} has more than 2^63 elements"));
    };
    let square = "[1099511627776, 1099511627776]";
    uncountable("gemm: `c`", square, said(ops::gemm(&stream, tall(), tall().t())));
    uncountable("gemm_to_f32: `c`", square, said(ops::gemm_to_f32(&stream, tall(), tall().t())));
    uncountable("linear: `y`", square, said(ops::linear(&stream, tall(), tall(), Epilogue::default())));
    let [column, row] = [[many, 1], [1, many]].map(|shape| float.view().broadcast(shape).unwrap());
    uncountable("sgemm: `c`", square, said(ops::sgemm(&stream, column, row)));
    let ids = id.view().broadcast([many]).unwrap();
    uncountable("embedding: `y`", square, said(ops::embedding(&stream, ids, row)));
    let all = usize::MAX;
    let gradient = said(ops::embedding_backward(&stream, &id, &float, all));
    uncountable("embedding_backward: `dtable`", &format!("[{all}, 1]"), gradient);
    let heads = Tensor::<f32>::zeros(&stream, [1, 2, 0, 4]).unwrap();
    let repeated = said(ops::repeat_kv(&stream, &heads, 1 << 62));
    uncountable("repeat_kv: `y`", "[1, 9223372036854775808, 0, 4]", repeated);
    let filled = said(ops::fill::<f32>(&stream, [all, 2], 1.0));
    uncountable("fill: `y`", &format!("[{all}, 2]"), filled);
    let six = said(ops::random_normal::<f32>(&stream, [1; 6], 0.0, 1.0, Philox::new(0)));
    assert_eq!(six, "random_normal: `y` has shape [1, 1, 1, 1, 1, 1], expected at most 5 dimensions");
    works(&stream);
}

/// An operator still computes what it should.
fn works(stream: &Stream) {
    let x = Tensor::from_slice(stream, [2], &[-1.0f32, 2.0]).unwrap();
    assert_eq!(ops::relu(stream, &x).unwrap().to_vec(stream).unwrap(), [0.0, 2.0]);
}

#[test]
fn the_command_names_what_there_is_no_memory_for() {
    let Some(_device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let x = HostTensor::from_slice([1, 1, 1, 4], &[0.0f32; 4]).unwrap();
    io::write(&folder.path().join("in"), &[("x", x)]).unwrap();
    for (repeat, said) in [
        (1u64 << 40, "error: repeat_kv: `y`: out of device memory: 16384.0 GiB requested, "),
        (
            i64::MAX as u64,
            "error: repeat_kv: `y` is too large: [1, 9223372036854775807, 1, 4] has more than 2^63 elements",
        ),
    ] {
        let set = format!("repeat={repeat}");
        let run = warpsmith(&["run", "repeat_kv", "--input", &at("in"), "--output", &at("out"), "--set", &set]);
        assert!(run.code != 0 && run.err.starts_with(said), "{}", run.err);
    }
}
