//! `extant top` on a mount: its display, its end when the mount ends, and the users that may watch.

use super::support::{EXTANT, Mounted, extant, image, isolated, over_each, place, script, status};
use crate::tmux::Terminal;
use serde_json::Value;
use std::process::Command;

#[test]
fn rates_of_a_mount_are_told() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir().to_str().unwrap().to_string();
        let load = "for i in $(seq 100); do echo $i >f; sync f; mv f g; rm g; sleep 0.01; done";
        let mut busy = Command::new("bash");
        let mut busy = busy
            .args(["-c", load])
            .current_dir(mounted.dir())
            .spawn()
            .unwrap();
        let args = [
            "top",
            "--once",
            "--json",
            "--meter",
            "--interval",
            "0.8",
            &dir,
        ];
        let report: Value = serde_json::from_str(&extant(args)).unwrap();
        busy.wait().unwrap();
        assert_eq!(report["transport"], transport.name());
        let kinds = report["requests"].as_array().unwrap();
        let rate = |kind: &str| {
            let found = kinds.iter().find(|k| k["kind"] == kind);
            found.map_or(0.0, |k| k["per_second"].as_f64().unwrap())
        };
        assert!(rate("create") > 0.0 && rate("fsync") > 0.0, "{report:#}");
        assert!(
            report["pushes"]["counted"].as_u64().unwrap() > 0,
            "{report:#}"
        );
        let slots = report["slots"].as_array().unwrap();
        let by_slot: f64 = slots
            .iter()
            .map(|s| s["requests_per_second"].as_f64().unwrap())
            .sum();
        assert!(by_slot > 0.0, "{report:#}");
        assert!(
            !report["locks"].as_array().unwrap().is_empty(),
            "{report:#}"
        );
        // The meter that top switched on is off again.
        assert_eq!(status(mounted.dir())["locks_metered"], false);
        mounted.unmount();
    });
}

#[test]
fn it_ends_with_the_mount() {
    if !needs::have(&["tmux"]) {
        return;
    }
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, super::support::Transport::Classic, &[]);
        let dir = mounted.dir().display().to_string();
        let settings = place.path().join("settings");
        let terminal = Terminal::new(100, 30);
        terminal.note_settings(&settings);
        terminal.types(&format!("{EXTANT} top --interval 0.3 {dir}; echo ended $?"));
        script(
            mounted.dir(),
            "for i in $(seq 20); do echo $i >f$i; done; sync f1",
        );
        let screen = terminal.until_fits("requests by rate", 100);
        assert!(screen[0].starts_with("extant top  disk.img"), "{screen:?}");
        mounted.unmount();
        terminal.until(|screen| screen.iter().any(|line| line == "ended 1"));
        terminal.until_seen("the mount has ended");
        terminal.is_as_before(&settings);
    });
}

#[test]
fn another_user_is_told_whose_it_is() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let mounted = Mounted::new(&image, super::support::Transport::Classic, &["allow_other"]);
        script(place.path(), "chmod 755 .");
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", EXTANT]);
        let out = other
            .args(["top", "--once"])
            .arg(mounted.dir())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1));
        let line = format!(
            "error: {}: its server is another user's, or in another container\n",
            mounted.dir().display()
        );
        assert_eq!(said, line);
        mounted.unmount();
    });
}
