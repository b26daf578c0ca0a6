use std::fmt;

use super::{OpInfo, TensorMeta};
use crate::ops::model::params::{ParamValue, Params};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The named sizes of a case, in the order its name shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dims(Vec<(&'static str, usize)>);

impl<const N: usize> From<[(&'static str, usize); N]> for Dims {
    fn from(dims: [(&'static str, usize); N]) -> Self {
        Self(dims.into())
    }
}

impl Dims {
    /// The size called `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<usize> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// Adds a size.
    pub fn push(&mut self, name: &'static str, size: usize) {
        self.0.push((name, size));
    }

    /// Names and sizes.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, size)) in self.iter().enumerate() {
            write!(f, "{}{name}={size}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Why a case is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseClass {
    /// A shape that users run: checked on sampled rows, and timed.
    Production,
    /// Sizes that no tile divides.
    Odd,
    /// A handful of elements.
    Tiny,
    /// Some dimension is zero.
    Empty,
    /// A limit: the last size of one path and the first of the next, indexes past 2³¹, a misaligned or padded view.
    Boundary,
}

impl CaseClass {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Production, Self::Odd, Self::Tiny, Self::Empty, Self::Boundary];

    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Odd => "odd",
            Self::Tiny => "tiny",
            Self::Empty => "empty",
            Self::Boundary => "boundary",
        }
    }
}

/// Where a case's tensors lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Elements between an allocation's 256-byte aligned start and the tensor's first element.
    pub offset: usize,
    /// Unused elements after every row, for tensors of two or more dimensions.
    pub row_pad: usize,
}

/// One problem that an operator is checked on, and timed on if it is a production case.
#[derive(Clone, Debug)]
pub struct Case {
    /// What reports call it.
    pub name: String,
    /// The element type that the operator is asked for.
    pub dtype: DType,
    /// The sizes.
    pub dims: Dims,
    /// The scalar parameters.
    pub params: Params,
    /// Why it is there.
    pub class: CaseClass,
    /// Where the tensors lie.
    pub layout: Layout,
    /// What to fill every input with, instead of what [`Operator::inputs`](super::Operator::inputs) says.
    pub fill: Option<Distribution>,
    /// Whether it takes tens of gigabytes: it is left out where they are not there, and in quick runs.
    pub huge: bool,
}

impl Case {
    /// A production case under the name that other libraries' bench rows use.
    pub fn production(info: &'static OpInfo, name: impl Into<String>, dtype: DType, dims: impl Into<Dims>) -> Self {
        let mut case = Self::new(info, CaseClass::Production, dtype, dims);
        case.name = name.into();
        case
    }

    /// Whether the checks run it in the simulator, which takes too long over production shapes.
    pub fn is_simulated(&self) -> bool {
        self.class != CaseClass::Production && !self.huge
    }

    /// Sizes that no tile divides.
    pub fn odd(info: &'static OpInfo, dtype: DType, dims: impl Into<Dims>) -> Self {
        Self::new(info, CaseClass::Odd, dtype, dims)
    }

    /// A handful of elements.
    pub fn tiny(info: &'static OpInfo, dtype: DType, dims: impl Into<Dims>) -> Self {
        Self::new(info, CaseClass::Tiny, dtype, dims)
    }

    /// A dimension of zero.
    pub fn empty(info: &'static OpInfo, dtype: DType, dims: impl Into<Dims>) -> Self {
        Self::new(info, CaseClass::Empty, dtype, dims)
    }

    /// A limit of the implementation.
    pub fn boundary(info: &'static OpInfo, dtype: DType, dims: impl Into<Dims>) -> Self {
        Self::new(info, CaseClass::Boundary, dtype, dims)
    }

    /// A case of any class, named `<dims> <dtype>`.
    pub fn new(info: &'static OpInfo, class: CaseClass, dtype: DType, dims: impl Into<Dims>) -> Self {
        let dims = dims.into();
        Self {
            name: format!("{dims} {}", dtype.name()),
            dtype,
            dims,
            params: Params::new(info),
            class,
            layout: Layout::default(),
            fill: None,
            huge: false,
        }
    }

    /// Every tensor starts `elements` past an aligned address.
    pub fn offset(mut self, elements: usize) -> Self {
        if elements > 0 {
            self.layout.offset = elements;
            self.name.push_str(&format!(" offset={elements}"));
        }
        self
    }

    /// Every row is followed by `elements` that belong to nobody.
    pub fn row_pad(mut self, elements: usize) -> Self {
        if elements > 0 {
            self.layout.row_pad = elements;
            self.name.push_str(&format!(" pad={elements}"));
        }
        self
    }

    /// Every input is filled from `distribution`.
    pub fn fill(mut self, distribution: Distribution) -> Self {
        self.fill = Some(distribution);
        self.name.push_str(&format!(" fill={}", distribution.name()));
        self
    }

    /// Takes tens of gigabytes.
    pub fn huge(mut self) -> Self {
        self.huge = true;
        self
    }

    /// With a parameter other than its default. The registry's tests catch a name that the operator does not declare.
    pub fn param(mut self, name: &'static str, value: impl Into<ParamValue>) -> Self {
        let value = value.into();
        self.params.put(name, value);
        if self.class != CaseClass::Production {
            self.name.push_str(&format!(" {name}={value}"));
        }
        self
    }

    /// The sizes of those names: `let [rows, d] = case.dims(["rows", "d"])?`.
    pub fn dims<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N]> {
        let mut sizes = [0; N];
        for (size, name) in sizes.iter_mut().zip(names) {
            *size = self.dims.get(name).ok_or_else(|| {
                self.params.info().param_error(name, &self.name, "a size that the case has".to_owned())
            })?;
        }
        Ok(sizes)
    }
}

/// What values a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
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
    /// Whole numbers, evenly.
    Integers {
        /// Least value.
        low: i64,
        /// Greatest value.
        high: i64,
    },
    /// The edges of floating point among normal values: ±0, subnormals, huge values, infinities, NaN.
    Specials,
    /// One value everywhere.
    Constant(f64),
}

impl Distribution {
    /// Mean zero, standard deviation one.
    pub const NORMAL: Self = Self::Normal { std: 1.0 };

    /// A word for case names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal { .. } => "normal",
            Self::Uniform { .. } => "uniform",
            Self::Bernoulli { .. } => "bernoulli",
            Self::Integers { .. } => "integers",
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
    /// Values.
    pub distribution: Distribution,
}

impl InputSpec {
    /// Standard normal values.
    pub fn normal(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self::new(name, dtype, shape, Distribution::NORMAL)
    }

    /// Values from `distribution`.
    pub fn new(name: &'static str, dtype: DType, shape: impl Into<Vec<usize>>, distribution: Distribution) -> Self {
        Self { name, dtype, shape: shape.into(), distribution }
    }

    /// Name, dtype and shape.
    pub fn meta(&self) -> TensorMeta {
        TensorMeta { name: self.name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }
    }
}

/// An output passes where |out − ref| ≤ abs + rel·|ref|.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Relative part.
    pub rel: f64,
    /// The argument for these numbers.
    pub why: &'static str,
}

impl Tolerance {
    /// A tolerance with its argument.
    pub const fn new(abs: f64, rel: f64, why: &'static str) -> Self {
        Self { abs, rel, why }
    }
}

/// What limits an operator on an ideal device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// The tensor cores, fed with this dtype.
    Tensor(DType),
    /// The f32 units.
    Fp32,
}

/// The least that any implementation has to do.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Each input read once, each output written once.
    pub bytes: u64,
    /// Useful floating-point (or integer) operations; zero where bytes are what counts.
    pub flops: u64,
    /// What that makes the limit.
    pub bound: Bound,
}

impl Cost {
    /// Bound by memory traffic.
    pub const fn memory(bytes: u64) -> Self {
        Self { bytes, flops: 0, bound: Bound::Memory }
    }

    /// Bound by arithmetic.
    pub const fn compute(bytes: u64, flops: u64, bound: Bound) -> Self {
        Self { bytes, flops, bound }
    }
}
