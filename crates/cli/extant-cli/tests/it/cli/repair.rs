//! `extant repair` and `extant undo`: exit codes, contents and times of writes, and kills at random moments.

use crate::cli::support::Scratch;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns a filled image with wrong links of a file, and a name that leads nowhere.
fn damaged() -> Option<Scratch> {
    let s = Scratch::filled()?;
    s.debugfs_write("set_inode_field /etc/motd links_count 7");
    s.debugfs_write("set_inode_field /etc/skel dtime 1700000000");
    s.debugfs_write("set_super_value free_inodes_count 3");
    Some(s)
}

fn beside(s: &Scratch) -> PathBuf {
    let image = s.image.canonicalize().unwrap();
    PathBuf::from(format!("{}.extant-undo", image.display()))
}

fn is_clean(s: &Scratch) -> bool {
    let out = Command::new("e2fsck").arg("-fn").arg(&s.image).output();
    out.unwrap().status.success()
}

#[test]
fn a_repair_is_listed_made_and_taken_back() {
    let Some(s) = damaged() else { return };
    let before = s.bytes();
    let ran = s.run(&["repair", "-n", "%"]);
    assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
    assert!(
        ran.text().contains("its count of links is set to 1"),
        "{}",
        ran.text()
    );
    assert!(
        ran.text().contains(" would be made, clean then"),
        "{}",
        ran.text()
    );
    assert!(s.bytes() == before, "-n writes nothing");
    // Without a terminal, every question is answered with no.
    assert_eq!(s.run(&["repair", "%"]).code, Some(4));
    assert!(s.bytes() == before);

    let ran = s.run(&["repair", "-y", "--undo", "@undo", "%"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.text(), ran.stderr);
    assert!(is_clean(&s) && !beside(&s).exists());
    let repaired = s.bytes();
    assert_eq!(s.run(&["repair", "-y", "%"]).code, Some(0));
    assert!(s.bytes() == repaired, "a clean image is not written");
    assert_eq!(s.run(&["undo", "@undo", "%"]).code, Some(0));
    assert!(s.bytes() == before, "byte for byte");

    // Repairs with -p lose nothing.
    assert_eq!(s.run(&["repair", "-p", "%"]).code, Some(1));
    assert!(is_clean(&s));
}

#[test]
fn what_loses_something_is_not_done_by_p() {
    let Some(s) = Scratch::filled() else { return };
    s.debugfs_write("set_inode_field /etc/motd mode 0170000");
    let ran = s.run(&["repair", "-p", "--json", "%"]);
    let told = ran.json();
    assert_eq!(ran.code.map(|code| code & 4), Some(4), "{told}");
    let declined = told["declined"].as_array().unwrap();
    assert!(declined.iter().all(|mend| mend["safe"] == false) && !declined.is_empty());
    assert_eq!(s.run(&["repair", "-y", "%"]).code, Some(1));
    assert!(is_clean(&s));
}

#[test]
fn exit_codes_of_what_cannot_be_done() {
    let Some(s) = damaged() else { return };
    assert_eq!(s.run(&["repair", "-n", "-y", "%"]).code, Some(16));
    assert_eq!(s.run(&["repair", "-y", "@missing.img"]).code, Some(8));
    std::fs::write(s.host("undo"), "not an undo file").unwrap();
    let before = s.bytes();
    let ran = s.run(&["undo", "@undo", "%"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("it is not an undo file"),
        "{}",
        ran.stderr
    );
    // An undo file is never overwritten, and without an undo file nothing is written.
    assert_eq!(
        s.run(&["repair", "-y", "--undo", "@undo", "%"]).code,
        Some(8)
    );
    assert!(s.bytes() == before);
    // An undo file fits only the image at that time.
    assert_eq!(
        s.run(&["repair", "-y", "--undo", "@other", "%"]).code,
        Some(1)
    );
    let repaired = s.bytes();
    s.debugfs_write("set_super_value free_inodes_count 5");
    assert_eq!(s.run(&["undo", "@other", "%"]).code, Some(1));
    assert_ne!(s.bytes(), before);
    assert_ne!(s.bytes(), repaired);
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_or_the_new() {
    let Some(s) = damaged() else { return };
    let before = s.bytes();
    let rounds = match std::env::var_os("EXTANT_TORTURE") {
        Some(_) => 200,
        None => 20,
    };
    let began = std::time::Instant::now();
    assert_eq!(s.run(&["repair", "-y", "%"]).code, Some(1));
    let whole = began.elapsed();
    let mut interrupted = 0;
    for round in 0..rounds {
        std::fs::write(&s.image, &before).unwrap();
        let mut repair = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["repair", "-y"])
            .arg(&s.image)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Delays from zero to the whole time of a repair, in steps that share no factor with the rounds.
        std::thread::sleep(whole * (round * 7 % rounds) / rounds + Duration::from_micros(50));
        repair.kill().unwrap();
        repair.wait().unwrap();
        let undo = beside(&s);
        if undo.exists() {
            interrupted += 1;
            let image = s.image.display().to_string();
            let args = ["undo", &undo.display().to_string(), &image];
            assert_eq!(crate::cli::support::run(&args).code, Some(0));
            assert!(s.bytes() == before, "round {round}: taken back");
        } else {
            assert!(
                s.bytes() == before || is_clean(&s),
                "round {round}: old or new"
            );
        }
        let ran = s.run(&["repair", "-y", "%"]);
        assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
        assert!(
            is_clean(&s) && !undo.exists(),
            "round {round}: repaired at last"
        );
    }
    println!("{interrupted} of {rounds} had their undo file");
}
