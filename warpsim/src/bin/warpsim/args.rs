//! Command-line values: sizes, checkers, kernel arguments.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpsim::{Checks, DEVICES, DataType, Device, Gpu, Swizzle, TensorMap};

/// `8`, `8x4`, `8x4x2`
pub(crate) fn dims(s: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = s.split(['x', ',']).collect();
    if parts.len() > 3 {
        return Err("at most three sizes".into());
    }
    for (o, p) in out.iter_mut().zip(parts) {
        *o = p.parse().map_err(|_| format!("`{p}` is not a size"))?;
    }
    Ok(out)
}

pub(crate) fn checks(s: &str) -> Result<Checks, String> {
    match s {
        "all" => return Ok(Checks::ALL),
        "none" => return Ok(Checks::NONE),
        _ => {}
    }
    let mut c = Checks::NONE;
    for p in s.split(',') {
        match p {
            "init" => c.init = true,
            "race" => c.race = true,
            "sync" => c.sync = true,
            "offsets" => c.offsets = true,
            _ => return Err(format!("no checker `{p}`: init, race, sync, offsets, all, none")),
        }
    }
    Ok(c)
}

/// A device by its key.
pub(crate) fn device() -> impl TypedValueParser<Value = Device> {
    PossibleValuesParser::new(DEVICES.map(|d| d.key)).try_map(|key| key.parse())
}

#[derive(Clone, Copy, PartialEq)]
enum Ty {
    U(usize),
    I(usize),
    F32,
    F64,
    F16,
    BF16,
}

impl Ty {
    fn parse(s: &str) -> Option<Ty> {
        Some(match s {
            "u8" => Ty::U(1),
            "u16" => Ty::U(2),
            "u32" => Ty::U(4),
            "u64" => Ty::U(8),
            "i8" => Ty::I(1),
            "i16" => Ty::I(2),
            "i32" => Ty::I(4),
            "i64" => Ty::I(8),
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "f16" => Ty::F16,
            "bf16" => Ty::BF16,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Ty::U(n) | Ty::I(n) => n,
            Ty::F32 => 4,
            Ty::F64 => 8,
            Ty::F16 | Ty::BF16 => 2,
        }
    }

    fn encode(self, v: f64) -> Vec<u8> {
        match self {
            Ty::U(n) => (v as u64).to_le_bytes()[..n].to_vec(),
            Ty::I(n) => (v as i64).to_le_bytes()[..n].to_vec(),
            Ty::F32 => (v as f32).to_le_bytes().to_vec(),
            Ty::F64 => v.to_le_bytes().to_vec(),
            Ty::F16 => (warpsim::f16_bits(v)).to_le_bytes().to_vec(),
            Ty::BF16 => (warpsim::bf16_bits(v)).to_le_bytes().to_vec(),
        }
    }

    fn decode(self, b: &[u8]) -> String {
        let wide = b.iter().rev().fold(0u64, |v, x| v << 8 | u64::from(*x));
        match self {
            Ty::U(_) => wide.to_string(),
            Ty::I(n) => ((wide << (64 - 8 * n)) as i64 >> (64 - 8 * n)).to_string(),
            Ty::F32 => f32::from_bits(wide as u32).to_string(),
            Ty::F64 => f64::from_bits(wide).to_string(),
            Ty::F16 => warpsim::f16_value(wide as u16).to_string(),
            Ty::BF16 => warpsim::bf16_value(wide as u16).to_string(),
        }
    }

    fn tensor(self) -> DataType {
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
}

struct Buffer {
    name: String,
    ty: Ty,
    count: usize,
    addr: u64,
}

/// Arguments as bytes, and the buffers behind them.
#[derive(Default)]
pub(crate) struct Bound {
    pub values: Vec<Vec<u8>>,
    buffers: Vec<Buffer>,
}

impl Bound {
    pub(crate) fn add(&mut self, gpu: &mut Gpu, spec: &str, bytes: usize) -> Result<(), String> {
        let value = if let Some(rest) = spec.strip_prefix("map:") {
            self.map(rest)?
        } else if spec.contains('[') {
            self.buffer(gpu, spec)?.to_le_bytes().to_vec()
        } else {
            number(spec, bytes)?
        };
        if value.len() != bytes {
            return Err(format!("{} bytes for a parameter of {bytes}", value.len()));
        }
        self.values.push(value);
        Ok(())
    }

    fn buffer(&mut self, gpu: &mut Gpu, spec: &str) -> Result<u64, String> {
        let (head, contents) = spec.split_once('=').unwrap_or((spec, "zeros"));
        let (name, shape) = head.split_once(':').unwrap_or(("", head));
        let (ty, count) = shape.strip_suffix(']').and_then(|s| s.split_once('[')).ok_or("TYPE[COUNT] is needed")?;
        let ty = Ty::parse(ty).ok_or_else(|| format!("no type `{ty}`"))?;
        let count: usize = count.parse().map_err(|_| format!("`{count}` is not a count"))?;
        let name = if name.is_empty() { format!("arg{}", self.values.len()) } else { name.to_string() };
        let addr = gpu.try_alloc(count.checked_mul(ty.bytes()).ok_or("too large")?, &name);
        let addr = addr.map_err(|error| error.to_string())?;
        let mut state = 0x2545_f491_4f6c_dd1du64 ^ self.values.len() as u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let fill = |gpu: &mut Gpu, value| {
            let filled = gpu.fill(addr, &ty.encode(value), count);
            filled.map(|()| vec![]).map_err(|error| format!("{error:?}"))
        };
        let data: Vec<u8> = match contents {
            "none" => vec![],
            "zeros" => fill(gpu, 0.0)?,
            "ones" => fill(gpu, 1.0)?,
            "iota" => (0..count).flat_map(|k| ty.encode(k as f64)).collect(),
            "random" => {
                let scale = if matches!(ty, Ty::U(_) | Ty::I(_)) { 100.0 } else { 1.0 };
                (0..count).flat_map(|_| ty.encode(random() * scale)).collect()
            }
            file if file.starts_with('@') => std::fs::read(&file[1..]).map_err(|e| format!("{}: {e}", &file[1..]))?,
            v => {
                let v: f64 = v.parse().map_err(|_| format!("no contents `{v}`"))?;
                fill(gpu, v)?
            }
        };
        gpu.write(addr, &data).map_err(|_| format!("{} bytes do not fit", data.len()))?;
        self.buffers.push(Buffer { name, ty, count, addr });
        Ok(addr)
    }

    /// `BUFFER:DIMS:TILE[:SWIZZLE]`
    fn map(&mut self, spec: &str) -> Result<Vec<u8>, String> {
        let parts: Vec<&str> = spec.split(':').collect();
        let [name, dims, tile, rest @ ..] = parts.as_slice() else {
            return Err("map:BUFFER:DIMS:TILE[:SWIZZLE] is needed".into());
        };
        let b = self.buffers.iter().find(|b| b.name == *name).ok_or_else(|| format!("no buffer `{name}` so far"))?;
        let sizes = |s: &str| {
            s.split('x')
                .map(|v| v.parse::<u64>().map_err(|_| format!("`{v}` is not a size")))
                .collect::<Result<Vec<_>, _>>()
        };
        let (dims, tile) = (sizes(dims)?, sizes(tile)?);
        let mut strides = vec![];
        let mut at = b.ty.bytes() as u64;
        for d in dims.iter().take(dims.len().saturating_sub(1)) {
            at *= d;
            strides.push(at);
        }
        let swizzle = match rest {
            [] | ["none"] => Swizzle::None,
            ["32"] => Swizzle::B32,
            ["64"] => Swizzle::B64,
            ["128"] => Swizzle::B128,
            _ => return Err("the swizzle is none, 32, 64 or 128".into()),
        };
        let tile: Vec<u32> = tile.iter().map(|t| *t as u32).collect();
        Ok(TensorMap::tiled(b.ty.tensor(), b.addr, &dims, &strides, &tile, swizzle)?.encode().to_vec())
    }

    pub(crate) fn print(&self, gpu: &Gpu, spec: &str) -> Result<(), String> {
        let (name, n) = spec.split_once(':').unwrap_or((spec, "16"));
        let b = self.buffers.iter().find(|b| b.name == name).ok_or_else(|| format!("no buffer `{name}`"))?;
        let n = n.parse::<usize>().map_err(|_| format!("`{n}` is not a count"))?.min(b.count);
        let raw = gpu.read_vec(b.addr, n * b.ty.bytes()).map_err(|e| format!("{name}: {e:?}"))?;
        let items: Vec<String> = raw.chunks(b.ty.bytes()).map(|c| b.ty.decode(c)).collect();
        println!("{name}: {}", items.join(" "));
        Ok(())
    }
}

fn number(s: &str, bytes: usize) -> Result<Vec<u8>, String> {
    if let Some((ty, v)) = s.split_once(':')
        && let Some(ty) = Ty::parse(ty)
    {
        return v.parse().map(|v: f64| ty.encode(v)).map_err(|_| format!("`{v}` is not a number"));
    }
    if let Ok(v) = s.parse::<i128>() {
        return Ok(v.to_le_bytes()[..bytes.min(8)].to_vec());
    }
    let v: f64 = s.parse().map_err(|_| format!("`{s}` is not a number or a buffer"))?;
    match bytes {
        4 => Ok((v as f32).to_le_bytes().to_vec()),
        8 => Ok(v.to_le_bytes().to_vec()),
        _ => Err(format!("a floating-point number for a parameter of {bytes} bytes")),
    }
}
