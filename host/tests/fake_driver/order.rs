//! What the order between streams costs: the waits that are queued, and those that are not.

use warpsmith::Tensor;

use crate::fake::{calls, with_driver};
use crate::harness::{add_one, open};

/// The waits since the last call.
fn waits() -> Vec<String> {
    calls().into_iter().filter(|call| call.contains("waits")).collect()
}

#[test]
fn one_stream_never_waits() {
    with_driver("order::one_stream_never_waits", &[], || {
        let (_device, stream) = open().unwrap();
        let mut x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        let mut y = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        for _ in 0..3 {
            add_one(&stream, &mut x).unwrap();
            y.view_mut().copy_from(&stream, x.view()).unwrap();
        }
        drop(x);
        assert_eq!(y.to_vec(&stream).unwrap(), [3.0; 4]);
        assert_eq!(waits(), [""; 0]);
    });
}

#[test]
fn conflicting_uses_wait_once() {
    with_driver("order::conflicting_uses_wait_once", &[], || {
        let (device, a) = open().unwrap();
        let (b, c) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = Tensor::<f32>::zeros(&a, [4]).unwrap();
        waits();
        for _ in 0..3 {
            x.to_vec(&b).unwrap();
            x.to_vec(&c).unwrap();
        }
        assert_eq!(
            waits(),
            ["s1 waits for s0", "s2 waits for s0"],
            "readers wait for the writer, and not for each other"
        );
        add_one(&a, &mut x).unwrap();
        assert_eq!(waits(), ["s0 waits for s1", "s0 waits for s2"], "a writer waits for all who read");
        add_one(&a, &mut x).unwrap();
        assert_eq!(waits(), [""; 0]);
        add_one(&b, &mut x).unwrap();
        add_one(&c, &mut x).unwrap();
        assert_eq!(waits(), ["s1 waits for s0", "s2 waits for s1"], "the last writer stands for those before it");
        drop(x);
        assert_eq!(waits(), ["s0 waits for s2"], "and so it does when the memory is freed");
    });
}

#[test]
fn one_wait_serves_all_that_lies_before_it() {
    with_driver("order::one_wait_serves_all_that_lies_before_it", &[], || {
        let (device, a) = open().unwrap();
        let b = device.stream().unwrap();
        let tensors: Vec<_> = (0..5).map(|i| Tensor::filled(&a, [4], i as f32).unwrap()).collect();
        waits();
        for x in &tensors {
            x.view().ptr(&b).unwrap();
        }
        assert_eq!(waits(), ["s1 waits for s0"]);
    });
}

#[test]
fn streams_that_share_nothing_do_not_wait() {
    with_driver("order::streams_that_share_nothing_do_not_wait", &[], || {
        let (device, a) = open().unwrap();
        let b = device.stream().unwrap();
        for stream in [&a, &b, &a, &b] {
            let mut x = Tensor::<f32>::zeros(stream, [4]).unwrap();
            add_one(stream, &mut x).unwrap();
        }
        assert_eq!(waits(), [""; 0]);
    });
}
