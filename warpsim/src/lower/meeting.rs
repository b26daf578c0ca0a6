//! Where the two paths of a branch reconverge if some of them end separately.
//!
//! [`joins`](super::joins) defines this for any number of paths. Of two paths, one is often short, and the nodes that it cannot reach need
//! not be visited; otherwise a kernel with thousands of early returns would be traversed once for each of them.

use rustc_hash::FxHashSet;

use super::cfg;

/// A graph whose last node is the exit.
pub struct Meeting<'a> {
    succ: &'a [Vec<usize>],
    /// The predecessors of each node, in ascending order.
    pred: Vec<Vec<usize>>,
    /// Whether a back edge leads over a node, or to it.
    back: Vec<bool>,
}

/// The nodes that one path has reached.
struct Way {
    first: usize,
    seen: FxHashSet<usize>,
    work: Vec<usize>,
}

impl Way {
    /// Visits up to `nodes` more nodes.
    fn walk(&mut self, succ: &[Vec<usize>], branch: usize, mut nodes: usize) {
        while let Some(b) = self.work.pop_if(|_| nodes > 0) {
            if b != branch && b + 1 != succ.len() && self.seen.insert(b) {
                nodes -= 1;
                self.work.extend(&succ[b]);
            }
        }
    }
}

impl<'a> Meeting<'a> {
    pub fn new(succ: &'a [Vec<usize>]) -> Self {
        let mut pred = vec![vec![]; succ.len()];
        let mut depth = vec![0i32; succ.len() + 1];
        for (b, ss) in succ.iter().enumerate() {
            for &s in ss {
                pred[s].push(b);
                if s <= b {
                    depth[s] += 1;
                    depth[b + 1] -= 1;
                }
            }
        }
        let mut open = 0;
        let back = depth[..succ.len()].iter().map(|d| {
            open += d;
            open > 0
        });
        Self { succ, back: back.collect(), pred }
    }

    /// The first node that all paths from a branch through `a` and `b` pass through, considering only nodes that both can reach.
    pub fn of(&self, branch: usize, [a, b]: [usize; 2]) -> Option<usize> {
        let way = |first| Way { first, seen: FxHashSet::default(), work: vec![first] };
        let (mut short, mut long) = (way(a), way(b));
        while !short.work.is_empty() {
            short.walk(self.succ, branch, 8);
            std::mem::swap(&mut short, &mut long);
            if short.work.is_empty() {
                break;
            }
        }
        let entered = self.entered(branch, &short, &mut long);
        // The nodes of the short path that the long one reaches.
        let mut common = Way { first: 0, seen: FxHashSet::default(), work: entered.iter().copied().collect() };
        common.walk(self.succ, branch, usize::MAX);
        if common.seen.is_empty() {
            return None;
        }
        let mut nodes: Vec<usize> = common.seen.iter().copied().collect();
        nodes.sort_unstable();
        let mut starts = entered;
        starts.insert(short.first);
        let alone = short.seen.iter().filter(|n| !common.seen.contains(n));
        starts.extend(alone.flat_map(|n| &self.succ[*n]));
        let number = |n: usize| nodes.binary_search(&n).map_or(nodes.len() + 1, |k| k + 1);
        let mut graph = vec![nodes.iter().filter(|n| starts.contains(n)).map(|n| number(*n)).collect::<Vec<_>>()];
        graph.extend(nodes.iter().map(|n| self.succ[*n].iter().map(|s| number(*s)).collect()));
        graph.push(vec![]);
        cfg::post_dominators(&graph)[0].filter(|p| *p <= nodes.len()).map(|p| nodes[p - 1])
    }

    /// The nodes of the short path where the long one enters it.
    fn entered(&self, branch: usize, short: &Way, long: &mut Way) -> FxHashSet<usize> {
        // The graphs in tests are small, and should not be visited completely by the first step.
        let look = if cfg!(test) { 1 } else { 64 + 4 * short.seen.len() };
        long.walk(self.succ, branch, look);
        loop {
            let outside = long.seen.iter().filter(|n| !short.seen.contains(n));
            let mut entered: FxHashSet<usize> = outside.flat_map(|n| &self.succ[*n]).copied().collect();
            entered.insert(long.first);
            entered.retain(|n| short.seen.contains(n));
            let settled = |n: &usize| entered.contains(n) || self.closed(*n, branch, short, long);
            if long.work.is_empty() || short.seen.iter().all(settled) {
                return entered;
            }
            long.walk(self.succ, branch, usize::MAX);
        }
    }

    /// Whether the long path cannot enter the short one at a node from outside. Thousands of branches may lead to a node: the ones before the
    /// branch, to which no back edge leads, are not examined.
    fn closed(&self, node: usize, branch: usize, short: &Way, long: &Way) -> bool {
        let pred = &self.pred[node];
        let forward = branch < long.first && !self.back[branch];
        let from = if forward { pred.partition_point(|p| *p <= branch) } else { 0 };
        pred[from..].iter().all(|p| *p == branch || short.seen.contains(p))
    }
}

#[cfg(test)]
mod tests {
    use super::super::joins::beyond_exits;
    use super::*;

    /// On graphs of all shapes, the result equals that of an exhaustive search.
    #[test]
    fn short_ways_meet_where_all_do() {
        let mut seed = 1u64;
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % n
        };
        let mut met = 0;
        for round in 0..1500 {
            let exit = 3 + random(if round % 50 == 0 { 120 } else { 12 });
            let mut succ: Vec<Vec<usize>> = (0..exit)
                .map(|b| {
                    let mut ss = vec![b + 1];
                    match random(8) {
                        0 => ss.push(random(exit + 1)),
                        1..4 => ss.push(b + 1 + random(exit - b)),
                        4 => ss.push(exit),
                        5 => ss = vec![exit - random(3.min(exit))],
                        _ => {}
                    }
                    ss.sort_unstable();
                    ss.dedup();
                    ss
                })
                .collect();
            succ.push(vec![]);
            let meeting = Meeting::new(&succ);
            for (branch, ss) in succ.iter().enumerate().filter(|(_, ss)| ss.len() == 2) {
                let all = beyond_exits(&succ, branch);
                met += usize::from(all.is_some());
                assert_eq!(meeting.of(branch, [ss[0], ss[1]]), all, "branch {branch} of {succ:?}");
            }
        }
        assert!(met > 500, "{met}");
    }
}
