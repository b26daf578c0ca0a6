//! Tensor copies pixel by pixel, against a walk over all places that a filter comes to. An H200 loads the same in each case, and
//! raises an illegal instruction where a copy is refused here, but for offsets that are too large.

use crate::common::*;
use warpsim::{DataType, Fault, Gpu, Im2col, Kind, Launch, Module, Options, Report, Swizzle, TensorMap};

const HEAD: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n";

struct Case {
    /// Channels, width, height, depth as far as there are, images.
    dims: Vec<u64>,
    lower: Vec<i32>,
    upper: Vec<i32>,
    steps: Vec<u32>,
    channels: u32,
    pixels: u32,
    swizzle: Swizzle,
    at: Vec<i32>,
    off: Vec<u16>,
}

impl Case {
    fn map(&self, address: u64) -> TensorMap {
        let strides: Vec<u64> = (1..self.dims.len()).map(|d| 2 * self.dims[..d].iter().product::<u64>()).collect();
        let i = Im2col {
            lower: self.lower.clone(),
            upper: self.upper.clone(),
            steps: self.steps.clone(),
            channels: self.channels,
            pixels: self.pixels,
        };
        TensorMap::im2col(DataType::U16, address, &self.dims, &strides, i, self.swizzle).unwrap()
    }

    fn bytes(&self) -> usize {
        2 * (self.channels * self.pixels) as usize
    }

    /// For each pixel the coordinates of its first channel, offsets and all.
    fn walk(&self) -> Vec<Vec<i64>> {
        let spatial = self.lower.len();
        let last = |d: usize| self.dims[d + 1] as i64 - 1 + i64::from(self.upper[d]);
        // All places in the order in which they are read, from an outer list to an inner one.
        let mut all: Vec<Vec<i64>> = (0..self.dims[spatial + 1] as i64 + 100).map(|n| vec![n]).collect();
        for d in (0..spatial).rev() {
            let step = self.steps.get(d).map_or(1, |s| *s as usize);
            let range: Vec<i64> = (i64::from(self.lower[d])..=last(d)).step_by(step).collect();
            let add = |p: &Vec<i64>| -> Vec<Vec<i64>> { range.iter().map(|x| [&[*x], &p[..]].concat()).collect() };
            all = all.iter().flat_map(add).collect();
        }
        let start: Vec<i64> = self.at[1..].iter().map(|v| i64::from(*v)).collect();
        let first = all.iter().position(|p| *p == start).unwrap();
        let moved = |p: &Vec<i64>| {
            let off = self.off.iter().map(|o| i64::from(*o)).chain([0]);
            [i64::from(self.at[0])].into_iter().chain(p.iter().zip(off).map(|(x, o)| x + o)).collect()
        };
        all[first..first + self.pixels as usize].iter().map(moved).collect()
    }

    fn element(&self, at: &[i64], channel: i64) -> Option<usize> {
        let at: Vec<i64> = [at[0] + channel].into_iter().chain(at[1..].iter().copied()).collect();
        let inside = at.iter().zip(&self.dims).all(|(x, n)| (0..*n as i64).contains(x));
        inside.then(|| at.iter().zip(&self.dims).rev().fold(0, |sum, (x, n)| sum * *n as usize + *x as usize))
    }

    /// The kernel that copies and then stores shared memory as it is.
    fn load(&self) -> String {
        let (rank, bytes) = (self.dims.len(), self.bytes());
        let coordinates: Vec<String> = self.at.iter().enumerate().map(|(k, _)| format!("%r{}", 10 + k)).collect();
        let offsets: Vec<String> = self.off.iter().enumerate().map(|(k, _)| format!("%h{}", k + 1)).collect();
        let set: String = self.at.iter().zip(&coordinates).map(|(v, r)| format!("mov.b32 {r}, {v};\n")).collect();
        let set_off: String = self.off.iter().zip(&offsets).map(|(v, r)| format!("mov.b16 {r}, {v};\n")).collect();
        format!(
            "{HEAD}.visible .entry k(.param .align 64 .b8 map[128], .param .u64 q)\n{{\n\
             .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %h<5>; .shared .align 1024 .b8 tile[{bytes}]; .shared .align 8 .b64 bar;\n\
             ld.param.u64 %rd1, [q]; mov.u32 %r3, %tid.x; mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;\n{set}{set_off}\
             mov.u32 %r4, tile; mov.u32 %r5, bar; setp.eq.u32 %p1, %r3, 0;\n\
             @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0; @!%p1 bra W;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {bytes};\n\
             cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r4], [%rd3, {{{}}}], [%r5], {{{}}};\n\
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra W;\n\
             shl.b32 %r6, %r3, 2;\nL: add.u32 %r7, %r4, %r6; ld.shared.u32 %r8, [%r7]; cvt.u64.u32 %rd4, %r6; add.u64 %rd4, %rd4, %rd1; st.global.u32 [%rd4], %r8;\n\
             add.u32 %r6, %r6, 256; setp.lt.u32 %p3, %r6, {bytes}; @%p3 bra L;\nret;\n}}",
            coordinates.join(", "),
            offsets.join(", ")
        )
    }

    fn source(&self) -> Vec<u16> {
        (1..=self.dims.iter().product::<u64>()).map(|v| v as u16).collect()
    }

    /// What lies in shared memory afterwards.
    fn loaded(&self) -> Vec<u16> {
        let (src, row) = (self.source(), self.channels as usize);
        let mut out = vec![0; self.bytes() / 2];
        for (p, at) in self.walk().iter().enumerate() {
            for c in 0..row {
                let linear = 2 * (p * row + c);
                let place = linear ^ (linear >> 7 & [0, 1, 3, 7][self.swizzle as usize]) << 4;
                out[place / 2] = self.element(at, c as i64).map_or(0, |e| src[e]);
            }
        }
        out
    }
}

fn cases() -> Vec<Case> {
    let case = |dims: &[u64],
                lower: &[i32],
                upper: &[i32],
                steps: &[u32],
                [channels, pixels]: [u32; 2],
                swizzle,
                at: &[i32],
                off: &[u16]| Case {
        dims: dims.to_vec(),
        lower: lower.to_vec(),
        upper: upper.to_vec(),
        steps: steps.to_vec(),
        channels,
        pixels,
        swizzle,
        at: at.to_vec(),
        off: off.to_vec(),
    };
    use Swizzle::*;
    vec![
        // A filter of three, padded by one: from the first place, from one in the middle, over the end of the last image.
        case(&[16, 10, 3], &[-1], &[-1], &[], [16, 24], None, &[0, -1, 0], &[0]),
        case(&[16, 10, 3], &[-1], &[-1], &[], [8, 24], None, &[8, 4, 1], &[2]),
        case(&[16, 10, 3], &[-1], &[-1], &[], [16, 24], B32, &[0, 3, 2], &[1]),
        // 3 × 3 on images of 9 × 7.
        case(&[32, 9, 7, 2], &[-1, -1], &[-1, -1], &[], [32, 64], B64, &[0, -1, -1, 0], &[0, 0]),
        case(&[32, 9, 7, 2], &[-1, -1], &[-1, -1], &[], [32, 64], B64, &[0, 5, 3, 0], &[2, 1]),
        case(&[32, 9, 7, 2], &[-1, -1], &[-1, -1], &[], [32, 100], None, &[16, 2, 4, 1], &[1, 2]),
        // 5 × 3, without padding; channels that end inside a row.
        case(&[72, 12, 8, 2], &[0, 0], &[-4, -2], &[], [64, 33], B128, &[64, 6, 1, 0], &[4, 0]),
        // Dilation: offsets beyond the filter's size. Corners that differ from side to side.
        case(&[16, 9, 7, 3], &[-3, -2], &[-2, -3], &[], [16, 80], B32, &[0, 1, -2, 1], &[6, 5]),
        // Steps of two, and of three by two.
        case(&[16, 10, 8, 3], &[-1, -1], &[-1, -1], &[2, 2], [16, 60], None, &[0, -1, 1, 0], &[1, 2]),
        case(&[16, 11, 8, 3], &[-1, 0], &[-1, -2], &[3, 2], [16, 60], None, &[0, 2, 2, 0], &[2, 0]),
        // Volumes.
        case(&[16, 5, 4, 6, 2], &[-1, -1, -1], &[-1, -1, -1], &[], [16, 200], None, &[0, -1, -1, -1, 0], &[0, 2, 1]),
        case(&[16, 5, 4, 6, 2], &[-1, 0, -2], &[-1, -1, 0], &[1, 2, 1], [16, 150], B32, &[0, 2, 2, 3, 0], &[2, 1, 3]),
    ]
}

fn launch(g: &mut Gpu, text: &str, args: &[&[u8]], o: &Options) -> Result<Report, Fault> {
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}")).kernel("k").unwrap_or_else(|e| panic!("{e}"));
    g.launch(&k, &Launch { block: [64, 1, 1], args, ..Launch::default() }, o)
}

/// Runs the load of a case by the map that `change` makes of its own.
fn load(c: &Case, o: &Options, change: impl Fn(TensorMap) -> TensorMap) -> Result<Vec<u16>, Fault> {
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&bytes(&c.source()), "tensor"), g.alloc(c.bytes(), "dump"));
    let r = launch(&mut g, &c.load(), &[&change(c.map(p)).encode(), &q.to_le_bytes()], o)?;
    assert!(r.clean(), "{}", r.findings[0]);
    Ok(read(&g, q, c.bytes() / 2))
}

/// One block of a cluster loads for both.
#[test]
fn loads_reach_every_block_of_a_multicast() {
    for c in cases().iter().filter(|c| c.bytes().is_multiple_of(256)) {
        let n = c.bytes();
        let expect = format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {n};");
        let text = c
            .load()
            .replacen(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{", 1)
            .replace(
                "[q];",
                &format!("[q]; mov.u32 %r9, %cluster_ctarank; mul.wide.u32 %rd5, %r9, {n}; add.u64 %rd1, %rd1, %rd5;"),
            )
            .replace(
                &format!("bar.sync 0; @!%p1 bra W;\n{expect}"),
                &format!(
                    "@%p1 {expect} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n\
                     setp.eq.and.u32 %p1, %r9, 0, %p1; mov.b16 %h0, 3; @!%p1 bra W;"
                ),
            )
            .replace("complete_tx::bytes [%r4]", "complete_tx::bytes.multicast::cluster [%r4]")
            .replace("};\nW:", "}, %h0;\nW:");
        for o in all_options() {
            let mut g = Gpu::new();
            let (p, q) = (g.alloc_with(&bytes(&c.source()), "tensor"), g.alloc(2 * n, "dump"));
            let args: [&[u8]; 2] = [&c.map(p).encode(), &q.to_le_bytes()];
            let k =
                Module::parse(&text).unwrap_or_else(|e| panic!("{e}")).kernel("k").unwrap_or_else(|e| panic!("{e}"));
            let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], args: &args, ..Launch::default() };
            let r = g.launch(&k, &launch, &o).unwrap_or_else(|f| panic!("{f}"));
            assert!(r.clean(), "{}", r.findings[0]);
            assert_eq!(read::<u16>(&g, q, n), [c.loaded(), c.loaded()].concat());
        }
    }
}

#[test]
fn loads_walk_over_the_box() {
    for (k, c) in cases().iter().enumerate() {
        let map = c.map(4096);
        let back = TensorMap::decode(&map.encode()).unwrap();
        assert_eq!(TensorMap { im2col: None, ..back }, TensorMap { im2col: None, ..map });
        for o in all_options() {
            let out = load(c, &o, |map| map).unwrap_or_else(|f| panic!("{f}"));
            assert!(out == c.loaded(), "case {k}: {out:?}");
        }
    }
}

#[test]
fn stores_leave_out_what_is_not_there() {
    // 60 pixels from the last image on: the box is the tensor without its borders, as a store needs it.
    let c = Case { lower: vec![1, 2], upper: vec![-1, 0], at: vec![0, 3, 2, 2], off: vec![0, 0], ..cases().remove(8) };
    let coordinates: Vec<String> = c.at.iter().map(ToString::to_string).collect();
    let set: String = coordinates.iter().enumerate().map(|(k, v)| format!("mov.b32 %r{}, {v};\n", 10 + k)).collect();
    let text = format!(
        "{HEAD}.visible .entry k(.param .align 64 .b8 map[128], .param .u64 q)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %h<5>; .shared .align 1024 .b8 tile[2048];\n\
         mov.u32 %r3, %tid.x; mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;\n{set}mov.u32 %r4, tile; shl.b32 %r6, %r3, 1;\n\
         L: add.u32 %r7, %r4, %r6; shr.u32 %r8, %r6, 1; cvt.u16.u32 %h1, %r8; st.shared.u16 [%r7], %h1; add.u32 %r6, %r6, 128; setp.lt.u32 %p3, %r6, 1920; @%p3 bra L;\n\
         fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r3, 0; @!%p1 bra DONE;\n\
         cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd3, {{%r10, %r11, %r12, %r13}}], [%r4];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nDONE: ret;\n}}"
    );
    for o in all_options() {
        let mut g = Gpu::new();
        let p = g.alloc_with(&bytes(&c.source()), "tensor");
        let r = launch(&mut g, &text, &[&c.map(p).encode(), &[0; 8]], &o).unwrap_or_else(|f| panic!("{f}"));
        assert!(r.clean(), "{}", r.findings[0]);
        let mut want = c.source();
        for (pixel, at) in c.walk().iter().enumerate() {
            for channel in 0..16 {
                if let Some(e) = c.element(at, channel) {
                    want[e] = (16 * pixel) as u16 + channel as u16;
                }
            }
        }
        assert!(read::<u16>(&g, p, want.len()) == want);
    }
}

/// A kernel of one instruction on the map, between two of a shared tile.
fn alone(c: &Case, instruction: &str) -> String {
    let at: Vec<String> = c.at.iter().map(ToString::to_string).collect();
    let set: String = at.iter().enumerate().map(|(k, v)| format!("mov.b32 %r{}, {v};\n", 10 + k)).collect();
    format!(
        "{HEAD}.visible .entry k(.param .align 64 .b8 map[128])\n{{\n.reg .pred %p<2>; .reg .b32 %r<20>; .reg .b64 %rd<4>; .reg .b16 %h<3>;\n\
         .shared .align 128 .b8 tile[8192];\nmov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2; mov.u32 %r4, tile; mov.u32 %r3, %tid.x;\n\
         setp.ne.u32 %p1, %r3, 0; @%p1 ret;\nmov.b16 %h1, 0;\n{set}{instruction}\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nret;\n}}"
    )
}

#[test]
fn stores_and_prefetches_that_hardware_refuses() {
    let store =
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd3, {%r10, %r11, %r12, %r13}], [%r4];";
    let add = "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group [%rd3, {%r10, %r11, %r12, %r13}], [%r4];";
    let ahead = "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%rd3, {%r10, %r11, %r12, %r13}], {%h1, %h1};";
    let flat = "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%rd3, {%r10, %r11, %r12, %r13}];";
    let c = || Case { off: vec![0, 0], ..cases().remove(8) };
    let o = Options { checks: warpsim::Checks::NONE, ..Options::default() };
    let said = |c: &Case, what: &str| {
        let mut g = Gpu::new();
        let p = g.alloc_with(&bytes(&c.source()), "tensor");
        let f = launch(&mut g, &alone(c, what), &[&c.map(p).encode()], &o).err();
        f.map(|f| {
            assert_eq!(f.finding.kind, Kind::IllegalInstruction);
            assert!(what.starts_with(&f.finding.place.instruction[..20]), "{f}");
            f.finding.message
        })
    };
    let padded =
        "an im2col store by a map whose box, from -1 to 8 in dimension 1, reaches out of the tensor's 10 elements";
    assert_eq!((said(&c(), store).as_deref(), said(&c(), ahead)), (Some(padded), None));
    let beyond =
        "an im2col store by a map whose box, from 0 to 8 in dimension 2, reaches out of the tensor's 8 elements";
    let high = Case { lower: vec![0, 0], upper: vec![0, 1], at: vec![0; 4], ..c() };
    assert_eq!(said(&high, store).unwrap(), beyond);
    let inside = Case { upper: vec![0, 0], ..high };
    assert_eq!(said(&inside, store), None);
    assert_eq!(said(&inside, add).unwrap(), "a reduction on this element type");
    let askew = Case { at: vec![1, 0, 0, 0], ..inside };
    let channel = "a tensor copy from element 1 of the innermost dimension: a multiple of 8 (16 bytes) is needed";
    assert_eq!([store, ahead].map(|i| said(&askew, i).unwrap()), [channel; 2]);
    let late = Case { at: vec![0, 9, 0, 0], ..c() };
    let start = "an im2col copy that starts at 9 in dimension 1, outside of the map's box from -1 to 8";
    assert_eq!(said(&late, ahead).unwrap(), start);
    assert_eq!(said(&c(), flat).unwrap(), "an im2col tensor map with a copy by .tile");
}

#[test]
fn maps_and_copies_that_do_not_fit() {
    let good = || cases().remove(4);
    for o in all_options() {
        let fault = |c: &Case, change: fn(TensorMap) -> TensorMap| {
            let f = load(c, &o, change).unwrap_err();
            assert_eq!(f.finding.kind, Kind::IllegalInstruction);
            assert!(f.finding.place.instruction.starts_with("cp.async.bulk.tensor.4d"), "{f}");
            f.finding.message
        };
        load(&good(), &o, |map| map).unwrap_or_else(|f| panic!("{f}"));
        let late = Case { at: vec![0, 8, 3, 0], ..good() };
        let says = "an im2col copy that starts at 8 in dimension 1, outside of the map's box from -1 to 7";
        assert_eq!(fault(&late, |map| map), says);
        let far = Case { off: vec![2, 256], ..good() };
        assert_eq!(
            fault(&far, |map| map),
            "an im2col offset of 256: 255 are possible with 4 dimensions, and hardware would take 0"
        );
        let askew = Case { at: vec![4, -1, -1, 0], ..good() };
        assert_eq!(
            fault(&askew, |map| map),
            "a tensor copy from element 4 of the innermost dimension: a multiple of 8 (16 bytes) is needed"
        );
        let nan = |map: TensorMap| TensorMap { nan_fill: true, ..map };
        assert_eq!(fault(&good(), nan), "not a tensor map: it fills integers (U16) with NaN");
        let tiled = |map: TensorMap| TensorMap { im2col: None, tile: vec![32, 8, 8, 1], ..map };
        assert_eq!(fault(&good(), tiled), "a tiled tensor map with a copy by .im2col");
    }
    let made = |c: Case, dims: &[u64]| {
        let i = Im2col { lower: c.lower, upper: c.upper, steps: c.steps, channels: c.channels, pixels: c.pixels };
        TensorMap::im2col(DataType::U16, 4096, dims, &[64, 640, 6400][..dims.len() - 1], i, c.swizzle).err()
    };
    let dims = [32, 9, 7, 2];
    let said = |c: Case| made(c, &dims).unwrap_or_default();
    assert_eq!(said(Case { steps: vec![1, 9], ..good() }), "steps of 9: 1 to 8 are possible");
    assert_eq!(said(Case { lower: vec![-129, 0], ..good() }), "a corner at -129: -128 to 127 are possible");
    assert_eq!(said(Case { upper: vec![-1, -9], ..good() }), "a box from -1 to -3 in dimension 2");
    assert_eq!(
        said(Case { pixels: 1025, ..good() }),
        "1025 pixels of 32 channels: up to 1024 of up to 256 are possible"
    );
    assert_eq!(said(Case { lower: vec![-1], ..good() }), "a tensor of 4 dimensions needs corners of 2");
    assert_eq!(said(Case { channels: 64, ..good() }), "the tile's innermost row of 128 bytes exceeds the swizzle's 64");
    assert_eq!(made(good(), &[32, 9]).unwrap(), "an im2col map of 2 dimensions: 3 to 5 are possible");
}
