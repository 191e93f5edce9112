//! `--overlay FILE`: the image of the command line, and the commands that cannot have an overlay.

use crate::commands::undo;
use clap::ArgMatches;
use extant_cli_core::address::{Address, Location, Rooted};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::{overlaid, store};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Commands that cannot have an overlay, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("mkfs", "it makes an image instead of changing one"),
    ("disk", "it makes a disk instead of changing one"),
    (
        "push",
        "it copies images, and an overlay is merged first: extant apply OVERLAY IMAGE",
    ),
    (
        "pull",
        "it copies images, and an overlay is merged first: extant apply OVERLAY IMAGE",
    ),
    (
        "apply",
        "it merges an overlay into its image: extant apply OVERLAY IMAGE",
    ),
];

/// Arguments that name images, in all commands.
const IMAGES: [&str; 9] = [
    "image", "images", "paths", "first", "others", "source", "a", "b", "link",
];

/// Gives the image of the command line its overlay. The error is a line about the command line.
pub fn set(file: &Path, matches: &ArgMatches) -> Result<(), String> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    if let Some((_, why)) = WITHOUT.iter().find(|(command, _)| *command == name) {
        return Err(format!("{name}: --overlay: {why}"));
    }
    if file == Path::new("-") || file.as_os_str().is_empty() {
        return Err(format!(
            "{name}: --overlay: changes are kept in a file: name one"
        ));
    }
    let mut images = if name == "undo" {
        undo::images(matches)
    } else {
        IMAGES.iter().flat_map(|id| images(id, matches)).collect()
    };
    // A directory is a mount, or files of the host.
    images.retain(|image| !image.is_dir());
    images.sort_unstable();
    images.dedup();
    match images.as_slice() {
        [image] => {
            let canonical = store::canonical(image).ok();
            let names = canonical.into_iter().chain([image.clone()]).collect();
            overlaid::set(names, file);
            Ok(())
        }
        [] => Err(format!(
            "{name}: --overlay: the command line names no image"
        )),
        [a, b, ..] => Err(format!(
            "{name}: --overlay is for one image, and these are two: {} and {}",
            a.shown(),
            b.shown()
        )),
    }
}

/// Returns the images that an argument names.
fn images(id: &str, matches: &ArgMatches) -> Vec<PathBuf> {
    if let Ok(Some(addresses)) = matches.try_get_many::<Address>(id) {
        return addresses.map(|address| address.image.clone()).collect();
    }
    if let Ok(Some(addresses)) = matches.try_get_many::<Rooted>(id) {
        return addresses.map(|rooted| rooted.0.image.clone()).collect();
    }
    if let Ok(Some(paths)) = matches.try_get_many::<PathBuf>(id) {
        return paths.cloned().collect();
    }
    // Words that may be a path in an image, a path of the host, or something else.
    let words = matches.try_get_raw(id).ok().flatten();
    let words = words.into_iter().flatten().map(OsStr::to_owned);
    let locations = words.map(Location::from);
    let image = |location| match location {
        Location::Image(address) => Some(address.image),
        Location::Host(_) => None,
    };
    locations.filter_map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::help::command;

    fn refusal(words: &str) -> String {
        let words = words.split(' ');
        let matches = command().try_get_matches_from(words).unwrap();
        set(Path::new("changes"), &matches).unwrap_err()
    }

    #[test]
    fn commands_without_one_image_are_refused() {
        for (words, why) in [
            ("extant mkfs no.img --size 1M", "makes an image"),
            ("extant umount /mnt", "names no image"),
            ("extant completions bash", "names no image"),
            ("extant cp /etc/hosts /tmp", "names no image"),
            ("extant cp a.img:/x b.img:/y", "two: a.img and b.img"),
            ("extant df a.img b.img", "two: a.img and b.img"),
            ("extant apply changes a.img", "extant apply OVERLAY IMAGE"),
        ] {
            let said = refusal(words);
            assert!(said.contains(why), "{words}: {said}");
        }
    }

    /// The names of the arguments in [`IMAGES`] are those of the definitions: each command that takes an image has one of them.
    #[test]
    fn arguments_that_name_images_are_known() {
        let all = command();
        for command in all.get_subcommands() {
            for argument in command.get_positionals() {
                let id = argument.get_id().as_str();
                let shown = argument.get_value_names().unwrap_or_default();
                let is_image = shown.iter().any(|name| name.starts_with("IMAGE"));
                let name = command.get_name();
                assert!(
                    !is_image || IMAGES.contains(&id) || name == "undo",
                    "{name}: {id}"
                );
            }
        }
    }
}
