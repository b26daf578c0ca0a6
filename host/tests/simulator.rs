//! The simulator as a backend, with kernels written by hand: it computes, and what they do wrong comes back as an error that says where.

mod common;

use common::{TILE, TRAP, Tile, Trap, image, kernel, load_tile};
use warpsmith::kernels::{KernelImage, Kernels};
use warpsmith::launch::{DevicePtr, DevicePtrMut, Dim3, Kernel};
use warpsmith::sim::{self, AsyncCompletion, Finding, GpuModel, Settings};
use warpsmith::{Arch, BackendKind, Device, Error, Result, Stream, Tensor, bf16};

/// y[i] = x[i] for every thread of the grid, in bounds or not.
const COPY: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry sim_copy(.param .u64 x, .param .u64 y) {
    .reg .b32 %r<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r4, [%rd1]; st.global.u32 [%rd2], %r4;
    ret;
}";

/// Reverses a block's 64 values through shared memory, without a barrier.
const REVERSE: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry sim_reverse(.param .u64 x, .param .u64 y) {
    .reg .b32 %r<6>; .reg .b64 %rd<5>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r2, [%rd1];
    mov.u32 %r3, tile; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4;
    st.shared.u32 [%r5], %r2;
    sub.u32 %r4, 252, %r4; add.u32 %r5, %r3, %r4;
    ld.shared.u32 %r2, [%r5]; st.global.u32 [%rd2], %r2;
    ret;
}";

/// Half of the block waits for all of it.
const HALF: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry sim_half(.param .u32 unused) {
    .reg .pred %p; .reg .b32 %r;
    mov.u32 %r, %tid.x;
    setp.ge.u32 %p, %r, 32;
    @%p bra wait;
    ret;
wait:
    bar.sync 1, 64;
    ret;
}";

/// Each block leaves its number, and once all have, reads the next one's: `grid::sync` by hand.
const TOGETHER: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry sim_together(.param .u64 y, .param .u64 z) {
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [z];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd1; st.global.u32 [%rd3], %r1;
    mov.u32 %r3, %envreg2; mov.u32 %r4, %envreg1; mov.b64 %rd4, {%r3, %r4};
    setp.eq.u32 %p, %r1, 0; sub.u32 %r5, 0x80000001, %r2; selp.b32 %r5, %r5, 1, %p;
    atom.add.acq_rel.gpu.u32 %r6, [%rd4+4], %r5;
wait:
    ld.acquire.gpu.u32 %r7, [%rd4+4]; xor.b32 %r7, %r7, %r6; setp.ge.s32 %p, %r7, 0;
    @%p bra wait;
    add.u32 %r8, %r1, 1; rem.u32 %r8, %r8, %r2;
    mul.wide.u32 %rd3, %r8, 4; add.u64 %rd3, %rd3, %rd1; ld.global.u32 %r8, [%rd3];
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r8;
    ret;
}";

type TwoPointers = (DevicePtr<f32>, DevicePtrMut<f32>);
kernel!(Copy, "sim_copy", TwoPointers, 64, 0);
kernel!(Reverse, "sim_reverse", TwoPointers, 64, 0);
kernel!(Together, "sim_together", (DevicePtrMut<u32>, DevicePtrMut<u32>), 1, 0);
kernel!(Half, "sim_half", (u32,), 64, 0);
static IMAGES: &[KernelImage] = &[
    image::<Tile>(Arch::Sm90a, TILE),
    image::<Trap>(Arch::Sm80, TRAP),
    image::<Copy>(Arch::Sm80, COPY),
    image::<Half>(Arch::Sm80, HALF),
    image::<Reverse>(Arch::Sm80, REVERSE),
    KernelImage { cooperative: true, ..image::<Together>(Arch::Sm80, TOGETHER) },
];

fn open() -> (Device, Stream) {
    let device = Device::open_backend(BackendKind::Sim).unwrap();
    device.add_images(IMAGES).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

fn copy(stream: &Stream, blocks: u32, x: &Tensor<f32>, y: &mut Tensor<f32>) -> Result<()> {
    // SAFETY: the simulator refuses what is out of bounds.
    unsafe { stream.launch::<Copy>(blocks, (x.view().ptr(stream).unwrap(), y.view_mut().ptr_mut(stream).unwrap())) }
}

/// The one finding of a launch that has to have one.
fn found(result: Result<()>) -> Finding {
    match result {
        Err(Error::Findings { findings }) if !findings.is_empty() => findings[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

/// What a user's `gelu_f32` does: it has the name of one of Warpsmith's, and is another kernel.
const GELU: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry gelu_f32(.param .u64 y) {
    .reg .b64 %rd;
    ld.param.u64 %rd, [y]; st.global.b32 [%rd], 0x40e00000;
    ret;
}";
kernel!(Gelu, "gelu_f32", (DevicePtrMut<f32>,), 32, 0);

/// An archive as `cuda_builder` would write it.
fn user_s_archive() -> &'static Kernels {
    let kernel = ptx_archive::Kernel {
        symbol: "gelu_f32".to_owned(),
        module: module_path!().to_owned(),
        arch: Arch::Sm80,
        block: [32, 1, 1],
        min_blocks: 0,
        cluster: [1; 3],
        shared_bytes: 0,
        no_spills: false,
        programmatic: false,
        cooperative: false,
        opt_level: None,
        params: vec![ptx_archive::Param { bytes: 8, align: 8, kind: ptx_archive::ParamKind::Pointer }],
        resources: None,
    };
    let archive = ptx_archive::write("", &[(kernel, GELU)], None).leak();
    Box::leak(Box::new(Kernels::embedded(archive)))
}

#[test]
fn a_user_s_kernel_is_not_taken_for_another_of_its_name() {
    let (device, stream) = open();
    let mut y = Tensor::<f32>::zeros(&stream, [1]).unwrap();
    // SAFETY: the kernel writes the one element there is.
    let mut launch = || unsafe { stream.launch::<Gelu>(1, (y.view_mut().ptr_mut(&stream).unwrap(),)) };
    let error = launch().unwrap_err().to_string();
    assert!(error.starts_with("there is no kernel simulator::gelu_f32 for "), "{error}");
    let kernels = user_s_archive();
    device.add_kernels(kernels).unwrap();
    device.add_kernels(kernels).unwrap();
    launch().unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [7.0]);
    let error = device.add_kernels(user_s_archive()).unwrap_err().to_string();
    assert_eq!(error, "kernel simulator::gelu_f32 for sm_80 was added before, from elsewhere");
}

#[test]
fn kernels_run_and_events_are_ordered() {
    let (device, stream) = open();
    let x = Tensor::from_slice(&stream, [128], &numbers(128)).unwrap();
    let mut y = Tensor::zeros(&stream, [128]).unwrap();
    let start = stream.record().unwrap();
    copy(&stream, 2, &x, &mut y).unwrap();
    let end = stream.record().unwrap();
    assert!(end.is_done().unwrap() && start.elapsed_ms(&end).unwrap() >= 0.0);
    assert_eq!(y.to_vec(&stream).unwrap(), numbers(128));
    let (free, total) = device.memory().unwrap();
    assert!(free < total);
    let filled = Tensor::filled(&stream, [77], 3u16 as i32).unwrap();
    assert_eq!(filled.to_vec(&stream).unwrap(), [3; 77]);
}

#[test]
fn an_access_past_the_end_names_its_place() {
    let (_device, stream) = open();
    let x = Tensor::from_slice(&stream, [100], &numbers(100)).unwrap();
    let mut y = Tensor::zeros(&stream, [128]).unwrap();
    let result = copy(&stream, 2, &x, &mut y);
    let text = result.as_ref().unwrap_err().to_string();
    let finding = found(result);
    let line = 1 + COPY.lines().position(|l| l.contains("ld.global")).unwrap() as u32;
    assert_eq!((finding.kind, finding.kernel.as_str(), finding.ptx_line), ("out-of-bounds", "sim_copy", line));
    assert_eq!((finding.block, finding.thread), ([1, 0, 0], [36, 0, 0]));
    assert!(finding.fatal && finding.address.is_some());
    for part in ["out-of-bounds", "sim_copy", "block (1,0,0)", "thread (36,0,0)", "address 0x"] {
        assert!(text.contains(part), "{text}");
    }
    // The device goes on.
    copy(&stream, 1, &x, &mut y).unwrap();
}

#[test]
fn reading_what_nobody_wrote_is_found() {
    let (_device, stream) = open();
    let x = Tensor::uninit(&stream, [64]).unwrap();
    let mut y = Tensor::zeros(&stream, [64]).unwrap();
    let finding = found(copy(&stream, 1, &x, &mut y));
    assert_eq!((finding.kind, finding.fatal), ("uninitialised-global", false));
}

#[test]
fn a_missing_barrier_is_found() {
    let (_device, stream) = open();
    let x = Tensor::from_slice(&stream, [64], &numbers(64)).unwrap();
    let mut y = Tensor::<f32>::zeros(&stream, [64]).unwrap();
    // SAFETY: both tensors have the 64 elements that one block accesses.
    let result = unsafe {
        stream.launch::<Reverse>(1, (x.view().ptr(&stream).unwrap(), y.view_mut().ptr_mut(&stream).unwrap()))
    };
    let Err(Error::Findings { findings }) = result else { panic!("{result:?}") };
    let race = findings.iter().find(|f| f.kind == "shared-race");
    assert!(race.is_some_and(|f| f.earlier.is_some()), "{findings:?}");
}

#[test]
fn a_barrier_that_never_fills_is_no_hang() {
    let (_device, stream) = open();
    // SAFETY: the kernel accesses nothing.
    let finding = found(unsafe { stream.launch::<Half>(1, (0,)) });
    assert!(["deadlock", "barrier-count", "divergent-barrier"].contains(&finding.kind), "{finding}");
}

#[test]
fn a_trap_is_a_finding_and_not_the_end_of_the_device() {
    let (_device, stream) = open();
    // SAFETY: the kernel accesses nothing.
    let finding = found(unsafe { stream.launch::<Trap>(1, (0,)) });
    assert_eq!((finding.kind, finding.fatal), ("trap", true));
    stream.synchronize().unwrap();
}

#[test]
fn tensor_maps_load_tiles_and_fill_the_edge() {
    let (_device, stream) = open();
    let data: Vec<bf16> = (0..16 * 72).map(|i| bf16::from_f32((i % 251) as f32)).collect();
    let x = Tensor::from_slice(&stream, [16, 72], &data).unwrap();
    let want = |i: usize| match (12 + i / 64, 16 + i % 64) {
        (row, col) if row < 16 && col < 72 => data[row * 72 + col],
        _ => bf16::ZERO,
    };
    assert_eq!(load_tile(&stream, &x, 12, 16), (0..512).map(want).collect::<Vec<_>>());
}

#[test]
fn launches_are_counted_when_asked() {
    let (device, stream) = open();
    let simulator = device.simulator().unwrap();
    let x = Tensor::from_slice(&stream, [128], &numbers(128)).unwrap();
    let mut y = Tensor::zeros(&stream, [128]).unwrap();
    let (result, profiles) = simulator.profile(|| copy(&stream, 2, &x, &mut y));
    result.unwrap();
    let [profile] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!((profile.kernel.as_str(), profile.grid), ("sim_copy", [2, 1, 1]));
    // 4 warps read 128 bytes each: 4 sectors a request.
    assert_eq!(profile.metric("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"), Some(4.0));
    assert_eq!(profile.metric("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"), Some(16.0));
    assert!(profile.lines.iter().any(|line| line.instruction.starts_with("ld.global")));
    let settings = Settings { seed: 3, completion: AsyncCompletion::Earliest, ..simulator.settings() };
    let seen = simulator.with(settings, || simulator.settings());
    assert_eq!((seen, simulator.settings() == settings), (settings, false));
}

/// Simulated devices, each with three streams that run lazily in `body`, in orders of their own.
fn lazily(body: impl Fn(&Device, [Stream; 3])) {
    for seed in 1..9 {
        let device = sim::open(&GpuModel::H100).unwrap();
        device.add_images(IMAGES).unwrap();
        let streams = [(); 3].map(|()| device.stream().unwrap());
        let simulator = device.simulator().unwrap();
        simulator.with(Settings { seed, ..simulator.settings() }, || body(&device, streams));
    }
}

#[test]
fn halves_that_two_streams_were_given_are_both_waited_for() {
    lazily(|_, [a, b, c]| {
        // One for each stream, so that nothing else orders them.
        let (x, z) = [&a, &b].map(|s| Tensor::from_slice(s, [64], &numbers(64)).unwrap()).into();
        let mut y = Tensor::<f32>::zeros(&a, [128]).unwrap();
        let (mut head, mut tail) = y.view_mut().split_at(64).unwrap();
        // Both addresses are given before either launch.
        let (to_head, to_tail) = (head.ptr_mut(&a).unwrap(), tail.ptr_mut(&b).unwrap());
        // SAFETY: all four have the 64 elements that one block accesses.
        unsafe {
            a.launch::<Copy>(1, (x.view().ptr(&a).unwrap(), to_head)).unwrap();
            b.launch::<Copy>(1, (z.view().ptr(&b).unwrap(), to_tail)).unwrap();
        }
        assert_eq!(y.to_vec(&c).unwrap(), [numbers(64), numbers(64)].concat());
    });
}

#[test]
fn a_stream_that_only_waited_is_waited_for() {
    lazily(|_, [a, b, c]| {
        // c has come after all that b has done.
        let z = Tensor::from_slice(&b, [64], &numbers(64)).unwrap();
        assert_eq!(z.to_vec(&c).unwrap(), numbers(64));
        let mut y = Tensor::from_slice(&a, [64], &numbers(64)).unwrap();
        // b comes after a, and does nothing.
        y.view_mut().ptr_mut(&b).unwrap();
        assert_eq!(y.to_vec(&c).unwrap(), numbers(64));
    });
}

#[test]
fn findings_of_lazy_streams_show_where_somebody_waits() {
    lazily(|_, [a, b, _]| {
        let x = Tensor::from_slice(&a, [60], &numbers(60)).unwrap();
        let mut y = Tensor::zeros(&a, [64]).unwrap();
        copy(&a, 1, &x, &mut y).unwrap();
        assert_eq!(found(a.synchronize()).kind, "out-of-bounds");
        a.synchronize().unwrap();
        // On a stream that comes after the work as well.
        copy(&a, 1, &x, &mut y).unwrap();
        assert_eq!(found(y.to_vec(&b).map(drop)).kind, "out-of-bounds");
        b.synchronize().unwrap();
        // And behind an event.
        copy(&a, 1, &x, &mut y).unwrap();
        assert_eq!(found(a.record().unwrap().is_done().map(drop)).kind, "out-of-bounds");
    });
}

#[test]
fn lazy_streams_are_done_with_what_others_need() {
    lazily(|device, [a, b, c]| {
        let simulator = device.simulator().unwrap();
        let x = Tensor::from_slice(&a, [64], &numbers(64)).unwrap();
        let mut y = Tensor::zeros(&a, [64]).unwrap();
        let ((), profiles) = simulator.profile(|| copy(&a, 1, &x, &mut y).unwrap());
        assert_eq!(profiles.len(), 1);
        // An event means what it meant when it was waited for.
        let event = a.record().unwrap();
        b.wait(&event).unwrap();
        c.record_into(&event).unwrap();
        assert_eq!(y.to_vec(&b).unwrap(), numbers(64));
        // Freed memory is there again, though nobody waited for the stream that frees it.
        let most = device.memory().unwrap().0 as usize;
        drop((x, y));
        let error = Tensor::<u8>::uninit(&b, [most + 4096]).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert_eq!(device.memory().unwrap(), (device.info().memory_bytes, device.info().memory_bytes));
    });
}

#[test]
fn scratch_is_there_for_what_is_queued_while_it_lives() {
    lazily(|device, [a, _, _]| {
        let x = Tensor::from_slice(&a, [64], &numbers(64)).unwrap();
        let mut y = Tensor::zeros(&a, [64]).unwrap();
        let before = device.memory().unwrap();
        let scratch = a.scratch::<f32>(64).unwrap();
        assert_eq!(scratch.len(), 64);
        // SAFETY: all have the 64 elements that one block accesses.
        unsafe {
            a.launch::<Copy>(1, (x.view().ptr(&a).unwrap(), scratch.ptr_mut())).unwrap();
            a.launch::<Copy>(1, (scratch.ptr_mut().into(), y.view_mut().ptr_mut(&a).unwrap())).unwrap();
        }
        drop(scratch);
        assert_eq!(y.to_vec(&a).unwrap(), numbers(64));
        a.synchronize().unwrap();
        assert_eq!(device.memory().unwrap(), before);
        // SAFETY: what is being tested; the simulator refuses it.
        let late = unsafe {
            let pointer = a.scratch::<f32>(64).unwrap().ptr_mut();
            a.launch::<Copy>(1, (pointer.into(), y.view_mut().ptr_mut(&a).unwrap()))
        };
        assert_eq!(found(late.and_then(|()| a.synchronize())).kind, "use-after-free");
        assert!(a.scratch::<f32>(0).unwrap().ptr_mut().addr() == 0);
        assert!(matches!(a.scratch::<f32>(usize::MAX).unwrap_err(), Error::TooLarge { .. }));
    });
}

#[test]
fn blocks_that_wait_for_each_other_are_there_together() {
    let (device, stream) = open();
    let room = device.blocks_at_once::<Together>().unwrap();
    let run = |blocks: u32| {
        let mut y = Tensor::<u32>::filled(&stream, [blocks as usize], 0).unwrap();
        let mut z = Tensor::<u32>::filled(&stream, [blocks as usize], 0).unwrap();
        // SAFETY: both have a place for each block.
        unsafe {
            let (y, z) = (y.view_mut().ptr_mut(&stream)?, z.view_mut().ptr_mut(&stream)?);
            stream.launch::<Together>(blocks, (y, z))?;
        }
        z.to_vec(&stream)
    };
    for blocks in [1, 70, room] {
        assert_eq!(run(blocks).unwrap(), (0..blocks).map(|i| (i + 1) % blocks).collect::<Vec<_>>());
    }
    let error = run(room + 1).unwrap_err().to_string();
    assert!(error.contains(&format!("the device holds {room} at once")), "{error}");
}
