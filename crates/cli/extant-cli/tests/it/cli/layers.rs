//! Importing layers one over the other yields the same as mkfs with these layers.

use crate::cli::support::Scratch;
use std::fs;
use std::path::Path;

/// A small generator: the same layers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn path(&mut self, longest: u64) -> String {
        let names: Vec<&str> = (0..=self.below(longest))
            .map(|_| ["a", "b", "c", "d"][self.below(4) as usize])
            .collect();
        names.join("/")
    }
}

/// The kind of an entry of a layer.
enum Said {
    Directory,
    File(String),
    Link(String),
    Symlink,
}

/// Returns a layer, in the order of an archive.
fn layer(random: &mut Random, number: u64) -> Vec<(String, Said)> {
    let mut said: Vec<(String, Said)> = Vec::new();
    for n in 0..random.below(12) + 2 {
        let path = random.path(3);
        let white_out = |name: &str| match path.rsplit_once('/') {
            Some((dir, last)) => format!("{dir}/{}", name.replace('*', last)),
            None => name.replace('*', &path),
        };
        let entry = match random.below(10) {
            0..3 => (path, Said::Directory),
            3..6 => (path, Said::File(format!("{number} {n}"))),
            6 => (white_out(".wh.*"), Said::File(String::new())),
            7 => (white_out(".wh..wh..opq"), Said::File(String::new())),
            8 => (format!("{path}.link"), Said::Symlink),
            _ => match said
                .iter()
                .find(|(_, s)| matches!(s, Said::File(t) if !t.is_empty()))
            {
                Some((first, _)) => (format!("{path}.hard"), Said::Link(first.clone())),
                None => (path, Said::Directory),
            },
        };
        said.push(entry);
    }
    said
}

fn archive(said: &[(String, Said)], at: &Path) {
    let mut builder = tar::Builder::new(fs::File::create(at).unwrap());
    for (path, what) in said {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_000_000);
        header.set_size(0);
        match what {
            Said::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o711);
                builder.append_data(&mut header, path, &b""[..]).unwrap();
            }
            Said::File(text) => {
                header.set_size(text.len() as u64);
                builder
                    .append_data(&mut header, path, text.as_bytes())
                    .unwrap();
            }
            Said::Link(to) => {
                header.set_entry_type(tar::EntryType::Link);
                builder.append_link(&mut header, path, to).unwrap();
            }
            Said::Symlink => {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, path, "target").unwrap();
            }
        }
    }
    builder.finish().unwrap();
}

/// Writes the layer as a directory, as far as a directory can represent it.
fn tree(said: &[(String, Said)], at: &Path) {
    fs::create_dir(at).unwrap();
    for (path, what) in said {
        let path = at.join(path);
        // Skip an entry that would conflict with another one.
        if fs::create_dir_all(path.parent().unwrap()).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match what {
            Said::Directory => fs::create_dir(path).unwrap(),
            Said::File(text) => fs::write(path, text).unwrap(),
            Said::Link(to) if at.join(to).is_file() => fs::hard_link(at.join(to), path).unwrap(),
            Said::Link(_) => {}
            Said::Symlink => std::os::unix::fs::symlink("target", path).unwrap(),
        }
    }
}

/// Returns every name with its attributes.
fn listing(s: &Scratch) -> Vec<String> {
    let found = s.run(&["tree", "-a", "--json", "%"]).json();
    let mut lines = Vec::new();
    for f in found.as_array().unwrap() {
        let path = f["path"].as_str().unwrap();
        let content = if f["type"] == "regular file" {
            s.ok(&["cat", &format!(":{path}")])
        } else {
            String::new()
        };
        lines.push(format!(
            "{path} {} {} {} {} {content:?}",
            f["type"], f["links"], f["uid"], f["target"]
        ));
    }
    lines
}

#[test]
fn imported_layers_are_those_of_mkfs() {
    let (mut failed, mut compared) = (0, 0);
    for seed in 0..60 {
        let random = &mut Random(seed);
        let s = Scratch::empty();
        let mut sources = Vec::new();
        for number in 0..random.below(3) + 2 {
            let said = layer(random, number);
            let name = format!("layer{number}");
            if random.below(3) == 0 {
                tree(&said, &s.host(&name));
            } else {
                archive(&said, &s.host(&name));
            }
            sources.push(format!("@{name}"));
        }
        let from = sources.iter().flat_map(|s| ["--from", s.as_str()]);
        let made = s.run(&["mkfs", "%"].into_iter().chain(from).collect::<Vec<_>>());
        let want = (made.code == Some(0)).then(|| listing(&s));
        s.ok(&["mkfs", "%", "--force", "--size", "8M"]);
        let sources = sources.iter().map(String::as_str);
        let ran = s.run(
            &["import", "%"]
                .into_iter()
                .chain(sources)
                .collect::<Vec<_>>(),
        );
        s.clean();
        match want {
            // A file on the path to a member is an error in both.
            None => {
                assert_eq!(ran.code, Some(1), "{seed}: {}", made.stderr);
                failed += 1;
            }
            Some(want) => {
                assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{seed}");
                assert_eq!(listing(&s), want, "{seed}");
                compared += 1;
            }
        }
    }
    assert!(compared > 15, "{failed} of {} failed", failed + compared);
}

#[test]
fn one_source_is_a_layer_if_asked() {
    let Some(s) = Scratch::ext4() else { return };
    for path in ["d/old", "d/sub/inner", "gone", "stays"] {
        fs::create_dir_all(s.host("base").join(path).parent().unwrap()).unwrap();
        fs::write(s.host("base").join(path), path).unwrap();
    }
    s.ok(&["import", "%", "@base"]);
    archive(
        &[
            ("d/new".into(), Said::File("new".into())),
            ("d/.wh..wh..opq".into(), Said::File(String::new())),
            (".wh.gone".into(), Said::File(String::new())),
            (".wh..wh..opq".into(), Said::File(String::new())),
            ("stays".into(), Said::Directory),
        ],
        &s.host("layer.tar"),
    );
    // Without --layers, names are plain names, and nothing is removed.
    s.ok(&["import", "%", "@layer.tar", "--to", "/plain"]);
    assert_eq!(
        s.ok(&["ls", "-a", ":/plain"]),
        ".wh..wh..opq\n.wh.gone\nd\nstays\n"
    );
    s.ok(&["rm", "-r", ":/plain"]);
    s.ok(&["import", "--layers", "%", "@layer.tar"]);
    // No entry of a layer removes the file system's lost+found.
    assert_eq!(s.ok(&["ls", "-a", ":"]), "d\nlost+found\nstays\n");
    assert_eq!(s.ok(&["ls", "-a", ":/d"]), "new\n");
    assert_eq!(
        s.run(&["stat", "--json", ":/stays"]).json()[0]["type"],
        "directory"
    );
    s.clean();
}
