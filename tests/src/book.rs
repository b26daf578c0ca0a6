//! The chapters of the book that have code, as documentation: its Rust blocks are doctests.

macro_rules! chapters {
    ($($name:ident: $path:literal,)*) => {$(
        #[doc = include_str!(concat!("../../book/src/", $path, ".md"))]
        mod $name {}
    )*};
}

chapters! {
    start: "start",
    kernel: "kernel",
    simulator: "simulator",
    activation: "families/activation",
    elementwise: "families/elementwise",
    norm: "families/norm",
    softmax: "families/softmax",
    reduce: "families/reduce",
    layout: "families/layout",
    quant: "families/quant",
    gemv: "families/gemv",
    gemm: "families/gemm",
    attention: "families/attention",
    loss: "families/loss",
    optim: "families/optim",
    random: "families/random",
}
