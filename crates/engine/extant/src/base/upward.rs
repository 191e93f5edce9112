//! A reference from a layer to a layer above it, through a trait that is named after its purpose. It is set once, when
//! the layers of a volume are wired, and keeps nothing alive.

use std::sync::{Arc, OnceLock, Weak};

/// The upper layer, once it exists.
pub(crate) struct Upward<T: ?Sized>(OnceLock<Weak<T>>);

impl<T: ?Sized> Default for Upward<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T: ?Sized> Upward<T> {
    /// Wires it; a second call changes nothing.
    pub fn set(&self, above: Weak<T>) {
        let _ = self.0.set(above);
    }

    /// Returns the upper layer, if it exists.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.get()?.upgrade()
    }
}
