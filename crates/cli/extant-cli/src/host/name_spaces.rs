//! Unprivileged name spaces, which `extant shell` needs.

use crate::host::system::{Lack, System};
use std::process::Command;

/// Makes a user and a mount name space as `extant shell` does.
pub fn unshare(more: &[&str]) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--user", "--map-root-user"])
        .args(more);
    let ran = command.args(["--", "true"]).output();
    match ran {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let first = said.lines().next().unwrap_or("unshare fails");
            Err(first.trim_start_matches("unshare: ").to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns whether users may make name spaces on this system; if not, the advice.
pub fn look(system: &System) -> Result<String, Lack> {
    if system.program("unshare").is_none() {
        return Err(Lack::mended_by(
            "unshare is not in PATH",
            system.install("util-linux"),
        ));
    }
    match unshare(&[]) {
        Ok(()) => Ok("one was made".into()),
        Err(why) => Err(forbidden(system, &why)),
    }
}

/// Kernel settings that forbid users to make user name spaces, their forbidding value, and the sysctl that allows it.
const SWITCHES: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "user.max_user_namespaces=15000",
    ),
];

fn forbidden(system: &System, why: &str) -> Lack {
    for (switch, off, on) in SWITCHES {
        if system.text(switch).as_deref() == Some(off) {
            let what = format!("{why}: {switch} is {off}");
            return Lack::mended_by(what, system.as_root(&format!("sysctl -w {on}")));
        }
    }
    if system.in_container() {
        let what = format!("{why}: the container does not allow them");
        let options = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined";
        return Lack::mended_by(what, format!("docker run {options} --device /dev/fuse …"));
    }
    Lack::for_good(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_that_forbids_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::planted(dir.path(), 1000);
        assert_eq!(forbidden(&system, "no"), Lack::for_good("no"));
        std::fs::write(dir.path().join(".dockerenv"), "").unwrap();
        let lack = forbidden(&system, "no");
        assert!(
            lack.remedy
                .unwrap()
                .starts_with("docker run --security-opt")
        );
        for (switch, off, on) in SWITCHES {
            let file = system.file(switch);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, format!("{off}\n")).unwrap();
            let lack = forbidden(&system, "no");
            assert_eq!(lack.what, format!("no: {switch} is {off}"));
            assert_eq!(lack.remedy.unwrap(), format!("sudo sysctl -w {on}"));
            std::fs::write(&file, "7\n").unwrap();
        }
    }
}
