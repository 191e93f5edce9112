//! Words of debugfs' answers: attributes, bytes, features, hashes.

use crate::getopt::{Options, ParsedOptions};
use crate::refusal::Refusal;
use anyhow::{Result, anyhow, bail, ensure};
use ext4_format::hash::{DirHasher, HashVersion};
use extant_cli_core::format::attr_flags::long_number;
use extant_cli_core::format::show::show;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Returns a number of a request.
pub(super) fn number_of(word: &[u8]) -> Result<u64> {
    let text = super::fields::text(word)?;
    long_number(text).map_err(|e| anyhow!(e))
}

/// Parses the options of a request, which may stand anywhere, as getopt(3) does.
pub(super) fn options(known: &'static str, words: &[&[u8]]) -> Result<ParsedOptions> {
    let words = words.iter().map(|word| OsString::from_vec(word.to_vec()));
    let taken = Options::of(known).parse(words);
    taken.map_err(|Refusal(line, _)| anyhow!(line))
}

/// Returns the bytes of an operand of parsed options.
pub(super) fn operand(word: &OsString) -> &[u8] {
    word.as_bytes()
}

/// Returns an extended attribute as debugfs writes it: text in quotes; as digits, if one byte in eight is not text.
pub(super) fn attribute(name: &[u8], value: &[u8], hex: bool) -> String {
    let size = format!("{} ({})", show(name), value.len());
    if value.is_empty() {
        return size;
    }
    let odd = value.iter().filter(|b| !(b' '..=b'~').contains(b)).count();
    let shown = if hex || odd >= value.len().div_ceil(8) {
        value.iter().map(|byte| format!("{byte:02x} ")).collect()
    } else {
        let shown = |&byte: &u8| match byte {
            7 => "\\a".into(),
            8 => "\\b".into(),
            b'\t' => "\\t".into(),
            b'\n' => "\\n".into(),
            11 => "\\v".into(),
            12 => "\\f".into(),
            b'"' | b'\'' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        };
        format!("\"{}\"", value.iter().map(shown).collect::<String>())
    };
    format!("{size} = {shown}")
}

/// Formats bytes in hexadecimal after octal offsets; repeated lines become a star.
pub(super) fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut before: Option<&[u8]> = None;
    let mut starred = false;
    for (nth, line) in bytes.chunks(16).enumerate() {
        // A shorter last line repeats the beginning of the line before it.
        if before.is_some_and(|before| before.starts_with(line)) {
            if !std::mem::replace(&mut starred, true) {
                text.push_str("*\n");
            }
            continue;
        }
        (before, starred) = (Some(line), false);
        let _ = write!(text, "{:04o}  ", nth * 16);
        let pairs: Vec<String> = line
            .chunks(2)
            .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        // Eight groups of digits with a blank behind each.
        let _ = write!(text, "{:<39} ", pairs.join(" "));
        let shown = |&byte: &u8| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        };
        let _ = writeln!(text, " {}", line.iter().map(shown).collect::<String>());
    }
    text.push('\n');
    text
}

/// Returns all features with names.
pub(super) fn supported() -> String {
    use ext4_format::features::{Compat, Features, Incompat, RoCompat};
    let all = Features {
        compat: Compat::all(),
        incompat: Incompat::all(),
        ro_compat: RoCompat::all(),
    };
    // Names that e2fsprogs no longer prints.
    let gone = |name: &&String| {
        const GONE: &[&str] = &[
            "lazy_bg",
            "snapshot_bitmap",
            "compression",
            "dirdata",
            "btree_dir",
            "snapshot",
            "replica",
        ];
        !GONE.contains(&name.as_str())
    };
    let names = all.names();
    let names: Vec<&str> = names.iter().filter(gone).map(String::as_str).collect();
    format!(
        "Supported features: {}\n journal_incompat_revoke journal_64bit journal_async_commit journal_checksum_v2 journal_checksum_v3 FEATURE_I5\n",
        names.join(" ")
    )
}

/// Answers `supported_features [NAME]`.
pub(super) fn supported_feature(name: Option<&[u8]>) -> Result<String> {
    let all = supported();
    let Some(name) = name else {
        return Ok(all);
    };
    let name = show(name);
    let is_known = all.split_whitespace().skip(2).any(|known| known == name);
    ensure!(is_known, "Unknown feature: {name}");
    Ok(format!("Supported feature: {name}\n"))
}

/// Answers `dx_hash [-h VERSION] [-s SEED] NAME`.
pub(super) fn hash(words: &[&[u8]]) -> Result<String> {
    let usage = "usage: dx_hash [-h hash_alg] [-s hash_seed] filename";
    let taken = options("h:s:ce:", words)?;
    ensure!(
        !taken.has('e'),
        "-e is not supported: names are hashed as they are"
    );
    let [name] = &taken.operands[..] else {
        bail!(usage);
    };
    let version = match taken.value('h').map(|said| said.as_bytes()) {
        None | Some(b"legacy" | b"0") => HashVersion::Legacy,
        Some(b"half_md4" | b"1") => HashVersion::HalfMd4,
        Some(b"tea" | b"2") => HashVersion::Tea,
        Some(said) => bail!("{}: no version of the hash", show(said)),
    };
    let mut seed = [0; 4];
    if let Some(said) = taken.value('s') {
        let uuid = uuid::Uuid::parse_str(super::fields::text(said.as_bytes())?)?;
        for (word, bytes) in seed.iter_mut().zip(uuid.as_bytes().as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    let name = operand(name);
    let (major, minor) = DirHasher::with_version(version, seed).hash(name);
    Ok(format!(
        "Hash of {} is 0x{major:x} (minor 0x{minor:x})\n",
        show(name)
    ))
}
