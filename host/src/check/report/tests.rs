use std::path::{Path, PathBuf};

use super::*;
use crate::check::pictures::markup::{self, Element};

fn document(text: &str) -> Result<Option<Document>> {
    Document::parse(Path::new("run/results.json"), text)
}

fn refused(text: &str) -> String {
    let error = document(text).map(|found| found.is_some()).unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if path == Path::new("run/results.json")), "{error}");
    error.to_string()
}

/// A page that is well formed and leads nowhere outside itself; returns its elements.
fn checked(documents: &[Document], command: &str) -> (String, Vec<Element>) {
    let page = page(documents, command).unwrap();
    let elements = markup::parse(&page);
    for element in &elements {
        let outside = ["src", "srcset", "data", "action", "xlink:href", "style"];
        assert!(outside.iter().all(|name| element.get(name).is_none()), "{element:?}");
        assert!(!["script", "link", "iframe", "object", "img", "base"].contains(&element.name.as_str()), "{element:?}");
        if let Some(to) = element.get("href") {
            let target = to.strip_prefix('#').unwrap_or_else(|| panic!("{to} is outside"));
            assert!(elements.iter().any(|e| e.get("id") == Some(target)), "{to} leads nowhere");
        }
        if element.name == "style" {
            assert!(!element.text.contains("url(") && !element.text.contains("@import"), "{}", element.text);
        }
    }
    let ids: Vec<_> = elements.iter().filter_map(|e| e.get("id")).collect();
    assert!((1..ids.len()).all(|i| !ids[..i].contains(&ids[i])), "{ids:?}");
    let count = |name: &str| elements.iter().filter(|e| e.name == name).count();
    assert_eq!(count("svg"), count("figure"));
    assert_eq!(count("svg"), count("table"), "each picture has its data");
    markup::check_pictures(&elements);
    (page, elements)
}

/// Timings of two operators, one in steps and one at several sizes, with `more` fields in front.
fn bench(device: &str, more: &str) -> String {
    let row = |op: &str, case: &str, variant: &str, ms: f64, bytes: u64, flops: u64, ceiling: f64| {
        let gbps = bytes as f64 / ms / 1e6;
        let tflops = flops as f64 / ms / 1e9;
        let (rate, percent) =
            if flops > 0 { (format!(r#","tflops":{tflops}"#), tflops) } else { (String::new(), gbps) };
        let percent = 100.0 * percent / ceiling;
        format!(
            r#"{{"op":"{op}","case":"{case}","variant":"{variant}","ms":{ms},"min_ms":{ms},"bytes":{bytes},"flops":{flops},"gbps":{gbps}{rate},"pct_of_ceiling":{percent}}}"#
        )
    };
    let copy = row("ceiling.copy", "1GiB", "auto", 0.5, 2_000_000_000, 0, 4000.0);
    let mut rows = vec![copy];
    rows.extend(["auto", "v0", "v1", "v2"].map(|v| row("gemm.f32", "64^3", v, 1.0, 1 << 20, 1 << 33, 50.0)));
    rows.extend(
        [20, 22, 24, 26]
            .map(|power| row("ew.relu", &format!("n=2^{power} bfloat16"), "auto", 0.1, 1 << power, 0, 4000.0)),
    );
    format!(
        r#"{{{more}"device":"{device}","driver":"13.0","backend":"cuda","command":"bench","rows":[{}]}}"#,
        rows.join(",")
    )
}

#[test]
fn a_page_of_results_is_whole() {
    let peers = r#"{"device":"GPU","torch":"2","rows":[{"op":"gemm.f32","case":"64^3","peer":"cublas","ms":0.5,"min_ms":0.5,"bytes":0,"flops":0}]}"#;
    let verify = r#"{"executed":true,"backend":"cuda","device":"GPU","rows":[{"op":"relu","status":"pass","max_err":0.5},{"op":"relu","status":"fail","max_err":null}]}"#;
    let lesson = r#"{"holds":true,"lesson":{"name":"fusion","claim":["a","b"],"simulated":"H100","gpu":null,"conclusion":"c","runs":[
        {"label":"fused","counts":[{"quantity":"launches","predicted":1.0,"counted":1.0},{"quantity":"bytes","predicted":1e6,"counted":0.0}],"time":null,"at_least_ms":0.2}]}}"#;
    let texts = [bench("GPU", ""), peers.to_owned(), verify.to_owned(), lesson.to_owned()];
    let documents: Vec<_> = texts.iter().map(|text| document(text).unwrap().unwrap()).collect();
    let (page, elements) = checked(&documents, "report");
    let titles: Vec<_> = elements.iter().filter(|e| e.name == "h3").map(|e| e.text.as_str()).collect();
    let all = [
        "Roofline of the GPU",
        "Operators against their fastest peers, GPU",
        "Operators against their floors, GPU",
        "The ladder of gemm.f32 64^3, GPU",
        "ew.relu: n=… bf16",
        "Operators against their references, GPU",
        "The lesson fusion",
    ];
    assert_eq!(titles, all);
    assert!(
        page.contains("f32 units: 50 TFLOP/s") || page.contains("arithmetic: 50 TFLOP/s"),
        "the peak is found again"
    );
    assert!(page.contains("0.50 cublas") && page.contains("run/results.json"));
}

#[test]
fn of_one_case_the_last_counts_and_devices_are_told_apart() {
    let slow = bench("GPU", "").replace("\"ms\":0.1", "\"ms\":0.9");
    let documents = [slow, bench("GPU", ""), bench("Other", "")].map(|text| document(&text).unwrap().unwrap());
    let (page, elements) = checked(&documents, "report");
    assert!(!page.contains("900.0 µs") && page.contains("100.0 µs"));
    assert_eq!(elements.iter().filter(|e| e.name == "h2").count(), 2 * 4 + 1);
}

#[test]
fn what_was_timed_beside_is_a_peer() {
    let beside =
        |ms: f64| format!(r#""peers":[{{"op":"gemm.f32","case":"64^3","peer":"cublas","ms":{ms},"min_ms":0.4}}],"#);
    let verify = r#"{"executed":true,"device":"GPU","rows":[{"op":"sgemm","status":"pass","max_err":0.5},{"op":"sgemm","peer":true,"status":"fail","max_err":40}]}"#;
    let documents = [bench("GPU", &beside(0.5)), verify.to_owned()].map(|text| document(&text).unwrap().unwrap());
    let (page, _) = checked(&documents, "bench");
    assert!(page.contains("0.50 cublas") && page.contains("1 of 1 cases of 1 operators passed"), "{page}");
    assert!(refused(&bench("GPU", &beside(0.0))).contains("peers: `ms` = 0 is no such number"));
}

#[test]
fn sizes_are_drawn_by_themselves() {
    let swept =
        bench("GPU", r#""l2_bytes":4194304,"#).replace("\"command\":\"bench\"", "\"command\":\"bench relu --sizes\"");
    let documents = [document(&swept).unwrap().unwrap()];
    let (page, elements) = checked(&documents, "report");
    assert!(!page.contains("Against the floor"), "small cases say nothing of it");
    assert!(elements.iter().any(|e| e.name == "text" && e.text.trim() == "L2"));
    let files = files(&documents, "bench relu --sizes").unwrap();
    let (name, text) = &files.files[0];
    assert_eq!(name, "README.md");
    for (name, picture) in &files.files[1..] {
        assert!(text.contains(&format!("]({name})")), "{name}");
        markup::check_pictures(&markup::parse(picture));
    }
    assert!(text.contains("\n| auto | n=2^20 bfloat16 | 1 MiB | 100.0 µs | 10 GB/s |\n"), "{text}");
}

#[test]
fn what_files_say_is_text_and_nothing_else() {
    let hostile = r#"</title><script>alert(1)</script>\u0000\u001b[31m\u202e&amp;"#;
    let text = bench(hostile, "").replace("ew.relu", hostile).replace("bfloat16", &format!("x={hostile}"));
    let text = text.replace("\"bench\"", &format!("\"{hostile}\""));
    let (page, _) = checked(&[document(&text).unwrap().unwrap()], "</style><script>");
    assert!(!page.contains("<script") && !page.contains(['\u{0}', '\u{1b}', '\u{202e}']));
    assert!(page.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn strange_numbers_are_drawn_within_the_picture() {
    for ms in ["1e-300", "1e300", "1e-9"] {
        let text = bench("GPU", "").replace("\"ms\":0.1", &format!("\"ms\":{ms}"));
        checked(&[document(&text).unwrap().unwrap()], "report");
    }
}

#[test]
fn what_is_no_result_is_refused_by_its_name() {
    assert!(refused("").contains("run/results.json: is not JSON"));
    assert!(refused("hello").contains("is not JSON"));
    assert!(refused(&bench("GPU", "").replace("\"ms\":0.1", "\"ms\":NaN")).contains("is not JSON"));
    assert!(refused(&bench("GPU", "").replace("\"ms\":0.1", "\"ms\":null")).contains("is not a whole bench report"));
    assert!(refused(&bench("GPU", "").replace("\"ms\":0.1,", "")).contains("missing field `ms`"));
    assert!(refused(&bench("GPU", "").replace("\"ms\":0.1", "\"ms\":-1.0")).contains("rows[5]: `ms` = -1"));
    assert!(refused(&bench("GPU", "").replace("\"ms\":0.1", "\"ms\":1e999")).contains("number out of range"));
    assert!(
        refused(&bench("GPU", "").replace("\"bytes\":1048576", "\"bytes\":-1")).contains("is not a whole bench report")
    );
    let empty = r#"{"device":"GPU","driver":"","backend":"","command":"","rows":[]}"#;
    assert!(refused(empty).contains("has no rows"));
    assert!(refused(r#"{"lesson":{"name":"x"}}"#).contains("is not a whole lesson: missing field"));
    let rung = |flops: f64, ms: f64| {
        let rung = format!(r#"{{"n":8,"alignment":8,"path":"whole","flops":{flops},"waves":1,"cublas_ms":{ms}}}"#);
        let run = r#"{"label":"a","counts":[]}"#;
        let rest = r#""claim":["a","b"],"simulated":"H100","gpu":null,"conclusion":"c""#;
        format!(r#"{{"lesson":{{"name":"matrix",{rest},"runs":[{run}],"ladder":[{rung}]}}}}"#)
    };
    assert!(document(&rung(1.0, 0.5)).unwrap().is_some());
    assert!(refused(&rung(1.0, 0.0)).contains("`ms` = 0 is no such number"));
    assert!(refused(&rung(0.0, 0.5)).contains("`flops` = 0 is no such number"));
    assert!(refused(r#"{"executed":true,"rows":[]}"#).contains("has no rows"));
    for other in ["{}", "[]", "3", "null", r#"{"passed":true,"steps":[]}"#] {
        assert!(document(other).unwrap().is_none(), "{other}");
    }
}

#[test]
fn every_recorded_run_makes_a_page() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("benches/results");
    // A packed crate has none.
    let Ok(folders) = results.read_dir() else { return };
    let has_documents = |folder: &PathBuf| {
        let mut files = folder.read_dir().into_iter().flatten().flatten();
        files.any(|file| file.path().extension().is_some_and(|extension| extension == "json"))
    };
    // What was written down alone has none to make a page of.
    for folder in folders.map(|entry| entry.unwrap().path()).filter(has_documents) {
        let documents = read(std::slice::from_ref(&folder)).unwrap();
        let (_, elements) = checked(&documents, "report");
        // A folder of lessons alone has no roofline.
        let shows = |title: &str| elements.iter().any(|e| e.text.starts_with(title));
        assert!(shows("Roofline") || shows("The lesson "), "{}", folder.display());
    }
}
