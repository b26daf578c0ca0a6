//! The profile in the format that Chrome's tracing and Perfetto read.

use std::fmt::Write;
use std::time::Duration;

use super::{Clock, Launch, Profile, Span};

/// The rows of the picture: what the CPU does, and below it the streams.
const CPU: usize = 0;
const DEVICE: usize = 1;

impl Profile {
    /// The profile as JSON in the Trace Event Format: for `chrome://tracing` and <https://ui.perfetto.dev>.
    pub fn chrome_trace(&self) -> String {
        document(std::slice::from_ref(self))
    }
}

/// Recordings of a program's threads in one trace, whose times have the same start.
pub(super) fn document(threads: &[Profile]) -> String {
    let mut events = vec![process(CPU, "CPU"), process(DEVICE, "CUDA streams")];
    let mut streams = 0;
    for (thread, profile) in threads.iter().enumerate() {
        for (number, span) in profile.spans.iter().enumerate() {
            let kind = if span.launch.is_some() { "launch" } else { "scope" };
            events.push(event(number, span, kind, [CPU, thread], span.start, span.cpu));
            if let Some((stream, cuda)) = span.launch.and_then(|launch| Some((launch.stream, launch.cuda?))) {
                events.push(event(number, span, "kernel", [DEVICE, streams + stream], cuda.start, cuda.time));
            }
        }
        let launches = profile.spans.iter().filter_map(|span| span.launch);
        streams += launches.map(|launch| launch.stream + 1).max().unwrap_or(0);
    }
    let wall = threads.iter().map(|profile| profile.wall).max().unwrap_or_default().as_secs_f64() * 1e6;
    let clock = match threads.iter().find_map(|profile| profile.clock) {
        Some(Clock::Cupti) => r#""cupti""#,
        Some(Clock::Events) => r#""events""#,
        None => "null",
    };
    let other = format!(r#""wall":{wall:.3},"clock":{clock}"#);
    format!("{{\"otherData\":{{{other}}},\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn process(pid: usize, name: &str) -> String {
    format!(r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":{}}}}}"#, quoted(name))
}

fn event(number: usize, span: &Span, kind: &str, [pid, tid]: [usize; 2], start: Duration, time: Duration) -> String {
    let [ts, dur] = [start, time].map(|time| time.as_secs_f64() * 1e6);
    let name = quoted(&span.name);
    let parent = span.parent.map_or("null".to_owned(), |parent| parent.to_string());
    let mut args = format!(r#""span":{number},"parent":{parent}"#);
    if let Some(Launch { grid, block, stream, bytes, flops, least, .. }) = &span.launch {
        let least = least.map_or("null".to_owned(), |time| format!("{:.3}", time.as_secs_f64() * 1e6));
        args += &format!(r#","grid":{grid:?},"block":{block:?},"stream":{stream}"#);
        args += &format!(r#","bytes":{bytes},"flops":{flops},"least":{least}"#);
    }
    format!(
        r#"{{"ph":"X","cat":"{kind}","name":{name},"pid":{pid},"tid":{tid},"ts":{ts:.3},"dur":{dur:.3},"args":{{{args}}}}}"#
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if c < ' ' => drop(write!(json, "\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json + "\""
}
