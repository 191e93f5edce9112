//! The moment before an image is claimed.

use std::fmt;
use std::sync::Arc;

/// Function that is called before an image is claimed, perhaps several times. A process that ended after it would leave the claim behind.
///
/// ```
/// let before = extant_remote::BeforeClaim::new(|| println!("claims the image"));
/// # drop(before);
/// ```
#[derive(Clone, Default)]
pub struct BeforeClaim(Option<Arc<dyn Fn() + Send + Sync>>);

impl BeforeClaim {
    /// Returns a value that calls a function.
    pub fn new(function: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(function)))
    }

    /// Calls the function, if there is one.
    pub(crate) fn call(&self) {
        if let Some(function) = &self.0 {
            function();
        }
    }
}

impl fmt::Debug for BeforeClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeClaim")
    }
}
