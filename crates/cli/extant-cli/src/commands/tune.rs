//! `extant tune`.

use super::inspect;
use anyhow::{Context, Result, bail};
use extant_cli_core::address::Rooted;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::{HostPath, ShowPath, count, show};
use extant_cli_core::format::tune_values as values;
use extant_cli_core::image::advice::about_disk;
use extant_cli_core::image::in_place;
use extant_resize::{NewSize, ResizeOptions};
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use extant_tune::{CLEARABLE, Plan, SETTABLE, TuneOptions};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Change label, UUID, features, journal and other properties
#[derive(clap::Args, Debug)]
#[command(
    long_about = long_about(),
    after_help = "Examples:\n  extant tune disk.img -L data -m 1\n  extant tune disk.img -O metadata_csum,^has_journal -n\n  \
                  extant tune disk.img -J size=64\n  extant tune disk.img -U random --undo disk.undo"
)]
pub struct Args {
    /// Image to change
    image: Rooted,
    /// Show the superblock
    #[arg(short = 'l', long)]
    list: bool,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// A UUID, or random, time or clear
    #[arg(short = 'U', long)]
    uuid: Option<String>,
    /// Features to set, and to clear with ^
    #[arg(short = 'O', long, value_name = "FEATURE,...")]
    features: Option<String>,
    /// Quotas to keep, usrquota, grpquota and prjquota, and with ^ those to remove
    #[arg(short = 'Q', long, value_name = "KIND,...")]
    quota: Option<String>,
    /// Default mount options to set, and to clear with ^
    #[arg(short = 'o', long, value_name = "OPTION,...")]
    mount_options: Option<String>,
    /// Percentage of blocks reserved for the superuser
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = values::percent)]
    reserved_percent: Option<f64>,
    /// Number of blocks reserved for the superuser
    #[arg(
        short = 'r',
        long,
        value_name = "BLOCKS",
        conflicts_with = "reserved_percent"
    )]
    reserved_blocks: Option<u64>,
    /// User that may use the reserved blocks
    #[arg(short = 'u', long, value_name = "USER")]
    reserved_user: Option<String>,
    /// Group that may use the reserved blocks
    #[arg(short = 'g', long, value_name = "GROUP")]
    reserved_group: Option<String>,
    /// Action after an error: continue, remount-ro or panic
    #[arg(short = 'e', long, value_name = "BEHAVIOUR")]
    errors: Option<String>,
    /// Number of mounts between checks; 0 or -1: no check
    #[arg(short = 'c', long, value_name = "COUNT", allow_negative_numbers = true)]
    max_mounts: Option<i16>,
    /// Number of mounts since the last check
    #[arg(short = 'C', long, value_name = "COUNT")]
    mounts: Option<u16>,
    /// Time between checks, such as 10d, 2w or 6m; 0: no check
    #[arg(short = 'i', long, value_name = "TIME")]
    interval: Option<String>,
    /// Time of the last check: now, YYYYMMDD, YYYYMMDDHHMMSS (or its beginning) or @SECONDS
    #[arg(short = 'T', long, value_name = "TIME")]
    last_checked: Option<String>,
    /// Directory of the last mount
    #[arg(short = 'M', long, value_name = "DIR")]
    last_mounted: Option<String>,
    /// Make a journal if the volume has no journal
    #[arg(short = 'j', long)]
    journal: bool,
    /// Make a journal of size=MIB, with an area of fast_commit_size=KIB for fast commits; replaces the old journal
    #[arg(short = 'J', long, value_name = "size=MIB,...")]
    journal_options: Option<String>,
    /// stride=, stripe_width=, hash_alg=, hash_seed=, mount_opts=, mmp_update_interval=, clear_mmp, orphan_file_size=,
    /// encoding=utf8, encoding_flags=[no-]strict, force_fsck, [^]test_fs
    #[arg(short = 'E', long, value_name = "NAME[=VALUE],...")]
    extended: Option<String>,
    /// Grow inodes to this size; files are moved to make room for the tables. Excludes other changes
    #[arg(short = 'I', long, value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Only list the changes; write nothing
    #[arg(short = 'n', long, conflicts_with = "undo")]
    dry_run: bool,
    /// Save the old bytes in a new file, for extant undo
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Tuned {
    image: HostPath,
    written: bool,
    changes: Vec<Changed>,
    features: Vec<String>,
    bytes: u64,
}

#[derive(Serialize)]
struct Resized {
    image: HostPath,
    written: bool,
    changes: Vec<Changed>,
    moved: u64,
}

#[derive(Serialize)]
struct Changed {
    place: String,
    text: String,
}

/// Returns the help, with the features that change.
fn long_about() -> String {
    format!(
        "Change label, UUID, features, journal and other properties

The options are those of tune2fs. The change is planned first: it is made in memory, with all its consequences, and \
checked there. Only then is the change written, after an undo file next to the image (IMAGE.extant-undo), which is \
removed at the end. If the change is interrupted, extant repair, the next extant tune and extant undo roll it back.

Features that can be set: {}. Features that can be cleared if unused: {}.",
        SETTABLE.names().join(", "),
        CLEARABLE.names().join(", "),
    )
}

pub fn run(args: &Args) -> Result<()> {
    tune(args).map_err(|e| about_disk(&args.image.0.image, e))
}

fn tune(args: &Args) -> Result<()> {
    let options = options(args)?;
    let changes_nothing = options
        == (TuneOptions {
            now: options.now,
            ..TuneOptions::default()
        });
    if let Some(bytes) = args.inode_size {
        if !changes_nothing {
            bail!("-I goes with no other change: make them one after the other");
        }
        return inode_size(args, bytes, options.now);
    }
    if changes_nothing {
        return if args.list {
            inspect::superblock(&args.image, args.json)
        } else {
            bail!("nothing to change; extant tune --help lists what can be")
        };
    }
    let write = Writing {
        image: &args.image,
        undo: args.undo.as_ref(),
        dry_run: args.dry_run,
        json: args.json,
    };
    write.run(&options)?;
    if args.list {
        inspect::superblock(&args.image, args.json)?;
    }
    Ok(())
}

/// Grows the inodes.
fn inode_size(args: &Args, bytes: u16, now: i64) -> Result<()> {
    let image = &args.image.0.image;
    let name = image.shown();
    let undo = args.undo.as_deref();
    let (device, beside) = in_place::ready(image, args.dry_run)?;
    let harmless = interrupt::harmless()?;
    let progress = Progress::wait(&format!("{name}: making the plan"));
    let options = ResizeOptions {
        inode_size: Some(bytes),
        now,
        ..ResizeOptions::new(NewSize::Same)
    };
    let plan = extant_resize::plan(&device, &options);
    progress.done();
    let plan = plan.with_context(|| name.clone())?;
    let written = !args.dry_run && !plan.is_empty();
    if written {
        let _writing = harmless.now_write()?;
        let done = plan.write(&device, undo, beside.as_deref());
        done.map_err(|e| in_place::after_failure(image, device, e))
            .with_context(|| name.clone())?;
    }
    let text = format!("inodes have {bytes} bytes");
    if args.json {
        let changed = Changed {
            place: "inode tables".into(),
            text,
        };
        return output::json(&Resized {
            image: HostPath::from(args.image.0.image.as_path()),
            written,
            changes: (!plan.is_empty()).then_some(changed).into_iter().collect(),
            moved: plan.moved,
        });
    }
    let mut out = output::stdout();
    match (plan.is_empty(), args.dry_run) {
        (true, _) => writeln!(out, "{name}: nothing to change")?,
        (_, dry_run) => {
            let would = if dry_run { "would be " } else { "" };
            let moved = count(plan.moved, "block moves", "blocks move");
            writeln!(out, "inode tables: {text}; {moved}")?;
            writeln!(out, "{name}: 1 change {would}made")?;
        }
    }
    Ok(out.flush()?)
}

/// How to write a plan.
pub struct Writing<'a> {
    pub image: &'a Rooted,
    pub undo: Option<&'a PathBuf>,
    pub dry_run: bool,
    pub json: bool,
}

impl Writing<'_> {
    /// Makes the plan, writes it, and reports it.
    pub fn run(&self, options: &TuneOptions) -> Result<()> {
        let image = &self.image.0.image;
        let name = image.shown();
        let undo = self.undo.map(PathBuf::as_path);
        let claims = !self.dry_run && !options.clear_mmp;
        let (device, beside) = in_place::ready_if(image, self.dry_run, claims)?;
        let harmless = interrupt::harmless()?;
        let progress = Progress::wait(&format!("{name}: making the plan"));
        let plan = extant_tune::plan(&device, options);
        progress.done();
        let plan = plan.with_context(|| name.clone())?;
        let written = !self.dry_run && !plan.writes.is_empty();
        if written {
            let _writing = harmless.now_write()?;
            let done = plan.writes.write(&device, undo, beside.as_deref());
            done.map_err(|e| in_place::after_failure(image, device, e))
                .with_context(|| name.clone())?;
        }
        self.tell(&name, &plan, written)
    }

    fn tell(&self, name: &str, plan: &Plan, written: bool) -> Result<()> {
        if self.json {
            let changes = plan.changes.iter().map(|change| Changed {
                place: change.place.clone(),
                text: change.text.clone(),
            });
            return output::json(&Tuned {
                image: HostPath::from(self.image.0.image.as_path()),
                written,
                changes: changes.collect(),
                features: plan.after.names(),
                bytes: plan.writes.bytes(),
            });
        }
        let mut out = output::stdout();
        for change in &plan.changes {
            writeln!(out, "{}", show(change.to_string().as_bytes()))?;
        }
        let changes = count(plan.changes.len() as u64, "change", "changes");
        let what = match (plan.writes.is_empty(), self.dry_run) {
            (true, _) => "nothing to change".to_owned(),
            (_, false) => format!("{changes} made"),
            _ => format!("{changes} would be made"),
        };
        writeln!(out, "{name}: {what}")?;
        Ok(out.flush()?)
    }
}

/// Converts the arguments into changes.
pub(crate) fn options(args: &Args) -> Result<TuneOptions> {
    let mut options = TuneOptions {
        label: args.label.clone().map(String::into_bytes),
        uuid: args.uuid.as_deref().map(values::uuid).transpose()?,
        features: args.features.clone().unwrap_or_default(),
        quota: args.quota.clone().unwrap_or_default(),
        mount_options: args.mount_options.clone().unwrap_or_default(),
        reserved_percent: args.reserved_percent,
        reserved_blocks: args.reserved_blocks,
        reserved_uid: args
            .reserved_user
            .as_deref()
            .map(values::user)
            .transpose()?,
        reserved_gid: args
            .reserved_group
            .as_deref()
            .map(values::group)
            .transpose()?,
        errors: args.errors.as_deref().map(values::errors).transpose()?,
        max_mounts: args.max_mounts,
        mounts: args.mounts,
        check_interval: args.interval.as_deref().map(values::interval).transpose()?,
        last_checked: args.last_checked.as_deref().map(values::time).transpose()?,
        last_mounted: args.last_mounted.clone().map(String::into_bytes),
        journal: args.journal,
        now: clock::stamp()?,
        ..TuneOptions::default()
    };
    if let Some(list) = &args.journal_options {
        values::journal(list, &mut options)?;
    }
    if let Some(list) = &args.extended {
        values::extended(list, &mut options)?;
    }
    Ok(options)
}
