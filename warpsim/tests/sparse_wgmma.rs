//! `wgmma.mma_async.sp` against dense products: every type and selector, A from registers and from shared memory. An H200
//! gives the same for each of them.
#![allow(clippy::precedence)]

use crate::common::*;
use crate::sparse::{Case, cases, chosen, chunk_of};
use warpsim::{Fault, Gpu, Kind, Report};

/// Where things lie in the buffer, most of which is copied to shared memory as it is.
const B: usize = 16384;
const FRAGMENTS: usize = 24576;
const METADATA: usize = 28672;
const BYTES: usize = 32768;
const N: usize = 16;

/// What a matrix looks like in shared memory: no swizzle, or rows of so many bytes with a swizzle; or the other way round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Plain,
    Rows(usize),
    Columns,
}

impl Layout {
    /// Where element (row, k) of a matrix of `rows` rows lies.
    fn at(self, rows: usize, row: usize, k: usize, bytes: usize) -> usize {
        let byte = k * bytes;
        let swizzled = |x: usize, span: usize| x ^ (x >> 7 & (span / 16 - 1)) << 4;
        match self {
            // Pieces of 8 rows by 16 bytes, all pieces of one column of pieces together.
            Layout::Plain => byte / 16 * rows * 16 + row * 16 + byte % 16,
            // What is longer than a row goes on 1024 bytes further.
            Layout::Rows(span) => byte / span * 1024 + swizzled(row * span + byte % span, span),
            // Rows of 64 elements of two bytes, or of 16 of them, one for each k.
            Layout::Columns => {
                let span = 2 * rows.min(64);
                swizzled(k * span + 2 * row, span)
            }
        }
    }

    fn descriptor(self, start: usize, rows: usize) -> u64 {
        let (leading, stride, code) = match self {
            Layout::Plain => (rows * 16, 128, 0),
            Layout::Rows(span) => (1024, 8 * span, 4 - (span / 32).ilog2() as u64 - 1),
            Layout::Columns => (4096, 16 * rows.min(64), if rows >= 64 { 1 } else { 3 }),
        };
        (start >> 4) as u64 | (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | code << 62
    }
}

/// The kernel; A comes from registers when it has no layout.
fn module(c: &Case, selector: usize, a: Option<Layout>, b: Layout) -> String {
    let regs: Vec<String> = (0..N / 2).map(|r| format!("%f{r}")).collect();
    let ones: String = regs.iter().map(|r| format!("mov.b32 {r}, {};\n", one(c))).collect();
    let stores: String = (0..N / 2).map(|r| format!("st.global.b32 [%rd6+{}], %f{r};\n", 512 * r)).collect();
    let (types, _) = c.types.rsplit_once('.').unwrap();
    let from = if a.is_some() { "%rd4" } else { "{%r10, %r11, %r12, %r13}" };
    let turned = |l: Layout| format!(", {}", u32::from(l == Layout::Columns));
    let rest = match c.bits {
        8 if types.starts_with('s') => "1".to_owned(),
        16 => format!("1, 1, 1{}{}", a.map(turned).unwrap_or_default(), turned(b)),
        _ => "1, 1, 1".to_owned(),
    };
    format!(
        ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %f<{N}>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .shared .align 1024 .b8 tile[{BYTES}];\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, %r2; mov.u32 %r4, tile;\n\
         L: cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd1; ld.global.u32 %r5, [%rd3]; add.u32 %r6, %r4, %r3; st.shared.u32 [%r6], %r5;\n\
         add.u32 %r3, %r3, 512; setp.lt.u32 %p1, %r3, {BYTES}; @%p1 bra L;\nfence.proxy.async.shared::cta; bar.sync 0;\n\
         mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd3, %rd1; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd3+{FRAGMENTS}];\n\
         mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd1; ld.global.u32 %r14, [%rd3+{METADATA}];\n\
         cvt.u64.u32 %rd7, %r4; shr.u64 %rd7, %rd7, 4; add.u64 %rd4, %rd7, {}; add.u64 %rd5, %rd7, {};\n{ones}wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sp.sync.aligned.m64n{N}k{}.{types} {{{}}}, {from}, %rd5, %r14, {selector}, {rest};\n\
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n\
         mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd6, %rd2;\n{stores}ret;\n}}",
        a.map_or(0, |a| a.descriptor(0, 64)),
        b.descriptor(B, N),
        c.k,
        regs.join(", "),
    )
}

fn one(c: &Case) -> u32 {
    if c.types.starts_with('s') { 1 } else { 0x3f80_0000 }
}

/// The buffer, and the dense product plus one.
fn problem(c: &Case, selector: usize, a: Option<Layout>, b: Layout, seed: u64) -> (Vec<u8>, Vec<i32>) {
    let (k, held, bytes, chunk) = (c.k, c.k / 2, c.bits / 8, chunk_of(c.bits));
    let small = |n: usize, seed: u64| noise(n, seed).iter().map(|v| (v * 3.9) as i32).collect::<Vec<_>>();
    let (packed, dense_b) = (small(64 * held, seed), small(N * k, seed + 1));
    let mut choices = noise(64 * k / chunk, seed + 2).into_iter().map(|v| ((v + 1.0) * 1000.0) as usize);
    let mut out = vec![0u8; BYTES];
    let mut put = |at: usize, v: i32| out[at..at + bytes].copy_from_slice(&(c.encode)(v).to_le_bytes()[..bytes]);
    for row in 0..64 {
        for e in 0..held {
            let v = packed[row * held + e];
            // The word that holds it among a row's, two of which belong to each lane of a group.
            let (word, within) = (e * bytes / 4, e * bytes % 4);
            let (thread, register) = (row / 16 * 32 + row % 8 * 4 + word % 4, row / 8 % 2 + 2 * (word / 4));
            put(FRAGMENTS + 16 * thread + 4 * register + within, v);
            if let Some(a) = a {
                put(a.at(64, row, e, bytes), v);
            }
        }
    }
    for row in 0..N {
        (0..k).for_each(|e| put(B + b.at(N, row, e, bytes), dense_b[row * k + e]));
    }
    let (mut dense, mut metadata) = (vec![0; 64 * k], [0u32; 128]);
    for row in 0..64 {
        for at in 0..k / chunk {
            let (nibble, places) = chosen(chunk, choices.next().unwrap());
            for (e, place) in places.iter().enumerate() {
                dense[row * k + at * chunk + place] = packed[row * held + at * chunk / 2 + e];
            }
            let (lane, bit) = (c.place)(selector, row / 8 % 2, at);
            metadata[row / 16 * 32 + row % 8 * 4 + lane] |= nibble << bit;
        }
    }
    for (t, word) in metadata.iter().enumerate() {
        out[METADATA + 4 * t..][..4].copy_from_slice(&word.to_le_bytes());
    }
    let sum = |i: usize| (0..k).map(|x| dense[i / N * k + x] * dense_b[i % N * k + x]).sum::<i32>();
    (out, (0..64 * N).map(|i| 1 + sum(i)).collect())
}

fn launch(text: &str, buffer: &[u8], o: &warpsim::Options) -> Result<(Vec<u32>, Report), Fault> {
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(buffer, "tiles"), g.alloc(512 * N / 2, "d"));
    let r = try_run(&mut g, text, "k", [1; 3], [128, 1, 1], 0, &[&p.to_le_bytes(), &q.to_le_bytes()], o)?;
    Ok((read(&g, q, 128 * N / 2), r))
}

/// The shapes that a warpgroup has.
fn shapes() -> Vec<Case> {
    cases().into_iter().filter(|c| matches!((c.bits, c.k), (16, 32) | (32, 16) | (8, 64))).collect()
}

#[test]
fn every_type_selector_and_layout() {
    use Layout::*;
    for (n, c) in shapes().iter().enumerate() {
        let mut layouts = vec![
            (None, Plain),
            (None, Rows(64)),
            (None, Rows(32)),
            (Some(Plain), Rows(128)),
            (Some(Rows(32)), Rows(64)),
            (Some(Rows(64)), Plain),
            (Some(Rows(128)), Rows(64)),
        ];
        if c.bits == 16 {
            layouts.extend([(Some(Columns), Columns), (None, Columns), (Some(Columns), Rows(128))]);
        }
        for selector in 0..c.selectors {
            for (m, &(a, b)) in layouts.iter().enumerate() {
                let (buffer, want) = problem(c, selector, a, b, 1000 * n as u64 + 10 * m as u64 + selector as u64 + 1);
                let text = module(c, selector, a, b);
                for o in all_options() {
                    let (out, report) = launch(&text, &buffer, &o).unwrap_or_else(|f| panic!("{f}"));
                    assert!(report.clean(), "{}", report.findings[0]);
                    for (i, word) in out.into_iter().enumerate() {
                        let (t, r) = (i % 128, i / 128);
                        let (row, col) = (t / 32 * 16 + t % 32 / 4 + r / 2 % 2 * 8, r / 4 * 8 + t % 4 * 2 + r % 2);
                        let got = if c.types.starts_with('s') { word as i32 } else { f32::from_bits(word) as i32 };
                        assert_eq!(got, want[row * N + col], "{} {selector} {a:?} {b:?} ({row},{col})", c.types);
                    }
                }
            }
        }
    }
}

#[test]
fn metadata_is_read_at_once_and_has_to_name_two_places() {
    let shapes = shapes();
    let c = &shapes[0];
    let (a, b) = (Some(Layout::Rows(32)), Layout::Rows(64));
    let (buffer, _) = problem(c, 1, a, b, 7);
    let text = module(c, 1, a, b);
    for o in all_options() {
        // Row 8 of the second warp, bits 28 of the selected pair's second lane.
        let mut bad = buffer.clone();
        bad[METADATA + 4 * 35 + 3] = bad[METADATA + 4 * 35 + 3] & 0xf | 0b1010 << 4;
        let fault = launch(&text, &bad, &o).unwrap_err();
        assert_eq!((fault.finding.kind, fault.finding.thread), (Kind::IllegalInstruction, [35, 0, 0]));
        assert!(fault.to_string().contains("0b1010 (row 8, bit 28"), "{fault}");
        // Its register is the thread's again behind the instruction, which the accumulators' are not.
        let touch = |r: &str| text.replace("wgmma.commit_group", &format!("mov.b32 {r}, 0; wgmma.commit_group"));
        assert!(launch(&touch("%r14"), &buffer, &o).unwrap().1.clean());
        let found = launch(&touch("%f3"), &buffer, &o).unwrap().1.findings;
        assert!(found.iter().any(|f| f.kind == Kind::AsyncRace), "{found:?}");
        // Metadata that nobody made.
        let none = text.replace("ld.global.u32 %r14, [%rd3+28672];", "@%p1 mov.u32 %r14, 0;");
        let fault = launch(&none, &buffer, &o).unwrap_err();
        assert!(fault.also.iter().any(|f| f.kind == Kind::UninitialisedRegister), "{fault}");
    }
}

#[test]
fn selectors_and_shapes_that_there_are_not() {
    let all = shapes();
    let (c, s8) = (&all[0], all.iter().find(|c| c.bits == 8).unwrap());
    let b = Layout::Rows(64);
    let refused = |text: &str| {
        let e = warpsim::Module::parse(text).unwrap().kernel("k").err();
        e.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    assert!(refused(&module(c, 2, None, b)).contains("the sparsity selector 2: this shape's are below 2"));
    assert!(refused(&module(s8, 1, None, b)).contains("the sparsity selector 1: this shape's are below 1"));
    assert!(refused(&module(c, 0, None, b).replace("n16k32", "n16k16")).contains("shape or type is not supported"));
}
