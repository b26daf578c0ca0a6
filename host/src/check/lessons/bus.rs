//! The last step of the anatomy's staircase: the host's memory, behind a bus.

use std::process::Command;

use super::text::{Facts, count, digits, or_dash};
use crate::runtime::device::Device;
use crate::runtime::error::Result;
use crate::runtime::tensor::Tensor;

/// The copy sizes in bytes: small enough to find the latency, and large enough to find the rate.
const BYTES: [usize; 4] = [4, 1 << 16, 1 << 20, 1 << 28];
/// Bits per second and lane of each generation of PCIe, in units of 10⁹, and how many of 130 carry data.
const GENERATIONS: [(f64, f64); 5] = [(2.5, 104.0), (5.0, 104.0), (8.0, 128.0), (16.0, 128.0), (32.0, 128.0)];

/// A link: its description, and its bytes per second in each direction.
struct Link {
    name: String,
    rate: f64,
}

/// What the driver's own tool reports about the link at its best, if the tool is present and reports it.
fn link() -> Option<Link> {
    let asked = ["--query-gpu=pcie.link.gen.max,pcie.link.width.max", "--format=csv,noheader"];
    let said = Command::new("nvidia-smi").args(asked).output().ok().filter(|said| said.status.success())?;
    of_text(std::str::from_utf8(&said.stdout).ok()?)
}

fn of_text(said: &str) -> Option<Link> {
    let (generation, lanes) = said.lines().next()?.split_once(',')?;
    let (generation, lanes): (usize, u32) = (generation.trim().parse().ok()?, lanes.trim().parse().ok()?);
    let (clock, data) = GENERATIONS.get(generation.checked_sub(1)?)?;
    let rate = clock * 1e9 * data / 130.0 / 8.0 * f64::from(lanes);
    Some(Link { name: format!("PCIe {generation}, {lanes} lanes"), rate })
}

/// Copies of several sizes, timed.
pub(super) fn measure(device: &Device) -> Result<Option<Facts>> {
    let (stream, link) = (device.stream()?, link());
    let mut rows = Vec::new();
    for bytes in BYTES {
        let Some(bus) = stream.time_bus(&mut Tensor::<u8>::uninit(&stream, [bytes])?)? else { return Ok(None) };
        let least = link.as_ref().map(|link| bytes as f64 / link.rate);
        let ways = [
            ("to the device", bus.to_device, 1.0),
            ("to the host", bus.to_host, 1.0),
            ("there and back, waited for", bus.there_and_back, 2.0),
        ];
        for (way, seconds, times) in ways {
            let rate = times * bytes as f64 / seconds;
            let share = least.map(|least| 100.0 * times * least / seconds);
            rows.push(vec![
                way.to_owned(),
                count(bytes as f64),
                or_dash(least.map(|least| times * least * 1e6), ""),
                digits(seconds * 1e6),
                digits(rate / 1e9),
                or_dash(share, ""),
            ]);
        }
    }
    let of = link.map_or(String::new(), |link| format!(": {}, {} GB/s each way", link.name, digits(link.rate / 1e9)));
    Ok(Some(Facts {
        title: format!("Pinned memory of the host, behind the bus{of}"),
        headings: vec!["copy", ">bytes", ">µs at the link's rate", ">µs measured", ">GB/s", ">% of the link"],
        rows,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_lanes_times_their_rate() {
        let link = of_text("5, 16\n4, 8\n").unwrap();
        assert_eq!((link.name.as_str(), (link.rate / 1e8).round()), ("PCIe 5, 16 lanes", 630.0));
        assert_eq!((of_text("1, 1").unwrap().rate / 1e6).round(), 250.0);
        for unknown in ["", "[N/A], [N/A]", "0, 16", "9, 16", "5"] {
            assert!(of_text(unknown).is_none(), "{unknown}");
        }
    }
}
