//! No text, however broken, makes the parser, the lowering or the executor panic.

use proptest::prelude::*;
use warpsim::{Checks, Completion, Gpu, Kind, Launch, Module, Options};

/// Each run draws new cases.
const CASES: u32 = 3000;

const SAMPLE: &str = include_str!("data.ptx");

/// Parses and runs whatever can be run; only panics matter.
fn swallow(text: &str, seed: u64) -> bool {
    let Ok(module) = Module::parse(text) else { return false };
    let mut ran = false;
    for name in module.kernels() {
        let Ok(kernel) = module.kernel(name) else { continue };
        let mut gpu = Gpu::new();
        let p = gpu.alloc_with(&vec![0x3c; 4096], "p");
        let args: Vec<Vec<u8>> = kernel
            .parameters()
            .iter()
            .map(|n| if *n == 8 { p.to_le_bytes().to_vec() } else { vec![7; *n as usize] })
            .collect();
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], shared_bytes: 64, args: &args, ..Launch::default() };
        let async_completion = if seed.is_multiple_of(2) { Completion::Earliest } else { Completion::Latest };
        let options = Options {
            checks: Checks::ALL,
            seed,
            async_completion,
            metrics: true,
            threads: 1,
            instruction_limit: 20_000,
            ..Options::default()
        };
        match gpu.launch(&kernel, &launch, &options) {
            Ok(_) => ran = true,
            // What panics in a launch comes back as an internal fault.
            Err(f) => assert!(f.finding.kind != Kind::Internal, "{f}"),
        }
    }
    ran
}

#[test]
fn the_sample_itself_runs() {
    assert!(swallow(SAMPLE, 0));
    assert!(swallow(SAMPLE, 1));
}

#[derive(Debug, Clone)]
enum Edit {
    Delete(usize),
    Copy(usize, usize),
    Swap(usize, usize),
    Replace(usize, &'static str),
    Number(usize, i64),
    Cut(usize),
}

const WORDS: &[&str] = &[
    "%r1",
    "%rd1",
    "%p1",
    "%f1",
    "%d1",
    "%h1",
    "tile",
    "bar",
    "depot",
    "table",
    "half",
    "dyn",
    "p",
    "n",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    ":",
    "_",
    "-1",
    "0",
    "0x7fffffffffffffff",
    "JOIN",
    "TABLE",
    "square",
    "%tid.x",
    "%clock64",
    "ld.shared.b64",
    "st.local.b32",
    "mov.b64",
    "bar.sync",
    "exit",
    "ret",
    ".reg",
    ".b128",
    "cvt.rzi.s8.f64",
    "wgmma.wait_group.sync.aligned",
    "@%p1",
    "|",
    "!",
    "+",
    "call",
    "atom.shared.cas.b64",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "barrier.cluster.arrive.aligned",
    "barrier.cluster.wait.aligned",
    "mapa.u64",
    "shl.b64",
    "rem.s32",
    "bfi.b64",
    "trap",
    "vprintf",
    "0f7FC00000",
    "cube",
    "pointers",
    "pointer",
    "proto",
    "alloca.u64",
    "stacksave.u64",
    "stackrestore.u64",
    "fns.b32",
    "cvt.pack.sat.s2.s32.b32",
    "mad.hi.sat.s32",
    "set.gtu.f16x2.f16x2",
    "discard.global.L2",
    "mbarrier.pending_count.b64",
    "mbarrier.arrive.noComplete.shared.b64",
    "mbarrier.test_wait.shared.b64",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.dec.u32",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32",
];

fn edit() -> impl Strategy<Value = Edit> {
    let at = 0..4000usize;
    prop_oneof![
        at.clone().prop_map(Edit::Delete),
        (at.clone(), at.clone()).prop_map(|(a, b)| Edit::Copy(a, b)),
        (at.clone(), at.clone()).prop_map(|(a, b)| Edit::Swap(a, b)),
        (at.clone(), prop::sample::select(WORDS)).prop_map(|(a, w)| Edit::Replace(a, w)),
        (at.clone(), any::<i64>()).prop_map(|(a, v)| Edit::Number(a, v)),
        at.prop_map(Edit::Cut),
    ]
}

fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for c in text.chars() {
        let word = |c: char| c.is_alphanumeric() || "_%.$:".contains(c);
        match out.last_mut() {
            Some(last) if word(c) && last.chars().all(word) => last.push(c),
            _ => out.push(c.to_string()),
        }
    }
    out
}

fn apply(mut t: Vec<String>, edits: &[Edit]) -> String {
    for e in edits {
        let n = t.len();
        if n == 0 {
            break;
        }
        match e {
            Edit::Delete(a) => drop(t.remove(a % n)),
            Edit::Copy(a, b) => t.insert(b % n, t[a % n].clone()),
            Edit::Swap(a, b) => t.swap(a % n, b % n),
            Edit::Replace(a, w) => t[a % n] = (*w).to_string(),
            Edit::Number(a, v) => {
                // The next token that is a number.
                if let Some(k) = (0..n).map(|k| (a + k) % n).find(|k| t[*k].starts_with(|c: char| c.is_ascii_digit())) {
                    t[k] = v.to_string();
                }
            }
            Edit::Cut(a) => t.truncate(n - (a % 40).min(n)),
        }
    }
    t.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(s in ".{0,200}") {
        swallow(&s, 0);
    }

    #[test]
    fn any_body(s in "[ -~\n]{0,120}") {
        swallow(&format!(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(){{.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;\n{s}\n}}"), 1);
    }

    #[test]
    fn mutations(edits in prop::collection::vec(edit(), 1..4), seed in 0..4u64) {
        swallow(&apply(tokens(SAMPLE), &edits), seed);
    }
}
