//! `mke2fs`, `mkfs.ext2`, `mkfs.ext3`, `mkfs.ext4`: run `extant mkfs`.

use super::call::{Answer, Answered, Called, label, print};
use super::config::{Config, Types};
use super::getopt::{self, ParsedOptions};
use super::mke2fs_options::{
    Call, Later, OPTIONS, block_size_of, extended, features, is_on, journal, mmp_interval,
    no_bad_blocks, passed, quotas, read_all, revision, system,
};
use ext4_format::GroupNr;
use ext4_format::geometry::Geometry;
use ext4_format::layout::Usage;
use extant_terminal::output::warn;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::Path;

pub(super) fn answer(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        return called.version();
    }
    let config = Config::read()?;
    let sectors = Sectors::read()?;
    let call = call(called.name, taken)?;
    let undo = call.undo.clone();
    let (only_shown, reads_all) = (call.only_shown, call.reads_all);
    let (words, place, later) = finish(call, taken, &config, &sectors)?;
    if only_shown {
        let planned = (called.extant.planned)(words)?;
        return print(shown(planned.geometry()));
    }
    if reads_all {
        read_all(&place)?;
    }
    called.with_undo(&place, undo.as_deref(), || {
        if later == Later::default() {
            return Ok(Answer::Words(words));
        }
        let code = called.code_of(words);
        if code == 0 {
            later.run(Path::new(&place))?;
        }
        Ok(Answer::Done(code))
    })
}

/// Parses the options.
fn call(name: &str, taken: &ParsedOptions) -> Result<Call, String> {
    let mut call = Call {
        fs_type: name.strip_prefix("mkfs.").map(str::to_owned),
        ..Call::default()
    };
    for (letter, value) in &taken.options {
        call.given.push(*letter);
        option(&mut call, *letter, value)?;
    }
    if call.given.contains('N') {
        // The number of inodes replaces their ratio.
        getopt::remove_word(&mut call.words, 'i');
    }
    revision(&mut call)?;
    quotas(&mut call);
    Ok(call)
}

/// Sector sizes from the environment, which replace those of the device.
#[derive(Default)]
struct Sectors {
    logical: u64,
    physical: u64,
}

impl Sectors {
    fn read() -> Result<Self, String> {
        let number = |name: &str| {
            let text = std::env::var_os(name).unwrap_or_default();
            text.to_str().and_then(|t| t.parse().ok()).unwrap_or(0)
        };
        if number("MKE2FS_FIRST_META_BG") != 0 {
            return Err("MKE2FS_FIRST_META_BG is not supported: leave it out".into());
        }
        Ok(Self {
            logical: number("MKE2FS_DEVICE_SECTSIZE"),
            physical: number("MKE2FS_DEVICE_PHYS_SECTSIZE"),
        })
    }
}

/// Formats the parameters of the new volume in the layout of mke2fs.
fn shown(geo: &Geometry) -> String {
    const WIDTH: usize = 80;
    let (blocks, inodes) = (geo.blocks_count, geo.inodes_count);
    let uuid = uuid::Uuid::from_bytes(geo.uuid);
    let kib = geo.block_size / 1024;
    let mut text = format!("Creating filesystem with {blocks} {kib}k blocks and {inodes} inodes\n");
    if geo.groups > 1 {
        text.push_str(&format!("Filesystem UUID: {uuid}\n"));
    }
    let groups = (1..geo.groups).map(GroupNr);
    let mut column = 0;
    for group in groups.filter(|&group| geo.has_super(group)) {
        let number = geo.group_first_block(group).to_string();
        if column == 0 {
            text.push_str("Superblock backups stored on blocks: \n\t");
        } else {
            text.push_str(", ");
            if column + number.len() + 2 > WIDTH {
                text.push_str("\n\t");
                column = 8;
            }
        }
        column = column.max(8) + number.len() + 2;
        text.push_str(&number);
    }
    text.push_str(if column == 0 { "\n" } else { "\n\n" });
    text
}

/// Parses one option.
fn option(call: &mut Call, letter: char, value: &OsStr) -> Result<(), String> {
    OPTIONS.refuse(letter)?;
    let text = || getopt::text(letter, value);
    match letter {
        'q' => call.quiet = true,
        'n' => call.only_shown = true,
        'F' => call.force = true,
        // There is no verbose output, direct I/O has no effect, and nothing is discarded.
        'v' | 'D' | 'K' => {}
        'j' => call.has_journal = true,
        't' => once(&mut call.fs_type, letter, text()?)?,
        'T' => once(&mut call.usage, letter, text()?)?,
        'J' => {
            call.has_journal = true;
            call.journal.push(text()?.to_owned());
        }
        'O' => features(call, text()?),
        'E' | 'R' => extended(call, text()?)?,
        'b' => block_size_of(call, text()?)?,
        'c' => call.reads_all = true,
        'z' => call.undo = Some(value.to_owned()),
        'l' => no_bad_blocks(value)?,
        'L' => getopt::set_word(&mut call.words, 'L', &label(value)),
        'M' => call.extended.push(format!("last_mounted={}", text()?)),
        'd' if value.is_empty() => return Err("-d: an empty name".into()),
        'd' => call.source = Some(value.to_owned()),
        's' => match text()? {
            "0" => call.features.push("^sparse_super".into()),
            "1" => call.features.push("sparse_super".into()),
            other => return Err(format!("-s {other}: write 0 or 1")),
        },
        'o' => system(call, text()?)?,
        'r' => match text()? {
            "0" => call.old_revision = true,
            "1" => {}
            other => return Err(format!("-r {other}: revisions are 0 and 1")),
        },
        _ => passed(call, letter, text()?)?,
    }
    Ok(())
}

/// Stores the value of a letter that may be given once.
fn once(place: &mut Option<String>, letter: char, value: &str) -> Result<(), String> {
    if place.is_some() {
        return Err(format!("-{letter} may be given only once"));
    }
    *place = Some(value.to_owned());
    Ok(())
}

fn finish(
    mut call: Call,
    taken: &ParsedOptions,
    config: &Config,
    sectors: &Sectors,
) -> Result<(Vec<OsString>, OsString, Later), String> {
    let (device, size) = match &taken.operands[..] {
        [device, ..] if device.is_empty() => return Err("the name of the device is empty".into()),
        [device] => (device, None),
        [device, size] => (device, Some(size)),
        [] => return Err("no device or file is named".into()),
        _ => return Err("more words than a device and a size".into()),
    };
    let mut words: Vec<OsString> = vec!["mkfs".into()];
    if let Some(source) = &call.source {
        words.extend(["--from".into(), source.clone()]);
    }
    words.append(&mut call.words);
    let length = match size {
        Some(size) => Some(bytes(getopt::text(' ', size)?, call.block_size)?),
        // The size of the existing file, as for a device, rather than a size that fits the content.
        None if call.source.is_some() || call.offset.is_some() => {
            length_of(device).map(|len| len.saturating_sub(call.offset.unwrap_or(0)))
        }
        None => None,
    };
    let of_volume = length.or_else(|| length_of(device));
    if !call.old_revision {
        configured(&mut call, &mut words, config, device, of_volume)?;
    } else {
        words.extend(["-O".into(), "none".into(), "-t".into(), "ext2".into()]);
    }
    if let Some(least) = call.least_block_size {
        let by_size = of_volume.map_or(4096, |size| Usage::of_size(size).block_size());
        let chosen = call.block_size.unwrap_or(by_size.into());
        call.block_size = Some(least.max(chosen));
    }
    block_size(&mut call, sectors)?;
    journal(&call, &mut words)?;
    mmp_interval(&mut call, device);
    let place = placed(device, call.offset, length)?;
    let (no_copy, mut extended): (Vec<_>, Vec<_>) = call
        .extended
        .into_iter()
        .partition(|option| option == "no_copy_xattrs");
    if !no_copy.is_empty() {
        words.push("--no-xattrs".into());
    }
    if call.source.is_none() && !extended.iter().any(|o| o.starts_with("root_owner")) {
        extended.push("root_owner=0:0".into());
    }
    if !extended.is_empty() {
        words.extend(["-E".into(), extended.join(",").into()]);
    }
    if let Some(bytes) = call.block_size {
        words.extend(["-b".into(), bytes.to_string().into()]);
    }
    if let Some(length) = length {
        words.extend(["--size".into(), length.to_string().into()]);
    }
    // Questions are asked only at a terminal, which scripts lack.
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if call.force || !asks {
        words.push("--force".into());
    }
    if call.quiet {
        words.push("--quiet".into());
    }
    if size.is_some() && call.offset.is_none() {
        words.push("--keep-tail".into());
    }
    words.extend(["--".into(), place.clone()]);
    Ok((words, place, call.later))
}

/// Returns the device, or the part of it with an offset and a length. Extends a file that is too short.
fn placed(device: &OsStr, offset: Option<u64>, length: Option<u64>) -> Result<OsString, String> {
    let Some(offset) = offset else {
        return Ok(device.to_owned());
    };
    let length =
        length.ok_or_else(|| format!("{}: how large? Write a size behind it", device.display()))?;
    let end = offset.checked_add(length);
    let end = end.ok_or_else(|| format!("-E offset={offset}: beyond all devices"))?;
    let mut place = device.to_owned();
    place.push(format!("@offset={offset},size={length}"));
    let is_short =
        std::fs::metadata(device).map_or(true, |meta| meta.is_file() && meta.len() < end);
    if is_short {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(device);
        let longer = file.and_then(|file| file.set_len(end));
        longer.map_err(|e| format!("{}: {e}", device.display()))?;
    }
    Ok(place)
}

/// Adds the features of the type, and the values of the configuration that no option sets.
fn configured(
    call: &mut Call,
    words: &mut Vec<OsString>,
    config: &Config,
    device: &OsStr,
    size: Option<u64>,
) -> Result<(), String> {
    let name = device.to_str().unwrap_or_default();
    let has_journal = call.has_journal || call.features.iter().any(|f| f == "has_journal");
    let fs_type = call.fs_type.take();
    let mut fs_type = fs_type.unwrap_or_else(|| config.default_type(name, has_journal));
    let usage = call.usage.take().or_else(|| config.default_usage(name));
    let mut types = Types::new(&fs_type, usage.as_deref(), size);
    if call.for_hurd {
        types.add("hurd");
    }
    if !["ext2", "ext3", "ext4"].contains(&&*fs_type) {
        if !config.defines(&fs_type) {
            return Err(format!(
                "-t {fs_type}: mke2fs.conf does not define this type"
            ));
        }
        // The features of the type are in the configuration.
        fs_type = "ext2".into();
    }
    let mut features: Vec<String> = config.features(&types).into_iter().collect();
    if config.is_on(&types, "auto_64-bit_support")? == Some(true)
        && size.is_some_and(|size| size >> 32 >= call.block_size.unwrap_or(4096))
    {
        features.push("64bit,^resize_inode".into());
    }
    features.append(&mut call.features);
    // The journal of -j and -J is made, whatever -O names.
    features.extend(call.has_journal.then(|| "has_journal".into()));
    call.all_features = features.join(",");
    if !features.is_empty() {
        words.extend(["-O".into(), features.join(",").into()]);
    }
    words.extend(["-t".into(), fs_type.into()]);
    if config.is_there() {
        values(call, words, config, &types)
    } else {
        if let Some(usage) = usage {
            words.extend(["-T".into(), usage.into()]);
        }
        Ok(())
    }
}

/// Returns the values of a configuration, as options.
fn values(
    call: &mut Call,
    words: &mut Vec<OsString>,
    config: &Config,
    types: &Types,
) -> Result<(), String> {
    for key in ["packed_meta_blocks", "make_hugefiles"] {
        if config.is_on(types, key)? == Some(true) {
            return Err(format!(
                "mke2fs.conf, {}: {key} is not supported",
                types.shown()
            ));
        }
    }
    if call.block_size.is_none() {
        // A negative number is a minimum.
        let bytes = config.number(types, "blocksize")?.unwrap_or(4096);
        call.block_size = Some(match bytes {
            1.. => bytes.unsigned_abs(),
            _ => bytes.unsigned_abs().max(4096),
        });
    }
    let is_free = |letter: char| !call.given.contains(letter);
    let mut add = |letter: char, value: String| {
        words.extend([format!("-{letter}").into(), value.into()]);
    };
    if is_free('I') {
        let bytes = config.number(types, "inode_size")?.unwrap_or(0);
        // The value before the size was configurable.
        add('I', if bytes > 0 { bytes } else { 128 }.to_string());
    }
    if is_free('i') && is_free('N') {
        // A block per inode is the least by default. -i can ask for more inodes.
        let block = call.block_size.max(call.least_block_size).unwrap_or(0);
        let bytes = config.number(types, "inode_ratio")?.unwrap_or(8192);
        add('i', bytes.max(block.cast_signed()).to_string());
    }
    if is_free('m')
        && let Some(percent) = config.value(types, "reserved_ratio")
    {
        add('m', percent.to_owned());
    }
    if is_free('e')
        && let Some(errors) = config.value(types, "errors")
    {
        add('e', errors.to_owned());
    }
    if is_free('G')
        && is_on(&call.all_features, "flex_bg")
        && let Some(groups) = config.number(types, "flex_bg_size")?
    {
        add('G', groups.to_string());
    }
    if let Some(options) = config.value(types, "default_mntopts") {
        words.extend(["--mount-options".into(), options.into()]);
    }
    let mut first = Vec::new();
    if let Some(hash) = config.value(types, "hash_alg") {
        first.push(format!("hash={hash}"));
    }
    if let Some(count) = config.number(types, "num_backup_sb")? {
        first.push(format!("num_backup_sb={count}"));
    }
    if let Some(lazy) = config.is_on(types, "lazy_itable_init")? {
        first.push(format!("lazy_itable_init={}", u8::from(lazy)));
    }
    let said = std::mem::take(&mut call.extended);
    if let Some(options) = config.value(types, "options") {
        extended(call, options)?;
    }
    first.append(&mut call.extended);
    first.extend(said);
    call.extended = first;
    Ok(())
}

/// Raises the block size to the sector size. A given size below the sector size is refused.
fn block_size(call: &mut Call, sectors: &Sectors) -> Result<(), String> {
    let least = sectors.logical;
    let most = rustix::param::page_size() as u64;
    if let Some(bytes) = call.block_size.filter(|&bytes| bytes > most && !call.force) {
        return Err(format!(
            "{bytes}-byte blocks too big for system (max {most}): use -F to allow them"
        ));
    }
    match call.block_size {
        Some(bytes) if bytes < least && call.given.contains('b') => Err(format!(
            "-b {bytes}: the device has sectors of {least} bytes"
        )),
        Some(bytes) => {
            if bytes < sectors.physical && call.given.contains('b') {
                let physical = sectors.physical;
                warn(format_args!(
                    "blocks of {bytes} bytes are smaller than the device's physical sectors of {physical}"
                ));
            }
            call.block_size = Some(bytes.max(least));
            Ok(())
        }
        None if least > 1024 => {
            call.block_size = Some(least.max(4096));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Returns the length of an existing file; the length of a device is found when the device is opened.
fn length_of(device: &OsStr) -> Option<u64> {
    let found = std::fs::metadata(device).ok()?;
    (found.is_file() && found.len() > 0).then_some(found.len())
}

/// Parses a size: with a unit letter, or in blocks, which are KiB if the block size is not given.
fn bytes(text: &str, block_size: Option<u64>) -> Result<u64, String> {
    let parsed = getopt::bytes(text, block_size.unwrap_or(1 << 10));
    parsed.ok_or_else(|| format!("{text}: not a size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    fn said(name: &str, line: &str) -> Result<String, String> {
        let taken = OPTIONS.parse(line.split(' ').map(OsString::from));
        let taken = taken.map_err(|Refusal(line, _)| line)?;
        let call = call(name, &taken)?;
        let (words, ..) = finish(call, &taken, &Config::default(), &Sectors::default())?;
        let words: Vec<_> = words.iter().map(|w| w.to_str().unwrap()).collect();
        Ok(words.join(" ").replace(" --force", ""))
    }

    #[test]
    fn options_are_said_by_ours() {
        assert_eq!(
            said(
                "mkfs.ext4",
                "-Fq -L root -O ^64bit -E discard,root_owner=5:6 disk.img 65536"
            )
            .unwrap(),
            "mkfs -L=root -O ^64bit -t ext4 -E root_owner=5:6 --size 67108864 --quiet --keep-tail -- disk.img"
        );
        assert_eq!(
            said("mke2fs", "-t ext3 -b 1024 -d tree -m 0 disk.img 100").unwrap(),
            "mkfs --from tree -m=0 -t ext3 -b 1024 --size 102400 --keep-tail -- disk.img"
        );
        assert_eq!(
            said("mke2fs", "-j disk.img 8m").unwrap(),
            "mkfs -O has_journal -t ext3 -E root_owner=0:0 --size 8388608 --keep-tail -- disk.img"
        );
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (line, what) in [
            ("-S disk.img", "-S is not supported: superblocks"),
            ("-o BeOS disk.img", "-o BeOS is not supported"),
            ("-E desc_size=64 disk.img", "-E desc_size is not supported"),
            ("-r 2 disk.img", "-r 2: revisions are 0 and 1"),
            ("-r 0 -j disk.img", "revision 0 has neither"),
            ("-b x disk.img", "-b x: not a number"),
            ("-b -512 disk.img", "-b -512: blocks have at least 1024"),
            ("-t ext4 -t ext2 disk.img", "-t may be given only once"),
            ("-t ext5 disk.img", "-t ext5: mke2fs.conf does not define"),
            ("-i 512 disk.img", "-i 512: write 1024 to 67108864"),
            ("-G 3 disk.img", "-G 3: not a power of two"),
            ("-m 51 disk.img", "-m 51: not a percentage"),
            ("-N 1k disk.img", "-N 1k: not a number"),
            (
                "-E mmp_update_interval=301 disk.img",
                "-E mmp_update_interval=301",
            ),
            ("disk.img 5q", "5q: not a size"),
            ("disk.img 99999999999t", "99999999999t: not a size"),
            ("-q", "no device"),
            ("a 1m c", "more words"),
            ("-y disk.img", "-y: no such option"),
        ] {
            let refused = said("mke2fs", line).unwrap_err();
            assert!(refused.starts_with(what), "{line}: {refused}");
        }
    }
}
