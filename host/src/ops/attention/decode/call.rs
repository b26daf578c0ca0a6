//! Checked calls, and how they are launched.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Dim3, Kernel};
use gpu_kernels::ops::attention as gk;
use gpu_kernels::ops::attention::decode::{Cache, MIN_TILES, TILE, combine, mma, simple};
use half::{bf16, f16};

use super::tokens::Tokens;
use super::{CacheElement, Decoding, check, fits_d};
use crate::f8e4m3;
use crate::ops::attention::{checked_scale, checked_softcap};
use crate::ops::elementwise::{MAX_BLOCKS, grid};
use crate::ops::kv_cache::CacheShape;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The maximum number of pieces that the keys of a sequence are split into.
const MAX_SPLITS: u32 = 256;
/// From this many waves of blocks on, it does not matter how empty the last one is.
const TURNS: usize = 4;

/// A call with checked arguments.
pub(super) struct Call<'a, T, C> {
    info: &'static OpInfo,
    q: View<'a, T>,
    tokens: Tokens<'a, C>,
    lengths: View<'a, i32>,
    page_table: Option<View<'a, i32>>,
    sinks: Option<View<'a, f32>>,
    o: ViewMut<'a, T>,
    lse: ViewMut<'a, f32>,
    problem: gk::Problem,
    /// The problem without the number of splits.
    cache: Cache,
    splits: Option<u32>,
}

/// The pointers that every kernel takes.
struct Pointers<T, C> {
    q: DevicePtr<T>,
    caches: [DevicePtrMut<C>; 2],
    scales: [DevicePtr<f32>; 2],
    new: [DevicePtr<C>; 2],
    lengths: DevicePtr<i32>,
    page_table: DevicePtr<i32>,
    sinks: DevicePtr<f32>,
    o: DevicePtrMut<T>,
    lse: DevicePtrMut<f32>,
}

/// Arguments of the tensor-core kernel.
type Args<T, C> = (
    DevicePtr<T>,
    DevicePtrMut<C>,
    DevicePtrMut<C>,
    DevicePtr<f32>,
    DevicePtr<f32>,
    DevicePtr<C>,
    DevicePtr<C>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    DevicePtrMut<T>,
    DevicePtrMut<f32>,
    DevicePtrMut<f32>,
    DevicePtrMut<f32>,
    gk::Problem,
    Cache,
);

/// Arguments of the kernel that merges pieces.
type CombineArgs<T> = (
    DevicePtr<f32>,
    DevicePtr<f32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    DevicePtrMut<T>,
    DevicePtrMut<f32>,
    u32,
    gk::Problem,
);

/// Strides of batch, head and token of a tensor that is stored tokens first, then heads.
fn strides(strides: &[usize]) -> [u64; 3] {
    [strides[0], strides[2], strides[1]].map(|stride| stride as u64)
}

/// The problem of checked arguments.
fn problem<T, C>(
    info: &'static OpInfo,
    q: View<'_, T>,
    tokens: &Tokens<'_, C>,
    o: &ViewMut<'_, T>,
    cache: CacheShape,
    options: &Decoding<'_>,
) -> Result<gk::Problem> {
    let [batch, q_len, heads, d] = q.dims(info.name, "q")?;
    let [k_cache, v_cache] = tokens.caches();
    let [_, _, kv_heads, _] = k_cache.dims(info.name, "k_cache")?;
    let capacity = cache.capacity();
    Ok(gk::Problem {
        q: strides(q.strides()),
        k: strides(k_cache.strides()),
        v: strides(v_cache.strides()),
        o: strides(o.strides()),
        batch: batch as u32,
        heads: heads as u32,
        group: heads.checked_div(kv_heads).unwrap_or(1) as u32,
        q_len: q_len as u32,
        k_len: capacity as u32,
        d: d as u32,
        scale: checked_scale(info, options.scale, d)?,
        softcap: checked_softcap(info, options.softcap)?,
        // A window that reaches beyond all keys is clamped.
        left: options.left.unwrap_or(usize::MAX).min(q_len + capacity) as i32,
        right: 0,
    })
}

/// The location of a cache's tensors, as a single piece.
fn cache_of<C>(tokens: &Tokens<'_, C>, CacheShape { pages, page_size, max_pages, .. }: CacheShape) -> Cache {
    let [k_new, v_new] = tokens.appended().map_or([[0; 3]; 2], |new| new.map(|view| strides(view.strides())));
    let [k_scales, v_scales] = tokens.scales().map_or([[0; 3]; 2], |scales| scales.map(|view| strides(view.strides())));
    Cache {
        k_new,
        v_new,
        k_scales,
        v_scales,
        page_size: page_size as u32,
        page_count: pages as u32,
        max_pages: max_pages as u32,
        splits: 1,
    }
}

impl<'a, T: Float, C: CacheElement<T>> Call<'a, T, C> {
    #[allow(clippy::too_many_arguments)] // The operator's.
    pub(super) fn new(
        info: &'static OpInfo,
        q: View<'a, T>,
        tokens: Tokens<'a, C>,
        lengths: View<'a, i32>,
        page_table: Option<View<'a, i32>>,
        options: &Decoding<'a>,
        o: ViewMut<'a, T>,
        lse: ViewMut<'a, f32>,
    ) -> Result<Self> {
        let cache = check::tensors(info, q, &tokens, lengths, page_table)?;
        check::results(info, q, options.sinks, &o, &lse)?;
        check::sizes(info, q, cache)?;
        let problem = problem(info, q, &tokens, &o, cache, options)?;
        let cache = cache_of(&tokens, cache);
        let &Decoding { sinks, splits, .. } = options;
        if splits == Some(0) {
            return Err(info.param_error("splits", 0, "one or more"));
        }
        Ok(Self { info, q, tokens, lengths, page_table, sinks, o, lse, problem, cache, splits })
    }

    pub(super) fn launch(self, stream: &Stream) -> Result<()> {
        if self.fits_tensor_cores() { self.launch_mma(stream) } else { self.launch_simple(stream) }
    }

    /// cp.async copies 16 bytes at a time, and the products take 16-bit floats.
    fn fits_tensor_cores(&self) -> bool {
        let (caches, new) = (self.tokens.caches(), self.tokens.appended());
        let mut read = caches.iter().chain(new.iter().flatten());
        let aligned = read.all(|x| x.rows_aligned(16)) && self.q.rows_aligned(16) && self.o.rows_aligned(16);
        T::DTYPE != DType::F32 && fits_d(C::DTYPE, self.problem.d as usize) && aligned
    }

    pub(super) fn launch_simple(mut self, stream: &Stream) -> Result<()> {
        let Some(grid) = grid(self.info, "q", self.rows(), simple::QUERIES as usize)? else {
            return self.require_devices(stream);
        };
        let Pointers { q, caches: [k, v], scales, new, lengths, page_table, sinks, o, lse } = self.pointers(stream)?;
        let ([k_scales, v_scales], [k_new, v_new]) = (scales, new);
        let rows = self.rows() as u32;
        let args = (
            q,
            k,
            v,
            k_scales,
            v_scales,
            k_new,
            v_new,
            lengths,
            page_table,
            sinks,
            o,
            lse,
            rows,
            self.problem,
            self.cache,
        );
        // SAFETY: the tensors are live and have these sizes and strides, outputs are borrowed mutably, and the kernel bounds
        // lengths and pages. Without rows there was no grid.
        unsafe { stream.launch::<simple::AttentionDecodeSimple<T, C>>(grid, args) }
    }

    pub(super) fn launch_mma(self, stream: &Stream) -> Result<()> {
        if !self.fits_tensor_cores() {
            let wanted = "f16 or bf16 with d a multiple of 8 and rows at multiples of 16 bytes; of 16 and up to 128 with 8-bit caches";
            return Err(self.info.param_error("variant", "mma", wanted));
        }
        if self.rows() == 0 {
            return self.require_devices(stream);
        }
        macro_rules! launch {
            ($t:ty) => {
                // The smallest d that a kernel is built for, and a single product's worth of rows if all of them fit in it.
                match (self.problem.d, self.problem.group * self.problem.q_len) {
                    (..=64, ..=8) => launch!($t, $t, 64, 8),
                    (..=64, _) => launch!($t, $t, 64, 32),
                    (..=128, ..=8) => launch!($t, $t, 128, 8),
                    (..=128, _) => launch!($t, $t, 128, 16),
                    (_, ..=8) => launch!($t, $t, 256, 8),
                    _ => launch!($t, $t, 256, 16),
                }
            };
            ($t:ty, $c:ty) => {
                match (self.problem.d, self.problem.group * self.problem.q_len) {
                    (..=64, ..=8) => launch!($t, $c, 64, 8),
                    (..=64, _) => launch!($t, $c, 64, 16),
                    (_, ..=8) => launch!($t, $c, 128, 8),
                    _ => launch!($t, $c, 128, 16),
                }
            };
            ($t:ty, $c:ty, $d:literal, $rows:literal) => {{
                type Decode = mma::AttentionDecode<$t, $c, $d, $rows>;
                type Combine = combine::AttentionDecodeCombine<$t>;
                let resident = mma::blocks_per_multiprocessor($d, $rows, size_of::<$c>() as u32);
                self.launch_split::<$t, $c, Decode, Combine>(stream, $rows, resident)
            }};
        }
        match (T::DTYPE, C::DTYPE) {
            (DType::F16, DType::I8) => launch!(f16, i8),
            (DType::F16, DType::F8E4M3) => launch!(f16, f8e4m3),
            (DType::F16, _) => launch!(f16),
            (_, DType::I8) => launch!(bf16, i8),
            (_, DType::F8E4M3) => launch!(bf16, f8e4m3),
            _ => launch!(bf16),
        }
    }

    /// Launches `K`, of which `resident` blocks fit on a multiprocessor, and `M` if the keys are split. `U` is `T`, and `V` is `C`.
    fn launch_split<U, V, K: Kernel<Args = Args<U, V>>, M: Kernel<Args = CombineArgs<U>>>(
        mut self,
        stream: &Stream,
        block_rows: u32,
        resident: u32,
    ) -> Result<()> {
        let gk::Problem { batch, heads, group, q_len, d, .. } = self.problem;
        let tiles = (group * q_len).div_ceil(block_rows) as usize;
        let blocks = (batch * (heads / group)) as usize * tiles;
        let multiprocessors = stream.device().info().multiprocessors;
        let slots = (multiprocessors * resident) as usize;
        // Half of what is in flight when all blocks run is what memory needs. Where keys come from L2 as well, or widening them takes as long
        // as reading them, it is not memory that has to be kept busy.
        let is_bound_by_memory = tiles == 1 && C::DTYPE != DType::F8E4M3;
        let enough = is_bound_by_memory.then(|| (multiprocessors * resident.div_ceil(2)) as usize);
        let splits = self.splits(blocks, enough, slots);
        let Some(grid) = grid(self.info, "q", blocks * splits as usize, 1)? else { return Ok(()) };
        let Pointers { q, caches: [k, v], scales, new, lengths, page_table, sinks, o, lse } = self.pointers(stream)?;
        let ([k_scales, v_scales], [k_new, v_new]) = (scales, new);
        let rows = self.rows();
        let pieces = if splits > 1 { splits as usize * rows } else { 0 };
        let partial = stream.workspace::<f32>(self.info.name, pieces * (d as usize + 1))?;
        let partial_o = partial.ptr_mut();
        let partial_lse = partial_o.add((pieces * d as usize) as u64);
        let (o, lse) = (o.cast::<U>(), lse);
        let args = (
            q.cast(),
            k.cast(),
            v.cast(),
            k_scales,
            v_scales,
            k_new.cast(),
            v_new.cast(),
            lengths,
            page_table,
            sinks,
            o,
            lse,
            partial_o,
            partial_lse,
            self.problem,
            Cache { splits, ..self.cache },
        );
        // SAFETY: the tensors are live and have these sizes and strides, outputs are borrowed mutably, the scratch memory has
        // room for every piece, the kernel bounds lengths and pages, and rows and d fit the tensor cores.
        unsafe { stream.launch::<K>(grid, args)? };
        if splits == 1 {
            return Ok(());
        }
        let grid = Dim3::new(rows as u32, d.div_ceil(combine::COLUMNS), 1);
        let args = (partial_o.into(), partial_lse.into(), lengths, sinks, o, lse, splits, self.problem);
        // SAFETY: as above; the previous launch wrote the pieces.
        unsafe { stream.launch::<M>(grid, args) }
    }

    fn require_devices(&self, stream: &Stream) -> Result<()> {
        let ([k_cache, v_cache], op) = (self.tokens.caches(), self.info.name);
        let [k, v] = self.tokens.appended().map_or([None; 2], |new| new.map(Some));
        let [k_scales, v_scales] = self.tokens.scales().map_or([None; 2], |scales| scales.map(Some));
        let Self { q, lengths, page_table, sinks, o, lse, .. } = self;
        stream.require_devices(op, &[("q", q), ("k", &k), ("v", &v), ("k_cache", &k_cache), ("v_cache", &v_cache)])?;
        stream.require_devices(
            op,
            &[("k_scales", &k_scales), ("v_scales", &v_scales), (self.tokens.lengths_name(), lengths)],
        )?;
        stream.require_devices(op, &[("page_table", page_table), ("sinks", sinks), ("o", o), ("lse", lse)])
    }

    /// The number of queries of all heads.
    fn rows(&self) -> usize {
        // If one size is 0, the others may be anything.
        let gk::Problem { batch, heads, q_len, .. } = self.problem;
        [heads, q_len].into_iter().fold(batch as usize, |rows, size| rows.saturating_mul(size as usize))
    }

    /// The number of pieces to divide the keys into, with `blocks` blocks per piece: the fewest that keep the device busy,
    /// because merging pieces takes as long as reading 20 MB of keys. About `enough` concurrent blocks suffice where memory
    /// bandwidth is the only limit; beyond that some blocks finish late, so either all `slots` must be filled, or there must be
    /// so many waves that the last one does not matter.
    fn splits(&self, blocks: usize, enough: Option<usize>, slots: usize) -> u32 {
        let most = self.problem.k_len.div_ceil(TILE * MIN_TILES).clamp(1, MAX_SPLITS);
        let most = most.min((MAX_BLOCKS / blocks.max(1)).max(1) as u32);
        if let Some(splits) = self.splits {
            return splits.min(most);
        }
        let filled = |splits: u32| {
            let all = blocks * splits as usize;
            all as f64 / all.next_multiple_of(slots.max(1)) as f64
        };
        let is_busy = |splits: &u32| {
            let all = blocks * *splits as usize;
            let is_enough = enough.is_some_and(|enough| (0.72..1.05).contains(&(all as f64 / enough.max(1) as f64)));
            is_enough || filled(*splits) >= 0.95 || all >= TURNS * slots
        };
        let fullest = || (1..=most).rev().max_by(|a, b| filled(*a).total_cmp(&filled(*b)));
        (1..=most).find(is_busy).or_else(fullest).unwrap_or(1)
    }

    fn pointers(&mut self, stream: &Stream) -> Result<Pointers<T, C>> {
        self.require_devices(stream)?;
        let none = [DevicePtr::null(); 2];
        let scales = match self.tokens.scales() {
            Some([k, v]) => [k.ptr(stream)?, v.ptr(stream)?],
            None => [DevicePtr::null(); 2],
        };
        let (caches, new) = match &mut self.tokens {
            // Without new tokens the kernels only read the cache.
            Tokens::Read([k, v], _) => {
                let [k, v] = [k.ptr(stream)?, v.ptr(stream)?];
                ([DevicePtrMut::from_raw(k.addr()), DevicePtrMut::from_raw(v.addr())], none)
            }
            Tokens::Append { caches: [k_cache, v_cache], new: [k, v] } => {
                let new = [k.ptr(stream)?, v.ptr(stream)?];
                ([k_cache.ptr_mut(stream)?, v_cache.ptr_mut(stream)?], new)
            }
        };
        Ok(Pointers {
            q: self.q.ptr(stream)?,
            caches,
            scales,
            new,
            lengths: self.lengths.ptr(stream)?,
            page_table: self.page_table.map_or(Ok(DevicePtr::null()), |table| table.ptr(stream))?,
            sinks: self.sinks.map_or(Ok(DevicePtr::null()), |sinks| sinks.ptr(stream))?,
            o: self.o.ptr_mut(stream)?,
            lse: self.lse.ptr_mut(stream)?,
        })
    }
}
