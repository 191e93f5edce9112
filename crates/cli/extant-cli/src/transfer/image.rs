//! Sides of a copy in an image, with the messages of this command.

use extant::unstable::{PathMessages, VolumeSide};
use extant::{Dir, Volume};
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::{Address, advice};
use std::path::PathBuf;
use std::sync::Arc;

struct Messages {
    image: PathBuf,
}

impl PathMessages for Messages {
    fn show(&self, path: &[u8]) -> String {
        Address {
            image: self.image.clone(),
            path: path.to_vec(),
        }
        .to_string()
    }

    fn missing(&self, dir: &Dir, path: &[u8], shown: &dyn Fn(&[u8]) -> String) -> Option<String> {
        advice::missing(dir, path, shown)
    }

    fn mkdir(&self) -> &'static str {
        "extant mkdir -p"
    }
}

/// Returns the side of an image whose paths start at the root.
pub fn image_side(volume: &Volume, image: impl Into<PathBuf>) -> VolumeSide {
    let image = image.into();
    VolumeSide::new(&volume.root()).messages(Arc::new(Messages { image }))
}

/// Returns the side at which the path of `place` starts.
pub fn side_at(place: &ImagePlace) -> VolumeSide {
    let image = place.address.image.clone();
    let path = match place.address.number() {
        Some((ino, _)) => format!("<{ino}>").into_bytes(),
        None => Vec::new(),
    };
    VolumeSide::new(&place.dir)
        .messages(Arc::new(Messages { image }))
        .at_inode(place.node().cloned(), path)
}
