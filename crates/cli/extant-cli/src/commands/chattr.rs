//! `extant chattr`.

use anyhow::{Result, bail};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser, ValueParserFactory};
use extant::{FileType, Metadata, SetAttributes};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk};
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::attr_flags::{FlagChange, number};
use extant_cli_core::image::images::Images;
use extant_terminal::progress::Progress;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Change the flags, project or generation of files in an image
///
/// A change begins with + to add flags, - to remove them, or = to set exactly these. The letters are those of chattr:
/// a append-only, A no access times, d no dump, D synchronous directory changes, e mapped by extents, F names in any
/// case (of an empty directory, with the feature casefold), i immutable, j data through the journal, P inherit the
/// project, s u c t x kept for other systems, S synchronous writes, T top of a hierarchy. Flags restrict writers
/// through a mount, but not the commands of this program that only change attributes. A project requires the feature
/// project, and no project quota may be kept. A generation can be set only if the metadata have no checksums, because
/// the checksums depend on it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chattr +i disk.img:/etc/machine-id\n  extant chattr -R =d disk.img:/var/cache\n  \
                  extant chattr -p 7 +P disk.img:/srv"
)]
pub struct Args {
    /// +FLAGS, -FLAGS or =FLAGS; may be omitted with -p or -v
    #[arg(value_name = "CHANGE", allow_hyphen_values = true)]
    first: First,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH")]
    others: Vec<Address>,
    /// Set the project
    #[arg(short, long, value_name = "NUMBER", value_parser = number)]
    project: Option<u32>,
    /// Set the generation of the inode numbers
    #[arg(short = 'v', long, value_name = "NUMBER", value_parser = number)]
    generation: Option<u32>,
    /// Change directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// The first operand: a change, or a file.
#[derive(Clone, Debug)]
enum First {
    Change(FlagChange),
    File(Address),
}

impl ValueParserFactory for First {
    type Parser = ValueParser;
    fn value_parser() -> ValueParser {
        let given = |text: OsString| match text.as_bytes().first() {
            Some(b'+' | b'-' | b'=') => {
                let change = text.to_string_lossy().parse();
                change.map(Self::Change).map_err(|e| e.to_string())
            }
            _ => Address::given(text).map(Self::File),
        };
        OsStringValueParser::new().try_map(given).into()
    }
}

pub fn run(args: &Args) -> Result<()> {
    let (flags, first) = match &args.first {
        First::Change(change) => (Some(change), None),
        First::File(file) => (None, Some(file)),
    };
    let paths: Vec<Address> = first.into_iter().chain(&args.others).cloned().collect();
    if paths.is_empty() {
        bail!("write the files to change, as IMAGE:/PATH");
    }
    if flags.is_none() && args.project.is_none() && args.generation.is_none() {
        bail!("write what to change: +FLAGS, -FLAGS or =FLAGS, -p or -v");
    }
    let change = |a: &Metadata| SetAttributes {
        flags: flags.map(|change| change.apply(a.flags())),
        project: args.project,
        generation: args.generation,
        ..Default::default()
    };
    let has_flags = |kind| matches!(kind, FileType::Regular | FileType::Directory);
    Images::each(true, &paths, NoMatch::Fails, |place| {
        let a = place.attributes(true)?;
        place.set_attributes(&change(&a), true)?;
        if a.file_type() == FileType::Directory && args.recursive {
            let progress = Progress::count("change");
            walk(
                &place.open_dir()?,
                &place.address.path,
                Order::Before,
                |met| {
                    if has_flags(met.kind) {
                        let set = change(&met.parent.metadata(os(met.name))?);
                        met.parent.set_attributes(os(met.name), &set)?;
                    }
                    progress.add(1);
                    Ok(true)
                },
            )?;
        }
        Ok(())
    })
}
