//! Nsight Compute's counts on the GPU for what a lesson counts in the simulator.

use std::collections::BTreeSet;
use std::process::Command;

use super::results::Taught;
use crate::runtime::error::{Error, Result};

const PROGRAM: &str = "ncu";

/// Runs `ncu` on this program while it launches the lesson's small problems, and writes its counts beside those of the simulator.
pub fn count_by_ncu(taught: &mut Taught) -> Result<()> {
    let counts = || taught.runs.iter().flat_map(|run| &run.counts);
    let metrics: BTreeSet<_> = counts().flat_map(|count| count.metrics).map(|name| metric(name).0).collect();
    if metrics.is_empty() {
        return Ok(());
    }
    let metrics = metrics.into_iter().collect::<Vec<_>>().join(",");
    let text = watched(taught.name, &metrics)?;
    let launches = parse(&text).ok_or_else(|| unusable(format!("its output is no table: {text}")))?;
    let expected = taught.runs.iter().flat_map(|run| &run.launches);
    if !launches.iter().map(|launch| &launch.kernel).eq(expected.clone()) {
        let names: Vec<_> = launches.iter().map(|launch| launch.kernel.as_str()).collect();
        let expected: Vec<_> = expected.collect();
        return Err(unusable(format!("it saw {names:?} where {expected:?} were launched")));
    }
    let mut rest = &launches[..];
    for run in &mut taught.runs {
        let (of_run, others) = rest.split_at(run.launches.len());
        rest = others;
        for count in &mut run.counts {
            let sum = |name: &&str| of_run.iter().map(|launch| launch.value(name)).sum::<Option<f64>>();
            count.ncu = match count.metrics {
                [] => None,
                [one] => Some(sum(one)),
                [above, below, ..] => Some(sum(above).zip(sum(below)).map(|(above, below)| above / below)),
            }
            // A count that was requested and not reported is a mismatch.
            .map(|value| value.unwrap_or(f64::NAN));
        }
    }
    Ok(())
}

/// A metric's name, and the instance of it that is meant: `name:instance`.
fn metric(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(name, instance)| (name, Some(instance)))
}

fn unusable(why: String) -> Error {
    Error::BackendUnavailable { backend: PROGRAM.to_owned(), reason: why }
}

fn watched(lesson: &str, metrics: &str) -> Result<String> {
    let program = std::env::current_exe().map_err(|error| unusable(error.to_string()))?;
    let output = Command::new(PROGRAM)
        .args(["--csv", "--page", "raw", "--print-units", "base", "--print-metric-instances", "details"])
        .args(["--clock-control", "none", "--metrics", metrics])
        .arg(program)
        .args(["lesson", lesson, "--counted", "--backend", "cuda"])
        .output()
        .map_err(|error| unusable(format!("it cannot be run: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(unusable(format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))))
}

/// A line of its table.
struct Launch {
    kernel: String,
    values: Vec<(String, String)>,
}

impl Launch {
    /// A metric's sum, or that of one instance: it prints `9 (A: 4; B: 5)`.
    fn value(&self, name: &str) -> Option<f64> {
        let (name, instance) = metric(name);
        let (_, text) = self.values.iter().find(|(heading, _)| heading == name)?;
        let Some(instance) = instance else {
            let number = text.split_once(" (").map_or(text.as_str(), |(number, _)| number);
            return number.replace(',', "").parse().ok();
        };
        let instances = text.split_once(" (")?.1.trim_end_matches(')');
        let named = |pair: &str| pair.split_once(':').is_some_and(|(name, _)| name.trim() == instance);
        // An opcode that was never executed has no instance.
        let found = instances.split("; ").find(|pair| named(pair)).and_then(|pair| pair.split_once(':'));
        found.map_or(Some(0.0), |(_, number)| number.trim().replace(',', "").parse().ok())
    }
}

/// The table in what it printed: headings, units, then a line a launch.
fn parse(text: &str) -> Option<Vec<Launch>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let headings = cells(lines.next()?);
    let kernel = headings.iter().position(|heading| heading == "Kernel Name")?;
    let launches = lines.filter(|line| line.starts_with('"')).map(cells).filter(|cells| !cells[0].is_empty());
    let launch = |cells: Vec<String>| {
        let name = cells.get(kernel)?.split('(').next()?.to_owned();
        Some(Launch { kernel: name, values: headings.iter().cloned().zip(cells).collect() })
    };
    launches.map(launch).collect()
}

/// The cells of a line: all are quoted, a quote in one is doubled.
fn cells(line: &str) -> Vec<String> {
    let inside = line.trim().strip_prefix('"').and_then(|line| line.strip_suffix('"')).unwrap_or(line);
    inside.split("\",\"").map(|cell| cell.replace("\"\"", "\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_table_is_read() {
        let text = concat!(
            "==PROF== Connected\n",
            "\"ID\",\"Kernel Name\",\"a.sum\",\"b\"\n",
            "\"\",\"\",\"\",\"inst\"\n",
            "\"0\",\"branches_threads(float *, float)\",\"1,024\",\"9 (FFMA: 4; IMAD: 5)\"\n",
        );
        let launches = parse(text).unwrap();
        let [launch] = &launches[..] else { panic!("{}", launches.len()) };
        assert_eq!(launch.kernel, "branches_threads");
        let values = ["a.sum", "b", "b:FFMA", "b:HMMA", "c"].map(|name| launch.value(name));
        assert_eq!(values, [Some(1024.0), Some(9.0), Some(4.0), Some(0.0), None]);
        assert!(parse("==ERROR== no permission").is_none());
    }
}
