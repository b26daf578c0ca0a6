//! Misuse that must not compile, and what the compiler says about it: a test a file of `compile_fail/`.
//!
//! rustc runs on the libraries that this test program was linked with, so that nothing is built for it. `BLESS=1` writes the
//! `.stderr` files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::SystemTime;

use libtest_mimic::{Arguments, Failed, Trial};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn main() {
    let libraries = Arc::new(Libraries::find());
    let trial = |file: String| {
        let libraries = Arc::clone(&libraries);
        Trial::test(file.clone(), move || check(libraries.as_ref().as_ref()?, &file))
    };
    let mut trials: Vec<_> = misuses().into_iter().map(trial).collect();
    trials.push(Trial::test("only what it should say passes", guard));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The files, from the package's folder.
fn misuses() -> Vec<String> {
    let entries = fs::read_dir(Path::new(PACKAGE).join("compile_fail")).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with("wrong_") && name.ends_with(".rs"))
        .map(|n| format!("compile_fail/{n}"))
        .collect()
}

fn check(libraries: &Libraries, file: &str) -> Result<(), Failed> {
    let output = libraries.compile(file)?;
    if output.status.success() {
        return Err("it compiles".into());
    }
    let said = normalised(&String::from_utf8_lossy(&output.stderr));
    let expected = Path::new(PACKAGE).join(file).with_extension("stderr");
    if std::env::var_os("BLESS").is_some() {
        return Ok(fs::write(expected, said)?);
    }
    compare(&said, &fs::read_to_string(expected).unwrap_or_default())
}

fn compare(said: &str, expected: &str) -> Result<(), Failed> {
    match said == expected {
        true => Ok(()),
        false => Err(format!("the compiler says\n{said}\nand not (BLESS=1 accepts the new text)\n{expected}").into()),
    }
}

/// What the compiler says, without what changes when other files do: the place and the line numbers of code that is not in
/// the file itself, and the width of the margin.
fn normalised(stderr: &str) -> String {
    let workspace = Path::new(PACKAGE).parent().expect("the package is in a folder").to_string_lossy();
    let text = stderr.replace(&*workspace, "$WORKSPACE");
    let noise = ["error: aborting due to", "For more information about", "Some errors have detailed explanations"];
    let kept = text.lines().filter(|line| !noise.iter().any(|start| line.starts_with(start)));
    let lines: Vec<String> = kept.map(line).collect();
    format!("{}\n", lines.join("\n").trim())
}

fn line(line: &str) -> String {
    let body = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
    let elsewhere = body.strip_prefix("--> ").filter(|place| !place.starts_with("compile_fail/"));
    if let Some(place) = elsewhere {
        return format!(" --> {}", place.split(':').next().unwrap_or_default());
    }
    match ["|", "-->", "=", ":::", "...", "~", "+", "-"].iter().any(|sign| body.starts_with(sign)) {
        true => format!(" {body}").trim_end().to_owned(),
        false => line.trim_end().to_owned(),
    }
}

/// What the other files get wrong, done right.
const CORRECT: [&str; 3] = ["compile_fail/correct.rs", "compile_fail/correct_row.rs", "compile_fail/correct_names.rs"];

/// The compiled libraries that the files use.
struct Libraries {
    folder: PathBuf,
    warpsmith: PathBuf,
    cuda_std: PathBuf,
    gpu_kernels: PathBuf,
}

impl Libraries {
    /// The newest `warpsmith` beside this program, which is the one of today's sources, and the `cuda_std` and `gpu_kernels` that belong to it:
    /// with any other, correct code does not compile.
    fn find() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder = program.parent().ok_or("this program is in no folder")?.to_owned();
        let warpsmith = newest(&folder, "libwarpsmith-").into_iter().next();
        let warpsmith = warpsmith.ok_or_else(|| format!("no warpsmith in {}", folder.display()))?;
        let mut said = format!("no cuda_std and gpu_kernels in {}", folder.display());
        let (cuda_std, gpu_kernels) = (newest(&folder, "libcuda_std-"), newest(&folder, "libgpu_kernels-"));
        for (cuda_std, gpu_kernels) in
            cuda_std.iter().flat_map(|c| gpu_kernels.iter().map(move |k| (c.clone(), k.clone())))
        {
            let libraries = Self { folder: folder.clone(), warpsmith: warpsmith.clone(), cuda_std, gpu_kernels };
            let mut wrong = None;
            for file in CORRECT {
                let output = libraries.compile(file).map_err(|error| error.to_string())?;
                wrong = wrong.or((!output.status.success()).then_some(output.stderr));
            }
            let Some(stderr) = wrong else { return Ok(libraries) };
            said = String::from_utf8_lossy(&stderr).into_owned();
        }
        Err(format!("{CORRECT:?} do not compile: {said}"))
    }

    fn compile(&self, file: &str) -> Result<Output, std::io::Error> {
        let library = |name: &str, path: &Path| format!("{name}={}", path.display());
        let out = tempfile::tempdir()?;
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "--emit=metadata", "--color=never", "--diagnostic-width=140", "-Awarnings"]);
        rustc.arg("--extern").arg(library("warpsmith", &self.warpsmith));
        rustc.arg("--extern").arg(library("cuda_std", &self.cuda_std));
        rustc.arg("--extern").arg(library("gpu_kernels", &self.gpu_kernels));
        rustc.arg("-L").arg(library("dependency", &self.folder)).arg("--out-dir").arg(out.path());
        rustc.arg(file).current_dir(PACKAGE).output()
    }
}

/// Libraries of a name, the newest first.
fn newest(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(prefix) && name.ends_with(".rlib")
    });
    let age = |entry: &fs::DirEntry| entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut found: Vec<_> = named.map(|entry| (age(&entry), entry.path())).collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// The comparison fails on another message and on another place, not on another line of a file elsewhere.
fn guard() -> Result<(), Failed> {
    let text = normalised("error[E0308]: mismatched types\n --> compile_fail/x.rs:3:4\n  |\n3 |  f(x)\n");
    assert!(compare(&text, &text.replace("E0308", "E0277")).is_err());
    assert!(compare(&text, &text.replace(":3:4", ":3:5")).is_err());
    let elsewhere = |line: usize| {
        let path = Path::new(PACKAGE).with_file_name("host/src/lib.rs");
        normalised(&format!("note: here\n   --> {}:{line}:5\n    |\n{line:4} |     fn f()\n", path.display()))
    };
    assert_eq!(elsewhere(7), elsewhere(1234));
    assert_eq!(elsewhere(7), "note: here\n --> $WORKSPACE/host/src/lib.rs\n |\n |     fn f()\n");
    assert_eq!(normalised("note: here\n --> host/src/lib.rs:7:5\n"), "note: here\n --> host/src/lib.rs\n");
    Ok(())
}
