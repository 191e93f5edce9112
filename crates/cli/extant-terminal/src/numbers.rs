//! Sizes, rates and counts as people read and write them.

use anyhow::{Context, Result, bail, ensure};

/// Formats bytes in powers of 1024, rounded up as `df -h` does: `4.0K`, `17M`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = ' ';
    for next in ['K', 'M', 'G', 'T', 'P', 'E'] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 9.95 {
        format!("{:.1}{unit}", (value * 10.0).ceil() / 10.0)
    } else {
        format!("{:.0}{unit}", value.ceil())
    }
}

/// Formats a number of things.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Parses a number of bytes. Letters are for powers of 1024, with or without iB, as 64M and 64MiB; with B for powers
/// of 1000, as 64MB; s is for sectors of 512 bytes.
pub fn size(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let letters = text[digits.len()..].to_ascii_lowercase();
    let unit: u64 = match letters.as_str() {
        "" | "b" => 1,
        "s" => 512,
        _ => {
            let (base, letter) = match (letters.strip_suffix("ib"), letters.strip_suffix('b')) {
                (Some(letter), _) => (1024, letter),
                (None, Some(letter)) => (1000, letter),
                (None, None) => (1024u64, letters.as_str()),
            };
            let power = match letter {
                "k" => 1,
                "m" => 2,
                "g" => 3,
                "t" => 4,
                "p" => 5,
                "e" => 6,
                _ => bail!("unknown unit {letters}: use K, M, G, T, P or E, as in 512M"),
            };
            base.pow(power) // at most 2^60
        }
    };
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|n: &f64| *n >= 0.0)
        .with_context(|| {
            format!("{text} is not a size: write a number with K, M, G or T, as 512M")
        })?;
    let bytes = number * unit as f64;
    // 2^63 and more cannot be a size of anything.
    let most = i64::MAX as f64;
    ensure!(
        bytes < most,
        "{text} is too large: sizes are below 8E (2^63 bytes)"
    );
    // Whole numbers are exact beyond what a float holds.
    Ok(digits.parse::<u64>().map_or(bytes as u64, |n| n * unit))
}

/// Formats a rate in short form: `1.25 M`, `87.3 k`, `950`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}
