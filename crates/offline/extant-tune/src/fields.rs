//! Fields of the superblock that nothing follows from.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::options::TuneOptions;
use ext4_format::superblock::{
    ERRORS_CONTINUE, ERRORS_PANIC, ERRORS_READ_ONLY, FLAG_TEST_VOLUME, STATE_ERROR,
};
use ext4_format::{fold, mount_options};

/// Copies a text into a field, filled with zeros.
fn text(field: &mut [u8], text: &[u8], what: &str, most: usize) -> Result<(), Error> {
    if text.len() > most {
        return refused(format!("{what} of more than {most} bytes"));
    }
    field.fill(0);
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
    Ok(())
}

fn shown(bytes: &[u8]) -> String {
    match bytes {
        [] => "empty".to_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

pub(crate) fn change(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    texts(image, options)?;
    reserved(image, options)?;
    checks(image, options)?;
    mount_options(image, &options.mount_options)?;
    let ext4_image::Image { sb, geo, .. } = &mut **image;
    let mut told = Vec::new();
    if let Some(errors) = options.errors {
        let name = match errors {
            ERRORS_CONTINUE => "continue",
            ERRORS_READ_ONLY => "remount-ro",
            ERRORS_PANIC => "panic",
            _ => return refused("an unknown behaviour on errors"),
        };
        sb.errors.set(errors);
        told.push(format!("errors are followed by {name}"));
    }
    if let Some(stride) = options.stride {
        sb.raid_stride.set(stride);
        told.push(format!("the RAID stride is {stride} blocks"));
    }
    if let Some(width) = options.stripe_width {
        sb.raid_stripe_width.set(width);
        told.push(format!("the RAID stripe is {width} blocks wide"));
    }
    if let Some(algorithm) = options.hash_algorithm {
        let names = ["legacy", "half_md4", "tea"];
        let Some(name) = names.get(usize::from(algorithm)) else {
            return refused("an unknown hash algorithm");
        };
        sb.def_hash_version = algorithm;
        told.push(format!("new directory indexes use the hash {name}"));
    }
    if let Some(test) = options.test_volume {
        let flags = sb.flags.get();
        sb.flags.set(if test {
            flags | FLAG_TEST_VOLUME
        } else {
            flags & !FLAG_TEST_VOLUME
        });
        let not = if test { "" } else { "not " };
        told.push(format!("it is {not}marked for experimental drivers"));
    }
    if let Some(strict) = options.strict_names {
        if !geo.features.has_casefold() && !options.features.contains("casefold") {
            return refused("encoding_flags needs casefold");
        }
        let flags = sb.encoding_flags.get() & !fold::STRICT;
        sb.encoding_flags
            .set(flags | (u16::from(strict) * fold::STRICT));
        let not = if strict { "" } else { "not " };
        told.push(format!("names that are not UTF-8 are {not}refused"));
    }
    for text in told {
        image.tell("superblock", text);
    }
    image.renew()
}

fn texts(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    if let Some(label) = &options.label {
        text(&mut image.sb.volume_name, label, "a label", 16)?;
        image.tell("superblock", format!("the label is {}", shown(label)));
    }
    if let Some(place) = &options.last_mounted {
        text(&mut image.sb.last_mounted, place, "a place of a mount", 64)?;
        image.tell(
            "superblock",
            format!("it was mounted last on {}", shown(place)),
        );
    }
    if let Some(mount) = &options.mount_text {
        text(&mut image.sb.mount_opts, mount, "mount options", 63)?;
        image.tell(
            "superblock",
            format!("the mount options are {}", shown(mount)),
        );
    }
    Ok(())
}

fn reserved(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    let blocks = image.geo.blocks_count;
    let wanted = match (options.reserved_percent, options.reserved_blocks) {
        (Some(percent), _) if !(0.0..=50.0).contains(&percent) => {
            return refused("reserved blocks are 0 to 50 percent");
        }
        (Some(percent), _) => Some((percent * blocks as f64 / 100.0) as u64),
        (None, count) => count,
    };
    if let Some(wanted) = wanted {
        if wanted > blocks / 2 {
            return refused("more than half of the blocks reserved");
        }
        image.sb.set_reserved_blocks(wanted);
        image.tell("superblock", format!("{wanted} blocks are reserved"));
    }
    if let Some(uid) = options.reserved_uid {
        image.sb.def_resuid.set(uid);
        image.tell("superblock", format!("blocks are reserved for user {uid}"));
    }
    if let Some(gid) = options.reserved_gid {
        image.sb.def_resgid.set(gid);
        image.tell("superblock", format!("blocks are reserved for group {gid}"));
    }
    Ok(())
}

fn checks(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    if let Some(most) = options.max_mounts {
        let most = if most <= 0 { -1 } else { most };
        image.sb.max_mnt_count.set(most as u16);
        image.tell(
            "superblock",
            match most {
                -1 => "no number of mounts forces a check".into(),
                most => format!("mounts until a check: {most}"),
            },
        );
    }
    if let Some(count) = options.mounts {
        image.sb.mnt_count.set(count);
        image.tell(
            "superblock",
            format!("mounts since the last check: {count}"),
        );
    }
    if let Some(seconds) = options.check_interval {
        image.sb.checkinterval.set(seconds);
        image.tell("superblock", format!("seconds between checks: {seconds}"));
    }
    if let Some(time) = options.last_checked {
        image.sb.lastcheck.set(time as u32);
        image.sb.lastcheck_hi = (time >> 32) as u8;
        image.tell("superblock", format!("it was checked last at {time}"));
    }
    if options.force_check {
        let state = image.sb.state.get();
        image.sb.state.set(state | STATE_ERROR);
        image.tell("superblock", "the next check is not passed over");
    }
    Ok(())
}

fn mount_options(image: &mut Image<'_, '_>, list: &str) -> Result<(), Error> {
    let bits = image.sb.default_mount_opts.get();
    let bits = match mount_options::change(bits, list) {
        Ok(bits) => bits,
        Err(name) => return refused(format!("an unknown default mount option: {name}")),
    };
    if !list.is_empty() {
        image.sb.default_mount_opts.set(bits);
        image.tell("superblock", format!("default mount options: {list}"));
    }
    Ok(())
}
