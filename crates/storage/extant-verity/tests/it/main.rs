//! Trees judged by veritysetup, and trees of veritysetup.

use blockdev::{Access, BlockDevice, FileDevice, MemDevice};
use extant_verity::{Parameters, RootHash, VerityDevice, make, tree_len};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

fn parameters() -> Parameters {
    Parameters {
        uuid: *b"0123456789abcdef",
        salt: (0..32).collect(),
    }
}

fn fill(device: &dyn BlockDevice, len: u64) {
    let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 12)) as u8).collect();
    device.write_at(0, &bytes).unwrap();
}

fn file(path: &Path, len: u64) -> Arc<FileDevice> {
    Arc::new(FileDevice::create(path, len).unwrap())
}

fn veritysetup(arguments: &[&str]) -> Output {
    let ran = Command::new("veritysetup").args(arguments).output();
    ran.unwrap()
}

/// Numbers of blocks: no level, one, a full one, and two.
const BLOCKS: [u64; 4] = [1, 2, 128, 129];

#[test]
fn veritysetup_accepts_trees_and_refuses_damage() {
    needs::tools!("veritysetup");
    let dir = tempfile::tempdir().unwrap();
    for blocks in BLOCKS {
        let len = blocks * 4096;
        let (data, tree) = (dir.path().join("data"), dir.path().join("tree"));
        let device = file(&data, len);
        fill(&*device, len);
        let hashes = file(&tree, tree_len(len));
        let root = make(&*device, len, &*hashes, 0, &parameters(), 3).unwrap();
        let verify = |root: &str| {
            let (data, tree) = (data.to_str().unwrap(), tree.to_str().unwrap());
            veritysetup(&["verify", data, tree, root]).status.success()
        };
        assert!(verify(&root.to_string()), "{blocks} blocks");
        assert!(!verify(&RootHash([1; 32]).to_string()));
        device.write_at(len - 1, &[1]).unwrap();
        assert!(!verify(&root.to_string()), "{blocks} blocks");
        drop((device, hashes));
        std::fs::remove_file(&data).unwrap();
        std::fs::remove_file(&tree).unwrap();
    }
}

#[test]
fn trees_of_veritysetup_are_read_and_made_alike() {
    needs::tools!("veritysetup");
    let dir = tempfile::tempdir().unwrap();
    for (blocks, sizes) in [
        (1000u64, (4096u64, 4096u64)),
        (16_500, (4096, 4096)),
        (2000, (1024, 512)),
    ] {
        let len = blocks * sizes.0;
        let path = dir.path().join(format!("disk-{blocks}"));
        // The tree lies behind the data.
        let device = file(&path, len);
        fill(&*device, len);
        let name = path.to_str().unwrap();
        let ran = veritysetup(&[
            "format",
            name,
            name,
            "--salt=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "--uuid=30313233-3435-3637-3839-616263646566",
            &format!("--hash-offset={len}"),
            &format!("--data-blocks={blocks}"),
            &format!("--data-block-size={}", sizes.0),
            &format!("--hash-block-size={}", sizes.1),
        ]);
        let text = String::from_utf8(ran.stdout).unwrap();
        let root = text
            .lines()
            .find_map(|line| line.strip_prefix("Root hash:"));
        let root: RootHash = root.expect(&text).trim().parse().unwrap();
        drop(device);
        let disk: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
        let verified = VerityDevice::open(disk.clone(), disk.clone(), len, root).unwrap();
        verified.verify(3).unwrap();
        if sizes == (4096, 4096) {
            let tree = MemDevice::new(tree_len(len));
            assert_eq!(make(&*disk, len, &tree, 0, &parameters(), 2).unwrap(), root);
            let (mut ours, mut theirs) =
                (vec![0; tree.len() as usize], vec![0; tree.len() as usize]);
            tree.read_at(0, &mut ours).unwrap();
            disk.read_at(len, &mut theirs).unwrap();
            assert!(ours == theirs, "{blocks} blocks");
        }
    }
}

#[test]
fn each_damaged_byte_is_found() {
    let len = 300 * 4096;
    let (data, tree) = (
        Arc::new(MemDevice::new(len)),
        Arc::new(MemDevice::new(tree_len(len))),
    );
    fill(&*data, len);
    let root = make(&*data, len, &*tree, 0, &parameters(), 2).unwrap();
    let open = || VerityDevice::open(data.clone(), tree.clone(), 0, root);
    let mut bytes = vec![0; 10_000];
    let verified = open().unwrap();
    verified.read_at(123_456, &mut bytes).unwrap();
    assert!(
        (123_456..)
            .zip(&bytes)
            .all(|(at, byte)| *byte == (at ^ (at >> 12)) as u8)
    );
    assert!(verified.read_at(len - 1, &mut [0; 2]).is_err());
    assert!(verified.write_at(0, &[1]).is_err());
    let flip = |device: &dyn BlockDevice, at: u64| {
        let mut byte = [0];
        device.read_at(at, &mut byte).unwrap();
        device.write_at(at, &[byte[0] ^ 0x10]).unwrap();
    };
    for at in [0, 4095, 700_000, len - 1] {
        flip(&*data, at);
        let why = open().unwrap().verify(2).unwrap_err().to_string();
        assert!(why.starts_with(&format!("block {} ", at / 4096)), "{why}");
        flip(&*data, at);
    }
    // The salt, the number of blocks, the top and the level below it.
    for at in [90, 72, 4096 + 40, 8192 + 70] {
        flip(&*tree, at);
        assert!(open().and_then(|device| device.verify(2)).is_err(), "{at}");
        flip(&*tree, at);
    }
    open().unwrap().verify(2).unwrap();
    // A tree that is cut.
    let short = Arc::new(MemDevice::new(8192));
    assert!(VerityDevice::open(data.clone(), short, 0, root).is_err());
    assert!(make(&*data, 100, &*tree, 0, &parameters(), 1).is_err());
}
