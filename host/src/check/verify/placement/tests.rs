use super::*;

const FIRST: Poison = Poison::First;

fn place(dtype: DType, shape: &[usize], arrangement: Arrangement) -> Placement {
    Placement::new(&TensorMeta::new("y", dtype, shape), arrangement)
}

fn padded() -> Placement {
    place(DType::F16, &[2, 3, 5], Arrangement::DENSE.offset(1).row_pad(2))
}

#[test]
fn poison_is_nan_of_two_kinds() {
    for poison in [Poison::First, Poison::Second] {
        let f = |d: DType| u32::from_le_bytes(poison.bytes(d).try_into().unwrap());
        assert!(f32::from_bits(f(DType::F32)).is_nan());
        let h = |d: DType| u16::from_le_bytes(poison.bytes(d).try_into().unwrap());
        assert!(half::f16::from_bits(h(DType::F16)).is_nan() && half::bf16::from_bits(h(DType::BF16)).is_nan());
    }
    for dtype in DType::ALL {
        assert_ne!(Poison::First.bytes(*dtype), Poison::Second.bytes(*dtype));
    }
}

#[test]
fn strides_and_positions_agree() {
    let p = padded();
    assert_eq!(p.strides(), [21, 7, 1]);
    assert_eq!(p.position(0), p.start());
    assert_eq!(p.position(14), p.start() + 2 * 7 + 4);
    assert_eq!(p.position(15), p.start() + 21);
    assert_eq!(place(DType::F16, &[0, 5], Arrangement::DENSE).elements(), 2 * GUARD);
    assert_eq!(place(DType::F16, &[7], Arrangement::DENSE.row_pad(9)).elements(), 2 * GUARD + 7);
    assert_eq!(place(DType::F16, &[], Arrangement::DENSE).elements(), 2 * GUARD + 1);
}

#[test]
fn permuted_and_broadcast_tensors_have_their_strides() {
    let permuted = place(DType::I32, &[2, 3, 4], Arrangement::DENSE.order(&[1, 0, 2]).row_pad(1));
    assert_eq!(permuted.strides(), [5, 10, 1]);
    let transposed = place(DType::I32, &[2, 3], Arrangement::DENSE.order(&[1, 0]));
    assert_eq!((transposed.strides(), transposed.position(1)), (&[1, 2][..], transposed.start() + 2));
    let values = HostTensor::from_slice([2, 3], &[1i32, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(transposed.effective(values.clone()).unwrap(), values);
    let image = HostTensor::new(DType::I32, [transposed.elements()], transposed.filled(values.bytes(), FIRST)).unwrap();
    assert_eq!(image.range_f64(GUARD..GUARD + 6).unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);

    let shared = place(DType::I32, &[2, 3], Arrangement::DENSE.broadcast(&[0]));
    assert_eq!((shared.strides(), shared.elements()), (&[0, 1][..], 2 * GUARD + 3));
    assert_eq!(shared.effective(values).unwrap().to_f64(), [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]);

    for shape in [[0, 3], [3, 0], [0, 0]] {
        for broadcast in [&[0][..], &[1], &[0, 1]] {
            let empty = place(DType::I32, &shape, Arrangement::DENSE.row_pad(1).broadcast(broadcast));
            let nothing = HostTensor::new(DType::I32, shape, Vec::new()).unwrap();
            assert_eq!(empty.elements(), 2 * GUARD, "{shape:?} along {broadcast:?}");
            assert!(empty.dense().is_none_or(|places| places.is_empty()), "{shape:?} along {broadcast:?}");
            assert_eq!(empty.effective(nothing.clone()).unwrap(), nothing);
            assert_eq!(empty.damage(&empty.filled(&[], FIRST), FIRST), None);
        }
    }
}

#[test]
fn an_unwritten_output_is_found() {
    let p = padded();
    let mut bytes = p.filled(&[0; 60], FIRST);
    assert_eq!((p.unwritten(&bytes, None), p.damage(&bytes, FIRST)), (None, None));
    let at = p.position(17) * 2;
    bytes[at..at + 2].copy_from_slice(FIRST.bytes(DType::F16));
    assert_eq!(p.unwritten(&bytes, None), Some(17));
    assert_eq!(p.unwritten(&p.poisoned(FIRST), None), Some(0));
}

#[test]
fn an_unwritten_integer_shows_in_two_runs() {
    for dtype in [DType::I8, DType::I32, DType::I64] {
        let p = place(dtype, &[3, 5], Arrangement::DENSE.row_pad(2));
        let values = vec![0; 15 * dtype.size()];
        let (mut first, mut second) = (p.filled(&values, Poison::First), p.filled(&values, Poison::Second));
        assert_eq!(p.unwritten(&first, Some(&second)), None);
        let at = p.position(7) * dtype.size();
        first[at..at + dtype.size()].copy_from_slice(Poison::First.bytes(dtype));
        // The kernel may have written just that value.
        assert_eq!(p.unwritten(&first, Some(&second)), None);
        second[at..at + dtype.size()].copy_from_slice(Poison::Second.bytes(dtype));
        assert_eq!(p.unwritten(&first, Some(&second)), Some(7));
    }
}

#[test]
fn runs_over_different_poison_are_compared_inside_the_tensor() {
    let p = padded();
    let (first, mut second) = (p.filled(&[7; 60], Poison::First), p.filled(&[7; 60], Poison::Second));
    assert!(p.agree(&first, &second) && first != second);
    second[p.position(29) * 2] ^= 1;
    assert!(!p.agree(&first, &second));
}

#[test]
fn tensors_of_many_blocks_are_filled_and_searched() {
    let n = BLOCK / 2 * 3 + 5;
    let values: Vec<u8> = (0..2 * n).map(|i| (i % 101) as u8).collect();
    let dense = place(DType::F16, &[n], Arrangement::DENSE.offset(3));
    for p in [dense, place(DType::F16, &[n / 7, 7], Arrangement::DENSE.offset(1).row_pad(2))] {
        let values = &values[..p.shape().iter().product::<usize>() * 2];
        let mut bytes = p.filled(values, FIRST);
        for i in (0..values.len() / 2).step_by(997) {
            assert_eq!(bytes[p.position(i) * 2..][..2], values[2 * i..][..2], "element {i}");
        }
        assert_eq!((p.unwritten(&bytes, None), p.damage(&bytes, FIRST)), (None, None));
        let last = values.len() / 2 - 1;
        bytes[p.position(last) * 2..][..2].copy_from_slice(FIRST.bytes(DType::F16));
        assert_eq!(p.unwritten(&bytes, None), Some(last));
    }
}

#[test]
fn a_write_outside_the_tensor_is_found() {
    let p = padded();
    for (element, from_start) in [
        (p.start() - 1, -1),
        (0, -(p.start() as isize)),
        (p.start() + 5, 5),
        (p.start() + 42, 42),
        (p.elements() - 1, 42 + GUARD as isize - 1),
    ] {
        let mut bytes = p.filled(&[0; 60], FIRST);
        bytes[element * 2] ^= 1;
        assert_eq!(p.damage(&bytes, FIRST), Some(from_start), "element {element}");
    }
}
