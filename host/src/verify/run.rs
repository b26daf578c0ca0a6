//! Many cases, one after the other.

use super::{Filter, Job, Row, on_device};
use crate::device::Device;

/// Runs `jobs` on `device`, telling `each` about every job's rows. A kernel that faults takes the device with it: what comes
/// after is skipped.
pub fn all(device: &Device, jobs: &[Job], filter: &Filter, mut each: impl FnMut(&Job, &[Row])) -> Vec<Row> {
    let mut all = Vec::new();
    let mut alive = true;
    for job in jobs {
        let rows = if alive {
            on_device(device, job, filter)
        } else {
            let mut row = Row::new(job, None);
            row.skip("the device was lost to an earlier fault");
            vec![row]
        };
        alive = alive && device.stream().and_then(|stream| stream.synchronize()).is_ok();
        each(job, &rows);
        all.extend(rows);
    }
    all
}
