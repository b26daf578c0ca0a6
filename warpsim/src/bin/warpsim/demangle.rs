//! Readable names of C++ kernels: scopes and template arguments, without the parameters' types.

/// The readable form of a mangled name; `None` if the name is not mangled, or uses features that kernel names seldom use.
pub(crate) fn demangle(symbol: &str) -> Option<String> {
    let mut reader = Reader { rest: symbol.strip_prefix("_Z")? };
    reader.name()
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<String> {
        if !self.eat("N") {
            return self.part();
        }
        while ["r", "V", "K"].iter().any(|q| self.eat(q)) {}
        let mut parts = vec![];
        while !self.eat("E") {
            parts.push(self.part()?);
        }
        Some(parts.join("::"))
    }

    /// One identifier, with its template arguments.
    fn part(&mut self) -> Option<String> {
        // Internal linkage is of no interest to the reader.
        self.eat("L");
        let digits = self.rest.find(|c: char| !c.is_ascii_digit())?;
        let length: usize = self.rest[..digits].parse().ok()?;
        let word = self.rest.get(digits..digits.checked_add(length)?)?;
        self.rest = &self.rest[digits + length..];
        let word = if word.starts_with("_GLOBAL__N") { "(anonymous namespace)" } else { word };
        Some(match self.arguments()? {
            Some(list) => format!("{word}<{list}>"),
            None => word.to_string(),
        })
    }

    fn arguments(&mut self) -> Option<Option<String>> {
        if !self.eat("I") {
            return Some(None);
        }
        let mut list = vec![];
        while !self.eat("E") {
            list.push(self.argument()?);
        }
        Some(Some(list.join(", ")))
    }

    fn argument(&mut self) -> Option<String> {
        if self.eat("J") {
            let mut pack = vec![];
            while !self.eat("E") {
                pack.push(self.argument()?);
            }
            return Some(pack.join(", "));
        }
        if !self.eat("L") {
            return self.ty();
        }
        let ty = self.ty()?;
        let (value, rest) = self.rest.split_once('E')?;
        self.rest = rest;
        let value = value.replacen('n', "-", 1);
        Some(match (ty.as_str(), value.as_str()) {
            ("bool", v) => if v == "0" { "false" } else { "true" }.to_string(),
            ("int", _) => value,
            _ => format!("({ty}){value}"),
        })
    }

    fn ty(&mut self) -> Option<String> {
        for (mark, text) in [("P", "*"), ("R", "&"), ("K", " const")] {
            if self.eat(mark) {
                return Some(self.ty()? + text);
            }
        }
        const BUILT_IN: [(&str, &str); 19] = [
            ("Dh", "_Float16"),
            ("v", "void"),
            ("b", "bool"),
            ("c", "char"),
            ("a", "signed char"),
            ("h", "unsigned char"),
            ("s", "short"),
            ("t", "unsigned short"),
            ("i", "int"),
            ("j", "unsigned int"),
            ("l", "long"),
            ("m", "unsigned long"),
            ("x", "long long"),
            ("y", "unsigned long long"),
            ("f", "float"),
            ("d", "double"),
            ("w", "wchar_t"),
            ("n", "__int128"),
            ("o", "unsigned __int128"),
        ];
        if let Some((_, text)) = BUILT_IN.iter().find(|(mark, _)| self.eat(mark)) {
            return Some(text.to_string());
        }
        // Back references would need everything that was parsed before: such a name stays mangled.
        self.rest.starts_with(|c: char| c == 'N' || c.is_ascii_digit()).then(|| self.name())?
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_are_readable() {
        for (symbol, name) in [
            ("_Z5saxpyifPfS_", "saxpy"),
            ("_Z6reduceILi256EfEvPKT0_PS0_", "reduce<256, float>"),
            ("_ZN2ns4deep5scaleI7__half2Lb1ELin3EEEvPT_", "ns::deep::scale<__half2, true, -3>"),
            ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k"),
            ("_Z1kIJPKfjEEvDpT_", "k<float const*, unsigned int>"),
            ("_ZN3cub6kernelINS_6PolicyEEEvv", "_"),
            ("saxpy", "_"),
            ("_Z99x", "_"),
            ("_Z", "_"),
        ] {
            assert_eq!(demangle(symbol).as_deref().unwrap_or("_"), name, "{symbol}");
        }
    }
}
