//! Recording a program: events around every launch, on its stream.

use std::time::Duration;

use warpsmith::{Tensor, profile};

use crate::fake::with_driver;
use crate::harness::{add_one, open};

/// What the fake says has passed between any two events.
const PASSED: Duration = Duration::from_micros(250);

#[test]
fn kernels_are_timed_on_their_streams() {
    with_driver("profile::kernels_are_timed_on_their_streams", &[], || {
        let (device, first) = open().unwrap();
        let second = device.stream().unwrap();
        let ((), profile) = profile::record(|| {
            let _scope = profile::scope("both");
            for stream in [&first, &second, &first] {
                let mut x = Tensor::<f32>::zeros(stream, [4]).unwrap();
                add_one(stream, &mut x).unwrap();
            }
        })
        .unwrap();
        let launches: Vec<_> = profile.spans().iter().filter_map(|span| span.launch).collect();
        assert_eq!(launches.iter().map(|launch| launch.stream).collect::<Vec<_>>(), [0, 1, 0]);
        let starts: Vec<_> = launches.iter().map(|launch| launch.cuda.unwrap().start).collect();
        let queued = profile.spans()[1].start;
        assert_eq!(starts, [queued, queued + PASSED, queued + PASSED], "from the first kernel on");

        let rows = profile.rows();
        let [kernel, scope] = &rows[..] else { panic!("{rows:#?}") };
        assert_eq!((kernel.name.as_ref(), kernel.calls, kernel.self_cuda), ("fake_add_one", 3, Some(3 * PASSED)));
        assert_eq!((scope.self_cuda, scope.cuda_total), (Some(Duration::ZERO), Some(3 * PASSED)));
        assert!(profile.to_string().ends_with("Self CUDA time total: 750.000us\n"), "{profile}");
        assert_eq!(profile.chrome_trace().matches("\"cat\":\"kernel\"").count(), 3);
    });
}
