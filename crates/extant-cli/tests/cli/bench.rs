//! bench and demo, small.

use crate::support::{Scratch, run};

#[test]
fn mdtest_compares_targets() {
    let s = Scratch::empty();
    let path = s.dir.path().to_str().unwrap();
    let small = [
        "--tasks",
        "2",
        "--files",
        "50",
        "--iterations",
        "1",
        "--size",
        "64M",
    ];
    let args = [
        &["bench", "mdtest", "--target", "lib", "--target", path][..],
        &small,
    ]
    .concat();
    let table = run(&args).text();
    assert!(
        table.contains("extant (in process)") && table.contains("against path"),
        "{table}"
    );
    let json = run(&[&args[..], &["--json", "--shared"]].concat()).json();
    assert!(json[0]["creates"].as_f64().unwrap() > 0.0);
    assert_eq!(json[1]["params"]["shared"], true);
    assert_eq!(s.dir.path().read_dir().unwrap().count(), 0);
    assert_eq!(
        run(&["bench", "mdtest", "--target", "/no/such/place"]).code,
        Some(1)
    );
}

#[test]
fn the_demo_ends_with_a_clean_image() {
    let s = Scratch::empty();
    let demo = s.run(&[
        "demo",
        "--image",
        "%",
        "--files",
        "100",
        "--threads",
        "4",
        "--json",
    ]);
    assert_eq!(demo.code, Some(0), "{}", demo.stderr);
    assert_eq!(demo.json()["threads"], 4);
    assert!(s.ok(&["ls", "%"]).contains("thread3"));
    let again = s.fails(&["demo", "--image", "%"]);
    assert!(again.ends_with("exists already"), "{again}");
    assert!(
        run(&["demo", "--files", "20"])
            .text()
            .contains("create files")
    );
}
