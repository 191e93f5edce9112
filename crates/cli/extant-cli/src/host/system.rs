//! The parts of the machine that this command depends on: tools, package manager, subordinate numbers of users. Paths
//! of the system start at a configurable root directory, so that tests can provide the files.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

/// A missing feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The missing feature, in words.
    pub what: String,
    /// The command that fixes it, if there is one.
    pub remedy: Option<String>,
}

impl Lack {
    /// Makes a lack that this command fixes.
    pub fn mended_by(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// Makes a lack that no command fixes.
    pub fn for_good(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: None,
        }
    }
}

/// The machine as this process sees it.
pub struct System {
    root: PathBuf,
    path: OsString,
    /// User ID.
    pub user: u32,
}

impl System {
    /// Returns this machine.
    pub fn here() -> Self {
        Self {
            root: "/".into(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            user: rustix::process::getuid().as_raw(),
        }
    }

    /// Returns a machine whose files are below a directory.
    #[cfg(test)]
    pub fn planted(root: &Path, user: u32) -> Self {
        let path = std::env::join_paths([root.join("usr/bin"), root.join("sbin")]);
        Self {
            root: root.into(),
            path: path.expect("a directory for tests has no colon in its name"),
            user,
        }
    }

    /// Returns whether the user is root.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Returns the path of a file of the system.
    pub fn file(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Returns a file of the system as text without the last newline; `None` if the file cannot be read.
    pub fn text(&self, absolute: &str) -> Option<String> {
        let text = std::fs::read(self.file(absolute)).ok()?;
        Some(String::from_utf8_lossy(&text).trim_end().to_string())
    }

    /// Returns a program, found as a shell would.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let executable = |path: &PathBuf| {
            let meta = path.metadata();
            meta.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        std::env::split_paths(&self.path)
            .map(|dir| dir.join(name))
            .find(executable)
    }

    /// Returns a command line that runs as root.
    pub fn as_root(&self, line: &str) -> String {
        if self.is_root() {
            line.to_string()
        } else {
            format!("sudo {line}")
        }
    }

    /// Returns the line that writes a line into a file of the system.
    pub fn write_line(&self, line: &str, file: &str, append: bool) -> String {
        let tee = if append { "tee -a" } else { "tee" };
        format!("echo {line} | {}", self.as_root(&format!("{tee} {file}")))
    }

    /// Returns whether this is the inside of a container.
    pub fn in_container(&self) -> bool {
        let marks = ["/.dockerenv", "/run/.containerenv"];
        marks.iter().any(|mark| self.file(mark).exists())
    }

    /// Returns the line that installs a package, by its name in Debian.
    pub fn install(&self, package: &str) -> String {
        let release = self.text("/etc/os-release").unwrap_or_default();
        let words: Vec<&str> = release
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")))
            .flat_map(|value| value.trim_matches('"').split(' '))
            .collect();
        let is = |names: &[&str]| words.iter().any(|word| names.contains(word));
        // The tools for subordinate numbers belong to another package elsewhere.
        let other = |name| if package == "uidmap" { name } else { package };
        let line = match () {
            () if is(&["fedora", "rhel", "centos"]) => {
                format!("dnf install {}", other("shadow-utils"))
            }
            () if is(&["arch"]) => format!("pacman -S {}", other("shadow")),
            () if is(&["alpine"]) => format!("apk add {}", other("shadow-uidmap")),
            () if is(&["suse", "opensuse"]) => format!("zypper install {}", other("shadow")),
            () => format!("apt install {package}"),
        };
        self.as_root(&line)
    }

    /// Returns the user's name, or the number of a user without a name.
    pub fn user_name(&self) -> String {
        let number = self.user.to_string();
        let accounts = self.text("/etc/passwd").unwrap_or_default();
        let mut accounts = accounts
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>());
        accounts
            .find(|fields| fields.get(2) == Some(&&*number))
            .and_then(|fields| fields.first().map(|name| (*name).to_string()))
            .unwrap_or(number)
    }

    /// Checks that /etc/subuid and /etc/subgid give the user numbers, and that the tools to map them exist.
    pub fn subordinate_ids(&self) -> Result<(), Lack> {
        let (name, number) = (self.user_name(), self.user.to_string());
        for file in ["/etc/subuid", "/etc/subgid"] {
            let text = self.text(file).unwrap_or_default();
            let mut owners = text.lines().filter_map(|line| line.split(':').next());
            if !owners.any(|owner| owner == name || owner == number) {
                let line = format!(
                    "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
                );
                let what = format!("{file} has no line for {name}");
                return Err(Lack::mended_by(what, self.as_root(&line)));
            }
        }
        for tool in ["newuidmap", "newgidmap"] {
            if self.program(tool).is_none() {
                let what = format!("{tool} is missing");
                return Err(Lack::mended_by(what, self.install("uidmap")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn subordinate_numbers_need_lines_and_tools() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::planted(dir.path(), 1000);
        let lacks = || system.subordinate_ids().unwrap_err();
        plant(
            dir.path(),
            "etc/passwd",
            "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:\n",
        );
        assert_eq!(lacks().what, "/etc/subuid has no line for ann");
        assert!(
            lacks()
                .remedy
                .unwrap()
                .starts_with("sudo usermod --add-subuids")
        );
        plant(dir.path(), "etc/subuid", "annabel:1:2\nann:100000:65536\n");
        assert_eq!(lacks().what, "/etc/subgid has no line for ann");
        // A line with the user's number also works.
        plant(dir.path(), "etc/subgid", "1000:100000:65536\n");
        plant(dir.path(), "usr/bin/newuidmap", "");
        let lack = Lack::mended_by("newgidmap is missing", "sudo apt install uidmap");
        assert_eq!(lacks(), lack);
        plant(dir.path(), "sbin/newgidmap", "");
        assert_eq!(system.subordinate_ids(), Ok(()));
    }

    #[test]
    fn each_distribution_has_its_line() {
        let dir = tempfile::tempdir().unwrap();
        for (release, user, want) in [
            ("ID=debian\n", 1000, "sudo apt install uidmap"),
            (
                "NAME=x\nID=rocky\nID_LIKE=\"rhel fedora\"\n",
                0,
                "dnf install shadow-utils",
            ),
            ("ID=alpine\n", 0, "apk add shadow-uidmap"),
            ("ID=arch\n", 1, "sudo pacman -S shadow"),
            ("", 0, "apt install uidmap"),
        ] {
            plant(dir.path(), "etc/os-release", release);
            let system = System::planted(dir.path(), user);
            assert_eq!(system.install("uidmap"), want, "{release}");
        }
        plant(dir.path(), "etc/os-release", "ID=fedora\n");
        let system = System::planted(dir.path(), 0);
        assert_eq!(system.install("fuse3"), "dnf install fuse3");
    }
}
