//! Planted overruns: from one shared variable into the next, into dynamic memory, and at the last address of all.

use std::fmt::Write;

use crate::common::*;
use warpsim::{Gpu, Kind, Launch, Module, Options};

/// Stores a word at `at` from `a` on, behind which are `b` and dynamic memory.
const PTX: &str = "
.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry store(.param .u32 at)
{
    .reg .b32 %r<6>;
    .reg .pred %p<1>;
    .shared .align 4 .b8 a[128];
    .shared .align 16 .b8 b[120];
    mov.u32 %r0, a;
    mov.u32 %r1, b;
    mov.u32 %r2, dynamic;
    ld.param.u32 %r3, [at];
    add.u32 %r0, %r0, %r3;
    st.shared.u32 [%r0], %r3;
    st.shared.u32 [%r1+116], %r3;
    st.shared.u32 [%r2+28], %r3;
    mov.u32 %r4, %total_smem_size;
    setp.ne.u32 %p0, %r4, 288;
    @%p0 trap;
    ret;
}";

/// What a store there is found to be.
fn found(at: u32, o: &Options) -> Option<(Kind, String)> {
    let module = Module::parse(PTX).unwrap();
    let kernel = module.kernel("store").unwrap();
    assert_eq!(kernel.static_shared(), 248, "what lies between variables is not theirs");
    let args: [&[u8]; 1] = [&at.to_le_bytes()];
    let launch = Launch { shared_bytes: 32, args: &args, ..Launch::default() };
    Gpu::new().launch(&kernel, &launch, o).err().map(|f| (f.finding.kind, f.finding.message.clone()))
}

#[test]
fn a_variable_ends_before_the_next() {
    for o in all_options() {
        for inside in [0, 124] {
            assert_eq!(found(inside, &o), None);
        }
        for (at, of) in [(128, "`a`"), (132, "`a`"), (508, "`a`"), (1152 + 120, "`b`"), (1152 + 120 + 512, "`b`")] {
            let (kind, message) = found(at, &o).unwrap_or_else(|| panic!("{at} is out of bounds"));
            assert_eq!(kind, Kind::OutOfBounds);
            assert!(message.contains(&format!("past the end of {of}")), "{message}");
        }
    }
}

/// As many variables as a block may have: what lies between them leaves all of them addressable.
#[test]
fn tiny_variables_fill_the_static_limit() {
    let (mut declared, mut stores) = (String::new(), String::new());
    for k in 0..48 * 1024 {
        writeln!(declared, ".shared .align 1 .b8 v{k}[1];").unwrap();
        writeln!(stores, "st.shared.u8 [v{k}], 1;").unwrap();
    }
    let ptx = format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry fill()\n{{\n{declared}{stores}ret;\n}}"
    );
    let module = Module::parse(&ptx).unwrap();
    let kernel = module.kernel("fill").unwrap();
    assert_eq!(kernel.static_shared(), 48 * 1024);
    Gpu::new().launch(&kernel, &Launch::default(), &Options::default()).unwrap();
}

#[test]
fn the_last_address_is_out_of_bounds() {
    let metrics = |o: Options| Options { metrics: true, ..o };
    for o in all_options().into_iter().map(metrics) {
        for access in [
            "ld.global.u32 %r1, [%x1]",
            "ld.u32 %r1, [%x1]",
            "st.global.v4.u32 [%x1+-12], {%r1, %r1, %r1, %r1}",
            "atom.global.add.u32 %r1, [%x1], 1",
            "red.global.add.u32 [%x1], 1",
            "atom.add.u64 %x2, [%x1+-4], 1",
            "atom.global.cas.b128 %w1, [%x1+-12], %w2, %w2",
            "cp.async.ca.shared.global [%r2], [%x1], 4",
            "ld.shared.u32 %r1, [%r3]",
            "atom.shared.add.u32 %r1, [%r3], 1",
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r1, [%r2]",
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r4]",
        ] {
            let text = format!(
                ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<8>; .reg .b64 %x<4>; .reg .b128 %w<4>; \
                 .shared .align 16 .b8 tile[16];\nmov.u32 %r1, 0; mov.u32 %r2, tile; mov.u32 %r3, -4; mov.u32 %r4, -16; mov.u64 %x1, -4; mov.u64 %x2, 0; \
                 mov.b128 %w2, {{%x2, %x2}};\n{access};\nret;\n}}"
            );
            let kernel = Module::parse(&text).unwrap().kernel("k").unwrap_or_else(|e| panic!("{e}"));
            let launch = Launch { block: [32, 1, 1], ..Launch::default() };
            let fault = Gpu::new().launch(&kernel, &launch, &o).unwrap_err();
            assert_eq!(fault.finding.kind, Kind::OutOfBounds, "{access}: {fault}");
        }
    }
}
