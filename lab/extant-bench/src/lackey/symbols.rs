//! Lines of code by the addresses of instructions.

use addr2line::Loader;
use anyhow::{Result, anyhow};
use std::collections::HashMap;
use std::path::Path;

/// The code of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// `file:line function`: the innermost function of the engine for its code, or else the innermost function.
    pub text: String,
    /// Whether the code belongs to the engine, or is inlined into it.
    pub ours: bool,
    /// Whether the code belongs to the memory allocator.
    pub allocator: bool,
}

/// Looks instructions up in the program's debug information.
pub struct Symbols {
    loader: Loader,
    program: std::ops::Range<u64>,
    known: HashMap<u64, CodePlace>,
}

/// The directory of the engine's own source.
const ENGINE: &str = "crates/engine/extant/src/";

impl Symbols {
    /// Reads the symbols of a program loaded at these addresses.
    pub fn new(program: &Path, at: std::ops::Range<u64>) -> Result<Self> {
        let loader = Loader::new(program)
            .map_err(|e| anyhow!("debug information of {}: {e}", program.display()))?;
        Ok(Self {
            loader,
            program: at,
            known: HashMap::new(),
        })
    }

    /// Returns the code of an instruction.
    pub fn place(&mut self, at: u64) -> &CodePlace {
        let (loader, program) = (&self.loader, &self.program);
        self.known.entry(at).or_insert_with(|| {
            if program.contains(&at) {
                place(loader, at - program.start)
            } else {
                // Copying and comparing in the C library.
                CodePlace {
                    text: "the C library".into(),
                    ours: false,
                    allocator: false,
                }
            }
        })
    }
}

fn place(loader: &Loader, address: u64) -> CodePlace {
    let mut places = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|f| f.demangle().ok());
            let function = function.as_deref().map(plain).unwrap_or_default();
            if let Some(location) = frame.location {
                let file = short(location.file.unwrap_or("?"));
                places.push((file, location.line.unwrap_or(0), function));
            }
        }
    }
    let symbol = loader.find_symbol(address).unwrap_or("no symbol");
    let ours = places.iter().find(|(file, ..)| file.starts_with(ENGINE));
    let text = match ours.or(places.first()) {
        Some((file, line, function)) => {
            let file = file.strip_prefix(ENGINE).unwrap_or(file);
            format!("{file}:{line} {function}")
        }
        None => plain(symbol),
    };
    CodePlace {
        text,
        ours: ours.is_some(),
        allocator: places
            .first()
            .is_some_and(|(file, ..)| file.contains("mimalloc"))
            || ["mi_", "_mi_"].iter().any(|p| symbol.starts_with(p)),
    }
}

/// Returns a path from `crates/` on, or from the directory of its package on.
fn short(file: &str) -> String {
    for (mark, keep) in [
        ("crates/", true),
        ("/registry/src/", false),
        ("/library/", true),
    ] {
        if let Some(at) = file.rfind(mark) {
            let rest = &file[if keep { at } else { at + mark.len() }..];
            let rest = rest.trim_start_matches('/');
            return if keep {
                rest.into()
            } else {
                rest.split_once('/').map_or(rest, |(_, r)| r).into()
            };
        }
    }
    file.into()
}

/// Returns a function's name without type arguments and hash: the last two parts of its path.
fn plain(name: &str) -> String {
    let mut depth = 0;
    let mut flat = String::new();
    let mut previous = ' ';
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth -= 1,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
        previous = c;
    }
    let parts: Vec<&str> = flat
        .split("::")
        .filter(|p| !(p.is_empty() || p.len() == 17 && p.starts_with('h')))
        .collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let long =
            "lock_api::mutex::Mutex<lockmeter::raw::Metered<A,B>,T>::lock::h0123456789abcdef";
        assert_eq!(plain(long), "Mutex::lock");
        assert_eq!(plain("<extant::Engine as Fn() -> X>::create"), "create");
        assert_eq!(plain("memcpy"), "memcpy");
        assert_eq!(
            short("/home/u/crates/engine/extant/src/engine.rs"),
            "crates/engine/extant/src/engine.rs"
        );
        assert_eq!(
            short("/c/registry/src/index-1/parking_lot-0.12/src/raw_mutex.rs"),
            "parking_lot-0.12/src/raw_mutex.rs"
        );
    }

    #[test]
    fn this_program_has_places() {
        let program = std::env::current_exe().unwrap();
        let mut symbols = Symbols::new(&program, 0..1 << 40).unwrap();
        assert_eq!(symbols.place(u64::MAX).text, "the C library");
        assert!(!symbols.place(u64::MAX).ours);
    }
}
