//! Which architectures have an instruction. ptxas refuses an instruction that the module's target does not have, and so does this crate.

/// Why this target does not have it, or why the simulator does not execute it.
pub fn refused(op: &str, target: &str) -> Option<String> {
    let mut parts = op.split('.');
    let (root, mods) = (parts.next().unwrap_or(""), parts.collect::<Vec<_>>());
    if root == "multimem" {
        return Some("multimem is not supported: one GPU is simulated".into());
    }
    if blackwell(root, &mods) {
        return Some("an instruction of Blackwell (sm_100 and later), which is not supported".into());
    }
    lacks(target, needs(root, &mods))
}

/// Why a target does not have a feature that was introduced with a later one.
pub fn lacks(target: &str, (least, exact): (u32, bool)) -> Option<String> {
    let number = target.strip_prefix("sm_")?;
    let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = number.split_at(digits);
    let number: u32 = number.parse().ok()?;
    let enough = number >= least && (!exact || !suffix.is_empty());
    (!enough).then(|| {
        let suffix = if exact { "a" } else { " or later" };
        format!("needs .target sm_{least}{suffix}, and the module's is {target}")
    })
}

/// Independent thread scheduling.
pub const FREE_LANES: (u32, bool) = (70, false);

/// The special registers of clusters.
pub const CLUSTERS: (u32, bool) = (90, false);

/// Minima and maxima of three numbers.
pub const THREE_INPUTS: (u32, bool) = (100, false);

/// The oldest target that has it, and whether only its `a` variant does.
fn needs(root: &str, mods: &[&str]) -> (u32, bool) {
    let has = |m: &str| mods.contains(&m);
    let begins = |start: &str| mods.iter().any(|m| m.starts_with(start));
    let of_hopper = match root {
        "wgmma" | "setmaxnreg" => return (90, true),
        "tensormap" => return (90, has("replace")),
        "mapa" | "getctarank" | "stmatrix" | "elect" | "griddepcontrol" => true,
        "barrier" => has("cluster"),
        "cp" => has("bulk"),
        "mbarrier" => has("try_wait") || has("expect_tx") || has("complete_tx"),
        "fence" => has("mbarrier_init") || has("async") || begins("async::") || begins("tensormap"),
        "st" | "red" => has("async"),
        "prefetch" => has("tensormap"),
        _ => false,
    };
    let of_clusters =
        has("shared::cluster") || has("cluster") && matches!(root, "ld" | "st" | "atom" | "red" | "fence" | "mbarrier");
    let of_256_bits = has("v8") && has_word(mods, "32") || has("v4") && has_word(mods, "64");
    match root {
        "ld" | "st" if of_256_bits && !has("async") => (100, false),
        _ if of_hopper || of_clusters => (90, false),
        "cp" | "mbarrier" | "redux" => (80, false),
        _ => (0, false),
    }
}

/// Whether the type has this many bits.
fn has_word(mods: &[&str], bits: &str) -> bool {
    mods.last().is_some_and(|ty| ty.get(1..) == Some(bits))
}

fn blackwell(root: &str, mods: &[&str]) -> bool {
    let has = |m: &str| mods.contains(&m);
    let begins = |start: &str| mods.iter().any(|m| m.starts_with(start));
    let narrow = ["e2m1", "e2m3", "e3m2", "ue8m0"].iter().any(|t| begins(t));
    match root {
        "tcgen05" | "clusterlaunchcontrol" => true,
        "add" | "sub" | "mul" | "fma" => has("f32x2"),
        "cvt" => narrow || has("rs") || has("tf32") && has("satfinite") && !has("rna"),
        "mma" => narrow || begins("kind::") || begins("block_scale"),
        "cp" => ["cta_group", "tile::", "im2col::w"].iter().any(|m| begins(m)),
        "redux" => has("f32"),
        "ldmatrix" => has("m16n16") || has("m8n16"),
        "stmatrix" => has("m16n8"),
        "st" => has("bulk"),
        _ => false,
    }
}
