//! Every operator under the device's roofs.

use super::figure::{Figure, cells, label, percent, rate, time};
use super::timings::{FAMILIES, Timings, family};
use crate::check::bench::Row;
use crate::check::pictures::{Place, Roof, Roofline, Table};
use crate::runtime::error::Result;

/// A point for each operator, on its largest case. `None` without a copy to compare with.
pub(super) fn roofline(timings: &Timings<'_>) -> Result<Option<Figure>> {
    let Some(copy) = timings.copy() else { return Ok(None) };
    let mut largest: Vec<(usize, &Row)> = Vec::new();
    for (number, row) in timings.picked().filter(|(_, row)| row.bytes > 0 && row.gbps.is_some()) {
        match largest.iter_mut().find(|(_, old)| old.op == row.op) {
            Some(old) if row.flops.max(row.bytes) > old.1.flops.max(old.1.bytes) => *old = (number, row),
            Some(_) => {}
            None => largest.push((number, row)),
        }
    }
    if largest.is_empty() {
        return Ok(None);
    }
    largest.sort_by_key(|(_, row)| family(&row.op));
    let mut table =
        Table::new(["operator", "case", "family", ">operations a byte", ">rate", ">of its ceiling", ">time"]);
    let mut places = Vec::new();
    for (_, row) in &largest {
        let intensity = row.tflops.map(|_| row.flops as f64 / row.bytes as f64);
        let number = family(&row.op);
        let share = row.pct_of_ceiling.map_or("-".to_owned(), percent);
        places.push(Place {
            family: number,
            intensity,
            rate: row.tflops.or(row.gbps).unwrap_or(0.0),
            tip: format!("{}: {}, {share} of its ceiling", label(row), rate(row)),
        });
        let of_a_byte = intensity.map_or("-".to_owned(), |i| format!("{i:.1}"));
        table.rows.push(cells([&row.op, &row.case, FAMILIES[number], &of_a_byte, &rate(row), &share, &time(row.ms)]));
    }
    let arithmetic = timings.peaks();
    let roofs: Vec<_> = arithmetic.iter().map(|roof| roof.name.clone()).collect();
    let says = format!(
        "{} operators, each on its largest case. The roofs are a copy of memory at {copy:.0} GB/s, which was measured, and the peaks of \
         arithmetic at the highest clock{}{}. To the left those whose cost counts bytes alone, to the right the others.",
        places.len(),
        if roofs.is_empty() { "" } else { ": " },
        roofs.join(", "),
    );
    let memory = Roof { name: format!("copy: {copy:.0} GB/s"), rate: copy };
    let title = format!("Roofline of the {}", timings.device);
    let roofline = Roofline { title, memory, arithmetic, families: FAMILIES.into(), places };
    let sources = largest.iter().map(|(number, _)| *number).chain(timings.copied_in());
    Ok(Some(Figure::new(roofline.picture(says, table)?, sources)))
}
