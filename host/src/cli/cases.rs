//! The flags that pick cases, shared by the verbs that check operators.

use super::Ui;
use crate::check::verify::Filter;
use crate::check::{lines, registry};
use crate::ops::model::{CaseClass, Operator};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::sim::Finding;

#[derive(clap::Args)]
pub(super) struct CaseArgs {
    /// Operators to check [default: all, and the kernels of the lessons]
    ops: Vec<String>,
    /// Only cases of this dtype
    #[arg(long)]
    dtype: Option<DType>,
    /// Only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Only cases of this class: production, odd, tiny, empty or boundary; may be repeated
    #[arg(long = "class", value_name = "CLASS", value_parser = class)]
    classes: Vec<CaseClass>,
    /// Only this variant; `auto` for what the operator picks
    #[arg(long)]
    variant: Option<String>,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// `--lines`, shared by the verbs that tell where in a kernel something is.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct Lines {
    /// Compile the kernels again so that what the simulator says of them names lines of Rust
    #[arg(long)]
    lines: bool,
}

impl Lines {
    /// Runs `body`, in which the kernels of `ops` know their lines if that was asked for.
    pub(super) fn with<T>(
        self,
        device: &Device,
        ops: &[&'static dyn Operator],
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.lines { lines::with(device, ops, body)? } else { body() }
    }

    /// Says how to get lines, under findings that have none.
    pub(super) fn advise<'a>(findings: impl IntoIterator<Item = &'a Finding>, ui: &mut Ui) {
        if findings.into_iter().any(|finding| finding.ptx_line != 0 && finding.source.is_none()) {
            ui.line("With --lines, findings name lines of Rust.");
        }
    }
}

impl CaseArgs {
    pub(super) fn ops(&self) -> Result<Vec<&'static dyn Operator>> {
        if self.ops.is_empty() { Ok(registry::everything().collect()) } else { registry::select(&self.ops) }
    }

    pub(super) fn filter(&self, seed: u64) -> Filter {
        Filter {
            dtype: self.dtype,
            case: self.case.clone(),
            classes: self.classes.clone(),
            variant: self.variant.clone(),
            seed,
            ..Filter::default()
        }
    }
}

fn class(text: &str) -> Result<CaseClass, String> {
    let known = CaseClass::ALL.map(CaseClass::name);
    CaseClass::ALL.into_iter().find(|c| c.name() == text).ok_or_else(|| format!("one of {}", known.join(", ")))
}
