//! `extant mkfs`.

use crate::commands::mkfs_options::{self, uuid};
use crate::commands::mkfs_report::{MkfsResult, Words, WouldMake, Written, tell};
use crate::commands::mkfs_size::Size;
use crate::commands::mkfs_sources::{Gathering, ReadArgs, check_sources, owner_in};
use crate::transfer::OwnerArgs;
use anyhow::{Context, Result, bail, ensure};
use blockdev::{Access, BlockDevice};
use ext4_format::FormatError;
use ext4_format::features::{Features, FsType};
use ext4_format::layout::{Inodes, Usage};
use extant::mkfs::{self, MkfsError, MkfsOptions, Prepared, Source};
use extant_cli_core::address::schemes;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::{ShowPath, human};
use extant_cli_core::format::tune_values::{self, errors};
use extant_cli_core::image::new_file::{Format, NewFile};
use extant_cli_core::image::{
    identity, logged_image, present_content, remote, store, streams, undo_log, verified, verity,
};
use extant_cli_core::messages::advised::advised;
use extant_cli_core::messages::mkfs_progress::Bar;
use extant_disk::Format::Raw;
use extant_disk::NewFormat;
use extant_terminal::numbers::size;
use extant_terminal::{interrupt, output};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Make a file system, empty or filled from directories and archives
///
/// The default type is ext4; -t selects ext2 or ext3. Options are named as in mke2fs, with the same defaults. With
/// --from and without --size, the image is as large as its content needs, and --free adds free space. The same input
/// and SOURCE_DATE_EPOCH yield the same bytes, regardless of the number of threads; the UUID is derived from them,
/// unless -U sets it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant mkfs disk.img --size 8G\n  extant mkfs root.img --from rootfs/ -L root\n  \
    docker export CONTAINER | extant mkfs root.img --from - --free 20%\n  extant mkfs root.img --from rootfs/ --size min\n  extant mkfs root.img --from root.squashfs\n  docker save IMAGE > image.tar && extant mkfs root.img --from image.tar\n  extant mkfs root.img --from base.tar.gz --from app.tar.zst --from local/ --owner 0:0"
)]
pub struct Args {
    /// File to make, block device, or partition of a disk, such as disk.img@p2. A name ending in .zst, .simg,
    /// .qcow2, .vhd or .vmdk selects that format
    image: PathBuf,
    /// Format of the file [default: by the file's suffix]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of the file system in bytes, or with K, M, G or T in powers of 1024. With --from also min, for the size of
    /// the content, or +20%, for 20% more than that
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Size>,
    /// Directory, tar or cpio archive or SquashFS image (plain, or compressed with gzip, zstd, xz or bzip2); - for one
    /// of these on standard input; image of ext2, ext3 or ext4, or of SquashFS, also in a disk, such as disk.img@p2;
    /// or list of files (see --manifest). Several sources are layers: each applies over the previous ones, with the
    /// white-outs of container images. An image of a container (an OCI layout, or an archive of docker save) stands
    /// for its layers
    #[arg(long, value_name = "SOURCE")]
    from: Vec<PathBuf>,
    /// List of additional files or attributes: in the format of mtree(5), with data in files of the host, or a device
    /// table of genext2fs and Buildroot (NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT), which adds devices and
    /// sets owners and permissions. --from recognizes both formats by their first line
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// Free space to leave when the size depends on the content
    #[arg(long, value_name = "PERCENT%", value_parser = percent, conflicts_with = "size", requires = "from")]
    free: Option<f64>,
    /// Overwrite a file that holds a file system, or a device that holds one
    #[arg(short = 'F', long)]
    force: bool,
    /// Type: ext2, ext3 or ext4
    #[arg(short = 't', long = "type", default_value = "ext4", value_parser = fs_type, value_name = "TYPE")]
    fs_type: FsType,
    /// Usage: floppy, small, default, big, huge, news, largefile, largefile4 [default: by the size]
    #[arg(short = 'T', long, value_parser = usage, value_name = "USAGE")]
    usage: Option<Usage>,
    /// Block size in bytes
    #[arg(short, long, value_name = "BYTES", value_parser = |s: &str| size(s).and_then(|n| Ok(u32::try_from(n)?)))]
    block_size: Option<u32>,
    /// Inode size in bytes
    #[arg(short = 'I', long, value_name = "BYTES", default_value_t = 256)]
    inode_size: u16,
    /// Bytes of the volume per inode
    #[arg(short = 'i', long, value_name = "BYTES", value_parser = |s: &str| size(s).and_then(|n| Ok(u32::try_from(n)?)))]
    bytes_per_inode: Option<u32>,
    /// Number of inodes
    #[arg(
        short = 'N',
        long,
        value_name = "COUNT",
        conflicts_with = "bytes_per_inode"
    )]
    inodes: Option<u32>,
    /// Journal options: size=MIB, location=BLOCK, fast_commit_size=KIB (with the feature fast_commit)
    #[arg(short = 'J', long, value_name = "OPTIONS")]
    journal: Option<String>,
    /// Volume label
    #[arg(short = 'L', long, value_name = "LABEL", default_value = "")]
    label: String,
    /// UUID, or clear, random or time
    #[arg(short = 'U', long, value_name = "UUID", value_parser = uuid)]
    uuid: Option<uuid::Uuid>,
    /// Percentage of blocks reserved for the superuser
    #[arg(short = 'm', long, value_name = "PERCENT", default_value_t = 5.0, value_parser = tune_values::percent)]
    reserved: f64,
    /// Features to add, or with ^ to remove, separated by commas. The defaults of ext4 are those of upstream's mke2fs
    /// 1.47. For older boot loaders, kernels and tools, some distributions omit metadata_csum_seed and orphan_file,
    /// as -O ^metadata_csum_seed,^orphan_file does
    #[arg(short = 'O', long, value_name = "FEATURES", value_delimiter = None)]
    features: Vec<String>,
    /// Blocks per group
    #[arg(short = 'g', long, value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Action after an error: continue, remount-ro or panic
    #[arg(short, long, value_name = "BEHAVIOUR", default_value = "continue", value_parser = errors)]
    errors: u16,
    /// Default mount options stored in the volume, separated by commas, as in tune2fs -o
    #[arg(long, value_name = "OPTIONS", default_value = "acl,user_xattr", value_parser = mount_options)]
    mount_options: u32,
    /// Groups per flex group, with the feature flex_bg [default: 16]
    #[arg(short = 'G', long, value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// Comma-separated: hash_seed=UUID, root_owner=UID:GID, root_perms=OCTAL, hash=TYPE, resize=BLOCKS, stride=BLOCKS,
    /// stripe_width=BLOCKS, orphan_file_size=BYTES, num_backup_sb=0|1|2, test_fs, last_mounted=DIR, creator_os=NUMBER,
    /// revision=0|1, lazy_itable_init=0|1, encoding=utf8 (names in any case in directories with the flag F),
    /// encoding_flags=strict
    #[arg(short = 'E', long, value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Make a hash tree of dm-verity behind the file system, or in FILE, and print its root hash. The image must not change
    /// afterwards; check --verity, veritysetup and Linux verify it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "keep_tail")]
    verity: Option<Option<PathBuf>>,
    /// Save the old bytes in a new file, for extant undo. An existing file keeps the bytes behind the file system and between its structures
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verity", "dry_run"])]
    undo: Option<PathBuf>,
    /// Number of threads [0: the number of CPUs]
    #[arg(long, default_value_t = 0, value_parser = store::threads_given)]
    threads: usize,
    /// Keep the tail of a file that is longer than the file system, as mke2fs does
    #[arg(long, hide = true)]
    keep_tail: bool,
    /// Show the parameters of the new file system without writing it
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
    /// Print a longer summary: features, journal, groups
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    owner: OwnerArgs,
}

/// Parses a percentage, at most 90%.
pub fn percent(text: &str) -> Result<f64> {
    let number = text.trim_end_matches('%').parse().ok();
    let number = number.filter(|n: &f64| (0.0..=90.0).contains(n));
    number.with_context(|| "write 0% to 90%".to_string())
}

fn fs_type(text: &str) -> Result<FsType> {
    Ok(match text {
        "ext2" => FsType::Ext2,
        "ext3" => FsType::Ext3,
        "ext4" => FsType::Ext4,
        _ => bail!("use ext2, ext3 or ext4"),
    })
}

fn usage(text: &str) -> Result<Usage> {
    Usage::from_name(text)
        .context("use floppy, small, default, big, huge, news, largefile or largefile4")
}

fn mount_options(text: &str) -> Result<u32> {
    let bits = ext4_format::mount_options::change(0, text);
    bits.map_err(|name| anyhow::anyhow!("{name}: no mount option of a superblock"))
}

impl Args {
    /// Returns the sources, and the temporary directories to keep until the sources are read.
    fn sources(&self, scratch: &Path) -> Result<(Vec<Source>, Vec<tempfile::TempDir>)> {
        check_sources(&self.manifest)?;
        let (mut all, unpacked) = Gathering {
            image: &self.image,
            scratch,
            reading: &self.reading,
        }
        .sources(&self.from)?;
        for file in &self.manifest {
            all.push(present_content::list(file)?.unwrap_or_else(|| present_content::mtree(file)));
        }
        Ok((all, unpacked))
    }

    /// Returns the features to change. A volume on an NBD server gets multiple mount protection unless the caller decides about it; stores of
    /// objects and Ceph clusters keep two writers apart themselves.
    fn features(&self) -> String {
        let mut features = self.features.join(",");
        let decides = |name: &str| ["mmp", "^mmp", "none"].contains(&name.trim());
        let is_shared = schemes::is_remote(&self.image) && !schemes::is_made(&self.image);
        if is_shared && !features.split(',').any(decides) {
            features.push_str(",mmp");
        }
        features
    }

    fn options(&self) -> Result<MkfsOptions> {
        let mut o = MkfsOptions {
            size: self.size.and_then(Size::bytes),
            tight: self.size == Some(Size::Min),
            fs_type: self.fs_type,
            usage: self.usage,
            block_size: self.block_size,
            inode_size: self.inode_size,
            features: self.features(),
            reserved_percent: self.reserved,
            label: self.label.clone(),
            uuid: self.uuid.map(|u| *u.as_bytes()),
            flex_bg_size: self
                .flex_groups
                .unwrap_or(MkfsOptions::default().flex_bg_size),
            errors: self.errors,
            mount_options: self.mount_options,
            blocks_per_group: self.blocks_per_group,
            threads: self.threads,
            free_percent: self
                .size
                .map_or(self.free.unwrap_or(0.0), Size::free_percent),
            ..MkfsOptions::default()
        };
        let mut features = Features::defaults(self.fs_type);
        // The error of an unknown feature is reported with the others.
        let is_known = features.apply(&o.features).is_ok();
        ensure!(
            self.flex_groups.is_none() || !is_known || features.has_flex_bg(),
            "-G: the feature flex_bg is not set: omit -G, or use -O flex_bg"
        );
        common(&mut o, &self.reading, &self.owner, &self.from, &self.image)?;
        if self.from.is_empty() && self.manifest.is_empty() {
            // An empty volume consists of its root directory, which should be writable for the caller.
            let me = (rustix::process::getuid(), rustix::process::getgid());
            let root = (
                o.uid.unwrap_or(me.0.as_raw()),
                o.gid.unwrap_or(me.1.as_raw()),
            );
            o.root_owner = Some(root);
        }
        o.inodes = match (self.bytes_per_inode, self.inodes) {
            (Some(bytes), _) => Some(Inodes::BytesPerInode(bytes)),
            (None, count) => count.map(Inodes::Count),
        };
        for option in self.journal.iter().flat_map(|list| list.split(',')) {
            mkfs_options::journal(&mut o, option)?;
        }
        for option in self
            .extended
            .iter()
            .flat_map(|e| e.split(','))
            .filter(|e| !e.is_empty())
        {
            mkfs_options::extended(&mut o, option).with_context(|| format!("-E {option}"))?;
        }
        Ok(o)
    }
}

/// Sets common options of new file systems: owners, the time, and a directory next to the image for spooled input.
pub fn common(
    o: &mut MkfsOptions,
    reading: &ReadArgs,
    owner: &OwnerArgs,
    from: &[PathBuf],
    image: &Path,
) -> Result<()> {
    o.keep_zeros = reading.keep_zeros;
    o.skip_unreadable = reading.skip_unreadable;
    o.xattrs = !owner.no_xattrs;
    o.uid_map = owner.uid_map.clone().unwrap_or_default();
    o.gid_map = owner.gid_map.clone().unwrap_or_default();
    o.mode_map = owner.mode_map.clone().unwrap_or_default();
    o.cancel = Some(interrupt::flag());
    if let Some(owner) = &owner.owner {
        (o.uid, o.gid) = owner_in(owner, from).context("--owner")?;
    }
    o.source_date_epoch = clock::source_date_epoch()?;
    o.time = clock::fake()?;
    o.spool_dir = spool_dir(image);
    Ok(())
}

/// Returns the directory for input that is read twice: next to the image, where the image needs space anyway. File
/// systems in memory may be too small.
pub fn spool_dir(image: &Path) -> Option<PathBuf> {
    let dir = store::file(image).parent()?;
    Some(if dir.as_os_str().is_empty() {
        ".".into()
    } else {
        dir.into()
    })
}

/// Returns the cause, so that an interrupt is recognized, and the advice.
pub fn failed(e: MkfsError) -> anyhow::Error {
    match &e {
        MkfsError::Interrupted => interrupt::Interrupted.into(),
        MkfsError::TooSmall { needed, .. } => {
            let size = match needed {
                n if *n >= 16 << 20 || n.is_multiple_of(1 << 20) => {
                    format!("{}M", n.div_ceil(1 << 20))
                }
                n => format!("{}K", n.div_ceil(1 << 10)),
            };
            advised(&e, format_args!("use --size {size}"))
        }
        MkfsError::Io { context, source }
            if context.starts_with("opening ")
                && source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            advised(
                output::one_line(&anyhow::Error::new(e)),
                "--skip-unreadable leaves out what cannot be read",
            )
        }
        MkfsError::TooFewInodes { needed, .. } => advised(&e, format_args!("use -N {needed}")),
        MkfsError::Archive { what, .. } if what.starts_with("not an archive") => {
            anyhow::Error::new(e).context("a source is a directory or an archive (cp copies files)")
        }
        MkfsError::Format(FormatError::Incompatible(name)) => {
            anyhow::anyhow!("-O {name}: no such feature: see man 5 ext4")
        }
        MkfsError::Options(text) if text.starts_with("feature ") => {
            advised(&e, "leave it out of -O")
        }
        _ => e.into(),
    }
}

/// Plans the file system, and returns it with its size. Writes nothing and asks nothing.
pub fn planned(args: &Args) -> Result<Prepared> {
    let mut options = args.options()?;
    let image = &args.image;
    let there = schemes::is_remote(image) || store::file(image).try_exists()?;
    let scratch = options.spool_dir.clone().unwrap_or_else(|| ".".into());
    let (sources, _unpacked) = args.sources(&scratch)?;
    if options.size.is_none() {
        options.size = size_there(args, !store::is_plain(image), sources.is_empty(), there)?;
    }
    prepared(&options, sources)
}

fn prepared(options: &MkfsOptions, sources: Vec<Source>) -> Result<Prepared> {
    let prepared = if sources.is_empty() {
        mkfs::prepare(options)
    } else {
        mkfs::prepare_from(options, sources)
    };
    prepared.map_err(failed)
}

/// Prints the planned file system.
fn show_planned(args: &Args) -> Result<()> {
    let would = WouldMake::of(&args.image, &planned(args)?);
    if args.json {
        return output::json(&would);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: would be {}, {} blocks of {} bytes, {} inodes",
        would.image,
        human(would.size),
        would.blocks,
        would.block_size,
        would.inodes
    )?;
    writeln!(out, "UUID {}", would.uuid)?;
    Ok(out.flush()?)
}

pub fn run(args: Args) -> Result<()> {
    if args.dry_run {
        return show_planned(&args);
    }
    check_verity(&args)?;
    let (image, undo) = (args.image.clone(), args.undo.clone());
    undo_log::change(&image, undo.as_deref(), || fill(args))
}

/// Makes the file system.
fn fill(args: Args) -> Result<()> {
    if schemes::is_made(&args.image)
        && let Some(size) = args.size.and_then(Size::bytes)
    {
        remote::make(&args.image, size)?;
    }
    let mut options = args.options()?;
    let image = &args.image;
    streams::no_image(image)?;
    let in_place = store::format(image);
    let remote = schemes::is_remote(image);
    let whole = store::split(image).is_none() && (in_place == Raw || !in_place.is_written());
    let part = remote || !whole;
    if !whole {
        // Report errors of the disk or the partition.
        identity::identity(image)?;
    }
    let there = store::file(image).metadata().ok();
    let is_file = !part && there.as_ref().is_none_or(|m| m.is_file());
    let format = if is_file || args.format.is_some() {
        Format::of(args.format, image)?
    } else {
        None
    };
    check_kind(&args, there.as_ref(), is_file, format.is_some())?;
    let has_undo = logged_image::is_logged(image);
    ensure!(
        !has_undo || format.is_none(),
        "{}: a packed image is a new file, and has no old bytes: omit --undo",
        image.shown()
    );
    let exists = remote || there.is_some();
    if exists {
        may_overwrite(image, args.force)?;
    }
    let scratch = options.spool_dir.clone().unwrap_or_else(|| ".".into());
    let (sources, _unpacked) = args.sources(&scratch)?;
    if options.size.is_none() {
        options.size = size_there(&args, part, sources.is_empty(), exists)?;
    }
    let bar = Arc::new(Bar::default());
    let start = Instant::now();
    options.progress = Some(Arc::clone(&bar) as Arc<dyn mkfs::Progress>);
    options.zeroed_device = is_file && !has_undo;
    let target = Target {
        image,
        is_file,
        new: there.is_none(),
        longer: match &there {
            Some(there) if args.keep_tail => there.len(),
            _ => 0,
        },
        format,
        has_tree: args.verity.is_some(),
    };
    let made = make(&target, &options, sources, &bar);
    bar.change(None);
    let written = made?;
    for warning in &written.report.warnings {
        output::warn(warning);
    }
    let root_hash = root_hash(&args, written.report.size, written.report.uuid)?;
    let mut made = MkfsResult::of(image, written, start.elapsed().as_secs_f64());
    made.root_hash = root_hash;
    let from_source = !args.from.is_empty() || !args.manifest.is_empty();
    let words = match (args.quiet, args.verbose) {
        (true, _) => Words::None,
        (_, true) => Words::Many,
        _ => Words::Few,
    };
    tell(&made, args.json, words, from_source)
}

/// Refuses an address with a root hash, and `--verity` where no tree can be made, before anything is written.
fn check_verity(args: &Args) -> Result<()> {
    let image = &args.image;
    ensure!(
        verified::split(image).is_none(),
        "{}: {}",
        image.shown(),
        verified::ONLY_READ
    );
    if args.verity.is_none() {
        return Ok(());
    }
    ensure!(!schemes::is_remote(image), no_verity(image));
    if let Some(Some(tree)) = &args.verity {
        ensure!(
            std::path::absolute(tree)? != std::path::absolute(image)?,
            "{}: the hash tree needs a separate file: --verity alone puts it behind the file system",
            tree.shown()
        );
        ensure!(
            args.force || !tree.exists(),
            "{}: exists already: use --force to replace it",
            tree.shown()
        );
    }
    Ok(())
}

/// Refuses targets that cannot be written in the asked form.
fn check_kind(
    args: &Args,
    there: Option<&std::fs::Metadata>,
    is_file: bool,
    formatted: bool,
) -> Result<()> {
    let shown = args.image.shown();
    ensure!(
        !there.is_some_and(std::fs::Metadata::is_dir),
        "{shown}: is a directory: name a file; --from makes an image of a directory",
    );
    ensure!(
        is_file || !formatted,
        "{shown}: is written as it is: --format is for separate files",
    );
    ensure!(
        args.verity.is_none() || (is_file && !formatted),
        no_verity(&args.image)
    );
    Ok(())
}

fn no_verity(image: &Path) -> String {
    format!(
        "{}: --verity is for raw images in separate files: use veritysetup on a device",
        image.shown()
    )
}

/// Makes the hash tree of `--verity`, and returns its root hash.
fn root_hash(args: &Args, size: u64, uuid: [u8; 16]) -> Result<Option<String>> {
    let Some(tree) = &args.verity else {
        return Ok(None);
    };
    let root = verity::make(&args.image, tree.as_deref(), size, uuid, args.threads);
    if root.is_err() {
        // Half a tree is useless; the first error is the one to report.
        let _ = match tree {
            Some(tree) => std::fs::remove_file(tree),
            None => std::fs::OpenOptions::new()
                .write(true)
                .open(&args.image)
                .and_then(|image| image.set_len(size)),
        };
    }
    Ok(Some(root?.to_string()))
}

/// Returns the existing size, if the content does not determine the size.
fn size_there(args: &Args, part: bool, empty: bool, there: bool) -> Result<Option<u64>> {
    let image = &args.image;
    let by_content = args.free.is_some() || args.size.is_some();
    if by_content && empty {
        bail!(
            "{}: --size min and +N% are of the content of --from",
            image.shown()
        );
    }
    if !empty && (by_content || !part) {
        return Ok(None);
    }
    let len = if there {
        store::open(image, Access::ReadOnly)?.len()
    } else {
        0
    };
    ensure!(
        len > 0,
        "{}: missing size: use --size 1G, or --from DIR",
        image.shown()
    );
    Ok(Some(len))
}

/// The target of the new file system.
struct Target<'a> {
    image: &'a Path,
    is_file: bool,
    /// Whether the file did not exist.
    new: bool,
    /// Length of a file whose tail is to be kept; 0 otherwise.
    longer: u64,
    format: Option<NewFormat>,
    /// A hash tree is made for the image.
    has_tree: bool,
}

fn make(
    target: &Target<'_>,
    options: &MkfsOptions,
    sources: Vec<Source>,
    bar: &Bar,
) -> Result<Written> {
    // Up to here nothing is written, and the image is not even open.
    let prepared = prepared(options, sources)?;
    let image = target.image;
    let context = || image.shown();
    ensure!(
        !target.has_tree || prepared.size().is_multiple_of(extant_verity::BLOCK),
        "{}: a tree of --verity covers blocks of {} bytes, and the file system would have {}: choose another --size",
        context(),
        extant_verity::BLOCK,
        prepared.size()
    );
    let (mut file, mut place) = (None, None);
    let device: &dyn BlockDevice = if target.is_file && logged_image::is_logged(image) {
        place.insert(kept_file(image, prepared.size())?)
    } else if target.is_file {
        let size = prepared.size();
        let made = if target.longer > size && target.format.is_none() {
            NewFile::beginning_of(image, size)
        } else {
            NewFile::create(image, target.format, size)
        };
        file.insert(made.with_context(context)?).device()
    } else {
        let device = store::open(image, Access::ReadWrite)?;
        let (given, size) = (device.len(), prepared.size());
        ensure!(
            size <= given,
            "{}: has {given} bytes, and the file system would have {size}: leave out --size, or make the device larger",
            context()
        );
        place.insert(device)
    };
    let written = prepared.write(device);
    let sync_seconds = bar.flush_seconds();
    drop(place);
    if written.is_err() && target.new {
        drop(file.take());
        // Half a file system is useless; the first error is the one to report.
        let _ = std::fs::remove_file(image);
    }
    let report = written.map_err(failed).with_context(context)?;
    let packed = file
        .map(|file| file.finish(options.threads, bar))
        .transpose()?;
    Ok(Written {
        report,
        packed_bytes: packed.flatten(),
        sync_seconds,
    })
}

/// Opens a file that keeps its bytes. It becomes longer if it is too short.
fn kept_file(image: &Path, size: u64) -> Result<Arc<dyn BlockDevice>> {
    if !image.exists() {
        drop(NewFile::create(image, None, size)?);
    }
    let device = store::open(image, Access::ReadWrite)?;
    device.extend(size)?;
    Ok(device)
}

/// Fails for a device in use, and for any existing data unless `force` is set or the user confirms at a terminal.
pub fn may_overwrite(image: &Path, force: bool) -> Result<()> {
    let context = || image.shown();
    if !schemes::is_remote(image)
        && let Some(user) = present_content::user(store::file(image)).with_context(context)?
    {
        bail!("{}: is {user}: nothing was written", context());
    }
    if force {
        return Ok(());
    }
    let held = present_content::content(image).map_err(|error| {
        // The error of a server begins with the name.
        let is_named = error.to_string().starts_with(&context());
        let error = anyhow::Error::new(error);
        if is_named {
            error
        } else {
            error.context(context())
        }
    });
    let Some(held) = held? else {
        return Ok(());
    };
    if output::ask(&format!("{} holds {held}. Overwrite it?", context()))? {
        return Ok(());
    }
    bail!(
        "{}: holds {held} already: use --force to replace it",
        context()
    )
}
