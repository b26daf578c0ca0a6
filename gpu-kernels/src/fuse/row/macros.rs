//! The syntax of a formula over rows, and its expansion.

/// A formula over rows, fused into a kernel: reductions over a row, and a result for each of its elements. See
/// [`fuse::row`](mod@crate::fuse::row).
///
/// It is written as a function of one to four inputs; optionally of the element's index and the number of elements of a
/// row; and of numbers that all rows share. Its body has three kinds of lines:
///
/// - `let total = sum(…);`, with `sum`, `mean`, `max` or `min` of the expression in parentheses, evaluated for each
///   element. The reduction stands alone on its line: anything computed from it goes in a line of its own. `let (a, b)
///   = (sum(…), max(…));` reduces to several values at once, which costs as much as one reduction where a row is held
///   in registers, and saves a read where it is not.
/// - `let scale = …;`, numbers of the row, computed from reduced values and from the parameters. Elements are not
///   visible here.
/// - last, the value of each element. If it needs several steps, it is a block.
///
/// The definition becomes a value of its name, for the host's `ops::row`, or, with parameters, a function of them that
/// returns one. Its method `values` is the formula on slices. The body is safe code over `f32`; `cuda_std::math` has
/// what `core` lacks.
#[macro_export]
macro_rules! row {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident(
            [$($x:ident),+ $(,)?]: [f32; $count:tt]
            $(, [$column:ident, $columns:ident]: [usize; 2])?
            $(, $param:ident: f32)* $(,)?
        ) -> f32 { $($body:tt)+ }
    )+) => { $(
        // Variables end in `_`, as in `zip!`.
        $crate::formula_type! { $(#[$meta])* $visibility $name($($param)*) }

        impl $name {
            /// The formula, for rows in slices of one length.
            #[allow(dead_code)]
            $visibility fn values(self, inputs_: [&[f32]; $count], output_: &mut [f32]) {
                self.of_row($crate::fuse::row::OfSlices::new(inputs_, output_));
            }

            #[inline(always)]
            #[allow(unused_variables)]
            fn of_row<R: $crate::fuse::row::Row<$count>>(self, row_: R) -> R::Written {
                let Self { $($param),* } = self;
                $(let $columns = row_.columns();)?
                $crate::row_steps! { row_ (0) [$($x)+] [$($column)?] $($body)+ }
            }
        }

        $crate::row_kernels! { $count $name [$($x)+] [$($param)*] }
    )+ };
}

/// The lines of a formula: the row, the number of values reduced so far, the names of the elements and of the index,
/// the lines.
#[doc(hidden)]
#[macro_export]
macro_rules! row_steps {
    ($row:ident $n:tt $x:tt $at:tt let $value:ident = sum($of:expr); $($rest:tt)+) => {
        $crate::row_step! { $row $n $x $at [$value] [sum] [($of)] $($rest)+ }
    };
    ($row:ident $n:tt $x:tt $at:tt let $value:ident = mean($of:expr); $($rest:tt)+) => {
        $crate::row_step! { $row $n $x $at [$value] [mean] [($of)] $($rest)+ }
    };
    ($row:ident $n:tt $x:tt $at:tt let $value:ident = max($of:expr); $($rest:tt)+) => {
        $crate::row_step! { $row $n $x $at [$value] [max] [($of)] $($rest)+ }
    };
    ($row:ident $n:tt $x:tt $at:tt let $value:ident = min($of:expr); $($rest:tt)+) => {
        $crate::row_step! { $row $n $x $at [$value] [min] [($of)] $($rest)+ }
    };
    ($row:ident $n:tt $x:tt $at:tt let ($($value:ident),+ $(,)?) = ($($kind:ident($of:expr)),+ $(,)?); $($rest:tt)+) => {
        $crate::row_step! { $row $n $x $at [$($value)+] [$($kind)+] [$(($of))+] $($rest)+ }
    };
    ($row:ident $n:tt $x:tt $at:tt let $value:pat_param = $of:expr; $($rest:tt)+) => {{
        let $value = $of;
        $crate::row_steps! { $row $n $x $at $($rest)+ }
    }};
    ($row:ident $n:tt [$($x:ident)+] [$($at:ident)?] $value:expr) => {
        $row.write(|[$($x),+], at_| {
            $(let $at: usize = at_;)?
            $value
        })
    };
}

/// A reducing line and the lines after it.
#[doc(hidden)]
#[macro_export]
macro_rules! row_step {
    (
        $row:ident ($n:expr) [$($x:ident)+] [$($at:ident)?]
        [$($value:ident)+] [$($kind:ident)+] [$($of:tt)+] $($rest:tt)+
    ) => {{
        let [$($value),+] = $row.reduce::<{ $n }, _>([$($crate::fuse::row::Reduction::$kind),+], |[$($x),+], at_| {
            $(let $at: usize = at_;)?
            [$($of),+]
        });
        $crate::row_steps! { $row ($n $(+ $crate::one_of!($value))+) [$($x)+] [$($at)?] $($rest)+ }
    }};
}

/// Always 1, whatever token it is given.
#[doc(hidden)]
#[macro_export]
macro_rules! one_of {
    ($of:ident) => {
        1
    };
}

/// The kernels of a formula over rows.
#[doc(hidden)]
#[macro_export]
macro_rules! row_kernels {
    (1 $($rest:tt)+) => { $crate::row_kernels! { @ 1 8 $($rest)+ } };
    (2 $($rest:tt)+) => { $crate::row_kernels! { @ 2 8 $($rest)+ } };
    (3 $($rest:tt)+) => { $crate::row_kernels! { @ 3 4 $($rest)+ } };
    (4 $($rest:tt)+) => { $crate::row_kernels! { @ 4 4 $($rest)+ } };
    (@ $count:tt $packs:tt $name:ident [$($x:ident)+] [$($param:ident)*]) => {
        #[allow(missing_docs, unreachable_pub, unsafe_code, unsafe_op_in_unsafe_fn, clippy::too_many_arguments)]
        const _: () = {
            use $crate::fuse::row::{MAX_REDUCTIONS, run};
            use $crate::rows::{Block, Cluster, Lanes, Stream, Team, Warp};

            const _: () = assert!($packs == $crate::fuse::row::packs($count));

            #[::cuda_std::kernel(
                dtypes(T: float),
                types(P: Lanes<2>, Warp<4>, Block<2>, Block<$packs>, Stream),
                symbol = $name,
                block = P::THREADS,
                min_blocks = $crate::rows::blocks::<P>($count + 1),
                shared = <P as Team>::Partials<MAX_REDUCTIONS>
            )]
            pub unsafe fn fused<T: ::cuda_std::float::Element, P: Team>(
                $($x: *const T,)+
                output_: *mut T,
                rows_: u64,
                d_: u64,
                strides_: $crate::fuse::Strides<$count>,
                $($param: f32,)*
            ) {
                let formula_ = $name { $($param),* };
                let inputs_: [*const T; $count] = [$($x),+];
                let inputs_ = ::core::array::from_fn(|i_| (inputs_[i_], strides_.inputs[i_]));
                run::<T, P, $count>(inputs_, (output_, strides_.output), rows_, d_, |row_| formula_.of_row(row_));
            }

            #[::cuda_std::kernel(
                dtypes(T: float),
                types(P: Cluster<$packs>),
                symbol = $name,
                block = P::THREADS,
                min_blocks = $crate::rows::blocks::<P>($count + 1),
                cluster = $crate::rows::CLUSTER,
                arch = "sm_90a",
                shared = <P as Team>::Partials<MAX_REDUCTIONS>
            )]
            pub unsafe fn clustered<T: ::cuda_std::float::Element, P: Team>(
                $($x: *const T,)+
                output_: *mut T,
                rows_: u64,
                d_: u64,
                strides_: $crate::fuse::Strides<$count>,
                $($param: f32,)*
            ) {
                let formula_ = $name { $($param),* };
                let inputs_: [*const T; $count] = [$($x),+];
                let inputs_ = ::core::array::from_fn(|i_| (inputs_[i_], strides_.inputs[i_]));
                run::<T, P, $count>(inputs_, (output_, strides_.output), rows_, d_, |row_| formula_.of_row(row_));
            }

            #[cfg(not(target_arch = "nvptx64"))]
            // SAFETY: the kernels are `run` over these operands.
            unsafe impl $crate::fuse::row::RowFormula<$count> for $name {
                const NAME: &'static str = stringify!($name);
                const INPUTS: [&'static str; $count] = [$(stringify!($x)),+];
                const KERNELS: &'static [::cuda_std::launch::Instance] = FUSED;
                const CLUSTERED: &'static [::cuda_std::launch::Instance] = CLUSTERED;
                type Args<T: ::cuda_std::float::Element> = <Fused<T, Stream> as ::cuda_std::launch::Kernel>::Args;
                type Lanes<T: ::cuda_std::float::Element> = Fused<T, Lanes<2>>;
                type Warp<T: ::cuda_std::float::Element> = Fused<T, Warp<4>>;
                type ShortBlock<T: ::cuda_std::float::Element> = Fused<T, Block<2>>;
                type Block<T: ::cuda_std::float::Element> = Fused<T, Block<$packs>>;
                type Cluster<T: ::cuda_std::float::Element> = Clustered<T, Cluster<$packs>>;
                type Stream<T: ::cuda_std::float::Element> = Fused<T, Stream>;

                fn args<T: ::cuda_std::float::Element>(
                    self,
                    inputs_: [::cuda_std::launch::DevicePtr<T>; $count],
                    output_: ::cuda_std::launch::DevicePtrMut<T>,
                    rows_: u64,
                    d_: u64,
                    strides_: $crate::fuse::Strides<$count>,
                ) -> Self::Args<T> {
                    let [$($x),+] = inputs_;
                    ($($x,)+ output_, rows_, d_, strides_, $(self.$param,)*)
                }
            }
        };
    };
}
