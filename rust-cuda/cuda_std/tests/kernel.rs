//! `#[kernel]` as the host sees it.

use cuda_std::{
    bf16, f16,
    float::Element,
    kernel,
    launch::{Args, DevicePtr, DevicePtrMut, Dim3, Kernel, TensorMap},
};

/// Shared memory whose size depends on the instance.
#[repr(C)]
pub struct Row<T, const V: usize> {
    values: [T; 64],
    sums: [f32; V],
}

const BLOCK: usize = 128;

/// Normalizes rows.
#[kernel(dtypes(T: f32, f16, bf16), values(V: 1, 4), block = BLOCK, shared = Row<T, V>)]
pub unsafe fn rms_norm<T: Element, const V: usize>(x: *const T, w: *const f32, y: *mut T, rows: u64, eps: f32) {
    // Never run here, but type-checked.
    // SAFETY: as of the launch.
    unsafe {
        *y = T::from_f32((*x).to_f32() * *w + eps + rows as f32 + V as f32);
    }
}

/// Takes descriptors.
#[kernel(block = (64, 2), cluster = 2, shared = { 3 * 1024 }, arch = "sm_90a")]
pub unsafe fn tiles(map: &TensorMap, n: u32) {
    let _ = (map, n);
}

/// Takes nothing.
#[kernel(values(SIGN: false, true), block = 32)]
pub unsafe fn flags<const SIGN: bool>() {}

/// Has a name of one letter, in which the type and the list of instances do not differ.
#[kernel(block = 32)]
pub unsafe fn k() {}

#[test]
fn symbols_name_the_instance() {
    assert_eq!((K::SYMBOL, K[0].symbol), ("k", "k"));
    assert_eq!(RmsNorm::<f32, 1>::SYMBOL, "rms_norm_f32_v1");
    assert_eq!(RmsNorm::<bf16, 4>::SYMBOL, "rms_norm_bf16_v4");
    assert_eq!(Tiles::SYMBOL, "tiles");
    assert_eq!(Flags::<true>::SYMBOL, "flags_sign1");
    assert_eq!(Tiles::MODULE, module_path!());
}

#[test]
fn bounds_are_the_attributes() {
    assert_eq!(RmsNorm::<f32, 1>::BLOCK, Dim3::from(128));
    assert_eq!(RmsNorm::<f32, 1>::CLUSTER, Dim3::ONE);
    assert_eq!(RmsNorm::<f32, 1>::SHARED_BYTES, 64 * 4 + 4);
    assert_eq!(RmsNorm::<f16, 4>::SHARED_BYTES, 64 * 2 + 16);
    assert_eq!(Tiles::BLOCK, Dim3::from((64, 2)));
    assert_eq!(Tiles::CLUSTER, Dim3::from(2));
    assert_eq!(Tiles::SHARED_BYTES, 3072);
}

/// What an operator does: one generic function for all dtypes.
fn packed<T: RmsNormDtype>() -> (usize, &'static [usize]) {
    let args: <RmsNorm<T, 4> as Kernel>::Args = (DevicePtr::null(), DevicePtr::null(), DevicePtrMut::null(), 3, 1e-6);
    (args.with(|bytes| bytes.len()), <RmsNorm<T, 4> as Kernel>::Args::SIZES)
}

#[test]
fn arguments_follow_the_signature() {
    assert_eq!(packed::<bf16>(), (5, &[8, 8, 8, 8, 4][..]));
    assert_eq!(<Tiles as Kernel>::Args::SIZES, [128, 4]);
    assert_eq!(<Flags<false> as Kernel>::Args::SIZES, [0; 0]);
}
