//! `extant mkfs`.

use crate::advice::advised;
use crate::container;
use crate::interrupt;
use crate::known;
use crate::output;
use crate::owners::OwnerSpec;
use crate::progress::Progress;
use crate::show::{count, human};
use crate::streams;
use crate::transfer::OwnerArgs;
use anyhow::{Context, Result, bail, ensure};
use blockdev::{Access, BlockDevice, FileDevice};
use ext4_format::FormatError;
use ext4_format::features::FsType;
use ext4_format::hash::HashVersion;
use ext4_format::layout::{Inodes, Usage};
use extant::mkfs::{self, MkfsError, MkfsOptions, MkfsReport, Phase, Source, TarInput, TreeSource};
use extant_terminal::numbers::size;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Make a file system, empty or filled from directories and archives
///
/// It is ext4, or with -t ext2 or ext3. Options are named as mke2fs names them, and its defaults are taken. With --from and without --size
/// the image is as large as its content needs, and --free leaves room. The same input,
/// SOURCE_DATE_EPOCH and -U give the same bytes, whatever the number of threads.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant mkfs disk.img --size 8G\n  extant mkfs root.img --from rootfs/ -L root\n  \
    docker export CONTAINER | extant mkfs root.img --from - --free 20%\n  docker save IMAGE > image.tar && extant mkfs root.img --from image.tar\n  extant mkfs root.img --from base.tar.gz --from app.tar.zst --from local/ --owner 0:0"
)]
pub struct Args {
    /// File to make, or block device
    image: PathBuf,
    /// Bytes of the file system, with K, M, G or T for powers of 1024; without a letter, bytes
    #[arg(long, value_parser = size, value_name = "SIZE")]
    size: Option<u64>,
    /// A directory, a tar archive (plain, gzip, zstd) or - for one on standard input; of several, each
    /// is a layer over those before it, with the white-outs of container images. An image of a container (an
    /// OCI layout, or what docker save wrote) stands for its layers
    #[arg(long, value_name = "SOURCE")]
    from: Vec<PathBuf>,
    /// Part of the file system that stays free when its size is found from its content
    #[arg(long, value_name = "PERCENT%", value_parser = percent, conflicts_with = "size", requires = "from")]
    free: Option<f64>,
    /// Leave out what is mounted below source directories
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Replace an image that holds a file system, or write to a device that does
    #[arg(short = 'F', long)]
    force: bool,
    /// Type: ext2, ext3 or ext4
    #[arg(short = 't', default_value = "ext4", value_parser = fs_type, value_name = "TYPE")]
    fs_type: FsType,
    /// Usage: floppy, small, default, big, huge, news, largefile, largefile4; by the size if left out
    #[arg(short = 'T', value_parser = usage, value_name = "USAGE")]
    usage: Option<Usage>,
    /// Bytes of a block
    #[arg(short, value_name = "BYTES", value_parser = |s: &str| size(s).and_then(|n| Ok(u32::try_from(n)?)))]
    block_size: Option<u32>,
    /// Bytes of an inode
    #[arg(short = 'I', value_name = "BYTES", default_value_t = 256)]
    inode_size: u16,
    /// One inode for so many bytes of the volume
    #[arg(short = 'i', value_name = "BYTES", value_parser = |s: &str| size(s).and_then(|n| Ok(u32::try_from(n)?)))]
    bytes_per_inode: Option<u32>,
    /// Count of inodes
    #[arg(short = 'N', value_name = "COUNT", conflicts_with = "bytes_per_inode")]
    inodes: Option<u32>,
    /// Journal options: size=MiB
    #[arg(short = 'J', value_name = "size=MIB")]
    journal: Option<String>,
    /// Volume label
    #[arg(short = 'L', value_name = "LABEL", default_value = "")]
    label: String,
    /// UUID, or clear, random or time
    #[arg(short = 'U', value_name = "UUID", value_parser = uuid)]
    uuid: Option<uuid::Uuid>,
    /// Percentage of blocks reserved for the superuser
    #[arg(short, value_name = "PERCENT", default_value_t = 5.0)]
    m: f64,
    /// Features to add, or with ^ to remove, with commas between. ext4 begins with those of upstream's
    /// mke2fs 1.47; for boot loaders, kernels and tools that are older, some distributions leave out
    /// metadata_csum_seed and orphan_file, as -O ^metadata_csum_seed,^orphan_file does
    #[arg(short = 'O', value_name = "FEATURES", value_delimiter = None)]
    features: Vec<String>,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups in a flex group
    #[arg(short = 'G', value_name = "GROUPS", default_value_t = 16)]
    flex_groups: u32,
    /// hash_seed=UUID, root_owner=UID:GID, root_perms=OCTAL, hash=TYPE, resize=BLOCKS,
    /// lazy_itable_init=0|1, with commas between
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Threads; 0: one for each CPU
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    owner: OwnerArgs,
}

/// A percentage of something that cannot be all of it.
fn percent(text: &str) -> Result<f64> {
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

fn uuid(text: &str) -> Result<uuid::Uuid> {
    Ok(match text {
        "clear" | "null" => uuid::Uuid::nil(),
        "random" | "time" => uuid::Uuid::new_v4(),
        _ => text
            .parse()
            .context("not a UUID: write one, or clear, random or time")?,
    })
}

impl Args {
    fn options(&self) -> Result<MkfsOptions> {
        let mut o = MkfsOptions {
            size: self.size,
            fs_type: self.fs_type,
            usage: self.usage,
            block_size: self.block_size,
            inode_size: self.inode_size,
            features: self.features.join(","),
            reserved_percent: self.m,
            label: self.label.clone(),
            uuid: self.uuid.map(|u| *u.as_bytes()),
            flex_bg_size: self.flex_groups,
            blocks_per_group: self.blocks_per_group,
            threads: self.threads,
            free_percent: self.free.unwrap_or(0.0),
            xattrs: !self.owner.no_xattrs,
            uid_map: self.owner.uid_map.clone().unwrap_or_default(),
            gid_map: self.owner.gid_map.clone().unwrap_or_default(),
            mode_map: self.owner.mode_map.clone().unwrap_or_default(),
            cancel: Some(interrupt::flag()),
            ..MkfsOptions::default()
        };
        if let Some(owner) = &self.owner.owner {
            (o.uid, o.gid) = owner.numbers().context("--owner")?;
        }
        if self.from.is_empty() {
            // An empty volume consists of its root directory, which its maker wants to write to.
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
        if let Some(journal) = &self.journal {
            let mib = journal
                .strip_prefix("size=")
                .and_then(|n| n.trim_end_matches(['M', 'm']).parse::<u64>().ok());
            let mib = mib.filter(|n| *n > 0 && *n < 1 << 40);
            o.journal_size = Some(mib.context("-J: write size=MIB, as -J size=8")? << 20);
        }
        for option in self
            .extended
            .iter()
            .flat_map(|e| e.split(','))
            .filter(|e| !e.is_empty())
        {
            extended(&mut o, option).with_context(|| format!("-E {option}"))?;
        }
        if let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") {
            let secs = epoch.to_str().and_then(|t| t.parse().ok());
            o.source_date_epoch = Some(secs.context("SOURCE_DATE_EPOCH is no number of seconds")?);
        }
        // Beside the image, where there must be room for it anyway; memory file systems may be small.
        o.spool_dir = self.image.parent().map(|p| {
            if p.as_os_str().is_empty() {
                ".".into()
            } else {
                p.into()
            }
        });
        Ok(o)
    }

    /// The sources, and what must stay until they are read.
    fn sources(&self, scratch: &Path) -> Result<(Vec<Source>, Vec<tempfile::TempDir>)> {
        check_sources(&self.from)?;
        let (mut sources, mut unpacked) = (Vec::new(), Vec::new());
        for path in &self.from {
            match container::layers(path, scratch)? {
                Some(layers) => {
                    let (files, keeps) = layers.into_parts();
                    sources.extend(files.into_iter().map(|f| Source::Tar(TarInput::File(f))));
                    unpacked.extend(keeps);
                }
                None if path.is_dir() => sources.push(Source::Tree(TreeSource {
                    one_file_system: self.one_file_system,
                    exclude: vec![self.image.clone()],
                    ..TreeSource::new(path)
                })),
                None => sources.push(Source::Tar(tar_input(path))),
            }
        }
        Ok((sources, unpacked))
    }
}

/// Sources must be there before anything is done; standard input can be read once.
pub fn check_sources(sources: &[PathBuf]) -> Result<()> {
    let (stdin, files): (Vec<_>, Vec<_>) = sources.iter().partition(|p| streams::is_stream(p));
    ensure!(
        stdin.len() <= 1,
        "-: standard input is one source, not several"
    );
    if !stdin.is_empty() {
        streams::archive_from_stdin()?;
    }
    for file in files {
        let found = file.try_exists();
        let found = found.with_context(|| file.display().to_string())?;
        ensure!(found, "{}: no such file or directory", file.display());
    }
    Ok(())
}

/// An archive, or `-` for standard input.
pub fn tar_input(path: &Path) -> TarInput {
    if streams::is_stream(path) {
        TarInput::Reader {
            name: "standard input".into(),
            reader: Box::new(std::io::stdin()),
        }
    } else {
        TarInput::File(path.into())
    }
}

/// One option of `-E`.
fn extended(o: &mut MkfsOptions, option: &str) -> Result<()> {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let number = || value.parse::<u64>().context("not a number");
    match key {
        "hash_seed" => o.hash_seed = Some(*uuid(value)?.as_bytes()),
        "root_owner" => {
            let (uid, gid) = if value.is_empty() {
                (Some(0), Some(0))
            } else {
                value.parse::<OwnerSpec>()?.numbers()?
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
        "resize" => o.resize_to = Some(number()?),
        "lazy_itable_init" => o.lazy_itable_init = value.is_empty() || number()? != 0,
        // Nothing is ever discarded, so there is nothing to do.
        "nodiscard" => {}
        _ => bail!("no such option: extant mkfs --help lists those there are"),
    }
    Ok(())
}

#[derive(Serialize)]
struct Made {
    image: String,
    size: u64,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    groups: u32,
    journal_blocks: u32,
    features: Vec<String>,
    uuid: String,
    directories: u64,
    files: u64,
    symlinks: u64,
    specials: u64,
    hard_links: u64,
    data_bytes: u64,
    /// The time of the whole work, and the part of it that waited for the device at the end.
    seconds: f64,
    sync_seconds: f64,
    warnings: Vec<String>,
}

impl Made {
    fn of(image: &Path, r: MkfsReport, (seconds, sync_seconds): (f64, f64)) -> Self {
        Self {
            image: image.display().to_string(),
            size: r.size,
            block_size: r.block_size,
            blocks: r.blocks,
            free_blocks: r.free_blocks,
            inodes: r.inodes,
            free_inodes: r.free_inodes,
            groups: r.groups,
            journal_blocks: r.journal_blocks,
            features: r.features.names(),
            uuid: uuid::Uuid::from_bytes(r.uuid).to_string(),
            directories: r.directories,
            files: r.files,
            symlinks: r.symlinks,
            specials: r.specials,
            hard_links: r.hard_links,
            data_bytes: r.data_bytes,
            seconds,
            sync_seconds,
            warnings: r.warnings,
        }
    }
}

/// Shows a phase at a time, and knows when the last one began.
#[derive(Default)]
struct Bar {
    shown: Mutex<Option<Progress>>,
    flush: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere ends the work anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bar {
    fn change(&self, next: Option<Progress>) {
        if let Some(old) = std::mem::replace(&mut *lock(&self.shown), next) {
            old.done();
        }
    }
}

impl mkfs::Progress for Bar {
    fn phase(&self, phase: Phase, total: u64) {
        if phase == Phase::Flush {
            *lock(&self.flush) = Some(Instant::now());
        }
        self.change(Some(match phase {
            Phase::Scan => Progress::count("scan"),
            Phase::Spool => Progress::bytes("read", total),
            Phase::Data => Progress::bytes("data", total),
            Phase::Metadata => Progress::up_to("metadata", total),
            Phase::Flush => Progress::wait("write to the device"),
            _ => Progress::wait("plan"),
        }));
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = &*lock(&self.shown) {
            bar.add(done);
        }
    }
}

/// The cause, so that an interrupt is recognised, and the advice.
fn failed(e: MkfsError) -> anyhow::Error {
    match &e {
        MkfsError::Interrupted => interrupt::Interrupted.into(),
        MkfsError::TooSmall { needed, .. } => {
            let size = match needed {
                n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
                n => format!("{}K", n.div_ceil(1 << 10)),
            };
            advised(&e, format_args!("use --size {size}"))
        }
        MkfsError::TooFewInodes { needed, .. } => advised(&e, format_args!("use -N {needed}")),
        MkfsError::Tar { what, .. } if what.starts_with("not a tar archive") => {
            anyhow::Error::new(e).context("a source is a directory or an archive (cp copies files)")
        }
        MkfsError::Format(FormatError::Incompatible(name)) => {
            anyhow::anyhow!("-O {name}: no such feature: man 5 ext4 lists those there are")
        }
        MkfsError::Options(text) if text.starts_with("feature ") => {
            advised(&e, "leave it out of -O")
        }
        _ => e.into(),
    }
}

pub fn run(args: Args) -> Result<()> {
    let mut options = args.options()?;
    let image = &args.image;
    streams::no_image(image)?;
    let there = image.metadata().ok();
    let is_file = there.as_ref().is_none_or(|m| m.is_file());
    let context = || image.display().to_string();
    if there.as_ref().is_some_and(|m| m.is_dir()) {
        bail!(
            "{}: is a directory: name a file; --from makes an image of a directory",
            context()
        );
    }
    if there.is_some() {
        may_overwrite(image, args.force)?;
    }
    let scratch = options.spool_dir.clone().unwrap_or_else(|| ".".into());
    let (sources, _unpacked) = args.sources(&scratch)?;
    if sources.is_empty() && options.size.is_none() {
        let len = there.as_ref().map_or(Ok(0), |_| {
            FileDevice::open(image, Access::ReadOnly).map(|d| d.len())
        });
        options.size = Some(len.with_context(context)?).filter(|&len| len > 0);
        ensure!(
            options.size.is_some(),
            "{}: how large? Use --size 1G, or --from with what it is to hold",
            context()
        );
    }
    let bar = Arc::new(Bar::default());
    let start = Instant::now();
    options.progress = Some(Arc::clone(&bar) as Arc<dyn mkfs::Progress>);
    options.zeroed_device = is_file;
    let made = make(image, is_file, there.is_none(), &options, sources);
    let flush = lock(&bar.flush).map_or(0.0, |at| at.elapsed().as_secs_f64());
    let seconds = (start.elapsed().as_secs_f64(), flush);
    bar.change(None);
    let report = made?;
    for warning in &report.warnings {
        output::complain(format_args!("warning: {warning}"));
    }
    let made = Made::of(image, report, seconds);
    if args.json {
        return output::json(&made);
    }
    let mut out = output::stdout();
    let Made {
        blocks,
        block_size,
        inodes,
        files,
        directories,
        data_bytes,
        ..
    } = &made;
    writeln!(
        out,
        "{}: {}, {blocks} blocks of {block_size} bytes, {inodes} inodes",
        made.image,
        human(made.size)
    )?;
    writeln!(out, "UUID {}", made.uuid)?;
    if !args.from.is_empty() {
        writeln!(
            out,
            "{}, {}, {} of data",
            count(*files, "file", "files"),
            count(*directories, "directory", "directories"),
            human(*data_bytes)
        )?;
    }
    Ok(out.flush()?)
}

fn make(
    image: &Path,
    is_file: bool,
    new: bool,
    options: &MkfsOptions,
    sources: Vec<Source>,
) -> Result<MkfsReport> {
    let prepared = match sources.is_empty() {
        false => mkfs::prepare_from(options, sources),
        true => mkfs::prepare(options),
    };
    // Until here nothing is written, and the image not even opened.
    let prepared = prepared.map_err(failed)?;
    let context = || image.display().to_string();
    let device = if is_file {
        FileDevice::create(image, prepared.size())
    } else {
        FileDevice::open(image, Access::ReadWrite)
    };
    let device = device
        .map_err(|e| no_place(image, e))
        .with_context(context)?;
    let written = prepared.write(&device);
    drop(device);
    if written.is_err() && new {
        // Half a file system is of no use to anybody; the error that matters is the first one.
        let _ = std::fs::remove_file(image);
    }
    written.map_err(failed).with_context(context)
}

/// Why an image cannot be made where it is to be.
fn no_place(image: &Path, e: std::io::Error) -> anyhow::Error {
    let kind = e.kind();
    let error = bare(e);
    let dir = image
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let dir = dir.display();
    match kind {
        std::io::ErrorKind::NotFound => advised(
            output::one_line(&error),
            format_args!("mkdir -p {dir} makes its directory"),
        ),
        std::io::ErrorKind::PermissionDenied => advised(
            output::one_line(&error),
            format_args!("name a file in a directory that is yours, not in {dir}"),
        ),
        _ => error,
    }
}

/// An error of the device without the path that it begins with.
fn bare(e: std::io::Error) -> anyhow::Error {
    match e.to_string().split_once(": ") {
        Some((_, rest)) if e.get_ref().is_some() => anyhow::anyhow!("{rest}"),
        _ => e.into(),
    }
}

/// A device in use is never overwritten, and what holds anything only if that is insisted on, or confirmed at a terminal.
fn may_overwrite(image: &Path, force: bool) -> Result<()> {
    let context = || image.display().to_string();
    if let Some(user) = known::user(image).with_context(context)? {
        bail!("{}: is {user}: nothing was written", context());
    }
    if force {
        return Ok(());
    }
    let Some(held) = known::content(image).with_context(context)? else {
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
