//! Control flow: basic blocks and their post-dominators.

use crate::ir::{Inst, Op};

/// Basic blocks of a function: `start[b]..start[b + 1]`, with successors. The last node is the exit.
pub struct Blocks {
    pub start: Vec<usize>,
    pub succ: Vec<Vec<usize>>,
}

impl Blocks {
    pub fn count(&self) -> usize {
        self.start.len() - 1
    }
}

pub fn blocks(insts: &[Inst], tables: &[Vec<u32>]) -> Blocks {
    let n = insts.len();
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    leader[n] = true;
    for (k, i) in insts.iter().enumerate() {
        match &i.op {
            Op::Bra { target, .. } => {
                leader[*target as usize] = true;
                leader[k + 1] = true;
            }
            Op::BrxIdx { table, .. } => {
                tables[*table as usize].iter().for_each(|t| leader[*t as usize] = true);
                leader[k + 1] = true;
            }
            Op::Exit | Op::Ret | Op::Trap => leader[k + 1] = true,
            _ => {}
        }
    }
    let start: Vec<usize> = (0..=n).filter(|k| leader[*k]).collect();
    let mut of = vec![0; n + 1];
    for (b, w) in start.windows(2).enumerate() {
        of[w[0]..w[1]].fill(b);
    }
    let exit = start.len() - 1;
    of[n] = exit;
    let mut succ = vec![vec![]; exit + 1];
    for b in 0..exit {
        let last = start[b + 1] - 1;
        let i = &insts[last];
        let falls = i.guard.is_some();
        let mut s = match &i.op {
            Op::Bra { target, .. } => vec![of[*target as usize]],
            Op::BrxIdx { table, .. } => tables[*table as usize].iter().map(|t| of[*t as usize]).collect(),
            Op::Exit | Op::Ret | Op::Trap => vec![exit],
            _ => vec![],
        };
        if falls || s.is_empty() {
            s.push(of[last + 1]);
        }
        s.sort_unstable();
        s.dedup();
        succ[b] = s;
    }
    Blocks { start, succ }
}

/// Cooper, Harvey and Kennedy's algorithm on the reversed graph, whose root is the last node.
pub fn post_dominators(succ: &[Vec<usize>]) -> Vec<Option<usize>> {
    let exit = succ.len() - 1;
    let mut pred = vec![vec![]; exit + 1];
    for (b, ss) in succ.iter().enumerate() {
        for s in ss {
            pred[*s].push(b);
        }
    }
    // Post-order of the reversed graph from the exit, without recursion.
    let mut order = vec![];
    let mut number = vec![usize::MAX; exit + 1];
    let mut seen = vec![false; exit + 1];
    let mut stack = vec![(exit, 0usize)];
    seen[exit] = true;
    while let Some((b, k)) = stack.pop() {
        if let Some(&p) = pred[b].get(k) {
            stack.push((b, k + 1));
            if !seen[p] {
                seen[p] = true;
                stack.push((p, 0));
            }
        } else {
            number[b] = order.len();
            order.push(b);
        }
    }
    let mut idom: Vec<Option<usize>> = vec![None; exit + 1];
    idom[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev() {
            if b == exit {
                continue;
            }
            let mut new: Option<usize> = None;
            for &s in &succ[b] {
                if idom[s].is_none() {
                    continue;
                }
                new = Some(match new {
                    None => s,
                    Some(mut x) => {
                        let mut y = s;
                        while x != y {
                            while number[x] < number[y] {
                                x = idom[x].unwrap_or(exit);
                            }
                            while number[y] < number[x] {
                                y = idom[y].unwrap_or(exit);
                            }
                        }
                        x
                    }
                });
            }
            if new.is_some() && idom[b] != new {
                idom[b] = new;
                changed = true;
            }
        }
    }
    idom
}
