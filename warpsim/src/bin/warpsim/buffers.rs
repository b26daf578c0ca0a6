//! Kernel arguments, and the memory behind them.

use safetensors::tensor::TensorView;
use warpsim::{Gpu, Im2col, Module, Swizzle, TensorMap};

use crate::npy;
use crate::values::{Ty, scalar};

struct Buffer {
    name: String,
    ty: Ty,
    count: usize,
    addr: u64,
}

/// The buffers of a run, which all its launches may use.
#[derive(Default)]
pub(crate) struct Buffers {
    list: Vec<Buffer>,
    /// Number of buffers created so far, including those without a name.
    made: u64,
}

impl Buffers {
    /// The bytes of an argument for a parameter of this size, declared as `ty`.
    pub(crate) fn argument(&mut self, gpu: &mut Gpu, spec: &str, bytes: usize, ty: &str) -> Result<Vec<u8>, String> {
        let value = if let Some(fields) = spec.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            self.structure(fields, bytes)?
        } else if let Some(rest) = spec.strip_prefix("map:") {
            self.map(rest)?
        } else if let Some(rest) = spec.strip_prefix("im2col:") {
            self.im2col(rest)?
        } else if spec.contains('[') {
            self.create(gpu, spec)?.to_le_bytes().to_vec()
        } else if let Some(b) = self.list.iter().find(|b| b.name == spec) {
            b.addr.to_le_bytes().to_vec()
        } else {
            scalar(spec, bytes, ty)?
        };
        match value.len() == bytes {
            true => Ok(value),
            false => Err(format!("{} bytes for a parameter of {bytes}", value.len())),
        }
    }

    /// Fields in order, each at a multiple of its size: `u32:7`, `f32:0.5`, a buffer's name.
    fn structure(&self, fields: &str, bytes: usize) -> Result<Vec<u8>, String> {
        let mut out = vec![];
        for field in fields.split(',').map(str::trim) {
            let value = match self.list.iter().find(|b| b.name == field) {
                Some(b) => b.addr.to_le_bytes().to_vec(),
                None => match field.split_once(':').and_then(|(ty, v)| Some((Ty::parse(ty)?, v))) {
                    Some((ty, v)) => ty.number(v)?,
                    None => return Err(format!("field `{field}`: TYPE:NUMBER or the name of a buffer is needed")),
                },
            };
            out.resize(out.len().next_multiple_of(value.len()), 0);
            out.extend(value);
        }
        // A structure's size is a multiple of its alignment.
        if out.len() < bytes && bytes - out.len() < 16 {
            out.resize(bytes, 0);
        }
        Ok(out)
    }

    /// `[NAME:]TYPE[COUNT][=CONTENTS]`
    fn create(&mut self, gpu: &mut Gpu, spec: &str) -> Result<u64, String> {
        let (head, contents) = spec.split_once('=').unwrap_or((spec, "zeros"));
        let (name, ty, count) = shape(head)?;
        let name = if name.is_empty() { format!("arg{}", self.made) } else { name.to_string() };
        self.unused(&name)?;
        let bytes = count.checked_mul(ty.bytes()).filter(|n| *n <= isize::MAX as usize).ok_or("too large")?;
        if let Some(free) = available().filter(|free| contents != "none" && bytes as u64 > *free) {
            return Err(format!(
                "{bytes} bytes, and this machine has {free}: `=none` takes memory only where it is used"
            ));
        }
        let addr = gpu.try_alloc(bytes, &name).map_err(|error| error.to_string())?;
        let buffer = Buffer { name, ty, count, addr };
        self.fill(gpu, &buffer, contents)?;
        self.list.push(buffer);
        self.made += 1;
        Ok(addr)
    }

    fn unused(&self, name: &str) -> Result<(), String> {
        match self.list.iter().any(|b| b.name == name) {
            true => Err(format!("there is a buffer `{name}` already")),
            false => Ok(()),
        }
    }

    /// `NAME:TYPE[COUNT][=CONTENTS]`: a variable of the module, which keeps its initial values if no contents are given.
    pub(crate) fn variable(&mut self, gpu: &mut Gpu, module: &Module, spec: &str) -> Result<(), String> {
        let (head, contents) = spec.split_once('=').map_or((spec, None), |(head, contents)| (head, Some(contents)));
        let (name, ty, count) = shape(head)?;
        self.unused(name)?;
        let found = gpu.variable(module, name).map_err(|fault| fault.to_string())?;
        let (addr, bytes) =
            found.ok_or_else(|| format!("no variable `{name}`; the module has: {}", module.variables().join(", ")))?;
        if count.checked_mul(ty.bytes()).is_none_or(|n| n as u64 > bytes) {
            return Err(format!("`{name}` has {bytes} bytes"));
        }
        let buffer = Buffer { name: name.to_string(), ty, count, addr };
        if let Some(contents) = contents {
            self.fill(gpu, &buffer, contents)?;
        }
        self.list.push(buffer);
        Ok(())
    }

    fn fill(&self, gpu: &mut Gpu, b: &Buffer, contents: &str) -> Result<(), String> {
        let refused = |error| format!("{error:?}");
        let mut state = 0x2545_f491_4f6c_dd1du64 ^ self.made;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        let constant = |gpu: &mut Gpu, one: &[u8]| gpu.fill(b.addr, one, b.count).map_err(refused);
        let scale = if b.ty.whole() { 100.0 } else { 1.0 };
        match contents {
            "none" => Ok(()),
            "zeros" => constant(gpu, &b.ty.encode(0.0)),
            "ones" => constant(gpu, &b.ty.encode(1.0)),
            "iota" => pieces(gpu, b, |k| k as f64),
            "random" => pieces(gpu, b, |_| random() * scale),
            file if file.starts_with('@') => {
                let file = &file[1..];
                let data = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
                let data = match file.ends_with(".npy") {
                    true => npy::read(&b.ty.numpy(), &data).map_err(|e| format!("{file}: {e}"))?,
                    false => &data,
                };
                let (has, room) = (data.len(), b.count * b.ty.bytes());
                if has > room {
                    return Err(format!("{file} has {has} bytes, `{}` {room}", b.name));
                }
                gpu.write(b.addr, data).map_err(refused)
            }
            number => constant(gpu, &b.ty.number(number).map_err(|e| format!("no contents {e}"))?),
        }
    }

    /// `BUFFER:DIMS:TILE[:SWIZZLE]`
    fn map(&mut self, spec: &str) -> Result<Vec<u8>, String> {
        let parts: Vec<&str> = spec.split(':').collect();
        let [name, dims, tile, rest @ ..] = parts.as_slice() else {
            return Err("map:BUFFER:DIMS:TILE[:SWIZZLE] is needed".into());
        };
        let (b, dims, strides) = self.tensor(name, dims)?;
        let (tile, swizzle) = (sizes(tile)?, swizzle(rest)?);
        Ok(TensorMap::tiled(b.ty.tensor(), b.addr, &dims, &strides, &tile, swizzle)?.encode().to_vec())
    }

    /// `BUFFER:DIMS:LOWER:UPPER:CHANNELSxPIXELS[:SWIZZLE]`
    fn im2col(&self, spec: &str) -> Result<Vec<u8>, String> {
        let parts: Vec<&str> = spec.split(':').collect();
        let [name, dims, lower, upper, pixels, rest @ ..] = parts.as_slice() else {
            return Err("im2col:BUFFER:DIMS:LOWER:UPPER:CHANNELSxPIXELS[:SWIZZLE] is needed".into());
        };
        let (b, dims, strides) = self.tensor(name, dims)?;
        let [channels, pixels] = sizes(pixels)?[..] else { return Err("channels x pixels are needed".into()) };
        let pixels = Im2col { lower: sizes(lower)?, upper: sizes(upper)?, steps: vec![], channels, pixels };
        let map = TensorMap::im2col(b.ty.tensor(), b.addr, &dims, &strides, pixels, swizzle(rest)?)?;
        Ok(map.encode().to_vec())
    }

    /// A buffer, its dimensions as a tensor without gaps, and the strides of that tensor.
    fn tensor(&self, name: &str, dims: &str) -> Result<(&Buffer, Vec<u64>, Vec<u64>), String> {
        let b = self.list.iter().find(|b| b.name == name).ok_or_else(|| format!("no buffer `{name}` so far"))?;
        let dims: Vec<u64> = sizes::<u32>(dims)?.into_iter().map(u64::from).collect();
        let mut strides = vec![];
        let mut at = b.ty.bytes() as u64;
        for d in dims.iter().take(dims.len().saturating_sub(1)) {
            at = at.checked_mul(*d).ok_or("the sizes are too large")?;
            strides.push(at);
        }
        Ok((b, dims, strides))
    }

    fn bytes(&self, gpu: &Gpu, name: &str, most: usize) -> Result<(&Buffer, Vec<u8>), String> {
        let b = self.list.iter().find(|b| b.name == name).ok_or_else(|| format!("no buffer `{name}`"))?;
        let raw = gpu.read_vec(b.addr, most.min(b.count) * b.ty.bytes()).map_err(|e| format!("{name}: {e:?}"))?;
        Ok((b, raw))
    }

    /// Prints the first elements: `NAME` or `NAME:COUNT`.
    pub(crate) fn print(&self, gpu: &Gpu, spec: &str) -> Result<(), String> {
        let (name, n) = spec.split_once(':').unwrap_or((spec, "16"));
        let n = n.parse::<usize>().map_err(|_| format!("`{n}` is not a count"))?;
        let (b, raw) = self.bytes(gpu, name, n)?;
        let items: Vec<String> = raw.chunks(b.ty.bytes()).map(|c| b.ty.decode(c)).collect();
        println!("{name}: {}", items.join(" "));
        Ok(())
    }

    /// Writes a buffer to a file: `NAME=FILE`.
    pub(crate) fn save(&self, gpu: &Gpu, spec: &str) -> Result<(), String> {
        let (name, file) = spec.split_once('=').ok_or("NAME=FILE.npy or NAME=FILE.safetensors is needed")?;
        let (b, raw) = self.bytes(gpu, name, usize::MAX)?;
        let contents = match file.ends_with(".safetensors") {
            true => TensorView::new(b.ty.safetensors(), vec![b.count], &raw)
                .and_then(|tensor| safetensors::serialize([(name, tensor)], None))
                .map_err(|e| format!("{file}: {e}"))?,
            false => npy::write(&b.ty.numpy(), b.count, &raw),
        };
        std::fs::write(file, contents).map_err(|e| format!("{file}: {e}"))
    }
}

/// `8x4x2`
fn sizes<T: std::str::FromStr>(s: &str) -> Result<Vec<T>, String> {
    s.split('x').map(|v| v.parse().map_err(|_| format!("`{v}` is not a size"))).collect()
}

fn swizzle(words: &[&str]) -> Result<Swizzle, String> {
    match words {
        [] | ["none"] => Ok(Swizzle::None),
        ["32"] => Ok(Swizzle::B32),
        ["64"] => Ok(Swizzle::B64),
        ["128"] => Ok(Swizzle::B128),
        _ => Err("the swizzle is none, 32, 64 or 128".into()),
    }
}

/// `[NAME:]TYPE[COUNT]`
fn shape(s: &str) -> Result<(&str, Ty, usize), String> {
    let (name, shape) = s.split_once(':').unwrap_or(("", s));
    let (ty, count) = shape.strip_suffix(']').and_then(|s| s.split_once('[')).ok_or("TYPE[COUNT] is needed")?;
    let ty = Ty::parse(ty).ok_or_else(|| format!("no type `{ty}`"))?;
    Ok((name, ty, count.parse().map_err(|_| format!("`{count}` is not a count"))?))
}

/// Writes the elements in blocks of limited size.
fn pieces(gpu: &mut Gpu, b: &Buffer, mut value: impl FnMut(usize) -> f64) -> Result<(), String> {
    const PIECE: usize = 1 << 16;
    for from in (0..b.count).step_by(PIECE) {
        let data: Vec<u8> = (from..b.count.min(from + PIECE)).flat_map(|k| b.ty.encode(value(k))).collect();
        gpu.write(b.addr + (from * b.ty.bytes()) as u64, &data).map_err(|e| format!("{e:?}"))?;
    }
    Ok(())
}

/// The memory in bytes that this machine can still provide, if the system reports it.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
