//! Advice about a file that cannot be opened as an image, from the text of the error alone.

use crate::format::show::ShowPath;
use crate::messages::advised::advised;
use crate::mounts::host_files::mount_of_device;
use crate::mounts::mounted::Mounted;
use extant::Error;
use extant_terminal::output::one_line;
use std::path::Path;

/// Adds advice to the error of a file that does not open.
pub fn about_open(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let text = one_line(&error);
    let name = image.shown();
    // An error of the engine names a rule of ext4, whose text may end in the same words.
    let of_engine = error.chain().any(|e| e.is::<Error>());
    let advice = if text.ends_with("(multiple mount protection)") {
        Some(format!(
            "if nobody has it, extant tune {name} -E clear_mmp says so"
        ))
    } else if of_engine {
        None
    } else if text.ends_with("no such file or directory") {
        Some(part(image).unwrap_or_else(|| "extant mkfs makes a new image".to_string()))
    } else if text.contains("in use by another") {
        Some(match mount_of_device(image) {
            Some(dir) => format!("Linux has mounted it: umount {}", dir.shown()),
            None => format!("extant umount its directory, or see fuser -v {name}"),
        })
    } else if text.ends_with("Permission denied") {
        Some(permission(image))
    } else if text.ends_with("nor a block device") && Mounted::below(image).is_some() {
        Some("it is a mount, and this command takes an image: umount it first".into())
    } else if text.ends_with("nor a block device") && image.is_dir() {
        Some(format!(
            "a path in an image is IMAGE:/PATH; extant mkfs IMAGE --from {name} makes an image of a directory"
        ))
    } else if text.ends_with("Not a directory") {
        inside(image)
    } else {
        None
    };
    match advice {
        Some(advice) => advised(text, advice),
        None => error,
    }
}

/// Returns how parts are named, if a name like `disk.img@root` begins with that of a file.
fn part(image: &Path) -> Option<String> {
    let (file, _) = image.to_str()?.rsplit_once('@')?;
    Path::new(file).is_file().then(|| {
        format!("parts are @p1, @label=NAME, @uuid=UUID or @offset=BYTES: see extant info {file}")
    })
}

/// Returns the owner and the mode of a file that the user may not open.
fn permission(image: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    match image.metadata() {
        Ok(meta) => format!(
            "it is of user {} with mode {:04o}, and you are {}",
            meta.uid(),
            meta.mode() & 0o7777,
            rustix::process::geteuid().as_raw()
        ),
        Err(_) => "a directory above it is closed to you".into(),
    }
}

/// Returns the address for a path like `disk.img/etc`.
fn inside(path: &Path) -> Option<String> {
    let image = path.ancestors().skip(1).find(|p| p.is_file())?;
    let rest = path.strip_prefix(image).ok()?;
    Some(format!("write {}:/{}", image.shown(), rest.shown()))
}
