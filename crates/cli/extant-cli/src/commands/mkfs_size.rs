//! The size of a new file system, as given on the command line.

use anyhow::{Context, Result};
use extant_terminal::numbers::size;
use std::str::FromStr;

/// The requested size of the file system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    Bytes(u64),
    /// The size that the content needs.
    Min,
    /// Percentage added to the size that the content needs.
    More(f64),
}

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "min" {
            return Ok(Self::Min);
        }
        let Some(more) = text.strip_prefix('+') else {
            return size(text).map(Self::Bytes);
        };
        let number = more.strip_suffix('%').and_then(|n| n.parse().ok());
        let number = number.filter(|n: &f64| (0.0..=900.0).contains(n));
        number
            .map(Self::More)
            .context("write +0% to +900%, of what the content needs")
    }
}

impl Size {
    /// Returns the size in bytes, if it is given in bytes.
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the percentage of the volume that stays free.
    pub fn free_percent(self) -> f64 {
        match self {
            Self::More(more) => 100.0 * more / (100.0 + more),
            _ => 0.0,
        }
    }
}
