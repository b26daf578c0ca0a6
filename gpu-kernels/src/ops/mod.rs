//! The operators, by family: one file each, named like their host files. Each family's shared code is in its `mod.rs`.

pub mod activation;
pub mod attention;
pub mod elementwise;
pub mod gemm;
pub mod gemv;
pub mod layout;
pub mod loss;
pub mod norm;
pub mod optim;
pub mod quant;
pub mod random;
pub mod reduce;
pub mod softmax;
