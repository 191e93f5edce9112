//! The needs of mounting: the device, the helper, permissions.

use super::Finding;
use crate::host::system::{Lack, System};
use extant_cli_core::format::show::ShowPath;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const MOUNTING: &str = "extant mount, extant shell";

pub fn findings(system: &System) -> Vec<Finding> {
    let mut found = vec![Finding::needed("/dev/fuse", MOUNTING, device(system))];
    // Root mounts without a helper.
    if !system.is_root() {
        found.push(Finding::needed(
            "fusermount3",
            "extant mount without root",
            helper(system),
        ));
        let others = "extant mount -o allow_other without root";
        found.push(Finding::optional(
            "user_allow_other",
            others,
            allow_other(system),
        ));
    }
    let uring = "serving requests of several processors apart";
    found.push(Finding::optional(
        "FUSE over io_uring",
        uring,
        io_uring(system),
    ));
    let confined = "servers that drop the privileges that serving does not need";
    found.push(Finding::optional("sandbox", confined, sandbox(system)));
    let mount8 = "mount -t extant and /etc/fstab";
    found.push(Finding::optional(
        "mount.extant",
        mount8,
        mount_helper(system),
    ));
    found
}

fn sandbox(system: &System) -> Result<String, Lack> {
    let seccomp = system
        .file("/proc/sys/kernel/seccomp/actions_avail")
        .exists();
    match (crate::mount::confine::has_landlock(), seccomp) {
        (true, true) => Ok("Landlock and seccomp".into()),
        (false, true) => Err(Lack::for_good("seccomp alone: the kernel has no Landlock")),
        (true, false) => Err(Lack::for_good("Landlock alone: the kernel has no seccomp")),
        (false, false) => Err(Lack::for_good(
            "the kernel has neither Landlock nor seccomp",
        )),
    }
}

fn device(system: &System) -> Result<String, Lack> {
    let path = system.file("/dev/fuse");
    let opened = std::fs::File::options().read(true).write(true).open(path);
    let Err(error) = opened else {
        return Ok("can be opened".into());
    };
    let what = match error.kind() {
        io::ErrorKind::NotFound => "it is not there",
        io::ErrorKind::PermissionDenied => "it is not yours to open",
        _ => "it cannot be opened",
    };
    // The device's owner can change permissions; a refusal by the container's rules is another error.
    let by_mode = error.raw_os_error() == Some(rustix::io::Errno::ACCESS.raw_os_error());
    let remedy = match () {
        () if by_mode => system.as_root("chmod 666 /dev/fuse"),
        () if system.in_container() => "docker run --device /dev/fuse --cap-add SYS_ADMIN …".into(),
        () => system.as_root("modprobe fuse"),
    };
    Err(Lack::mended_by(what, remedy))
}

fn helper(system: &System) -> Result<String, Lack> {
    let found = ["fusermount3", "fusermount"].map(|name| system.program(name));
    let Some(path) = found.into_iter().flatten().next() else {
        return Err(Lack::mended_by("not in PATH", system.install("fuse3")));
    };
    let name = path.shown();
    let meta = path.metadata();
    let meta = meta.map_err(|e| Lack::for_good(format!("{name}: {e}")))?;
    if meta.permissions().mode() & 0o4000 == 0 || meta.uid() != 0 {
        let remedy = system.as_root(&format!("sh -c 'chown root {name} && chmod u+s {name}'"));
        return Err(Lack::mended_by(
            format!("{name} is not set-user-id root"),
            remedy,
        ));
    }
    if statvfs(&path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID)) {
        let what = format!("{name} is on a file system that is mounted nosuid");
        let remedy = format!("mount -o remount,suid \"$(findmnt -no TARGET -T {name})\"");
        return Err(Lack::mended_by(what, system.as_root(&remedy)));
    }
    let status = system.text("/proc/self/status").unwrap_or_default();
    let confined = status
        .lines()
        .filter_map(|line| line.strip_prefix("NoNewPrivs:"))
        .any(|value| value.trim() == "1");
    if confined {
        return Err(Lack::for_good(format!(
            "{name} is set-user-id root, but this process may gain no privileges (no_new_privs): leave the sandbox that \
             forbids it"
        )));
    }
    Ok(format!("{name} is set-user-id root"))
}

fn allow_other(system: &System) -> Result<String, Lack> {
    let conf = system.text("/etc/fuse.conf").unwrap_or_default();
    if conf.lines().any(|line| line.trim() == "user_allow_other") {
        Ok("in /etc/fuse.conf".into())
    } else {
        Err(Lack::mended_by(
            "not in /etc/fuse.conf",
            system.write_line("user_allow_other", "/etc/fuse.conf", true),
        ))
    }
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

fn io_uring(system: &System) -> Result<String, Lack> {
    let release = system.text("/proc/sys/kernel/osrelease");
    let release = release.unwrap_or_default();
    let without = "requests go over /dev/fuse";
    let sysctl = system.text("/proc/sys/kernel/io_uring_disabled");
    let forbidden = match sysctl.as_deref() {
        Some("2") => true,
        Some("1") => !system.is_root(),
        _ => false,
    };
    if forbidden {
        return Err(Lack::mended_by(
            format!("io_uring is switched off; {without}"),
            system.as_root("sysctl -w kernel.io_uring_disabled=0"),
        ));
    }
    match system.text(SWITCH).as_deref() {
        Some("Y" | "1") => Ok(format!("on, Linux {release}")),
        Some(_) => Err(Lack::mended_by(
            format!("Linux {release} has it, switched off; {without}"),
            system.write_line("Y", SWITCH, false),
        )),
        None if is_since(&release, (6, 14)) => Err(Lack::mended_by(
            format!("Linux {release} is without it, or its fuse module is not loaded; {without}"),
            system.as_root("modprobe fuse enable_uring=1"),
        )),
        None => Err(Lack::for_good(format!(
            "Linux {release} has none, 6.14 is the first that does; {without}"
        ))),
    }
}

/// Returns whether a kernel's release, such as `6.18.4-amd64`, is at least this version.
fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    let major = numbers.next().unwrap_or(0);
    (major, numbers.next().unwrap_or(0)) >= version
}

fn mount_helper(system: &System) -> Result<String, Lack> {
    let there = ["/sbin/mount.extant", "/usr/sbin/mount.extant"]
        .into_iter()
        .find(|path| system.file(path).exists());
    if let Some(path) = there {
        return Ok(path.into());
    }
    let program = std::env::current_exe().map(|path| path.shown());
    let program = program.unwrap_or_else(|_| "\"$(command -v extant)\"".into());
    Err(Lack::mended_by(
        "not in /sbin",
        system.as_root(&format!("ln -s {program} /sbin/mount.extant")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::FindingState;
    use std::path::Path;

    fn plant(root: &Path, file: &str, text: &str, mode: u32) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_empty_machine_lacks_everything_and_each_lack_has_a_line() {
        let dir = tempfile::tempdir().unwrap();
        plant(
            dir.path(),
            "proc/sys/kernel/osrelease",
            "6.18.1-test\n",
            0o644,
        );
        let found = findings(&System::planted(dir.path(), 1000));
        let remedy = |name: &str| {
            let finding = found.iter().find(|f| f.name == name).unwrap();
            assert_ne!(finding.state, FindingState::Works, "{finding:?}");
            finding.remedy.clone().unwrap()
        };
        assert_eq!(remedy("/dev/fuse"), "sudo modprobe fuse");
        assert_eq!(remedy("fusermount3"), "sudo apt install fuse3");
        let line = "echo user_allow_other | sudo tee -a /etc/fuse.conf";
        assert_eq!(remedy("user_allow_other"), line);
        assert_eq!(
            remedy("FUSE over io_uring"),
            "sudo modprobe fuse enable_uring=1"
        );
        assert!(remedy("mount.extant").starts_with("sudo ln -s /"));
        // In a container, a missing device must be passed in from the host.
        plant(dir.path(), ".dockerenv", "", 0o644);
        let lack = device(&System::planted(dir.path(), 1000)).unwrap_err();
        assert!(
            lack.remedy
                .unwrap()
                .starts_with("docker run --device /dev/fuse")
        );
        std::fs::remove_file(dir.path().join(".dockerenv")).unwrap();
        // Root mounts without a helper, and needs no sudo.
        let found = findings(&System::planted(dir.path(), 0));
        assert!(found.iter().all(|f| f.name != "fusermount3"));
        assert_eq!(found[0].remedy.as_deref(), Some("modprobe fuse"));
    }

    #[test]
    fn a_machine_that_has_it_all_works() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        plant(root, "dev/fuse", "", 0o666);
        plant(root, "usr/bin/fusermount3", "", 0o755);
        plant(root, "etc/fuse.conf", "# x\nuser_allow_other\n", 0o644);
        plant(
            root,
            "sys/module/fuse/parameters/enable_uring",
            "Y\n",
            0o644,
        );
        plant(root, "sbin/mount.extant", "", 0o755);
        let found = findings(&System::planted(root, 1000));
        // Landlock depends on the kernel that runs the test.
        let lacks = |f: &&Finding| f.state != FindingState::Works && f.name != "sandbox";
        let lacking: Vec<_> = found.iter().filter(lacks).collect();
        assert_eq!(lacking.len(), 1, "{lacking:?}");
        assert!(
            lacking[0]
                .found
                .ends_with("fusermount3 is not set-user-id root")
        );
        plant(
            root,
            "sys/module/fuse/parameters/enable_uring",
            "N\n",
            0o644,
        );
        let lack = io_uring(&System::planted(root, 1000)).unwrap_err();
        assert_eq!(lack.remedy.unwrap(), format!("echo Y | sudo tee {SWITCH}"));
        plant(root, "proc/sys/kernel/io_uring_disabled", "1\n", 0o644);
        let lack = io_uring(&System::planted(root, 1000)).unwrap_err();
        assert!(
            lack.remedy
                .unwrap()
                .ends_with("sysctl -w kernel.io_uring_disabled=0")
        );
    }

    #[test]
    fn versions_of_kernels_are_compared_as_numbers() {
        for (release, since) in [
            ("6.14.0-generic", true),
            ("6.9.7", false),
            ("7.0-rc1", true),
            ("5.100", false),
            ("", false),
        ] {
            assert_eq!(is_since(release, (6, 14)), since, "{release}");
        }
    }
}
