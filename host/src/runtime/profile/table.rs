//! The profile as a table: a line a name.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::{Clock, Profile};
use crate::runtime::error::printable;

/// All spans of one name. Total time includes what is inside a span, self time does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name.
    pub name: Cow<'static, str>,
    /// How often.
    pub calls: usize,
    /// CPU time, without that of the spans inside.
    pub self_cpu: Duration,
    /// CPU time.
    pub cpu_total: Duration,
    /// CUDA time of the kernel itself; `None` if some kernel ran where there is no clock.
    pub self_cuda: Option<Duration>,
    /// CUDA time of it and of all kernels inside.
    pub cuda_total: Option<Duration>,
    /// Bytes of the tensors of it and of all kernels inside.
    pub bytes: u64,
    /// Floating-point operations of it and of all kernels inside.
    pub flops: u64,
    /// The least time that these bytes and operations take; `None` if that is not known of some kernel.
    pub least: Option<Duration>,
}

const HEADINGS: [&str; 16] = [
    "Name",
    "Self CPU",
    "Self CPU %",
    "CPU total",
    "CPU total %",
    "CPU time avg",
    "Self CUDA",
    "Self CUDA %",
    "CUDA total",
    "CUDA time avg",
    "# of Calls",
    "Bytes",
    "GB/s",
    "GFLOPs",
    "TFLOP/s",
    "% of roof",
];

impl Profile {
    /// A row for each name, what takes the device longest first, then what takes the CPU longest.
    pub fn rows(&self) -> Vec<Row> {
        let spans = &self.spans;
        let has_clock = spans.iter().filter_map(|span| span.launch).all(|launch| launch.cuda.is_some());
        let own = |i: usize| spans[i].launch.and_then(|launch| launch.cuda).map_or(Duration::ZERO, |cuda| cuda.time);
        let mut self_cpu: Vec<_> = spans.iter().map(|span| span.cpu).collect();
        let mut cuda: Vec<_> = (0..spans.len()).map(own).collect();
        let none = [0, 0];
        let mut counts: Vec<_> =
            spans.iter().map(|span| span.launch.map_or(none, |launch| [launch.bytes, launch.flops])).collect();
        let zero = Some(Duration::ZERO);
        let mut least: Vec<_> = spans.iter().map(|span| span.launch.map_or(zero, |launch| launch.least)).collect();
        // In reverse: the spans inside a span come after it in the list, and its times need theirs.
        for (i, span) in spans.iter().enumerate().rev() {
            if let Some(parent) = span.parent {
                self_cpu[parent] = self_cpu[parent].saturating_sub(span.cpu);
                let inside = cuda[i];
                cuda[parent] += inside;
                let [bytes, flops] = counts[i];
                counts[parent][0] += bytes;
                counts[parent][1] += flops;
                least[parent] = sum(least[parent], least[i]);
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        for (i, span) in spans.iter().enumerate() {
            let at = rows.iter().position(|row| row.name == span.name).unwrap_or_else(|| {
                let cuda = zero.filter(|_| has_clock);
                let (self_cpu, cpu_total) = (Duration::ZERO, Duration::ZERO);
                let (name, [bytes, flops]) = (span.name.clone(), none);
                let row = Row {
                    name,
                    calls: 0,
                    self_cpu,
                    cpu_total,
                    self_cuda: cuda,
                    cuda_total: cuda,
                    bytes,
                    flops,
                    least: zero,
                };
                rows.push(row);
                rows.len() - 1
            });
            let row = &mut rows[at];
            row.calls += 1;
            row.self_cpu += self_cpu[i];
            row.self_cuda = row.self_cuda.map(|time| time + own(i));
            // Totals of nested spans of one name are counted once, by the outermost of them.
            if !self.around(i).any(|outer| spans[outer].name == span.name) {
                row.cpu_total += span.cpu;
                row.cuda_total = row.cuda_total.map(|time| time + cuda[i]);
                row.bytes += counts[i][0];
                row.flops += counts[i][1];
                row.least = sum(row.least, least[i]);
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse((row.self_cuda, row.self_cpu)));
        rows
    }

    /// The scopes around a span, the innermost first.
    fn around(&self, span: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.spans[span].parent, |outer| self.spans[*outer].parent)
    }
}

/// The table, and the sums of self times under it.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let cpu: Duration = rows.iter().map(|row| row.self_cpu).sum();
        let cuda: Option<Duration> = rows.iter().map(|row| row.self_cuda).sum();
        let cells: Vec<[String; HEADINGS.len()]> = rows.iter().map(|row| cells(row, cpu, cuda)).collect();
        let lines = || std::iter::once(HEADINGS.map(str::to_owned)).chain(cells.iter().cloned());
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; HEADINGS.len()] = std::array::from_fn(width);
        for line in lines() {
            write!(f, "{:<1$}", line[0], widths[0])?;
            for (cell, width) in line.iter().zip(widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "Self CPU time total: {}", text(cpu))?;
        let Some(cuda) = cuda else {
            return match self.clock {
                Some(_) => writeln!(f, "There are no CUDA times: of some kernels there is no record."),
                None => writeln!(f, "There are no CUDA times: a simulation has no clock."),
            };
        };
        match self.clock {
            Some(Clock::Cupti) => writeln!(f, "Self CUDA time total: {}, by CUPTI", text(cuda))?,
            Some(Clock::Events) => writeln!(f, "Self CUDA time total: {}, between events", text(cuda))?,
            None => return Ok(()),
        }
        self.verdict(f)
    }
}

/// A device that is at work for that share of the time is what the rest waits for.
const BUSY: f64 = 0.9;

impl Profile {
    /// Says what determined the time: the work of the device, or work of the CPU that the device waited for.
    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(busy) = self.busy().filter(|_| !self.wall.is_zero()) else { return Ok(()) };
        let of_wall = |time: Duration| time.as_secs_f64() / self.wall.as_secs_f64();
        if of_wall(busy) >= BUSY {
            return writeln!(f, "GPU-bound: kernels ran {} of {}.", share(busy, self.wall), text(self.wall));
        }
        let launches = self.spans.iter().filter(|span| span.launch.is_some());
        let (count, queueing) = launches.fold((0u32, Duration::ZERO), |(n, all), span| (n + 1, all + span.cpu));
        let why = if queueing + busy > self.wall.mul_f64(0.5) && queueing > busy {
            "fewer, larger kernels would help"
        } else {
            "what the CPU does between launches, or waits for, is what there is to shorten"
        };
        let [idle, queueing] = [self.wall.saturating_sub(busy), queueing].map(|time| share(time, self.wall));
        let wall = text(self.wall);
        writeln!(f, "CPU-bound: no kernel ran {idle} of {wall}; queueing {count} took {queueing}: {why}.")
    }
}

/// Of two times that both have to be known.
fn sum(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.zip(b).map(|(a, b)| a + b)
}

fn cells(row: &Row, cpu: Duration, cuda: Option<Duration>) -> [String; HEADINGS.len()] {
    let average = |time: Duration| time / u32::try_from(row.calls).unwrap_or(u32::MAX).max(1);
    let on_device = |time: Option<Duration>| time.map_or_else(|| "no clock".to_owned(), text);
    let share_of_device = row.self_cuda.zip(cuda).map_or_else(|| "no clock".to_owned(), |(time, all)| share(time, all));
    let took = row.cuda_total.filter(|time| !time.is_zero()).map(|time| time.as_secs_f64());
    let rate = |count: u64| took.filter(|_| count > 0).map(|time| count as f64 / time);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let least = row.least.filter(|least| !least.is_zero());
    [
        printable(&row.name).into_owned(),
        text(row.self_cpu),
        share(row.self_cpu, cpu),
        text(row.cpu_total),
        share(row.cpu_total, cpu),
        text(average(row.cpu_total)),
        on_device(row.self_cuda),
        share_of_device,
        on_device(row.cuda_total),
        on_device(row.cuda_total.map(average)),
        row.calls.to_string(),
        or_dash((row.bytes > 0).then(|| row.bytes.to_string())),
        or_dash(rate(row.bytes).map(|rate| format!("{:.1}", rate / 1e9))),
        or_dash((row.flops > 0).then(|| format!("{:.3}", row.flops as f64 / 1e9))),
        or_dash(rate(row.flops).map(|rate| format!("{:.1}", rate / 1e12))),
        or_dash(least.zip(took).map(|(least, took)| format!("{:.1}%", 100.0 * least.as_secs_f64() / took))),
    ]
}

fn share(part: Duration, all: Duration) -> String {
    format!("{:.2}%", 100.0 * part.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// A time in the unit that suits it.
fn text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 1.0 => format!("{s:.3}s"),
        s if s >= 1e-3 => format!("{:.3}ms", s * 1e3),
        s => format!("{:.3}us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cuda, Launch, Span};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn span(name: &'static str, parent: Option<usize>, cpu: u32, cuda: Option<u32>) -> Span {
        let cuda = cuda.map(|time| Cuda { start: MS, time: time * MS });
        let launch = cuda.map(|cuda| Launch {
            grid: [1; 3],
            block: [1; 3],
            stream: 0,
            bytes: 1 << 20,
            flops: 6_000_000_000,
            least: Some(2 * MS),
            cuda: Some(cuda),
        });
        Span { name: name.into(), parent, start: Duration::ZERO, cpu: cpu * MS, launch }
    }

    #[test]
    fn names_keep_to_their_line() {
        let spans = vec![span("layer\n\u{1b}[31m3", None, 1, None)];
        let text = Profile { spans, wall: MS, clock: None }.to_string();
        assert!(text.contains("\nlayer\\n\\u{1b}[31m3 ") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn totals_include_what_is_inside_once() {
        let profile = Profile {
            spans: vec![
                span("block", None, 100, None),
                span("block", Some(0), 60, None),
                span("gelu", Some(1), 10, Some(7)),
                span("gelu", Some(0), 20, Some(3)),
            ],
            wall: 20 * MS,
            clock: Some(Clock::Cupti),
        };
        let rows = profile.rows();
        let row = |name: &'static str, calls, [self_cpu, cpu, self_cuda, cuda]: [u32; 4]| Row {
            bytes: 2 << 20,
            flops: 12_000_000_000,
            least: Some(4 * MS),
            name: name.into(),
            calls,
            self_cpu: self_cpu * MS,
            cpu_total: cpu * MS,
            self_cuda: Some(self_cuda * MS),
            cuda_total: Some(cuda * MS),
        };
        assert_eq!(rows, [row("gelu", 2, [30, 30, 10, 10]), row("block", 2, [70, 100, 0, 10])]);
        let text = profile.to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "Name Self CPU Self CPU % CPU total CPU total % CPU time avg Self CUDA Self CUDA % CUDA total CUDA time avg # of Calls Bytes GB/s GFLOPs TFLOP/s % of roof",
                "gelu 30.000ms 30.00% 30.000ms 30.00% 15.000ms 10.000ms 100.00% 10.000ms 5.000ms 2 2097152 0.2 12.000 1.2 40.0%",
                "block 70.000ms 70.00% 100.000ms 100.00% 50.000ms 0.000us 0.00% 10.000ms 5.000ms 2 2097152 0.2 12.000 1.2 40.0%",
                "Self CPU time total: 100.000ms",
                "Self CUDA time total: 10.000ms, by CUPTI",
                "CPU-bound: no kernel ran 65.00% of 20.000ms; queueing 2 took 150.00%: fewer, larger kernels would help.",
            ]
        );
    }
}
