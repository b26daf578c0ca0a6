//! `st.async` and `red.async`: store a register's value to shared memory of the cluster, and complete the bytes on an mbarrier there.

use super::bulk::{BulkOp, Far, Target};
use super::cx::Cx;
use super::mem_ops::lanes;
use super::state::*;
use super::{mbarrier, shared, tma};
use crate::ir::*;
use crate::report::{Fault, Kind};

pub fn run(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    info: StAsync,
    m: u32,
) -> Result<(), Fault> {
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let each = usize::from(info.bytes);
    let total = each * list.len();
    let mut addresses = [0; 32];
    for l in lanes(m) {
        addresses[l] = mbarrier::smem_address(cx, w, s, i.a, l)?;
    }
    if let Some(mx) = &mut cx.metrics {
        mx.shared(s.func, s.pc, &addresses, m, total as u32, true);
    }
    for l in lanes(m) {
        let (block, off) = shared::locate(cx, cl, w, s, l, addresses[l], total, total)?;
        let bar = mbarrier::place(cx, cl, w, s, i.b, l)?;
        if bar.0 as usize != block {
            let message = format!("the data goes to rank {block} and the mbarrier is in rank {}", bar.0);
            return cx.fault(w, s, l as u32, Kind::BarrierMisuse, message, Some(addresses[l]));
        }
        let mut data = vec![];
        for r in list {
            let v = if r.class() == Class::Q { w.regs.q(*r)[l] } else { u64::from(w.regs.r(*r)[l]) };
            data.extend_from_slice(&v.to_le_bytes()[..each]);
        }
        let op = BulkOp {
            lane: l,
            group: u32::MAX,
            far: Far::Value(data),
            targets: vec![Target { block: block as u32, off: off as u32, bar }],
            load: true,
            reduce: info.reduce,
            data: None,
            settled: false,
            from: (s.func, s.pc),
        };
        tma::issue(cx, cl, w, s, l, op)?;
    }
    Ok(())
}
