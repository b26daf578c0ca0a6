//! Misuse that must not compile, and what the compiler says about it.

#[test]
fn misuse_does_not_compile() {
    // SAFETY: the only test of this program, so no other thread reads the environment. Without a device toolchain the
    // library that the files are checked against is built in seconds, and types are all they need of it.
    unsafe { std::env::set_var("WARPSMITH_DEVICE_TOOLCHAIN", "/none") };
    let tests = trybuild::TestCases::new();
    tests.pass("compile_fail/correct.rs");
    tests.compile_fail("compile_fail/wrong_*.rs");
}
