//! Recording a program: by the library for profilers, or by events around every launch, on its stream.

use std::time::Duration;

use warpsmith::profile::{self, Clock, Profile};
use warpsmith::{Stream, Tensor};

use crate::fake::{fake_cupti, with_driver};
use crate::harness::{add_one, open};

/// What the fake says has passed between any two events.
const PASSED: Duration = Duration::from_micros(250);

#[test]
fn kernels_are_timed_on_their_streams() {
    with_driver("profile::kernels_are_timed_on_their_streams", &[("WARPSMITH_CUPTI", "off")], || {
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
        assert_eq!(profile.clock(), Some(Clock::Events));
        assert!(profile.to_string().contains("Self CUDA time total: 750.000us, between events\n"), "{profile}");
        assert_eq!(launches.iter().map(|launch| launch.bytes).collect::<Vec<_>>(), [16; 3]);
        assert_eq!(profile.chrome_trace().matches("\"cat\":\"kernel\"").count(), 3);
    });
}

/// A launch in a scope, between two others.
fn recorded(stream: &Stream) -> Profile {
    let mut x = Tensor::<f32>::zeros(stream, [4]).unwrap();
    add_one(stream, &mut x).unwrap();
    let (mut inner, mut profile) = profile::record(|| {
        add_one(stream, &mut x).unwrap();
        profile::record(|| add_one(stream, &mut x).unwrap()).unwrap().1
    })
    .unwrap();
    add_one(stream, &mut x).unwrap();
    std::mem::swap(&mut inner, &mut profile);
    assert_eq!((inner.spans().len(), profile.spans().len()), (1, 1));
    inner
}

fn with_cupti(name: &str, more: &[(&str, &str)], body: impl FnOnce()) {
    let Some(folder) = fake_cupti() else { return };
    let folder = folder.to_str().expect("the folder has a plain name").to_owned();
    with_driver(name, &[&[("WARPSMITH_CUPTI", folder.as_str())], more].concat(), body);
}

#[test]
fn cupti_times_kernels_where_it_is_there() {
    with_cupti("profile::cupti_times_kernels_where_it_is_there", &[], || {
        let (_device, stream) = open().unwrap();
        // And a second time, when it was off in between.
        for _ in 0..2 {
            let profile = recorded(&stream);
            assert_eq!(profile.clock(), Some(Clock::Cupti));
            let cuda = profile.spans()[0].launch.unwrap().cuda.expect("there is a record of it");
            assert_eq!(cuda.time, Duration::from_micros(1), "it is the first of the records");
            assert!(profile.to_string().contains("Self CUDA time total: 1.000us, by CUPTI\n"), "{profile}");
        }
    });
}

#[test]
fn events_time_kernels_where_another_profiler_is_at_work() {
    let taken = [("FAKE_CUPTI_TAKEN", "1")];
    with_cupti("profile::events_time_kernels_where_another_profiler_is_at_work", &taken, || {
        let (_device, stream) = open().unwrap();
        let profile = recorded(&stream);
        assert_eq!(profile.clock(), Some(Clock::Events));
        assert_eq!(profile.rows()[0].self_cuda, Some(PASSED));
    });
}
