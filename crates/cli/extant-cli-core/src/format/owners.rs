//! Owners as people write them: numbers, or names as the image's own /etc/passwd and /etc/group have them. The host's
//! accounts are never consulted: owners in an image belong to the image.

use crate::format::show::show;
use anyhow::{Context, Result, anyhow, ensure};
use extant::Volume;
use std::str::FromStr;

/// Numbers of a user and a group, each if it is given.
pub type Owner = (Option<u32>, Option<u32>);

/// Size limit of account files; larger files are ignored.
pub const LARGEST: u64 = 64 << 20;

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

/// Parses a number; a leading plus sign forces a number instead of a name.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl OwnerSpec {
    /// Returns the numbers if no account file is needed: the owners are numbers or root.
    pub fn numbers(&self) -> Option<Owner> {
        let of = |text: &String| match text.as_str() {
            "root" => Some(0),
            text => number(text),
        };
        let user = match &self.user {
            Some(user) => Some(of(user)?),
            None => None,
        };
        let group = match &self.group {
            Group::None => None,
            Group::Name(name) => Some(of(name)?),
            Group::Login => return None,
        };
        Some((user, group))
    }

    /// Looks names up in an image. A name of digits that the image defines is a name, as POSIX requires of chown.
    pub fn resolve(&self, volume: &Volume) -> Result<Owner> {
        self.resolve_by("the image's ", |path| {
            let size = volume.metadata(path)?.len();
            ensure!(
                size <= LARGEST,
                "{size} bytes are too many for a file of accounts"
            );
            Ok(volume.read(path)?)
        })
    }

    /// Looks names up in account files that `read` opens by path; `whose` is their prefix in messages.
    pub fn resolve_by(
        &self,
        whose: &'static str,
        read: impl Fn(&str) -> Result<Vec<u8>>,
    ) -> Result<Owner> {
        let accounts = |path| Accounts {
            whose,
            path,
            content: read(path),
        };
        let uid = match &self.user {
            Some(user) => Some(accounts("/etc/passwd").id(user)?),
            None => None,
        };
        let gid = match &self.group {
            Group::None => None,
            Group::Name(name) => Some(accounts("/etc/group").id(name)?),
            Group::Login => Some(accounts("/etc/passwd").login_group(uid)?),
        };
        Ok((uid, gid))
    }
}

/// An account file.
struct Accounts {
    whose: &'static str,
    path: &'static str,
    /// Lines of the file, or the error of reading it.
    content: Result<Vec<u8>>,
}

impl Accounts {
    /// Returns the fields of the lines.
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
                "{} is not in {}{}: write the number",
                show(name.as_bytes()),
                self.whose,
                self.path
            ),
            Err(e) => anyhow!(
                "{} is not a number, and {}{}: {e}: write the number",
                show(name.as_bytes()),
                self.whose,
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
        let numbers = |text: &str| spec(text).unwrap().numbers();
        assert_eq!(numbers("5:6"), Some((Some(5), Some(6))));
        assert_eq!(numbers("5"), Some((Some(5), None)));
        assert_eq!(numbers(":+6"), Some((None, Some(6))));
        assert_eq!(numbers("root:root"), Some((Some(0), Some(0))));
        for names in ["bin", "5:wheel", "5:", "4294967296"] {
            assert_eq!(numbers(names), None, "{names}");
        }
        for bad in ["", ":", "a:b:c"] {
            assert!(spec(bad).is_err(), "{bad}");
        }
    }
}
