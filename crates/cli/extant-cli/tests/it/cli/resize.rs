//! `extant resize`: contents and times of writes, lengths of files, and kills at random moments.

use crate::cli::support::Scratch;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn len(s: &Scratch) -> u64 {
    std::fs::metadata(&s.image).unwrap().len()
}

fn is_clean(s: &Scratch) -> bool {
    let out = Command::new("e2fsck").arg("-fn").arg(&s.image).output();
    out.unwrap().status.success()
}

#[test]
fn an_image_grows_shrinks_and_is_taken_back() {
    let Some(s) = Scratch::filled() else { return };
    let before = s.bytes();
    assert_eq!(s.run(&["resize", "-n", "%", "100M"]).code, Some(0));
    assert!(s.bytes() == before, "-n writes nothing");
    let ran = s.run(&["resize", "%", "100M"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert!(len(&s) == 100 * MIB && is_clean(&s));
    let least: u64 = s.run(&["resize", "-P", "%"]).text().trim().parse().unwrap();
    let told = s.run(&["resize", "-M", "--json", "%"]).json();
    assert_eq!(told["bytes"], least, "{told}");
    assert!(len(&s) == least && least < 16 * MIB && is_clean(&s));
    assert_eq!(s.run(&["cat", ":/etc/motd"]).text(), "welcome\n");
    assert_eq!(s.run(&["resize", "%", "+20%"]).code, Some(0));
    assert!(len(&s) > least && is_clean(&s));
    let before = s.bytes();
    assert_eq!(
        s.run(&["resize", "-M", "--undo", "@undo", "%"]).code,
        Some(0)
    );
    assert!(is_clean(&s) && s.bytes() != before);
    assert_eq!(s.run(&["undo", "@undo", "%"]).code, Some(0));
    assert!(is_clean(&s));
    assert_eq!(s.run(&["resize", "%", "1K"]).code, Some(1));
    assert_eq!(s.run(&["resize", "%", "20%"]).code, Some(2));
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_or_the_new() {
    let Some(s) = Scratch::filled() else { return };
    let before = s.bytes();
    let rounds = if std::env::var_os("EXTANT_TORTURE").is_some() {
        200
    } else {
        20
    };
    let began = std::time::Instant::now();
    assert_eq!(s.run(&["resize", "-M", "%"]).code, Some(0));
    let whole = began.elapsed();
    for round in 0..rounds {
        std::fs::write(&s.image, &before).unwrap();
        let mut resize = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["resize", "-M"])
            .arg(&s.image)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Delays from zero to the whole time of a resize, in steps that share no factor with the rounds.
        std::thread::sleep(whole * (round * 7 % rounds) / rounds + Duration::from_micros(50));
        resize.kill().unwrap();
        resize.wait().unwrap();
        let undo = PathBuf::from(format!(
            "{}.extant-undo",
            s.image.canonicalize().unwrap().display()
        ));
        if undo.exists() {
            let image = s.image.display().to_string();
            let args = ["undo", &undo.display().to_string(), &image];
            assert_eq!(crate::cli::support::run(&args).code, Some(0));
        }
        assert!(is_clean(&s), "round {round}: old or new");
        assert_eq!(s.run(&["resize", "-M", "%"]).code, Some(0));
        assert!(is_clean(&s) && !undo.exists(), "round {round}: at last");
    }
}
