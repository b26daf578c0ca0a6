//! Tensors and their views: what is read and written by which strides, on which device, and what is refused.

use warpsmith::sim::{self, GpuModel};
use warpsmith::{AnyTensor, Device, Error, Half, HostTensor, Result, Stream, Tensor, bf16, f16, ops};

fn open() -> (Device, Stream) {
    let device = sim::open(&GpuModel::H100).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn tensors_of_several_devices_are_not_mixed() {
    let (here, there) = (sim::open(&GpuModel::H100).unwrap(), sim::open(&GpuModel::H100).unwrap());
    let (a, b) = (here.stream().unwrap(), there.stream().unwrap());
    let x = Tensor::from_slice(&a, [64], &numbers(64)).unwrap();
    let mut y = Tensor::<f32>::zeros(&b, [64]).unwrap();
    assert_eq!(
        x.view().ptr(&b).unwrap_err().to_string(),
        "ptr: `self` is on another sim:0 (warpsim (simulated H100)), expected sim:0 (warpsim (simulated H100))"
    );
    let mismatch = |result: Result<()>, said: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::DeviceMismatch { .. }) && error.to_string().starts_with(said), "{error}");
    };
    mismatch(y.view_mut().copy_from(&b, x.view()), "copy: `src` is on ");
    mismatch(y.view_mut().copy_from(&a, x.view()), "copy: `dst` is on ");
    mismatch(y.write(&a, &numbers(64)), "write: `self` is on ");
    mismatch(y.view_mut().fill(&a, 1.0), "fill: `self` is on ");
    mismatch(x.to_vec(&b).map(drop), "read: `self` is on ");
    mismatch(b.wait(&a.record().unwrap()), "wait: `event` is on ");
    let error = x.view().require_device("gelu", "x", &b).unwrap_err().to_string();
    assert!(error.starts_with("gelu: `x` is on another sim:0"), "{error}");
    // Neither stream remembers the mistake.
    let moved = x.to_device(&b).unwrap();
    assert_eq!((moved.device(), moved.to_vec(&b).unwrap()), (&there, numbers(64)));
    assert_eq!(x.to_vec(&a).unwrap(), numbers(64));
}

#[test]
fn views_without_elements_pass_wherever_they_begin() {
    let (_device, stream) = open();
    let (mut x, mut y) =
        (Tensor::from_slice(&stream, [4, 3], &numbers(12)).unwrap(), Tensor::zeros(&stream, [4, 3]).unwrap());
    for at in 0..=4 {
        let rows = x.slice(at..at).unwrap();
        assert!(rows.to_vec(&stream).unwrap().is_empty() && rows.to_device(&stream).unwrap().is_empty());
        ops::gelu_into(&stream, rows, y.slice_mut(at..at).unwrap()).unwrap();
        assert_eq!(ops::softmax(&stream, rows, 1.0).unwrap().shape().dims(), [0, 3]);
        y.slice_mut(at..at).unwrap().copy_from(&stream, rows).unwrap();
    }
    for offset in 0..=12 {
        let mut none = x.view_mut().strided(offset, [2, 0], &[5, 5]).unwrap();
        none.write(&stream, &[]).unwrap();
        none.fill(&stream, 7.0).unwrap();
        assert_eq!(ops::gelu(&stream, none.as_view()).unwrap().shape().dims(), [2, 0]);
    }
    assert_eq!((x.to_vec(&stream).unwrap(), y.to_vec(&stream).unwrap()), (numbers(12), vec![0.0; 12]));
}

/// What only knows that `T` is a float of 16 bits.
fn rounded<T: Half>(stream: &Stream, values: &[f32]) -> Vec<f32> {
    Tensor::<T>::from_f32(stream, [values.len()], values).unwrap().to_f32(stream).unwrap()
}

#[test]
fn floats_round_on_their_way_and_come_back_exactly() {
    let (_device, stream) = open();
    // A tie to even, just above a tie, overflow of 16 bits.
    let values = [0.5, 1.0 + 1.0 / 256.0, 1.0 + 1.25 / 256.0, -70_000.0];
    assert_eq!(rounded::<bf16>(&stream, &values), [0.5, 1.0, 1.0 + 1.0 / 128.0, -70_144.0]);
    assert_eq!(rounded::<f16>(&stream, &values), [0.5, 1.0 + 1.0 / 256.0, 1.0 + 5.0 / 1024.0, f32::NEG_INFINITY]);
    assert!(rounded::<f16>(&stream, &[f32::NAN])[0].is_nan() && rounded::<bf16>(&stream, &[]).is_empty());
    assert_eq!(Tensor::<f32>::from_f32(&stream, [4], &values).unwrap().to_f32(&stream).unwrap(), values);
    let error = Tensor::<bf16>::from_f32(&stream, [2, 3], &values).unwrap_err().to_string();
    assert_eq!(error, "from_f32: `data` has shape [4], expected 6 elements for shape [2, 3]");
    // The crate of the types comes along.
    let halves: Vec<warpsmith::half::bf16> = vec![bf16::ONE; 2];
    assert_eq!(Tensor::from_slice(&stream, [2], &halves).unwrap().to_f32(&stream).unwrap(), [1.0; 2]);
}

#[test]
fn tensors_show_what_they_are() {
    let (device, stream) = open();
    let mut x = Tensor::<bf16>::zeros(&stream, [2, 3]).unwrap();
    assert_eq!(format!("{x:?}"), format!("Tensor(bfloat16 [2, 3] on {device})"));
    assert_eq!(format!("{:?}", x.view().t()), format!("View(bfloat16 [3, 2] with strides [1, 3] on {device})"));
    assert_eq!(format!("{:?}", x.view_mut()), format!("ViewMut(bfloat16 [2, 3] on {device})"));
    let any = AnyTensor::from(x);
    assert_eq!(format!("{any:?}"), format!("AnyTensor(bfloat16 [2, 3] on {device})"));
    assert_eq!(format!("{:?}", any.view()), format!("AnyView(bfloat16 [2, 3] on {device})"));
    assert_eq!(format!("{stream:?}"), format!("Stream(Device({device}))"));
}

#[test]
fn views_of_any_strides_are_read_in_order() {
    let (_device, stream) = open();
    let x = Tensor::from_slice(&stream, [2, 3], &numbers(6)).unwrap();
    assert_eq!(x.view().t().to_vec(&stream).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(
        x.slice(1..2).unwrap().broadcast([2, 3]).unwrap().to_vec(&stream).unwrap(),
        [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]
    );
    let column = x.view().t().slice(1..2).unwrap();
    assert_eq!((column.to_vec(&stream).unwrap(), column.row_stride()), (vec![1.0, 4.0], None));
    assert_eq!(
        x.view().t().require_row_stride("gemm", "b").unwrap_err().to_string(),
        "gemm: `b` has strides [1, 3] for shape [3, 2]: its rows have to be contiguous and equally far apart"
    );
    let mut any = AnyTensor::from(Tensor::from_slice(&stream, [2, 3], &numbers(6)).unwrap());
    assert_eq!(any.view().permute([1, 0]).unwrap().to_host(&stream).unwrap().to_f64(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert!(any.view().broadcast([1 << 62]).is_err());
    let endless = any.view().slice(0..1).unwrap().strided(0, [1], &[1]).unwrap().broadcast([1 << 62]).unwrap();
    assert!(matches!(endless.to_host(&stream), Err(Error::TooLarge { .. })));
    // As many elements in other rows are not the same tensor.
    let error = any.view_mut().write(&stream, &HostTensor::from_slice([3, 2], &numbers(6)).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "write: `src` has shape [3, 2], expected [2, 3]");
    let error = any.view_mut().t().typed::<f32>("op", "y").unwrap().fill(&stream, 1.0).unwrap_err();
    assert!(matches!(error, Error::Layout { .. }), "{error}");
    assert!(any.typed::<i32>("op", "y").is_err());
}

#[test]
fn views_are_split_where_they_have_rows() {
    let (_device, stream) = open();
    let mut x = Tensor::from_slice(&stream, [2, 3], &numbers(6)).unwrap();
    for mid in 0..=2 {
        let (head, tail) = x.view_mut().split_at(mid).unwrap();
        assert_eq!([head.shape().dims(), tail.shape().dims()], [[mid, 3], [2 - mid, 3]]);
    }
    let refused = |x: &mut Tensor<f32>, mid| x.view_mut().split_at(mid).map(drop).unwrap_err().to_string();
    assert_eq!(refused(&mut x, 3), "split_at: parameter `mid` = 3: expected at most 2");
    let mut scalar = Tensor::filled(&stream, [], 1.0).unwrap();
    assert_eq!(refused(&mut scalar, 0), "split_at: `self` has shape [], expected at least one dimension");
}

#[test]
fn large_fills_and_copies_go_piece_by_piece() {
    let (_device, stream) = open();
    let n = (3 << 20) + 5;
    let mut x = Tensor::filled(&stream, [n], 7i32).unwrap();
    x.slice_mut(1..n).unwrap().fill(&stream, -2).unwrap();
    let mut y = Tensor::<i32>::zeros(&stream, [n]).unwrap();
    y.view_mut().copy_from(&stream, x.view()).unwrap();
    let all = y.to_vec(&stream).unwrap();
    assert!(all[0] == 7 && all[1..].iter().all(|v| *v == -2));
}

/// A thread drops what it kept for itself after what the library keeps for it, where it kept it first.
#[test]
fn a_thread_that_ends_may_still_launch() {
    use std::cell::RefCell;
    use std::sync::mpsc::{self, Sender};

    struct Kept(Stream, Tensor<f16>, Sender<Result<Vec<f32>>>);
    impl Drop for Kept {
        fn drop(&mut self) {
            let Self(stream, x, done) = self;
            let _scope = warpsmith::profile::scope("at the end");
            let y = ops::gemm(stream, &*x, &*x).and_then(|product| ops::relu(stream, &product));
            done.send(y.and_then(|y| y.to_f32(stream))).unwrap();
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    let (done, all) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let (_device, stream) = open();
        let x = Tensor::from_f32(&stream, [2, 2], &[0.0, 1.0, 1.0, 0.0]).unwrap();
        KEPT.set(Some(Kept(stream.clone(), x, done)));
        let y = ops::relu(&stream, &Tensor::from_f32(&stream, [1], &[-1.0]).unwrap() as &Tensor<f32>).unwrap();
        assert_eq!(y.to_vec(&stream).unwrap(), [0.0]);
    });
    thread.join().unwrap();
    assert_eq!(all.recv().unwrap().unwrap(), [1.0, 0.0, 0.0, 1.0]);
}
