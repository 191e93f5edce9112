//! The machine that this command runs on.

pub mod at_panic;
pub mod name_spaces;
pub mod own_words;
pub mod system;
