//! `warpsim FILE.ptx --kernel K --grid … --block … --arg …`: runs anybody's kernel, checks it, measures it.

/// Like the standard macro, but does not panic if the reader has closed the pipe.
macro_rules! print {
    ($($text:tt)*) => { $crate::say(format_args!($($text)*)) };
}

/// Likewise.
macro_rules! println {
    ($($text:tt)*) => { $crate::say(format_args!("{}\n", format_args!($($text)*))) };
}

mod args;
mod buffers;
mod demangle;
mod npy;
mod table;
mod values;

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::Instant;

use clap::Parser;
use warpsim::{Checks, Completion, Device, Gpu, HEAP_BYTES, Kernel, Kind, Launch, Module, Options, Progress};

use buffers::Buffers;
use demangle::demangle;

/// Runs, checks and measures a PTX kernel without a GPU.
///
/// Exit codes: 0 clean, 1 findings or a fault, 2 bad arguments, a launch that no GPU would accept, or PTX that is not supported.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// PTX text
    file: PathBuf,
    /// Kernel to run, by its symbol or its C++ name; the only one of a module needs none. Otherwise, or without the arguments
    /// that it takes, the module's kernels are listed
    #[arg(long)]
    kernel: Option<String>,
    #[command(flatten)]
    shape: Shape,
    /// A launch over the same buffers, behind the others: "KERNEL --grid 2 --block 64 --arg x --arg 7", where `x` is a
    /// buffer that an earlier argument named
    #[arg(long, value_name = "LAUNCH")]
    launch: Vec<String>,
    /// A variable of the module: NAME:TYPE[COUNT][=CONTENTS], with a buffer's contents
    #[arg(long, value_name = "VARIABLE")]
    var: Vec<String>,
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
    #[arg(long, help = limits())]
    limit: Option<u64>,
    /// Bytes that threads may have from malloc at once
    #[arg(long, value_name = "BYTES", default_value_t = HEAP_BYTES)]
    heap: u64,
    /// Prints the first elements of a buffer after the run: NAME or NAME:COUNT
    #[arg(long)]
    print: Vec<String>,
    /// Writes a buffer to a file: NAME=FILE.npy, which NumPy loads, or NAME=FILE.safetensors
    #[arg(long, value_name = "NAME=FILE")]
    save: Vec<String>,
    /// Host threads; 0: all cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What a launch is made of.
#[derive(clap::Args)]
struct Shape {
    /// Blocks: 128, 16x8 or 4x4x2
    #[arg(long, default_value = "1", value_parser = args::dims)]
    grid: [u32; 3],
    /// Threads a block
    #[arg(long, default_value = "1", value_parser = args::dims)]
    block: [u32; 3],
    /// Blocks a cluster
    #[arg(long, default_value = "1", value_parser = args::dims)]
    cluster: [u32; 3],
    /// The blocks wait for each other (grid.sync()): refused when the GPU does not hold all of them at once
    #[arg(long)]
    cooperative: bool,
    /// It may start before the launch ahead of it has ended (programmatic dependent launch): what it does before griddepcontrol.wait is checked
    #[arg(long)]
    programmatic: bool,
    /// Bytes of dynamic shared memory
    #[arg(long, default_value_t = 0)]
    shared: u32,
    /// An argument, in order: a number (7, -1, 0.5, f16:0.5), a buffer ([name:]TYPE[COUNT][=zeros|ones|iota|random|none|NUMBER|@FILE]),
    /// the name of one, a structure ({u32:7,f32:0.5,name}), or a tensor map (map:BUFFER:DIMS:TILE[:SWIZZLE] or
    /// im2col:BUFFER:DIMS:LOWER:UPPER:CHANNELSxPIXELS[:SWIZZLE], sizes innermost first, 64x128)
    #[arg(long = "arg", allow_hyphen_values = true)]
    args: Vec<String>,
}

/// A launch in one string.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Step {
    kernel: String,
    #[command(flatten)]
    shape: Shape,
}

/// Prints. If the reader has closed the pipe, as `head` does, the program ends; a full disk is an error.
fn say(text: Arguments<'_>) {
    match io::stdout().write_fmt(text) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("warpsim: cannot write: {error}");
            process::exit(2)
        }
    }
}

/// The help text of `--limit`, with the library's defaults.
fn limits() -> String {
    let Options { launch_limit, instruction_limit, .. } = Options::default();
    format!(
        "Warp instructions that a launch may execute, and each of its blocks or clusters [default: {launch_limit}, of a block or cluster \
         {instruction_limit}]"
    )
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
    let steps = cli.launch.iter().map(|line| {
        let step = args::words(line).and_then(|words| Step::try_parse_from(words).map_err(|e| e.to_string()));
        step.map_err(|e| format!("--launch {line}: {e}"))
    });
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    let kernel = cli.kernel.as_deref().or_else(|| if steps.is_empty() { only(&module, &cli.shape) } else { None });
    let mut launches: Vec<(&str, &Shape)> = kernel.iter().map(|name| (*name, &cli.shape)).collect();
    launches.extend(steps.iter().map(|step| (step.kernel.as_str(), &step.shape)));
    if launches.is_empty() {
        list(&module);
        return if module.kernels().is_empty() {
            Err(format!("{}: no kernel in it", cli.file.display()))
        } else {
            Ok(true)
        };
    }
    let (mut gpu, mut buffers) = (Gpu::with_heap(cli.heap), Buffers::default());
    for spec in &cli.var {
        buffers.variable(&mut gpu, &module, spec).map_err(|e| format!("--var {spec}: {e}"))?;
    }
    // All buffers exist before the first launch: the host does nothing between two launches.
    let ready = launches.iter().map(|(name, shape)| arguments(&module, &mut gpu, &mut buffers, name, shape));
    let ready = ready.collect::<Result<Vec<_>, _>>()?;
    let mut clean = true;
    for (&(name, shape), (kernel, values)) in launches.iter().zip(&ready) {
        match launch(cli, &mut gpu, (name, kernel), shape, values)? {
            Some(quiet) => clean &= quiet,
            None => return Ok(false),
        }
    }
    if cli.check != Checks::NONE {
        let leaks = gpu.leaks();
        leaks.iter().for_each(|leak| println!("{leak}"));
        clean &= leaks.is_empty();
    }
    for spec in &cli.print {
        buffers.print(&gpu, spec)?;
    }
    for spec in &cli.save {
        buffers.save(&gpu, spec).map_err(|e| format!("--save {spec}: {e}"))?;
    }
    Ok(clean)
}

/// The module's kernel, if it has only one and arguments are given, or it takes none.
fn only<'a>(module: &'a Module, shape: &Shape) -> Option<&'a str> {
    let [name] = module.kernels()[..] else { return None };
    let takes = || module.kernel(name).map_or(0, |k| k.parameters().len());
    (!shape.args.is_empty() || takes() == 0).then_some(name)
}

fn list(module: &Module) {
    for k in module.kernels() {
        let readable = demangle(k).map_or(String::new(), |name| format!("  ({name})"));
        match module.kernel(k) {
            Ok(kernel) => {
                println!(
                    "{k}{readable}  parameters {:?}  static shared {}",
                    kernel.parameters(),
                    kernel.static_shared()
                )
            }
            Err(e) => println!("{k}{readable}  not supported: {e}"),
        }
    }
}

/// The kernel with a symbol, or the only kernel with a C++ name: `reduce<256>`, or just `reduce`.
fn kernel(module: &Module, name: &str) -> Result<Kernel, String> {
    let all = module.kernels();
    let base = |full: &str| full.split('<').next().unwrap_or_default().to_string();
    let called = |k: &str| demangle(k).is_some_and(|full| full == name || base(&full) == name);
    let named: Vec<&str> = all.iter().copied().filter(|k| called(k)).collect();
    let symbol = match named.as_slice() {
        _ if all.contains(&name) => name,
        [one] => one,
        [] => name,
        several => return Err(format!("`{name}` may be any of: {}", several.join(", "))),
    };
    module.kernel(symbol).map_err(|e| e.to_string())
}

/// The kernel of a launch, and the bytes of its arguments.
fn arguments(
    module: &Module,
    gpu: &mut Gpu,
    buffers: &mut Buffers,
    name: &str,
    shape: &Shape,
) -> Result<(Kernel, Vec<Vec<u8>>), String> {
    let kernel = kernel(module, name)?;
    let (sizes, types) = (kernel.parameters(), kernel.parameter_types());
    if shape.args.len() != sizes.len() {
        return Err(format!("`{name}` takes {} arguments of {sizes:?} bytes; {} given", sizes.len(), shape.args.len()));
    }
    let mut values = vec![];
    for ((spec, n), ty) in shape.args.iter().zip(&sizes).zip(types) {
        let value = buffers.argument(gpu, spec, *n as usize, ty);
        values.push(value.map_err(|e| format!("--arg {spec}: {e}"))?);
    }
    Ok((kernel, values))
}

/// Whether the launch was clean; `None` if it ended with a fault.
fn launch(
    cli: &Cli,
    gpu: &mut Gpu,
    (name, kernel): (&str, &Kernel),
    shape: &Shape,
    values: &[Vec<u8>],
) -> Result<Option<bool>, String> {
    let args: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let launch = Launch {
        grid: shape.grid,
        block: shape.block,
        cluster: shape.cluster,
        shared_bytes: shape.shared,
        cooperative: shape.cooperative,
        programmatic: shape.programmatic,
        args: &args,
    };
    let defaults = Options::default();
    let options = Options {
        checks: cli.check,
        seed: cli.seed,
        async_completion: if cli.latest { Completion::Latest } else { Completion::Earliest },
        metrics: cli.metrics,
        threads: cli.threads,
        registers: cli.registers,
        device: cli.device,
        instruction_limit: cli.limit.unwrap_or(defaults.instruction_limit),
        launch_limit: cli.limit.unwrap_or(defaults.launch_limit),
        progress: Some(progress),
    };
    let start = Instant::now();
    let report = match gpu.launch(kernel, &launch, &options) {
        Ok(report) => report,
        Err(fault) if fault.finding.kind == Kind::InvalidLaunch => return Err(fault.to_string()),
        Err(fault) => {
            print!("{}", fault.output);
            println!("{fault}");
            return Ok(None);
        }
    };
    print!("{}", report.output);
    for f in &report.findings {
        println!("{f}");
    }
    if let Some(m) = &report.metrics {
        table::print(m);
    }
    let (count, took) = (report.findings.len(), start.elapsed());
    eprintln!("{name}: {} warp instructions in {took:.1?}, {count} findings", report.instructions);
    Ok(Some(report.clean()))
}

/// Reports every few seconds how far a launch has come.
fn progress(p: Progress) {
    use std::sync::Mutex;
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.lock() else { return };
    if last.get_or_insert_with(Instant::now).elapsed().as_secs() >= 5 {
        *last = Some(Instant::now());
        eprintln!("{} of {} blocks, {} warp instructions", p.ended, p.blocks, p.instructions);
    }
}
