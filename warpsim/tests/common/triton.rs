//! PTX of the kernels in `tests/triton`, compiled when a test asks for it by a Triton that comes from PyPI.
//!
//! The same rules as for nvcc: the compiler and the PTX stay in the target folder; where they cannot be had, a test says
//! so and passes, with `CI` set it fails.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::nvcc::{output, skipped, target};
use super::{Fault, Gpu, Launch, Module, Options, Report, ToBytes};

const VERSION: &str = "3.9.0";
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/triton");

/// A compiled kernel and what Triton says a launch of it needs.
pub struct Kernel {
    kernel: warpsim::Kernel,
    shared: u32,
    threads: u32,
    ctas: u32,
    scratch: u32,
    /// The swizzle code of each tensor map among the parameters.
    pub swizzles: Vec<u32>,
}

/// A kernel of `triton/*.py`; nothing where Triton cannot be had.
pub fn kernel(name: &str) -> Option<Kernel> {
    let folder = match all().as_ref() {
        Ok(folder) => folder,
        Err(why) => return skipped(name, why),
    };
    let text = fs::read_to_string(folder.join(format!("{name}.ptx"))).unwrap_or_else(|e| panic!("{name}: {e}"));
    let words: Vec<&str> = text.lines().next().unwrap().split(' ').skip(1).collect();
    let number = |key: &str| {
        let found = words.chunks(2).filter(|w| w[0] == key);
        found.map(|w| w[1].parse().unwrap_or_else(|e| panic!("{e}"))).collect::<Vec<u32>>()
    };
    let one = |key: &str| *number(key).first().unwrap_or_else(|| panic!("{name} has no `{key}`"));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let entry = module.kernels()[0].to_owned();
    Some(Kernel {
        kernel: module.kernel(&entry).unwrap_or_else(|e| panic!("{name}: {e}")),
        shared: one("shared"),
        threads: one("threads"),
        ctas: one("ctas"),
        scratch: one("scratch"),
        swizzles: number("swizzle"),
    })
}

impl Kernel {
    /// Launches with Triton's two hidden arguments behind the kernel's own.
    pub fn launch(&self, gpu: &mut Gpu, grid: [u32; 3], args: &[Vec<u8>], o: &Options) -> Result<Report, Fault> {
        let scratch = gpu.alloc((self.scratch * grid.iter().product::<u32>()) as usize, "scratch");
        let hidden = [scratch.to_bytes(), 0u64.to_bytes()];
        let args: Vec<&[u8]> = args.iter().chain(&hidden).map(Vec::as_slice).collect();
        let launch = Launch {
            grid: [grid[0] * self.ctas, grid[1], grid[2]],
            block: [self.threads, 1, 1],
            cluster: [self.ctas, 1, 1],
            shared_bytes: self.shared,
            args: &args,
            ..Launch::default()
        };
        // Kernels that wait for each other fail soon when they wait for ever.
        gpu.launch(&self.kernel, &launch, &Options { instruction_limit: 1 << 24, ..o.clone() })
    }

    /// The same, expecting neither fault nor finding.
    pub fn run(&self, gpu: &mut Gpu, grid: [u32; 3], args: &[Vec<u8>], o: &Options) -> Report {
        let r = self.launch(gpu, grid, args, o).unwrap_or_else(|f| panic!("{f}"));
        for f in &r.findings {
            println!("{f}");
        }
        assert!(r.clean(), "{}: {} findings", self.kernel.name(), r.findings.len());
        r
    }
}

/// The folder with the PTX of every kernel.
fn all() -> &'static Result<PathBuf, String> {
    static PTX: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PTX.get_or_init(|| {
        let mut hash = DefaultHasher::new();
        let mut sources: Vec<_> = fs::read_dir(SOURCES).unwrap().map(|f| f.unwrap().path()).collect();
        sources.retain(|p| p.extension().is_some_and(|e| e == "py"));
        sources.sort();
        sources.iter().for_each(|p| (p, fs::read(p).unwrap()).hash(&mut hash));
        let ptx = target().join(format!("triton-ptx/{VERSION}-{:016x}", hash.finish()));
        if ptx.exists() {
            return Ok(ptx);
        }
        let path = target().join("triton.lock");
        let lock = File::create(&path).and_then(|f| f.lock().map(|()| f));
        let _lock = lock.map_err(|e| format!("{}: {e}", path.display()))?;
        if ptx.exists() {
            return Ok(ptx);
        }
        let home = target().join(format!("triton-{VERSION}"));
        if !home.exists() {
            let unfinished = home.with_extension("part");
            let _ = fs::remove_dir_all(&unfinished);
            fs::create_dir_all(&unfinished).map_err(|e| e.to_string())?;
            let fetched = output(Command::new("python3").arg(format!("{SOURCES}/fetch.py")).arg(&unfinished));
            if let Err(why) = fetched.and_then(|_| fs::rename(&unfinished, &home).map_err(|e| e.to_string())) {
                let _ = fs::remove_dir_all(&unfinished);
                return Err(why);
            }
        }
        let unfinished = ptx.with_extension("part");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|e| e.to_string())?;
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &home).env("PYTHONDONTWRITEBYTECODE", "1");
        let done = output(python.arg(format!("{SOURCES}/compile.py")).arg(&unfinished));
        // What was fetched must work: only fetching may fail.
        done.unwrap_or_else(|e| panic!("Triton does not compile the kernels: {e}"));
        fs::rename(&unfinished, &ptx).map_err(|e| e.to_string())?;
        Ok(ptx)
    })
}
