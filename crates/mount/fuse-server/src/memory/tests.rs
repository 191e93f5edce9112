use super::*;

fn ask(fs: &MemoryFs, node: u64, operation: Operation<'_>) -> Result<Vec<u8>, Errno> {
    let mut buffer = [0; 4096];
    let mut answer = Answer::new(&mut buffer);
    let request = Request {
        unique: 1,
        node,
        uid: 1,
        gid: 2,
        pid: 3,
        operation,
    };
    fs.handle(&request, &mut answer)?;
    Ok(answer.payload().to_vec())
}

fn node_of(entry: &[u8]) -> u64 {
    u64::from_ne_bytes(entry[..8].try_into().unwrap())
}

fn mkdir(fs: &MemoryFs, parent: u64, name: &[u8]) -> u64 {
    node_of(
        &ask(
            fs,
            parent,
            Operation::Mkdir {
                name,
                mode: 0o755,
                umask: 0,
            },
        )
        .unwrap(),
    )
}

fn create(fs: &MemoryFs, parent: u64, name: &[u8]) -> u64 {
    let operation = Operation::Create {
        name,
        mode: 0o644,
        umask: 0,
        flags: 0,
        kill_suidgid: false,
    };
    node_of(&ask(fs, parent, operation).unwrap())
}

fn lookup(fs: &MemoryFs, parent: u64, name: &[u8]) -> u64 {
    node_of(&ask(fs, parent, Operation::Lookup { name }).unwrap())
}

#[test]
fn a_removed_file_lives_until_it_is_forgotten() {
    let fs = MemoryFs::new();
    let file = create(&fs, 1, b"file");
    assert_eq!(lookup(&fs, 1, b"file"), file);
    ask(&fs, 1, Operation::Unlink { name: b"file" }).unwrap();
    assert_eq!(lookup(&fs, 1, b"file"), 0);
    assert!(ask(&fs, file, Operation::GetAttr { handle: None }).is_ok());
    ask(&fs, file, Operation::Forget { lookups: 2 }).unwrap();
    assert_eq!(
        ask(&fs, file, Operation::GetAttr { handle: None }),
        Err(Errno::STALE)
    );
    assert_eq!(fs.nodes.count(), 1);
}

#[test]
fn directories_are_removed_when_empty() {
    let fs = MemoryFs::new();
    let dir = mkdir(&fs, 1, b"dir");
    create(&fs, dir, b"file");
    assert_eq!(
        ask(&fs, 1, Operation::Rmdir { name: b"dir" }),
        Err(Errno::NOTEMPTY)
    );
    assert_eq!(
        ask(&fs, 1, Operation::Unlink { name: b"dir" }),
        Err(Errno::ISDIR)
    );
    ask(&fs, dir, Operation::Unlink { name: b"file" }).unwrap();
    ask(&fs, 1, Operation::Rmdir { name: b"dir" }).unwrap();
    assert_eq!(fs.nodes.get(1).unwrap().state.lock().attr.nlink, 2);
}

#[test]
fn renames_replace_exchange_and_refuse() {
    let fs = MemoryFs::new();
    let dir = mkdir(&fs, 1, b"dir");
    let (a, b) = (create(&fs, 1, b"a"), create(&fs, dir, b"b"));
    let rename = |flags| Operation::Rename {
        name: b"a",
        new_parent: dir,
        new_name: b"b",
        flags,
    };
    assert_eq!(ask(&fs, 1, rename(RENAME_NOREPLACE)), Err(Errno::EXIST));
    assert_eq!(ask(&fs, 1, rename(4)), Err(Errno::INVAL));
    ask(&fs, 1, rename(RENAME_EXCHANGE)).unwrap();
    assert_eq!((lookup(&fs, 1, b"a"), lookup(&fs, dir, b"b")), (b, a));
    ask(&fs, 1, rename(0)).unwrap();
    assert_eq!((lookup(&fs, 1, b"a"), lookup(&fs, dir, b"b")), (0, b));
    let up = mkdir(&fs, dir, b"sub");
    ask(
        &fs,
        dir,
        Operation::Rename {
            name: b"sub",
            new_parent: 1,
            new_name: b"up",
            flags: 0,
        },
    )
    .unwrap();
    assert_eq!(fs.nodes.get(1).unwrap().state.lock().attr.nlink, 4);
    assert_eq!(
        fs.nodes
            .get(up)
            .unwrap()
            .state
            .lock()
            .directory()
            .unwrap()
            .parent,
        1
    );
}

#[test]
fn listings_go_on_where_they_stopped() {
    let fs = MemoryFs::new();
    for number in 0..10 {
        create(&fs, 1, format!("file{number}").as_bytes());
    }
    let (mut offset, mut names) = (0, 0);
    loop {
        let part = ask(
            &fs,
            1,
            Operation::ReadDir {
                handle: 0,
                offset,
                size: 100,
            },
        )
        .unwrap();
        if part.is_empty() {
            break;
        }
        // Every record has 32 bytes: a short name after 24 bytes.
        names += part.len() / 32;
        offset = u64::from_ne_bytes(part[part.len() - 24..part.len() - 16].try_into().unwrap());
        ask(&fs, 1, Operation::Unlink { name: b"file9" }).ok();
    }
    assert_eq!(names, 11);
}

#[test]
fn data_is_read_as_it_was_written() {
    let fs = MemoryFs::new();
    let file = create(&fs, 1, b"file");
    let write = Operation::Write {
        handle: 0,
        offset: 3,
        data: b"abc",
        cached: false,
        kill_suidgid: false,
        flags: 0,
    };
    ask(&fs, file, write).unwrap();
    let read = |size| {
        ask(
            &fs,
            file,
            Operation::Read {
                handle: 0,
                offset: 1,
                size,
                flags: 0,
            },
        )
        .unwrap()
    };
    assert_eq!(read(100), b"\0\0abc");
    ask(
        &fs,
        file,
        Operation::SetAttr(SetAttr {
            size: Some(4),
            ..SetAttr::default()
        }),
    )
    .unwrap();
    assert_eq!(read(100), b"\0\0a");
}
