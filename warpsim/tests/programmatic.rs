//! Programmatic launches: what they do before their `griddepcontrol.wait`, and launches that never wait.

use crate::common::all_options;
use warpsim::{Finding, Gpu, Kind, Launch, Module, Options};

/// Kernels over words of `x` and `y`, and a flag behind those of `y`: `%rd1` and `%rd2` point to the thread's own, `%rd3` to the flag.
fn module(kernels: &[(&str, &str)]) -> Module {
    let mut text = ".version 8.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (name, body) in kernels {
        text += &format!(
            ".visible .entry {name}(.param .u64 x, .param .u64 y)\n{{\n.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n\
             .shared .align 16 .b8 tile[256]; .shared .align 8 .b64 bar;\n\
             ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; add.u64 %rd3, %rd2, 512; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n\
             mad.lo.u32 %r3, %r2, 64, %r1; mul.wide.u32 %rd4, %r3, 4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4;\n\
             setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;\n{body}\nret;\n}}\n"
        );
    }
    Module::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

/// Launches the kernels in turn; all but the first are programmatic, but those whose name says that they are not.
fn found(module: &Module, names: &[&str], o: &Options, between: impl Fn(&mut Gpu, u64)) -> Vec<Finding> {
    let mut g = Gpu::new();
    let [x, y] = ["x", "y"].map(|name| g.alloc_with(&[0; 516], name));
    let mut all = vec![];
    for (k, name) in names.iter().enumerate() {
        let args: [&[u8]; 2] = [&x.to_le_bytes(), &y.to_le_bytes()];
        let programmatic = k > 0 && !name.starts_with("plain");
        let l = Launch { grid: [2, 1, 1], block: [64, 1, 1], programmatic, args: &args, ..Launch::default() };
        let report = g.launch(&module.kernel(name).unwrap_or_else(|e| panic!("{e}")), &l, o);
        all.extend(report.unwrap_or_else(|f| panic!("{name}: {f}")).findings);
        between(&mut g, y);
    }
    all
}

/// The launches are quiet in order, and have a race in the last where it is bad.
fn check(kernels: &[(&str, &str)], bad: &[&[&str]], good: &[&[&str]]) {
    let module = module(kernels);
    for o in all_options() {
        for names in good {
            let clean = found(&module, names, &o, |_, _| {});
            assert!(clean.is_empty(), "{names:?}: {}", clean[0]);
        }
        for names in bad {
            let races = found(&module, names, &o, |_, _| {});
            assert!(races.iter().all(|f| f.kind == Kind::GlobalRace), "{names:?}: {races:?}");
            let hit = races.first().unwrap_or_else(|| panic!("{names:?} is quiet"));
            assert!(hit.kernel == names[names.len() - 1] && hit.earlier.is_some(), "{hit}");
            assert!(found(&module, names, &o, |g, y| drop(g.read_vec(y, 4))).is_empty(), "the host waits in between");
        }
    }
}

const WAIT: &str = "griddepcontrol.wait;";
const WRITE: &str = "st.global.u32 [%rd2], %r1;";
const READ: &str = "ld.global.u32 %r4, [%rd2]; st.global.u32 [%rd1], %r4;";

#[test]
fn what_the_launch_ahead_writes_is_waited_for() {
    let kernels = [
        ("writes", WRITE),
        ("signals", &format!("griddepcontrol.launch_dependents; {WRITE}")),
        ("waits", &format!("{WAIT} {READ}")),
        ("early", &format!("{READ} {WAIT}")),
        ("plain", READ),
        ("overwrites", &format!("{WRITE} {WAIT}")),
        ("elsewhere", &format!("st.global.u32 [%rd1], 1; {WAIT}")),
    ];
    let bad: [&[&str]; 4] =
        [&["writes", "early"], &["signals", "early"], &["writes", "overwrites"], &["waits", "elsewhere"]];
    let good: [&[&str]; 5] = [
        &["writes", "waits"],
        &["signals", "waits"],
        &["signals", "plain"],
        &["writes", "elsewhere"],
        &["early", "waits", "waits"],
    ];
    check(&kernels, &bad, &good);
}

#[test]
fn one_thread_waits_for_others() {
    let kernels = [
        ("writes", WRITE),
        ("barrier", &format!("@%p1 {WAIT} bar.sync 0; {READ}")),
        ("alone", &format!("@%p1 {WAIT} {READ}")),
        ("late", &format!("bar.sync 0; @%p1 {WAIT} {READ}")),
        (
            "flag",
            &format!(
                "@!%p2 bra POLL; {WAIT} bar.sync 0; @%p1 st.release.gpu.global.u32 [%rd3], 1; bra GO;\n\
                 POLL: ld.acquire.gpu.global.u32 %r6, [%rd3]; setp.eq.u32 %p3, %r6, 0; @%p3 bra POLL;\nGO: {READ}"
            ),
        ),
    ];
    check(&kernels, &[&["writes", "alone"], &["writes", "late"]], &[&["writes", "barrier"], &["writes", "flag"]]);
}

#[test]
fn a_launch_that_does_not_wait_lets_the_next_overtake_what_is_ahead() {
    let kernels = [
        ("writes", WRITE),
        ("never", "add.u32 %r5, %r1, 1;"),
        ("waits", WAIT),
        ("releases", &format!("griddepcontrol.launch_dependents; {WAIT}")),
        ("reads", &format!("{WAIT} ld.global.u32 %r4, [%rd2];")),
        ("early", "ld.global.u32 %r4, [%rd2]; griddepcontrol.wait;"),
        ("plain", READ),
    ];
    let bad: [&[&str]; 4] = [
        &["writes", "never", "reads"],
        &["writes", "never", "never", "reads"],
        &["writes", "releases", "early"],
        &["writes", "never", "early"],
    ];
    let good: [&[&str]; 5] = [
        &["writes", "waits", "reads"],
        &["writes", "releases", "reads"],
        // Who has waited before the next may start has waited for it too.
        &["writes", "waits", "early"],
        &["writes", "never", "plain"],
        &["writes", "plain", "reads"],
    ];
    check(&kernels, &bad, &good);
}

#[test]
fn launches_count_together_by_atomics() {
    let count = |op: &str| format!("{op} {WAIT}");
    let kernels = [
        ("counts", count("red.global.add.u32 [%rd3], 1;")),
        ("alike", count("atom.global.add.u32 %r4, [%rd3], 1;")),
        ("block", count("@%p1 red.relaxed.cta.global.add.u32 [%rd3], 1;")),
        ("reads", count("ld.global.u32 %r4, [%rd3];")),
    ];
    let kernels: Vec<_> = kernels.iter().map(|(name, body)| (*name, body.as_str())).collect();
    check(&kernels, &[&["counts", "reads"]], &[&["counts", "alike", "counts"]]);
    let module = module(&kernels);
    let races = found(&module, &["counts", "block"], &all_options()[0], |_, _| {});
    assert!(races.iter().any(|f| f.message.contains("launched ahead")), "{races:?}");
}
