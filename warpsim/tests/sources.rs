//! Lines of the source: `.file` and `.loc`.

use super::common::*;
use warpsim::{Gpu, Kind, Options};

/// Reads out of bounds in what was inlined into what was inlined; a plain line comes after.
const TEXT: &str = r#"
.version 8.0
.target sm_80, debug
.address_size 64
.file 1 "kernel.rs"
.file 2 "library.rs"
.visible .entry k(.param .u64 x)
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    .loc 1 10 5
    ld.param.u64 %rd1, [x];
    .loc 1 12 9
    .loc 2 70 1, function_name $outer, inlined_at 1 12 9
    .loc 2 80 3, function_name $inner, inlined_at 2 70 1
    ld.global.u32 %r1, [%rd1+FIRST];
    .loc 1 13 5
    ld.global.u32 %r2, [%rd1+SECOND];
    ret;
$outer: $inner:
}
.section .debug_abbrev
{
    .b8 1
    .b8 17
$L:
    .b32 $L
}
"#;

#[test]
fn findings_name_the_lines_of_the_source() {
    for (first, second, expected) in [
        (8, 0, "PTX line 15 `ld.global.u32` (kernel.rs:12, inlined from library.rs:80)"),
        (0, 8, "PTX line 17 `ld.global.u32` (kernel.rs:13)"),
    ] {
        let text = TEXT.replace("FIRST", &first.to_string()).replace("SECOND", &second.to_string());
        let mut gpu = Gpu::new();
        let x = gpu.alloc_with(&[0; 8], "x");
        let fault = try_run(&mut gpu, &text, "k", [1; 3], [1; 3], 0, &[&x.to_le_bytes()], &Options::default());
        let finding = fault.unwrap_err().finding;
        assert_eq!((finding.kind, finding.place.to_string().as_str()), (Kind::OutOfBounds, expected));
    }
}

/// Calls that name each other end the search.
#[test]
fn circles_of_calls_end() {
    let text = TEXT
        .replace("FIRST", "8")
        .replace("SECOND", "0")
        .replace(".loc 1 12 9\n", ".loc 1 12 9, function_name $outer, inlined_at 2 80 3\n");
    let mut gpu = Gpu::new();
    let x = gpu.alloc_with(&[0; 8], "x");
    let fault = try_run(&mut gpu, &text, "k", [1; 3], [1; 3], 0, &[&x.to_le_bytes()], &Options::default());
    assert!(fault.unwrap_err().finding.place.sources().is_some_and(|s| s.contains("inlined from library.rs:80")));
}
