//! Several devices in one process: simulated ones, as many as `WARPSMITH_SIM_DEVICES` says.

use std::process::Command;

use warpsmith::{BackendKind, Device, Error, Tensor};

const CHILD: &str = "WARPSMITH_DEVICES_CHILD";

#[test]
fn devices_are_opened_by_ordinal() {
    if std::env::var_os(CHILD).is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "devices_are_opened_by_ordinal"])
            .envs([(CHILD, "1"), ("WARPSMITH_SIM_DEVICES", "3"), ("WARPSMITH_BACKEND", "sim")])
            .status();
        assert!(status.unwrap().success());
        return;
    }
    assert_eq!(Device::count(BackendKind::Sim).unwrap(), 3);
    let all = Device::open_all().unwrap();
    assert_eq!(all.iter().map(Device::ordinal).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((Device::open().unwrap(), Device::open_nth(2).unwrap()), (all[0].clone(), all[2].clone()));
    assert!(all[0] != all[1] && all[1].to_string().starts_with("sim:1 "));
    let error = Device::open_nth(3).unwrap_err().to_string();
    assert_eq!(error, "device: parameter `ordinal` = 3: expected below 3, the number of sim devices");

    let streams: Vec<_> = all.iter().map(|device| device.stream().unwrap()).collect();
    let mut x = Tensor::filled(&streams[0], [5], 1.5f32).unwrap();
    let y = x.to_device(&streams[1]).unwrap();
    x.view_mut().fill(&streams[0], 0.0).unwrap();
    assert_eq!(y.to_device(&streams[2]).unwrap().to_vec(&streams[2]).unwrap(), [1.5; 5]);
    assert!(matches!(y.to_vec(&streams[0]), Err(Error::DeviceMismatch { .. })));
    // Closed on its own, and there again.
    let mut streams = streams.into_iter();
    drop((all, x, y, streams.next()));
    assert_eq!(Device::open_nth(0).unwrap().ordinal(), 0);
}
