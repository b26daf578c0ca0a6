//! Many cases, one after the other.

use super::{Filter, Job, Row, Status, on_device};
use crate::device::Device;
use crate::error::Result;

/// Runs `jobs` on the device that `open` opens, telling `each` about every row. A kernel that faults takes its device with
/// it: the next case gets a newly opened one.
pub fn all(
    open: impl Fn() -> Result<Device>,
    jobs: &[Job],
    filter: &Filter,
    mut each: impl FnMut(&Job, &[Row]),
) -> Result<Vec<Row>> {
    let mut device = Some(open()?);
    let mut all = Vec::new();
    for job in jobs {
        let rows = match &device {
            Some(device) => on_device(device, job, filter),
            None => {
                let mut row = Row::new(job, None);
                row.skip("the device was lost to an earlier fault");
                vec![row]
            }
        };
        if rows.iter().any(|row| row.status == Status::Fail) && !device.as_ref().is_some_and(is_alive) {
            drop(device.take());
            device = open().ok().filter(is_alive);
        }
        each(job, &rows);
        all.extend(rows);
    }
    Ok(all)
}

fn is_alive(device: &Device) -> bool {
    device.stream().and_then(|stream| stream.synchronize()).is_ok()
}
