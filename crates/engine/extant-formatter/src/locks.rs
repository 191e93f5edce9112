//! The classes of the crate's locks, as the lock meter names them.

pub(crate) use lockmeter::Mutex;

use lockmeter::lock_class;

lock_class!(
    /// Attribute blocks and table gaps, between the formatter's threads.
    pub(crate) FormatterShared = "formatter, shared"
);
lock_class!(
    /// Memory of images that are gone.
    pub(crate) BlockMemory = "block memory"
);
lock_class!(
    /// Memory of formatted item lists.
    pub(crate) SpareItems = "spare items"
);
