//! Paths in an image that are written as inode numbers.

use crate::cli::support::Scratch;

/// Returns the number of a path's inode.
fn ino(s: &Scratch, path: &str) -> u64 {
    let facts = s.run(&["stat", "--json", path]).json();
    facts[0]["ino"].as_u64().unwrap()
}

#[test]
fn inodes_are_reached_by_number() {
    let Some(s) = Scratch::filled() else { return };
    let of = |path: &str| format!(":<{}>", ino(&s, path));
    let (file, dir, link) = (of(":/etc/motd"), of(":/etc"), of(":/etc/link"));
    let (file, dir, link) = (&file[..], &dir[..], &link[..]);
    assert_eq!(s.ok(&["cat", file]), "welcome\n");
    assert_eq!(s.ok(&["ls", dir]), "link\nmotd\nskel\n");
    assert_eq!(s.ok(&["ls", &format!("{dir}/skel")]), "");
    assert_eq!(s.ok(&["cat", &format!("{dir}/motd")]), "welcome\n");
    assert!(s.ok(&["tree", dir]).contains("├── link -> motd"));
    let stat = s.ok(&["stat", link]);
    assert!(
        stat.contains("-> motd") && stat.contains("symbolic link"),
        "{stat}"
    );
    assert!(s.ok(&["ls", "-l", "-d", file]).contains(&file[1..]));
    s.ok(&["chmod", "600", file]);
    s.ok(&["chown", "7:8", file, link]);
    s.ok(&["touch", "-d", "5", file]);
    s.ok(&["setfattr", "-n", "user.k", "-v", "v", file]);
    assert_eq!(
        s.ok(&["getfattr", "-n", "user.k", "--only-values", file]),
        "v"
    );
    let seen = &s.run(&["stat", "--json", ":/etc/motd"]).json()[0];
    assert_eq!(
        (seen["mode"].as_str(), seen["uid"].as_u64()),
        (Some("0600"), Some(7))
    );
    assert_eq!(seen["mtime"], "1970-01-01T00:00:05.000000000Z");
    assert_eq!(s.run(&["stat", "--json", ":/etc/link"]).json()[0]["gid"], 8);
    s.ok(&["setfattr", "-x", "user.k", file]);
    s.clean();
}

#[test]
fn copies_start_and_end_at_numbers() {
    let Some(s) = Scratch::filled() else { return };
    let of = |path: &str| format!(":<{}>", ino(&s, path));
    let (file, dir) = (of(":/etc/motd"), of(":/etc"));
    let (file, dir) = (&file[..], &dir[..]);
    s.ok(&["cp", file, "@out"]);
    assert_eq!(std::fs::read(s.host("out")).unwrap(), b"welcome\n");
    s.ok(&["cp", "-r", dir, "@tree"]);
    assert!(s.host("tree/link").is_symlink());
    s.ok(&["export", dir, "@etc.tar"]);
    assert!(s.host("etc.tar").exists());
    s.ok(&["export", file, "@file"]);
    assert_eq!(std::fs::read(s.host("file")).unwrap(), b"welcome\n");
    // A directory's number is a target directory, a file's number a file to overwrite.
    std::fs::write(s.host("new"), "new").unwrap();
    s.ok(&["cp", "@new", dir]);
    s.ok(&["cp", "@new", file]);
    s.ok(&["mkdir", &format!("{dir}/made")]);
    s.ok(&["ln", file, ":/again"]);
    s.ok(&["mv", &format!("{dir}/made"), ":/moved"]);
    assert_eq!(s.ok(&["cat", ":/etc/new", ":/again"]), "newnew");
    assert_eq!(s.ok(&["ls", "-d", ":/moved"]).lines().count(), 1);
    // The address has no name for the copy, so the command must give one.
    std::fs::create_dir(s.host("into")).unwrap();
    for args in [
        &["cp", file, "@into"][..],
        &["cp", file, ":/moved"],
        &["export", file, "@into"],
        &["export", file, "@x.tar"],
    ] {
        assert!(s.fails(args).contains("has no name here"), "{args:?}");
    }
    s.clean();
}

/// A tree is not copied into itself, by whatever path the destination is reached.
#[test]
fn no_way_leads_a_copy_into_itself() {
    let Some(s) = Scratch::filled() else { return };
    s.ok(&["ln", "-s", "/etc/skel", ":/short"]);
    let dir = format!(":<{}>", ino(&s, ":/etc"));
    for to in [
        ":/etc/skel/x",
        ":/short/x",
        ":/short",
        &format!("{dir}/skel"),
    ] {
        let line = s.fails(&["cp", "-r", ":/etc", to]);
        assert!(
            line.contains("cannot be copied into itself"),
            "{to}: {line}"
        );
    }
    let line = s.fails(&["cp", "-r", &dir, ":/etc/skel/x"]);
    let number = s.image.display().to_string() + &dir;
    assert!(
        line.contains(&format!("{number}: cannot be copied into itself")),
        "{line}"
    );
    assert_eq!(s.ok(&["ls", ":/etc/skel"]), "");
}

#[test]
fn numbers_that_lead_nowhere_are_named() {
    let Some(s) = Scratch::filled() else { return };
    let file = format!(":<{}>", ino(&s, ":/etc/motd"));
    for (number, said) in [
        ("8", "inode 8 is the file system's own"),
        ("0", "there is no inode 0"),
        ("4000", "inode 4000 is free"),
        ("99999999999", "there is no inode 4294967295"),
    ] {
        let line = s.fails(&["stat", &format!(":<{number}>")]);
        assert!(line.contains(said), "{line}");
    }
    assert!(
        s.fails(&["cat", &format!("{file}/x")])
            .contains("not a directory")
    );
    for args in [
        &["rm", &file][..],
        &["mv", &file, ":/x"],
        &["mkdir", &file],
        &["ln", "-s", "x", &file],
    ] {
        let line = s.fails(args);
        assert!(line.contains("a name is needed, not a number"), "{line}");
    }
    // An inode whose last name is removed is free.
    let (name, number) = (":/etc/motd", &file);
    s.ok(&["rm", name]);
    assert!(s.fails(&["stat", number]).contains("is free"));
    s.clean();
}

fn many() -> Option<Scratch> {
    let s = Scratch::ext4()?;
    s.ok(&["mkdir", "-p", ":/d/sub", ":/e/sub", ":/to"]);
    s.ok(&[
        "touch",
        ":/d/a.conf",
        ":/d/b.conf",
        ":/d/c.txt",
        ":/d/.hidden.conf",
        ":/d/[x]",
    ]);
    s.ok(&["touch", ":/d/sub/f", ":/e/sub/g"]);
    Some(s)
}

#[test]
fn patterns_stand_for_names() {
    let Some(s) = many() else { return };
    let image = s.image.display().to_string();
    let names = |pattern: &str| s.ok(&["ls", "-d", pattern]).replace(&image, "");
    assert_eq!(names(":/d/*.conf"), ":/d/a.conf\n:/d/b.conf\n");
    assert_eq!(names(":/d/.*"), ":/d/.hidden.conf\n");
    assert_eq!(names(":/d/[!ab].*"), ":/d/c.txt\n");
    assert_eq!(names(":/*/sub/?"), ":/d/sub/f\n:/e/sub/g\n");
    assert_eq!(names(":/d/s*/"), ":/d/sub/\n");
    // A name that exists as it is written wins.
    assert_eq!(names(":/d/[x]"), ":/d/[x]\n");
    let number = s.run(&["stat", "--json", ":/d"]).json()[0]["ino"].clone();
    assert_eq!(
        names(&format!(":<{number}>/a*")),
        format!(":<{number}>/a.conf\n")
    );
    let line = s.fails(&["ls", ":/d/*.none"]);
    assert!(
        line.contains(":/d/*.none: no name matches this pattern: "),
        "{line}"
    );
    // A pattern without a match does not stop the work on the other arguments.
    let ran = s.run(&["ls", "-d", ":/d/*.none", ":/d/a.conf"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.text().ends_with("/a.conf\n"));
    let listed = s.ok(&["ls", ":/?/sub"]);
    assert!(
        listed.contains(":/d/sub:\nf\n") && listed.contains(":/e/sub:\ng\n"),
        "{listed}"
    );
    let tree = s.ok(&["tree", ":/?/sub"]);
    assert!(
        tree.contains(":/d/sub\n└── f") && tree.ends_with("0 directories, 2 files\n"),
        "{tree}"
    );
}

#[test]
fn patterns_are_changed_copied_moved_and_removed() {
    let Some(s) = many() else { return };
    s.ok(&["chmod", "600", ":/d/*.conf"]);
    s.ok(&["chown", "5", ":/d/*.conf"]);
    s.ok(&["setfattr", "-n", "user.k", "-v", "v", ":/d/*.conf"]);
    for name in ["a", "b"] {
        let path = format!(":/d/{name}.conf");
        let facts = &s.run(&["stat", "--json", &path]).json()[0];
        assert_eq!(
            (facts["mode"].as_str(), facts["uid"].as_u64()),
            (Some("0600"), Some(5))
        );
        s.ok(&["getfattr", "-n", "user.k", &path]);
    }
    assert_eq!(
        s.run(&["stat", "--json", ":/d/*.conf"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    std::fs::create_dir(s.host("out")).unwrap();
    s.ok(&["cp", "-r", ":/d/*", ":/e/*", "@out"]);
    let mut names: Vec<_> = s
        .host("out")
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["[x]", "a.conf", "b.conf", "c.txt", "sub"]);
    assert!(s.host("out/sub/f").exists() && s.host("out/sub/g").exists());
    let line = s.fails(&["cp", ":/d/*.conf", ":/new"]);
    assert!(
        line.ends_with("not a directory, and there are several to copy"),
        "{line}"
    );
    s.ok(&["export", ":/e*", "@exported"]);
    assert!(s.host("exported/sub/g").exists());
    let line = s.fails(&["export", ":/?", "@several"]);
    assert!(
        line.ends_with("2 names match: name one, or use cp -a"),
        "{line}"
    );
    let line = s.fails(&["mv", ":/d/*.conf", ":/new"]);
    assert!(
        line.ends_with("not a directory, and there are several to move"),
        "{line}"
    );
    let line = s.fails(&["ln", ":/d/*.conf", ":/new"]);
    assert!(
        line.ends_with("not a directory, and there are several to link"),
        "{line}"
    );
    s.ok(&["mkdir", ":/links"]);
    s.ok(&["ln", ":/d/*.conf", ":/d/c.txt", ":/links"]);
    s.ok(&["ln", "-s", "one", "../two", ":/links"]);
    assert_eq!(
        s.ok(&["ls", ":/links"]),
        "a.conf\nb.conf\nc.txt\none\ntwo\n"
    );
    assert_eq!(
        s.run(&["stat", "--json", ":/links/a.conf"]).json()[0]["links"],
        2
    );
    s.ok(&["rm", "-r", ":/links"]);
    s.ok(&["cp", ":/d/c*", ":/new"]);
    s.ok(&["mv", ":/d/*.conf", ":/to"]);
    assert_eq!(s.ok(&["ls", ":/to"]), "a.conf\nb.conf\n");
    assert!(s.fails(&["rm", ":/to/*.none"]).contains("no name matches"));
    s.ok(&["rm", "-f", ":/to/*.none"]);
    s.ok(&["rm", ":/to/*"]);
    assert_eq!(s.ok(&["ls", ":/to"]), "");
    // The name of a new file may look like a pattern.
    s.ok(&["touch", ":/to/a*"]);
    s.ok(&["mkdir", ":/to/[d]"]);
    assert_eq!(s.ok(&["ls", ":/to"]), "[d]\na*\n");
    s.ok(&["rm", "-r", ":/d/*", ":/to/*"]);
    assert_eq!(s.ok(&["ls", "-a", ":/d"]), ".hidden.conf\n");
    s.clean();
}
