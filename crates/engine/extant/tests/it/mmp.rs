//! Claims of one volume have one holder at a time; e2fsck and Linux take part.

use blockdev::{Access, BlockDevice, FileDevice, MemDevice, UnlockedFile};
use ext4_format::geometry::Geometry;
use ext4_format::mmp::{self, Mark, MmpState};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_mmp::{MmpDevice, MmpError, MmpOptions};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// A volume that mke2fs has made, with its superblock and geometry.
struct TestVolume {
    device: Arc<dyn BlockDevice>,
    sb: RawSuperblock,
    geometry: Geometry,
}

const MAKE: [&str; 7] = [
    "-q",
    "-F",
    "-t",
    "ext4",
    "-O",
    "mmp",
    "-Emmp_update_interval=1",
];

impl TestVolume {
    fn of(device: Arc<dyn BlockDevice>) -> Self {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
        let sb = RawSuperblock::parse(&bytes).unwrap();
        let geometry = Geometry::new(&sb).unwrap();
        Self {
            device,
            sb,
            geometry,
        }
    }

    fn in_memory() -> Self {
        let thread = std::thread::current().id();
        let name = format!("extant-mmp-{}-{thread:?}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut make = Command::new("mke2fs");
        let make = make.args(MAKE).arg(&file).arg("16M");
        assert!(make.status().unwrap().success());
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        Self::of(Arc::new(MemDevice::from_bytes(&bytes)))
    }

    fn at(&self) -> u64 {
        self.sb.mmp_block.get() * u64::from(self.geometry.block_size)
    }

    fn block(&self) -> Vec<u8> {
        let mut block = vec![0; self.geometry.block_size as usize];
        self.device.read_at(self.at(), &mut block).unwrap();
        block
    }

    fn state(&self) -> MmpState {
        mmp::state(&self.block(), Some(self.geometry.csum_seed)).unwrap()
    }

    /// Writes the number of another node into the block.
    fn mark(&self, number: u32, node: &[u8]) {
        let mut block = self.block();
        let mark = Mark {
            number,
            time: 0,
            node,
            device: b"",
            interval: 5,
        };
        mark.write(&mut block);
        mmp::set_checksum(&mut block, self.geometry.csum_seed);
        self.device.write_at(self.at(), &block).unwrap();
    }

    fn mount(&self, settle: u64) -> Result<MmpDevice, MmpError> {
        let options = MmpOptions {
            settle: Duration::from_millis(settle),
            update: Some(Duration::from_millis(50)),
        };
        let device = Arc::clone(&self.device);
        let claimed = MmpDevice::mount(device, &self.sb, &self.geometry, &options)?;
        Ok(claimed.expect("the volume has the feature"))
    }

    fn check(&self) -> Result<MmpDevice, MmpError> {
        let options = MmpOptions {
            settle: Duration::from_millis(100),
            update: None,
        };
        let device = Arc::clone(&self.device);
        let claimed = MmpDevice::check(device, &self.sb, &self.geometry, &options)?;
        Ok(claimed.expect("the volume has the feature"))
    }
}

fn is_in_use<T>(found: Result<T, MmpError>) -> bool {
    matches!(found, Err(MmpError::InUse { .. }))
}

#[test]
fn a_claim_is_seen_by_others_and_ends() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    let claimed = made.mount(100).unwrap();
    let MmpState::Mounted(first) = made.state() else {
        panic!("{:?}", made.state());
    };
    // Readers of the claimed device see a free volume.
    let mut block = made.block();
    claimed.read_at(made.at(), &mut block).unwrap();
    assert!(mmp::is_clean(&block));
    let name = rustix::system::uname().nodename().to_bytes().to_vec();
    assert_eq!(mmp::node(&made.block()), name);
    let renewed = || made.state() != MmpState::Mounted(first);
    let start = Instant::now();
    while !renewed() {
        assert!(start.elapsed() < Duration::from_secs(60), "not renewed");
        std::thread::yield_now();
    }
    drop(claimed);
    assert_eq!(made.state(), MmpState::Clean);
    assert!(made.mount(100).is_ok());
}

#[test]
fn a_checker_keeps_everybody_off() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    let claimed = made.check().unwrap();
    assert_eq!(made.state(), MmpState::Checked);
    assert!(is_in_use(made.mount(100)));
    assert!(is_in_use(made.check()));
    let waited = extant_mmp::wait_until_free(&*made.device, &made.sb, &made.geometry);
    assert!(is_in_use(waited));
    drop(claimed);
    assert_eq!(made.state(), MmpState::Clean);
}

/// Exactly one of several simultaneous claims succeeds.
#[test]
fn one_of_those_that_come_at_once_gets_it() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    let barrier = Barrier::new(8);
    let claims: Vec<_> = std::thread::scope(|scope| {
        let claim = || {
            barrier.wait();
            made.check()
        };
        let claims: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
        claims.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let winners = claims.iter().filter(|claim| claim.is_ok()).count();
    assert_eq!(winners, 1);
    for lost in claims.into_iter().filter(Result::is_err) {
        assert!(is_in_use(lost));
    }
}

/// A volume that somebody else has taken over is not written any more.
#[test]
fn what_was_taken_over_is_not_written() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    let claimed = made.mount(100).unwrap();
    claimed.write_at(0, &[1; 512]).unwrap();
    made.mark(77, b"other");
    let start = Instant::now();
    while !claimed.is_lost() {
        assert!(start.elapsed() < Duration::from_secs(60), "not noticed");
        std::thread::yield_now();
    }
    let refused = claimed.write_at(0, &[2; 512]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(claimed.discard(0, 4096).is_err());
    assert!(claimed.write_vectored_at(0, &[&[2; 512]]).is_err());
    drop(claimed);
    // The other holder keeps the volume.
    assert_eq!(made.state(), MmpState::Mounted(77));
    let mut first = [0; 512];
    made.device.read_at(0, &mut first).unwrap();
    assert_eq!(first, [1; 512]);
}

/// The number of a process that was killed is stale once it has not changed for long enough.
#[test]
fn a_stale_number_is_taken_over() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    made.mark(78, b"gone");
    let start = Instant::now();
    let claimed = made.mount(100).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(11));
    drop(claimed);
    assert_eq!(made.state(), MmpState::Clean);
}

#[test]
fn a_damaged_block_is_an_error() {
    needs::tools!("mke2fs");
    let made = TestVolume::in_memory();
    made.device.write_at(made.at() + 500, &[1]).unwrap();
    assert!(matches!(made.mount(100), Err(MmpError::Format(_))));
    made.device.write_at(made.at(), &[0; 1024]).unwrap();
    assert!(matches!(made.check(), Err(MmpError::Format(_))));
}

/// e2fsck refuses a volume that is claimed, as it refuses one that Linux has mounted.
#[test]
fn e2fsck_is_kept_off() {
    needs::tools!("mke2fs", "e2fsck");
    let file = std::env::temp_dir().join(format!("extant-mmp-e2fsck-{}", std::process::id()));
    let mut make = Command::new("mke2fs");
    assert!(
        make.args(MAKE)
            .arg(&file)
            .arg("16M")
            .status()
            .unwrap()
            .success()
    );
    let made = TestVolume::of(Arc::new(
        FileDevice::open(&file, Access::ReadWrite).unwrap(),
    ));
    let e2fsck = || {
        let run = Command::new("e2fsck").args(["-fy"]).arg(&file).output();
        let run = run.unwrap();
        let text = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
        (run.status.code(), text.into_owned())
    };
    let claimed = made.mount(100).unwrap();
    let (code, text) = e2fsck();
    assert!(code == Some(8) && text.contains("MMP"), "{code:?}: {text}");
    drop(claimed);
    let (code, text) = e2fsck();
    assert_eq!(code, Some(0), "{text}");
    // And its own claim has ended.
    let read = UnlockedFile::new(std::fs::File::open(&file).unwrap()).unwrap();
    assert_eq!(TestVolume::of(Arc::new(read)).state(), MmpState::Clean);
    std::fs::remove_file(&file).unwrap();
}

/// Linux refuses to mount a volume that is claimed, and a volume that Linux has mounted is not claimed.
#[test]
fn linux_is_kept_off_and_keeps_off() {
    needs::tools!("mke2fs", "mount", "umount");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let name = format!("extant-mmp-linux-{}", std::process::id());
    let (file, place) = (
        std::env::temp_dir().join(&name),
        std::env::temp_dir().join(format!("{name}.mounted")),
    );
    std::fs::create_dir_all(&place).unwrap();
    let mut make = Command::new("mke2fs");
    let make = make.args(MAKE).arg(&file).arg("16M");
    assert!(make.status().unwrap().success());
    let mount = || {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "ext4", "-o", "loop"])
            .arg(&file)
            .arg(&place);
        mount.output().unwrap()
    };
    let made = TestVolume::of(Arc::new(
        FileDevice::open(&file, Access::ReadWrite).unwrap(),
    ));
    let claimed = made.mount(100).unwrap();
    let refused = mount();
    assert!(
        !refused.status.success(),
        "Linux has mounted a claimed volume"
    );
    drop(claimed);
    let mounted = mount();
    if !mounted.status.success() {
        // Loop devices may be missing here.
        let text = String::from_utf8_lossy(&mounted.stderr).into_owned();
        needs::ignored(&text);
    } else {
        let claim = made.mount(100);
        let unmounted = Command::new("umount").arg(&place).status().unwrap();
        assert!(unmounted.success());
        assert!(is_in_use(claim));
    }
    // A mount name space that another test has made meanwhile keeps the volume mounted until it ends.
    let deadline = Instant::now() + Duration::from_secs(300);
    while made.state() != MmpState::Clean && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(made.state(), MmpState::Clean);
    std::fs::remove_dir(&place).unwrap();
    std::fs::remove_file(&file).unwrap();
}
