//! Owners as people write them: numbers, or names as the image's own /etc/passwd and /etc/group have them. The host's
//! accounts are never consulted: owners in an image belong to the image.

use crate::show::show;
use anyhow::{Context, Result, anyhow, bail, ensure};
use extant::Volume;
use std::str::FromStr;

/// Numbers of a user and a group, each if it is meant.
pub type Owner = (Option<u32>, Option<u32>);

/// Files of accounts beyond this are none.
const LARGEST: u64 = 64 << 20;

/// `USER:GROUP`, `USER`, `:GROUP`, or `USER:` for a user with the group of their entry in /etc/passwd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerSpec {
    user: Option<String>,
    group: Group,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    None,
    /// The group of the user.
    Login,
    Name(String),
}

impl FromStr for OwnerSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (user, group) = match text.split_once(':') {
            None => (text, Group::None),
            Some((user, "")) => (user, Group::Login),
            Some((user, group)) => (user, Group::Name(group.to_string())),
        };
        ensure!(
            !user.is_empty() || matches!(group, Group::Name(_)),
            "write USER:GROUP, USER or :GROUP, as numbers or names"
        );
        ensure!(
            !matches!(&group, Group::Name(name) if name.contains(':')),
            "{text} has more than one colon: write USER:GROUP"
        );
        Ok(Self {
            user: (!user.is_empty()).then(|| user.to_string()),
            group,
        })
    }
}

/// A number as it stands; a sign before it says that it is no name.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl OwnerSpec {
    /// Numbers only, for use where no image exists yet.
    pub fn numbers(&self) -> Result<Owner> {
        let of = |text: &String| {
            number(text).with_context(|| {
                format!("{text:?} is no number, and there is no image yet that knows names: write the number")
            })
        };
        Ok((
            self.user.as_ref().map(of).transpose()?,
            match &self.group {
                Group::None => None,
                Group::Name(name) => Some(of(name)?),
                Group::Login => bail!("write the group's number after the colon"),
            },
        ))
    }

    /// Looks names up in an image. A name of digits is one if the image has it, as POSIX says of chown.
    pub fn resolve(&self, volume: &Volume) -> Result<Owner> {
        let users = Accounts::new(volume, "/etc/passwd");
        let groups = Accounts::new(volume, "/etc/group");
        let uid = self.user.as_ref().map(|user| users.id(user)).transpose()?;
        let gid = match &self.group {
            Group::None => None,
            Group::Name(name) => Some(groups.id(name)?),
            Group::Login => Some(users.login_group(uid)?),
        };
        Ok((uid, gid))
    }
}

/// A file of accounts in an image.
struct Accounts {
    path: &'static str,
    /// Lines, or why there are none.
    content: Result<Vec<u8>>,
}

impl Accounts {
    fn new(volume: &Volume, path: &'static str) -> Self {
        let read = || -> Result<Vec<u8>> {
            let size = volume.metadata(path)?.len();
            ensure!(size <= LARGEST, "{size} bytes are no file of accounts");
            Ok(volume.read(path)?)
        };
        Self {
            path,
            content: read(),
        }
    }

    /// Fields of the lines.
    fn lines(&self) -> impl Iterator<Item = Vec<&[u8]>> {
        let content = self.content.as_deref().unwrap_or_default();
        let lines = content.split(|&b| b == b'\n');
        lines.map(|line| line.split(|&b| b == b':').collect())
    }

    fn id(&self, name: &str) -> Result<u32> {
        let found = self
            .lines()
            .find(|fields| fields.first() == Some(&name.as_bytes()));
        if let Some(fields) = found {
            return field(&fields, 2)
                .with_context(|| format!("{}: the entry of {name} has no number", self.path));
        }
        let plain = number(name);
        plain.ok_or_else(|| match &self.content {
            Ok(_) => anyhow!(
                "{} is not in the image's {}: write the number",
                show(name.as_bytes()),
                self.path
            ),
            Err(e) => anyhow!(
                "{} is no number, and the image's {}: {e}: write the number",
                show(name.as_bytes()),
                self.path
            ),
        })
    }

    fn login_group(&self, uid: Option<u32>) -> Result<u32> {
        let uid = uid.context("a user before the colon")?;
        let of_user = |fields: &Vec<&[u8]>| field(fields, 2) == Some(uid);
        let found = self.lines().find(of_user);
        let gid = found.and_then(|fields| field(&fields, 3));
        gid.with_context(|| format!("{}: no entry says the group of user {uid}", self.path))
    }
}

fn field(fields: &[&[u8]], at: usize) -> Option<u32> {
    std::str::from_utf8(fields.get(at)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let spec = |text: &str| text.parse::<OwnerSpec>();
        let numbers = |text: &str| spec(text).unwrap().numbers().ok();
        assert_eq!(numbers("5:6"), Some((Some(5), Some(6))));
        assert_eq!(numbers("5"), Some((Some(5), None)));
        assert_eq!(numbers(":+6"), Some((None, Some(6))));
        for names in ["root", "5:wheel", "5:", "4294967296"] {
            assert_eq!(numbers(names), None, "{names}");
        }
        for bad in ["", ":", "a:b:c"] {
            assert!(spec(bad).is_err(), "{bad}");
        }
    }
}
