//! What the embedded code has to look like.

use std::sync::OnceLock;

use cuda_builder::ptxas;
use warpsmith::DType;
use warpsmith::check::registry::OPERATORS;
use warpsmith::kernels::{self, Arch, KernelImage};
use warpsmith::launch::Instance;
use warpsmith::ops::model::{self, Bound, Case, CaseClass, Operator, TensorMeta};

/// Every kernel with its PTX; none, with a line that says so, in a build without.
fn images() -> &'static [(&'static KernelImage, String)] {
    static IMAGES: OnceLock<Vec<(&KernelImage, String)>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        if let Some(why) = kernels::not_built() {
            eprintln!("skipped without kernels: {why}");
            return Vec::new();
        }
        kernels::images().unwrap().iter().map(|image| (image, image.ptx().unwrap().into_owned())).collect()
    })
}

/// Those of one operator.
fn images_of(op: &dyn Operator) -> Vec<&'static (&'static KernelImage, String)> {
    let of = |kernel: &Instance, image: &KernelImage| (kernel.module, kernel.symbol) == (image.module, image.symbol);
    images().iter().filter(|(image, _)| op.info().instances().any(|kernel| of(kernel, image))).collect()
}

fn at(image: &KernelImage) -> String {
    format!("{} {}", image.symbol, image.arch)
}

#[test]
fn every_kernel_has_an_entry_with_its_bounds_and_for_its_architecture() {
    for (image, ptx) in images() {
        let [x, y, z] = image.block;
        let count = |text: &str| ptx.matches(text).count();
        assert_eq!(count(".entry "), 1, "{}", at(image));
        assert_eq!(count(&format!(".entry {}(", image.symbol)), 1, "{}", at(image));
        assert_eq!(count(&format!(".maxntid {x}, {y}, {z}")), 1, "{}", at(image));
        assert_eq!(count(&format!(".target {}", image.arch)), 1, "{}", at(image));
    }
}

#[test]
fn nothing_is_left_to_local_memory_or_to_calls() {
    for (image, ptx) in images() {
        for text in ["ld.local", "st.local", ".local ", "call.uni", "__cuda_std_panic"] {
            let lines = ptx.lines().filter(|line| line.contains(text) && !line.contains("vprintf"));
            assert_eq!(lines.count(), 0, "{} has `{text}`", at(image));
        }
    }
}

/// The methods of `half` go around the hardware, and count a subnormal's leading zeros, which only the places of top_k have to.
#[test]
fn floats_are_converted_by_instructions() {
    for (image, ptx) in images().iter().filter(|(image, _)| !image.symbol.starts_with("top_k")) {
        assert!(!ptx.contains("clz"), "{} converts by integer arithmetic", at(image));
    }
}

/// Launched before the one ahead has ended, a kernel may see that one's results unfinished until it has waited.
#[test]
fn kernels_that_are_launched_early_wait_before_all_else() {
    const WAIT: &str = "griddepcontrol.wait;";
    for (image, ptx) in images() {
        assert_eq!(image.programmatic, ptx.contains(WAIT), "{}", at(image));
        let Some((ahead, _)) = ptx.split_once(WAIT) else { continue };
        assert_eq!(ptx.matches(WAIT).count(), 1, "{}", at(image));
        let early = ["ld.", "st.", "red.", "atom.", "cp.", "prefetch", "bra"];
        let early =
            |line: &&str| early.iter().any(|name| line.trim_start().starts_with(name)) && !line.contains("ld.param");
        assert_eq!(ahead.lines().find(early), None, "{}", at(image));
    }
    let early = images().iter().filter(|(image, _)| image.programmatic).count();
    assert!(images().is_empty() || early > 0);
}

#[test]
fn shared_memory_is_accessed_as_such() {
    // A lesson's copy holds memory only so that fewer of its blocks fit.
    let uses = |symbol: &str| !symbol.starts_with("packs_in_flight_");
    for (image, ptx) in images().iter().filter(|(image, _)| image.shared_bytes > 0 && uses(image.symbol)) {
        let named = ["ld.shared", "st.shared", ".shared::", "ldmatrix", "cp.async", "wgmma"];
        assert!(named.iter().any(|text| ptx.contains(text)), "{} uses no shared memory", at(image));
    }
}

#[test]
fn memory_is_accessed_by_its_address_space() {
    let generic = |line: &str| {
        let line = line.trim_start();
        ["ld.", "st."].iter().any(|access| {
            line.strip_prefix(access).is_some_and(|rest| {
                // Loads that acquire and stores that release are atomic operations, which take pointers to any space.
                !["param", "global", "shared", "const", "async", "acquire", "release"].iter().any(|space| {
                    rest.split_whitespace().next().is_some_and(|op| op.split('.').any(|part| part.starts_with(space)))
                })
            })
        })
    };
    for (image, ptx) in images() {
        let found: Vec<_> = ptx.lines().filter(|line| generic(line)).collect();
        assert!(found.is_empty(), "{}: {found:?}", at(image));
    }
}

/// Which share of a case's bytes its inputs are: none where the outputs alone are the traffic, whatever they held before.
fn share_read(op: &dyn Operator, case: &Case) -> f64 {
    let inputs: Vec<_> = op.inputs(case).unwrap().iter().map(|spec| spec.meta()).collect();
    let outputs = model::outputs(op, &inputs, &case.params).unwrap();
    let bytes = |metas: &[TensorMeta]| metas.iter().map(|m| m.elements().unwrap_or(0) * m.dtype.size()).sum::<usize>();
    if op.cost(case).is_ok_and(|cost| cost.bytes == bytes(&outputs) as u64) {
        return 0.0;
    }
    bytes(&inputs) as f64 / (bytes(&inputs) + bytes(&outputs)).max(1) as f64
}

/// Accesses of eight bytes that, one a row and all under way at once, do as well as some of sixteen.
const MANY: usize = 32;

/// Bytes of traffic that take a microsecond.
const NEXT_TO_NOTHING: u64 = 4 << 20;

#[test]
fn what_memory_bounds_moves_sixteen_bytes_at_a_time() {
    for op in OPERATORS {
        let cases = op.cases();
        let bound_by_memory = cases.iter().all(|case| op.cost(case).is_ok_and(|c| c.bound == Bound::Memory));
        let images = images_of(*op);
        if images.is_empty() || !bound_by_memory {
            continue;
        }
        // What most of the traffic is: a product with a vector stores next to nothing, a table is computed from as little.
        let timed = cases.iter().find(|case| case.class == CaseClass::Production).unwrap_or(&cases[0]);
        // A number a token is moved in less time than a launch takes, however it is moved.
        if op.cost(timed).is_ok_and(|cost| cost.bytes < NEXT_TO_NOTHING) {
            continue;
        }
        let read = share_read(*op, timed);
        let mostly: Vec<_> =
            [("ld.global", read > 0.4), ("st.global", read < 0.6)].into_iter().filter(|c| c.1).collect();
        // Not every kernel: an operator may have one for rows that start anywhere.
        let wide = |ptx: &str, access: &str| {
            let count = |parts: &[&str]| {
                let has = |line: &&str| line.contains(access) && parts.iter().any(|part| line.contains(part));
                ptx.lines().filter(has).count()
            };
            count(&[".v4.", ".v2.b64"]) > 0 || count(&[".v2.b32"]) >= MANY
        };
        let all_wide = |ptx: &str| mostly.iter().all(|(access, _)| wide(ptx, access));
        assert!(images.iter().any(|(_, ptx)| all_wide(ptx)), "{}: none of {} kernels", op.info().name, images.len());
    }
}

#[test]
fn hopper_instructions_are_where_they_should_be_and_nowhere_else() {
    let hopper = ["wgmma.mma_async", "cp.async.bulk", "setmaxnreg", "mbarrier.try_wait"];
    for (image, ptx) in images().iter().filter(|(image, _)| image.arch != Arch::Sm90a) {
        for text in hopper {
            assert!(!ptx.contains(text), "{} has `{text}`", at(image));
        }
    }
    for op in OPERATORS.iter().filter(|op| op.info().variants.iter().any(|v| v.name == "hopper")) {
        let images = images_of(*op);
        let has = |text: &str| images.iter().any(|(_, ptx)| ptx.contains(text));
        // No tensor core multiplies in f32.
        let needed = if op.info().dtypes == [DType::F32] { &hopper[1..2] } else { &hopper[..2] };
        assert!(images.is_empty() || needed.iter().all(|text| has(text)), "{}", op.info().name);
    }
}

/// What a kernel may spill that does not declare `no_spills`: some words outside its products, not an array in local memory.
const MAX_STACK_BYTES: u32 = 400;

#[test]
fn the_assembler_takes_everything_and_spills_little() {
    let Some(ptxas) = ptxas::find() else {
        eprintln!("skipped without ptxas");
        return;
    };
    for (image, _) in images().iter().filter(|(image, _)| ptxas.supports(image.arch)) {
        let used =
            image.resources().unwrap_or_else(|| panic!("{}: compiled without the ptxas that is here", at(image)));
        let serialized = used.notes.iter().any(|note| note.contains("Performance Loss"));
        assert!(!serialized && used.stack_bytes <= MAX_STACK_BYTES, "{}: {used}", at(image));
    }
}
