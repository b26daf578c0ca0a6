//! The tests of `benches/against_peers`, which times other libraries. They are in Python and need nothing besides it.
//!
//! Without Python they are skipped, unless `CI` is set.

use std::path::Path;
use std::process::Command;

#[test]
fn the_script_that_times_other_libraries_passes_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover", "-s", "benches/against_peers"]).current_dir(root);
    match python.output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "there is no python3: {why}");
            eprintln!("skipped without python3: {why}");
        }
    }
}
