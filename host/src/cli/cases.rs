//! The flags that pick cases, shared by the verbs that check operators.

use crate::check::registry;
use crate::check::verify::Filter;
use crate::ops::model::{CaseClass, Operator};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

#[derive(clap::Args)]
pub(super) struct CaseArgs {
    /// Operators to check [default: all]
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
}

impl CaseArgs {
    pub(super) fn ops(&self) -> Result<Vec<&'static dyn Operator>> {
        registry::select(&self.ops)
    }

    pub(super) fn filter(&self, seed: u64) -> Filter {
        Filter {
            dtype: self.dtype,
            case: self.case.clone(),
            classes: self.classes.clone(),
            variant: self.variant.clone(),
            seed,
            repeat: false,
        }
    }
}

fn class(text: &str) -> Result<CaseClass, String> {
    let known = CaseClass::ALL.map(CaseClass::name);
    CaseClass::ALL.into_iter().find(|c| c.name() == text).ok_or_else(|| format!("one of {}", known.join(", ")))
}
