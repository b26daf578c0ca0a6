use super::{Case, TensorMeta};
use crate::runtime::dtype::DType;

/// What values a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Mean zero.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Evenly over a range.
    Uniform {
        /// Least value.
        low: f64,
        /// Bound above.
        high: f64,
    },
    /// Ones and zeros.
    Bernoulli {
        /// The share of ones.
        p: f64,
    },
    /// Whole numbers, evenly: token ids, lengths.
    Integers {
        /// Least value.
        low: i64,
        /// Greatest value.
        high: i64,
    },
    /// Whole numbers of which few make most: number i in proportion to 1 / (i + 1), as the i-th most frequent word of a text.
    Zipf {
        /// How many numbers, from 0 on.
        count: u64,
    },
    /// Where sequences start and end in one long tensor: 0, then whole numbers that never fall, the last of them `total`.
    Offsets {
        /// The last.
        total: i64,
    },
    /// Every whole number from 0 on, once each, in random order: a page table.
    Permutation,
    /// Indices of which half are no index below `bound`: negative, the bound itself, the extremes of the type.
    Hostile {
        /// What a good index is below.
        bound: i64,
    },
    /// The edges of floating point among normal values: ±0, subnormals, huge values, infinities, NaN.
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

/// What one input of a case looks like.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// The argument's name.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Values, unless the case says otherwise.
    pub values: Values,
}

impl InputSpec {
    /// Standard normal values.
    pub fn normal(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self::new(name, dtype, shape, Values::NORMAL)
    }

    /// Such values.
    pub fn new(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>, values: Values) -> Self {
        Self { name, dtype, shape: shape.into(), values }
    }

    /// With the values that `case` wants for it.
    pub fn in_case(self, case: &Case) -> Self {
        let fill = case.fill_of_floats().filter(|_| self.dtype.is_float());
        Self { values: case.values_of(self.name).or(fill).unwrap_or(self.values), ..self }
    }

    /// Name, dtype and shape.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { name: self.name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }
    }
}
