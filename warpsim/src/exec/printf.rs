//! C's `printf` for the device's argument buffer.

/// Formats the output; `byte(k)` is the k-th byte of the arguments, and `string(addr)` reads a C string.
pub fn format(fmt: &[u8], byte: impl Fn(u64) -> u8, string: impl Fn(u64) -> Vec<u8>) -> String {
    let mut out = Vec::new();
    let mut at = 0u64;
    let mut arg = |n: u64| {
        at = at.next_multiple_of(n);
        let v = (0..n).fold(0u64, |v, k| v | u64::from(byte(at + k)) << (8 * k));
        at += n;
        v
    };
    let mut rest = fmt;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            out.push(first);
            continue;
        }
        let Some((spec, after)) = Spec::parse(rest, || arg(4) as i32) else { break };
        rest = after;
        out.extend(spec.convert(&mut arg, &string));
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The specification of a conversion between the percent sign and the conversion letter, and the letter.
#[derive(Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of an integer.
    size: u64,
    conversion: u8,
}

impl Spec {
    /// Maximum width or precision.
    const MOST: i32 = 1000;

    /// Parses a specification; returns it with the rest of the format, or `None` if the format ends early. `star` supplies the numbers that
    /// are arguments.
    fn parse(mut text: &[u8], mut star: impl FnMut() -> i32) -> Option<(Self, &[u8])> {
        let mut spec = Self { size: 4, ..Self::default() };
        loop {
            match text.first()? {
                b'-' => spec.left = true,
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                b'#' => spec.alternate = true,
                _ => break,
            }
            text = &text[1..];
        }
        let mut number = |text: &mut &[u8]| {
            if text.first() == Some(&b'*') {
                *text = &text[1..];
                return star().clamp(-Self::MOST, Self::MOST);
            }
            let mut value = 0i32;
            while let Some(digit) = text.first().filter(|c| c.is_ascii_digit()) {
                value = (10 * value + i32::from(digit - b'0')).min(Self::MOST);
                *text = &text[1..];
            }
            value
        };
        let width = number(&mut text);
        spec.left |= width < 0;
        spec.width = width.unsigned_abs() as usize;
        if text.first()? == &b'.' {
            text = &text[1..];
            // A negative precision counts as absent.
            spec.precision = usize::try_from(number(&mut text)).ok();
        }
        loop {
            match text.first()? {
                b'h' => spec.size = if spec.size == 2 { 1 } else { 2 },
                b'l' | b'z' | b'j' | b't' => spec.size = 8,
                _ => break,
            }
            text = &text[1..];
        }
        let (&conversion, rest) = text.split_first()?;
        spec.conversion = conversion;
        Some((spec, rest))
    }

    /// The next argument, converted as the specification requires.
    fn convert(&self, arg: &mut impl FnMut(u64) -> u64, string: &impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
        match self.conversion {
            b'd' | b'i' => {
                let shift = 64 - 8 * self.size as u32;
                // A type shorter than an int is passed as an int.
                let value = (arg(self.size.max(4)) << shift) as i64 >> shift;
                self.padded(
                    self.sign(value < 0),
                    self.digits(value.unsigned_abs().to_string()),
                    self.precision.is_none(),
                )
            }
            b'u' | b'x' | b'X' | b'o' => {
                let value = arg(self.size.max(4)) & (u64::MAX >> (64 - 8 * self.size));
                let (prefix, digits) = match self.conversion {
                    b'x' => ("0x", format!("{value:x}")),
                    b'X' => ("0X", format!("{value:X}")),
                    b'o' => ("", format!("{value:o}")),
                    _ => ("", value.to_string()),
                };
                let mut digits = self.digits(digits);
                if self.alternate && self.conversion == b'o' && !digits.starts_with('0') {
                    digits.insert(0, '0');
                }
                let prefix = if self.alternate && value != 0 { prefix } else { "" };
                self.padded(prefix, digits, self.precision.is_none())
            }
            b'p' => self.padded("0x", format!("{:x}", arg(8)), false),
            b'c' => self.spaced(vec![arg(4) as u8]),
            b's' => {
                let mut text = string(arg(8));
                text.truncate(self.precision.unwrap_or(usize::MAX));
                self.spaced(text)
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_bits(arg(8));
                let text = self.float(value.abs());
                let text = if self.conversion.is_ascii_uppercase() { text.to_uppercase() } else { text };
                self.padded(self.sign(value.is_sign_negative()), text, value.is_finite())
            }
            b'%' => vec![b'%'],
            other => vec![b'%', other],
        }
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (.., true) => " ",
            _ => "",
        }
    }

    /// At least as many digits as the precision requires; a zero with precision zero has none.
    fn digits(&self, digits: String) -> String {
        match self.precision {
            Some(0) if digits == "0" => String::new(),
            least => format!("{digits:0>width$}", width = least.unwrap_or(1)),
        }
    }

    /// Pads to the width, with zeros after the `prefix` if zeros are requested and `may` be used.
    fn padded(&self, prefix: &str, digits: String, may: bool) -> Vec<u8> {
        let width = self.width.saturating_sub(prefix.len());
        let digits = if self.zero && !self.left && may { format!("{digits:0>width$}") } else { digits };
        self.spaced(format!("{prefix}{digits}").into_bytes())
    }

    fn spaced(&self, mut text: Vec<u8>) -> Vec<u8> {
        let pad = vec![b' '; self.width.saturating_sub(text.len())];
        let at = if self.left { text.len() } else { 0 };
        text.splice(at..at, pad);
        text
    }

    /// A non-negative number, in lower case.
    fn float(&self, value: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "nan" } else { "inf" }.to_owned();
        }
        let precision = self.precision.unwrap_or(6);
        match self.conversion.to_ascii_lowercase() {
            b'f' => self.point(format!("{value:.precision$}")),
            b'e' => self.exponent(value, precision),
            b'g' => self.shortest(value, precision.max(1)),
            _ => self.hexadecimal(value),
        }
    }

    /// Includes the decimal point even if no digits follow, if that is requested.
    fn point(&self, text: String) -> String {
        if self.alternate && !text.contains('.') { text + "." } else { text }
    }

    fn exponent(&self, value: f64, precision: usize) -> String {
        let text = format!("{value:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", self.point(mantissa.to_owned()), exponent.abs())
    }

    /// With `precision` significant digits, and without trailing zeros unless these are requested.
    fn shortest(&self, value: f64, precision: usize) -> String {
        let places = precision - 1;
        let rounded = format!("{value:.places$e}");
        let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
        let trim = |text: &str| match text.contains('.') && !self.alternate {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => self.point(text.to_owned()),
        };
        if exponent < -4 || exponent >= precision as i32 {
            let text = self.exponent(value, places);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
            return format!("{}e{exponent}", trim(mantissa));
        }
        trim(&format!("{value:.*}", (places as i32 - exponent) as usize))
    }

    /// As `0x1.8p+1`.
    fn hexadecimal(&self, value: f64) -> String {
        const BITS: u32 = f64::MANTISSA_DIGITS - 1;
        let bits = value.to_bits();
        let (biased, mut mantissa) = ((bits >> BITS) as i32, bits & ((1 << BITS) - 1));
        let exponent = if value == 0.0 { 0 } else { biased.max(1) - (f64::MAX_EXP - 1) };
        mantissa |= u64::from(biased != 0) << BITS;
        if let Some(digits) = self.precision.filter(|digits| *digits < 13) {
            // Ties round to even.
            let cut = BITS - 4 * digits as u32;
            let (half, kept) = (1u64 << (cut - 1), mantissa >> cut);
            let left = mantissa & ((1 << cut) - 1);
            mantissa = (kept + u64::from(left > half || left == half && kept % 2 == 1)) << cut;
        }
        let digits = format!("{:013x}", mantissa & ((1 << BITS) - 1));
        let digits = match self.precision {
            Some(places) => format!("{digits:0<places$}")[..places].to_owned(),
            None => digits.trim_end_matches('0').to_owned(),
        };
        let point = if digits.is_empty() && !self.alternate { "" } else { "." };
        format!("0x{}{point}{digits}p{exponent:+}", mantissa >> BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments in the device's layout: each is aligned to its size.
    fn print(fmt: &str, args: &[(u64, u64)]) -> String {
        let mut bytes = Vec::new();
        for &(size, value) in args {
            bytes.resize(bytes.len().next_multiple_of(size as usize), 0);
            bytes.extend(&value.to_le_bytes()[..size as usize]);
        }
        format(fmt.as_bytes(), |k| bytes.get(k as usize).copied().unwrap_or(0), |_| b"abcdef".to_vec())
    }

    fn int(value: i32) -> (u64, u64) {
        (4, value as u32 as u64)
    }

    fn double(value: f64) -> (u64, u64) {
        (8, value.to_bits())
    }

    #[test]
    fn integers_are_as_c_prints_them() {
        for (fmt, value, text) in [
            ("%d|%5d|%-5d|%05d", 42, "42|   42|42   |00042"),
            ("%+d|% d|%.3d|%6.3d", 7, "+7| 7|007|   007"),
            ("%#x|%#X|%#o|%08x", 255, "0xff|0XFF|0377|000000ff"),
            ("%#x|%.0d|%#o|%u", 0, "0||0|0"),
            ("%hhd|%hd|%hhu|%i", 70_000 + 300, "-100|4764|156|70300"),
            ("%d|%u|%x|%05d", -1, "-1|4294967295|ffffffff|-0001"),
            ("%c|%3c|%-3c|%d%%", 65, "A|  A|A  |65%"),
        ] {
            assert_eq!(print(fmt, &[int(value); 4]), text, "{fmt}");
        }
        assert_eq!(print("%lld %zu %lx", &[(8, -5i64 as u64), (8, 7), (8, 1 << 40)]), "-5 7 10000000000");
        assert_eq!(print("%*d|%-*d|%.*f", &[int(4), int(7), int(4), int(7), int(1), double(2.25)]), "   7|7   |2.2");
        assert_eq!(print("%*d|", &[int(-4), int(7)]), "7   |");
        assert_eq!(
            print("%s|%8s|%-8s|%.2s|%p", &[(8, 0), (8, 0), (8, 0), (8, 0), (8, 4096)]),
            "abcdef|  abcdef|abcdef  |ab|0x1000"
        );
        assert_eq!(print("%y 5% %", &[]), "%y 5%");
    }

    #[test]
    fn floats_are_as_c_prints_them() {
        for (fmt, value, text) in [
            ("%f|%.0f|%+.1f|%08.3f", 2.5, "2.500000|2|+2.5|0002.500"),
            ("%e|%.2E|%g|%G", 12345.678, "1.234568e+04|1.23E+04|12345.7|12345.7"),
            ("%g|%g|%#g|%.3g", 100_000.0, "100000|100000|100000.|1e+05"),
            ("%g|%G|%.10g|%f", 1e-10, "1e-10|1E-10|1e-10|0.000000"),
            ("%g|%#.0f|% g|%e", 0.0, "0|0.| 0|0.000000e+00"),
            ("%a|%A|%.1a|%a", 1.0, "0x1p+0|0X1P+0|0x1.0p+0|0x1p+0"),
            ("%a|%.1a|%.0a|%.15a", 3.1875, "0x1.98p+1|0x1.ap+1|0x2p+1|0x1.980000000000000p+1"),
            ("%a|%a|%a|%a", f64::MIN_POSITIVE / 4.0, "0x0.4p-1022|0x0.4p-1022|0x0.4p-1022|0x0.4p-1022"),
            ("%f|%5F|%05e|%g", f64::INFINITY, "inf|  INF|  inf|inf"),
            ("%f|%+a|%E|%05g", f64::NAN, "nan|+nan|NAN|  nan"),
            ("%f|%g|%e|%a", -0.0, "-0.000000|-0|-0.000000e+00|-0x0p+0"),
            ("%.15g|%.17g|%g|%g", 999_999.5, "999999.5|999999.5|1e+06|1e+06"),
        ] {
            assert_eq!(print(fmt, &[double(value); 4]), text, "{fmt}");
        }
    }
}
