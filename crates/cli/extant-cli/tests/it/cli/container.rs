//! Images of containers as sources of mkfs: OCI layouts and archives of `docker save`.

use crate::cli::support::Scratch;
use std::fs;
use std::path::Path;

/// Returns an archive of files; a name that ends in a slash is a directory.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        let directory = name.ends_with('/');
        header.set_entry_type(if directory {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        header.set_mode(if directory { 0o755 } else { 0o644 });
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Returns two layers: the second removes a file of the first and adds another.
fn two_layers() -> [Vec<u8>; 2] {
    [
        archive(&[("etc/", b""), ("etc/gone", b"1"), ("etc/kept", b"2")]),
        archive(&[("etc/", b""), ("etc/.wh.gone", b""), ("etc/new", b"3")]),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn digest(n: u8) -> String {
    format!("{:02x}", n).repeat(32)
}

/// Writes an OCI layout with an index for two platforms.
fn layout(dir: &Path) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let [first, second] = two_layers();
    fs::write(blobs.join(digest(1)), first).unwrap();
    fs::write(blobs.join(digest(2)), gzip(&second)).unwrap();
    let layer = |n| {
        format!(
            r#"{{"mediaType": "any", "digest": "sha256:{}"}}"#,
            digest(n)
        )
    };
    let manifest = format!(r#"{{"layers": [{}, {}]}}"#, layer(1), layer(2));
    fs::write(blobs.join(digest(3)), manifest).unwrap();
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let of = |n, arch: &str, os: &str| {
        format!(
            r#"{{"digest": "sha256:{}", "platform": {{"architecture": "{arch}", "os": "{os}"}}}}"#,
            digest(n)
        )
    };
    let index = format!(
        r#"{{"manifests": [{}, {}, {}]}}"#,
        of(9, "s390x", "linux"),
        of(8, "unknown", "unknown"),
        of(3, arch, "linux")
    );
    fs::write(dir.join("index.json"), index).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
}

fn check(s: &Scratch, from: &str) {
    s.ok(&["mkfs", "%", "--force", "--from", &format!("@{from}")]);
    let names = s.run(&["ls", ":/etc"]).text();
    assert_eq!(
        names.split_whitespace().collect::<Vec<_>>(),
        ["kept", "new"],
        "{from}"
    );
    s.clean();
}

#[test]
fn layers_of_an_oci_layout_are_applied() {
    let s = Scratch::empty();
    let dir = s.dir.path().join("oci");
    layout(&dir);
    check(&s, "oci");
    // Packs the layout as an archive, in the order of the file system.
    let mut packed = tar::Builder::new(Vec::new());
    packed.append_dir_all(".", &dir).unwrap();
    let packed = packed.into_inner().unwrap();
    fs::write(s.host("oci.tar"), &packed).unwrap();
    check(&s, "oci.tar");
    // Names that begin with ./, and on standard input.
    let mut dotted = tar::Builder::new(Vec::new());
    for entry in tar::Archive::new(&packed[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = format!("./{}", entry.path().unwrap().display());
        let mut header = entry.header().clone();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        header.as_old_mut().name = [0; 100];
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        dotted.append(&header, &bytes[..]).unwrap();
    }
    let dotted = dotted.into_inner().unwrap();
    fs::write(s.host("dotted.tar"), &dotted).unwrap();
    check(&s, "dotted.tar");
    for bytes in [&packed, &dotted, &gzip(&packed)] {
        let ran = s.run_with(&["mkfs", "%", "-F", "-q", "--from", "-"], bytes);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(s.run(&["ls", ":/etc"]).text(), "kept\nnew\n");
    }
    // Packed with its directory, and as two files of a page that happen to have such names.
    let mut nested = tar::Builder::new(Vec::new());
    nested.append_dir_all("app", &dir).unwrap();
    fs::write(s.host("nested.tar"), nested.into_inner().unwrap()).unwrap();
    check(&s, "nested.tar");
    fs::create_dir(s.host("page")).unwrap();
    fs::write(s.host("page/manifest.json"), r#"{"name": "page"}"#).unwrap();
    s.ok(&["mkfs", "%", "-F", "-q", "--from", "@page"]);
    assert!(s.run(&["cat", ":/manifest.json"]).text().contains("page"));
    // An archive of files on standard input stays an archive of files.
    let plain = archive(&[("blobs/", b""), ("blobs/sha256/", b""), ("other", b"x")]);
    let ran = s.run_with(&["mkfs", "%", "-F", "-q", "--from", "-"], &plain);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(s.run(&["cat", ":/other"]).text(), "x");
    // import also accepts images of containers.
    s.ok(&["mkfs", "%", "-F", "-q", "--size", "8M"]);
    s.ok(&["import", "%", "@dotted.tar"]);
    assert_eq!(s.run(&["ls", ":/etc"]).text(), "kept\nnew\n");
}

#[test]
fn images_are_chosen_by_name_and_platform() {
    let s = Scratch::empty();
    let dir = s.dir.path().join("oci");
    layout(&dir);
    let of = |options: &[&str]| {
        let args = ["mkfs", "%", "-F", "-q", "--from", "@oci"];
        s.run(&[&args, options].concat()).stderr
    };
    assert_eq!(
        of(&["--platform", "linux/s390x"]),
        format!(
            "error: {}: blobs/sha256/{} is missing\n",
            dir.display(),
            digest(9)
        )
    );
    assert!(
        of(&["--platform", "linux/riscv64"])
            .contains("no image is for linux/riscv64: --platform takes one of ")
    );
    // Two images by their names.
    let named = |n, name: &str| {
        format!(
            r#"{{"digest": "sha256:{}", "annotations": {{"org.opencontainers.image.ref.name": "{name}"}}}}"#,
            digest(n)
        )
    };
    let index = format!(
        r#"{{"manifests": [{}, {}]}}"#,
        named(9, "1"),
        named(3, "local/app:2")
    );
    fs::write(dir.join("index.json"), index).unwrap();
    assert_eq!(of(&["--tag", "app:2"]), "");
    assert!(of(&["--tag", "3"]).contains("there are 1, local/app:2"));
    assert_eq!(of(&["--tag", "2"]), "");
    // An option without effect is refused.
    fs::create_dir(s.host("tree")).unwrap();
    let said = s.fails(&["mkfs", "@x.img", "--from", "@tree", "--tag", "2"]);
    assert!(said.contains("no source is one"), "{said}");
}

#[test]
fn a_layer_that_ends_early_is_read_or_named() {
    let s = Scratch::empty();
    let dir = s.dir.path().join("oci");
    layout(&dir);
    let blob = dir.join("blobs/sha256").join(digest(2));
    let [_, second] = two_layers();
    // Like umoci, without the end marks and the last padding.
    let end = second.len() - 1024 - 511;
    for layer in [second[..end].to_vec(), gzip(&second[..end])] {
        fs::write(&blob, layer).unwrap();
        check(&s, "oci");
    }
    fs::write(&blob, &second[..end - 600]).unwrap();
    let said = s.fails(&["mkfs", "%", "-F", "--from", "@oci"]);
    assert!(
        said.contains(&format!("oci: layer sha256:{}: at byte", digest(2))),
        "{said}"
    );
}

#[test]
fn layers_of_docker_save_are_applied() {
    let s = Scratch::empty();
    let [first, second] = two_layers();
    let names = [1, 2].map(|n| format!("{}/layer.tar", digest(n)));
    let manifest = format!(
        r#"[{{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["{}", "{}"]}}]"#,
        names[0], names[1]
    );
    let save = archive(&[
        (&format!("{}/", digest(1)), b""),
        (&names[0], &first),
        (&names[1], &second),
        ("manifest.json", manifest.as_bytes()),
    ]);
    fs::write(s.host("saved.tar"), save).unwrap();
    check(&s, "saved.tar");
    // Unpacked files next to the image are removed.
    let left = fs::read_dir(s.dir.path()).unwrap().count();
    assert_eq!(left, 2, "the archive and the image");
}

#[test]
fn what_is_wrong_with_an_image_is_said() {
    let s = Scratch::empty();
    let cases: [(&str, &str); 4] = [
        (
            r#"[{"Layers": ["../../etc/passwd"]}]"#,
            "leads out of the image",
        ),
        (
            r#"[{"Layers": ["gone/layer.tar"]}]"#,
            "gone/layer.tar is missing",
        ),
        (
            r#"[{"Layers": [], "RepoTags": ["a:1"]}, {"Layers": [], "RepoTags": ["b:2"]}]"#,
            "2 images (a:1, b:2)",
        ),
        ("[", "manifest.json"),
    ];
    for (manifest, says) in cases {
        let saved = archive(&[("manifest.json", manifest.as_bytes())]);
        fs::write(s.host("saved.tar"), saved).unwrap();
        let said = s.fails(&["mkfs", "%", "--from", "@saved.tar"]);
        assert!(said.contains(says), "{said}");
        assert!(!s.image.exists());
    }
}
