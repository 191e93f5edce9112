//! The values of the options of `extant tune`, as tune2fs writes them.

use anyhow::{Context, Result, anyhow, bail};
use ext4_format::superblock::{ERRORS_CONTINUE, ERRORS_PANIC, ERRORS_READ_ONLY};
use extant_tune::TuneOptions;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use uuid::Uuid;

const DAY: u32 = 24 * 60 * 60;

/// Parses a UUID, or makes one.
pub fn uuid(text: &str) -> Result<[u8; 16]> {
    Ok(*match text {
        "random" => Uuid::new_v4(),
        "time" => Uuid::now_v7(),
        "clear" | "null" => Uuid::nil(),
        _ => Uuid::parse_str(text)
            .with_context(|| format!("'{text}' is not a UUID (or random, time or clear)"))?,
    }
    .as_bytes())
}

/// Parses the action after an error.
pub fn errors(text: &str) -> Result<u16> {
    Ok(match text {
        "continue" => ERRORS_CONTINUE,
        "remount-ro" => ERRORS_READ_ONLY,
        "panic" => ERRORS_PANIC,
        _ => bail!("{text}: not an action after an error: write continue, remount-ro or panic"),
    })
}

/// Parses an interval as seconds; a plain number counts days.
pub fn interval(text: &str) -> Result<u32> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b's') => (text.strip_suffix('s'), 1),
        Some(b'd') => (text.strip_suffix('d'), DAY),
        Some(b'w') => (text.strip_suffix('w'), 7 * DAY),
        Some(b'm') => (text.strip_suffix('m'), 30 * DAY),
        _ => (Some(text), DAY),
    };
    let seconds = number.and_then(|n| n.parse::<u32>().ok());
    let seconds = seconds.and_then(|n| n.checked_mul(unit));
    seconds.ok_or_else(|| anyhow!("{text}: no time as 10d, 2w or 6m"))
}

/// Parses a local time as seconds since 1970.
pub fn time(text: &str) -> Result<i64> {
    if text == "now" {
        return crate::format::clock::stamp();
    }
    let bad = || anyhow!("{text}: no time as YYYYMMDD[HH[MM[SS]]] or @SECONDS");
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| bad());
    }
    let format = match text.len() {
        8 => "%Y%m%d%H%M%S",
        10 => "%Y%m%d%H%M%S",
        12 => "%Y%m%d%H%M%S",
        14 => "%Y%m%d%H%M%S",
        _ => return Err(bad()),
    };
    let whole = format!("{text:0<14}");
    let local = DateTime::strptime(format, &whole).map_err(|_| bad())?;
    let zoned = local.to_zoned(TimeZone::system()).map_err(|_| bad())?;
    Ok(zoned.timestamp().as_second())
}

/// Returns the number for a name in a file like /etc/passwd, or parses a number.
fn id(text: &str, file: &str) -> Result<u16> {
    let by_name = || {
        let known = std::fs::read_to_string(file).ok()?;
        let line = known
            .lines()
            .find(|line| line.split(':').next() == Some(text))?;
        line.split(':').nth(2)?.parse().ok()
    };
    let id = text.parse().ok().or_else(by_name);
    id.ok_or_else(|| anyhow!("{text}: neither a number up to 65535 nor a name in {file}"))
}

/// Parses a user as a number or by name.
pub fn user(text: &str) -> Result<u16> {
    id(text, "/etc/passwd")
}

/// Parses a group as a number or by name.
pub fn group(text: &str) -> Result<u16> {
    id(text, "/etc/group")
}

/// Parses the share of the blocks that are reserved for root: at most half, as for mke2fs and tune2fs.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    let number = number.map_err(|_| format!("'{text}' is not a percentage (try 5 or 0.5)"))?;
    // A NaN is in no range.
    if !(0.0..=50.0).contains(&number) {
        return Err(format!("'{text}' is not a percentage from 0 to 50"));
    }
    Ok(number)
}

/// Returns a name with its value, which must be a number.
fn number<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T> {
    let value = value.unwrap_or("");
    value
        .parse()
        .map_err(|_| anyhow!("{name}={value}: not a number in range"))
}

/// Parses the options of `-J`.
pub fn journal(list: &str, options: &mut TuneOptions) -> Result<()> {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("size", mib)) => options.journal_mib = Some(number("size", Some(mib))?),
            Some(("fast_commit_size", kib)) => {
                options.fast_commit_kib = Some(number("fast_commit_size", Some(kib))?);
            }
            _ => bail!(
                "-J {word}: write size=MIB or fast_commit_size=KIB (an external journal is not made)"
            ),
        }
    }
    Ok(())
}

/// Parses the options of `-E`.
pub fn extended(list: &str, options: &mut TuneOptions) -> Result<()> {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("stride", _) => options.stride = Some(number(name, value)?),
            ("stripe_width" | "stripe-width", _) => {
                options.stripe_width = Some(number(name, value)?);
            }
            ("hash_alg" | "hash-alg", Some(algorithm)) => {
                let names = ["legacy", "half_md4", "tea"];
                let found = names.iter().position(|name| *name == algorithm);
                let found = found
                    .ok_or_else(|| anyhow!("hash_alg={algorithm}: use legacy, half_md4 or tea"))?;
                options.hash_algorithm = Some(found as u8);
            }
            ("hash_seed", Some(seed)) => options.hash_seed = Some(uuid(seed)?),
            ("mount_opts", Some(text)) => options.mount_text = Some(text.as_bytes().to_vec()),
            ("mmp_update_interval", _) => options.mmp_interval = Some(number(name, value)?),
            ("orphan_file_size", Some(size)) => {
                options.orphan_file_bytes = Some(extant_terminal::numbers::size(size)?);
            }
            ("clear_mmp", None) => options.clear_mmp = true,
            ("encoding", Some("utf8" | "utf8-12.1")) => {
                let comma = if options.features.is_empty() { "" } else { "," };
                options.features = format!("{}{comma}casefold", options.features);
            }
            ("encoding_flags", Some("strict")) => options.strict_names = Some(true),
            ("encoding_flags", Some("no-strict")) => options.strict_names = Some(false),
            ("force_fsck", None) => options.force_check = true,
            ("test_fs", None) => options.test_volume = Some(true),
            ("^test_fs", None) => options.test_volume = Some(false),
            _ => bail!("-E {word}: not known, or not changed by extant tune"),
        }
    }
    Ok(())
}
