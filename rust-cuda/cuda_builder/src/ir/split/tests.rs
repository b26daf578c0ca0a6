use super::*;
use crate::ir::{Graph, Index, Module, Reach};

const SOURCE: &str = r#"target triple = "nvptx64-nvidia-cuda"
@anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.0 = private constant [4 x i8] c"@no\00"
@anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.1 = private constant [4 x i8] c"yes\00"
@TABLE = internal constant [2 x i8] zeroinitializer
define hidden void @helper(ptr %0) unnamed_addr #3 {
  call void asm sideeffect "bar.sync 0; // (", "~{memory}"(), !srcloc !7
  %2 = call i32 asm "mov.u32 $0, 1;", "=r"() #4
  %3 = call range(i32 0, 9) i32 %0(ptr %1) #4
  call void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE(ptr %0)
  ret void
}
define internal void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE(ptr %0) unnamed_addr #3 {
  call void @unrelated()
  unreachable
}
define internal void @_RNvC1k7copied3() {
  ret void
}
define internal void @_RNvC1k7copied312() {
  ret void
}
define void @unrelated() #9 {
  ret void
}
define ptx_kernel void @k(ptr %0) unnamed_addr #5 {
  call void asm sideeffect alignstack "//#kernel module=a::b block=64,1,1", "~{memory}"(), !srcloc !8
  call void @helper(ptr @anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.1), !loop !11
  call void @helper(ptr @TABLE)
  call void @_RNvC1k7copied312()
  ret void
}
attributes #3 = { nounwind "target-cpu"="sm_30" }
attributes #4 = { memory(none) }
attributes #5 = { nounwind }
attributes #9 = { cold }
!7 = !{i64 1}
!8 = !{i64 2}
!11 = distinct !{!11, !12}
!12 = !{!"unroll"}
"#;

fn cut() -> String {
    cut_of(&[SOURCE])
}

fn cut_of(sources: &[&str]) -> String {
    reach_and_cut(sources).1
}

/// The first kernel's reach, and its cut from the modules that it names alone.
fn reach_and_cut(sources: &[&str]) -> (Reach, String) {
    let graph = Graph::new(sources.iter().map(|source| Index::of(&Module::parse(source))).collect()).unwrap();
    let (place, _, marker) = graph.kernels()[0];
    let marker = Marker::parse(marker.unwrap()).unwrap();
    assert_eq!(marker.module, "a::b");
    let reach = graph.reach(place);
    let program = Program::new(&graph, reach.modules.iter().map(|&module| (module, sources[module])));
    let cut = Cutter::new(&program).cut(place, &marker, Arch::Sm80);
    (reach, cut)
}

#[test]
fn a_cut_has_what_the_kernel_reaches_and_no_more() {
    let text = cut();
    assert!(text.contains("@helper(ptr %0)") && text.contains("c\"yes\\00\""));
    assert!(!text.contains("unrelated") && !text.contains("@no") && !text.contains("cold"));
    assert!(!text.contains("#kernel") && !text.contains("srcloc") && !text.contains("target-cpu"));
}

#[test]
fn line_information_stays_with_what_is_defined() {
    let source = SOURCE
        .replace("unnamed_addr #5 {", "unnamed_addr #5 !dbg !21 {")
        .replace("unnamed_addr #3 {\n  call void @unrelated", "unnamed_addr #3 !dbg !22 {\n  call void @unrelated")
        + "!llvm.dbg.cu = !{!20}\n!20 = distinct !DICompileUnit()\n!21 = distinct !DISubprogram(unit: !20)\n";
    let text = cut_of(&[&source]);
    assert!(text.contains(" !dbg !0 {") && text.contains("\n!0 = distinct !DISubprogram(unit: !"), "{text}");
    let declared = text.lines().find(|line| line.starts_with("declare ") && line.contains("panic_fmt")).unwrap();
    assert!(!declared.contains("!dbg"), "{declared}");
    assert!(text.contains("!llvm.dbg.cu = !{!") && text.contains("\"Debug Info Version\", i32 3}"), "{text}");
    assert!(!cut().contains("llvm."), "without lines there is nothing to say");
}

#[test]
fn assembly_with_side_effects_becomes_convergent() {
    let text = cut();
    assert!(text.contains("bar.sync 0; // (\", \"~{memory}\"() convergent nomerge\n"), "{text}");
    assert!(text.contains("\"=r\"() #"), "{text}");
    assert!(text.contains("@helper(ptr %0) unnamed_addr convergent "), "{text}");
}

#[test]
fn calls_through_pointers_become_convergent() {
    let text = cut();
    assert!(text.contains("call range(i32 0, 9) i32 %0(ptr %1) convergent nomerge #"), "{text}");
    assert!(convergent_call("  %1 = call i32 @f(ptr %0)").is_none(), "a function says what it is itself");
    assert!(convergent_call("  %1 = add i32 %0, 1").is_none());
}

#[test]
fn lane_local_assembly_is_told_from_the_rest() {
    for template in [
        "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
        "{ .reg .b64 t; mov.b64 t, k_param_0; cvta.param.u64 $0, t; }",
        "cp.async.cg.shared.global [$0], [$1], 16;",
    ] {
        assert!(is_lane_local(template), "{template}");
    }
    for template in [
        "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;",
        "mov.b32 $0, $1; bar.sync 0;",
        "{ .reg .pred p; elect.sync _|p, -1; }",
        "cp.async.bulk.commit_group;",
        "@p bar.sync 0;",
        "wgmma.fence.sync.aligned;",
        "activemask.b32 $0;",
    ] {
        assert!(!is_lane_local(template), "{template}");
    }
}

#[test]
fn panics_lose_their_bodies() {
    let text = cut();
    assert!(
        text.contains("declare void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE.2(ptr %0) unnamed_addr"),
        "{text}"
    );
    let name = "_ZN4core9panicking9panic_fmt17h0123456789abcdefE.2";
    assert!(is_panic(name) && crate::ir::demangle(name) == "core::panicking::panic_fmt");
}

#[test]
fn numbers_start_again_and_bounds_are_attached() {
    let text = cut();
    assert!(text.contains("@helper(ptr @constant.0), !loop !0"), "{text}");
    assert!(text.contains("\n@constant.0 = private constant [4 x i8] c\"yes"), "{text}");
    assert!(text.contains("@helper(ptr @TABLE)") && !text.contains("@anon."), "{text}");
    // The second copy of a function, in a crate where there are two, has the name of the first in one where there is one.
    assert!(
        text.contains("call void @_RNvC1k7copied3.1()") && text.contains("void @_RNvC1k7copied3.1() convergent"),
        "{text}"
    );
    assert!(text.contains("!0 = distinct !{!0, !1}\n!1 = !{!\"unroll\"}"), "{text}");
    assert!(text.contains("convergent \"nvvm.maxntid\"=\"64,1,1\" #0 {"), "{text}");
}

#[test]
fn a_cut_is_the_same_from_one_module_and_from_two() {
    let (items, lists) = SOURCE.split_once("attributes #3").unwrap();
    let (kernel, lists) = (items.find("define ptx_kernel").unwrap(), format!("attributes #3{lists}"));
    // The second copy of the function is the kernel's own in both.
    let (items, kernel) = items.split_at(kernel);
    let constant = "@anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.1 = private constant [4 x i8] c\"yes\\00\"\n";
    let copied = "define internal void @_RNvC1k7copied312() {\n  ret void\n}\n";
    let table = "@TABLE = internal constant [2 x i8] zeroinitializer\n";
    let caller = format!("{constant}{table}declare hidden void @helper(ptr) #3\n{copied}{kernel}{lists}");
    let caller = format!("target triple = \"nvptx64-nvidia-cuda\"\n{caller}");
    assert_eq!(cut_of(&[&format!("{items}{lists}"), &caller]), cut());
}

#[test]
fn the_architecture_is_a_number() {
    let asks = SOURCE.replace("call void @helper(ptr @TABLE)", "%2 = call i32 @__cuda_arch()")
        + "declare i32 @__cuda_arch() #3\n";
    let (reach, text) = reach_and_cut(&[&asks]);
    assert!(
        reach.asks_arch
            && text.contains("@__cuda_arch() alwaysinline nounwind willreturn memory(none) {\n  ret i32 80\n}"),
        "{text}"
    );
    assert!(!reach_and_cut(&[SOURCE]).0.asks_arch);
}

#[test]
fn the_hash_is_another_when_the_cut_is() {
    let (reach, text) = reach_and_cut(&[SOURCE]);
    for (old, new) in [
        // What the cut does not have, and how rustc counts what it has.
        ("call void @unrelated()", "call void @elsewhere()"),
        ("c\"@no\\00\"", "c\"@un\\00\""),
        ("7a4f65eeb84d213dfb2a9c8ed18ff68b.1", "0123456789abcdef0123456789abcdef.9"),
        ("copied312", "copied37"),
        ("i64 1}", "i64 11}"),
        ("#5", "#6"),
        ("!12", "!13"),
        ("sm_30", "sm_70"),
        // What it has.
        ("yes", "yep"),
        ("zeroinitializer", "c\"ab\""),
        ("@helper(ptr @TABLE)", "@helper(ptr null)"),
        ("mov.u32 $0, 1;", "mov.u32 $0, 2;"),
        ("(ptr %0)\n  unreachable", "(ptr %0)\n  ret void"),
        ("!{!\"unroll\"}", "!{!\"roll\"}"),
        ("memory(none)", "memory(read)"),
        ("@TABLE = ", "@LIST = "),
        ("@_RNvC1k7copied312()\n  ret", "@_RNvC1k7copied3()\n  ret"),
        ("nvptx64-nvidia-cuda", "nvptx64-unknown-cuda"),
    ] {
        let source = SOURCE.replace(old, new).replace("@TABLE)", if old == "@TABLE = " { "@LIST)" } else { "@TABLE)" });
        let (other, changed) = reach_and_cut(&[&source]);
        assert_eq!(other.hash == reach.hash, changed == text, "{old} → {new}");
    }
}

#[test]
fn a_cut_needs_the_modules_that_it_reaches() {
    let apart = "define void @apart() {\n  ret void\n}\n";
    let (reach, text) = reach_and_cut(&[apart, SOURCE, apart.replace("apart", "aside").as_str()]);
    assert_eq!((reach.modules.into_iter().collect::<Vec<_>>(), text), (vec![1], cut()));
}
