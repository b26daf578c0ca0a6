use super::*;

fn kernel(symbol: &str, arch: Arch) -> Kernel {
    Kernel {
        symbol: symbol.to_owned(),
        module: "m::ops".to_owned(),
        arch,
        block: [256, 1, 1],
        min_blocks: 2,
        cluster: [2, 1, 1],
        shared_bytes: 1024,
        no_spills: true,
        programmatic: true,
        cooperative: true,
        opt_level: Some(1),
        params: vec![
            Param { bytes: 8, align: 8, kind: ParamKind::Pointer },
            Param { bytes: 128, align: 64, kind: ParamKind::TensorMap },
        ],
        resources: Some(Resources { registers: 40, notes: vec!["slow".to_owned()], ..Resources::default() }),
    }
}

fn ptx(arch: Arch, body: &str) -> String {
    format!("//\n.version 7.8\n.target {arch}\n.address_size 64\n\n{body}\n{}", "add.f32 %f1, %f2, %f3;\n".repeat(500))
}

fn example() -> (Vec<(Kernel, String)>, Vec<u8>) {
    let kernels = [("b", Arch::Sm90a), ("b", Arch::Sm80), ("a", Arch::Sm80)];
    let kernels = kernels.map(|(symbol, arch)| (kernel(symbol, arch), ptx(arch, symbol))).to_vec();
    let borrowed: Vec<_> = kernels.iter().map(|(kernel, ptx)| (kernel.clone(), ptx.as_str())).collect();
    let bytes = write("1234", &borrowed, None);
    (kernels, bytes)
}

#[test]
fn what_is_written_is_read() {
    let (mut kernels, bytes) = example();
    let archive = Archive::from_bytes(bytes).unwrap();
    assert_eq!(archive.sources(), "1234");
    kernels.sort_by(|a, b| a.0.key().cmp(&b.0.key()));
    assert_eq!(archive.kernels().len(), 3);
    for (index, (kernel, ptx)) in kernels.iter().enumerate() {
        assert_eq!(archive.kernels()[index], *kernel);
        assert_eq!(archive.ptx(index).unwrap(), *ptx);
    }
    assert!(archive.ptx(3).is_err());
    // Text without the usual head is kept as it is.
    let odd = Archive::from_bytes(write("", &[(kernel("x", Arch::Sm80), "")], None)).unwrap();
    assert_eq!(odd.ptx(0).unwrap(), "");
}

#[test]
fn what_architectures_share_is_stored_once() {
    let (kernels, bytes) = example();
    let archive = Archive::from_bytes(bytes).unwrap();
    assert_eq!(archive.places[1].offset, archive.places[2].offset);
    assert_ne!(archive.places[0].offset, archive.places[1].offset);
    let total: usize = kernels.iter().map(|(_, ptx)| ptx.len()).sum();
    assert!(archive.data.len() * 10 < total, "{} of {total}", archive.data.len());
}

#[test]
fn what_is_known_is_not_compressed_again() {
    let (mut kernels, bytes) = example();
    let old = Archive::from_bytes(bytes.clone()).unwrap();
    let borrowed = |kernels: &[(Kernel, String)]| -> Vec<u8> {
        let borrowed: Vec<_> = kernels.iter().map(|(kernel, ptx)| (kernel.clone(), ptx.as_str())).collect();
        write("1234", &borrowed, Some(&old))
    };
    assert_eq!(borrowed(&kernels), bytes);
    kernels[0].1 += "exit;\n";
    let new = Archive::from_bytes(borrowed(&kernels)).unwrap();
    assert_eq!(new.ptx(2).unwrap(), kernels[0].1);
}

#[test]
fn damage_is_an_error_wherever_it_is() {
    let (_, bytes) = example();
    let read = |bytes: Vec<u8>| {
        let archive = Archive::from_bytes(bytes)?;
        let ptx = (0..archive.kernels().len()).map(|index| archive.ptx(index));
        Ok::<_, Error>((archive.sources().to_owned(), archive.kernels().to_vec(), ptx.collect::<Result<Vec<_>, _>>()?))
    };
    let sound = read(bytes.clone()).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        // A compressed part may end in bits that mean nothing.
        let noticed = read(damaged).map_or(true, |read| read == sound);
        assert!(noticed, "byte {at} is not checked");
        assert!(read(bytes[..at].to_vec()).is_err(), "{at} bytes are enough");
    }
    let mut newer = bytes;
    newer[7] += 1;
    let error = read(newer).unwrap_err().to_string();
    assert_eq!(error, "an archive of PTX in format 6, where format 5 is understood");
    assert_eq!(read(b"GIF89a..".to_vec()).unwrap_err().to_string(), "not an archive of PTX");
    #[cfg(unix)]
    assert!(matches!(Archive::open(Path::new("/dev/zero")), Err(Error::NotAnArchive)), "a file without an end");
}
