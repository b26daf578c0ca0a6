use std::fmt;

/// The memory layout of a tensor of a case: dense and aligned by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// Elements between an allocation's 256-byte aligned start and the tensor's first element.
    pub offset: usize,
    /// The number of unused elements after every row. A row is a run along the innermost dimension in memory, of
    /// tensors with at least two dimensions.
    pub row_pad: usize,
    /// The dimensions from the slowest in memory to the fastest; in their natural order if empty.
    pub order: &'static [usize],
    /// Dimensions with stride 0, along which one element is repeated. Only for inputs.
    pub broadcast: &'static [usize],
}

impl Arrangement {
    /// Dense and aligned.
    pub const DENSE: Self = Self { offset: 0, row_pad: 0, order: &[], broadcast: &[] };

    /// Starts this number of elements past an aligned address.
    pub const fn offset(self, elements: usize) -> Self {
        Self { offset: elements, ..self }
    }

    /// Adds this number of unused elements after every row.
    pub const fn row_pad(self, elements: usize) -> Self {
        Self { row_pad: elements, ..self }
    }

    /// Stores the dimensions in this order in memory, slowest first: `&[1, 0]` is a transposed matrix.
    pub const fn order(self, dims: &'static [usize]) -> Self {
        Self { order: dims, ..self }
    }

    /// Sets stride 0 along these dimensions.
    pub const fn broadcast(self, dims: &'static [usize]) -> Self {
        Self { broadcast: dims, ..self }
    }

    /// The dimensions of a tensor of that rank that are not broadcast, from the slowest in memory to the fastest.
    pub fn distinct(&self, rank: usize) -> Vec<usize> {
        let mut dims = if self.order.is_empty() { (0..rank).collect() } else { self.order.to_vec() };
        dims.retain(|dim| !self.broadcast.contains(dim));
        dims
    }

    /// The strides, in elements, of a tensor of that shape.
    pub fn strides(&self, shape: &[usize]) -> Vec<usize> {
        let mut next = 1;
        let mut strides = vec![0; shape.len()];
        for (i, dim) in self.distinct(shape.len()).into_iter().rev().enumerate() {
            strides[dim] = next;
            next *= shape[dim];
            if i == 0 && shape.len() >= 2 {
                next += self.row_pad;
            }
        }
        strides
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.offset > 0 {
            words.push(format!("offset={}", self.offset));
        }
        if self.row_pad > 0 {
            words.push(format!("pad={}", self.row_pad));
        }
        let digits = |dims: &[usize]| dims.iter().map(usize::to_string).collect::<String>();
        if !self.order.is_empty() {
            words.push(format!("order={}", digits(self.order)));
        }
        if !self.broadcast.is_empty() {
            words.push(format!("broadcast={}", digits(self.broadcast)));
        }
        f.write_str(&words.join(" "))
    }
}
