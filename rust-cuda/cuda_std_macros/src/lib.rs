//! Procedural macros of `cuda_std`: the `#[kernel]` attribute and the generators behind its wide instructions.
//!
//! Use them through `cuda_std`, which re-exports what is public.

mod kernel;
mod printf;
mod registers;

use kernel::Source;
use proc_macro::{Span, TokenStream};

/// Turns a function into a GPU kernel: an entry point on the device, a type with checked arguments on the host.
///
/// ```text
/// /// y = x / rms(x) · w, a row a block.
/// #[kernel(dtypes(T: float), values(V: 1, 8), block = 256, shared = Sums<T>)]
/// pub unsafe fn rms_norm<T: Element, const V: usize>(x: *const T, w: *const T, y: *mut T, cols: u32, eps: f32) {
///     …
/// }
/// ```
///
/// # On the device
///
/// The function stays as it is, inlined into one entry point for each combination of the listed types and values:
/// `rms_norm_f32_v1`, `rms_norm_bf16_v8` and so on: first the types, then each const parameter's name and value (a boolean's
/// is 0 or 1). A crate of kernels starts with
///
/// ```text
/// #![no_std]
/// #![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
/// ```
///
/// # On the host
///
/// The body is type-checked and never run. Beside it there is a type of the function's name, here `RmsNorm<T, V>`, that
/// implements `cuda_std::launch::Kernel`: symbol, block, shared memory, and the arguments as a tuple, here
/// `(DevicePtr<T>, DevicePtr<T>, DevicePtrMut<T>, u32, f32)`; and a constant of its name, here `RMS_NORM`, that lists every
/// instance. Generic host code asks for `T: RmsNormDtype`, which the listed types implement (`RmsNormTDtype` and
/// `RmsNormUDtype` where there are several; `RmsNormEpilogue` for a marker called `Epilogue`). The set `float` asks for
/// `cuda_std::float::Element`, `half` for `cuda_std::float::Half` and `float8` for `cuda_std::fp8::Float8`, whatever the kernel. A type or value that is not
/// listed, or that `where` leaves out, does not compile.
///
/// # Keys
///
/// | key | meaning |
/// |---|---|
/// | `block = 256`, `block = (32, 8)` | threads a block: the launch bound, and what the host launches with; required |
/// | `dtypes(T: f32, bf16, U: float)` | the element types of each parameter; `float` is `f32, f16, bf16`, `half` is `f16, bf16` and `float8` is `f8e4m3, f8e5m2` |
/// | `types(E: Bias, Gelu, S: Tile<128, 64, 32>)` | types without values, which select code: `gemm_bias_tile128x64x32` |
/// | `values(V: 1, 8, W: …)` | the values of each const parameter, integers or booleans |
/// | `where(V * bytes(T) <= 16)` | the combinations to build, all without it: parameters, types to compare with, `bytes(T)`, numbers, operators |
/// | `shared = Layout<T>`, `shared = { bytes }` | shared memory: the size of a type, or an expression |
/// | `min_blocks = 2` | blocks that are to fit on a multiprocessor, which bounds registers |
/// | `cluster = 2`, `cluster = (2, 1)` | blocks a cluster |
/// | `arch = "sm_90a"` | the only architecture this kernel is for, and a build that is not warns that it leaves it out; without it, every one |
/// | `symbol = name` | what the entries' names start with, instead of the function's name: for functions that a macro writes |
/// | `no_spills` | the build fails if registers spill |
/// | `programmatic` | it may be launched before the launch ahead in its stream has ended, and begins with a wait for that: see `cuda_std::grid` |
/// | `cooperative` | all its blocks are on the device at once, and may wait for each other: see `cuda_std::grid::sync` |
/// | `opt_level = 1` | how far the driver's compiler is to optimise, from 0 to 3: at 1 instructions stay in the order that they are written in |
///
/// Expressions may name the function's generic parameters and anything in scope.
///
/// # Parameters
///
/// `*const T`, `*mut T`, numbers of fixed width, structs of them (`cuda_std::launch::Fields`), and `&TensorMap`. A tensor map is passed by value and stays in parameter
/// memory, from which the copy engine reads it. Whoever launches the kernel promises that its pointers are valid: hence
/// `unsafe fn`.
#[proc_macro_attribute]
pub fn kernel(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let source = source(&attributes, &item);
    kernel::expand(attributes.into(), item.into(), source).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Where a kernel is written: from its attribute to its end; or, if a macro by example puts it together, where its name comes from, which
/// is that of its symbol if it has one.
fn source(attributes: &TokenStream, item: &TokenStream) -> Source {
    let attribute = Span::call_site();
    let tokens: Vec<_> = item.clone().into_iter().collect();
    let after_fn = tokens.windows(2).find(|pair| pair[0].to_string() == "fn").map(|pair| pair[1].span());
    let keys: Vec<_> = attributes.clone().into_iter().collect();
    let symbol = keys.windows(3).find(|key| key[0].to_string() == "symbol").map(|key| key[2].span());
    let name = symbol.or(after_fn).unwrap_or(attribute);
    let end = tokens.last().map_or(attribute, |token| token.span().end());
    let in_one_file = attribute.file() == name.file() && end.file() == name.file();
    let in_order = (attribute.line()..=end.line()).contains(&name.line());
    let lines = if in_one_file && in_order { [attribute, end] } else { [name; 2] };
    Source { file: name.file(), lines: lines.map(|span| u32::try_from(span.line()).unwrap_or(u32::MAX)) }
}

/// Prints from a kernel, by C's `printf` conversions: `gpu_printf!("%d: %f\n", i, x)`.
///
/// Integers, floats (as `double`), booleans and pointers are taken: `%d` or `%u` for up to 32 bits, `%lld` or `%llu` for 64, `%p` for
/// pointers, `%f`, `%e` or `%g` for floats. Another conversion than the argument's does not compile. The text appears when the host
/// synchronizes. Evaluates to the number of arguments printed, or a negative number on an error. It is slow and takes a stack frame: for
/// debugging.
///
/// # Safety
/// A pointer for `%s` is to characters that end with NUL.
#[proc_macro]
pub fn gpu_printf(input: TokenStream) -> TokenStream {
    printf::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `asm!` with array operands, for instructions that take up to 128 registers.
///
/// `{name*}` in the template stands for the comma-separated registers of an array, declared as
/// `array name = [count] inout(reg32) place`. Expands to `cuda_std`'s internal `ptx!`.
#[doc(hidden)]
#[proc_macro]
pub fn ptx_registers(input: TokenStream) -> TokenStream {
    registers::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
