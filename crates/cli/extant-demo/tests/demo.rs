//! The demo on a small image.

use std::process::{Command, Output};

fn demo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-demo"));
    command.args(args).output().expect("extant-demo runs")
}

#[test]
fn the_demo_ends_with_a_clean_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let image = path.to_str().expect("a path in UTF-8");
    let small = ["--files", "100", "--threads", "4", "--json"];
    let made = demo(&[&["--image", image][..], &small].concat());
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(json["threads"], 4);
    let volume = extant::VolumeOptions::new()
        .read_only(true)
        .open(&path)
        .unwrap();
    assert!(volume.metadata("/thread3").unwrap().is_dir());
    let again = demo(&["--image", image]);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.trim_end().ends_with("exists already"), "{said}");
    let shown = demo(&["--files", "20"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("create files"));
}
