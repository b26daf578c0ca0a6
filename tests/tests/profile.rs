//! Recording what a program does: scopes, launches, the table and the trace.

use std::collections::HashMap;
use std::fmt::Debug;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use warpsmith::check::bench::profiled;
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::{Operands, trace};
use warpsmith::ops::model::Case;
use warpsmith::ops::{self, Fusion};
use warpsmith::profile::{self, Profile, Row};
use warpsmith::{Device, Stream, Tensor, View, kernels, sim};

/// A stream of a simulated device, with something to work on; none in a build without kernels.
fn simulated() -> Option<(Stream, Tensor<f32>)> {
    if kernels::not_built().is_some() {
        return None;
    }
    let stream = sim::unshared().unwrap().stream().unwrap();
    let x = Tensor::filled(&stream, [1024], 0.5f32).unwrap();
    Some((stream, x))
}

/// A model of two layers, of which one is in two parts.
fn model(stream: &Stream, x: &Tensor<f32>) {
    let _model = profile::scope("model");
    for layer in 0..2 {
        let _layer = profile::scope(format!("layer {layer}"));
        ops::gelu(stream, x).unwrap();
        if layer == 1 {
            let _inner = profile::scope("\"unfused\"\n");
            ops::sin2_cos2(stream, x, Fusion::Unfused).unwrap();
        }
    }
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}: {rows:#?}"))
}

#[test]
fn every_launch_is_in_its_scope() {
    let Some((stream, x)) = simulated() else { return };
    let ((), profile) = profile::record(|| model(&stream, &x)).unwrap();
    let spans = profile.spans();
    let path = |mut i: usize| {
        let mut names = vec![spans[i].name.as_ref()];
        while let Some(parent) = spans[i].parent {
            names.insert(0, spans[parent].name.as_ref());
            i = parent;
        }
        names.join("/")
    };
    let launched: Vec<_> = (0..spans.len()).filter(|i| spans[*i].launch.is_some()).map(path).collect();
    let inner = "model/layer 1/\"unfused\"\n";
    let kernels = ["sin_f32", "cos_f32", "square_f32", "square_f32", "add_f32"].map(|k| format!("{inner}/{k}"));
    assert_eq!(
        launched,
        [&["model/layer 0/gelu_f32".to_owned(), "model/layer 1/gelu_f32".to_owned()], &kernels[..]].concat()
    );

    let rows = profile.rows();
    assert_eq!((row(&rows, "gelu_f32").calls, row(&rows, "square_f32").calls, row(&rows, "model").calls), (2, 2, 1));
    let (model, all) = (row(&rows, "model"), rows.iter().map(|row| row.self_cpu).sum::<std::time::Duration>());
    assert_eq!(model.cpu_total, all, "what is outermost lasts as long as all that is inside");
    assert!(model.self_cpu < model.cpu_total);
}

#[test]
fn a_simulation_has_no_cuda_times() {
    let Some((stream, x)) = simulated() else { return };
    let (_, profile) = profile::record(|| ops::gelu(&stream, &x)).unwrap();
    let table = profile.to_string();
    assert!(table.contains("no clock") && table.contains("gelu_f32") && table.contains("# of Calls"), "{table}");
    assert!(profile.rows().iter().all(|row| row.self_cuda.is_none() && row.cuda_total.is_none()));
}

/// What operators say of themselves is what their launches note: of each that is bound by arithmetic, and of its least cases.
#[test]
fn operations_are_those_of_the_model() {
    if kernels::not_built().is_some() {
        return;
    }
    let stream = sim::unshared().unwrap().stream().unwrap();
    let mut counted = 0;
    for op in OPERATORS.iter().copied() {
        // Packed sequences take as many operations as they are long, which a launch does not know.
        let packed = |case: &Case| op.info().inputs().any(|arg| arg.name == "cu_q") && case.has("cu_q");
        let cases = op.cases().into_iter().filter(|case| case.is_simulated() && !packed(case));
        let cost = |case: Case| op.cost(&case).ok().filter(|cost| cost.flops > 0).map(|cost| (cost, case));
        let mut cases: Vec<_> = cases.filter_map(cost).collect();
        cases.sort_by_key(|(cost, _)| cost.flops);
        counted += usize::from(!cases.is_empty());
        for (cost, case) in cases.into_iter().take(3) {
            let mut operands = Operands::random(&stream, op, &case, &case.params, 0).unwrap();
            let (launched, profile) = profile::record(|| operands.launch(&stream, op, &case.params)).unwrap();
            launched.unwrap();
            let launches = profile.spans().iter().filter_map(|span| span.launch);
            let flops: u64 = launches.map(|launch| launch.flops).sum();
            assert_eq!(flops, cost.flops, "{} {case:?}: {:#?}", op.info().name, profile.rows());
        }
    }
    assert!(counted > 20, "{counted} operators");
}

#[test]
fn the_trace_nests_as_the_program_does() {
    let Some((stream, x)) = simulated() else { return };
    let ((), profile) = profile::record(|| model(&stream, &x)).unwrap();
    let trace: Value = serde_json::from_str(&profile.chrome_trace()).unwrap();
    let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for event in &events {
        *kinds.entry(event["cat"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(kinds, HashMap::from([("scope", 4), ("launch", 7)]));
    let ends = |event: &Value| {
        let start = event["ts"].as_f64().unwrap();
        (start, start + event["dur"].as_f64().unwrap())
    };
    for (event, span) in events.iter().zip(profile.spans()) {
        assert_eq!(event["name"], span.name.as_ref());
        if let Some(parent) = span.parent {
            let ((start, end), (from, to)) = (ends(event), ends(events[parent]));
            // Times are written in nanoseconds.
            assert!(from <= start + 0.001 && end <= to + 0.002, "{event} in {}", events[parent]);
        }
    }
    let gelu = events.iter().find(|event| event["name"] == "gelu_f32").unwrap();
    assert_eq!(gelu["args"]["grid"].as_array().unwrap().len(), 3);
}

fn names(profile: &Profile) -> Vec<&str> {
    profile.spans().iter().map(|span| span.name.as_ref()).collect()
}

#[test]
fn recordings_have_what_is_inside_them_alone() {
    drop(profile::scope("before"));
    let (inner, outer) = profile::record(|| {
        let _scope = profile::scope("outer");
        let ((), inner) = profile::record(|| drop(profile::scope("inner"))).unwrap();
        drop(profile::scope("after"));
        inner
    })
    .unwrap();
    assert_eq!((names(&inner), names(&outer)), (vec!["inner"], vec!["outer", "after"]));
    assert_eq!(outer.spans()[1].parent, Some(0));
}

#[test]
fn elements_that_a_view_repeats_are_no_more_bytes() {
    let Some((stream, _)) = simulated() else { return };
    let x = Tensor::<f32>::zeros(&stream, [2, 1027]).unwrap();
    let bytes = |x: View<'_, f32>| {
        let (y, profile) = profile::record(|| ops::sum_rows(&stream, x)).unwrap();
        profile.spans()[0].launch.unwrap().bytes - 4 * y.unwrap().len() as u64
    };
    assert_eq!(bytes(x.view()), 4 * 2 * 1027);
    assert_eq!(bytes(x.slice(0..1).unwrap().broadcast([4, 1027]).unwrap()), 4 * 1027);
    // Windows of 1024 that begin an element apart.
    assert_eq!(bytes(x.view().strided(0, [1024, 1024], &[1, 1]).unwrap()), 4 * 2047);
    // Those of windows of windows could not even be counted.
    let x = Tensor::<u64>::zeros(&stream, [(3 << 20) + 4]).unwrap();
    let endless = x.view().strided(0, [1 << 20, 1 << 20, 1 << 20, 4], &[1; 4]).unwrap();
    profile::record(|| endless.ptr(&stream).map(drop)).unwrap().0.unwrap();
}

#[test]
fn scopes_end_in_any_order_and_after_their_recording() {
    let (late, profile) = profile::record(|| {
        let late = profile::scope("late");
        let inner = profile::scope("inner");
        let more = profile::scope("more");
        drop(inner);
        drop(profile::scope("next"));
        drop(more);
        late
    })
    .unwrap();
    let parents: Vec<_> = profile.spans().iter().map(|span| span.parent).collect();
    assert_eq!(
        (names(&profile), parents),
        (vec!["late", "inner", "more", "next"], vec![None, Some(0), Some(1), Some(0)])
    );
    let ((), other) = profile::record(|| drop(late)).unwrap();
    assert_eq!(names(&other), [""; 0]);
}

/// Writes down the spans of Warpsmith that are entered.
#[derive(Default)]
struct Spans {
    made: AtomicU64,
    seen: Mutex<Vec<String>>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "warpsmith"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut |field: &Field, value: &dyn Debug| text += &format!(" {field}={value:?}"));
        self.seen.lock().unwrap().push(text);
        Id::from_u64(self.made.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn exit(&self, _: &Id) {
        self.seen.lock().unwrap().push("end".to_owned());
    }

    fn enter(&self, _: &Id) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

/// The crate `tracing` asks once for each place in the code whether anybody listens, and what other threads launch meanwhile can make it a no: hence a process for it.
#[test]
fn scopes_and_launches_are_spans_of_tracing() {
    if !in_its_own_process("scopes_and_launches_are_spans_of_tracing", None) {
        return;
    }
    let Some((stream, x)) = simulated() else { return };
    let spans = Arc::new(Spans::default());
    tracing::subscriber::with_default(spans.clone(), || {
        let _layer = profile::scope("layer");
        ops::gelu(&stream, &x).unwrap();
    });
    let launch = "launch kernel=\"gelu_f32\" grid=[1, 1, 1] block=[128, 1, 1]";
    assert_eq!(*spans.seen.lock().unwrap(), ["scope name=\"layer\"", launch, "end", "end"]);
}

#[test]
fn a_panic_ends_its_recording() {
    let ((), outer) = profile::record(|| {
        let result = panic::catch_unwind(|| profile::record(|| panic!("in a recording")));
        assert!(result.is_err());
        drop(profile::scope("still recorded"));
    })
    .unwrap();
    assert_eq!(names(&outer), ["still recorded"]);
}

/// Whether this process runs that test and nothing else. One that runs others has such a process do it, recorded from its start to its end
/// where there is a file for that.
fn in_its_own_process(test: &str, recorded: Option<&Path>) -> bool {
    const CHILD: &str = "WARPSMITH_PROFILE_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--test-threads=1"]).env(CHILD, "1");
    if let Some(file) = recorded {
        child.env("WARPSMITH_PROFILE", file);
    }
    let output = child.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    // A name that no test has is no failure of the child's.
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}

#[test]
fn a_program_that_knows_nothing_of_it_is_recorded() {
    if kernels::not_built().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    if in_its_own_process("a_program_that_knows_nothing_of_it_is_recorded", Some(&file)) {
        let Some((stream, x)) = simulated() else { return };
        model(&stream, &x);
        std::thread::scope(|scope| scope.spawn(|| ops::gelu(&stream, &x).unwrap()).join()).unwrap();
        return;
    }
    let profile = trace::read(&file).unwrap();
    let rows = profile.rows();
    assert_eq!((row(&rows, "gelu_f32").calls, row(&rows, "model").calls), (3, 1));
    let spans = profile.spans();
    let gelu = spans.iter().find(|span| span.name == "gelu_f32" && span.parent.is_some()).unwrap();
    let launch = gelu.launch.unwrap();
    assert_eq!((launch.block, launch.bytes, launch.cuda.is_none()), ([128, 1, 1], 8192, true));
    let outer = gelu.parent.map(|layer| (spans[layer].name.as_ref(), spans[layer].parent));
    assert!(matches!(outer, Some((name, Some(_))) if name.starts_with("layer")), "{outer:?}");
}

#[test]
fn what_was_recorded_is_what_its_trace_says() {
    let Some((stream, x)) = simulated() else { return };
    let ((), profile) = profile::record(|| model(&stream, &x)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    std::fs::write(&path, profile.chrome_trace()).unwrap();
    let read = trace::read(&path).unwrap();
    assert_eq!(names(&read), names(&profile));
    for (one, other) in read.rows().iter().zip(profile.rows()) {
        assert_eq!((&one.name, one.calls), (&other.name, other.calls));
        assert_eq!((one.bytes, one.flops), (other.bytes, other.flops));
        assert_eq!(one.least, other.least);
        assert!(one.cpu_total.abs_diff(other.cpu_total).as_nanos() < 10, "{one:?} {other:?}");
    }
    // A simulated device has no peaks.
    std::fs::write(&path, profile.chrome_trace().replace(r#""least":null"#, r#""least":1.5"#)).unwrap();
    let least = row(&trace::read(&path).unwrap().rows(), "gelu_f32").least;
    assert_eq!(least, Some(std::time::Duration::from_micros(3)));
    std::fs::write(&path, "{}").unwrap();
    assert!(trace::read(&path).unwrap_err().to_string().contains("is no trace"));
}

/// A GPU, if there is one, for one test at a time: while one thread records, launches of all threads take longer.
fn gpu() -> Option<(Device, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let device = warpsmith_tests::device().filter(|device| device.simulator().is_none())?;
    Some((device, ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[test]
fn kernels_take_as_long_as_their_stream() {
    let Some((device, _alone)) = gpu() else { return };
    let profiled = profiled::profiled(&device).unwrap();
    assert!(profiled.apart() <= profiled::APART, "{profiled:#?}");
    assert!(profiled.added() < profiled::MOST_ADDED, "{:?}", profiled.launch);
}

#[test]
fn recordings_side_by_side_have_all_their_times() {
    let Some((device, _alone)) = gpu() else { return };
    let record = |launches: usize| {
        let stream = device.stream().unwrap();
        let x = Tensor::filled(&stream, [1 << 22], 0.5f32).unwrap();
        for turn in 0..20 {
            let queue = || (0..launches).for_each(|_| drop(ops::gelu(&stream, &x).unwrap()));
            let ((), profile) = profile::record(queue).unwrap();
            let timed = profile.spans().iter().filter(|span| span.launch.is_some_and(|launch| launch.cuda.is_some()));
            assert_eq!(timed.count(), launches, "turn {turn} of {launches} launches");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| record(200));
        scope.spawn(|| record(3));
    });
}
