//! `extant getfattr` and `extant setfattr`.

use anyhow::{Context, Result, bail};
use extant_cli_core::address::Address;
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::format::show::{JsonPath, is_control, show};
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Show extended attributes of an image's files
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant getfattr -d -m - disk.img:/bin/ping")]
pub struct GetArgs {
    /// Files to read
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Show only this attribute, with its value
    #[arg(short, value_name = "NAME")]
    name: Option<OsString>,
    /// Show values
    #[arg(short)]
    dump: bool,
    /// Show only names with this prefix; - for all
    #[arg(short, value_name = "PREFIX", default_value = "user.")]
    matching: String,
    /// Print only the raw values
    #[arg(long, requires = "name")]
    only_values: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Attributes {
    #[serde(flatten)]
    path: JsonPath,
    /// Values in the format of getfattr: text in quotes, else hexadecimal.
    attributes: BTreeMap<String, String>,
}

pub fn get(args: &GetArgs) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let done = Images::each(false, &args.paths, NoMatch::Fails, |place| {
        // As in getfattr, read the link itself, not its target.
        let names = match &args.name {
            Some(name) => vec![name.as_bytes().to_vec()],
            None => {
                let prefix = args.matching.trim_start_matches(['-', '^']).as_bytes();
                place
                    .list_xattrs()?
                    .into_iter()
                    .filter(|n| n.starts_with(prefix))
                    .collect()
            }
        };
        let mut values = BTreeMap::new();
        for name in names {
            let value = place.xattr(&name).with_context(|| show(&name))?;
            if args.only_values {
                out.write_all(&value)?;
            }
            values.insert(show(&name), encode(&value));
        }
        if args.json {
            found.push(Attributes {
                path: place.address.path[..].into(),
                attributes: values,
            });
        } else if !args.only_values && !values.is_empty() {
            writeln!(out, "# file: {}", place.address)?;
            for (name, value) in values {
                let shown = args.dump || args.name.is_some();
                writeln!(
                    out,
                    "{name}{}",
                    if shown {
                        format!("={value}")
                    } else {
                        String::new()
                    }
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    });
    output::end(done, out, args.json, &found)
}

/// Formats text in quotes, and anything else as `0x...`.
fn encode(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(is_control) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => value
            .iter()
            .fold("0x".to_string(), |hex, b| hex + &format!("{b:02x}")),
    }
}

/// Parses a value as setfattr does: `0x` hexadecimal, quotes removed, else unchanged.
fn decode(text: &[u8]) -> Result<Vec<u8>> {
    if let Some(hex) = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))
    {
        let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
        let pairs = hex.chunks(2).map(|p| match *p {
            [a, b] => Some(digit(a)? << 4 | digit(b)?),
            _ => None,
        });
        return pairs.collect::<Option<_>>().context(
            "a value that begins with 0x is hexadecimal: write pairs of digits, as 0x00ff",
        );
    }
    let Some(quoted) = text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")) else {
        return Ok(text.to_vec());
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter();
    while let Some(&b) = bytes.next() {
        value.push(if b == b'\\' {
            *bytes.next().unwrap_or(&b)
        } else {
            b
        });
    }
    Ok(value)
}

/// Set extended attributes of an image's files
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant setfattr -n user.origin -v here disk.img:/file\n  extant setfattr -x user.origin disk.img:/file"
)]
pub struct SetArgs {
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Attribute to set
    #[arg(short, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Value of the attribute: text, or 0x and hexadecimal; empty if omitted
    #[arg(short, requires = "name")]
    value: Option<OsString>,
    /// Attribute to remove
    #[arg(short = 'x', value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
}

pub fn set(args: &SetArgs) -> Result<()> {
    let value = decode(args.value.as_deref().unwrap_or_default().as_bytes())?;
    Images::each(true, &args.paths, NoMatch::Fails, |place| {
        match (&args.name, &args.remove) {
            (Some(name), _) => place.set_xattr(name.as_bytes(), &value)?,
            (None, Some(name)) => place.remove_xattr(name.as_bytes())?,
            (None, None) => bail!("neither a name to set nor one to remove"),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive() {
        for value in [
            &b""[..],
            b"plain",
            b"with \"quotes\" and \\",
            b"\0\x01\xff",
            "ünï".as_bytes(),
        ] {
            assert_eq!(decode(encode(value).as_bytes()).unwrap(), value);
        }
        assert_eq!(decode(b"bare").unwrap(), b"bare");
        assert!(decode(b"0x1").is_err() && decode(b"0xzz").is_err());
    }
}
