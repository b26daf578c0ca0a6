//! How the simulator runs kernels, and the environment variables that say so.

use std::fmt::Display;
use std::str::FromStr;

use warpsim::{Checks, Completion, Options};

use crate::runtime::environment::variable;
use crate::runtime::error::{Error, Result};

/// When asynchronous copies and tensor-core work happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AsyncCompletion {
    /// As soon as they are issued.
    Earliest,
    /// When a wait demands it, so that a missing one shows as stale data.
    #[default]
    Latest,
}

/// How the simulator runs kernels. Accesses outside an allocation always end a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether reads of what nobody has written are findings.
    pub init: bool,
    /// Whether unordered accesses to the same memory are findings.
    pub race: bool,
    /// Whether misused barriers are findings.
    pub sync: bool,
    /// Whether accesses at addresses that overflowed 32 bits on the way are findings.
    pub offsets: bool,
    /// Order of the warps and of the streams. 0 takes warps as they come, and does what is queued on a stream at once. Any other number
    /// draws orders from it: then what a stream has queued is done when the host waits for it, and findings show there.
    pub seed: u64,
    /// When asynchronous work happens.
    pub completion: AsyncCompletion,
    /// Host threads; 0 for one a core.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let completion = AsyncCompletion::Latest;
        Self { init: true, race: true, sync: true, offsets: true, seed: 0, completion, threads: 0 }
    }
}

impl Settings {
    /// The defaults (every check), as `WARPSMITH_SIM_CHECKS` (`all`, `none` or a list of `init`, `race`, `sync`, `offsets`),
    /// `WARPSMITH_SIM_ASYNC` (`earliest`, `latest`), `WARPSMITH_SIM_SEED` and `WARPSMITH_SIM_THREADS` change them.
    pub fn from_env() -> Result<Self> {
        Self::parse(variable)
    }

    fn parse(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let bad = |name: &str, value: &str, expected: &str| Error::param("simulator", name, value, expected);
        let mut settings = Self::default();
        if let Some(text) = get("WARPSMITH_SIM_CHECKS") {
            let all = text == "all";
            settings = Self { init: all, race: all, sync: all, offsets: all, ..settings };
            for word in text.split(',').filter(|_| !all && text != "none") {
                match word.trim() {
                    "init" => settings.init = true,
                    "race" => settings.race = true,
                    "sync" => settings.sync = true,
                    "offsets" => settings.offsets = true,
                    _ => {
                        return Err(bad("WARPSMITH_SIM_CHECKS", &text, "all, none, or some of init,race,sync,offsets"));
                    }
                }
            }
        }
        match get("WARPSMITH_SIM_ASYNC").as_deref() {
            None => {}
            Some("earliest") => settings.completion = AsyncCompletion::Earliest,
            Some("latest") => settings.completion = AsyncCompletion::Latest,
            Some(other) => return Err(bad("WARPSMITH_SIM_ASYNC", other, "earliest or latest")),
        }
        settings.seed = number(&get, "WARPSMITH_SIM_SEED")?.unwrap_or(settings.seed);
        settings.threads = number(&get, "WARPSMITH_SIM_THREADS")?.unwrap_or(settings.threads);
        Ok(settings)
    }

    /// The `order`th way to run with every check. The first is the warps' own order, with asynchronous work as late as it may be;
    /// the second runs it as early as it may be, in an order drawn from `seed`; and so on.
    pub fn of_order(seed: u64, order: u64) -> Self {
        Self {
            seed: if order == 0 { 0 } else { seed.wrapping_mul(0x9E37_79B9).wrapping_add(order) },
            completion: if order.is_multiple_of(2) { AsyncCompletion::Latest } else { AsyncCompletion::Earliest },
            ..Self::default()
        }
    }

    pub(super) fn options(self) -> Options {
        Options {
            checks: Checks { init: self.init, race: self.race, sync: self.sync, offsets: self.offsets },
            seed: self.seed,
            async_completion: match self.completion {
                AsyncCompletion::Earliest => Completion::Earliest,
                AsyncCompletion::Latest => Completion::Latest,
            },
            threads: self.threads,
            ..Options::default()
        }
    }
}

/// How many devices there are to open: `WARPSMITH_SIM_DEVICES`, otherwise one.
pub(crate) fn device_count() -> Result<usize> {
    Ok(number(variable, "WARPSMITH_SIM_DEVICES")?.unwrap_or(1))
}

fn number<T: FromStr<Err: Display>>(get: impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<T>> {
    let parse = |text: String| text.parse().map_err(|_| Error::param("simulator", name, text, "a whole number"));
    get(name).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, value: &str) -> Result<Settings> {
        Settings::parse(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn the_environment_changes_the_defaults() {
        assert_eq!(Settings::parse(|_| None).unwrap(), Settings::default());
        assert_eq!(parse("WARPSMITH_SIM_CHECKS", "all").unwrap(), Settings::default());
        let checks = |words| {
            let settings = parse("WARPSMITH_SIM_CHECKS", words).unwrap();
            [settings.init, settings.race, settings.sync, settings.offsets]
        };
        assert_eq!(checks("race, sync"), [false, true, true, false]);
        assert_eq!(checks("init,offsets"), [true, false, false, true]);
        assert_eq!(checks("none"), [false; 4]);
        assert_eq!(parse("WARPSMITH_SIM_SEED", "7").unwrap().seed, 7);
        assert_eq!(parse("WARPSMITH_SIM_ASYNC", "earliest").unwrap().completion, AsyncCompletion::Earliest);
    }

    #[test]
    fn unknown_words_are_errors() {
        for (name, value) in [
            ("WARPSMITH_SIM_CHECKS", "memory"),
            ("WARPSMITH_SIM_ASYNC", "soon"),
            ("WARPSMITH_SIM_SEED", "-1"),
            ("WARPSMITH_SIM_THREADS", "two"),
        ] {
            let error = parse(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
