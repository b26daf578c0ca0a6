//! Looking operators and cases up.

use super::lessons::experiments::EXPERIMENTS;
use crate::ops::model::{Case, Operator};
pub use crate::ops::registry::OPERATORS;
use crate::runtime::error::{Error, Result};

/// The operator or the lesson's kernel called `name`, by its own name or by that of its bench rows.
pub fn find(name: &str) -> Result<&'static dyn Operator> {
    everything().find(|op| op.info().name == name || op.info().bench_name == name).ok_or_else(|| {
        Error::UnknownOperator {
            name: name.to_owned(),
            nearest: nearest(name, OPERATORS.iter().map(|op| op.info().name)),
        }
    })
}

/// The operators, and the kernels of the lessons after them: all that can be checked.
pub fn everything() -> impl Iterator<Item = &'static dyn Operator> {
    OPERATORS.iter().chain(EXPERIMENTS).copied()
}

/// The operators of those names, each once, or all of them if none is named.
pub fn select(names: &[String]) -> Result<Vec<&'static dyn Operator>> {
    if names.is_empty() {
        return Ok(OPERATORS.to_vec());
    }
    let mut ops: Vec<&'static dyn Operator> = Vec::new();
    for name in names {
        let op = find(name)?;
        if ops.iter().all(|other| other.info().name != op.info().name) {
            ops.push(op);
        }
    }
    Ok(ops)
}

/// The cases of `op` whose names contain `text`. An error naming the closest if there are none.
pub fn cases_matching(op: &dyn Operator, text: &str) -> Result<Vec<Case>> {
    let (found, others): (Vec<_>, Vec<_>) = op.cases().into_iter().partition(|c| c.name.contains(text));
    if found.is_empty() {
        return Err(Error::UnknownCase {
            op: op.info().name.to_owned(),
            name: text.to_owned(),
            nearest: nearest(text, others.iter().map(|c| c.name.as_str())),
        });
    }
    Ok(found)
}

/// At most three of `known`, closest first, that are near enough to be what `name` was meant to be.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Names are written in small letters here, and not everywhere.
    let name = name.to_lowercase();
    let mut ranked: Vec<_> =
        known.map(|k| (strsim::jaro_winkler(&name, k), k)).filter(|(score, _)| *score > 0.7).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.into_iter().take(3).map(|(_, k)| k.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ops::model::{self, CaseClass};

    #[test]
    fn names_are_unique() {
        let names: Vec<_> = OPERATORS.iter().map(|op| op.info().name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_misspelt_name_gets_suggestions() {
        let name = OPERATORS[0].info().name;
        let err = find(&name[..name.len() - 1]).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(err.contains("did you mean") && err.contains(name), "{err}");
        let large = find("RMSNorm").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(large.starts_with("no operator is called `RMSNorm`; did you mean rms_norm"), "{large}");
        assert!(!find("zzzz").err().map(|e| e.to_string()).unwrap_or_default().contains("did you mean"));
    }

    #[test]
    fn what_is_named_twice_is_selected_once() {
        let names = |names: &[&str]| -> Vec<_> {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&names).unwrap().iter().map(|op| op.info().name).collect()
        };
        assert_eq!(names(&["relu", "gelu", "relu"]), ["relu", "gelu"]);
        assert_eq!(names(&["ew.relu", "relu"]), ["relu"], "under either name");
        assert_eq!(names(&[]).len(), OPERATORS.len());
    }

    #[test]
    fn every_case_is_well_formed() {
        for op in OPERATORS.iter().copied() {
            let info = op.info();
            let mut seen = HashSet::new();
            for case in op.cases() {
                let at = format!("{} {}", info.name, case.name);
                assert!(seen.insert((case.name.clone(), case.dtype)), "{at}: twice");
                assert!(info.dtypes.contains(&case.dtype), "{at}: dtype not offered");
                case.params.check().unwrap();
                let specs = op.inputs(&case).unwrap();
                let present = info.inputs().filter(|arg| case.has(arg.name));
                assert!(info.inputs().all(|arg| arg.optional || case.has(arg.name)), "{at}: lacks what is required");
                assert_eq!(
                    specs.iter().map(|s| s.name).collect::<Vec<_>>(),
                    present.map(|a| a.name).collect::<Vec<_>>(),
                    "{at}"
                );
                assert!(
                    case.named_tensors().all(|name| info.args.iter().any(|arg| arg.name == name)),
                    "{at}: unknown tensor"
                );
                assert!(case.variants.iter().all(|name| info.variant(name).is_ok()), "{at}: unknown variant");
                let metas: Vec<_> = specs.iter().map(|s| s.meta()).collect();
                let outputs = model::outputs(op, &metas, &case.params).unwrap();
                let names: Vec<_> = outputs.iter().map(|output| output.name.as_str()).collect();
                let wanted = info.outputs().filter(|arg| !arg.optional || names.contains(&arg.name));
                assert_eq!(names, wanted.map(|arg| arg.name).collect::<Vec<_>>(), "{at}");
                let elements: usize = outputs.iter().map(|o| o.elements().unwrap()).sum();
                assert_eq!(case.dims.iter().any(|(_, n)| n == 0), case.class == CaseClass::Empty, "{at}");
                for name in names {
                    let tolerance = op.tolerance(&case, name).unwrap();
                    assert!(tolerance.abs >= 0.0 && tolerance.rel >= 0.0 && !tolerance.why.is_empty(), "{at}: {name}");
                }
                let cost = op.cost(&case).unwrap();
                assert!(elements == 0 || cost.bytes > 0 || case.class == CaseClass::Empty, "{at}: no traffic");
            }
            // Of nothing there is no maximum: such operators refuse empty tensors.
            for class in CaseClass::ALL.into_iter().filter(|class| *class != CaseClass::Empty) {
                assert!(op.cases().iter().any(|c| c.class == class), "{}: no {} case", info.name, class.name());
            }
            assert!(info.instances().next().is_some(), "{}: no kernels", info.name);
        }
    }

    #[test]
    fn padded_tensors_lie_differently() {
        for op in OPERATORS.iter().filter(|op| op.info().args.len() > 1) {
            let differs = |case: &Case| {
                let args = op.info().args;
                let pads: HashSet<_> = args.iter().map(|arg| case.arrangement(arg.name).row_pad).collect();
                pads.len() > 1
            };
            assert!(op.cases().iter().any(differs), "{}: strides of two tensors could be swapped", op.info().name);
        }
    }
}
