//! Scalar parameters of an operator, typed by their defaults.

use std::fmt;

use super::{OpInfo, Variant};
use crate::runtime::error::{Error, Result};

/// The name under which [`Params`] carries a forced variant; every operator that has variants accepts it.
pub const VARIANT: &str = "variant";

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamValue {
    /// A real number.
    Float(f64),
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// One of several words; this is the selected one.
    Choice(&'static str),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The shortest decimal that parses to the same f32: 0.1, not 0.10000000149011612.
            Self::Float(v) if f64::from(*v as f32) == *v => write!(f, "{}", *v as f32),
            Self::Float(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Choice(v) => f.write_str(v),
        }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident as $repr:ty),* $(,)?) => {
        $(impl From<$ty> for ParamValue {
            fn from(v: $ty) -> Self {
                Self::$variant(v as $repr)
            }
        })*
    };
}
from!(f32 => Float as f64, f64 => Float as f64, i32 => Int as i64, i64 => Int as i64, u32 => Int as i64);

impl From<bool> for ParamValue {
    fn from(v: bool) -> Self {
        Self::Bool(v)
    }
}

/// A parameter that an operator declares.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// Its name.
    pub name: &'static str,
    /// Its default value, whose kind is the parameter's type.
    pub default: ParamValue,
    /// The permitted words of a [`ParamValue::Choice`]; empty for other kinds.
    pub choices: &'static [&'static str],
    /// Its meaning, with its unit or range.
    pub doc: &'static str,
}

impl ParamInfo {
    /// A real parameter.
    pub const fn float(name: &'static str, default: f64, doc: &'static str) -> Self {
        Self { name, default: ParamValue::Float(default), choices: &[], doc }
    }

    /// A whole-number parameter.
    pub const fn int(name: &'static str, default: i64, doc: &'static str) -> Self {
        Self { name, default: ParamValue::Int(default), choices: &[], doc }
    }

    /// A switch.
    pub const fn bool(name: &'static str, default: bool, doc: &'static str) -> Self {
        Self { name, default: ParamValue::Bool(default), choices: &[], doc }
    }

    /// One word of `choices`.
    pub const fn choice(
        name: &'static str,
        default: &'static str,
        choices: &'static [&'static str],
        doc: &'static str,
    ) -> Self {
        Self { name, default: ParamValue::Choice(default), choices, doc }
    }
}

/// Values for the parameters of one operator; parameters that are not set have their defaults.
#[derive(Clone, Debug)]
pub struct Params {
    info: &'static OpInfo,
    set: Vec<(&'static str, ParamValue)>,
    variant: Option<&'static Variant>,
}

impl Params {
    /// The defaults.
    pub fn new(info: &'static OpInfo) -> Self {
        Self { info, set: Vec::new(), variant: None }
    }

    /// Sets `name`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] names the parameter and what it may be.
    pub fn with(mut self, name: &str, value: impl Into<ParamValue>) -> Result<Self> {
        let value = value.into();
        let declared = self.declared(name)?;
        let value = match (declared.default, value) {
            // An integer is accepted for a real parameter.
            (ParamValue::Float(_), ParamValue::Int(v)) => ParamValue::Float(v as f64),
            (ParamValue::Float(_), v @ ParamValue::Float(_))
            | (ParamValue::Int(_), v @ ParamValue::Int(_))
            | (ParamValue::Bool(_), v @ ParamValue::Bool(_)) => v,
            (ParamValue::Choice(_), ParamValue::Choice(v)) if declared.choices.contains(&v) => ParamValue::Choice(v),
            (_, v) => return Err(self.bad(name, v, self.wanted(declared))),
        };
        self.put(declared.name, value);
        Ok(self)
    }

    /// Sets a value without checking it; [`check`](Self::check) reports errors later.
    pub(crate) fn put(&mut self, name: &'static str, value: ParamValue) {
        self.set.retain(|(n, _)| *n != name);
        self.set.push((name, value));
    }

    /// Checks that everything set is declared by the operator.
    ///
    /// # Errors
    /// Same as [`with`](Self::with).
    pub fn check(&self) -> Result<()> {
        let fresh = Self::new(self.info);
        self.set.iter().try_fold(fresh, |params, (name, value)| params.with(name, *value)).map(drop)
    }

    /// Forces the variant.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] lists the variants there are.
    pub fn with_variant(mut self, name: &str) -> Result<Self> {
        self.variant = Some(self.info.variant(name)?);
        Ok(self)
    }

    /// Applies a `name=value` text, as on the command line.
    ///
    /// # Errors
    /// Same as [`with`](Self::with), and [`Error::InvalidParam`] if the text is of another form.
    pub fn with_text(self, text: &str) -> Result<Self> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(self.bad(text, "", "a value, as in name=value".to_owned()));
        };
        let (name, value) = (name.trim(), value.trim());
        if name == VARIANT {
            return self.with_variant(value);
        }
        let declared = self.find(name).ok_or_else(|| self.unknown(name, value))?;
        let parsed = match declared.default {
            ParamValue::Float(_) => value.parse().ok().map(ParamValue::Float),
            ParamValue::Int(_) => value.parse().ok().map(ParamValue::Int),
            ParamValue::Bool(_) => value.parse().ok().map(ParamValue::Bool),
            ParamValue::Choice(_) => declared.choices.iter().find(|c| **c == value).map(|c| ParamValue::Choice(c)),
        };
        match parsed {
            Some(v) => self.with(name, v),
            None => Err(self.bad(name, value, self.wanted(declared))),
        }
    }

    /// The value of a real parameter.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter or it is of another kind.
    pub fn f64(&self, name: &str) -> Result<f64> {
        match self.get(name)? {
            ParamValue::Float(v) => Ok(v),
            ParamValue::Int(v) => Ok(v as f64),
            v => Err(self.bad(name, v, "read as a real number".to_owned())),
        }
    }

    /// The value of a real parameter, as an f32.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter or it is of another kind.
    pub fn f32(&self, name: &str) -> Result<f32> {
        Ok(self.f64(name)? as f32)
    }

    /// The value of a whole-number parameter.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter or it is of another kind.
    pub fn i64(&self, name: &str) -> Result<i64> {
        match self.get(name)? {
            ParamValue::Int(v) => Ok(v),
            v => Err(self.bad(name, v, "read as a whole number".to_owned())),
        }
    }

    /// The value of a switch.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter or it is of another kind.
    pub fn bool(&self, name: &str) -> Result<bool> {
        match self.get(name)? {
            ParamValue::Bool(v) => Ok(v),
            v => Err(self.bad(name, v, "read as true or false".to_owned())),
        }
    }

    /// The value of a parameter that is one of several words.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter or it is of another kind.
    pub fn choice(&self, name: &str) -> Result<&'static str> {
        match self.get(name)? {
            ParamValue::Choice(v) => Ok(v),
            v => Err(self.bad(name, v, "read as a word".to_owned())),
        }
    }

    /// Whether all parameters have their defaults.
    pub fn is_default(&self) -> bool {
        let differs = |(name, value): &(&str, ParamValue)| self.declared(name).is_ok_and(|p| p.default != *value);
        self.variant.is_none() && !self.set.iter().any(differs)
    }

    /// The operator that these belong to.
    pub fn info(&self) -> &'static OpInfo {
        self.info
    }

    /// The forced variant, if one is.
    pub fn variant(&self) -> Option<&'static Variant> {
        self.variant
    }

    /// The value of a parameter, set or default.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if the operator has no such parameter.
    pub fn get(&self, name: &str) -> Result<ParamValue> {
        let declared = self.declared(name)?;
        let set = self.set.iter().find(|(n, _)| *n == declared.name);
        Ok(set.map_or(declared.default, |(_, v)| *v))
    }

    fn declared(&self, name: &str) -> Result<&'static ParamInfo> {
        self.find(name).ok_or_else(|| self.unknown(name, ""))
    }

    fn find(&self, name: &str) -> Option<&'static ParamInfo> {
        self.info.params.iter().find(|p| p.name == name)
    }

    fn unknown(&self, name: &str, value: &str) -> Error {
        let names: Vec<_> = self.info.params.iter().map(|p| p.name).collect();
        let wanted = if names.is_empty() {
            "nothing: the operator has no parameters".to_owned()
        } else {
            format!("one of the operator's parameters: {}", names.join(", "))
        };
        self.bad(name, value, wanted)
    }

    fn wanted(&self, declared: &ParamInfo) -> String {
        match declared.default {
            ParamValue::Float(_) => "a number".to_owned(),
            ParamValue::Int(_) => "a whole number".to_owned(),
            ParamValue::Bool(_) => "true or false".to_owned(),
            ParamValue::Choice(_) => format!("one of {}", declared.choices.join(", ")),
        }
    }

    fn bad(&self, name: &str, value: impl fmt::Display, wanted: String) -> Error {
        self.info.param_error(name, value, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_shown_as_short_as_they_were_written() {
        let shown = |value: ParamValue| value.to_string();
        assert_eq!(
            [0.1f32, 1e-5, 16_777_216.0, f32::NAN].map(|v| shown(v.into())),
            ["0.1", "0.00001", "16777216", "NaN"]
        );
        assert_eq!([0.1f64, 0.123456789, 16_777_217.0].map(|v| shown(v.into())), ["0.1", "0.123456789", "16777217"]);
        // Displayed values parse to the same f32.
        for value in [0.1f32, f32::MIN_POSITIVE, f32::MAX, 1.0 / 3.0] {
            assert_eq!(shown(value.into()).parse::<f64>().unwrap() as f32, value);
        }
    }
}
