//! Plain kernels: indices, packs, conversions, reductions.

use cuda_std::{bf16, block, f16, float::Element, kernel, shared, shared_field, thread, vector::Pack};

/// Shared memory of [`row_sum`].
#[repr(C)]
pub struct Scratch<const WARPS: usize> {
    unused: [u8; 128],
    sums: [[f32; WARPS]; 2],
}

/// y = a x
#[kernel(dtypes(T: f32, f16, bf16), values(V: 1, 2, 4, 8), block = 256, min_blocks = 2)]
pub unsafe fn scale<T: Element, const V: usize>(x: *const T, y: *mut T, n: u64, a: f32) {
    unsafe {
        let i = thread::index_1d() * V;
        if i < n as usize {
            let values = Pack::<T, V>::load(x.add(i)).to_f32();
            Pack::<T, V>::from_f32(values.map(|value| value * a)).store(y.add(i));
        }
    }
}

/// The other ways to load and store.
#[kernel(values(V: 2, 4, 8, 16), block = 256)]
pub unsafe fn hints<const V: usize>(x: *const bf16, y: *mut bf16) {
    unsafe {
        let i = (thread::index_1d() + thread::grid_size_1d()) * V;
        let (x, y) = (x.add(i), y.add(i));
        Pack::<_, V>::load_nc(x).store_streaming(y);
        Pack::<_, V>::load_nc_no_allocate(x.add(V)).store_write_through(y.add(V));
        Pack::<_, V>::load_nc_evict_last(x.add(V)).store_streaming(y.add(V));
        Pack::<_, V>::load_evict_first(x.add(2 * V)).store(y.add(2 * V));
        Pack::<_, V>::load_global(x.add(2 * V)).store_global(y.add(2 * V));
        Pack::<_, V>::load_cg(x.add(3 * V)).forget().map(|value| value).store(y.add(3 * V));
        Pack::<_, V>::splat(bf16::from_bits(0x3f80)).store(y.add(4 * V));
    }
}

const BLOCK: usize = 256;

/// One row a block.
#[kernel(block = BLOCK, shared = Scratch<8>, no_spills)]
pub unsafe fn row_sum(x: *const f32, y: *mut f32, n: u32) {
    unsafe {
        let memory = shared::dynamic::<Scratch<8>>();
        let sums = shared_field!(memory.sums).at(1).cast::<f32>();
        let row = x.add(thread::block_idx_x() as usize * n as usize);
        let mut sum = 0.0;
        let mut i = thread::thread_idx_x();
        while i < n {
            sum += *row.add(i as usize);
            i += BLOCK as u32;
        }
        let total = block::reduce_sum::<{ BLOCK as u32 }>(sum, sums);
        let greatest = block::reduce_max::<{ BLOCK as u32 }>(sum, sums);
        let least = block::reduce::<{ BLOCK as u32 }, f32>(sum, sums, f32::min);
        if thread::thread_idx_x() == 0 {
            *y.add(thread::block_idx_x() as usize) = total + greatest + least;
        }
    }
}

/// Several type parameters, and a boolean.
#[kernel(dtypes(T: f32, U: f16, cuda_std::bf16), values(SQUARE: false, true), block = (32, 4), shared = { 4 * 32 })]
pub unsafe fn convert<T: Element, U, const SQUARE: bool>(x: *const T, y: *mut U)
where
    U: Element,
{
    unsafe {
        let i = (thread::thread_idx_y() * 32 + thread::thread_idx_x()) as usize;
        let value = (*x.add(i)).to_f32();
        *y.add(i) = U::from_f32(if SQUARE { value * value } else { value });
    }
}
