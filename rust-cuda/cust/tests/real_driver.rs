//! The crate on a GPU, where there is one: that the numbers it passes mean to a real driver what they should.

use cust::context::CurrentContext;
use cust::error::CudaResult;
use cust::function::{ClusterSize, FunctionAttribute, LaunchAttribute, argument};
use cust::memory::{MemoryPool, cuda_free_async, mem_get_info, memset_d32_async};
use cust::prelude::*;
use cust::stream::{StreamCaptureMode, StreamWaitEventFlags};
use cust::tensor_map::{
    TensorMap, TensorMapDataType, TensorMapFloatOobFill, TensorMapL2Promotion, TensorMapSwizzle, Tiled,
};

/// x[i] += step, for the elements of one block.
const ADD: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 step) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [step];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd3], %r3; ret;
}";

/// x[block] = the number of blocks in its cluster.
const CLUSTER: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry cluster(.param .u64 x) {
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_nctarank; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2; ret;
}";

/// The first GPU; `None`, with a line, where there is none.
fn open() -> Option<Context> {
    match cust::quick_init() {
        Ok(context) => Some(context),
        Err(error) if [ErrorCode::DRIVER_NOT_FOUND, ErrorCode::NO_DEVICE].contains(&error.code()) => {
            eprintln!("skipped: no GPU ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn add() -> CudaResult<Function> {
    Module::from_ptx(ADD, &[])?.get_function("add")
}

#[test]
fn every_gpu_copies_and_launches() -> CudaResult<()> {
    let Some(_first) = open() else { return Ok(()) };
    for device in Device::devices()? {
        let context = Context::new(device?)?;
        assert_eq!(CurrentContext::get_device()?, context.device());
        assert!(mem_get_info()?.1 as u64 >= 1 << 30 && !context.device().name()?.is_empty());
        let range = CurrentContext::get_stream_priority_range()?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, Some(range.greatest))?;
        assert_eq!((stream.get_priority()?, stream.get_flags()?), (range.greatest, StreamFlags::NON_BLOCKING));
        let add = add()?;
        assert!(add.get_attribute(FunctionAttribute::MaxThreadsPerBlock)? >= 256);
        assert!(add.max_active_blocks_per_multiprocessor(256.into(), 0)? >= 4);
        let x = DeviceBuffer::from_slice(&[1u32, 2, 3])?;
        // SAFETY: a thread an element.
        unsafe { launch!(add<<<1, 3, 0, stream>>>(x.as_device_ptr(), 10u32)) }?;
        stream.synchronize()?;
        assert_eq!(x.as_host_vec()?, [11, 12, 13]);
        // Objects end on threads that have no context.
        std::thread::spawn(|| drop((x, stream, add))).join().expect("nothing panics");
    }
    Ok(())
}

#[test]
fn pools_pinned_memory_and_events() -> CudaResult<()> {
    let Some(context) = open() else { return Ok(()) };
    let (first, second) =
        (Stream::new(StreamFlags::NON_BLOCKING, None)?, Stream::new(StreamFlags::NON_BLOCKING, None)?);
    let (start, end) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    let pool = MemoryPool::new(context.device())?;
    pool.set_release_threshold(1 << 30)?;
    assert_eq!(pool.release_threshold()?, 1 << 30);
    let mut pinned = LockedBuffer::new(&0u32, 1 << 20)?;
    // SAFETY: the second stream waits for the first, and the host for the second.
    unsafe {
        start.record(&first)?;
        let memory = pool.alloc_async::<u32>(&first, pinned.len())?;
        assert!(pool.used()? >= 4 << 20 && pool.reserved()? >= pool.used()? && pool.used_high()? >= pool.used()?);
        memset_d32_async(memory, 7, pinned.len(), &first)?;
        end.record(&first)?;
        second.wait_event(&end, StreamWaitEventFlags::DEFAULT)?;
        cust::memory::memcpy_dtoh_async(pinned.as_mut_ptr(), memory, pinned.len(), &second)?;
        second.synchronize()?;
        cuda_free_async(&first, memory)?;
        let mut x = DeviceBuffer::from_slice_async(&pinned, &first)?;
        x.set_zero_async(&first)?;
        x.drop_async(&first)?;
    }
    first.synchronize()?;
    assert_eq!((end.query()?, first.query()?), (EventStatus::Ready, true));
    assert!(end.elapsed_time_f32(&start)? > 0.0);
    assert!(pinned.iter().all(|x| *x == 7));
    pool.trim_to(0)
}

#[test]
fn graphs_run_what_was_recorded() -> CudaResult<()> {
    let Some(_context) = open() else { return Ok(()) };
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let (add, x) = (add()?, DeviceBuffer::from_slice(&[1u32; 32])?);
    stream.begin_capture(StreamCaptureMode::ThreadLocal)?;
    assert!(stream.is_capturing()?);
    for step in [1u32, 10] {
        // SAFETY: a thread an element; the buffer outlives the graph's runs.
        unsafe { launch!(add<<<1, 32, 0, stream>>>(x.as_device_ptr(), step)) }?;
    }
    let graph = stream.end_capture()?;
    assert_eq!((graph.num_nodes()?, x.as_host_vec()?), (2, vec![1; 32]));
    let exec = graph.instantiate()?;
    drop(graph);
    exec.upload(&stream)?;
    for _ in 0..3 {
        // SAFETY: the buffer and the function are there.
        unsafe { exec.launch(&stream) }?;
    }
    stream.synchronize()?;
    assert_eq!(x.as_host_vec()?, [34; 32]);
    Ok(())
}

#[test]
fn clusters_and_tensor_maps() -> CudaResult<()> {
    let Some(context) = open() else { return Ok(()) };
    if context.device().get_attribute(DeviceAttribute::ComputeCapabilityMajor)? < 9 {
        eprintln!("skipped: needs compute capability 9.0");
        return Ok(());
    }
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let function = Module::from_ptx(CLUSTER, &[])?.get_function("cluster")?;
    let x = DeviceBuffer::<u32>::zeroed(8)?;
    let attributes = [LaunchAttribute::ClusterDimension(ClusterSize::x(4)), LaunchAttribute::Priority(0)];
    // SAFETY: a block an element.
    unsafe { stream.launch_with(&function, 8, 32, 0, &attributes, &[argument(&x.as_device_ptr())]) }?;
    stream.synchronize()?;
    assert_eq!(x.as_host_vec()?, [4; 8]);
    assert!(function.max_active_clusters(ClusterSize::x(4), 32.into(), 0)? > 0);

    let tensor = Tiled {
        data_type: TensorMapDataType::Uint32,
        address: x.as_device_ptr().cast(),
        dims: &[4, 2],
        strides_bytes: &[16],
        box_dims: &[4, 1],
        swizzle: TensorMapSwizzle::None,
        l2_promotion: TensorMapL2Promotion::B128,
        oob_fill: TensorMapFloatOobFill::Zero,
    };
    assert_ne!(TensorMap::encode_tiled(&tensor)?.to_raw(), [0; 16]);
    let narrow = Tiled { box_dims: &[1, 1], ..tensor };
    assert_eq!(TensorMap::encode_tiled(&narrow).unwrap_err().code(), ErrorCode::INVALID_VALUE);
    Ok(())
}

#[test]
fn failures_say_what_the_driver_says() -> CudaResult<()> {
    let Some(_context) = open() else { return Ok(()) };
    let error = Module::from_ptx(".version 7.0\n.target sm_80\n.address_size 64\nnonsense", &[]).unwrap_err();
    assert_eq!(error.error().code(), ErrorCode::INVALID_PTX);
    assert!(error.log().contains("nonsense"), "{error}");
    let huge = DeviceBuffer::<u8>::zeroed(1 << 50).unwrap_err();
    assert_eq!(huge.to_string(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let add = add()?;
    // SAFETY: blocks of this size do not start.
    let error = unsafe { launch!(add<<<1, 4096, 0, stream>>>(DevicePointer::<u32>::null(), 1u32)) }.unwrap_err();
    assert_eq!(error.to_string(), "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (1)");
    Ok(())
}
