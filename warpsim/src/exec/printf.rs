//! C's `printf` for the device's argument buffer.

/// Formats; `byte(k)` is the k-th byte of the arguments, `string(addr)` reads a C string.
pub fn format(fmt: &[u8], byte: impl Fn(u64) -> u8, string: impl Fn(u64) -> Vec<u8>) -> String {
    let mut out = Vec::new();
    let mut at = 0u64;
    let mut arg = |n: u64| {
        at = at.next_multiple_of(n);
        let v = (0..n).fold(0u64, |v, k| v | u64::from(byte(at + k)) << (8 * k));
        at += n;
        v
    };
    let mut k = 0;
    while k < fmt.len() {
        if fmt[k] != b'%' {
            out.push(fmt[k]);
            k += 1;
            continue;
        }
        k += 1;
        let (mut left, mut zero, mut plus) = (false, false, false);
        while let Some(c) = fmt.get(k) {
            match c {
                b'-' => left = true,
                b'0' => zero = true,
                b'+' => plus = true,
                b' ' | b'#' => {}
                _ => break,
            }
            k += 1;
        }
        let mut number = |k: &mut usize| -> Option<usize> {
            if fmt.get(*k) == Some(&b'*') {
                *k += 1;
                return Some((arg(4) as usize).min(1000));
            }
            let start = *k;
            while fmt.get(*k).is_some_and(u8::is_ascii_digit) {
                *k += 1;
            }
            std::str::from_utf8(&fmt[start..*k]).ok()?.parse().ok().map(|v: usize| v.min(1000))
        };
        let width = number(&mut k).unwrap_or(0);
        let precision = if fmt.get(k) == Some(&b'.') {
            k += 1;
            Some(number(&mut k).unwrap_or(0))
        } else {
            None
        };
        let mut wide = false;
        while let Some(b'l' | b'h' | b'z' | b'j' | b't') = fmt.get(k) {
            wide |= fmt[k] != b'h';
            k += 1;
        }
        let Some(&c) = fmt.get(k) else { break };
        k += 1;
        let sign = |s: String| if plus && !s.starts_with('-') { format!("+{s}") } else { s };
        let body = match c {
            b'%' => "%".into(),
            b'd' | b'i' => sign(if wide { (arg(8) as i64).to_string() } else { (arg(4) as i32).to_string() }),
            b'u' => arg(if wide { 8 } else { 4 }).to_string(),
            b'x' => format!("{:x}", arg(if wide { 8 } else { 4 })),
            b'X' => format!("{:X}", arg(if wide { 8 } else { 4 })),
            b'o' => format!("{:o}", arg(if wide { 8 } else { 4 })),
            b'p' => format!("{:#x}", arg(8)),
            b'c' => char::from(arg(4) as u8).to_string(),
            b's' => {
                let s = String::from_utf8_lossy(&string(arg(8))).into_owned();
                precision.map_or(s.clone(), |p| s.chars().take(p).collect())
            }
            b'f' | b'F' => sign(format!("{:.*}", precision.unwrap_or(6), f64::from_bits(arg(8)))),
            b'e' | b'E' => sign(exponent(f64::from_bits(arg(8)), precision.unwrap_or(6))),
            b'g' | b'G' => sign(shortest(f64::from_bits(arg(8)), precision.unwrap_or(6).max(1))),
            other => format!("%{}", other as char),
        };
        let pad = width.saturating_sub(body.chars().count());
        if left {
            out.extend(body.bytes().chain(std::iter::repeat_n(b' ', pad)));
        } else if zero && c != b's' {
            let (head, digits) = body.split_at(usize::from(body.starts_with(['-', '+'])));
            out.extend(head.bytes().chain(std::iter::repeat_n(b'0', pad)).chain(digits.bytes()));
        } else {
            out.extend(std::iter::repeat_n(b' ', pad).chain(body.bytes()));
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn exponent(v: f64, precision: usize) -> String {
    let s = format!("{v:.precision$e}");
    match s.split_once('e') {
        Some((m, e)) => {
            let n: i32 = e.parse().unwrap_or(0);
            format!("{m}e{}{:02}", if n < 0 { '-' } else { '+' }, n.abs())
        }
        None => s,
    }
}

fn shortest(v: f64, p: usize) -> String {
    if v == 0.0 || !v.is_finite() {
        return format!("{v}");
    }
    let e = v.abs().log10().floor() as i32;
    let trim = |s: String| if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_string() } else { s };
    if e < -4 || e >= p as i32 {
        let s = exponent(v, p - 1);
        return match s.split_once('e') {
            Some((m, x)) => format!("{}e{x}", trim(m.to_string())),
            None => s,
        };
    }
    trim(format!("{:.*}", (p as i32 - 1 - e).max(0) as usize, v))
}
