//! Pages and pictures, opened in a browser: nothing is loaded, nothing is complained about, all is drawn and can be read, in light and in
//! dark, on a screen and on a phone.
//!
//! Chromium is what `WARPSMITH_CHROMIUM` names, on the `PATH`, or what `cargo xtask setup` fetched. Without one the tests say so and pass,
//! unless `CI` is set.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warpsmith_tests::warpsmith;

const INSPECT: &str = include_str!("../pages/inspect.js");

/// Anything but the page itself is refused, and the refusal shows on the console.
const POLICY: &str = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">"#;

/// A screen, and a phone.
const WIDTHS: [u64; 2] = [1280, 390];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace")
}

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("WARPSMITH_CHROMIUM").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let installed = || names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let fetched = root().join(".toolchain/browser/chromium");
    let found = named.or_else(|| installed().chain([fetched]).find(|program| program.is_file()));
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no Chromium");
        eprintln!("skipped without Chromium: `cargo xtask setup` fetches one on Debian");
    }
    found
}

/// What the script found on a page, which has to be nothing; returns how many pictures and words there are.
fn look(browser: &Path, page: &Path, width: u64, dark: bool) -> [u64; 2] {
    let profile = tempfile::tempdir().unwrap();
    let flag = |name: &str, value: &Path| {
        let mut flag = OsString::from(name);
        flag.push(value);
        flag
    };
    let output = Command::new(browser)
        // The pages are ours, and a sandbox needs rights that containers do not give.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--timeout=60000", "--dump-dom"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(flag("--user-data-dir=", profile.path()))
        .arg(flag("file://", page))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", browser.display()));
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let console: Vec<_> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    let what = format!("{} at {width}{}", page.display(), if dark { ", dark" } else { "" });
    assert!(console.is_empty(), "{what}: {console:#?}");
    let found = dom.split_once("found{").and_then(|(_, rest)| rest.split_once("}end"));
    let (found, _) = found.unwrap_or_else(|| panic!("{what}: the script left nothing:\n{dom}\n{log}"));
    let found = format!("{{{}}}", found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
    let found: Value = serde_json::from_str(&found).unwrap_or_else(|error| panic!("{what}: {error}: {found}"));
    let problems = found["problems"].as_array().unwrap();
    assert!(problems.is_empty(), "{what}: {} problems: {problems:#?}", problems.len());
    assert_eq!((&found["width"], &found["dark"]), (&width.into(), &dark.into()), "{what}");
    ["pictures", "texts"].map(|count| found[count].as_u64().unwrap())
}

/// Looks at a page in every way; returns how many pictures it has.
fn check(browser: &Path, html: &str, name: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let (head, rest) = html.split_once("<head>").expect("a page has a head");
    fs::write(&path, format!("{head}<head>{POLICY}<script>{INSPECT}</script>{rest}")).unwrap();
    let seen = WIDTHS.map(|width| [false, true].map(|dark| look(browser, &path, width, dark)));
    let first = seen[0][0];
    assert!(seen.as_flattened().iter().all(|one| *one == first), "{name}: {seen:?}");
    assert!(first[1] > first[0], "{name}: {seen:?}");
    first[0]
}

/// Files of a folder and those below, of one kind, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn reports_are_drawn() {
    let Some(browser) = browser() else { return };
    let results = root().join("benches/results");
    for page in files(&results, "html") {
        let html = fs::read_to_string(&page).unwrap();
        assert!(check(&browser, &html, "report.html") > 10, "{}", page.display());
    }
    // And one that is made now, of all that was ever measured.
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("fresh.html");
    let documents = files(&results, "json");
    let mut args = vec!["report", page.to_str().unwrap()];
    // Timings and lessons; of what else there is `report` knows nothing.
    let read = |path: &&PathBuf| {
        let document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        (document["rows"].is_array() && !path.ends_with("simulator.json")) || document["lesson"].is_object()
    };
    args.extend(documents.iter().filter(read).map(|path| path.to_str().unwrap()));
    let run = warpsmith(&args);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(check(&browser, &fs::read_to_string(page).unwrap(), "fresh.html") > 10);
}

#[test]
fn pictures_are_drawn() {
    let Some(browser) = browser() else { return };
    let pictures: Vec<_> =
        ["book/src", "benches/results"].iter().flat_map(|at| files(&root().join(at), "svg")).collect();
    let drawn: String = pictures.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    // As a page shows them that has room for them.
    let page =
        format!("<!DOCTYPE html><html><head></head><body><div style=\"overflow:auto\">{drawn}</div></body></html>");
    assert_eq!(check(&browser, &page, "pictures.html"), pictures.len() as u64);
}

#[test]
fn faults_are_seen() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let faulty = |name: &str, body: &str| {
        let path = folder.path().join(name).with_extension("html");
        fs::write(
            &path,
            format!("<!DOCTYPE html><html><head>{POLICY}<script>{INSPECT}</script></head><body>{body}</body></html>"),
        )
        .unwrap();
        let seen = std::panic::catch_unwind(|| look(&browser, &path, 390, false));
        let panic = seen.expect_err("it is faulty");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let svg = |inside: &str| {
        format!(
            r##"<svg width="200" height="100" aria-label="p"><rect width="200" height="100" fill="#fff"/><path d="M0 0L9 9"/><path d="M0 0L9 9"/>{inside}</svg>"##
        )
    };
    for (name, body, says) in [
        ("wide", "<div style='width:500px'>x</div>".to_owned(), "508 wide, 390 are shown"),
        ("network", "<img src='http://localhost/x.png'>".to_owned(), "Content Security Policy"),
        ("out", svg("<text x='150' y='50'>far too long a word</text>"), "leaves it by"),
        ("over", svg("<text x='50' y='50'>word</text><text x='55' y='52'>word</text>"), "lies over"),
        ("pale", svg("<text x='50' y='50' fill='#eee'>word</text>"), "cannot be read"),
        ("empty", "<svg width='200' height='100'><text x='9' y='50'>word</text></svg>".to_owned(), "has 0 shapes"),
    ] {
        let found = faulty(name, &body);
        assert!(found.contains(says), "{name}: {found}");
    }
}
