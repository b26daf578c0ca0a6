//! The choices of `warpsmith tune` that a device's launches follow.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use super::Device;
use crate::runtime::error::Result;
use crate::runtime::tuned::{self, Chosen, Place, Product, Tuned};

/// What a device has loaded: nothing until a launch asks first.
#[derive(Default)]
pub(super) struct Loaded(RwLock<Option<Chosen>>);

impl Device {
    /// The choices of `warpsmith tune` that launches on this device follow, in place of the rules that are written down in the operators.
    ///
    /// They are read when a launch first asks: from the file that `WARPSMITH_TUNED` names, otherwise from `warpsmith/tuned/` in the user's cache
    /// (`XDG_CACHE_HOME`, `~/.cache`). `WARPSMITH_TUNED=off` reads none. A simulated device follows those alone that
    /// [`use_tuned`](Self::use_tuned) gives it.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if the file is not what `warpsmith tune` wrote for this GPU, version and kernels. Launches then go by the
    /// rules, but if `WARPSMITH_TUNED` names a file that is not there or none of `warpsmith tune`: those that ask fail with this error, in the
    /// simulator too.
    pub fn tuned(&self) -> Result<Tuned> {
        self.with_tuned(|chosen| chosen.all().cloned())
    }

    /// Whether launches of products can go on: not if `WARPSMITH_TUNED` names a file that does not exist or holds no choices.
    #[cfg(feature = "cli")]
    pub(crate) fn can_launch_products(&self) -> bool {
        self.with_tuned(|chosen| chosen.for_launches().is_ok())
    }

    /// Makes launches on this device, from now on and in the whole process, follow the choices in `file`, or none.
    ///
    /// # Errors
    /// As of [`tuned`](Self::tuned); what was in use stays so.
    pub fn use_tuned(&self, file: Option<&Path>) -> Result<()> {
        let tuned = file.map_or(Ok(Tuned::default()), |file| Tuned::read(file, &self.info().name))?;
        *self.0.tuned.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Chosen::Follow(tuned));
        Ok(())
    }

    /// What `read` makes of the variant that was found fastest for a product of an operator, if one was.
    pub(crate) fn tuned_variant<T>(
        &self,
        op: &str,
        product: impl FnOnce() -> Product,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        self.with_tuned(|chosen| match chosen.for_launches()? {
            Some(tuned) if !tuned.is_empty() || tuned::is_observed() => {
                let product = product();
                tuned::ask(product);
                Ok(tuned.get(op, &product).and_then(read))
            }
            _ => Ok(None),
        })
    }

    fn with_tuned<T>(&self, body: impl FnOnce(&Chosen) -> T) -> T {
        let loaded = &self.0.tuned.0;
        if let Some(tuned) = &*loaded.read().unwrap_or_else(PoisonError::into_inner) {
            return body(tuned);
        }
        let mut loaded = loaded.write().unwrap_or_else(PoisonError::into_inner);
        let gpu = &self.info().name;
        body(loaded.get_or_insert_with(|| match Place::of(gpu).read(gpu) {
            // A simulated device does not follow what was measured on a GPU. A file that the user names still has to be readable.
            Chosen::Follow(_) | Chosen::Plan(_) if self.simulator().is_some() => Chosen::Follow(Tuned::default()),
            chosen => chosen,
        }))
    }
}
