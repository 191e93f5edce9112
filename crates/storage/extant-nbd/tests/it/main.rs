//! A client of NBD servers, over servers written by others and over servers that do what a test wants.

mod behind;
mod conformance;
mod extended;
mod fake;
mod servers;
mod structured;
