//! `ptxas`, NVIDIA's assembler: it needs no GPU, and reports the resources of a kernel.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

pub use ptx_archive::Resources;

use ptx_archive::cuda_of_ptx;

use crate::{Arch, scratch, toolchain};

/// An assembler that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    version: (u32, u32),
}

/// Why ptxas returned no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtxasError {
    /// ptxas rejects the PTX.
    #[error("ptxas refuses the PTX for {arch}:\n{stderr}")]
    Refused {
        /// The architecture that it was assembled for.
        arch: Arch,
        /// The message of ptxas.
        stderr: String,
    },
    /// ptxas cannot be run.
    #[error("cannot run {}: {source}", path.display())]
    Run {
        /// The assembler.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Looks for ptxas from the current folder: see [`find_from`].
pub fn find() -> Option<Ptxas> {
    find_from(&env::current_dir().unwrap_or_default())
}

/// Looks for ptxas in `$PTXAS`, in `.toolchain/cuda/bin` of `folder`, the current folder or a parent of either, on the
/// `PATH` and in `/usr/local/cuda/bin`. The first one that runs is used. `PTXAS=off` disables the search.
pub fn find_from(folder: &Path) -> Option<Ptxas> {
    match env::var_os("PTXAS") {
        Some(value) if value == "off" => return None,
        Some(value) if !value.is_empty() => return Ptxas::at(value.into()),
        _ => {}
    }
    let local = toolchain::project_folder(folder, "cuda/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    local
        .into_iter()
        .chain(env::split_paths(&path))
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .map(|dir| dir.join("ptxas"))
        .filter(|path| path.is_file())
        .find_map(Ptxas::at)
}

impl Ptxas {
    /// The assembler at `path`, if it runs.
    pub fn at(path: PathBuf) -> Option<Ptxas> {
        let output = Command::new(&path).arg("--version").output().ok()?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Ptxas { path, version })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The CUDA release that it belongs to, such as `(13, 0)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Whether it is new enough for PTX built for `arch`.
    pub fn supports(&self, arch: Arch) -> bool {
        self.version >= cuda_of_ptx(arch.ptx_version())
    }

    /// Assembles `ptx`, which should contain one kernel, at its level of optimisation, and reports its resources.
    pub fn assemble(&self, ptx: &str, arch: Arch, opt_level: Option<u32>) -> Result<Resources, PtxasError> {
        self.run(&[ptx], arch, opt_level).map(|text| parse_resources(&text))
    }

    /// Assembles kernels, each given by its name and the PTX that contains it alone, in one run if possible. Kernels whose
    /// results are not clear from the common output are assembled again one by one.
    pub(crate) fn assemble_all(
        &self,
        kernels: &[(&str, &str)],
        arch: Arch,
        opt_level: Option<u32>,
    ) -> Vec<Result<Resources, PtxasError>> {
        let together = || -> Option<Vec<Resources>> {
            let texts: Vec<_> = kernels.iter().map(|&(_, ptx)| ptx).collect();
            let text = self.run(&texts, arch, opt_level).ok()?;
            let parts = parts(&text)?;
            kernels.iter().map(|(name, _)| parts.get(name).map(|part| parse_resources(part))).collect()
        };
        match (kernels.len() > 1).then(together).flatten() {
            Some(all) => all.into_iter().map(Ok).collect(),
            None => kernels.iter().map(|(_, ptx)| self.assemble(ptx, arch, opt_level)).collect(),
        }
    }

    /// The output of ptxas for these texts.
    fn run(&self, texts: &[&str], arch: Arch, opt_level: Option<u32>) -> Result<String, PtxasError> {
        let run = |source| PtxasError::Run { path: self.path.clone(), source };
        let scratch = scratch::Folder::new_in(&env::temp_dir()).map_err(run)?;
        let mut command = Command::new(&self.path);
        // A separate output file: an assembler run by root may replace its output path, even /dev/null.
        command.args(["-v", "-arch", arch.as_str(), "-o"]).arg(scratch.path().join("kernel.cubin"));
        command.args(opt_level.map(|level| format!("-O{level}")));
        for (index, ptx) in texts.iter().enumerate() {
            let name = if index == 0 { "kernel.ptx".to_owned() } else { format!("kernel{index}.ptx") };
            let input = scratch.path().join(name);
            fs::write(&input, ptx).map_err(run)?;
            command.arg(input);
        }
        let output = command.output().map_err(run)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            Ok(text)
        } else {
            let place = scratch.path().join("kernel.ptx").display().to_string();
            let stderr = text.replace(&place, "kernel.ptx");
            Err(PtxasError::Refused { arch, stderr: stderr.trim_end().to_owned() })
        }
    }
}

/// The output for each of several kernels, if there is nothing else: no warning, no shared globals, no functions.
fn parts(text: &str) -> Option<HashMap<&str, &str>> {
    const START: &str = "Compiling entry function '";
    let mut pieces = text.split(START);
    let is_general = |line: &str| line.ends_with(": 0 bytes gmem") || line.trim_end().ends_with(':');
    if !pieces.next()?.lines().all(is_general) {
        return None;
    }
    let mut parts = HashMap::new();
    for piece in pieces {
        let (name, rest) = piece.split_once('\'')?;
        let is_own = |line: &str| match line.split_once("Function properties for ") {
            Some((_, function)) => function == name,
            None => !line.contains("warning") && !line.contains("Performance Loss"),
        };
        let is_plain = rest.lines().all(|line| is_own(line) && (!line.contains(" gmem") || is_general(line)));
        if !is_plain || parts.insert(name, rest).is_some() {
            return None;
        }
    }
    Some(parts)
}

/// Reads `release 13.0` out of `ptxas --version`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once("release ")?;
    let (major, rest) = rest.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest[..digits].parse().ok()?))
}

fn parse_resources(text: &str) -> Resources {
    let mut resources = Resources::default();
    for line in text.lines() {
        let body = line.split_once(" : ").map_or(line, |(_, body)| body).trim();
        if line.starts_with("ptxas warning") || body.contains("Performance Loss") {
            resources.notes.push(body.to_owned());
            continue;
        }
        for part in body.trim_start_matches("Used ").split(", ") {
            let part = part.trim_start_matches("used ");
            let Some((number, what)) = part.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u32>() else {
                continue;
            };
            match what {
                "registers" => resources.registers = number,
                "barriers" | "barrier" => resources.barriers = number,
                "bytes stack frame" => resources.stack_bytes = number,
                "bytes spill stores" => resources.spill_stores = number,
                "bytes spill loads" => resources.spill_loads = number,
                "bytes smem" => resources.shared_bytes = number,
                _ if what.starts_with("bytes cmem[") => resources.constant_bytes += number,
                _ => {}
            }
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 352 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 3.1 ms
";

    #[test]
    fn resources_are_read() {
        let r = parse_resources(OUTPUT);
        assert_eq!((r.registers, r.barriers, r.shared_bytes, r.constant_bytes), (40, 1, 1024, 360));
        assert_eq!((r.stack_bytes, r.spill_stores, r.spill_loads), (16, 8, 12));
        assert_eq!(r.notes.len(), 1);
        assert!(r.notes[0].starts_with("(C7510)"));
        assert!(!r.is_clean());
        assert!(Resources::default().is_clean());
    }

    #[test]
    fn what_is_said_of_several_kernels_is_told_apart_or_not_believed() {
        let of = |name: &str, registers: u32| {
            format!(
                "ptxas info    : Compiling entry function '{name}' for 'sm_80'\nptxas info    : Function properties for {name}\n    \
                 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used {registers} registers, 352 \
                 bytes cmem[0]\nptxas info    : Compile time = 1.2 ms\n"
            )
        };
        let gmem = "ptxas info    : 0 bytes gmem\n";
        let text = gmem.to_owned() + &of("a", 40) + gmem + &of("b", 8);
        let parts = parts(&text).unwrap();
        assert_eq!(["a", "b"].map(|name| parse_resources(parts[name]).registers), [40, 8]);
        for unclear in [
            OUTPUT.to_owned() + &of("b", 8),
            of("a", 40) + OUTPUT,
            of("a", 40) + "ptxas info    : 16 bytes gmem\n" + &of("b", 8),
            "ptxas info    : 0 bytes gmem, 8 bytes cmem[4]\n".to_owned() + &of("a", 40),
            of("a", 40) + "ptxas info    : Function properties for helper\n" + &of("b", 8),
            of("a", 40) + "ptxas warning : Stack size cannot be determined\n",
            of("a", 40) + &of("a", 40),
        ] {
            assert_eq!(super::parts(&unclear), None, "{unclear}");
        }
    }

    #[test]
    fn the_version_is_read() {
        assert_eq!(parse_version("Cuda compilation tools, release 13.0, V13.0.88"), Some((13, 0)));
        assert_eq!(parse_version("something else"), None);
    }
}
