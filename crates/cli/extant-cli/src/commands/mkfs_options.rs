//! The options of `-E` and `-J` of `extant mkfs`.

use anyhow::{Context, Result, bail};
use ext4_format::hash::HashVersion;
use ext4_format::layout::Usage;
use extant::mkfs::MkfsOptions;
use extant_cli_core::format::owners::OwnerSpec;
use extant_terminal::numbers::size;

/// Applies one option of `-J`.
pub(super) fn journal(o: &mut MkfsOptions, option: &str) -> Result<()> {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let number = || value.trim_end_matches(['M', 'm']).parse::<u64>().ok();
    match key {
        "" => {}
        "size" => {
            let mib = number().filter(|n| *n > 0 && *n < 1 << 40);
            o.journal_size = Some(mib.context("-J: write size=MIB, as -J size=8")? << 20);
        }
        "location" => {
            let block = value.parse().ok();
            o.journal_location = Some(block.context("-J location: write the number of a block")?);
        }
        "fast_commit_size" => {
            let kib: Option<u32> = value.parse().ok();
            let kib = kib.context("-J fast_commit_size: write KiB, as fast_commit_size=256")?;
            let block_size = o.block_size.unwrap_or_else(|| {
                let usage = o.usage.or_else(|| o.size.map(Usage::of_size));
                usage.map_or(4096, Usage::block_size)
            });
            o.fast_commit_blocks = Some(kib / (block_size >> 10).max(1));
        }
        _ => bail!("-J {option}: write size=MIB, location=BLOCK or fast_commit_size=KIB"),
    }
    Ok(())
}

/// Applies one option of `-E`.
pub(super) fn extended(o: &mut MkfsOptions, option: &str) -> Result<()> {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let number = || value.parse::<u64>().context("not a number");
    match key {
        "hash_seed" => o.hash_seed = Some(*uuid(value)?.as_bytes()),
        "root_owner" => {
            let (uid, gid) = if value.is_empty() {
                (Some(0), Some(0))
            } else {
                let numbers = value.parse::<OwnerSpec>()?.numbers();
                numbers.context("write UID:GID, as numbers")?
            };
            o.root_owner = Some((uid.unwrap_or(0), gid.unwrap_or(0)));
        }
        "root_perms" => {
            let mode = u16::from_str_radix(value, 8).ok().filter(|m| *m <= 0o7777);
            o.root_mode = Some(mode.context("not an octal mode")?);
        }
        "hash" => {
            o.hash_version = match value {
                "legacy" => HashVersion::Legacy,
                "half_md4" => HashVersion::HalfMd4,
                "tea" => HashVersion::Tea,
                _ => bail!("use legacy, half_md4 or tea"),
            }
        }
        "encoding" => match value {
            "utf8" | "utf8-12.1" => o.features.push_str(",casefold"),
            _ => bail!("use utf8 or utf8-12.1"),
        },
        "encoding_flags" => match value {
            "strict" => o.strict_names = true,
            "no-strict" => o.strict_names = false,
            _ => bail!("use strict or no-strict"),
        },
        "resize" => o.resize_to = Some(number()?),
        "stride" => o.values.stride = u16::try_from(number()?)?,
        "stripe_width" | "stripe-width" => o.values.stripe_width = u32::try_from(number()?)?,
        "test_fs" => o.values.test_volume = true,
        "^test_fs" => o.values.test_volume = false,
        "last_mounted" => o.values.last_mounted = value.into(),
        "creator_os" => o.values.creator_os = u32::try_from(number()?)?,
        "revision" => match value {
            "0" => o.values.old_revision = true,
            "1" => {}
            _ => bail!("use 0 or 1"),
        },
        "orphan_file_size" => o.orphan_file_bytes = Some(size(value)?),
        "num_backup_sb" => {
            let count = u8::try_from(number()?).ok().filter(|n| *n <= 2);
            o.backup_superblocks = count.context("use 0, 1 or 2")?;
        }
        "lazy_itable_init" => o.lazy_itable_init = value.is_empty() || number()? != 0,
        // Nothing is ever discarded, so there is nothing to do.
        "nodiscard" => {}
        _ => bail!("no such option: see extant mkfs --help"),
    }
    Ok(())
}

/// Parses a UUID, or makes one.
pub(super) fn uuid(text: &str) -> Result<uuid::Uuid> {
    Ok(match text {
        "clear" | "null" => uuid::Uuid::nil(),
        "random" | "time" => uuid::Uuid::new_v4(),
        _ => text
            .parse()
            .context("not a UUID: write one, or clear, random or time")?,
    })
}
