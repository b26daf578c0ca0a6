//! `warpsim FILE.ptx --kernel K --grid … --block … --arg …`: runs anybody's kernel, checks it, measures it.

mod args;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use warpsim::{Checks, Completion, Device, Gpu, Launch, Module, Options};

/// Runs, checks and measures a PTX kernel without a GPU.
///
/// Exit codes: 0 clean, 1 findings or a fault, 2 bad arguments or PTX.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// PTX text
    file: PathBuf,
    /// Kernel to run; without it the module's kernels are listed
    #[arg(long)]
    kernel: Option<String>,
    /// Blocks: 128, 16x8 or 4x4x2
    #[arg(long, default_value = "1", value_parser = args::dims)]
    grid: [u32; 3],
    /// Threads a block
    #[arg(long, default_value = "1", value_parser = args::dims)]
    block: [u32; 3],
    /// Blocks a cluster
    #[arg(long, default_value = "1", value_parser = args::dims)]
    cluster: [u32; 3],
    /// Bytes of dynamic shared memory
    #[arg(long, default_value_t = 0)]
    shared: u32,
    /// An argument, in order: a number (7, -1, 0.5), a buffer ([name:]TYPE[COUNT][=zeros|ones|iota|random|none|NUMBER|@FILE]),
    /// or a tensor map (map:BUFFER:DIMS:TILE[:SWIZZLE], sizes innermost first, 64x128)
    #[arg(long = "arg", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Checkers: all, none, or some of init,race,sync,offsets
    #[arg(long, default_value = "all", value_parser = args::checks)]
    check: Checks,
    /// Order of warps: 0 is the natural one
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Asynchronous copies happen only when waited for
    #[arg(long)]
    latest: bool,
    /// Prints the counts and the hottest lines
    #[arg(long)]
    metrics: bool,
    /// Registers a thread, as ptxas reports them, for the occupancy
    #[arg(long, default_value_t = 0)]
    registers: u32,
    /// GPU that the occupancy is computed for [default: by the PTX's .target, h100 from sm_90 on and a100 before]
    #[arg(long, value_name = "GPU", ignore_case = true, value_parser = args::device())]
    device: Option<Device>,
    /// Warp instructions that the launch may execute
    #[arg(long, default_value_t = Options::default().launch_limit)]
    limit: u64,
    /// Prints the first elements of a buffer after the run: NAME or NAME:COUNT
    #[arg(long)]
    print: Vec<String>,
    /// Host threads; 0: all cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("warpsim: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool, String> {
    let text = std::fs::read_to_string(&cli.file).map_err(|e| format!("{}: {e}", cli.file.display()))?;
    let module = Module::parse(&text).map_err(|e| e.to_string())?;
    let Some(name) = &cli.kernel else {
        for k in module.kernels() {
            match module.kernel(k) {
                Ok(kernel) => {
                    println!("{k}  parameters {:?}  static shared {}", kernel.parameters(), kernel.static_shared())
                }
                Err(e) => println!("{k}  not supported: {e}"),
            }
        }
        return Ok(true);
    };
    let kernel = module.kernel(name).map_err(|e| e.to_string())?;
    let mut gpu = Gpu::new();
    let mut bound = args::Bound::default();
    let sizes = kernel.parameters();
    if cli.args.len() != sizes.len() {
        return Err(format!("`{name}` takes {} arguments of {sizes:?} bytes; {} given", sizes.len(), cli.args.len()));
    }
    for (a, n) in cli.args.iter().zip(&sizes) {
        bound.add(&mut gpu, a, *n as usize).map_err(|e| format!("--arg {a}: {e}"))?;
    }
    let raw: Vec<&[u8]> = bound.values.iter().map(Vec::as_slice).collect();
    let launch =
        Launch { grid: cli.grid, block: cli.block, cluster: cli.cluster, shared_bytes: cli.shared, args: &raw };
    let options = Options {
        checks: cli.check,
        seed: cli.seed,
        async_completion: if cli.latest { Completion::Latest } else { Completion::Earliest },
        metrics: cli.metrics,
        threads: cli.threads,
        registers: cli.registers,
        device: cli.device,
        launch_limit: cli.limit,
        ..Options::default()
    };
    let start = std::time::Instant::now();
    let report = match gpu.launch(&kernel, &launch, &options) {
        Ok(r) => r,
        Err(f) => {
            print!("{}", f.output);
            println!("{f}");
            return Ok(false);
        }
    };
    print!("{}", report.output);
    for f in &report.findings {
        println!("{f}");
    }
    for p in &cli.print {
        bound.print(&gpu, p)?;
    }
    if let Some(m) = &report.metrics {
        table::print(m);
    }
    eprintln!(
        "{} warp instructions in {:.1?}, {} findings",
        report.instructions,
        start.elapsed(),
        report.findings.len()
    );
    Ok(report.clean())
}
