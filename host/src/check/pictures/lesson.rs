//! The picture of a lesson: predicted beside counted values, and minimum beside measured times.

use serde::Deserialize;

use super::axis::Scale;
use super::bars::{Bar, Bars, Group, stack};
use super::theme::{Ink, PALE, SERIES, SLOWER};
use super::{Picture, Table, ladder};
use crate::check::lessons::{self, Rung, Taught, text};
use crate::runtime::error::Result;

/// A lesson that was run: the fields that its picture needs, as `lesson --json` writes them.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LessonTaken {
    /// The lesson.
    pub(crate) name: String,
    /// The claim.
    pub(crate) claim: Vec<String>,
    /// The device that was simulated for the counts.
    pub(crate) simulated: String,
    /// The GPU that was timed.
    pub(crate) gpu: Option<String>,
    /// What was run.
    pub(crate) runs: Vec<RunTaken>,
    /// Products of many sizes.
    #[serde(default)]
    pub(crate) ladder: Vec<Rung>,
    /// The conclusion.
    pub(crate) conclusion: String,
}

/// A run of a lesson.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RunTaken {
    /// What reports call it.
    pub(crate) label: String,
    /// What was counted in the simulator.
    pub(crate) counts: Vec<CountTaken>,
    /// What was timed, if there is a GPU.
    pub(crate) time: Option<TimeTaken>,
    /// The minimum time.
    pub(crate) at_least_ms: Option<f64>,
}

/// A count beside its prediction.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CountTaken {
    /// The quantity.
    pub(crate) quantity: String,
    /// The predicted value.
    pub(crate) predicted: f64,
    /// The counted value.
    pub(crate) counted: f64,
}

/// A time.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TimeTaken {
    /// The median of many, in milliseconds.
    pub(crate) ms: f64,
}

impl From<&Taught> for LessonTaken {
    fn from(taught: &Taught) -> Self {
        let count = |count: &lessons::Count| CountTaken {
            quantity: count.quantity.to_owned(),
            predicted: count.predicted,
            counted: count.counted,
        };
        let run = |run: &lessons::Measured| RunTaken {
            label: run.label.clone(),
            counts: run.counts.iter().map(count).collect(),
            time: run.time.map(|time| TimeTaken { ms: time.ms }),
            at_least_ms: run.at_least_ms,
        };
        Self {
            name: taught.name.to_owned(),
            claim: taught.claim.map(str::to_owned).into(),
            simulated: taught.simulated.clone(),
            gpu: taught.gpu.clone(),
            runs: taught.runs.iter().map(run).collect(),
            ladder: taught.ladder.clone(),
            conclusion: taught.conclusion.clone(),
        }
    }
}

/// Values that differ by more than this factor are drawn on a logarithmic scale.
const FAR: f64 = 200.0;

/// Bars of all that a lesson predicts, a group a run.
pub(crate) fn of_lesson(taught: &LessonTaken) -> Result<Picture> {
    let mut quantities: Vec<&str> = Vec::new();
    for count in taught.runs.iter().flat_map(|run| &run.counts) {
        if !quantities.contains(&count.quantity.as_str()) {
            quantities.push(&count.quantity);
        }
    }
    let mut table = Table::new(["run", "what", ">predicted", ">found", "where"]);
    let mut all: Vec<_> = quantities.iter().map(|quantity| counted(taught, quantity, &mut table)).collect();
    all.extend(timed(taught, &mut table));
    let says = format!("{} {}", taught.claim.join(" "), taught.conclusion);
    table.rows.extend(ladder::rows(&taught.ladder, taught.gpu.as_deref()));
    let bars = stack(format!("The lesson {}", taught.name), &all, says, table)?;
    Ok(bars.over(&ladder::of_ladder(&taught.ladder, taught.gpu.as_deref())?))
}

fn counted(taught: &LessonTaken, quantity: &str, table: &mut Table) -> Bars {
    let mut groups = Vec::new();
    for run in &taught.runs {
        for count in run.counts.iter().filter(|count| count.quantity == quantity) {
            let found = if lessons::agree(count.predicted, count.counted) { SERIES[0] } else { SLOWER };
            let words = ["predicted", "counted"];
            groups.push(pair(&run.label, [count.predicted, count.counted], words, found));
            let place = format!("counted, {}", taught.simulated);
            table.rows.push(row(&run.label, quantity, [count.predicted, count.counted], &place));
        }
    }
    bars(quantity, "", ["predicted", "counted in the simulator"], groups)
}

fn timed(taught: &LessonTaken, table: &mut Table) -> Option<Bars> {
    let mut groups = Vec::new();
    for run in &taught.runs {
        let Some(least) = run.at_least_ms.map(|ms| ms * 1e3) else { continue };
        let words = ["at the peak", "measured"];
        let Some((gpu, time)) = taught.gpu.as_ref().zip(run.time.as_ref()) else {
            groups.push(Group { bars: vec![bar(least, words[0], PALE)], ..pair(&run.label, [least; 2], words, PALE) });
            table.rows.push(vec![
                run.label.to_string(),
                "µs".into(),
                text::count(least),
                "-".into(),
                "not timed".into(),
            ]);
            continue;
        };
        let found = time.ms * 1e3;
        groups.push(pair(&run.label, [least, found], words, SERIES[1]));
        table.rows.push(row(&run.label, "µs", [least, found], &format!("timed, {gpu}")));
    }
    let note = if taught.gpu.is_some() {
        "µs of a large problem"
    } else {
        "µs of a large problem at the device's peak, not timed"
    };
    (!groups.is_empty()).then(|| bars("time", note, ["at the peak", "measured"], groups))
}

fn row(run: &str, what: &str, values: [f64; 2], place: &str) -> Vec<String> {
    let [predicted, found] = values.map(text::count);
    [run, what, &predicted, &found, place].map(str::to_owned).into()
}

fn pair(run: &str, values: [f64; 2], words: [&str; 2], found: Ink) -> Group {
    let bars = vec![bar(values[0], words[0], PALE), bar(values[1], words[1], found)];
    Group { label: run.to_owned(), bars, strokes: Vec::new() }
}

fn bar(value: f64, word: &str, ink: Ink) -> Bar {
    let shown = text::count(value);
    Bar { value, tip: format!("{shown} {word}"), shown, ink }
}

fn bars(title: &str, unit: &str, words: [&str; 2], groups: Vec<Group>) -> Bars {
    let values = || groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).filter(|value| *value > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let far = most > FAR * least;
    let both = groups.iter().any(|group| group.bars.len() > 1);
    let legend =
        if both { vec![(words[0].to_owned(), PALE), (words[1].to_owned(), groups_ink(&groups))] } else { Vec::new() };
    let unit = [unit, if far { "by orders of magnitude" } else { "" }].into_iter().filter(|u| !u.is_empty());
    Bars {
        title: title.to_owned(),
        unit: unit.collect::<Vec<_>>().join(", "),
        scale: if far { Scale::Log } else { Scale::Linear },
        start: if far { least / 2.0 } else { 0.0 },
        legend,
        groups,
        rule: None,
    }
}

fn groups_ink(groups: &[Group]) -> Ink {
    groups.iter().filter_map(|group| group.bars.last()).map(|bar| bar.ink).next().unwrap_or(PALE)
}
