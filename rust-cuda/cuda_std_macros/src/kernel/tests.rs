//! What the attribute accepts, and what it says about the rest.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Source, expand};

fn source() -> Source {
    Source { file: "src/norm.rs".to_owned(), lines: [3, 9] }
}

/// The expansion, spaces removed.
fn expansion(attributes: TokenStream, item: TokenStream) -> String {
    let tokens = expand(attributes, item, source()).expect("the kernel is well-formed");
    syn::parse2::<syn::File>(tokens.clone()).expect("the expansion is Rust");
    tokens.to_string().replace(' ', "")
}

fn error(attributes: TokenStream, item: TokenStream) -> String {
    expand(attributes, item, source()).expect_err("the kernel is malformed").to_string()
}

#[test]
fn instances_are_the_product_of_dtypes_and_values() {
    let text = expansion(
        quote!(dtypes(T: f32, half::bf16), values(V: 1, 4), block = 256),
        quote!(
            pub unsafe fn rms_norm<const V: usize, T: Element>(x: *const T, n: u64) {}
        ),
    );
    for symbol in ["rms_norm_f32_v1", "rms_norm_f32_v4", "rms_norm_bf16_v1", "rms_norm_bf16_v4"] {
        assert_eq!(text.matches(&format!("export_name=\"{symbol}\"")).count(), 1, "{symbol}");
    }
    assert_eq!(text.matches("extern\"ptx-kernel\"").count(), 4);
    assert!(text.contains("pubstructRmsNorm<constV:usize,T>"));
    assert!(text.contains("pubtraitRmsNormDtype:Sized+Element"));
    assert!(text.contains("pubconstRMS_NORM:&[::cuda_std::launch::Instance]"));
    assert!(text.contains("implRmsNormDtypeforhalf::bf16{constINDEX:usize=1usize;}"));
    assert!(text.contains("typeArgs=(::cuda_std::launch::DevicePtr<T>,u64,);"));
}

#[test]
fn a_symbol_replaces_the_function_s_name() {
    let text = expansion(
        quote!(dtypes(T: f32), symbol = relu, block = 32),
        quote!(
            pub unsafe fn fused<T>(x: *const T) {}
        ),
    );
    assert!(text.contains("export_name=\"relu_f32\"") && text.contains("pubstructFused<T>"));
    let plain = expansion(
        quote!(symbol = zero, block = 32),
        quote!(
            unsafe fn fused(x: *mut f32) {}
        ),
    );
    assert!(plain.contains("export_name=\"zero\"") && plain.contains("constSYMBOL:&'staticstr=\"zero\""));
}

#[test]
fn each_of_several_dtypes_has_its_trait() {
    let text = expansion(
        quote!(dtypes(T: f32, U: f16, bf16), values(CAUSAL: false, true), block = 32),
        quote!(
            unsafe fn cast<T: Element, U, const CAUSAL: bool>(x: *const T, y: *mut U)
            where
                U: Element,
            {
            }
        ),
    );
    assert!(text.contains("traitCastTDtype:Sized+Element"));
    assert!(text.contains("traitCastUDtype:Sized+Element"));
    assert!(text.contains("cast_f32_bf16_causal1"));
}

#[test]
fn sets_need_no_trait_of_their_own() {
    let text = expansion(
        quote!(dtypes(T: float, U: half), block = 32),
        quote!(
            unsafe fn cast<T: Element, U: Element>(x: *const T, y: *mut U) {}
        ),
    );
    for symbol in ["cast_f32_f16", "cast_f32_bf16", "cast_f16_f16", "cast_bf16_bf16"] {
        assert_eq!(text.matches(&format!("export_name=\"{symbol}\"")).count(), 1, "{symbol}");
    }
    assert!(!text.contains("trait"), "{text}");
    assert!(text.contains("impl<T:::cuda_std::float::Element+Element,U:::cuda_std::float::Half+Element>"), "{text}");
    // `half` starts at the number that f16 has among all floats.
    assert!(text.contains("(0usize,1usize,)=>\"cast_f32_f16\""), "{text}");
    assert!(text.contains("(2usize,2usize,)=>\"cast_bf16_bf16\""), "{text}");
    let text = expansion(
        quote!(dtypes(Q: float8), block = 32),
        quote!(
            unsafe fn widen<Q: Float8>(x: *const Q) {}
        ),
    );
    assert!(text.contains("impl<Q:::cuda_std::fp8::Float8+Float8>"), "{text}");
    assert!(text.contains("(1usize,)=>\"widen_f8e5m2\""), "{text}");
}

#[test]
fn markers_name_their_instances() {
    let text = expansion(
        quote!(types(Epilogue: Bias, GeluTanh, S: Tile<128, 64, 32>), block = 32),
        quote!(
            unsafe fn gemm<Epilogue, S: Shape>(x: *const f32) {}
        ),
    );
    for symbol in ["gemm_bias_tile128x64x32", "gemm_gelu_tanh_tile128x64x32"] {
        assert_eq!(text.matches(&format!("export_name=\"{symbol}\"")).count(), 1, "{symbol}");
    }
    assert!(text.contains("traitGemmEpilogue") && text.contains("traitGemmS"), "{text}");
    assert!(text.contains("constGEMM:&[::cuda_std::launch::Instance]"), "{text}");
    assert!(text.contains("Instance::of::<Gemm<GeluTanh,Tile<128,64,32>>>()"), "{text}");
    assert!(text.contains("constFILE:&'staticstr=\"src/norm.rs\";constLINES:[u32;2]=[3u32,9u32];"), "{text}");
}

#[test]
fn a_condition_picks_the_combinations() {
    let symbols = |condition: TokenStream| {
        let text = expansion(
            quote!(dtypes(T: float), values(V: 4, 8, CAUSAL: false, true), where(#condition), block = 32),
            quote!(
                unsafe fn f<T: Element, const V: usize, const CAUSAL: bool>(x: *const T) {}
            ),
        );
        let mut found: Vec<_> = text.split("export_name=\"").skip(1).map(|t| t.split('"').next().unwrap()).collect();
        found.sort_unstable();
        found.join(" ")
    };
    assert_eq!(symbols(quote!(V * bytes(T) == 16 && !CAUSAL)), "f_bf16_v8_causal0 f_f16_v8_causal0 f_f32_v4_causal0");
    assert_eq!(symbols(quote!((T == f32 || T == half::bf16) && V > 4 && CAUSAL)), "f_bf16_v8_causal1 f_f32_v8_causal1");
    assert_eq!(symbols(quote!(V % 8 == 4 && CAUSAL != false && T != f32)), "f_bf16_v4_causal1 f_f16_v4_causal1");
    let item = || {
        quote!(
            unsafe fn f<const V: usize>() {}
        )
    };
    let none = error(quote!(block = 32, values(V: 1, 2), where(V > 2)), item());
    assert!(none.contains("no combination"), "{none}");
    for (condition, says) in
        [(quote!(V), "true or false"), (quote!(V + "x"), "made of"), (quote!(V / 0 == 1), "made of")]
    {
        let message = error(quote!(block = 32, values(V: 1, 2), where(#condition)), item());
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn an_architecture_is_the_builders_to_know() {
    let text = expansion(
        quote!(block = (32, 4), arch = "sm_90a"),
        quote!(
            unsafe fn f() {}
        ),
    );
    assert!(text.contains("arch=sm_90ablock={bx}"), "{text}");
    assert!(text.contains("structF<>"));
}

#[test]
fn a_build_of_some_kernels_leaves_the_other_entries_out() {
    let text = expansion(
        quote!(values(V: 1, 2), block = 32),
        quote!(
            unsafe fn f<const V: u32>() {}
        ),
    );
    for symbol in ["f_v1", "f_v2"] {
        let left_out = format!("cfg(any(not(cuda_only),cuda_only=\"{symbol}\"))]const_:()={{");
        assert_eq!(text.matches(&left_out).count(), 1, "{text}");
    }
}

#[test]
fn the_marker_lists_what_the_builder_needs() {
    let text = expansion(
        quote!(block = 384, min_blocks = 1, cluster = (2, 1), shared = Tiles, no_spills),
        quote!(
            unsafe fn gemm(a: &TensorMap, n: u32, b: &cuda_std::launch::TensorMap) {}
        ),
    );
    assert!(text.contains("no_spills=1programmatic=0tensormaps=0,2"));
    assert!(text.contains("//#kernelmodule="));
    assert!(text.contains("size_of::<Tiles>()"));
    assert!(text.contains("gemm_param_0") && text.contains("gemm_param_2"));
    assert!(!text.contains("gemm_param_1"));
    assert!(!text.contains("cooperative"));
    let together = expansion(
        quote!(block = 32, cooperative),
        quote!(
            unsafe fn f() {}
        ),
    );
    assert!(together.contains("programmatic=0cooperative=1tensormaps="), "{together}");
    let ordered = expansion(
        quote!(block = 32, opt_level = 1),
        quote!(
            unsafe fn f() {}
        ),
    );
    assert!(ordered.contains("programmatic=0opt_level=1tensormaps="), "{ordered}");
    assert!(text.contains("typeArgs=(::cuda_std::launch::TensorMap,u32,::cuda_std::launch::TensorMap,);"));
}

#[test]
fn documentation_is_carried_over() {
    let text = expansion(
        quote!(block = 32),
        quote!(
            /// Adds.
            unsafe fn add(x: *mut f32) {}
        ),
    );
    assert_eq!(text.matches("Adds.").count(), 2, "on the function and on the host's type");
}

#[test]
fn signature_errors() {
    let block = || quote!(block = 32);
    assert!(
        error(
            block(),
            quote!(
                fn f() {}
            )
        )
        .contains("a kernel is an `unsafe fn`")
    );
    assert!(
        error(
            block(),
            quote!(
                unsafe fn f() -> u32 {
                    1
                }
            )
        )
        .contains("returns nothing")
    );
    assert!(
        error(
            block(),
            quote!(
                async unsafe fn f() {}
            )
        )
        .contains("async")
    );
    assert!(
        error(
            block(),
            quote!(
                unsafe extern "C" fn f() {}
            )
        )
        .contains("ABI")
    );
    assert!(
        error(
            block(),
            quote!(
                unsafe fn f<'a>() {}
            )
        )
        .contains("lifetime")
    );
    assert!(
        error(
            block(),
            quote!(
                unsafe fn f<T>() {}
            )
        )
        .contains("dtypes(T: f32, …)")
    );
    assert!(
        error(
            block(),
            quote!(
                unsafe fn f<const V: usize>() {}
            )
        )
        .contains("values(V: 1, …)")
    );
}

#[test]
fn names_that_no_entry_can_have() {
    for name in [quote!(r#loop), quote!(größe), quote!(__), quote!(_1)] {
        let message = error(quote!(block = 32), quote!(unsafe fn #name() {}));
        assert!(message.contains(&format!("cannot be called `{name}`")), "{message}");
    }
    let symbol = error(
        quote!(block = 32, symbol = r#move),
        quote!(
            unsafe fn f() {}
        ),
    );
    assert!(symbol.contains("cannot be called `r#move`"), "{symbol}");
}

#[test]
fn parameter_errors() {
    for (ty, hint) in [
        (quote!(&[f32]), "pass a raw pointer"),
        (quote!(usize), "write `u64`"),
        (quote!(bool), "write `u32`"),
        (quote!([u32; 4]), "number of fixed width"),
        (quote!(&mut TensorMap), "pass a raw pointer"),
    ] {
        let message = error(quote!(block = 32), quote!(unsafe fn f(x: #ty) {}));
        assert!(message.contains(hint), "{ty}: {message}");
    }
    let many = (0..21).map(|_| quote!(_: u32));
    assert!(error(quote!(block = 32), quote!(unsafe fn f(#(#many),*) {})).contains("at most 20"));
}

#[test]
fn attribute_errors() {
    let item = || {
        quote!(
            unsafe fn f() {}
        )
    };
    assert!(error(quote!(), item()).contains("block = 256"));
    assert!(error(quote!(block = 32, blocks = 2), item()).contains("unknown key `blocks`"));
    assert!(error(quote!(block = 32, programmatic, cooperative), item()).contains("`programmatic` or `cooperative`"));
    assert!(error(quote!(block = 32, block = 64), item()).contains("given twice"));
    assert!(error(quote!(block = 0), item()).contains("at least 1"));
    assert!(error(quote!(block = (1, 2, 3, 4)), item()).contains("one to three dimensions"));
    assert!(error(quote!(block = 32, opt_level = 4), item()).contains("an `opt_level` is 0, 1, 2 or 3, not 4"));
    assert!(error(quote!(block = 32, arch = "sm_42"), item()).contains("unknown architecture"));
    assert!(error(quote!(block = 32, dtypes(T: f32)), item()).contains("no type parameter"));
    assert!(error(quote!(block = 32, values(V: 1)), item()).contains("no const parameter"));
    assert!(error(quote!(block = 32, values(V: "x")), item()).contains("integers or booleans"));
    assert!(error(quote!(block = 32, dtypes(f32)), item()).contains("PARAMETER"));
    let twice = error(
        quote!(block = 32, dtypes(T: f32, f32)),
        quote!(
            unsafe fn f<T>() {}
        ),
    );
    assert!(twice.contains("listed twice"), "{twice}");
}
