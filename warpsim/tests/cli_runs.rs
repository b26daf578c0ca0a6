//! The command on a module of its own: several launches, files, and what it refuses.

use std::path::PathBuf;
use std::process::Command;

/// `scale(x, factor)`, mangled; `fill(x, byte)`; `pair({x, factor})`. All work on 64 elements.
const MODULE: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.const .align 4 .f32 offset[2] = {1.0, 2.0};
.visible .entry _Z5scaleIfLi4EEvPT_f(.param .u64 x, .param .f32 factor)
{
    .reg .b32 %r<3>; .reg .f32 %f<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.param.f32 %f1, [factor];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
    ld.const.f32 %f3, [offset];
    ld.global.f32 %f2, [%rd1]; fma.rn.f32 %f2, %f2, %f1, %f3; st.global.f32 [%rd1], %f2;
    ret;
}
.visible .entry fill(.param .u64 x, .param .u8 byte)
{
    .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .b16 %h<2>;
    ld.param.u64 %rd1, [x]; ld.param.u8 %h1, [byte];
    mov.u32 %r1, %tid.x; cvt.u64.u32 %rd2, %r1; add.s64 %rd1, %rd1, %rd2; st.global.u8 [%rd1], %h1;
    ret;
}
.visible .entry pair(.param .align 8 .b8 p[16])
{
    .reg .b64 %rd<4>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [p]; ld.param.f32 %f1, [p+8]; st.global.f32 [%rd1], %f1;
    ret;
}
"#;

/// A file of this process: another may run the same tests in the same target folder.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// Exit code, output, messages.
fn warpsim(args: &[&str]) -> (i32, String, String) {
    warpsim_on(MODULE, args)
}

fn warpsim_on(module: &str, args: &[&str]) -> (i32, String, String) {
    let file = file(&format!("cli-{:?}.ptx", std::thread::current().id()));
    std::fs::write(&file, module).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_warpsim")).arg(&file).args(args).output().unwrap();
    std::fs::remove_file(file).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr))
}

#[test]
fn launches_share_buffers_and_leave_files() {
    let (array, tensors) = (file("scaled.npy"), file("scaled.safetensors"));
    let save = format!("x={}", array.display());
    let (code, out, err) = warpsim(&[
        "--kernel",
        "scale",
        "--block",
        "64",
        "--arg",
        "x:f32[64]=iota",
        "--arg",
        "2",
        "--launch",
        "scale<float, 4> --block 64 --arg x --arg 0.5".replace("scale<float, 4>", "'scale<float, 4>'").as_str(),
        "--launch",
        "pair --arg {x,f32:-3}",
        "--print",
        "x:3",
        "--save",
        &save,
        "--save",
        &format!("x={}", tensors.display()),
    ]);
    // ((k · 2 + 1) / 2) + 1
    assert_eq!((code, out.as_str()), (0, "x: -3 2.5 3.5\n"), "{err}");
    let data = std::fs::read(&array).unwrap();
    assert!(data.starts_with(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (64,), }"));
    assert_eq!((data.len(), &data[128 + 4..128 + 8]), (128 + 256, &2.5f32.to_le_bytes()[..]));
    let header = br#"{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}"#;
    let named = std::fs::read(&tensors).unwrap();
    assert!(named[8..].starts_with(header), "{}", String::from_utf8_lossy(&named[8..]));
    assert_eq!(named[named.len() - 256..], data[128..]);
    // And back.
    let read = format!("x:f32[64]=@{}", array.display());
    let again = ["--kernel", "scale", "--block", "64", "--arg", &read, "--arg", "1", "--print", "x:2"];
    assert_eq!(warpsim(&again).1, "x: -2 3.5\n");
    let other = read.replace("f32", "u32");
    let (code, _, err) = warpsim(&["--kernel", "fill", "--arg", &other, "--arg", "1"]);
    assert!(code == 2 && err.contains("not of <u4 in C order"), "{err}");
    [array, tensors].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn variables_are_set_and_read() {
    let run = |var: &str| {
        warpsim(&[
            "--var",
            var,
            "--kernel",
            "scale",
            "--block",
            "64",
            "--arg",
            "x:f32[64]=ones",
            "--arg",
            "2",
            "--print",
            "x:1",
            "--print",
            "offset",
        ])
    };
    assert_eq!(run("offset:f32[2]").1, "x: 3\noffset: 1 2\n");
    assert_eq!(run("offset:f32[2]=5").1, "x: 7\noffset: 5 5\n");
    for (var, says) in
        [("offset:f32[3]", "`offset` has 8 bytes"), ("shift:f32[1]", "no variable `shift`; the module has: offset")]
    {
        let (code, _, err) = run(var);
        assert!(code == 2 && err.contains(says), "{err}");
    }
}

#[test]
fn the_only_kernel_needs_no_name() {
    let head = MODULE.find(".visible .entry fill").unwrap();
    let module = format!(
        "{}{}",
        &MODULE[..MODULE.find(".const").unwrap()],
        &MODULE[head..MODULE.find(".visible .entry pair").unwrap()]
    );
    let (code, out, err) = warpsim_on(&module, &["--arg", "x:u8[64]=ones", "--arg", "7", "--print", "x:2"]);
    assert_eq!((code, out.as_str()), (0, "x: 7 1\n"), "{err}");
    // Without its arguments it is described, and of several none is meant.
    let (code, out, _) = warpsim_on(&module, &["--block", "64"]);
    assert!(code == 0 && out.starts_with("fill  parameters [8, 1]"), "{out}");
    let (code, out, _) = warpsim(&["--arg", "x:u8[64]=ones", "--arg", "7"]);
    assert!(code == 0 && out.contains("pair  parameters"), "{out}");
    let empty = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\ntrap;\n}\n";
    assert_eq!(warpsim_on(empty, &[]).0, 1);
}

#[test]
fn kernels_have_readable_names() {
    let (code, out, _) = warpsim(&[]);
    assert!(code == 0 && out.contains("_Z5scaleIfLi4EEvPT_f  (scale<float, 4>)  parameters [8, 4]"), "{out}");
}

#[test]
fn what_cannot_be_is_refused() {
    let fill = |x: &'static str, byte: &'static str| vec!["--kernel", "fill", "--arg", x, "--arg", byte];
    let scale = |factor: &'static str| vec!["--kernel", "scale", "--arg", "f32[64]", "--arg", factor];
    let cases = [
        (fill("u8[64]", "300"), "`300` does not fit u8: 0 to 255"),
        (fill("u8[64]", "-129"), "`-129` does not fit i8: -128 to 127"),
        (fill("u8[64]", "0.5"), "`0.5` for a parameter of type u8: a whole number is needed"),
        (fill("u8[64]", "y"), "`y` is not a number, nor a buffer so far"),
        (fill("u8[64]", "u16:7"), "2 bytes for a parameter of 1"),
        (fill("u8[64]=256", "1"), "no contents `256` does not fit u8"),
        (fill("u8[99999999999999999999]", "1"), "is not a count"),
        (fill("f64[9999999999999999999]", "1"), "too large"),
        (fill("f64[99999999999999]=iota", "1"), "`=none` takes memory only where it is used"),
        (fill("f64[999999999999999999]=none", "1"), "this machine does not have another 7999999999999999992 bytes"),
        (scale("1e39"), "`1e39` does not fit f32"),
        (vec!["--kernel", "pair", "--arg", "7"], "`{u32:1,f32:2}` lists a structure's fields"),
        (vec!["--kernel", "pair", "--arg", "{7}"], "field `7`: TYPE:NUMBER or the name of a buffer is needed"),
        (
            vec!["--kernel", "fill", "--block", "2048", "--arg", "u8[64]", "--arg", "1"],
            "1 to 1024 threads are possible",
        ),
        (
            vec!["--kernel", "fill", "--block", "1x1x65", "--arg", "u8[64]", "--arg", "1"],
            "at most 64 in the third dimension",
        ),
        (
            vec!["--kernel", "fill", "--grid", "1x65536", "--arg", "u8[64]", "--arg", "1"],
            "1 to 2147483647 x 65535 x 65535 blocks are possible",
        ),
        (
            vec!["--launch", "fill --arg x:u8[64] --arg 1", "--launch", "fill --arg x:u8[64] --arg 1"],
            "there is a buffer `x` already",
        ),
        (vec!["--launch", "fill --arg 'x"], "a quote without its end"),
        (
            vec!["--kernel", "fill", "--registers", "600", "--arg", "u8[64]", "--arg", "1"],
            "600 registers a thread: 255 are possible",
        ),
        (fill("im2col:x:1x2:3", "1"), "im2col:BUFFER:DIMS:LOWER:UPPER:CHANNELSxPIXELS[:SWIZZLE] is needed"),
        (fill("im2col:x:64x8x8x2:0x0:0x0:64x16", "1"), "no buffer `x` so far"),
        (
            vec!["--launch", "fill --cooperative --grid 3457 --arg u8[64] --arg 1"],
            "too many blocks in a cooperative launch: 3457, and A100 holds 3456 at once",
        ),
        (vec!["--launch", "fill --wide 7"], "unexpected argument '--wide'"),
    ];
    for (args, says) in cases {
        let (code, _, err) = warpsim(&args);
        assert!(code == 2 && err.contains(says), "{args:?}: {code} {err}");
    }
    // Nothing is wrong with these.
    for args in
        [fill("u8[64]", "-128"), fill("u8[64]", "0xff"), scale("2"), scale("inf"), fill("u8[999999999]=none", "0")]
    {
        assert_eq!(warpsim(&args).0, 0, "{args:?}");
    }
}
