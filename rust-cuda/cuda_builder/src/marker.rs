//! The marker: how `#[kernel(...)]` tells the builder what rustc has no attribute for.
//!
//! It is an assembler comment in the body of the entry, on one line:
//! `//#kernel module=<path> arch=sm_90a block=X,Y,Z min_blocks=N cluster=X,Y,Z shared=BYTES no_spills=0|1 programmatic=0|1 cooperative=0|1 opt_level=0|1|2|3 tensormaps=I,J`.
//! A key that is left out has its default.

use serde::{Deserialize, Serialize};

use crate::Arch;

/// The start of every marker.
pub(crate) const PREFIX: &str = "//#kernel";

/// What a marker declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    pub(crate) module: String,
    /// The only architecture that it is for, if it is restricted to one.
    pub(crate) arch: Option<Arch>,
    pub(crate) block: [u32; 3],
    pub(crate) min_blocks: u32,
    pub(crate) cluster: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) no_spills: bool,
    pub(crate) programmatic: bool,
    pub(crate) cooperative: bool,
    pub(crate) opt_level: Option<u32>,
    pub(crate) tensormaps: Vec<usize>,
}

impl Marker {
    /// Reads the marker from the text of an assembler template that starts with [`PREFIX`].
    pub(crate) fn parse(template: &str) -> Result<Marker, String> {
        let line = template.split(['\n', '\\']).next().unwrap_or_default();
        let fields = line.strip_prefix(PREFIX).ok_or_else(|| format!("a marker starts with {PREFIX}"))?;
        let mut marker = Marker {
            module: String::new(),
            arch: None,
            block: [0; 3],
            min_blocks: 0,
            cluster: [1; 3],
            shared: 0,
            no_spills: false,
            programmatic: false,
            cooperative: false,
            opt_level: None,
            tensormaps: Vec::new(),
        };
        for field in fields.split_whitespace() {
            let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` is not key=value"))?;
            let bad = || format!("`{value}` is not a valid {key}");
            match key {
                "module" => marker.module = value.to_owned(),
                "arch" => marker.arch = Some(Arch::from_name(value).ok_or_else(bad)?),
                "block" => marker.block = triple(value).ok_or_else(bad)?,
                "min_blocks" => marker.min_blocks = value.parse().map_err(|_| bad())?,
                "cluster" => marker.cluster = triple(value).ok_or_else(bad)?,
                "shared" => marker.shared = value.parse().map_err(|_| bad())?,
                "no_spills" => marker.no_spills = flag(value).ok_or_else(bad)?,
                "programmatic" => marker.programmatic = flag(value).ok_or_else(bad)?,
                "cooperative" => marker.cooperative = flag(value).ok_or_else(bad)?,
                "opt_level" => marker.opt_level = Some(value.parse().ok().filter(|level| *level <= 3).ok_or_else(bad)?),
                "tensormaps" => {
                    marker.tensormaps = value
                        .split(',')
                        .filter(|index| !index.is_empty())
                        .map(str::parse)
                        .collect::<Result<_, _>>()
                        .map_err(|_| bad())?;
                }
                _ => return Err(format!("unknown key `{key}`")),
            }
        }
        let count = |extents: [u32; 3]| extents.iter().map(|&n| u64::from(n)).product::<u64>();
        let ([x, y, z], [cx, cy, cz]) = (marker.block, marker.cluster);
        if !(1..=1024).contains(&count(marker.block)) || z > 64 {
            return Err(format!(
                "a block of {x} x {y} x {z} threads: a block has 1 to 1024 threads, along z at most 64"
            ));
        }
        if !(1..=16).contains(&count(marker.cluster)) {
            return Err(format!(
                "a cluster of {cx} x {cy} x {cz} blocks: a cluster has 1 to 16 blocks, more than 8 not on every GPU"
            ));
        }
        if count(marker.block) * u64::from(marker.min_blocks) > 2048 || marker.min_blocks > 32 {
            return Err(format!(
                "min_blocks = {} of {x} x {y} x {z} threads: a multiprocessor has room for 2048 threads and 32 blocks",
                marker.min_blocks
            ));
        }
        Ok(marker)
    }

    /// LLVM's function attributes for the directives that PTX has after `.entry`.
    pub(crate) fn llvm_attributes(&self) -> String {
        let [x, y, z] = self.block;
        let mut text = format!("\"nvvm.maxntid\"=\"{x},{y},{z}\"");
        if self.min_blocks > 0 {
            text += &format!(" \"nvvm.minctasm\"=\"{}\"", self.min_blocks);
        }
        if self.cluster != [1, 1, 1] {
            let [x, y, z] = self.cluster;
            text += &format!(" \"nvvm.cluster_dim\"=\"{x},{y},{z}\"");
        }
        text
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn triple(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split(',').map(|part| part.parse().ok());
    let triple = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(triple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let marker = Marker::parse(
            "//#kernel module=k::ops arch=sm_90a block=32,4,1 min_blocks=2 cluster=2,1,1 shared=1024 no_spills=1 programmatic=1 cooperative=1 opt_level=1 tensormaps=0,3",
        )
        .unwrap();
        assert_eq!(
            marker,
            Marker {
                module: "k::ops".to_owned(),
                arch: Some(Arch::Sm90a),
                block: [32, 4, 1],
                min_blocks: 2,
                cluster: [2, 1, 1],
                shared: 1024,
                no_spills: true,
                programmatic: true,
                cooperative: true,
                opt_level: Some(1),
                tensormaps: vec![0, 3],
            }
        );
        assert_eq!(
            marker.llvm_attributes(),
            r#""nvvm.maxntid"="32,4,1" "nvvm.minctasm"="2" "nvvm.cluster_dim"="2,1,1""#
        );
    }

    #[test]
    fn missing_keys_have_defaults() {
        let marker = Marker::parse("//#kernel block=128,1,1 tensormaps=").unwrap();
        assert_eq!((marker.arch, marker.min_blocks, marker.shared), (None, 0, 0));
        assert_eq!(marker.cluster, [1, 1, 1]);
        assert!(
            !marker.no_spills
                && !marker.programmatic
                && !marker.cooperative
                && marker.opt_level.is_none()
                && marker.tensormaps.is_empty()
        );
        assert_eq!(marker.llvm_attributes(), r#""nvvm.maxntid"="128,1,1""#);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("//#kernel", "1 to 1024"),
            ("//#kernel block=64,32,1", "1 to 1024"),
            ("//#kernel arch=sm_1 block=1,1,1", "`sm_1` is not a valid arch"),
            ("//#kernel block=64", "`64` is not a valid block"),
            ("//#kernel block=1,1,1 colour=red", "unknown key `colour`"),
            ("//#kernel block=1,1,128", "1 x 1 x 128 threads: a block has 1 to 1024 threads, along z at most 64"),
            ("//#kernel block=1,1,1 cluster=0,1,1", "1 to 16 blocks"),
            ("//#kernel block=1,1,1 cluster=8,4,1", "8 x 4 x 1 blocks"),
            ("//#kernel block=1024,1,1 min_blocks=3", "min_blocks = 3 of 1024 x 1 x 1 threads"),
            ("//#kernel block=32,1,1 min_blocks=33", "32 blocks"),
            ("//#kernel block=1,1,1 programmatic=2", "`2` is not a valid programmatic"),
            ("//#kernel block=1,1,1 opt_level=4", "`4` is not a valid opt_level"),
            ("//#kernel block=1,1,1 nonsense", "not key=value"),
        ] {
            let error = Marker::parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
