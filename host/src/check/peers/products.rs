//! The operators that are products of two matrices, with what a library needs to know about each beside its arguments.

use crate::ops::model::{Operator, Params};
use crate::runtime::error::{Error, Result};

/// How f32 factors are multiplied. Sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accuracy {
    /// Unchanged; 16-bit factors as well.
    F32,
    /// Reduced to 10 bits of mantissa.
    Tf32,
}

/// An operator that computes C = α·A·B + β·C of arguments `a`, `b` and `c`.
#[derive(Debug)]
pub(super) struct Product {
    op: &'static str,
    /// Whether rows of `b` are columns of B, as the rows of a linear layer's weight are.
    pub(super) b_has_columns: bool,
    pub(super) accuracy: Accuracy,
}

const PRODUCTS: [Product; 5] = [
    Product { op: "gemm", b_has_columns: false, accuracy: Accuracy::F32 },
    Product { op: "gemm_to_f32", b_has_columns: false, accuracy: Accuracy::F32 },
    Product { op: "gemm_bf16", b_has_columns: true, accuracy: Accuracy::F32 },
    Product { op: "gemm_tf32", b_has_columns: true, accuracy: Accuracy::Tf32 },
    Product { op: "sgemm", b_has_columns: false, accuracy: Accuracy::F32 },
];

impl Product {
    /// The entry of `op`, which must be a product.
    pub(super) fn of(op: &dyn Operator) -> Result<&'static Self> {
        let mut products = PRODUCTS.iter();
        products.find(|product| product.op == op.info().name).ok_or_else(|| {
            let names: Vec<_> = PRODUCTS.iter().map(|product| product.op).collect();
            Error::param("peer", "operator", op.info().name, format!("one of {}", names.join(", ")))
        })
    }

    /// α and β, where the operator has them.
    pub(super) fn factors(&self, params: &Params) -> Result<[f32; 2]> {
        let has = |name: &str| params.info().params.iter().any(|param| param.name == name);
        let factor = |name, otherwise| if has(name) { params.f32(name) } else { Ok(otherwise) };
        Ok([factor("alpha", 1.0)?, factor("beta", 0.0)?])
    }
}

/// Whether other libraries can compute the operator.
pub fn has_peer(op: &dyn Operator) -> bool {
    Product::of(op).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry;

    #[test]
    fn products_are_operators_of_two_matrices() {
        for product in &PRODUCTS {
            let op = registry::find(product.op).unwrap();
            let args: Vec<_> = op.info().args.iter().map(|arg| arg.name).filter(|name| *name != "scale").collect();
            assert_eq!(args, ["a", "b", "c"], "{}", product.op);
            assert!(op.info().dtypes.iter().all(|dtype| dtype.is_float() && dtype.size() > 1), "{}", product.op);
            let factors = product.factors(&Params::new(op.info())).unwrap();
            assert_eq!(factors, [1.0, 0.0], "{}", product.op);
            assert!(has_peer(op));
        }
        assert!(!has_peer(registry::find("softmax").unwrap()));
    }
}
