use super::*;

#[test]
fn messages_name_operator_argument_and_values() {
    let e = Error::shape("rms_norm", "weight", &[3, 4], "[4]");
    assert_eq!(e.to_string(), "rms_norm: `weight` has shape [3, 4], expected [4]");
    let e = Error::dtype("gelu", "y", DType::I8, "float32, float16 or bfloat16");
    assert_eq!(e.to_string(), "gelu: `y` is int8, expected float32, float16 or bfloat16");
    let e = Error::param("gelu", "approx", 3, "0 or 1");
    assert_eq!(e.to_string(), "gelu: parameter `approx` = 3: expected 0 or 1");
    let e = Error::OutOfMemory { of: None, requested: 3 << 30, free: 5 << 19, total: 80 << 30 };
    assert_eq!(e.to_string(), "out of device memory: 3.0 GiB requested, 2.5 MiB of 80.0 GiB free");
    let e = Error::UnknownOperator { name: "gelo".into(), nearest: vec!["gelu".into()] };
    assert_eq!(e.to_string(), "no operator is called `gelo`; did you mean gelu?");
    let e = Error::DriverTooOld { found: CudaVersion(11040), needed: CudaVersion(12000) };
    assert!(e.to_string().contains("CUDA 11.4, the kernels need 12.0"));
}

#[test]
fn error_stays_small_enough_to_return() {
    assert!(size_of::<Error>() <= 128);
}

#[track_caller]
fn says(error: Error, expected: &str) {
    assert_eq!(error.to_string(), expected);
}

#[test]
fn messages_of_tensors_name_what_is_wrong() {
    says(Error::layout("gemm", "b", "has strides [1, 3]"), "gemm: `b` has strides [1, 3]");
    says(Error::too_large("tensor", "shape", "2^70 bytes"), "tensor: `shape` is too large: 2^70 bytes");
    says(Error::param("dropout", "p", 1.1f32, "below 1"), "dropout: parameter `p` = 1.1: expected below 1");
    says(Error::param("cli", "a\x1b", "\n", "text"), "cli: parameter `a\\u{1b}` = \\n: expected text");
    let (found, expected) = ("sim:1".to_owned(), "sim:0".to_owned());
    says(Error::DeviceMismatch { op: "gelu", arg: "x", found, expected }, "gelu: `x` is on sim:1, expected sim:0");
    let e = |of| Error::OutOfMemory { of, requested: 100, free: 0, total: 1 << 10 };
    says(e(None), "out of device memory: 100 B requested, 0 B of 1.0 KiB free");
    says(e(Some(("gelu", "y"))), "gelu: `y`: out of device memory: 100 B requested, 0 B of 1.0 KiB free");
}

#[test]
fn messages_of_launches_name_the_kernel() {
    let fault = |kernels| Error::KernelFault { kernels, code: 700, name: "CUDA_ERROR_ILLEGAL_ADDRESS".into() };
    let text = fault(vec!["gelu_f32", "relu_f32"]).to_string();
    assert!(
        text.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700); last launched, newest first: gelu_f32, relu_f32."),
        "{text}"
    );
    assert!(text.ends_with("restart it") && fault(Vec::new()).to_string().contains("none of Warpsmith's"));
    let e = Error::Launch { kernel: "gelu_f32", reason: "a grid of 2^31 blocks".into() };
    says(e, "kernel gelu_f32 cannot be launched: a grid of 2^31 blocks");
    let e = Error::MissingKernel {
        module: "ops::gelu",
        symbol: "gelu_f32",
        arch: "sm_80",
        hint: ", only for sm_90a".into(),
    };
    says(e, "there is no kernel ops::gelu::gelu_f32 for sm_80, only for sm_90a");
    let e = Error::DuplicateKernel { module: "ops::gelu", symbol: "gelu_f32", arch: Arch::Sm80 };
    says(e, "kernel ops::gelu::gelu_f32 for sm_80 was added before, from elsewhere");
    let e = Error::KernelMismatch { symbol: "gelu_f32", reason: "3 parameters, not 4".into() };
    says(e, "kernel gelu_f32: the PTX does not match its declaration: 3 parameters, not 4");
    let (code, name) = (218, "CUDA_ERROR_INVALID_PTX".to_owned());
    let e = Error::KernelLoad { symbol: "gelu_f32", code, name, log: ": line 3".into() };
    says(e, "kernel gelu_f32 does not compile for this GPU: CUDA_ERROR_INVALID_PTX (218): line 3");
    let e = Error::KernelLoad { symbol: "gelu_f32", code: 0, name: "not taken".to_owned(), log: ": line 3".into() };
    says(e, "kernel gelu_f32 does not compile for this GPU: not taken: line 3");
    says(Error::Driver { call: "cuInit", code: 3, name: "X".into() }, "cuInit failed: X (3)");
}

#[test]
fn findings_are_counted() {
    let finding = Finding {
        kernel: "gelu_f32".into(),
        kind: "out-of-bounds",
        message: "a load of 4 bytes".into(),
        fatal: true,
        ptx_line: 0,
        instruction: String::new(),
        source: None,
        block: [0; 3],
        thread: [0; 3],
        address: None,
        earlier: None,
        count: 1,
    };
    let text = "out-of-bounds: a load of 4 bytes, in kernel gelu_f32";
    says(Error::Findings { findings: vec![finding.clone()] }, text);
    says(
        Error::Findings { findings: vec![finding.clone(), finding.clone(), finding] },
        &format!("{text} (and 2 more)"),
    );
    says(Error::Findings { findings: Vec::new() }, "nothing was found");
}

#[test]
fn messages_of_machines_say_what_is_missing() {
    let missing = [
        (
            Error::NoDriver { looked_for: "libcuda.so.1: not found".into() },
            "no CUDA driver found (libcuda.so.1: not found): install the NVIDIA driver; the CUDA toolkit is not needed",
        ),
        (
            Error::NamedDriver { variable: "WARPSMITH_LIBCUDA", looked_for: "/x/libcuda.so.1: not found".into() },
            "WARPSMITH_LIBCUDA names no CUDA driver (/x/libcuda.so.1: not found): let it name the driver's library, or leave it unset",
        ),
        (
            Error::NoGpu { version: Some(CudaVersion(12040)), visible: Some("3".into()) },
            "the CUDA driver 12.4 finds no GPU (CUDA_VISIBLE_DEVICES is 3)",
        ),
        (
            Error::NoGpu { version: None, visible: None },
            "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES is not set)",
        ),
        (
            Error::UnsupportedDevice { name: "Tesla V100".into(), compute_capability: (7, 0) },
            "Tesla V100 has compute capability 7.0: the kernels need 8.0 (Ampere) or newer",
        ),
        (Error::KernelArchive { reason: "it is cut off".into() }, "the kernels cannot be loaded: it is cut off"),
        (Error::KernelsNotBuilt { why: "no-kernels".into() }, "this build carries no kernels: no-kernels"),
        (
            Error::BackendUnavailable { backend: "rocm".into(), reason: "there are cuda and sim".into() },
            "backend `rocm` is not available: there are cuda and sim",
        ),
    ];
    for (error, text) in missing {
        assert!(error.is_environment(), "{text}");
        says(error, text);
    }
    assert!(!Error::file("x", "not found").is_environment());
}

#[test]
fn names_and_files_of_users_are_shown_escaped() {
    let e = Error::UnknownOperator { name: "\x1b[2J".into(), nearest: Vec::new() };
    says(e, "no operator is called `\\u{1b}[2J`");
    let e = Error::UnknownCase {
        op: "gelu".into(),
        name: "tiny".into(),
        nearest: vec!["tiny 1x1".into(), "tiny 3x5".into()],
    };
    says(e, "gelu: no case is called `tiny`; did you mean tiny 1x1, tiny 3x5?");
    says(Error::file("a\nb", "not found"), "a\\nb: not found");
    let e = Error::Unwritten { path: "out".into(), reason: "no space left".into() };
    says(e, "out: cannot be written to the end: no space left");
    assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
}
