use std::fmt;

use super::params::{ParamValue, Params};
use super::{Arrangement, OpInfo, Values};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The named sizes of a case, in the order in which its name shows them.
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

/// The purpose of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseClass {
    /// A shape that users run: verified on sampled rows, and timed.
    Production,
    /// Sizes that are not multiples of any tile.
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

/// One problem on which an operator is verified and, if it is a production case, timed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name in reports.
    pub name: String,
    /// The element type of the operator.
    pub dtype: DType,
    /// The sizes.
    pub dims: Dims,
    /// The scalar parameters.
    pub params: Params,
    /// The purpose of the case.
    pub class: CaseClass,
    /// The layout of the tensors that have none of their own.
    arrangement: Arrangement,
    /// Settings of single tensors.
    tensors: Vec<(&'static str, Particular)>,
    /// The values of every float input, instead of those of [`Operator::inputs`](super::Operator::inputs).
    fill: Option<Values>,
    /// Whether it needs tens of gigabytes: such a case is skipped in quick runs and where the memory is missing.
    pub huge: bool,
    /// Whether it is timed and not verified.
    pub timed_only: bool,
    /// The only variants that are verified in it, if any are named here.
    pub variants: &'static [&'static str],
}

/// The settings of one tensor in a case.
#[derive(Clone, Copy, Debug)]
enum Particular {
    Arrangement(Arrangement),
    Values(Values),
    Absent,
}

impl Case {
    /// A production case under the name that other libraries' bench rows use.
    pub fn production(info: &'static OpInfo, name: impl Into<String>, dtype: DType, dims: impl Into<Dims>) -> Self {
        let mut case = Self::new(info, CaseClass::Production, dtype, dims);
        case.name = name.into();
        case
    }

    /// Whether the checks run it in the simulator, which takes too long for production shapes.
    pub fn is_simulated(&self) -> bool {
        self.class != CaseClass::Production && !self.huge
    }

    /// Sizes that are not multiples of any tile.
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
            arrangement: Arrangement::DENSE,
            tensors: Vec::new(),
            fill: None,
            huge: false,
            timed_only: false,
            variants: &[],
        }
    }

    /// Sets the layout of the tensor called `name`.
    pub fn arrange(mut self, name: &'static str, arrangement: Arrangement) -> Self {
        self.tensors.push((name, Particular::Arrangement(arrangement)));
        self.describe(&format!("{name}:{arrangement}"));
        self
    }

    /// Every tensor starts `elements` past an aligned address.
    pub fn offset(mut self, elements: usize) -> Self {
        self.arrangement = self.arrangement.offset(elements);
        self.describe(&Arrangement::DENSE.offset(elements).to_string());
        self
    }

    /// Adds `elements` unused elements after every row.
    pub fn row_pad(mut self, elements: usize) -> Self {
        self.arrangement = self.arrangement.row_pad(elements);
        self.describe(&Arrangement::DENSE.row_pad(elements).to_string());
        self
    }

    /// Fills every float input with these values.
    pub fn fill(mut self, values: Values) -> Self {
        self.fill = Some(values);
        self.describe(&format!("fill={}", values.name()));
        self
    }

    /// Fills the input called `name` with these values.
    pub fn values(mut self, name: &'static str, values: Values) -> Self {
        self.tensors.push((name, Particular::Values(values)));
        self.describe(&format!("{name}={}", values.name()));
        self
    }

    /// Omits the optional input called `name`.
    pub fn without(mut self, name: &'static str) -> Self {
        self.tensors.push((name, Particular::Absent));
        self.describe(&format!("no-{name}"));
        self
    }

    /// Omits all optional inputs except those called `names`.
    pub fn only(mut self, names: &[&str]) -> Self {
        for arg in self.params.info().inputs().filter(|arg| arg.optional && !names.contains(&arg.name)) {
            self.tensors.push((arg.name, Particular::Absent));
        }
        self.describe(&names.join(" "));
        self
    }

    /// Makes the case timed only, not verified: its reference takes minutes, and smaller cases run the same kernels in
    /// the same way.
    pub fn timed_only(mut self) -> Self {
        self.timed_only = true;
        self
    }

    /// Only these variants, and the automatic choice, are verified in the case: it is large, and there for something that the others do
    /// not have. The registry's tests catch a name that the operator does not have.
    pub fn by(mut self, variants: &'static [&'static str]) -> Self {
        self.variants = variants;
        self
    }

    /// Whether this variant is verified in the case.
    pub fn is_by(&self, variant: &str) -> bool {
        self.variants.is_empty() || self.variants.contains(&variant)
    }

    /// Marks a case that needs tens of gigabytes.
    pub fn huge(mut self) -> Self {
        self.huge = true;
        self
    }

    /// Sets a parameter. The registry's tests catch a name that the operator does not declare.
    pub fn param(mut self, name: &'static str, value: impl Into<ParamValue>) -> Self {
        let value = value.into();
        self.params.put(name, value);
        self.describe(&format!("{name}={value}"));
        self
    }

    /// Production cases keep the name that the rows of other libraries have.
    fn describe(&mut self, words: &str) {
        if self.class != CaseClass::Production && !words.is_empty() {
            self.name.push(' ');
            self.name.push_str(words);
        }
    }

    /// The sizes with these names: `let [rows, d] = case.dims(["rows", "d"])?`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) names a size that the case has not.
    pub fn dims<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N]> {
        let mut sizes = [0; N];
        for (size, name) in sizes.iter_mut().zip(names) {
            *size = self.dims.get(name).ok_or_else(|| {
                self.params.info().param_error(name, &self.name, "a size that the case has".to_owned())
            })?;
        }
        Ok(sizes)
    }

    /// Whether the case passes the optional input called `name`.
    pub fn has(&self, name: &str) -> bool {
        !self.tensors.iter().any(|(n, what)| *n == name && matches!(what, Particular::Absent))
    }

    /// The layout of the tensor called `name`.
    pub fn arrangement(&self, name: &str) -> Arrangement {
        let particular = self.tensors.iter().rev().find_map(|(n, what)| match what {
            Particular::Arrangement(arrangement) if *n == name => Some(*arrangement),
            _ => None,
        });
        particular.unwrap_or(self.arrangement)
    }

    /// The values of the input called `name`, if the case sets them.
    pub(crate) fn values_of(&self, name: &str) -> Option<Values> {
        self.tensors.iter().rev().find_map(|(n, what)| match what {
            Particular::Values(values) if *n == name => Some(*values),
            _ => None,
        })
    }

    /// The values of every float input, if the case sets them.
    pub fn fill_of_floats(&self) -> Option<Values> {
        self.fill
    }

    /// The names of the tensors for which the case has settings.
    pub fn named_tensors(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.tensors.iter().map(|(name, _)| *name)
    }
}
