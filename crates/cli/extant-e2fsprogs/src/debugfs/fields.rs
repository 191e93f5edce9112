//! Fields of inodes and values of the superblock that `debugfs -w` sets, by their names in debugfs.

use anyhow::{Result, anyhow, bail, ensure};
use ext4_format::inode::flags::{EXTENTS, USER_MODIFIABLE};
use ext4_format::superblock::{ERRORS_CONTINUE, ERRORS_PANIC};
use extant::SetAttributes;
use extant_check::inspect::{Structure, fields_of};
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::format::attr_flags::{long_number, number};
use extant_cli_core::format::show::show;
use extant_cli_core::format::tune_values as values;
use extant_tune::TuneOptions;
use std::fmt::Write as _;

/// Returns a word as UTF-8 text.
pub(super) fn text(word: &[u8]) -> Result<&str> {
    std::str::from_utf8(word).map_err(|_| anyhow!("{}: not text", show(word)))
}

/// Parses seconds since 1970 like debugfs: a date, `now`, `@SECONDS`, or plain seconds, also hexadecimal.
pub(super) fn time(value: &str) -> Result<i64> {
    if value.starts_with("0x") || value.starts_with("0X") {
        let seconds = long_number(value).map_err(|e| anyhow!(e))?;
        return Ok(seconds.cast_signed());
    }
    values::time(value).or_else(|error| value.parse().map_err(|_| error))
}

/// Returns whether [`set_field`] sets a field; other fields are edited directly in the inode.
pub(super) fn is_attribute(field: &str) -> bool {
    matches!(field, "flags" | "projid" | "project" | "generation")
}

/// Sets a field of an inode that has side effects. The change time stays.
pub(super) fn set_field(place: &ImagePlace, field: &str, value: &str) -> Result<()> {
    let old = place.attributes(false)?;
    let word = number(value).map_err(|e| anyhow!(e))?;
    let mut set = SetAttributes {
        ctime: Some(old.ctime()),
        ..Default::default()
    };
    match field {
        "flags" => {
            ensure!(
                (old.flags() ^ word) & !(USER_MODIFIABLE & !EXTENTS) == 0,
                "{value}: flags that say how an inode is stored stay as they are, {:#x}",
                old.flags()
            );
            set.flags = Some(word);
        }
        "projid" | "project" => set.project = Some(word),
        "generation" => set.generation = Some(word),
        _ => bail!("{field}: no attribute of a file"),
    }
    Ok(place.set_attributes(&set, false)?)
}

/// Returns a change of the superblock for `extant tune`; `None` for values that are edited directly.
pub(super) fn super_options(field: &str, value: &[u8]) -> Result<Option<TuneOptions>> {
    let mut options = TuneOptions::default();
    let said = text(value)?;
    let word = || number(said).map_err(|e| anyhow!(e));
    let short = || -> Result<u16> {
        let bad = || anyhow!("{said}: not a number of 16 bits");
        u16::try_from(word()?).map_err(|_| bad())
    };
    let mut extended = |name: &str| values::extended(&format!("{name}={said}"), &mut options);
    match field {
        "raid_stride" => extended("stride")?,
        "raid_stripe_width" => extended("stripe_width")?,
        "def_hash_version" => extended("hash_alg")?,
        "hash_seed" => extended("hash_seed")?,
        "mmp_update_interval" => extended("mmp_update_interval")?,
        "volume_name" => options.label = Some(value.to_vec()),
        "uuid" => options.uuid = Some(values::uuid(said)?),
        "last_mounted" => options.last_mounted = Some(value.to_vec()),
        "mount_opts" => options.mount_text = Some(value.to_vec()),
        "mnt_count" => options.mounts = Some(short()?),
        "max_mnt_count" => {
            let signed = said.parse().or_else(|_| short().map(u16::cast_signed));
            options.max_mounts = Some(signed?);
        }
        "checkinterval" => options.check_interval = Some(word()?),
        "lastcheck" => options.last_checked = Some(time(said)?),
        "errors" => {
            let errors = short()?;
            ensure!(
                (ERRORS_CONTINUE..=ERRORS_PANIC).contains(&errors),
                "{said}: 1, 2 or 3"
            );
            options.errors = Some(errors);
        }
        "r_blocks_count" => options.reserved_blocks = Some(word()?.into()),
        "def_resuid" => options.reserved_uid = Some(short()?),
        "def_resgid" => options.reserved_gid = Some(short()?),
        _ => return Ok(None),
    }
    Ok(Some(options))
}

/// Returns the fields that a request sets, as it lists them with `-l`.
pub(super) fn list(request: &str) -> String {
    let (structure, prefix, title) = match request {
        "set_block_group" => (
            Structure::Descriptor,
            "bg_",
            "Block group descriptor fields supported by the set_block_group",
        ),
        "set_inode_field" => (
            Structure::Inode,
            "i_",
            "Inode fields supported by the set_inode",
        ),
        _ => (
            Structure::Superblock,
            "s_",
            "Superblock fields supported by the set_super_value",
        ),
    };
    let has = |name: &str| fields_of(structure).any(|(field, ..)| field == name);
    let is_upper = |name: &str| {
        let base = name.strip_suffix("_hi").or(name.strip_suffix("_high"));
        base.is_some_and(|base| has(base) || has(&format!("{base}_lo")))
    };
    let mut text = format!("{title} command:\n");
    let mut add = |name: &str, kind: &str| {
        let _ = writeln!(text, "\t{name:<25}\t{kind}");
    };
    for (field, count, place) in fields_of(structure).filter(|(field, ..)| !is_upper(field)) {
        let base = field.trim_end_matches("_lo");
        let is_split = has(&format!("{base}_hi")) || has(&format!("{base}_high"));
        let halves = if is_split && !place.is_time {
            "[_hi|_lo]"
        } else {
            ""
        };
        let kind = match base {
            "s_def_hash_version" => "hash algorithm",
            "s_max_mnt_count" => "integer",
            "s_hash_seed" => "UUID",
            "bg_checksum" | "i_checksum" => "unsigned integer OR \"calc\"",
            _ if place.is_time => "date/time",
            _ if place.is_text => "string",
            _ if place.len == 16 => "UUID",
            _ => "unsigned integer",
        };
        match base.strip_prefix(prefix).unwrap_or(base) {
            "reserved" | "reserved_pad" => {}
            "block" => ["12", "IND", "DIND", "TIND"]
                .iter()
                .for_each(|nth| add(&format!("block[{nth}]"), kind)),
            "obso_faddr" => add("faddr", kind),
            name if count > 1 && kind != "UUID" => add(&format!("{name}[{count}]"), kind),
            name => add(&format!("{name}{halves}"), kind),
        }
    }
    text
}
