use proptest::prelude::*;

use super::*;

fn dense(dims: &[usize]) -> Layout {
    Layout::dense(Shape::new(dims).unwrap())
}

fn strided(from: &Layout, offset: usize, dims: &[usize], strides: &[usize]) -> Result<Layout> {
    from.strided(offset, dims, strides, Overlap::Refused)
}

/// The elements of a layout, by their place in the storage.
fn places(layout: &Layout) -> Vec<u16> {
    let spanned: Vec<u16> = (0..layout.span()).map(|i| (layout.offset + i) as u16).collect();
    let mut out = vec![0u16; layout.shape.elements()];
    layout.gather(bytemuck::cast_slice(&spanned), 2, bytemuck::cast_slice_mut(&mut out));
    out
}

#[test]
fn padded_rows_gather_in_order() {
    let padded = strided(&dense(&[20]), 1, &[2, 3], &[5, 1]).unwrap();
    assert_eq!((padded.span(), padded.row_stride(), padded.is_contiguous()), (8, Some(5), false));
    assert_eq!(places(&padded), [1, 2, 3, 6, 7, 8]);
    let inner = padded.slice(1..2).unwrap();
    assert_eq!((inner.offset, inner.span()), (6, 3));
    assert!(inner.is_contiguous());
}

#[test]
fn three_dimensions_with_one_row_stride() {
    let all = dense(&[1000]);
    let even = strided(&all, 0, &[2, 3, 4], &[24, 8, 1]).unwrap();
    assert_eq!((even.rows(), even.row_stride()), (6, Some(8)));
    let uneven = strided(&all, 0, &[2, 3, 4], &[100, 8, 1]).unwrap();
    assert_eq!((uneven.row_stride(), uneven.span()), (None, 100 + 16 + 4));
    let single = strided(&all, 0, &[1, 3, 4], &[7, 8, 1]).unwrap();
    assert_eq!((single.row_stride(), single.strides()), (Some(8), &[24, 8, 1][..]));
}

#[test]
fn dimensions_change_places() {
    let x = dense(&[2, 3]);
    let t = x.transposed();
    assert_eq!((t.shape.dims(), t.strides(), t.row_stride()), (&[3, 2][..], &[1, 3][..], None));
    assert_eq!(places(&t), [0, 3, 1, 4, 2, 5]);
    assert_eq!(t.transposed(), x);
    let heads = dense(&[2, 3, 4, 5]).permute(&[0, 2, 1, 3]).unwrap();
    assert_eq!((heads.shape.dims(), heads.strides()), (&[2, 4, 3, 5][..], &[60, 5, 20, 1][..]));
    assert!(heads.rows_are_contiguous() && heads.row_stride().is_none() && heads.reshape(&[120]).is_err());
    assert_eq!(places(&heads)[5..10], [20, 21, 22, 23, 24]);
    for order in [&[0, 1][..], &[0, 1, 1, 2], &[0, 1, 2, 4], &[0, 1, 2, 3, 4]] {
        assert!(dense(&[2, 3, 4, 5]).permute(order).is_err(), "{order:?}");
    }
    assert_eq!(dense(&[7]).transposed(), dense(&[7]));
}

#[test]
fn one_entry_is_repeated() {
    let bias = dense(&[3]).broadcast(&[2, 3]).unwrap();
    assert_eq!((bias.strides(), bias.row_stride(), bias.span()), (&[0, 1][..], Some(0), 3));
    assert_eq!(places(&bias), [0, 1, 2, 0, 1, 2]);
    let scale = dense(&[2, 1]).broadcast(&[2, 3]).unwrap();
    assert_eq!((places(&scale), scale.row_stride()), (vec![0, 0, 0, 1, 1, 1], None));
    assert_eq!(dense(&[1]).broadcast(&[4, 0]).unwrap().span(), 0);
    for dims in [&[2, 4][..], &[], &[3, 2], &[usize::MAX, 3]] {
        assert!(dense(&[3]).broadcast(dims).is_err(), "{dims:?}");
    }
}

#[test]
fn selections_outside_or_overlapping_are_refused() {
    let all = dense(&[10]);
    assert!(strided(&all, 0, &[2, 5], &[5, 1]).is_ok());
    assert!(strided(&all, 0, &[5, 2], &[1, 5]).is_ok());
    assert!(strided(&all, 0, &[2, 2], &[5, 2]).is_ok());
    assert!(strided(&all, 1, &[2, 5], &[5, 1]).is_err());
    assert!(strided(&all, 0, &[2, 5], &[4, 1]).is_err());
    assert!(strided(&all, 0, &[2, 5], &[0, 1]).is_err());
    assert!(strided(&all, 0, &[2], &[5, 1]).is_err());
    assert!(strided(&all, 0, &[2, 2], &[usize::MAX, 1]).is_err());
    assert!(strided(&all, usize::MAX, &[2], &[1]).is_err());
    assert!(strided(&all, 11, &[0], &[1]).is_err());
    let windows = all.strided(0, &[8, 3], &[1, 1], Overlap::Allowed).unwrap();
    assert_eq!(places(&windows)[3..6], [1, 2, 3]);
    assert!(all.slice(3..11).is_err());
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = all.slice(5..4);
    assert!(reversed.is_err());
    assert!(dense(&[]).slice(0..0).is_err());
    assert!(dense(&[4, 3]).reshape(&[5]).is_err());
    assert!(dense(&[4, 3]).reshape(&[2, 6]).is_ok());
}

#[test]
fn what_is_wrong_with_strides_is_told_apart() {
    let all = dense(&[10]);
    let said =
        |offset, dims: &[usize], strides: &[usize]| strided(&all, offset, dims, strides).unwrap_err().to_string();
    for (error, expected) in [
        (said(0, &[2], &[5, 1]), "parameter `strides` = [5, 1]: expected 1 strides for shape [2]"),
        (
            said(0, &[2, 2], &[-3isize as usize, 1]),
            "parameter `strides` = [18446744073709551613, 1]: expected none that is negative, as -3 is in two's complement",
        ),
        (
            said(0, &[5, 2], &[1 << 62, 1]),
            "`strides` is too large: [4611686018427387904, 1] for shape [5, 2] span 2^64 elements or more",
        ),
        (
            said(0, &[3, 2], &[5, 1]),
            "parameter `strides` = [5, 1]: expected a span of at most 10 elements, not 12 for shape [3, 2]",
        ),
        (said(3, &[2, 3], &[5, 1]), "parameter `offset` = 3: expected at most 2: 8 of 10 elements are spanned"),
        (said(11, &[0], &[1]), "parameter `offset` = 11: expected at most 10: 0 of 10 elements are spanned"),
        (
            said(0, &[2, 5], &[4, 1]),
            "parameter `strides` = [4, 1]: expected strides that each step over all that smaller ones reach, so that no two \
             elements of shape [2, 5] meet",
        ),
    ] {
        assert_eq!(error, format!("strided: {expected}"));
    }
}

#[test]
fn empty_selections_are_legal_wherever_they_begin() {
    let all = dense(&[4, 3]);
    for at in 0..=4 {
        assert_eq!(all.slice(at..at).unwrap().shape.dims(), [0, 3]);
    }
    for at in 0..=12 {
        for dims in [&[0][..], &[0, 7], &[3, 0]] {
            let none = strided(&all, at, dims, &[usize::MAX, 0][..dims.len()]).unwrap();
            assert_eq!((none.span(), none.is_contiguous(), none.rows_are_contiguous()), (0, true, true));
            // Nothing stays nothing when it is cut, turned or shaped anew.
            assert!(none.slice(0..0).is_ok() && none.reshape(&[5, 0]).is_ok() && none.transposed().span() == 0);
            assert!(strided(&none, 0, &[0], &[9]).is_ok() && none.row_stride().is_some());
        }
    }
    assert!(strided(&dense(&[0, 3]), 0, &[2, 0], &[1, 1]).is_ok() && strided(&dense(&[0]), 1, &[0], &[1]).is_err());
}

#[test]
fn empty_selections_have_no_span() {
    let none = dense(&[4, 3]).slice(4..4).unwrap();
    assert_eq!((none.offset, none.span(), none.rows()), (0, 0, 0));
    assert!(places(&none).is_empty());
    let huge = strided(&dense(&[4]), 0, &[0, 2], &[usize::MAX, usize::MAX]).unwrap();
    assert_eq!((huge.strides(), huge.row_stride()), (&[2, 1][..], Some(2)));
    assert_eq!(strided(&dense(&[4]), 0, &[1, 2], &[usize::MAX, 1]).unwrap().row_stride(), Some(2));
}

fn size() -> impl Strategy<Value = usize> {
    let extreme = [0, 1, 2, 1 << 31, 1 << 32, 1 << 62, isize::MAX as usize, usize::MAX - 1, usize::MAX];
    prop_oneof![3 => 0..9usize, 1 => proptest::sample::select(extreme.to_vec())]
}

/// What every layout inside `elements` elements can be asked.
fn check(layout: &Layout, elements: usize) {
    let (offset, span) = (layout.offset, layout.span());
    assert!(offset + span <= elements.max(offset), "{layout:?}");
    assert_eq!(layout.rows() * layout.cols(), layout.shape.elements());
    if let Some(stride) = layout.row_stride()
        && layout.shape.elements() > 0
    {
        assert!(stride == 0 || (layout.rows() - 1) * stride + layout.cols() <= span, "{layout:?}");
    }
    assert!(!layout.is_contiguous() || span == layout.shape.elements(), "{layout:?}");
    if offset + span <= 64 && layout.shape.elements() <= 512 {
        assert!(places(layout).iter().all(|&place| (offset..offset + span).contains(&(place as usize))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_give_a_layout_inside_or_an_error(
        elements in prop_oneof![0..60usize, Just(isize::MAX as usize)],
        offset in size(),
        dims in prop::collection::vec(size(), 0..7),
        strides in prop::collection::vec(size(), 0..7),
        (start, end) in (size(), size()),
        order in prop::collection::vec(0..6usize, 0..6),
        wider in prop::collection::vec(size(), 0..7),
    ) {
        let all = dense(&[elements]);
        let mut views = vec![all];
        for overlap in [Overlap::Refused, Overlap::Allowed] {
            let same = strides.len().min(dims.len());
            views.extend(all.strided(offset, &dims[..same], &strides[..same], overlap));
            views.extend(all.strided(offset, &dims, &strides, overlap));
        }
        for step in 0..views.len() {
            let view = views[step];
            views.extend(view.slice(start..end));
            views.extend(view.reshape(&dims));
            views.extend(view.permute(&order));
            views.extend(view.broadcast(&wider));
            views.push(view.transposed());
        }
        views.iter().for_each(|view| check(view, elements));
    }

    #[test]
    fn what_may_be_written_never_meets_itself(
        dims in prop::collection::vec(0..4usize, 1..5),
        strides in prop::collection::vec(0..12usize, 4),
    ) {
        if let Ok(layout) = strided(&dense(&[200]), 0, &dims, &strides[..dims.len()]) {
            let mut seen = places(&layout);
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), layout.shape.elements());
        }
    }
}
