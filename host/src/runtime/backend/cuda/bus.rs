//! Copies between pinned memory of the host and a device, timed: how fast the bus between them is.

use std::time::Instant;

use cust::event::{Event, EventFlags};
use cust::memory::{DevicePointer, LockedBuffer, memcpy_dtoh_async, memcpy_htod_async};
use cust::stream::Stream;

use crate::runtime::backend::{Bus, Outcome};

/// Copies of each kind, of which the median counts.
const TIMES: usize = 20;

/// # Safety
/// `bytes` bytes at `address` are inside an allocation that nothing else uses.
pub(super) unsafe fn time(stream: &Stream, address: u64, bytes: usize) -> Outcome<Bus> {
    let mut host = LockedBuffer::new(&0u8, bytes)?;
    let device = DevicePointer::<u8>::from_raw(address);
    let to = |host: &mut LockedBuffer<u8>| {
        // SAFETY: both sides hold that many bytes, and stay until the stream was waited for, which `median` does each time.
        unsafe { memcpy_htod_async(device, host.as_ptr().as_ptr(), bytes, stream) }
    };
    let from = |host: &mut LockedBuffer<u8>| {
        // SAFETY: as above.
        unsafe { memcpy_dtoh_async(host.as_ptr().as_ptr(), device, bytes, stream) }
    };
    let (start, end) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    let mut between = |copy: &dyn Fn(&mut LockedBuffer<u8>) -> cust::error::CudaResult<()>| {
        median(|| {
            start.record(stream)?;
            let copied = copy(&mut host);
            end.record(stream)?;
            stream.synchronize()?;
            copied?;
            Ok(f64::from(end.elapsed_time_f32(&start)?) / 1e3)
        })
    };
    let (to_device, to_host) = (between(&to)?, between(&from)?);
    let there_and_back = median(|| {
        let start = Instant::now();
        let copied = to(&mut host).and_then(|()| from(&mut host));
        stream.synchronize()?;
        copied?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    Ok(Bus { to_device, to_host, there_and_back })
}

fn median(mut once: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    once()?;
    let mut times = (0..TIMES).map(|_| once()).collect::<Outcome<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[TIMES / 2])
}
