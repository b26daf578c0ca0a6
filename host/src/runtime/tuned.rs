//! Choices that `warpsmith tune` has measured: which variant of an operator is fastest on a GPU for a problem of some size.
//!
//! They are lines of text, under a head that says what they hold for: another GPU's, another version's or other kernels' are not used.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::dtype::DType;
use super::error::{Error, Result, printable};
use super::{file, kernels};

/// Names the file to use instead of the one in the user's cache; `off` does without.
pub(crate) const ENV: &str = "WARPSMITH_TUNED";

/// A product, as far as a choice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Product {
    /// The types of the operands and of the result.
    pub dtypes: [DType; 3],
    /// Products of a batch, rows, columns, depth.
    pub sizes: [u32; 4],
    /// How each operand lies, a letter each: adjacent along `k` or along the other dimension, `n`, in packs of 16 bytes; the same as `K` or `N` where rows
    /// lie between packs; `-` if nothing is adjacent.
    pub layouts: [char; 2],
}

/// `bfloat16,bfloat16,bfloat16 1x4096x4096x4096 kk`.
impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b, c], [batch, m, n, k], [of_a, of_b]) = (self.dtypes, self.sizes, self.layouts);
        write!(f, "{a},{b},{c} {batch}x{m}x{n}x{k} {of_a}{of_b}")
    }
}

impl Product {
    fn parse([dtypes, sizes, layouts]: [&str; 3]) -> Option<Self> {
        let letter = |c: &char| "knKN-".contains(*c);
        Some(Self {
            dtypes: all(dtypes.split(',').map(|word| word.parse().ok()))?,
            sizes: all(sizes.split('x').map(|word| word.parse().ok()))?,
            layouts: all(layouts.chars().map(|c| Some(c).filter(letter)))?,
        })
    }
}

/// The values as an array, if all are there and there are exactly `N`.
fn all<T, const N: usize>(values: impl Iterator<Item = Option<T>>) -> Option<[T; N]> {
    values.collect::<Option<Vec<T>>>()?.try_into().ok()
}

/// The fastest variants of operators, by product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuned(HashMap<String, HashMap<Product, String>>);

impl Tuned {
    /// The variant of `op` for a product.
    pub fn get(&self, op: &str, product: &Product) -> Option<&str> {
        self.0.get(op)?.get(product).map(String::as_str)
    }

    /// Makes `variant` the choice, or leaves it to the plan.
    pub fn set(&mut self, op: &str, product: Product, variant: Option<&str>) {
        let of_op = self.0.entry(op.to_owned()).or_default();
        match variant {
            Some(variant) => of_op.insert(product, variant.to_owned()),
            None => of_op.remove(&product),
        };
    }

    /// All choices, in order: operator, product, variant.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Product, &str)> {
        let all = self.0.iter().flat_map(|(op, of_op)| of_op.iter().map(move |(p, v)| ((op.as_str(), *p), v.as_str())));
        all.collect::<BTreeMap<_, _>>().into_iter().map(|((op, product), variant)| (op, product, variant))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the choices for a GPU. They have to be of this version and of these kernels.
    ///
    /// # Errors
    /// [`Error::File`] if there is no such file, if it is of another GPU, version or kernels, or if a line is none of a choice.
    pub fn read(path: &Path, gpu: &str) -> Result<Self> {
        Self::checked(path, gpu).map_err(|unusable| Error::file(path, unusable.reason))
    }

    fn checked(path: &Path, gpu: &str) -> Result<Self, Unusable> {
        let text = file::text(path).map_err(|error| Unusable::broken(error.to_string()))?;
        Self::parse(&text, gpu)
    }

    /// The GPU that a file says it was written for.
    #[cfg(feature = "cli")]
    pub(crate) fn gpu_of(path: &Path) -> Option<String> {
        let text = file::text(path).ok()?;
        text.lines().find_map(|line| Some(line.trim().strip_prefix("gpu ")?.trim().to_owned()))
    }

    /// Writes them, in place of what the file held. Folders that are missing are made, symbolic links stay.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if that is not possible.
    pub fn write(&self, path: &Path, gpu: &str) -> Result<()> {
        let unwritten = |error: std::io::Error| Error::Unwritten { path: path.to_owned(), reason: error.to_string() };
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let path = target.as_path();
        if path.exists() && !path.is_file() {
            // A device, in whose place no file must come.
            return Err(unwritten(std::io::Error::other("it is no file")));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or(Ok(()), std::fs::create_dir_all).map_err(unwritten)?;
        // The file is written beside its place and then renamed, so that a reader sees either the old or the new file as a whole.
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&beside, self.text(gpu)?).and_then(|()| std::fs::rename(&beside, path)).map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            unwritten(error)
        })
    }

    fn text(&self, gpu: &str) -> Result<String> {
        let mut text = "# What `warpsmith tune` found to be faster than the plan: operator, types, batch x m x n x k, how A and B lie, variant.\n".to_owned();
        for (name, value) in head(gpu)? {
            let _ = writeln!(text, "{name} {value}");
        }
        for (op, product, variant) in self.iter() {
            let _ = writeln!(text, "{op} {product} {variant}");
        }
        Ok(text)
    }

    fn parse(text: &str, gpu: &str) -> Result<Self, Unusable> {
        let numbered = text.lines().zip(1..).map(|(line, at)| (line.trim(), at));
        let mut lines = numbered.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        for (name, wanted) in head(gpu).map_err(|error| Unusable::broken(error.to_string()))? {
            let line = lines.next().and_then(|(line, _)| line.split_once(' ')).filter(|(found, _)| *found == name);
            let Some((_, found)) = line else {
                let reason = format!("no choices of `warpsmith tune`: there is no line `{name} …`");
                return Err(Unusable::broken(reason));
            };
            if found.trim() != wanted {
                let found = printable(found.trim());
                let reason = format!("tuned for {name} {found}, not for {wanted}: run `warpsmith tune` again");
                return Err(Unusable { reason, is_of_other: true });
            }
        }
        let mut tuned = Self::default();
        for (line, at) in lines {
            let words: Option<[&str; 5]> = all(line.split_whitespace().map(Some));
            let choice = words.and_then(|[op, dtypes, sizes, layouts, variant]| {
                Some((op, Product::parse([dtypes, sizes, layouts])?, variant))
            });
            let Some((op, product, variant)) = choice else {
                let reason = format!("line {at} is no choice of `warpsmith tune`: {}", printable(line));
                return Err(Unusable::broken(reason));
            };
            tuned.set(op, product, Some(variant));
        }
        Ok(tuned)
    }
}

/// Why a file has no choices for launches here.
#[derive(Debug)]
struct Unusable {
    reason: String,
    /// It has some for another GPU, version or kernels.
    is_of_other: bool,
}

impl Unusable {
    fn broken(reason: String) -> Self {
        Self { reason, is_of_other: false }
    }
}

/// What launches make of the choices that there are.
#[derive(Debug)]
pub(crate) enum Chosen {
    /// They follow them.
    Follow(Tuned),
    /// They go by the plan: the file in the cache is unusable, or the choices are of another GPU, version or kernels.
    Plan(Error),
    /// They fail: `WARPSMITH_TUNED` names a file that does not exist or holds no choices.
    Refuse(Error),
}

impl Chosen {
    /// The choices, or why there are none.
    pub(crate) fn all(&self) -> Result<&Tuned> {
        match self {
            Self::Follow(tuned) => Ok(tuned),
            Self::Plan(error) | Self::Refuse(error) => Err(error.clone()),
        }
    }

    /// What launches go by.
    pub(crate) fn for_launches(&self) -> Result<Option<&Tuned>> {
        match self {
            Self::Follow(tuned) => Ok(Some(tuned)),
            Self::Plan(_) => Ok(None),
            Self::Refuse(error) => Err(error.clone()),
        }
    }
}

/// What choices hold for.
fn head(gpu: &str) -> Result<[(&'static str, String); 3]> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok([("version", version), ("kernels", kernels::sources()?.to_owned()), ("gpu", gpu.trim().to_owned())])
}

/// Where choices are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: `WARPSMITH_TUNED=off`, or there is no cache.
    Off,
    /// In the file that `WARPSMITH_TUNED` names.
    Named(PathBuf),
    /// In the user's cache.
    Cache(PathBuf),
}

impl Place {
    /// Where those for a GPU of that name are, by the environment.
    pub fn of(gpu: &str) -> Self {
        Self::by(gpu, |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    fn by(gpu: &str, get: impl Fn(&str) -> Option<PathBuf>) -> Self {
        if let Some(file) = get(ENV) {
            return if file.as_os_str() == "off" { Self::Off } else { Self::Named(file) };
        }
        let cache = get("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
        let Some(cache) = cache.or_else(|| Some(get("HOME")?.join(".cache"))) else { return Self::Off };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let gpu: String = gpu.trim().chars().map(plain).collect();
        Self::Cache(cache.join("warpsmith").join("tuned").join(format!("{gpu}.txt")))
    }

    /// The file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Off => None,
            Self::Named(file) | Self::Cache(file) => Some(file),
        }
    }

    /// The files for any GPU.
    #[cfg(feature = "cli")]
    pub(crate) fn all_files(&self) -> Vec<PathBuf> {
        let folder = match self {
            Self::Off => return Vec::new(),
            Self::Named(file) => return vec![file.clone()],
            Self::Cache(file) => file.parent().and_then(|folder| folder.read_dir().ok()),
        };
        let files = folder.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "txt")).collect();
        files.sort();
        files
    }

    /// The choices for a GPU. A cache without a file has no choices, which is no error.
    pub(crate) fn read(&self, gpu: &str) -> Chosen {
        let (Self::Named(file) | Self::Cache(file)) = self else { return Chosen::Follow(Tuned::default()) };
        match (self, Tuned::checked(file, gpu)) {
            (_, Ok(tuned)) => Chosen::Follow(tuned),
            (Self::Cache(_), Err(_)) if !file.exists() => Chosen::Follow(Tuned::default()),
            (Self::Named(_), Err(Unusable { reason, is_of_other: false })) => {
                Chosen::Refuse(Error::file(file, format!("{ENV} names it: {reason}")))
            }
            (_, Err(Unusable { reason, .. })) => Chosen::Plan(Error::file(file, reason)),
        }
    }
}

thread_local! {
    /// What this thread's launches have asked for, while somebody wants to know.
    static ASKED: RefCell<Option<Vec<Product>>> = const { RefCell::new(None) };
}

/// Runs `body` and lists the products that its launches on this thread ask choices for.
pub(crate) fn asked<T>(body: impl FnOnce() -> T) -> (T, Vec<Product>) {
    let outer = ASKED.replace(Some(Vec::new()));
    let value = body();
    (value, ASKED.replace(outer).unwrap_or_default())
}

/// Whether a launch on this thread has to say what it asks for.
pub(crate) fn is_observed() -> bool {
    ASKED.try_with(|list| list.borrow().is_some()).unwrap_or(false)
}

/// Tells whoever wants to know.
pub(crate) fn ask(product: Product) {
    ASKED.with_borrow_mut(|list| list.iter_mut().for_each(|list| list.push(product)));
}

#[cfg(test)]
#[path = "tuned/tests.rs"]
mod tests;
