//! Status, sync, freeze and end of a mount.

use super::support::{
    EXTANT, Mounted, assert_clean, extant, image, isolated, over_each, place, run, run_for, script,
    status,
};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn status_counts_what_is_asked() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        script(
            mounted.dir(),
            "for i in $(seq 20); do echo $i >f$i; done; cat f* >/dev/null; ! cat none 2>/dev/null; sync -f .",
        );
        let found = status(mounted.dir());
        let of = |kind: &str| {
            let requests = found["requests"].as_array().unwrap();
            requests
                .iter()
                .find(|r| r["kind"] == kind)
                .unwrap_or_else(|| panic!("{kind}: {found:#}"))
                .clone()
        };
        assert_eq!(of("create")["requests"], 20);
        assert!(of("lookup")["requests"].as_u64().unwrap() >= 21);
        assert!(of("write")["bytes"].as_u64().unwrap() > 40);
        assert!(found["nodes_known"].as_u64().unwrap() >= 20);
        assert!(found["space"]["free_bytes"].as_u64().unwrap() > 1 << 20);
        let dir = mounted.dir().to_str().unwrap();
        let text = extant(["status", dir]);
        assert!(
            text.contains("create") && text.contains("read and write"),
            "{text}"
        );
        let metrics = extant(["status", "--prometheus", dir]);
        assert!(
            metrics.contains("extant_requests_total{image="),
            "{metrics}"
        );
        for line in metrics.lines().filter(|l| !l.starts_with('#')) {
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        mounted.unmount();
    });
}

#[test]
fn meters_are_switched_while_it_runs() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir().to_str().unwrap();
        extant(["status", dir, "--meter", "on", "--profiler", "on"]);
        script(mounted.dir(), "for i in $(seq 50); do echo $i >f$i; done");
        let locks = extant(["status", dir, "--locks"]);
        assert!(locks.contains("directory bucket"), "{locks}");
        let profile = extant(["status", dir, "--operations"]);
        assert!(profile.contains("create"), "{profile}");
        assert_eq!(status(mounted.dir())["locks_metered"], true);
        extant(["status", dir, "--meter", "off", "--profiler", "off"]);
        assert_eq!(status(mounted.dir())["locks_metered"], false);
        mounted.unmount();
    });
}

#[test]
fn the_socket_is_its_owners() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let mounted = Mounted::new(&image, super::support::Transport::Classic, &["allow_other"]);
        let sockets = std::path::Path::new("/run/extant");
        assert_eq!(
            sockets.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        // Another user is refused, in one line.
        let mut other = Command::new("setpriv");
        other.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            EXTANT,
            "status",
        ]);
        let out = other.arg(mounted.dir()).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1);
        mounted.unmount();
    });
}

/// A copy made while a mount is frozen is a clean image with everything in it. The test does not remove or replace
/// files, because such a file would be in the copy without a name until the kernel's FORGET, which comes later.
#[test]
fn sync_holds_still_while_a_command_runs() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let copy = place.path().join("copy.img");
        let mounted = Mounted::new(&image, transport, &[]);
        std::fs::write(mounted.dir().join("before"), "text").unwrap();
        let text = script(
            place.path(),
            &format!(
                "D={dir} E={EXTANT}; trap 'touch stop' EXIT
                 (while test ! -e stop; do echo x >$D/busy; mv $D/busy $D/still; mv $D/still $D/busy; sleep 0.01; done) & loop=$!
                 $E sync $D -- cp {image} {copy}
                 touch stop; wait $loop; $E sync $D; ! $E sync $D -- false 2>err; cat err",
                dir = mounted.dir().display(),
                image = image.display(),
                copy = copy.display()
            ),
        );
        assert!(text.starts_with("error: false: exit status: 1"), "{text}");
        assert_clean(&copy);
        assert_eq!(
            extant(["cat", &format!("{}:/before", copy.display())]),
            "text"
        );
        assert_eq!(status(mounted.dir())["frozen"], false);
        mounted.unmount();
    });
}

/// The kernel writes a file's dirty pages back when a program closes it, which waits for the end of the freeze. So neither the
/// command nor `extant sync` may have a file of the mount open.
#[test]
fn a_frozen_mount_has_no_files_open_in_the_command() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let text = script(
            place.path(),
            &format!(
                "D={dir} E={EXTANT}; echo x >kept; exec 7<kept 8>>$D/log 9<$D
                 echo before >&8
                 $E sync $D -- sh -c 'cat <&7; readlink /proc/$$/fd/* /proc/$PPID/fd/* | grep -c \"^$0\" || true' $D
                 ! $E sync $D -- echo lost >$D/out 2>err; sed s:.*mnt:mnt: err
                 ! $E sync $D -- true 2>$D/err
                 ! $E sync $D -- cat <$D/log 2>err; sed 's,.*mnt: ,,' err
                 $E sync $D -- sh -c 'echo during >>$0/log & sleep 0.2' $D
                 echo after >&8; sort $D/log",
                dir = mounted.dir().display(),
            ),
        );
        assert_eq!(
            text,
            "x\n0\nmnt: standard output is a file of this mount, which is frozen while the command runs: \
             redirect it to a file elsewhere\nstandard input is a file of this mount, which is frozen while the command \
             runs: redirect it to a file elsewhere\nafter\nbefore\nduring\n"
        );
        mounted.unmount();
    });
}

/// syncfs(2) makes the kernel write back the dirty pages of a mount, but does not wait for the writes. `extant sync`
/// waits: it reads the number of pending requests from the kernel, or watches until no more requests arrive.
#[test]
fn what_the_kernel_holds_is_in_the_image_after_a_sync() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "128M", &[]);
        let copy = place.path().join("copy.img");
        let mounted = Mounted::new(&image, transport, &[]);
        for round in 0..6u8 {
            let connections = "/sys/fs/fuse/connections";
            if round == 3 {
                run(Command::new("mount").args(["-t", "fusectl", "fusectl", connections]));
            }
            let content = vec![b'a' + round; 20 << 20];
            std::fs::write(mounted.dir().join("file"), &content).unwrap();
            extant(["sync", mounted.dir().to_str().unwrap()]);
            run(Command::new("cp")
                .arg("--sparse=always")
                .arg(&image)
                .arg(&copy));
            if round == 5 {
                run(Command::new("umount").arg(connections));
            }
            let found = extant(["cat", &format!("{}:/file", copy.display())]);
            assert!(found.into_bytes() == content, "round {round}");
        }
        mounted.unmount();
    });
}

/// A client that dies leaves nothing frozen.
#[test]
fn a_command_that_is_killed_thaws() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let mut sync = Command::new(EXTANT);
        sync.arg("sync")
            .arg(mounted.dir())
            .args(["--", "sleep", "60"]);
        let mut sync = sync.spawn().unwrap();
        let start = std::time::Instant::now();
        while status(mounted.dir())["frozen"] != true {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "it is not frozen"
            );
        }
        sync.kill().unwrap();
        sync.wait().unwrap();
        let mut touch = Command::new("touch");
        touch.arg(mounted.dir().join("after"));
        let touched = run_for(touch, Duration::from_secs(20));
        assert!(touched.expect("thawed").status.success());
        mounted.unmount();
    });
}

#[test]
fn sigterm_unmounts_and_closes() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        std::fs::write(mounted.dir().join("file"), "text").unwrap();
        mounted.terminate();
        assert_clean(&image);
        assert_eq!(
            extant(["cat", &format!("{}:/file", image.display())]),
            "text"
        );
    });
}

#[test]
fn what_is_no_mount_is_said_so() {
    isolated(|| {
        let place = place();
        let dir = place.path().to_str().unwrap();
        for args in [
            &["umount", dir][..],
            &["status", dir],
            &["sync", dir],
            &["umount", "/proc"],
            &["mount", dir, dir],
        ] {
            let out = Command::new(EXTANT).args(args).output().unwrap();
            assert_eq!(out.status.code(), Some(1), "{args:?}");
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        }
        let image = image(place.path(), "16M", &[]);
        for (options, word) in [("bogus", "bogus"), ("cache=lots", "cache=lots")] {
            let mut mount = Command::new(EXTANT);
            let out = mount
                .args(["mount", "-o", options])
                .arg(&image)
                .arg(dir)
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&out.stderr).contains(word));
            assert_eq!(out.status.code(), Some(1));
        }
        assert_clean(&image);
        run(Command::new("true").arg(dir));
    });
}

/// Checks a mount while programs change it: each check sees one moment, at which the image was clean; a broken image
/// is reported.
#[test]
fn a_mounted_image_is_checked_while_it_is_used() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir().to_str().unwrap().to_owned();
        // A killed shell would leave its current child process behind, in a directory of the mount.
        let stop = place.path().join("stop");
        let mut writer = Command::new("sh")
            .arg("-c")
            .arg("n=0; until [ -e \"$STOP\" ]; do n=$((n + 1)); mkdir -p d$((n % 9)); echo $n >d$((n % 9))/f$((n % 50)); rm -f d$(((n * 7) % 9))/f$(((n * 3) % 50)); done")
            .env("STOP", &stop)
            .current_dir(&dir)
            .spawn()
            .unwrap();
        let image = image.to_str().unwrap();
        // Open but unlinked: on the list of orphans.
        let mut nameless = std::fs::File::create(mounted.dir().join("gone")).unwrap();
        std::io::Write::write_all(&mut nameless, &[7; 100_000]).unwrap();
        std::fs::remove_file(mounted.dir().join("gone")).unwrap();
        for what in [dir.as_str(), image, dir.as_str(), dir.as_str()] {
            let said = run(Command::new(EXTANT).args(["check", what]));
            assert!(said.contains(": clean: "), "{said}");
        }
        let paced = run(Command::new(EXTANT).args(["check", "--scrub=100M", "--json", &dir]));
        let told: serde_json::Value = serde_json::from_str(&paced).unwrap();
        assert_eq!(told["clean"], true, "{paced}");
        std::fs::write(&stop, "").unwrap();
        writer.wait().unwrap();
        drop(nameless);
        mounted.unmount();
        assert_clean(std::path::Path::new(image));
    });
}
