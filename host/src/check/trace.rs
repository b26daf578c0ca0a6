//! Traces that programs wrote of themselves, read back as what they recorded.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::runtime::error::{Error, Result};
use crate::runtime::file;
use crate::runtime::profile::{Clock, Cuda, Launch, Profile, Span};

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "otherData")]
    other: Other,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Other {
    /// Microseconds.
    wall: f64,
    clock: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    #[serde(default)]
    tid: usize,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    args: Args,
}

#[derive(Deserialize)]
struct Args {
    parent: Option<usize>,
    #[serde(default)]
    grid: [u32; 3],
    #[serde(default)]
    block: [u32; 3],
    #[serde(default)]
    stream: usize,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    flops: u64,
    /// Microseconds.
    least: Option<f64>,
}

/// What `Profile::chrome_trace`, or a program that was recorded as a whole, wrote into a file: all threads in one profile.
pub fn read(path: &Path) -> Result<Profile> {
    let text = file::text(path).map_err(|error| Error::file(path, format!("cannot be read: {error}")))?;
    parse(&text).map_err(|error| Error::file(path, format!("is no trace: {error}")))
}

fn parse(text: &str) -> Result<Profile, serde_json::Error> {
    let Document { other, events } = serde_json::from_str(text)?;
    let micros = |value: f64| Duration::from_secs_f64(value.max(0.0) / 1e6);
    let mut spans: Vec<Span> = Vec::new();
    // Threads follow each other, and number their spans from 0; a kernel follows its launch.
    let (mut thread, mut first) = (0, 0);
    for event in events {
        let Args { parent, grid, block, stream, bytes, flops, least } = event.args;
        let [start, time] = [event.ts, event.dur].map(micros);
        if event.cat == "kernel" {
            if let Some(launch) = spans.last_mut().and_then(|span| span.launch.as_mut()) {
                launch.cuda = Some(Cuda { start, time });
            }
            continue;
        }
        let launch = match event.cat.as_str() {
            "launch" => Some(Launch { grid, block, stream, bytes, flops, least: least.map(micros), cuda: None }),
            "scope" => None,
            _ => continue,
        };
        if event.tid != thread {
            (thread, first) = (event.tid, spans.len());
        }
        let parent = parent.map(|parent| first + parent).filter(|parent| *parent < spans.len());
        spans.push(Span { name: event.name.into(), parent, start, cpu: time, launch });
    }
    let clock = match other.clock.as_deref() {
        Some("cupti") => Some(Clock::Cupti),
        Some(_) => Some(Clock::Events),
        None => None,
    };
    Ok(Profile { spans, wall: micros(other.wall), clock })
}
