//! Images of containers as sources: OCI image layouts, as directories or archives, archives of `docker save`, and
//! directories of `skopeo copy ... dir:`. An image is a list of layers, each an archive with white-outs. A source may
//! hold images for several platforms and under several names.

mod choice;
mod piped;

pub use choice::ImageChoice;

use anyhow::{Context, Result, bail, ensure};
use choice::{Descriptor, choose, same_platform};
use extant::mkfs::ArchiveInput;
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::streams::is_pipe;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Layers of an image, the lowest first. Files that were unpacked are removed when this is dropped.
pub struct Layers {
    layers: Vec<Layer>,
    unpacked: Option<tempfile::TempDir>,
}

/// A layer: its file, and its name in messages.
struct Layer {
    path: PathBuf,
    name: String,
}

impl Layers {
    /// Returns the archives of the layers, and the directory that keeps unpacked ones.
    pub fn into_parts(self) -> (Vec<ArchiveInput>, Option<tempfile::TempDir>) {
        let input = |Layer { path, name }| ArchiveInput::Named { name, path };
        (self.layers.into_iter().map(input).collect(), self.unpacked)
    }
}

/// Largest file of JSON that is read: real ones have a few KiB.
const MOST_JSON: u64 = 4 << 20;
/// Deepest index of indexes.
const MOST_NESTED: usize = 4;

/// An index or a manifest of OCI.
#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    /// Layers of a manifest; empty for an index.
    #[serde(default)]
    layers: Vec<Descriptor>,
    config: Option<Descriptor>,
}

/// Entry of an image in the manifest of `docker save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config", default)]
    config: String,
    #[serde(rename = "Layers", default)]
    layers: Vec<String>,
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// Arrangement of an image's files in a directory.
enum Layout {
    Oci,
    /// As `docker save` packs them.
    Saved,
    /// As `skopeo copy ... dir:` writes them: a manifest, and blobs named by their digests in the same directory.
    Transport,
}

impl Layout {
    /// Returns the layout of a directory, if it is that of an image.
    fn of(dir: &Path) -> Option<Self> {
        if dir.join("oci-layout").is_file() {
            return Some(Self::Oci);
        }
        if !dir.join("manifest.json").is_file() {
            return None;
        }
        let version = std::fs::read(dir.join("version")).unwrap_or_default();
        if version.starts_with(b"Directory Transport") {
            return Some(Self::Transport);
        }
        // Other programs have files of this name.
        let images: Vec<Saved> = json(&dir.join("manifest.json")).ok()?;
        images
            .iter()
            .any(|image| !image.layers.is_empty())
            .then_some(Self::Saved)
    }
}

/// The kind of a source.
pub enum ContainerSource {
    /// An image of a container.
    Image(Layers),
    /// A pipe that is not an image of a container, from its first byte.
    Other(ArchiveInput),
}

/// Returns a source that is an image of a container, or that is read from a pipe; `None` for any other source.
/// Layers of an archive are unpacked below `scratch`.
pub fn source(
    source: &Path,
    scratch: &Path,
    choice: &ImageChoice,
) -> Result<Option<ContainerSource>> {
    if is_pipe(source) {
        return piped::piped(source, scratch, choice).map(Some);
    }
    // File systems and disks are handled by the callers that expect them; names of partitions are not files.
    Ok(layers(source, scratch, choice)?.map(ContainerSource::Image))
}

/// Returns the layers of a file or directory that is an image of a container.
fn layers(source: &Path, scratch: &Path, choice: &ImageChoice) -> Result<Option<Layers>> {
    let shown = source.shown();
    if source.is_dir() {
        let Some(layout) = Layout::of(source) else {
            return Ok(None);
        };
        let layers =
            layout_layers(&layout, source, &shown, choice).with_context(|| shown.clone())?;
        return Ok(Some(Layers {
            layers,
            unpacked: None,
        }));
    }
    if !source.is_file() {
        return Ok(None);
    }
    let open = || -> Result<_> {
        let file = File::open(source)?;
        Ok(extant::mkfs::decompressed(Box::new(file))?)
    };
    // Errors are reported later, by the reader of archives.
    let Some(top) = open().and_then(image_in).unwrap_or(None) else {
        return Ok(None);
    };
    unpacked_layers(open()?, &top, &shown, scratch, choice).map(Some)
}

/// Unpacks the archive of an image below `scratch`, and returns the layers of the image in its directory `top`.
fn unpacked_layers(
    archive: impl Read,
    top: &Path,
    shown: &str,
    scratch: &Path,
    choice: &ImageChoice,
) -> Result<Layers> {
    let unpacked = tempfile::Builder::new()
        .prefix(".extant-layers")
        .tempdir_in(scratch)
        .with_context(|| scratch.shown())?;
    let dir = unpacked.path();
    let layers = unpack(archive, dir).and_then(|()| {
        let dir = dir.join(top);
        let layout = Layout::of(&dir).unwrap_or(Layout::Saved);
        layout_layers(&layout, &dir, shown, choice)
    });
    Ok(Layers {
        layers: layers.with_context(|| shown.to_owned())?,
        unpacked: Some(unpacked),
    })
}

/// Returns the layers of the image in a directory.
fn layout_layers(
    layout: &Layout,
    dir: &Path,
    shown: &str,
    choice: &ImageChoice,
) -> Result<Vec<Layer>> {
    match layout {
        Layout::Oci => oci_layers(dir, shown, choice),
        Layout::Saved => saved_layers(dir, shown, choice),
        Layout::Transport => {
            ensure!(
                choice.tag.is_none(),
                "the image has no name: leave --tag out"
            );
            let manifest: Index = json(&dir.join("manifest.json"))?;
            let blob = |digest: &str| inside(dir, digest.split_once(':').map_or(digest, |d| d.1));
            manifest_layers(&manifest, shown, choice, &blob)
        }
    }
}

/// Returns the layers of an OCI image layout.
fn oci_layers(dir: &Path, shown: &str, choice: &ImageChoice) -> Result<Vec<Layer>> {
    let blob = |digest: &str| blob(dir, digest);
    let mut index: Index = json(&dir.join("index.json"))?;
    let mut tag = choice.tag.as_deref();
    for _ in 0..MOST_NESTED {
        if index.manifests.is_empty() {
            return manifest_layers(&index, shown, choice, &blob);
        }
        let chosen = choose(&index.manifests, tag, choice.platform.as_ref(), &|of| {
            // A nested index has no platform.
            let manifest: Index = json(&blob(&of.digest)?)?;
            let config = manifest.config.as_ref();
            config.map(|c| json(&blob(&c.digest)?)).transpose()
        })?;
        tag = None;
        index = json(&blob(&chosen.digest)?)?;
    }
    bail!("indexes of indexes, more than {MOST_NESTED} deep")
}

/// Returns the layers of a manifest, whose files `blob` finds by their digests.
fn manifest_layers(
    manifest: &Index,
    shown: &str,
    choice: &ImageChoice,
    blob: &dyn Fn(&str) -> Result<PathBuf>,
) -> Result<Vec<Layer>> {
    ensure!(!manifest.layers.is_empty(), "the image has no layers");
    if let (Some(wanted), Some(config)) = (&choice.platform, &manifest.config) {
        same_platform(wanted, &json(&blob(&config.digest)?)?)?;
    }
    let layer = |layer: &Descriptor| {
        layer.check_is_layer()?;
        Ok(Layer {
            path: blob(&layer.digest)?,
            name: format!("{shown}: layer {}", layer.digest),
        })
    };
    manifest.layers.iter().map(layer).collect()
}

/// Returns the layers of an image that `docker save` wrote.
fn saved_layers(dir: &Path, shown: &str, choice: &ImageChoice) -> Result<Vec<Layer>> {
    let images: Vec<Saved> = json(&dir.join("manifest.json"))?;
    let names = |image: &Saved| image.tags.clone().unwrap_or_default();
    let fits = |image: &&Saved| match &choice.tag {
        None => true,
        Some(tag) => names(image).iter().any(|name| choice::is_named(name, tag)),
    };
    let fitting: Vec<&Saved> = images.iter().filter(fits).collect();
    let [image] = fitting.as_slice() else {
        let all: Vec<_> = images.iter().flat_map(names).collect();
        return Err(choice::several(fitting.len(), images.len(), &all));
    };
    if let Some(wanted) = &choice.platform {
        same_platform(wanted, &json(&inside(dir, &image.config)?)?)?;
    }
    ensure!(!image.layers.is_empty(), "the image has no layers");
    let layer = |name: &String| {
        Ok(Layer {
            path: inside(dir, name)?,
            name: format!("{shown}: layer {name}"),
        })
    };
    image.layers.iter().map(layer).collect()
}

/// Returns the file of a layout by its digest, such as `sha256:0123…`.
fn blob(dir: &Path, digest: &str) -> Result<PathBuf> {
    let (algorithm, hex) = digest
        .split_once(':')
        .with_context(|| format!("digest {digest:?}"))?;
    inside(dir, &format!("blobs/{algorithm}/{hex}"))
}

/// Returns a file below the directory. Its name comes from the image, and must not lead out of it.
fn inside(dir: &Path, name: &str) -> Result<PathBuf> {
    let path =
        plain(Path::new(name)).with_context(|| format!("{name:?} leads out of the image"))?;
    let path = dir.join(path);
    ensure!(path.is_file(), "{name} is missing");
    Ok(path)
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let name = || path.file_name().unwrap_or_default().shown();
    let mut text = Vec::new();
    let file = File::open(path).with_context(name)?;
    let read = file.take(MOST_JSON + 1).read_to_end(&mut text);
    read.with_context(name)?;
    ensure!(text.len() as u64 <= MOST_JSON, "{}: too long", name());
    serde_json::from_slice(&text).with_context(name)
}

/// Returns whether this name is at the top of an image's archive and never at the top of a root file system.
fn is_part_of_image(name: &Path) -> bool {
    let mut parts = name.components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    let Some(top) = parts.next() else {
        return true; // the top itself
    };
    let id = top
        .strip_suffix(".json")
        .or(top.strip_suffix(".tar"))
        .unwrap_or(top);
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id
        || match top {
            "blobs" => parts
                .next()
                .is_none_or(|algorithm| algorithm.starts_with("sha")),
            _ => matches!(
                top,
                "manifest.json" | "index.json" | "oci-layout" | "repositories"
            ),
        }
}

/// Returns the directory of a container's image in an archive, which is usually empty; `None` for any other archive.
/// The first name that cannot be part of an image decides, so only the start of any other archive is read.
fn image_in(archive: impl Read) -> Result<Option<PathBuf>> {
    let mut archive = tar::Archive::new(archive);
    let (mut top, mut described) = (None, false);
    for entry in archive.entries()? {
        let entry = entry?;
        let Some(name) = plain(&entry.path()?) else {
            return Ok(None);
        };
        let first = name
            .components()
            .next()
            .map(|part| PathBuf::from(part.as_os_str()));
        let Some(first) = first else {
            continue; // the top itself
        };
        // A layout may have been packed with the directory that it is in.
        let top = top.get_or_insert_with(|| {
            if is_part_of_image(&name) {
                PathBuf::new()
            } else {
                first
            }
        });
        match name.strip_prefix(&*top) {
            Ok(name) if is_part_of_image(name) => {
                let saved = name == Path::new("manifest.json") && top.as_os_str().is_empty();
                described |= saved || name == Path::new("oci-layout");
            }
            _ => return Ok(None),
        }
    }
    Ok(top.filter(|_| described))
}

/// Unpacks the archive of an image: plain files by plain names, and links to them, which older `docker save` made for
/// repeated layers.
fn unpack(archive: impl Read, dir: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(archive);
    let mut links = Vec::new();
    for entry in archive.entries()? {
        extant_terminal::interrupt::check()?;
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            if let Some(target) = entry.link_name()? {
                let base = if kind.is_symlink() {
                    name.parent().unwrap_or(Path::new("")).to_path_buf()
                } else {
                    PathBuf::new()
                };
                links.push((name, base.join(target)));
            }
            continue;
        }
        // An entry that leads out of the directory is not unpacked.
        entry.unpack_in(dir)?;
    }
    for (name, target) in links {
        let (Some(name), Some(target)) = (plain(&name), plain(&target)) else {
            continue;
        };
        let to = dir.join(name);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::hard_link(dir.join(target), to)?;
    }
    Ok(())
}

/// Returns a relative path without `.` and `..`; `None` if it leads out.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir if out.pop() => {}
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_images_from_root_file_systems() {
        let id = "0123456789abcdef".repeat(4);
        for part in [
            "manifest.json",
            "./oci-layout",
            "blobs/",
            "blobs/sha256/00",
            &format!("{id}/layer.tar"),
            &format!("{id}.json"),
        ] {
            assert!(is_part_of_image(Path::new(part)), "{part}");
        }
        for other in ["bin/", "blobs/mine", "etc/passwd", "index.html"] {
            assert!(!is_part_of_image(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn links_do_not_lead_out() {
        let plain = |p: &str| plain(Path::new(p));
        assert_eq!(plain("a/../b/layer.tar"), Some("b/layer.tar".into()));
        assert_eq!(plain("../etc/passwd"), None);
        assert_eq!(plain("/etc/passwd"), None);
        assert!(inside(Path::new("/"), "../etc/passwd").is_err());
    }
}
