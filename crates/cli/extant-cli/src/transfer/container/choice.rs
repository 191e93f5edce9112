//! The choice of one image in an index or archive with several.

use anyhow::{Result, anyhow, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The image to use when a container image contains several.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ImageChoice {
    /// Platform to use of a container image for several platforms, such as linux/arm64 [default: this machine's]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<Platform>,
    /// Image to use of several container images, by its name or its tag
    #[arg(long, value_name = "NAME")]
    pub tag: Option<String>,
}

impl ImageChoice {
    /// Fails if an option was given but no source was an image of a container.
    pub fn check_was_used(&self, used: bool) -> Result<()> {
        let option = match self {
            Self {
                platform: Some(_), ..
            } => "--platform",
            Self { tag: Some(_), .. } => "--tag",
            _ => return Ok(()),
        };
        ensure!(
            used,
            "{option} chooses among container images, and no source is one: leave it out"
        );
        Ok(())
    }
}

/// The platform of an image.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [architecture] => ("linux", architecture, None),
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
            _ => bail!("write OS/ARCH, as linux/arm64"),
        };
        ensure!(
            parts.iter().all(|part| !part.is_empty()),
            "write OS/ARCH, as linux/arm64"
        );
        // The kernel's names are also accepted.
        let architecture = match architecture {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            "i386" | "x86" => "386",
            other => other,
        };
        Ok(Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant,
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl Platform {
    /// Returns the platform of this machine.
    fn here() -> Self {
        Self {
            os: "linux".into(),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                "x86" => "386",
                other => other,
            }
            .into(),
            variant: None,
        }
    }

    /// Returns whether an image of this platform satisfies the request.
    fn fits(&self, wanted: &Self) -> bool {
        let variant = wanted.variant.is_none() || wanted.variant == self.variant;
        self.os == wanted.os && self.architecture == wanted.architecture && variant
    }
}

/// Fails for an image of another platform than the requested one.
pub fn same_platform(wanted: &Platform, found: &Platform) -> Result<()> {
    // A configuration without a platform fits every request.
    let fits = found.architecture.is_empty() || found.fits(wanted);
    ensure!(fits, "the image is for {found}, not for {wanted}");
    Ok(())
}

/// The digest of a blob, with its description in an index.
#[derive(Deserialize)]
pub struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    pub digest: String,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// Fails for a blob that is not a readable archive of files.
    pub fn check_is_layer(&self) -> Result<()> {
        let (kind, digest) = (&self.media_type, &self.digest);
        ensure!(!kind.contains("encrypted"), "layer {digest} is encrypted");
        // The types of Docker and OCI name the format of archives.
        let other = kind.starts_with("application/") && !kind.contains("tar");
        ensure!(!other, "layer {digest} is no archive of files, but {kind}");
        Ok(())
    }

    /// Returns the names of an image in an index.
    fn names(&self) -> impl Iterator<Item = &str> {
        const NAMES: [&str; 2] = [
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        ];
        let annotations = self.annotations.as_ref();
        NAMES
            .iter()
            .filter_map(move |key| annotations?.get(*key).map(String::as_str))
    }
}

/// Returns whether `asked` means an image of this name: the whole name, the part after a slash, or the tag.
pub fn is_named(name: &str, asked: &str) -> bool {
    name.strip_suffix(asked)
        .is_some_and(|before| before.is_empty() || before.ends_with(['/', ':']))
}

/// Returns the error for a choice that matches no image, or several.
pub fn several(fitting: usize, all: usize, names: &[String]) -> anyhow::Error {
    let names = names.join(", ");
    match fitting {
        0 if all == 0 => anyhow!("the index names no image"),
        0 => anyhow!("no image has the name of --tag: there are {names}"),
        n if names.is_empty() => {
            anyhow!("{n} images without names: copy the one you mean out, as with skopeo copy")
        }
        n => anyhow!("{n} images ({names}): say which with --tag NAME"),
    }
}

/// Returns the chosen manifest. `config` reads the platform of a manifest whose descriptor lacks one.
pub fn choose<'m>(
    manifests: &'m [Descriptor],
    tag: Option<&str>,
    wanted: Option<&Platform>,
    config: &dyn Fn(&Descriptor) -> Result<Option<Platform>>,
) -> Result<&'m Descriptor> {
    // Attestations, for example, are manifests without a platform.
    let images = manifests
        .iter()
        .filter(|m| m.platform.as_ref().is_none_or(|p| p.os != "unknown"));
    let fits = |m: &&Descriptor| tag.is_none_or(|tag| m.names().any(|name| is_named(name, tag)));
    let all: Vec<&Descriptor> = images.collect();
    let named: Vec<&Descriptor> = all.iter().copied().filter(fits).collect();
    let names = |of: &[&Descriptor]| -> Vec<String> {
        let first = of.iter().filter_map(|m| m.names().next());
        first.map(str::to_owned).collect()
    };
    let several = |fitting: usize| several(fitting, all.len(), &names(&all));
    match named.as_slice() {
        [] => return Err(several(0)),
        [only] => return Ok(only),
        _ => {}
    }
    let here = Platform::here();
    let asked = wanted.unwrap_or(&here);
    let (mut fitting, mut others) = (Vec::new(), Vec::new());
    for image in named {
        let platform = match &image.platform {
            Some(platform) => Some(platform.clone()),
            None => config(image)?,
        };
        match platform {
            Some(platform) if !platform.fits(asked) => others.push(platform.to_string()),
            _ => fitting.push(image),
        }
    }
    match fitting.as_slice() {
        [only] => Ok(only),
        [] => {
            others.sort();
            others.dedup();
            bail!(
                "no image is for {asked}: --platform takes one of {}",
                others.join(", ")
            )
        }
        more => Err(super::choice::several(more.len(), all.len(), &names(more))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_in_whole_or_in_part() {
        let name = "docker.io/library/debian:12";
        for asked in [name, "debian:12", "12", "library/debian:12"] {
            assert!(is_named(name, asked), "{asked}");
        }
        for other in ["debian", "2", "bian:12", "docker.io"] {
            assert!(!is_named(name, other), "{other}");
        }
    }

    #[test]
    fn platforms_as_they_are_written() {
        for (text, shown) in [
            ("arm64", "linux/arm64"),
            ("linux/x86_64", "linux/amd64"),
            ("linux/arm/v7", "linux/arm/v7"),
        ] {
            assert_eq!(text.parse::<Platform>().unwrap().to_string(), shown);
        }
        for wrong in ["", "linux/", "a/b/c/d"] {
            assert!(wrong.parse::<Platform>().is_err(), "{wrong}");
        }
    }
}
