//! Classes: the purposes of locks. All locks of one purpose are one class.

/// A class of locks. [`lock_class!`](crate::lock_class) makes one.
///
/// ```
/// use lockmeter::{Class, LockClass};
/// lockmeter::lock_class!(pub Journal = "journal");
/// assert_eq!(Journal::class().name(), "journal");
/// assert_eq!(Class::new("other").name(), "other");
/// ```
#[derive(Debug)]
pub struct Class {
    name: &'static str,
}

impl Class {
    /// Makes a class of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Returns the name, as reports show it. Classes of one name are shown as one.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A type that stands for a class, so that a lock needs no space to store its class.
///
/// ```
/// use lockmeter::LockClass;
/// lockmeter::lock_class!(
///     /// One lock for each directory.
///     Names = "names"
/// );
/// assert_eq!(Names::class().name(), "names");
/// ```
pub trait LockClass: 'static {
    /// Returns the class.
    fn class() -> &'static Class;
}

/// Declares a class: `lock_class!(pub Name = "what reports call it")`.
#[macro_export]
macro_rules! lock_class {
    ($(#[$meta:meta])* $vis:vis $name:ident = $text:expr) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis enum $name {}

        impl $crate::LockClass for $name {
            fn class() -> &'static $crate::Class {
                static CLASS: $crate::Class = $crate::Class::new($text);
                &CLASS
            }
        }
    };
}
