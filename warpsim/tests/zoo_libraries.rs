//! What kernels of CUTLASS and of NVIDIA's samples do that is correct and only looks like a mistake, and the mistakes that come
//! closest to it.

use crate::common::{read, try_run};
use crate::zoo_order::kernel;
use warpsim::{Checks, Gpu, Options};

/// Lane 0 polls for a flag that the other warp sets once the lanes beside it have gone ahead, so that they stay apart; then all
/// add up by shuffles.
#[test]
fn split_lanes_shuffle_together_whenever_their_turn_ends() {
    let mut sums = String::new();
    for k in 0..40 {
        sums += &format!("shfl.sync.bfly.b32 %r8, %r7, {}, 31, -1; add.u32 %r7, %r7, %r8;\n", 1 << (k % 5));
    }
    let poll = |label: &str, at: &str| {
        format!("{label}: ld.acquire.cta.shared.u32 %r6, [{at}]; setp.eq.u32 %p4, %r6, 0; @%p4 bra {label};")
    };
    let (first, second) = (poll("L", "bar"), poll("M", "bar+4"));
    let body = format!(
        "@%p1 st.shared.v2.u32 [bar], {{0, 0}}; bar.sync 0; setp.lt.u32 %p2, %r1, 32; mov.u32 %r7, %r1; @%p2 bra WAIT;\n\
         setp.ne.u32 %p3, %r1, 32; @%p3 bra END;\n{second}\nst.release.cta.shared.u32 [bar], 1; bra END;\n\
         WAIT: @!%p1 bra MEET;\n{first}\nMEET: setp.eq.u32 %p5, %r1, 1; @%p5 st.release.cta.shared.u32 [bar+4], 1;\n{sums}\n\
         cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r7;\nEND:"
    );
    let text = kernel(1, &body);
    for seed in 0..100 {
        let mut g = Gpu::new();
        let (p, q) = (g.alloc(4, "input"), g.alloc(128, "output"));
        let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
        let o = Options { checks: Checks::ALL, seed, threads: 1, ..Options::default() };
        let r = try_run(&mut g, &text, "k", [1; 3], [64, 1, 1], 0, &args, &o)
            .unwrap_or_else(|f| panic!("seed {seed}: {f}"));
        assert!(r.clean(), "seed {seed}: {}", r.findings[0]);
        // Five of the 40 steps sum up all lanes, and each later five multiply the sum by 32.
        let sum = (0..32u32).sum::<u32>().wrapping_mul(32u32.wrapping_pow(7));
        assert_eq!(read::<u32>(&g, q, 32), [sum; 32], "seed {seed}");
    }
}
