//! The kernels that compute a product, by the names of their variants, and which of them is picked.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{pairs, skinny, thin};

use super::super::plan;
use super::problem::Problem;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// Which kernel computes a product.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// Clusters of four blocks that split k.
    Skinny,
    /// The same, each block with a multiprocessor to itself.
    SkinnyAlone,
    /// Pairs of blocks that split k.
    Pairs,
    /// Blocks that take this number of rows of the weight and all of k.
    Thin(u32),
    /// Tiles with this number of columns.
    Hopper(u32),
    /// Tiles with more rows.
    Tall,
    /// Tiles with this number of rows, with operands swapped.
    Swapped(u32),
    /// Tiles with this number of columns of pieces along k, and the sum of these.
    Split(u32),
    Padded,
    Mma,
}

impl Path {
    /// The variants' names.
    pub(super) const NAMED: [(&'static str, Self); 22] = [
        ("skinny", Self::Skinny),
        ("skinny_alone", Self::SkinnyAlone),
        ("skinny_pairs", Self::Pairs),
        ("thin", Self::Thin(32)),
        ("thin_64", Self::Thin(64)),
        ("hopper", Self::Hopper(256)),
        ("hopper_208", Self::Hopper(208)),
        ("hopper_192", Self::Hopper(192)),
        ("hopper_160", Self::Hopper(160)),
        ("hopper_144", Self::Hopper(144)),
        ("hopper_128", Self::Hopper(128)),
        ("hopper_96", Self::Hopper(96)),
        ("hopper_64", Self::Hopper(64)),
        ("hopper_tall", Self::Tall),
        ("swapped_128", Self::Swapped(128)),
        ("swapped_64", Self::Swapped(64)),
        ("split", Self::Split(256)),
        ("split_192", Self::Split(192)),
        ("split_128", Self::Split(128)),
        ("split_64", Self::Split(64)),
        ("padded", Self::Padded),
        ("mma", Self::Mma),
    ];
}

impl<T: Float + Half, C: Float + Element> Problem<'_, T, C> {
    /// The path that tuning found fastest, if it takes the problem.
    pub(super) fn tuned(&self, stream: &Stream) -> Result<Option<Path>> {
        let (dtypes, layout) = ([T::DTYPE, T::DTYPE, C::DTYPE], [&self.a.layout, &self.b.layout]);
        let path = plan::tuned(stream, self.info, dtypes, &self.sizes, layout, &Path::NAMED)?;
        let Some(path) = path else { return Ok(None) };
        let hopper = stream.device().supports_hopper();
        let takes = match path {
            Path::Skinny => hopper && self.fits_skinny(skinny::MOST),
            Path::SkinnyAlone => hopper && self.fits_skinny(skinny::MOST_ALONE),
            Path::Pairs => hopper && self.fits_skinny(pairs::MOST),
            Path::Thin(rows) => hopper && self.fits_skinny(thin::most(rows)),
            Path::Hopper(columns) => hopper && self.widths().contains(&columns),
            Path::Tall => hopper && self.fits_hopper().is_some(),
            Path::Swapped(_) => hopper && self.fits_swapped(),
            Path::Split(_) => hopper && self.fits_split(),
            Path::Padded => self.fits_padded(),
            Path::Mma => true,
        };
        Ok(takes.then_some(path))
    }

    /// On Hopper, the path for few rows or columns, unless these fill tiles; then the wgmma path, which reaches twice the speed
    /// of mma.sync.
    pub(super) fn planned(&self, stream: &Stream) -> Path {
        match stream.device().supports_hopper() {
            true if self.fits_skinny(skinny::MOST) => self.of_few(stream),
            true if self.fits_hopper().is_some() => self.tiles(stream),
            _ if self.is_worth_padding() => Path::Padded,
            _ => Path::Mma,
        }
    }

    /// For few rows or columns: pieces of a long k, tiles that they fill, or clusters that share k.
    fn of_few(&self, stream: &Stream) -> Path {
        let sizes = [self.sizes.m, self.sizes.n].map(|size| size as usize);
        let of = stream.device().info().multiprocessors;
        let rows = || {
            // The path that cuts k has separate kernels for up to 16.
            let are_worth = |(_, are_enough): &(u32, bool)| *are_enough && self.sizes.m > 16 && self.fits_swapped();
            plan::of_few_rows(of, sizes).filter(are_worth).map(|(rows, _)| Path::Swapped(rows))
        };
        let all = [self.sizes.m, self.sizes.n, self.sizes.k];
        if let Some(columns) = plan::of_pieces(of, all, plan::of_quarters(all)).filter(|_| self.fits_split()) {
            return Path::Split(columns);
        }
        if let Some(rows) = plan::fills_without_cuts(of, sizes) {
            return Path::Thin(rows);
        }
        if plan::are_better_by_pairs(of, sizes) {
            return Path::Pairs;
        }
        if plan::leaves_half_empty(of, sizes) {
            return Path::SkinnyAlone;
        }
        plan::of_few_columns(of, sizes).map(Path::Hopper).or_else(rows).unwrap_or(Path::Skinny)
    }

    /// The tiles that best fill waves of the device's multiprocessors, of pieces along k if these are better.
    pub(super) fn tiles(&self, stream: &Stream) -> Path {
        let gk::Problem { m, n, k, .. } = self.sizes;
        let of = stream.device().info().multiprocessors;
        match self.whole_tiles(stream) {
            Path::Hopper(columns) if self.fits_split() => {
                let swapped = plan::of_swapped(of, [m, n].map(|size| size as usize), columns);
                let swapped = swapped.filter(|_| self.fits_swapped()).map(Path::Swapped);
                let whole = plan::of_tiles(of, [m, n, k], columns);
                let pieces = plan::of_pieces(of, [m, n, k], whole).map(Path::Split);
                pieces.or(swapped).unwrap_or(Path::Hopper(columns))
            }
            path => path,
        }
    }

    /// The same of whole products.
    pub(super) fn whole_tiles(&self, stream: &Stream) -> Path {
        let sizes = [self.sizes.batch, self.sizes.m, self.sizes.n].map(|size| size as usize);
        let of = stream.device().info().multiprocessors;
        let columns = plan::columns_over(of, sizes, self.sizes.k as usize, self.widths());
        if plan::are_better_tall(of, sizes, columns) { Path::Tall } else { Path::Hopper(columns) }
    }
}
