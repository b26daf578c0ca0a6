//! `cargo xtask compare`: our bench rows beside those of other libraries.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What `warpsmith bench --out` wrote
    ours: PathBuf,
    /// The others' rows: {"device", "rows": [{"op", "case", "peer", "ms", …}]}
    peers: PathBuf,
    /// Only operators whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Report<R> {
    device: String,
    rows: Vec<R>,
}

#[derive(Clone, Deserialize)]
struct Ours {
    op: String,
    case: String,
    variant: String,
    ms: f64,
}

#[derive(Clone, Deserialize)]
struct Peer {
    op: String,
    case: String,
    peer: String,
    ms: f64,
}

/// One of our rows beside one of theirs.
#[derive(Debug, PartialEq, Serialize)]
struct Pair {
    op: String,
    case: String,
    variant: String,
    ours_ms: f64,
    peer: String,
    peer_ms: f64,
    /// Our time over theirs: below 1 we are faster.
    ratio: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let ours: Report<Ours> = read(&options.ours)?;
    let peers: Report<Peer> = read(&options.peers)?;
    let mut pairs = join(&ours.rows, &peers.rows);
    if let Some(text) = &options.only {
        pairs.retain(|p| p.op.contains(text.as_str()));
    }
    if ours.device != peers.device {
        eprintln!("warning: different devices, so the ratios mean little: {} and {}", ours.device, peers.device);
    }
    if options.json {
        let document = serde_json::json!({ "device": ours.device, "peers_device": peers.device, "pairs": pairs });
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["operator", "case", "variant", "ms", "peer", "ms", "ours/peer"]);
    for p in &pairs {
        let (ours, peer, ratio) = (format!("{:.4}", p.ours_ms), format!("{:.4}", p.peer_ms), format!("{:.3}", p.ratio));
        table.add_row([&p.op, &p.case, &p.variant, &ours, &p.peer, &peer, &ratio]);
    }
    println!("{table}");
    let alone = ours.rows.iter().filter(|o| !peers.rows.iter().any(|p| matches(o, p))).count();
    println!("{} pairs; {alone} of our rows have no peer", pairs.len());
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a bench report", path.display()))
}

fn matches(ours: &Ours, peer: &Peer) -> bool {
    ours.op == peer.op && ours.case == peer.case
}

fn join(ours: &[Ours], peers: &[Peer]) -> Vec<Pair> {
    let pair = |o: &Ours, p: &Peer| Pair {
        op: o.op.clone(),
        case: o.case.clone(),
        variant: o.variant.clone(),
        ours_ms: o.ms,
        peer: p.peer.clone(),
        peer_ms: p.ms,
        ratio: o.ms / p.ms,
    };
    ours.iter().flat_map(|o| peers.iter().filter(|p| matches(o, p)).map(move |p| pair(o, p))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_join_by_operator_and_case_in_our_order() {
        let ours = |case: &str, variant: &str, ms| Ours {
            op: "gemm.bf16".into(),
            case: case.into(),
            variant: variant.into(),
            ms,
        };
        let peer =
            |op: &str, case: &str, peer: &str, ms| Peer { op: op.into(), case: case.into(), peer: peer.into(), ms };
        let peers = [
            peer("gemm.bf16", "a", "cublas", 2.0),
            peer("gemm.f16", "a", "cublas", 9.0),
            peer("gemm.bf16", "a", "torch", 4.0),
            peer("gemm.bf16", "b", "cublas", 1.0),
        ];
        let pairs = join(&[ours("b", "auto", 3.0), ours("a", "auto", 1.0), ours("c", "auto", 1.0)], &peers);
        let ratios: Vec<_> = pairs.iter().map(|p| (p.case.as_str(), p.peer.as_str(), p.ratio)).collect();
        assert_eq!(ratios, [("b", "cublas", 3.0), ("a", "cublas", 0.5), ("a", "torch", 0.25)]);
    }
}
