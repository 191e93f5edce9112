//! Images with broken bytes, mounted and walked: errors are allowed, crashes and hangs are not.

use super::random::Random;
use super::support::{
    EXTANT, Transport, image, isolated, place, run, run_for, script, transports, wait,
};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns a small image with every kind of file.
fn model(place: &Path) -> PathBuf {
    let tree = place.join("tree");
    std::fs::create_dir(&tree).unwrap();
    script(
        &tree,
        "mkdir -p a/b/c many; for i in $(seq 150); do echo $i >many/file$i; done; head -c 300000 /dev/urandom >big
         truncate -s 3M sparse; echo x >>sparse; ln big hard; ln -s a/b soft; ln -s $(printf 'x%.0s' $(seq 200)) long
         setfattr -n user.a -v $(printf 'v%.0s' $(seq 300)) big; mkfifo fifo; mknod null c 1 3",
    );
    image(
        place,
        "8M",
        &[
            "-b",
            "1024",
            "-d",
            tree.to_str().unwrap(),
            "-O",
            "^metadata_csum",
        ],
    )
}

/// Breaks some bytes of the metadata.
fn mutate(image: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    let reach = 1500 * 1024;
    for _ in 0..1 + random.below(40) {
        // Rarely the superblock, because a broken superblock is usually refused at once.
        let at = 4096 + random.below(reach);
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        match random.below(4) {
            0 => bytes[0] ^= 1 << random.below(8),
            1 => bytes = (random.next() as u32).to_le_bytes(),
            2 => bytes = [0xff; 4],
            _ => bytes = (random.below(200) as u32).to_le_bytes(),
        }
        file.write_all_at(&bytes, at).unwrap();
    }
}

/// Mounts, walks, changes and unmounts; nothing may crash or hang.
// A hanging server is the failure that this test looks for; the server is asked to end when the test does.
#[allow(clippy::zombie_processes)]
fn walk(image: &Path, transport: Transport, seed: u64) {
    let dir = image.with_extension("mnt");
    let _ = std::fs::create_dir(&dir);
    let err = image.with_extension("err");
    let mut server = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "TERM",
            EXTANT,
            "mount",
            "--foreground",
            "-o",
            "commit=1",
        ])
        .args(["--transport", transport.name()])
        .args([image, &dir])
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&format!(" {} ", dir.display()))
    };
    let mut ended = None;
    while ended.is_none() && !mounted() {
        ended = wait(&mut server, Duration::from_millis(10));
    }
    if ended.is_none() {
        let mut walk = Command::new("bash");
        walk.current_dir(&dir).args([
            "-c",
            "find . -xdev 2>/dev/null | head -5000 | while read -r f; do
               stat \"$f\"; [ -f \"$f\" ] && head -c 500000 \"$f\"; readlink \"$f\"; getfattr -d \"$f\"; done
             echo x >new; mkdir newdir; mv new newdir/; rm -r many; echo y >>big; truncate -s 10 sparse; ln big more
             setfattr -n user.b -v c big; fallocate -l 100000 space; sync -f .",
        ]);
        walk.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(
            run_for(walk, Duration::from_secs(60)).is_some(),
            "seed {seed}: the walk does not end"
        );
        let mut umount = Command::new(EXTANT);
        umount.arg("umount").arg(&dir);
        // umount may report failed writes, but it must end.
        if run_for(umount, Duration::from_secs(30)).is_none() || mounted() {
            let _ = Command::new("umount").arg("-l").arg(&dir).status();
            panic!("seed {seed}: it does not unmount");
        }
        ended = wait(&mut server, Duration::from_secs(30));
    }
    let status = ended.unwrap_or_else(|| panic!("seed {seed}: the server does not end"));
    let text = std::fs::read_to_string(&err).unwrap();
    assert!(
        matches!(status.code(), Some(0 | 1)),
        "seed {seed}: {status}: {text}"
    );
    assert!(!text.contains("panicked"), "seed {seed}: {text}");
}

#[test]
fn broken_images_are_walked() {
    isolated(|| {
        let seeds = match std::env::var("EXTANT_SEEDS") {
            Ok(n) => n.parse().unwrap(),
            Err(_) if std::env::var_os("EXTANT_TORTURE").is_some() => 500,
            Err(_) => 5,
        };
        let place = place();
        let model = model(place.path());
        let transports = transports();
        let only: Option<u64> = std::env::var("EXTANT_SEED")
            .ok()
            .map(|s| s.parse().unwrap());
        for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
            let image = place.path().join("broken.img");
            run(Command::new("cp").args([&model, &image]));
            mutate(&image, seed);
            walk(&image, transports[seed as usize % transports.len()], seed);
        }
    });
}
