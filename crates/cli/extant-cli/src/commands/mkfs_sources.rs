//! The sources of a new image.

use crate::transfer::ImageTree;
use crate::transfer::container::{self, ContainerSource, ImageChoice};
use anyhow::{Context, Result, ensure};
use extant::mkfs::{ArchiveInput, MkfsError, Source, TreeSource};
use extant_cli_core::address::is_stream;
use extant_cli_core::format::owners::{LARGEST, Owner, OwnerSpec};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::{images, present_content, store, streams};
use extant_terminal::interrupt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Options for reading the sources.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ReadArgs {
    /// Skip mounts below the source directories
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Skip unreadable files of source directories, with a warning for each
    #[arg(long)]
    pub skip_unreadable: bool,
    /// Allocate blocks of zeros, and blocks that are allocated but unwritten, which otherwise become holes
    #[arg(long)]
    pub keep_zeros: bool,
    #[command(flatten)]
    choice: ImageChoice,
}

/// Collector of the sources of a new image.
pub struct Gathering<'a> {
    pub image: &'a Path,
    /// Directory for the unpacked layers of container images.
    pub scratch: &'a Path,
    pub reading: &'a ReadArgs,
}

impl Gathering<'_> {
    /// Returns the sources, and the temporary directories to keep until the sources are read.
    pub fn sources(&self, from: &[PathBuf]) -> Result<(Vec<Source>, Vec<tempfile::TempDir>)> {
        check_sources(from)?;
        let (mut sources, mut unpacked) = (Vec::new(), Vec::new());
        let mut chosen = false;
        for path in from {
            match container::source(path, self.scratch, &self.reading.choice)? {
                Some(ContainerSource::Image(layers)) => {
                    let (files, keeps) = layers.into_parts();
                    sources.extend(files.into_iter().map(Source::Archive));
                    unpacked.extend(keeps);
                    chosen = true;
                }
                Some(ContainerSource::Other(input)) => sources.push(Source::Archive(input)),
                None => sources.push(self.source(path)?),
            }
        }
        self.reading.choice.check_was_used(chosen)?;
        Ok((sources, unpacked))
    }

    /// Returns a source that is not an image of a container.
    fn source(&self, path: &Path) -> Result<Source> {
        if let Some(tree) = present_content::squashfs_in_disk(path)? {
            return Ok(Source::Other(tree));
        }
        if is_image(path)? {
            not_itself(path, self.image)?;
            return Ok(Source::Other(Box::new(ImageTree::open(path)?)));
        }
        if let Some(list) = present_content::list(path)? {
            return Ok(list);
        }
        if path.is_dir() {
            return Ok(Source::Tree(TreeSource {
                one_file_system: self.reading.one_file_system,
                exclude: vec![store::file(self.image).to_path_buf()],
                ..TreeSource::new(path)
            }));
        }
        present_content::no_disk(path)?;
        Ok(Source::Archive(ArchiveInput::File(path.into())))
    }
}

/// Returns the numbers of an owner: as given, or by the account files in the sources.
pub fn owner_in(owner: &OwnerSpec, from: &[PathBuf]) -> Result<Owner> {
    match owner.numbers() {
        Some(numbers) => Ok(numbers),
        None => owner.resolve_by("the source's ", |path| {
            let found = from.iter().rev().find_map(|source| file_of(source, path));
            found.context("not found")?
        }),
    }
}

/// Returns a file of a source, if the source can be searched and has the file.
fn file_of(source: &Path, path: &str) -> Option<Result<Vec<u8>>> {
    let below = path.trim_start_matches('/');
    if source.is_dir() {
        // A link may lead out of the directory, to the host's own file.
        let top = source.canonicalize().ok()?;
        let file = source.join(below).canonicalize().ok()?;
        let inside = file.starts_with(top) && file.is_file();
        return inside.then(|| Ok(std::fs::read(file)?));
    }
    if is_image(source).ok()? {
        let volume = images::read(source).ok()?;
        return volume.read(path).ok().map(Ok);
    }
    if streams::is_pipe(source) || !store::is_plain(source) {
        return None;
    }
    let mut found = None;
    let input = ArchiveInput::File(source.into());
    let read = extant::mkfs::read_archive(input, Some(interrupt::flag()), |member, data| {
        let name = member.path.strip_prefix(b"./").unwrap_or(&member.path);
        if name.strip_prefix(b"/").unwrap_or(name) == below.as_bytes() {
            let mut bytes = Vec::new();
            let read = data.take(LARGEST).read_to_end(&mut bytes);
            found = Some(read.map(|_| bytes).map_err(anyhow::Error::from));
        }
        Ok::<(), MkfsError>(())
    });
    read.ok().and(found)
}

/// Fails if a source does not exist, or if standard input is named twice.
pub fn check_sources(sources: &[PathBuf]) -> Result<()> {
    let (stdin, files): (Vec<_>, Vec<_>) = sources.iter().partition(|p| is_stream(p));
    ensure!(
        stdin.len() <= 1,
        "-: standard input is one source, not several"
    );
    if !stdin.is_empty() {
        streams::archive_from_stdin()?;
    }
    for file in files {
        let found = store::file(file).try_exists();
        let found = found.with_context(|| file.shown())?;
        ensure!(
            found,
            "{}: no such file or directory{}",
            file.shown(),
            advice_for_missing_source(file)
        );
    }
    Ok(())
}

/// Returns advice on a missing source, if its name means something to other programs.
fn advice_for_missing_source(source: &Path) -> String {
    let text = source.to_string_lossy();
    if let Some((scheme, _)) = text.split_once("://") {
        return match scheme {
            "docker" | "containers-storage" => {
                format!(": skopeo copy {text} oci:DIR makes a directory for --from")
            }
            _ => {
                ": sources are files: download it first, or pipe it in, with - in its place".into()
            }
        };
    }
    // The address of skopeo and umoci begins with the kind of the directory.
    let addresses = [Some(&*text), text.strip_prefix("oci:")];
    for named in addresses.into_iter().flatten() {
        match named.rsplit_once(':') {
            Some((there, path)) if path.starts_with('/') && Path::new(there).exists() => {
                return format!(
                    ": only whole images are sources: pipe extant export {text} - in, with - in its place"
                );
            }
            Some((there, tag)) if !tag.is_empty() && Path::new(there).exists() => {
                return format!(": is {there} with --tag {tag} meant?");
            }
            None if named != text && Path::new(named).exists() => {
                return format!(": is {named} meant?");
            }
            _ => {}
        }
    }
    String::new()
}

/// Fails if the image is its own source.
fn not_itself(source: &Path, image: &Path) -> Result<()> {
    let id = |path: &Path| {
        store::file(path)
            .metadata()
            .map(|m| (m.dev(), m.ino()))
            .ok()
    };
    ensure!(
        id(source) != id(image) || store::split(source).is_some(),
        "{}: the image is also its source: nothing was written",
        source.shown()
    );
    Ok(())
}

/// Returns whether a source is an image of ext2, ext3 or ext4, in a disk or not.
pub fn is_image(source: &Path) -> Result<bool> {
    present_content::is_image(source).with_context(|| source.shown())
}
