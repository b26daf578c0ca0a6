//! Element types and numbers of the command line.

use safetensors::Dtype;
use warpsim::DataType;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ty {
    U(usize),
    I(usize),
    F32,
    F64,
    F16,
    BF16,
}

impl Ty {
    pub(crate) fn parse(s: &str) -> Option<Ty> {
        Some(match s {
            "u8" => Ty::U(1),
            "u16" => Ty::U(2),
            "u32" => Ty::U(4),
            "u64" => Ty::U(8),
            "i8" | "s8" => Ty::I(1),
            "i16" | "s16" => Ty::I(2),
            "i32" | "s32" => Ty::I(4),
            "i64" | "s64" => Ty::I(8),
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "f16" => Ty::F16,
            "bf16" => Ty::BF16,
            _ => return None,
        })
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Ty::U(n) | Ty::I(n) => n,
            Ty::F32 => 4,
            Ty::F64 => 8,
            Ty::F16 | Ty::BF16 => 2,
        }
    }

    pub(crate) fn whole(self) -> bool {
        matches!(self, Ty::U(_) | Ty::I(_))
    }

    pub(crate) fn encode(self, v: f64) -> Vec<u8> {
        match self {
            Ty::U(n) => (v as u64).to_le_bytes()[..n].to_vec(),
            Ty::I(n) => (v as i64).to_le_bytes()[..n].to_vec(),
            Ty::F32 => (v as f32).to_le_bytes().to_vec(),
            Ty::F64 => v.to_le_bytes().to_vec(),
            Ty::F16 => (warpsim::f16_bits(v)).to_le_bytes().to_vec(),
            Ty::BF16 => (warpsim::bf16_bits(v)).to_le_bytes().to_vec(),
        }
    }

    fn value(self, b: &[u8]) -> f64 {
        let wide = bits(b);
        match self {
            Ty::U(_) => wide as f64,
            Ty::I(n) => signed(wide, n) as f64,
            Ty::F32 => f32::from_bits(wide as u32).into(),
            Ty::F64 => f64::from_bits(wide),
            Ty::F16 => warpsim::f16_value(wide as u16),
            Ty::BF16 => warpsim::bf16_value(wide as u16),
        }
    }

    /// A number in the argument, which has to fit this type.
    pub(crate) fn number(self, s: &str) -> Result<Vec<u8>, String> {
        let (name, not) = (self.name(), |what: &str| format!("`{s}` is not {what}"));
        match self {
            Ty::U(n) | Ty::I(n) => {
                let v = integer(s).ok_or_else(|| not("a whole number"))?;
                let half = 1i128 << (8 * n - 1);
                let range = if matches!(self, Ty::U(_)) { 0..2 * half } else { -half..half };
                match range.contains(&v) {
                    true => Ok(v.to_le_bytes()[..n].to_vec()),
                    false => Err(format!("`{s}` does not fit {name}: {} to {}", range.start, range.end - 1)),
                }
            }
            _ => {
                let v: f64 = s.parse().map_err(|_| not("a number"))?;
                let bytes = self.encode(v);
                match v.is_finite() && !self.value(&bytes).is_finite() {
                    true => Err(format!("`{s}` does not fit {name}")),
                    false => Ok(bytes),
                }
            }
        }
    }

    pub(crate) fn decode(self, b: &[u8]) -> String {
        let wide = bits(b);
        match self {
            Ty::U(_) => wide.to_string(),
            Ty::I(n) => signed(wide, n).to_string(),
            Ty::F32 => f32::from_bits(wide as u32).to_string(),
            _ => self.value(b).to_string(),
        }
    }

    pub(crate) fn tensor(self) -> DataType {
        match self {
            Ty::U(1) | Ty::I(1) => DataType::U8,
            Ty::U(2) | Ty::I(2) => DataType::U16,
            Ty::U(4) => DataType::U32,
            Ty::I(4) => DataType::I32,
            Ty::U(_) => DataType::U64,
            Ty::I(_) => DataType::I64,
            Ty::F32 => DataType::F32,
            Ty::F64 => DataType::F64,
            Ty::F16 => DataType::F16,
            Ty::BF16 => DataType::BF16,
        }
    }

    fn name(self) -> String {
        match self {
            Ty::U(n) => format!("u{}", 8 * n),
            Ty::I(n) => format!("i{}", 8 * n),
            Ty::F32 => "f32".into(),
            Ty::F64 => "f64".into(),
            Ty::F16 => "f16".into(),
            Ty::BF16 => "bf16".into(),
        }
    }

    pub(crate) fn safetensors(self) -> Dtype {
        match self {
            Ty::U(1) => Dtype::U8,
            Ty::I(1) => Dtype::I8,
            Ty::U(2) => Dtype::U16,
            Ty::I(2) => Dtype::I16,
            Ty::U(4) => Dtype::U32,
            Ty::I(4) => Dtype::I32,
            Ty::U(_) => Dtype::U64,
            Ty::I(_) => Dtype::I64,
            Ty::F32 => Dtype::F32,
            Ty::F64 => Dtype::F64,
            Ty::F16 => Dtype::F16,
            Ty::BF16 => Dtype::BF16,
        }
    }

    /// NumPy's name of the type; it has none for bf16, whose bits are saved.
    pub(crate) fn numpy(self) -> String {
        match self {
            Ty::U(1) => "|u1".into(),
            Ty::I(1) => "|i1".into(),
            Ty::U(n) => format!("<u{n}"),
            Ty::I(n) => format!("<i{n}"),
            Ty::F32 => "<f4".into(),
            Ty::F64 => "<f8".into(),
            Ty::F16 => "<f2".into(),
            Ty::BF16 => "<u2".into(),
        }
    }
}

fn bits(b: &[u8]) -> u64 {
    b.iter().rev().fold(0, |v, x| v << 8 | u64::from(*x))
}

fn signed(wide: u64, bytes: usize) -> i64 {
    (wide << (64 - 8 * bytes)) as i64 >> (64 - 8 * bytes)
}

fn integer(s: &str) -> Option<i128> {
    match s.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(i128::from),
        None => s.parse().ok(),
    }
}

/// A number for a parameter of this size, whose type in the PTX is `declared`.
pub(crate) fn scalar(s: &str, bytes: usize, declared: &str) -> Result<Vec<u8>, String> {
    if let Some((ty, v)) = s.split_once(':')
        && let Some(ty) = Ty::parse(ty)
    {
        return ty.number(v);
    }
    if s.parse::<f64>().is_err() && integer(s).is_none() {
        return Err(format!("`{s}` is not a number, nor a buffer so far"));
    }
    let declared = Ty::parse(declared);
    if let Some(float) = declared.filter(|t| !t.whole()) {
        return float.number(s);
    }
    let size = match bytes {
        1 | 2 | 4 | 8 => bytes,
        _ => {
            return Err(format!(
                "a number for a parameter of {bytes} bytes: `{{u32:1,f32:2}}` lists a structure's fields"
            ));
        }
    };
    if integer(s).is_some() {
        let ty = if s.starts_with('-') { Ty::I(size) } else { Ty::U(size) };
        return ty.number(s);
    }
    match (declared, size) {
        (None, 4) => Ty::F32.number(s),
        (None, 8) => Ty::F64.number(s),
        (Some(ty), _) => Err(format!("`{s}` for a parameter of type {}: a whole number is needed", ty.name())),
        _ => Err(format!("`{s}` for a parameter of {bytes} bytes: say its type, as in f16:0.5")),
    }
}
