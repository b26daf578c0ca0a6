//! Checked calls, and how they are launched.

use cuda_std::float::Half;
use cuda_std::launch::{DevicePtr, Kernel};
use gpu_kernels::ops::attention::fp8::hopper::{self, AttentionFp8Hopper};
use gpu_kernels::ops::attention::fp8::prepare::{self, AttentionFp8Prepare};
use gpu_kernels::ops::attention::fp8::simple;

use super::super::maps::{addressable, boxes, tile_map};
use super::super::problem::{self, Checked};
use super::{Attention, Fp8Heads, INFO};
use crate::f8e4m3;
use crate::ops::elementwise::grid;
use crate::ops::model::{Arguments, Params};
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::scratch::Scratch;
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::Swizzle;
use crate::runtime::view::{View, ViewMut};

type HopperArgs<T> = <AttentionFp8Hopper<T, 64, 128, 3> as Kernel>::Args;

/// The tile that a kernel computes at a time.
#[derive(Clone, Copy)]
struct Tile {
    keys: u32,
    consumers: u32,
}

/// A call with checked arguments.
pub(super) struct Call<'a, T> {
    /// Q, K and V.
    inputs: [View<'a, f8e4m3>; 3],
    scales: [View<'a, f32>; 3],
    /// The distance from the scale of one head to that of the next.
    steps: [u32; 3],
    o: ViewMut<'a, T>,
    lse: ViewMut<'a, f32>,
    problem: Checked<'a>,
}

impl<'a, T: Float + Half> Call<'a, T> {
    pub(super) fn new(
        stream: &Stream,
        heads: &Fp8Heads<'a>,
        options: &Attention<'a>,
        o: ViewMut<'a, T>,
        lse: ViewMut<'a, f32>,
    ) -> Result<Self> {
        let Fp8Heads { q, k, v, q_scales, k_scales, v_scales } = *heads;
        let mut problem = Checked::new(&INFO, stream, [q, k, v], options)?;
        stream.require_devices(
            INFO.name,
            &[("q_scales", &q_scales), ("k_scales", &k_scales), ("v_scales", &v_scales), ("o", &o), ("lse", &lse)],
        )?;
        let [batch, kv_heads, ..]: [usize; 4] = k.dims(INFO.name, "k")?;
        let scales = [("q_scales", q_scales), ("k_scales", k_scales), ("v_scales", v_scales)];
        let mut steps = [0; 3];
        for (step, (name, scales)) in steps.iter_mut().zip(scales) {
            if *scales.shape().dims() != [1] {
                scales.require_shape(INFO.name, name, &[batch, kv_heads])?;
                scales.require_contiguous(INFO.name, name)?;
                *step = 1;
            }
        }
        o.require_shape(INFO.name, "o", q.shape())?;
        o.require_inner_contiguous(INFO.name, "o")?;
        lse.require_shape(INFO.name, "lse", &q.shape()[..3])?;
        lse.require_contiguous(INFO.name, "lse")?;
        problem.sizes.o = [o.strides()[0], o.strides()[1], o.strides()[2]].map(|stride| stride as u64);
        Ok(Self { inputs: [q, k, v], scales: scales.map(|(_, scales)| scales), steps, o, lse, problem })
    }

    /// Builds the call from a launch's tensors, whose types are known only at run time.
    pub(super) fn of(stream: &Stream, args: &mut Arguments<'a>, params: &Params) -> Result<Self> {
        let options = problem::options(args, params)?;
        let (q_scales, k_scales, v_scales) =
            (args.input("q_scales")?, args.input("k_scales")?, args.input("v_scales")?);
        let [q, k, v] = [args.input("q")?, args.input("k")?, args.input("v")?];
        let heads = Fp8Heads { q, q_scales, k, k_scales, v, v_scales };
        Self::new(stream, &heads, &options, args.output("o")?, args.output("lse")?)
    }

    pub(super) fn launch(self, stream: &Stream) -> Result<()> {
        if stream.device().supports_hopper() && self.fits_hopper() {
            self.launch_hopper(stream)
        } else {
            self.launch_simple(stream)
        }
    }

    /// Whether a kernel is built for this d, scores are changed by nothing but masks, and TMA can address the tensors: strides
    /// are nonzero multiples of 16 bytes, and there are keys.
    fn fits_hopper(&self) -> bool {
        let sizes = &self.problem.sizes;
        [64, 128].contains(&sizes.d)
            && sizes.k_len > 0
            && !self.problem.biased()
            && !self.problem.packed()
            && self.inputs.iter().all(|x| x.rows_aligned(16) && addressable(x.shape(), x.strides()))
            && self.o.rows_aligned(16)
            && addressable(self.o.shape(), self.o.strides())
    }

    fn scales(&self, stream: &Stream) -> Result<[DevicePtr<f32>; 3]> {
        let [q, k, v] = &self.scales;
        Ok([q.ptr(stream)?, k.ptr(stream)?, v.ptr(stream)?])
    }

    pub(super) fn launch_simple(mut self, stream: &Stream) -> Result<()> {
        let Some(grid) = self.problem.query_blocks(&INFO, simple::ROWS)? else { return Ok(()) };
        let ([q, k, v], [q_scales, k_scales, v_scales]) = (self.inputs, self.scales(stream)?);
        let ([q_step, k_step, v_step], bounds) = (self.steps, self.problem.bounds(stream)?);
        let args = (
            q.ptr(stream)?,
            k.ptr(stream)?,
            v.ptr(stream)?,
            self.o.ptr_mut(stream)?,
            self.lse.ptr_mut(stream)?,
            bounds.cu_q,
            bounds.cu_k,
            bounds.key_lengths,
            bounds.slopes,
            bounds.sinks,
            q_scales,
            k_scales,
            v_scales,
            q_step,
            k_step,
            v_step,
            self.problem.sizes,
        );
        self.problem.note_work(f8e4m3::DTYPE, 2);
        // SAFETY: the tensors are live and have these sizes and strides, outputs are borrowed mutably, there is a scale for
        // every head of K or one for all, and the kernel bounds the lengths and offsets that it reads.
        unsafe { stream.launch::<simple::AttentionFp8Simple<T>>(grid, args) }
    }

    pub(super) fn launch_hopper(self, stream: &Stream) -> Result<()> {
        if !self.fits_hopper() {
            let wanted = "d 64 or 128, rows at multiples of 16 bytes, strides above 0, at least one key, no packed sequences, soft cap \
                          or slopes";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
        match self.problem.sizes.d {
            64 => self.launch_tma::<AttentionFp8Hopper<T, 64, 128, 3>>(stream, Tile { keys: 128, consumers: 3 }),
            _ => self.launch_tma::<AttentionFp8Hopper<T, 128, 128, 2>>(stream, Tile { keys: 128, consumers: 2 }),
        }
    }

    fn launch_tma<K: Kernel<Args = HopperArgs<T>>>(mut self, stream: &Stream, tile: Tile) -> Result<()> {
        let sizes = self.problem.sizes;
        let [q, k, _] = self.inputs;
        let rows = hopper::CLUSTER * tile.consumers * hopper::WG_M;
        let pairs = sizes.batch as usize * sizes.heads as usize * sizes.q_len.div_ceil(rows) as usize;
        let Some(pairs) = grid(&INFO, "q", pairs, 1)? else { return Ok(()) };
        let clusters = stream.device().info().multiprocessors / hopper::CLUSTER;
        let (shape, transposed) = self.transpose(stream)?;
        let dtype = f8e4m3::DTYPE;
        let swizzle = if sizes.d == 64 { Swizzle::B64 } else { Swizzle::B128 };
        let map = |x: View<'_, f8e4m3>, rows| {
            boxes(stream, x.ptr(stream)?.addr(), dtype, (x.shape(), x.strides()), [sizes.d, rows], swizzle)
        };
        let v_boxes = [tile.keys, sizes.d / hopper::CLUSTER];
        let v_map = boxes(
            stream,
            transposed.ptr_mut().addr(),
            dtype,
            (&shape, &shape.dense_strides()),
            v_boxes,
            Swizzle::B128,
        )?;
        let ([q_scales, k_scales, v_scales], [q_step, k_step, v_step]) = (self.scales(stream)?, self.steps);
        let bounds = self.problem.bounds(stream)?;
        let o = self.o.ptr_mut(stream)?;
        let args = (
            map(q, hopper::WG_M)?,
            map(k, tile.keys / hopper::CLUSTER)?,
            v_map,
            tile_map(stream, o.addr(), T::DTYPE, self.o.shape(), self.o.strides(), hopper::WG_M)?,
            o,
            self.lse.ptr_mut(stream)?,
            bounds.key_lengths,
            bounds.sinks,
            q_scales,
            k_scales,
            v_scales,
            q_step,
            k_step,
            v_step,
            sizes,
        );
        self.problem.note_work(f8e4m3::DTYPE, 2);
        // SAFETY: the maps describe live tensors of these sizes, the outputs are borrowed mutably, there is a scale for every head of K or one for all,
        // and lengths are bounded in the kernel.
        unsafe { stream.launch::<K>(hopper::CLUSTER * pairs.min(clusters), args) }
    }

    /// Vᵀ, as the kernel takes it, and its shape.
    fn transpose(&self, stream: &Stream) -> Result<(Shape, Scratch<f8e4m3>)> {
        let [.., v] = &self.inputs;
        let sizes = self.problem.sizes;
        let [batch, kv_heads, ..]: [usize; 4] = v.dims(INFO.name, "v")?;
        let columns = prepare::columns(sizes.k_len);
        let shape = Shape::new(&[batch, kv_heads, sizes.d as usize, columns as usize])?;
        let transposed = stream.workspace(INFO.name, shape.elements())?;
        let tiles = batch * kv_heads * columns.div_ceil(prepare::keys(sizes.d)) as usize;
        if let Some(grid) = grid(&INFO, "v", tiles, 1)? {
            let lengths = self.problem.bounds(stream)?.key_lengths;
            let args = (v.ptr(stream)?, transposed.ptr_mut(), lengths, kv_heads as u32, sizes);
            // SAFETY: v is live and has these strides, with rows at multiples of 16 bytes, the scratch memory has the shape of its transpose, and lengths
            // are bounded in the kernel.
            unsafe {
                match sizes.d {
                    64 => stream.launch::<AttentionFp8Prepare<64>>(grid, args)?,
                    _ => stream.launch::<AttentionFp8Prepare<128>>(grid, args)?,
                }
            }
        }
        Ok((shape, transposed))
    }
}
