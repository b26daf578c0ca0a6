//! Running other programs: bounded in time, with what they say when they fail.

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Whether `program` is on the `PATH`.
pub(super) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs `command` and returns its standard output; an error has the end of what it said.
pub(super) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{name} took more than {} s", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    };
    let stdout = stdout.join().unwrap_or_default();
    if !status.success() {
        let stderr = stderr.join().unwrap_or_default();
        let lines = stderr.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>();
        let last = lines[lines.len().saturating_sub(3)..].join("; ");
        bail!("{name} failed: {last}");
    }
    Ok(stdout)
}

/// Pipes the output of `first` into `second`.
pub(super) fn pipe(first: &mut Command, second: &mut Command) -> Result<()> {
    let names = [&*first, &*second].map(|command| command.get_program().to_string_lossy().into_owned());
    let mut source = first
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", names[0]))?;
    let stdout = source.stdout.take().context("no output to pipe")?;
    let sink = second.stdin(stdout).output().with_context(|| format!("cannot run {}", names[1]))?;
    let status = source.wait()?;
    if !sink.status.success() {
        bail!("{} failed: {}", names[1], String::from_utf8_lossy(&sink.stderr).trim());
    }
    if !status.success() {
        bail!("{} failed", names[0]);
    }
    Ok(())
}

fn read(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn output_and_failures_are_told() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo yes"]), LIMIT).unwrap(), "yes\n");
        let error = output(Command::new("sh").args(["-c", "echo no >&2; exit 3"]), LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "sh failed: no");
    }

    #[test]
    fn time_is_bounded() {
        let error = output(Command::new("sleep").arg("30"), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("took more than"), "{error}");
    }
}
