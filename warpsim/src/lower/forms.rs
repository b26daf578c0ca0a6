//! Which types and modifiers an instruction has: what ptxas refuses is refused here too.

use super::types::Ty;

/// Instructions, their types, modifiers that may stand, and modifiers that have to, of which `|` separates those that exclude each other.
/// An instruction takes what one of its lines allows.
type Form = (&'static str, &'static str, &'static str, &'static str);

const ROUND: &str = "rn rz rm rp";
const ROUNDED: &str = "rn|rz|rm|rp";
const EQUAL: &str = "eq|ne";
const SIGNED: &str = "eq|ne|lt|le|gt|ge";
const UNSIGNED: &str = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs";
const FLOAT: &str = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan";
const LOGIC: &str = "and or xor u32 s32 f32 f16 bf16";
const FORMS: &[Form] = &[
    ("add sub", "u16 s16", "", ""),
    ("add sub addc subc", "u32 u64 s64", "cc", ""),
    ("add sub addc subc", "s32", "cc sat", ""),
    ("add", "u16x2 s16x2", "", ""),
    ("add sub mul", "f16 f16x2", "rn ftz sat", ""),
    ("add sub mul", "bf16 bf16x2", "rn", ""),
    ("add sub mul", "f32", "rn rz rm rp ftz sat", ""),
    ("add sub mul", "f64", ROUND, ""),
    ("mul", "u16 s16 u32 s32", "", "hi|lo|wide"),
    ("mul", "u64 s64", "", "hi|lo"),
    ("mad", "u16 s16 u32 s32", "", "hi|lo|wide"),
    ("mad", "s32", "sat", "hi"),
    ("mad", "u64 s64", "", "hi|lo"),
    ("mad madc", "u32 s32 u64 s64", "cc", "hi|lo"),
    ("mul24 mad24", "u32 s32", "", "hi|lo"),
    ("mad24", "s32", "sat", "hi"),
    ("fma", "f16 f16x2", "ftz sat", "rn"),
    ("fma", "f16 f16x2", "ftz relu", "rn"),
    ("fma", "f16 f16x2 bf16 bf16x2", "oob relu", "rn"),
    ("fma mad", "f32", "ftz sat", ROUNDED),
    ("fma mad", "f64", "", ROUNDED),
    ("div rem sad", "u16 s16 u32 s32 u64 s64", "", ""),
    ("div", "f32", "ftz", "rn|rz|rm|rp|approx|full"),
    ("div", "f64", "", ROUNDED),
    ("abs neg", "s16 s32 s64 bf16 bf16x2 f64", "", ""),
    ("abs neg", "f16 f16x2 f32", "ftz", ""),
    ("min max", "u16 s16 u32 u64 s64 u16x2 f64", "", ""),
    ("min max", "s32 s16x2", "relu", ""),
    ("min max", "f16 f16x2 f32", "ftz NaN xorsign abs", ""),
    ("min max", "bf16 bf16x2", "NaN xorsign abs", ""),
    ("rcp sqrt", "f32", "ftz", "rn|rz|rm|rp|approx"),
    ("rcp sqrt", "f64", "", ROUNDED),
    ("rcp", "f64", "", "rn|rz|rm|rp|approx ftz"),
    ("rsqrt", "f32 f64", "ftz", "approx"),
    ("sin cos lg2 ex2", "f32", "ftz", "approx"),
    ("ex2", "f16 f16x2", "", "approx"),
    ("ex2", "bf16 bf16x2", "", "approx ftz"),
    ("tanh", "f16 f16x2 bf16 bf16x2 f32", "", "approx"),
    ("copysign", "f32 f64", "", ""),
    ("and or xor not", "b16 b32 b64 pred", "", ""),
    ("cnot shl", "b16 b32 b64", "", ""),
    ("shr", "b16 b32 b64 u16 u32 u64 s16 s32 s64", "", ""),
    ("popc clz brev", "b32 b64", "", ""),
    ("bfind", "u32 s32 u64 s64", "shiftamt", ""),
    ("bfe", "u32 s32 u64 s64", "", ""),
    ("bfi", "b32 b64", "", ""),
    ("shf", "b32", "", "l|r wrap|clamp"),
    ("bmsk", "b32", "", "wrap|clamp"),
    ("szext", "u32 s32", "", "wrap|clamp"),
    ("prmt", "b32", "f4e b4e rc8 ecl ecr rc16", ""),
    ("dp4a", "u32 s32", "u32 s32", ""),
    ("dp2a", "u32 s32", "u32 s32", "lo|hi"),
    ("shfl", "b32", "sync", "up|down|bfly|idx"),
    ("vote", "b32", "sync", "ballot"),
    ("vote", "pred", "sync", "all|any|uni"),
    ("match", "b32 b64", "", "sync any|all"),
    ("redux", "u32 s32", "", "sync add|min|max"),
    ("redux", "b32", "", "sync and|or|xor"),
    ("setp set", "b16 b32 b64", LOGIC, EQUAL),
    ("setp set", "s16 s32 s64", LOGIC, SIGNED),
    ("setp set", "u16 u32 u64", LOGIC, UNSIGNED),
    ("setp set", "f64 bf16 bf16x2", LOGIC, FLOAT),
    ("setp set", "f32 f16 f16x2", "ftz and or xor u32 s32 f32 f16 bf16", FLOAT),
    ("set", "f16 bf16 f16x2 bf16x2", "ftz and or xor u16 s16 f16x2 bf16x2", FLOAT),
    ("mov", "b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64 pred", "v2 v4", ""),
    ("selp", "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64", "", ""),
];

/// Words that belong to an instruction's name: where it has one of them, one follows its first word.
const NAMES: &[(&str, &str)] = &[
    ("mul mad madc mul24 mad24 dp2a", "hi lo wide"),
    ("mbarrier", "init inval expect_tx complete_tx arrive arrive_drop test_wait try_wait pending_count"),
    ("wgmma", "fence commit_group wait_group mma_async"),
    ("cp", "async reduce"),
    ("barrier", "cluster"),
    ("bar", "warp"),
    ("fence membar", "proxy mbarrier_init"),
    ("createpolicy", "fractional range cvt"),
];

/// Instructions that need these modifiers, whatever their types; of those with `|` at least one.
const NEEDS: &[(&str, &str)] = &[
    ("wgmma mma ldmatrix stmatrix movmatrix setmaxnreg", "sync aligned"),
    ("ldmatrix stmatrix", "x1|x2|x4"),
    ("wmma elect", "sync"),
    ("mbarrier createpolicy", "b64"),
    ("mapa getctarank cvta", "u32|u64"),
    ("setmaxnreg", "u32"),
    ("prmt", "b32"),
    ("activemask", "b32"),
    ("nanosleep", "u32"),
    ("membar", "cta|gl|sys|proxy"),
    ("fence", "cta|cluster|gpu|sys|proxy"),
];

fn has(list: &str, word: &str) -> bool {
    list.split([' ', '|']).any(|w| w == word)
}

fn needs(one: &str) -> String {
    format!("needs {}`.{}`", if one.contains('|') { "one of " } else { "" }, one.replace('|', "`, `."))
}

/// Why a memory access does not have this order.
fn order_refused(root: &str, mods: &[&str]) -> Option<String> {
    let first = |words: &[&'static str]| words.iter().copied().find(|w| mods.contains(w));
    if !matches!(root, "ld" | "st" | "atom" | "red" | "mbarrier") || first(&["async", "bulk"]).is_some() {
        return None;
    }
    let (order, scope) =
        (first(&["relaxed", "acquire", "release", "acq_rel"]), first(&["cta", "cluster", "gpu", "sys"]));
    let simple = root != "atom" && root != "red";
    let unknown = match root {
        "ld" => first(&["release", "acq_rel"]),
        "st" => first(&["acquire", "acq_rel"]),
        "red" => first(&["acquire", "acq_rel", "weak", "volatile"]),
        "atom" => first(&["weak", "volatile"]),
        _ => None,
    };
    match (order, scope) {
        _ if unknown.is_some() => unknown.map(|m| format!("`{root}` is never `.{m}`")),
        (None, Some(scope)) if simple => {
            Some(format!("`.{scope}` is the scope of `.relaxed`, `.acquire` or `.release`, which is missing"))
        }
        (Some(order), None) if simple => {
            Some(format!("`.{order}` needs a scope: `.cta`, `.cluster`, `.gpu` or `.sys`"))
        }
        (Some(order), _) => {
            first(&["local", "const", "param"]).map(|space| format!("nothing in .{space} memory is `.{order}`"))
        }
        _ => None,
    }
}

/// Why a load or store does not exist.
fn access_refused(mods: &[&str], ty: &str, bits: u32) -> Option<String> {
    let vector = [("v2", 2), ("v4", 4), ("v8", 8)].iter().find(|v| mods.contains(&v.0)).map_or(1, |v| v.1);
    if matches!(ty, "f16" | "bf16" | "f16x2" | "bf16x2" | "u16x2" | "s16x2" | "pred") {
        Some(format!("not defined for `.{ty}`: use a type of bits"))
    } else if vector * bits > 128 && (vector, bits) != (8, 32) && (vector, bits) != (4, 64) {
        Some("a vector of more than 128 bits".into())
    } else if mods.contains(&"nc") && !mods.contains(&"global") {
        Some("`.nc` is for .global memory".into())
    } else {
        None
    }
}

/// Why no such instruction exists, if its opcode is one of [`FORMS`] or accesses memory.
pub fn refused(op: &str) -> Option<String> {
    let mut mods: Vec<&str> = op.split('.').collect();
    let root = mods.remove(0);
    if let Some(why) = order_refused(root, &mods) {
        return Some(why);
    }
    if let Some((_, names)) = NAMES.iter().find(|n| has(n.0, root))
        && let Some(name) = mods.iter().find(|m| has(names, m))
        && !has(names, mods[0])
    {
        return Some(format!("`.{name}` has to follow `{root}`"));
    }
    for one in NEEDS.iter().filter(|n| has(n.0, root)).flat_map(|n| n.1.split(' ')) {
        if !mods.iter().any(|m| has(one, m)) {
            return Some(needs(one));
        }
    }
    // The type is the last but for those who write it elsewhere, which ptxas accepts.
    let ty = mods.remove(mods.iter().rposition(|m| Ty::parse(m).is_some())?);
    let bits = Ty::parse(ty)?.bits();
    if matches!(root, "ld" | "ldu" | "st") {
        return access_refused(&mods, ty, bits);
    }
    let of_root = || FORMS.iter().filter(|f| has(f.0, root));
    let lines: Vec<_> = of_root().filter(|f| has(f.1, ty)).collect();
    if lines.is_empty() {
        let mut types: Vec<_> = of_root().flat_map(|f| f.1.split(' ')).collect();
        types.sort_unstable();
        types.dedup();
        let types = types.iter().map(|t| format!(".{t}")).collect::<Vec<_>>().join(" ");
        return (!types.is_empty()).then(|| format!("not defined for `.{ty}`, but for {types}"));
    }
    let known = |f: &Form, m: &str| has(f.2, m) || has(f.3, m);
    let needed =
        |f: &Form| f.3.split(' ').find(|one| !one.is_empty() && mods.iter().filter(|m| has(one, m)).count() != 1);
    if lines.iter().any(|f| mods.iter().all(|m| known(f, m)) && needed(f).is_none()) {
        return None;
    }
    if let Some(m) = mods.iter().find(|m| !lines.iter().any(|f| known(f, m))) {
        return Some(format!("unsupported modifier `.{m}` for `.{ty}`"));
    }
    Some(match lines.iter().find_map(|f| needed(f)) {
        Some(one) => needs(one),
        None => "these modifiers exclude each other".into(),
    })
}
