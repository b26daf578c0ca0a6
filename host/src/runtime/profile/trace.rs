//! The profile in the format that Chrome's tracing and Perfetto read.

use std::fmt::Write;
use std::time::Duration;

use super::{Profile, Span};

/// The rows of the picture: what the CPU does, and below it the streams.
const CPU: usize = 0;
const DEVICE: usize = 1;

impl Profile {
    /// The profile as JSON in the Trace Event Format: for `chrome://tracing` and <https://ui.perfetto.dev>.
    pub fn chrome_trace(&self) -> String {
        let mut events = vec![process(CPU, "CPU"), process(DEVICE, "CUDA streams")];
        for span in &self.spans {
            let kind = if span.launch.is_some() { "launch" } else { "scope" };
            events.push(event(span, kind, [CPU, 0], span.start, span.cpu));
            if let Some((stream, cuda)) = span.launch.and_then(|launch| Some((launch.stream, launch.cuda?))) {
                events.push(event(span, "kernel", [DEVICE, stream], cuda.start, cuda.time));
            }
        }
        format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
    }
}

fn process(pid: usize, name: &str) -> String {
    format!(r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":{}}}}}"#, quoted(name))
}

fn event(span: &Span, kind: &str, [pid, tid]: [usize; 2], start: Duration, time: Duration) -> String {
    let [ts, dur] = [start, time].map(|time| time.as_secs_f64() * 1e6);
    let name = quoted(&span.name);
    let args = match &span.launch {
        Some(launch) => format!(r#"{{"grid":{:?},"block":{:?}}}"#, launch.grid, launch.block),
        None => "{}".to_owned(),
    };
    format!(
        r#"{{"ph":"X","cat":"{kind}","name":{name},"pid":{pid},"tid":{tid},"ts":{ts:.3},"dur":{dur:.3},"args":{args}}}"#
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
