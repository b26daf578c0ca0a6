//! From the simulator's findings to ours.

use crate::runtime::error::Finding;

impl Finding {
    fn new(finding: &warpsim::Finding, fatal: bool) -> Self {
        Self {
            kernel: finding.kernel.clone(),
            kind: finding.kind.name(),
            message: finding.message.clone(),
            fatal,
            ptx_line: finding.place.ptx_line,
            instruction: finding.place.instruction.clone(),
            source: finding.place.sources(),
            block: finding.block,
            thread: finding.thread,
            address: finding.address,
            earlier: finding.earlier.as_ref().map(|e| {
                let what = if e.write { "write" } else { "read" };
                format!("{what} by {} at {}", e.who, e.place)
            }),
            count: finding.count,
        }
    }

    pub(super) fn all(findings: &[warpsim::Finding]) -> Vec<Self> {
        findings.iter().map(|finding| Self::new(finding, false)).collect()
    }

    pub(super) fn of_fault(fault: &warpsim::Fault) -> Vec<Self> {
        let mut all = vec![Self::new(&fault.finding, true)];
        all.extend(Self::all(&fault.also));
        all
    }
}
