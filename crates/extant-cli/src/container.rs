//! Images of containers as sources: OCI image layouts, as directories or archives, and archives of `docker save`.
//! They hold a list of layers, each an archive with white-outs, for one or several platforms.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Layers of an image, the lowest first, as files; those that were unpacked are gone when this is dropped.
pub struct Layers {
    pub files: Vec<PathBuf>,
    unpacked: Option<tempfile::TempDir>,
}

impl Layers {
    /// The layers, and the directory that keeps unpacked ones.
    pub fn into_parts(self) -> (Vec<PathBuf>, Option<tempfile::TempDir>) {
        (self.files, self.unpacked)
    }
}

/// Largest file of JSON that is read: real ones have a few KiB.
const MOST_JSON: u64 = 4 << 20;
/// Deepest index of indexes.
const MOST_NESTED: usize = 4;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    /// The layers of a manifest; an index has none.
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// One image of `docker save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Layers", default)]
    layers: Vec<String>,
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// The layers of a source that is an image of a container, or `None`: then it is what it looks like. Layers of an archive are
/// unpacked below `scratch`.
pub fn layers(source: &Path, scratch: &Path) -> Result<Option<Layers>> {
    let context = || source.display().to_string();
    if source.is_dir() {
        if !source.join("oci-layout").is_file() {
            return Ok(None);
        }
        let files = layout_layers(source).with_context(context)?;
        return Ok(Some(Layers {
            files,
            unpacked: None,
        }));
    }
    if !source.is_file() || !is_archive_of_image(source).unwrap_or(false) {
        return Ok(None);
    }
    let unpacked = tempfile::Builder::new()
        .prefix(".extant-layers")
        .tempdir_in(scratch)
        .with_context(|| scratch.display().to_string())?;
    unpack(source, unpacked.path()).with_context(context)?;
    let dir = unpacked.path();
    let files = match dir.join("oci-layout").is_file() {
        true => layout_layers(dir),
        false => saved_layers(dir),
    };
    Ok(Some(Layers {
        files: files.with_context(context)?,
        unpacked: Some(unpacked),
    }))
}

/// The layers of an OCI image layout.
fn layout_layers(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut index: Index = json(&dir.join("index.json"))?;
    for _ in 0..MOST_NESTED {
        if index.manifests.is_empty() {
            ensure!(!index.layers.is_empty(), "the image has no layers");
            let mut files = Vec::with_capacity(index.layers.len());
            for layer in &index.layers {
                let encrypted = layer.media_type.contains("encrypted");
                ensure!(!encrypted, "layer {} is encrypted", layer.digest);
                files.push(blob(dir, &layer.digest)?);
            }
            return Ok(files);
        }
        index = json(&blob(dir, &choose(&index.manifests)?.digest)?)?;
    }
    bail!("indexes of indexes, more than {MOST_NESTED} deep")
}

/// The manifest for this machine, or the only one.
fn choose(manifests: &[Descriptor]) -> Result<&Descriptor> {
    // Attestations and the like are manifests for no platform.
    let images: Vec<_> = manifests
        .iter()
        .filter(|m| m.platform.as_ref().is_none_or(|p| p.os != "unknown"))
        .collect();
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    match images.as_slice() {
        [] => bail!("the index names no image"),
        [only] => Ok(only),
        several => {
            let fits =
                |m: &&&Descriptor| m.platform.as_ref().is_some_and(|p| p.architecture == here);
            let mut fitting = several.iter().filter(fits);
            match (fitting.next(), fitting.next()) {
                (Some(one), None) => Ok(one),
                (None, _) => bail!("{} images, none of them for {here}", several.len()),
                _ => bail!(
                    "several images for {here}: copy the one you mean out, as with skopeo copy"
                ),
            }
        }
    }
}

/// The layers of what `docker save` wrote.
fn saved_layers(dir: &Path) -> Result<Vec<PathBuf>> {
    let images: Vec<Saved> = json(&dir.join("manifest.json"))?;
    let [image] = images.as_slice() else {
        let tags: Vec<_> = images
            .iter()
            .flat_map(|i| i.tags.iter().flatten().map(String::as_str))
            .collect();
        bail!(
            "the archive holds {} images ({}): save the one you mean",
            images.len(),
            tags.join(", ")
        );
    };
    ensure!(!image.layers.is_empty(), "the image has no layers");
    image
        .layers
        .iter()
        .map(|layer| inside(dir, layer))
        .collect()
}

/// A file of the layout by its digest, such as `sha256:0123…`.
fn blob(dir: &Path, digest: &str) -> Result<PathBuf> {
    let (algorithm, hex) = digest
        .split_once(':')
        .with_context(|| format!("digest {digest:?}"))?;
    inside(dir, &format!("blobs/{algorithm}/{hex}"))
}

/// A file below the directory; names come from the image, and must not lead out of it.
fn inside(dir: &Path, name: &str) -> Result<PathBuf> {
    let plain = Path::new(name)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    ensure!(plain, "{name:?} leads out of the image");
    let path = dir.join(name);
    ensure!(path.is_file(), "{name} is missing");
    Ok(path)
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let name = || path.file_name().unwrap_or_default().display().to_string();
    let mut text = Vec::new();
    let file = File::open(path).with_context(name)?;
    let read = file.take(MOST_JSON + 1).read_to_end(&mut text);
    read.with_context(name)?;
    ensure!(text.len() as u64 <= MOST_JSON, "{}: too long", name());
    serde_json::from_slice(&text).with_context(name)
}

/// An archive, unpacked if it is compressed.
fn open(path: &Path) -> io::Result<impl Read> {
    extant::mkfs::decompressed(Box::new(File::open(path)?))
}

/// Whether this name is at the top of an image's archive, and of no root file system.
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

/// Whether an archive is one of a container's image. The first name that has no place in one tells, so little is read of
/// any other archive.
fn is_archive_of_image(path: &Path) -> Result<bool> {
    let mut archive = tar::Archive::new(open(path)?);
    let mut described = false;
    for entry in archive.entries()? {
        let entry = entry?;
        let name = entry.path()?;
        if !is_part_of_image(&name) {
            return Ok(false);
        }
        described |= matches!(name.to_str(), Some("manifest.json" | "oci-layout"));
    }
    Ok(described)
}

/// Unpacks the archive of an image: plain files by plain names, and links to them, which older `docker save` made for
/// repeated layers.
fn unpack(path: &Path, dir: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(open(path)?);
    let mut links = Vec::new();
    for entry in archive.entries()? {
        crate::interrupt::check()?;
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            if let Some(target) = entry.link_name()? {
                let base = match kind.is_symlink() {
                    true => name.parent().unwrap_or(Path::new("")).to_path_buf(),
                    false => PathBuf::new(),
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

/// A relative path without `..`, taken as words; `None` if it leads out.
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
            "oci-layout",
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
