//! What the tests of both backends share: how a kernel written by hand is declared, and two such kernels.

use warpsmith::kernels::{Code, KernelImage};
use warpsmith::launch::{Args, DevicePtrMut, Dim3, Kernel, TensorMap};
use warpsmith::{Arch, DType, L2Promotion, OobFill, Stream, Swizzle, Tensor, TensorMapDesc, bf16};

pub(crate) const TRAP: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry hand_trap(.param .u32 unused) { trap; ret; }";

/// Loads one 8 x 64 tile of bf16 through a tensor map that arrives as a parameter.
pub(crate) const TILE: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry hand_tile(.param .align 64 .b8 map[128], .param .u64 y, .param .u32 col, .param .u32 row) {
    .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<5>;
    .shared .align 128 .b8 tile[1024]; .shared .align 8 .b8 barrier[8];
    mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [y]; cvta.to.global.u64 %rd2, %rd2;
    ld.param.u32 %r1, [col]; ld.param.u32 %r2, [row];
    mov.u32 %r3, tile; mov.u32 %r4, barrier; mov.u32 %r5, %tid.x;
    setp.ne.u32 %p, %r5, 0;
    @%p bra ready;
    mbarrier.init.shared.b64 [%r4], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r4], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r1, %r2}], [%r4];
ready:
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared.b64 %p, [%r4], 0;
    @!%p bra again;
    shl.b32 %r6, %r5, 2; add.u32 %r3, %r3, %r6; ld.shared.u32 %r7, [%r3];
    mul.wide.u32 %rd4, %r5, 4; add.u64 %rd2, %rd2, %rd4; st.global.u32 [%rd2], %r7;
    ret;
}";

/// A kernel's type: its symbol, arguments, threads of a block and bytes of dynamic shared memory.
macro_rules! kernel {
    ($name:ident, $symbol:literal, $args:ty, $block:literal, $shared:literal) => {
        pub(crate) struct $name;

        impl Kernel for $name {
            const SYMBOL: &'static str = $symbol;
            const BLOCK: Dim3 = Dim3::new($block, 1, 1);
            const CLUSTER: Dim3 = Dim3::ONE;
            const SHARED_BYTES: usize = $shared;
            const MODULE: &'static str = module_path!();
            type Args = $args;
        }
    };
}
pub(crate) use kernel;

kernel!(Trap, "hand_trap", (u32,), 32, 0);
kernel!(Tile, "hand_tile", (TensorMap, DevicePtrMut<bf16>, u32, u32), 256, 0);

pub(crate) const fn image<K: Kernel>(arch: Arch, ptx: &'static str) -> KernelImage {
    KernelImage {
        symbol: K::SYMBOL,
        module: K::MODULE,
        arch,
        code: Code::Text(ptx),
        block: [K::BLOCK.x, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: K::SHARED_BYTES as u32,
        programmatic: false,
        cooperative: false,
        opt_level: None,
        param_sizes: <K::Args as Args>::SIZES,
    }
}

/// The 8 x 64 tile of `x` from there on, through the copy engine; zeros where `x` has ended.
pub(crate) fn load_tile(stream: &Stream, x: &Tensor<bf16>, row: u32, col: u32) -> Vec<bf16> {
    let (rows, cols) = (x.view().rows() as u64, x.view().cols() as u64);
    let mut y = Tensor::<bf16>::zeros(stream, [8, 64]).unwrap();
    let map = stream.device().tensor_map(&TensorMapDesc {
        address: x.view().ptr(stream).unwrap().addr(),
        dtype: DType::BF16,
        dims: &[cols, rows],
        strides_bytes: &[2 * cols],
        box_dims: &[64, 8],
        swizzle: Swizzle::None,
        l2_promotion: L2Promotion::B128,
        oob_fill: OobFill::Zero,
    });
    // SAFETY: the kernel reads a tile of `x` and writes all of `y`.
    unsafe { stream.launch::<Tile>(1, (map.unwrap(), y.view_mut().ptr_mut(stream).unwrap(), col, row)) }.unwrap();
    y.to_vec(stream).unwrap()
}
