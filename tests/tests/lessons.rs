//! Every lesson, in the simulator: what it predicts has to be what is counted.

use std::fs;
use std::path::Path;

use warpsmith::check::lessons::{self, LESSONS, Lesson, Taught};
use warpsmith::check::registry;
use warpsmith::kernels;
use warpsmith::sim::{self, GpuModel};
use warpsmith_tests::warpsmith;

fn taught(lesson: &Lesson, model: &GpuModel) -> Taught {
    let device = sim::open(model).unwrap();
    lessons::teach(lesson, &device, None).unwrap_or_else(|error| panic!("{}: {error}", lesson.name))
}

/// On a GPU of each path: Hopper's kernels, and those of all others with as little room for blocks as there is.
fn check(key: &str) {
    if kernels::not_built().is_some() {
        return;
    }
    let model = key.parse().unwrap();
    for lesson in LESSONS {
        let taught = taught(lesson, &model);
        let wrong: Vec<_> =
            taught.runs.iter().flat_map(|run| run.counts.iter().map(move |c| (&run.label, c))).collect();
        assert!(!wrong.is_empty(), "{}: nothing is counted", lesson.name);
        let wrong: Vec<_> = wrong.into_iter().filter(|(_, count)| !count.holds()).collect();
        assert!(wrong.is_empty() && taught.holds(), "{} on {key}: {wrong:#?}", lesson.name);
        assert!(taught.runs.iter().all(|run| !run.kernels.is_empty() && run.at_least_ms.is_some()), "{}", lesson.name);
        assert!(taught.conclusion.contains(char::is_numeric), "{}: {}", lesson.name, taught.conclusion);
    }
}

#[test]
fn what_lessons_predict_for_hopper_is_what_is_counted() {
    check("h100");
}

#[test]
fn what_lessons_predict_for_ada_is_what_is_counted() {
    check("l4");
}

/// Whether a word of the line is the kernel's name, which its symbols start with.
fn names(line: &str, symbol: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() > 2);
    words.into_iter().any(|word| symbol.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

#[test]
fn kernels_know_where_they_are_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut whole = 0;
    for kernel in registry::everything().flat_map(|op| op.info().instances()) {
        let text = fs::read_to_string(root.join(kernel.file)).unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
        let [first, last] = kernel.lines.map(|line| line as usize);
        let lines: Vec<_> = text.lines().collect();
        assert!(1 <= first && first <= last && last <= lines.len(), "{kernel:?}");
        let lines = &lines[first - 1..last];
        assert!(lines.iter().any(|line| names(line, kernel.symbol)), "{kernel:?}: {lines:#?}");
        if last > first {
            assert!(lines[0].contains("#[kernel(") && lines[lines.len() - 1] == "}", "{kernel:?}: {lines:#?}");
            whole += 1;
        }
    }
    assert!(whole > 100, "of {whole} kernels all is known");
}

#[test]
fn the_readme_lists_every_lesson() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    for Lesson { name, title, .. } in LESSONS {
        assert!(readme.contains(&format!("\n| `{name}` | {title} |\n")), "{name}");
    }
}

/// A text without its line ends.
fn flowing(text: &str) -> String {
    text.split_whitespace().filter(|word| *word != ">").collect::<Vec<_>>().join(" ")
}

#[test]
fn the_book_tells_what_lessons_count() {
    if kernels::not_built().is_some() {
        return;
    }
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("book/src/lessons");
    let folder = tempfile::tempdir().unwrap();
    for lesson in LESSONS {
        let name = lesson.name;
        let chapter = fs::read_to_string(book.join(name).with_extension("md"));
        let chapter = flowing(&chapter.unwrap_or_else(|error| panic!("the chapter {name}: {error}")));
        let taught = taught(lesson, &GpuModel::H100);
        for sentence in lesson.claim.iter().chain([&taught.conclusion.as_str()]) {
            assert!(chapter.contains(&flowing(sentence)), "the chapter {name} lacks: {sentence}");
        }
        for (run, count) in taught.runs.iter().flat_map(|run| run.counts.iter().map(move |count| (run, count))) {
            let row = format!("| {} | {} | {} |", run.label, count.quantity, count.counted);
            assert!(chapter.contains(&flowing(&row)), "the chapter {name} lacks: {row}");
        }
        let drawn = folder.path().join("drawn.svg");
        let run = warpsmith(&["lesson", name, "--device", "h100", "--svg", drawn.to_str().unwrap()]);
        assert_eq!(run.code, 0, "{}", run.err);
        let same = fs::read(drawn).ok() == fs::read(book.join(name).with_extension("svg")).ok();
        assert!(same, "draw it again: warpsmith lesson {name} --device h100 --svg book/src/lessons/{name}.svg");
    }
}

#[test]
fn a_wrong_prediction_is_noticed() {
    if kernels::not_built().is_some() {
        return;
    }
    let mut taught = taught(lessons::find("fusion").unwrap(), &GpuModel::H100);
    assert!(taught.holds());
    taught.runs[0].counts[0].predicted += 1.0;
    assert!(!taught.holds());
}

#[test]
fn the_command_lists_and_runs_lessons() {
    let listed = warpsmith(&["lesson"]);
    assert!(LESSONS.iter().all(|lesson| listed.out.contains(lesson.title)), "{}", listed.out);
    assert_eq!(warpsmith(&["lesson", "alchemy"]).code, 2);
    if kernels::not_built().is_some() {
        return;
    }
    let run = warpsmith(&["lesson", "coalescing", "--device", "a100"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("strided_copy.rs:") && run.out.contains("as predicted"), "{}", run.out);
    let json = warpsmith(&["lesson", "divergence", "--device", "a100", "--json"]).json();
    assert_eq!((&json["holds"], &json["lesson"]["gpu"]), (&true.into(), &serde_json::Value::Null));
}

#[test]
fn a_lesson_draws_its_picture() {
    assert_eq!(warpsmith(&["lesson", "--svg", "x.svg"]).code, 2, "of which lesson");
    assert_eq!(warpsmith(&["lesson", "fusion", "--svg", "/no/such/folder/x.svg"]).code, 2);
    if kernels::not_built().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fusion.svg");
    let run = warpsmith(&["lesson", "fusion", "--device", "a100", "--svg", path.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let picture = fs::read_to_string(path).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("<title>The lesson fusion</title>"), "{picture}");
    for run in run.json()["lesson"]["runs"].as_array().unwrap() {
        let label = run["label"].as_str().unwrap();
        for word in ["predicted", "counted", "at the peak"] {
            let tip = picture.lines().find(|line| line.contains(&format!("<title>{label}: ")) && line.contains(word));
            assert!(tip.is_some_and(|tip| tip.contains("<rect ")), "{label} {word}: {picture}");
        }
    }
}
