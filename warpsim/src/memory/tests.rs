use super::*;

#[test]
fn too_much_is_refused_and_the_rest_goes_on() {
    let mut memory = Memory::default();
    for bytes in [u64::MAX, 1 << 60, 1 << 46] {
        assert_eq!(memory.alloc(bytes, "x").map_err(|e| e.bytes >= bytes / 64), Err(true), "{bytes}");
    }
    let a = memory.alloc(16, "a").unwrap();
    assert_eq!(memory.write(a, &[1; 16]), Ok(()));
}

#[test]
fn fills_and_copies_by_pieces() {
    let mut memory = Memory::default();
    let n = 3 * PIECE + 6;
    let (a, b) = (memory.alloc(n as u64, "a").unwrap(), memory.alloc(n as u64, "b").unwrap());
    memory.fill(a, &[1, 2, 3], n as u64 / 3).unwrap();
    memory.copy(b, a, n as u64).unwrap();
    let mut out = vec![0; n];
    memory.read(b, &mut out).unwrap();
    assert!(out.iter().enumerate().all(|(k, v)| *v == (k % 3) as u8 + 1));
    // From any byte to any byte.
    for (from, to) in (0..9).flat_map(|from| (from..20).map(move |to| (from, to))) {
        let mut part = vec![0; to - from];
        memory.read(b + from as u64, &mut part).unwrap();
        assert_eq!(part, out[from..to]);
    }
    assert_eq!(memory.fill(a, &[1, 2], u64::MAX), Err(AccessError::OutOfBounds));
    assert_eq!(memory.copy(b, a, n as u64 + 1), Err(AccessError::OutOfBounds));
    assert_eq!(memory.fill(a, &[], 5), Ok(()));
    let word = memory.alloc(64, "word").unwrap();
    assert_eq!(memory.write(word + 64, &[]), Ok(()));
    // Zeroes go over what was there.
    memory.fill(b, &[0], n as u64).unwrap();
    memory.read(b, &mut out).unwrap();
    assert!(out.iter().all(|v| *v == 0));
}

#[test]
fn of_many_freed_allocations_the_last_are_known() {
    let mut memory = Memory::default();
    let kept = memory.alloc(8, "kept").unwrap();
    let all: Vec<u64> = (0..3 * REMEMBERED).map(|_| memory.alloc(8, "x").unwrap()).collect();
    all.iter().for_each(|a| memory.free(*a).unwrap());
    assert!(memory.count() < 2 * REMEMBERED + 1);
    assert_eq!(memory.find(kept, 8), Ok(0));
    assert_eq!(memory.find(all[all.len() - 1], 8), Err(AccessError::Freed));
    assert_eq!(memory.find(all[0], 8), Err(AccessError::OutOfBounds));
}
