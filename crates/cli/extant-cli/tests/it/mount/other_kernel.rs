//! Another kernel as a judge: Debian's, in QEMU (scripts/qemu.sh). It recovers and reads images that this machine
//! wrote, and this engine recovers and reads images that the other kernel wrote.

use super::support::{
    Mounted, Transport, assert_clean, cannot, extant, image, isolated, place, run, run_for, script,
};
use crate::common;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/qemu.sh");

/// Prints the contents of a directory: names, attributes, sizes, data, targets. Both sides use busybox; its xargs
/// fails on long lists.
const MANIFEST: &str = r"all='-name lost+found -prune -o -name manifest.? -prune -o'
find . -mindepth 1 $all -exec stat -c '%n|%f|%u|%g|%h|%Y|%t|%T' {} + | sort
find . $all ! -type d -exec stat -c '%n|%s' {} + | sort
find . $all -type f -exec md5sum {} + | sort
find . -type l -exec readlink {} \; | sort
";

/// Runs a job on an image that the other kernel mounts, and returns its output; `None` if that kernel cannot run here.
pub fn run_job(image: &Path, job: &str) -> Option<String> {
    let dir = place();
    let file = dir.path().join("job");
    std::fs::write(&file, job).unwrap();
    let mut qemu = Command::new(SCRIPT);
    qemu.arg(image).arg(&file).env("QEMU_TIMEOUT", "200");
    let output = run_for(qemu, Duration::from_secs(230)).expect("the machine ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        // QEMU or the kernel's package is not available.
        cannot(&said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(said)
}

fn manifest(dir: &Path) -> String {
    run(Command::new("busybox")
        .args(["sh", "-efc", MANIFEST])
        .current_dir(dir))
}

#[test]
fn debians_kernel_and_this_read_each_others_images() {
    isolated(|| {
        needs::tools!("qemu-system-x86_64", "busybox");
        let place = place();
        let image = image(place.path(), "96M", &["-b", "1024"]);
        let mounted = Mounted::new(&image, Transport::Classic, &["commit=300"]);
        script(
            mounted.dir(),
            "mkdir many deep; for i in $(seq 1500); do >many/a-name-of-some-length-$i; done
             head -c 3000000 /dev/urandom >big; cp big deep/copy; truncate -s 10M sparse
             for i in $(seq 0 30); do dd if=big of=pieces bs=1024 count=3 seek=$((i * 70)) conv=notrunc status=none; done
             ln -s big short; ln -s $(printf 'x%.0s' $(seq 200)) long; ln big deep/hard; mkfifo fifo; mknod null c 1 3
             chmod 4755 big; chown 1:70000 deep; touch -d 1960-05-05 old; touch -d 2400-01-01 young
             for i in $(seq 3 3 1500); do rm many/a-name-of-some-length-$i; done
             fallocate -l 500K taken; echo text >taken2; mv taken2 deep/moved; setfattr -n user.a -v b deep/moved",
        );
        let ours = manifest(mounted.dir());
        extant(["sync", mounted.dir().to_str().unwrap()]);
        // The journal has many transactions, and the other kernel has to recover it.
        mounted.kill();

        let work = format!(
            "sh -efc '{quoted}' >/tmp/1; mv /tmp/1 manifest.1
             mkdir theirs theirs/many; i=0; while [ $i -lt 800 ]; do : >theirs/many/of-the-other-kernel-$i; i=$((i+1)); done
             cp big theirs/big; cp -a deep theirs/deep; ln -s ../big theirs/link; ln big theirs/hard
             mv many/a-name-of-some-length-1 theirs/; rm -r deep; dd if=big of=sparse bs=1024 seek=5000 count=100 conv=notrunc 2>/dev/null
             : >old; sh -efc '{quoted}' >/tmp/2; mv /tmp/2 manifest.2; sync
             echo done\ncut\n",
            quoted = MANIFEST.replace('\'', "'\\''")
        );
        let Some(said) = run_job(&image, &work) else {
            return;
        };
        assert!(said.contains("done"), "{said}");

        // The machine was killed, so the journal has to be recovered here.
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        let seen = std::fs::read_to_string(mounted.dir().join("manifest.1")).unwrap();
        assert!(
            seen == ours,
            "what Linux read of ours:\n{seen}\nand not\n{ours}"
        );
        let theirs = std::fs::read_to_string(mounted.dir().join("manifest.2")).unwrap();
        let found = manifest(mounted.dir());
        assert!(
            found == theirs,
            "what was read of theirs:\n{found}\nand not\n{theirs}"
        );
        assert!(theirs.contains("of-the-other-kernel-799"));
        mounted.unmount();
        assert_clean(&image);
    });
}

/// Returns a name in another case, by Unicode's rules, applied to the whole name.
fn in_another_case(name: &str) -> String {
    let upper = name.to_uppercase();
    if upper == name {
        name.to_lowercase()
    } else {
        upper
    }
}

/// Returns lines of this many names, each with the same name in another case after a tab.
fn names_in_two_cases(count: usize, what: &str) -> String {
    const PARTS: [&str; 12] = [
        "Makefile",
        "Straße",
        "ÅNGSTRÖM",
        "ΜΆΪΟΣ",
        "Ёлка",
        "a\u{323}\u{302}",
        "한국어",
        "ﬁnal",
        "Ǆungla",
        "Ꭰꭰ",
        "ᾼ",
        "\u{1e900}\u{1fbf0}",
    ];
    let name = |n: usize| format!("{}-{what}-{n}", PARTS[n % PARTS.len()]);
    let lines = (0..count).map(|n| format!("{}\t{}\n", name(n), in_another_case(&name(n))));
    lines.collect()
}

#[test]
fn debians_kernel_and_this_find_each_others_names_in_any_case() {
    isolated(|| {
        needs::tools!("qemu-system-x86_64", "busybox", "chattr");
        let place = place();
        let image = image(place.path(), "64M", &["-b", "1024", "-O", "casefold"]);
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        let at = |path: &str| mounted.dir().join(path);
        // 240 names already fill several blocks of a directory.
        let count = if common::torture() { 700 } else { 240 };
        let (ours, theirs) = (
            names_in_two_cases(count, "ours"),
            names_in_two_cases(count, "theirs"),
        );
        std::fs::write(at("ours"), &ours).unwrap();
        std::fs::write(at("theirs"), &theirs).unwrap();
        script(mounted.dir(), "mkdir d; chattr +F d; mkdir d/Sub");
        for (name, other) in ours.lines().map(|line| line.split_once('\t').unwrap()) {
            assert!(!at("d/sub").join(other).exists());
            std::fs::write(at("d/SUB").join(name), name).unwrap();
            assert!(at("d/sub").join(other).exists(), "{other}");
        }
        // A cached name in one case is not reused for another case.
        let (one, other) = ours.lines().next().unwrap().split_once('\t').unwrap();
        std::fs::remove_file(at("d/sub").join(other)).unwrap();
        assert!(!at("d/sub").join(one).exists());
        std::fs::write(at("d/sub").join(one), one).unwrap();
        mounted.unmount();
        assert_clean(&image);

        let work = "mkdir d/Theirs
             tab=$(printf '\\t')
             while IFS=$tab read -r name other; do
                 found=; read -r found <\"d/sUb/$other\" || true; [ \"$found\" = \"$name\" ] || echo \"no $other\"
             done <ours
             while IFS=$tab read -r name other; do echo \"$name\" >\"d/theirs/$name\"; done <theirs
             n=0; set --; while IFS=$tab read -r name other; do
                 n=$((n+1)); [ $((n % 3)) -ne 0 ] || set -- \"$@\" \"d/SUB/$other\"
             done <ours; rm \"$@\"
             echo done\n";
        let Some(said) = run_job(&image, work) else {
            return;
        };
        assert!(said.contains("done"), "{said}");
        assert!(!said.contains("no "), "{said}");
        assert_clean(&image);

        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        let at = |path: &str| mounted.dir().join(path);
        for (name, other) in theirs.lines().map(|line| line.split_once('\t').unwrap()) {
            let found = std::fs::read_to_string(at("d/THEIRS").join(other)).unwrap();
            assert_eq!(found.trim_end(), name);
        }
        let left = std::fs::read_dir(at("d/Sub")).unwrap().count();
        assert_eq!(left, count - count / 3);
        mounted.unmount();
        assert_clean(&image);
    });
}

/// The script reports its steps and its errors.
#[test]
fn a_debian_in_an_image_made_here_boots_to_a_login() {
    isolated(|| {
        needs::tools!("mmdebstrap", "qemu-system-x86_64", "busybox", "e2fsck");
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../scripts/boot-debian.sh"
        );
        let mut boot = Command::new(script);
        boot.env("EXTANT", super::support::EXTANT);
        let output = run_for(boot, Duration::from_secs(550)).expect("it ends in time");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        assert!(text.contains("and left it clean"), "{text}{errors}");
    });
}
