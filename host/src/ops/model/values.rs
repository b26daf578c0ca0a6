use super::{Case, TensorMeta};
use crate::runtime::dtype::DType;

/// The values that a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Normally distributed with mean zero.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniformly distributed over a range.
    Uniform {
        /// Least value.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Ones and zeros.
    Bernoulli {
        /// The fraction of ones.
        p: f64,
    },
    /// Uniformly distributed integers: token ids, lengths.
    Integers {
        /// Least value.
        low: i64,
        /// Greatest value.
        high: i64,
    },
    /// Zipf-distributed integers, of which a few are most frequent: number i has a probability proportional to 1 / (i + 1),
    /// like the i-th most frequent word of a text.
    Zipf {
        /// The number of integers, from 0 on.
        count: u64,
    },
    /// The boundaries of sequences in one long tensor: 0, then non-decreasing integers, the last of which is `total`.
    Offsets {
        /// The last integer.
        total: i64,
    },
    /// Every integer from 0 on, once each, in random order: a page table.
    Permutation,
    /// Indices of which half are not valid below `bound`: negative, the bound itself, the extremes of the type.
    Hostile {
        /// The exclusive upper bound of valid indices.
        bound: i64,
    },
    /// The edge cases of floating point among normal values: ±0, subnormals, huge values, infinities, NaN.
    Specials,
    /// One value everywhere.
    Constant(f64),
}

impl Values {
    /// Mean zero, standard deviation one.
    pub const NORMAL: Self = Self::Normal { std: 1.0 };

    /// A word for case names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal { .. } => "normal",
            Self::Uniform { .. } => "uniform",
            Self::Bernoulli { .. } => "bernoulli",
            Self::Integers { .. } => "integers",
            Self::Zipf { .. } => "zipf",
            Self::Offsets { .. } => "offsets",
            Self::Permutation => "permutation",
            Self::Hostile { .. } => "hostile",
            Self::Specials => "specials",
            Self::Constant(_) => "constant",
        }
    }
}

/// The description of one input of a case.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// The argument's name.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// The values, unless the case sets others.
    pub values: Values,
}

impl InputSpec {
    /// Standard normal values.
    pub fn normal(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self::new(name, dtype, shape, Values::NORMAL)
    }

    /// An input with these values.
    pub fn new(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>, values: Values) -> Self {
        Self { name, dtype, shape: shape.into(), values }
    }

    /// The input with the values that `case` sets for it.
    pub fn in_case(self, case: &Case) -> Self {
        let fill = case.fill_of_floats().filter(|_| self.dtype.is_float());
        Self { values: case.values_of(self.name).or(fill).unwrap_or(self.values), ..self }
    }

    /// Name, dtype and shape.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { name: self.name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }
    }
}
