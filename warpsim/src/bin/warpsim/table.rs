//! Prints the metrics.

use warpsim::Metrics;

pub(crate) fn print(m: &Metrics) {
    println!("\nwhat was measured (names of Nsight Compute; instructions are PTX, not SASS)");
    for (name, v) in m.rows() {
        if v.fract() == 0.0 { println!("  {name:<74} {v:>16.0}") } else { println!("  {name:<74} {v:>16.2}") }
    }
    let (high, low) = m.arithmetic_intensity();
    println!("  arithmetic intensity: {high:.2} FLOP/byte on unique bytes, {low:.2} on sectors");
    if let Some(o) = &m.occupancy {
        print!("  occupancy on {} ({} multiprocessors): ", o.device.name, o.device.multiprocessors);
        match o.blocks_per_sm {
            0 => println!("a block needs more than a multiprocessor's {}", o.limiter.name()),
            n => println!(
                "{n} blocks, {} of {} warps a multiprocessor, limited by {}; {:.2} waves, {:.0}% of the last one empty",
                o.warps_per_sm,
                o.device.warps,
                o.limiter.name(),
                o.waves,
                100.0 * o.tail
            ),
        }
    }
    println!("  registers live at once in the PTX: {}", m.register_pressure);
    let mix: Vec<String> = m
        .mix
        .iter()
        .take(12)
        .map(|(k, n)| format!("{k} {:.1}%", 100.0 * *n as f64 / m.instructions.max(1) as f64))
        .collect();
    println!("  mix: {}", mix.join(", "));
    println!("\nhottest lines");
    for l in m.lines.iter().take(10) {
        println!("  {:>12} × {:>4.1} threads  {}", l.executed, l.threads as f64 / l.executed as f64, l.place);
    }
    let mut advice = vec![];
    for l in &m.lines {
        if l.shared.units > l.shared.ideal {
            advice.push((
                l.shared.units - l.shared.ideal,
                format!(
                    "{}: {:.1} wavefronts a request where {:.1} would do: bank conflicts; pad or swizzle the tile",
                    l.place,
                    l.shared.per_request(),
                    l.shared.ideal as f64 / l.shared.requests as f64
                ),
            ));
        }
        if l.global.units > l.global.ideal * 3 / 2 {
            advice.push((l.global.units - l.global.ideal, format!("{}: {:.1} sectors a request where {:.1} would do: neighbouring threads should touch neighbouring addresses", l.place, l.global.per_request(), l.global.ideal as f64 / l.global.requests as f64)));
        }
        if l.divergent * 4 > l.branches {
            advice.push((
                l.divergent,
                format!("{}: {:.0}% of warps diverge here", l.place, 100.0 * l.divergent as f64 / l.branches as f64),
            ));
        }
    }
    advice.sort_by_key(|a| std::cmp::Reverse(a.0));
    if !advice.is_empty() {
        println!("\nwhat to look at");
        advice.iter().take(8).for_each(|a| println!("  {}", a.1));
    }
}
