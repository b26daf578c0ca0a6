//! Constant expressions: `(3 * 4 + 1) << 2`, `-7 / 2`, `4 > 3 ? 10 : 20`.

use super::ParseError;
use super::ast::Arg;
use super::lexer::Tok;
use super::parser::Parser;

/// Binary operators with their precedence; an operator comes before its own prefixes.
const OPERATORS: [(&str, u32); 18] = [
    ("<<", SHIFT),
    (">>", SHIFT),
    ("<=", 6),
    (">=", 6),
    ("==", 5),
    ("!=", 5),
    ("&&", 1),
    ("||", 0),
    ("*", PRODUCT),
    ("/", PRODUCT),
    ("%", PRODUCT),
    ("+", 8),
    ("-", 8),
    ("<", 6),
    (">", 6),
    ("&", 4),
    ("^", 3),
    ("|", 2),
];
const PRODUCT: u32 = 9;
const SHIFT: u32 = 7;

/// Maximum depth of an expression.
const MAX_DEPTH: u32 = 64;

/// The value of an expression. Hexadecimal floating-point numbers keep their bits.
#[derive(Clone, Copy)]
enum Value {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    F32(u32),
    F64(u64),
}

impl Value {
    fn float(self) -> f64 {
        match self {
            Value::Signed(v) => v as f64,
            Value::Unsigned(v) => v as f64,
            Value::Float(v) => v,
            Value::F32(v) => f64::from(f32::from_bits(v)),
            Value::F64(v) => f64::from_bits(v),
        }
    }

    fn bits(self) -> Option<u64> {
        match self {
            Value::Signed(v) => Some(v as u64),
            Value::Unsigned(v) => Some(v),
            _ => None,
        }
    }

    fn truth(self) -> bool {
        self.bits().map_or(self.float() != 0.0, |v| v != 0)
    }
}

impl Parser<'_> {
    /// An operand that begins with a number, a parenthesis or a sign.
    pub(super) fn constant(&mut self) -> Result<Arg, ParseError> {
        Ok(match self.choice(0)? {
            Value::Signed(v) => Arg::Int(v as u64),
            Value::Unsigned(v) => Arg::Int(v),
            Value::Float(v) => Arg::Decimal(v),
            Value::F32(v) => Arg::F32(v),
            Value::F64(v) => Arg::F64(v),
        })
    }

    /// An integer, such as the number of elements of an array.
    pub(super) fn constant_int(&mut self) -> Result<u64, ParseError> {
        match self.choice(0)?.bits() {
            Some(v) => Ok(v),
            None => self.err("an integer is needed"),
        }
    }

    /// The part after a `+` or `-` in an address: it ends before the next such sign, which begins another offset.
    pub(super) fn constant_term(&mut self) -> Result<u64, ParseError> {
        match self.binary(PRODUCT, 0)?.bits() {
            Some(v) => Ok(v),
            None => self.err("an integer is needed"),
        }
    }

    fn choice(&mut self, depth: u32) -> Result<Value, ParseError> {
        let condition = self.binary(0, depth)?;
        if !self.eat(b'?') {
            return Ok(condition);
        }
        let yes = self.choice(depth + 1)?;
        self.expect(b':')?;
        let no = self.choice(depth + 1)?;
        Ok(if condition.truth() { yes } else { no })
    }

    fn binary(&mut self, least: u32, depth: u32) -> Result<Value, ParseError> {
        let mut x = self.unary(depth)?;
        while let Some((op, binds)) = self.operator().filter(|o| o.1 >= least) {
            self.at += if op == "%" { 1 } else { op.len() };
            let y = self.binary(binds + 1, depth + 1)?;
            x = match compute(op, x, y) {
                Some(v) => v,
                None => return self.err(format!("`{op}` of these constants is not defined")),
            };
        }
        Ok(x)
    }

    fn operator(&self) -> Option<(&'static str, u32)> {
        let first = match self.peek()? {
            Tok::Punct(c) => c,
            // This character begins names.
            Tok::Word("%") => b'%',
            _ => return None,
        };
        OPERATORS.into_iter().find(|(op, _)| match op.as_bytes() {
            [a] => *a == first,
            [a, b] => *a == first && self.peek_at(1) == Some(Tok::Punct(*b)),
            _ => false,
        })
    }

    fn unary(&mut self, depth: u32) -> Result<Value, ParseError> {
        if depth > MAX_DEPTH {
            return self.err("an expression nested too deeply");
        }
        let Some(token) = self.peek() else { return self.unexpected("a number") };
        self.at += 1;
        let value = match token {
            Tok::Int(v) => i64::try_from(v).map_or(Value::Unsigned(v), Value::Signed),
            Tok::F32(v) => Value::F32(v),
            Tok::F64(v) => Value::F64(v),
            Tok::Decimal(v) => Value::Float(v),
            Tok::Word("WARP_SZ") => Value::Signed(32),
            Tok::Punct(b'+') => self.unary(depth + 1)?,
            Tok::Punct(b'-') => match self.unary(depth + 1)? {
                Value::Signed(v) => Value::Signed(v.wrapping_neg()),
                Value::Unsigned(v) => Value::Unsigned(v.wrapping_neg()),
                Value::Float(v) => Value::Float(-v),
                Value::F32(v) => Value::F32(v ^ 1 << 31),
                Value::F64(v) => Value::F64(v ^ 1 << 63),
            },
            Tok::Punct(b'!') => Value::Signed(i64::from(!self.unary(depth + 1)?.truth())),
            Tok::Punct(b'~') => match self.unary(depth + 1)? {
                Value::Signed(v) => Value::Signed(!v),
                Value::Unsigned(v) => Value::Unsigned(!v),
                _ => return self.err("`~` is of integers"),
            },
            Tok::Punct(b'(') => {
                let cast = match self.peek() {
                    Some(Tok::Word(w @ (".s64" | ".u64"))) => Some(w == ".s64"),
                    _ => None,
                };
                let Some(signed) = cast else {
                    let v = self.choice(depth + 1)?;
                    self.expect(b')')?;
                    return Ok(v);
                };
                self.at += 1;
                self.expect(b')')?;
                match (self.unary(depth + 1)?.bits(), signed) {
                    (Some(v), true) => Value::Signed(v as i64),
                    (Some(v), false) => Value::Unsigned(v),
                    _ => return self.err("a cast is of integers"),
                }
            }
            _ => {
                self.at -= 1;
                return self.unexpected("a number");
            }
        };
        Ok(value)
    }
}

fn compute(op: &str, x: Value, y: Value) -> Option<Value> {
    let truth = |b: bool| Some(Value::Signed(i64::from(b)));
    match op {
        "&&" => return truth(x.truth() && y.truth()),
        "||" => return truth(x.truth() || y.truth()),
        _ => {}
    }
    let (Some(a), Some(b)) = (x.bits(), y.bits()) else {
        let (a, b) = (x.float(), y.float());
        return match op {
            "+" => Some(Value::Float(a + b)),
            "-" => Some(Value::Float(a - b)),
            "*" => Some(Value::Float(a * b)),
            "/" => Some(Value::Float(a / b)),
            "<" => truth(a < b),
            ">" => truth(a > b),
            "<=" => truth(a <= b),
            ">=" => truth(a >= b),
            "==" => truth(a == b),
            "!=" => truth(a != b),
            _ => None,
        };
    };
    // If one operand is unsigned, both are unsigned; for a shift, the left operand decides.
    let left = matches!(x, Value::Signed(_));
    let signed = left && matches!(y, Value::Signed(_));
    let integer = |v: u64, signed: bool| Some(if signed { Value::Signed(v as i64) } else { Value::Unsigned(v) });
    let order = if signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
    match op {
        "+" => integer(a.wrapping_add(b), signed),
        "-" => integer(a.wrapping_sub(b), signed),
        "*" => integer(a.wrapping_mul(b), signed),
        "/" if signed => (a as i64).checked_div(b as i64).map(Value::Signed),
        "/" => a.checked_div(b).map(Value::Unsigned),
        "%" if signed => (a as i64).checked_rem(b as i64).map(Value::Signed),
        "%" => a.checked_rem(b).map(Value::Unsigned),
        "<<" => integer(if b > 63 { 0 } else { a << b }, left),
        ">>" if left => Some(Value::Signed(a as i64 >> b.min(63))),
        ">>" => Some(Value::Unsigned(if b > 63 { 0 } else { a >> b })),
        "&" => integer(a & b, signed),
        "^" => integer(a ^ b, signed),
        "|" => integer(a | b, signed),
        "<" => truth(order.is_lt()),
        ">" => truth(order.is_gt()),
        "<=" => truth(order.is_le()),
        ">=" => truth(order.is_ge()),
        "==" => truth(a == b),
        _ => truth(a != b),
    }
}
