//! The operators, by family: one a file, under the names of their host files. What a family shares stands in its `mod.rs`.

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
