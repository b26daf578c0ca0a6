//! The variables of modules: `__device__` and `__constant__`.

use crate::launch::{Gpu, Module};
use crate::memory::Memory;
use crate::names::plain;
use crate::ptx::ast::{Ast, Init, Space, Var, type_bytes, type_bytes_of};
use crate::report::{Fault, Kind};

impl Gpu {
    /// Address and size in bytes of a module's global or constant variable, for writing it before a launch and reading it afterwards; `None`
    /// if the module has no such variable. The first call places the module's variables and writes their initial values.
    pub fn variable(&mut self, module: &Module, name: &str) -> Result<Option<(u64, u64)>, Fault> {
        let found = module.ast.vars.iter().position(|v| resident(v) && v.name.as_ref() == name);
        let Some(k) = found else { return Ok(None) };
        let places = self.load(module.id, &module.ast, name)?;
        Ok(Some((places[k], type_bytes_of(&module.ast.vars[k]))))
    }

    /// The addresses of a module's variables.
    pub(crate) fn load(&mut self, module: u64, ast: &Ast, user: &str) -> Result<Vec<u64>, Fault> {
        if let Some(places) = self.globals.get(&module) {
            return Ok(places.clone());
        }
        let places = place(&mut self.memory, ast, user)?;
        self.globals.insert(module, places.clone());
        Ok(places)
    }
}

impl Module {
    /// Names of the module's global and constant variables.
    pub fn variables(&self) -> Vec<&str> {
        self.ast.vars.iter().filter(|v| resident(v)).map(|v| v.name.as_ref()).collect()
    }
}

/// Places the module's global and constant variables and writes their initial values.
fn place(memory: &mut Memory, ast: &Ast, kernel: &str) -> Result<Vec<u64>, Fault> {
    let mut addrs = vec![];
    for v in &ast.vars {
        let bytes = type_bytes_of(v).max(1);
        let place = match v.space {
            Space::Const => memory.alloc_constant(bytes, plain(&v.name)),
            Space::Global => memory.alloc(bytes, plain(&v.name)),
            _ => Ok(0),
        };
        addrs.push(place.map_err(|error| Fault::of_memory(kernel, error, &format!("for `{}`", v.name)))?);
    }
    initialise(memory, ast, &addrs).map_err(|message| Fault::of_launch(kernel, Kind::InvalidLaunch, message))?;
    Ok(addrs)
}

/// Whether a variable lies in device memory.
fn resident(v: &Var) -> bool {
    matches!(v.space, Space::Global | Space::Const)
}

fn initialise(memory: &Memory, ast: &Ast, addrs: &[u64]) -> Result<(), String> {
    for (v, at) in ast.vars.iter().zip(addrs).filter(|(v, _)| resident(v)) {
        let n = type_bytes(&v.ty) as usize;
        let mut bytes = vec![];
        for i in &v.init {
            let value = match i {
                Init::Int(x) => *x,
                Init::Float(x) if v.ty.as_ref() == "f32" => u64::from((*x as f32).to_bits()),
                Init::Float(x) => x.to_bits(),
                Init::F32(x) => u64::from(*x),
                Init::F64(x) => *x,
                Init::Addr(name, off) | Init::Masked(name, off, _) => {
                    let var = ast.vars.iter().position(|o| o.name == *name).map(|k| addrs[k].wrapping_add(*off as u64));
                    let Some(at) = var.or_else(|| Some(u64::from(ast.place(name)?) + 1)) else {
                        return Err(format!(
                            "`{}` is initialised with the address of `{name}`, which the module does not have",
                            v.name
                        ));
                    };
                    match i {
                        Init::Masked(_, _, mask) => (at & mask) >> mask.trailing_zeros().min(63),
                        _ => at,
                    }
                }
            };
            bytes.extend_from_slice(&value.to_le_bytes()[..n.min(8)]);
        }
        let given = bytes.len() as u64;
        let rest = type_bytes_of(v).checked_sub(given);
        let rest = rest.ok_or_else(|| format!("`{}` has more initial values than elements", v.name))?;
        // Variables without an initialiser start as zero.
        let filled = memory.write(*at, &bytes).and_then(|()| memory.fill(at + given, &[0], rest));
        filled.map_err(|_| format!("`{}` does not fit", v.name))?;
    }
    Ok(())
}
