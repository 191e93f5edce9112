//! The initial files of readers of the documents, and the commands that a test cannot run as typed.

/// Replacements in a command before it runs, each with its reason.
pub const REPLACED: &[(&str, &str, &str)] = &[(
    "https://example.org/",
    "file://$SITE/",
    "a test needs no network: what would be there is in a directory",
)];

/// Commands that are not run: their first words, and the reason. The test still checks that the options in them
/// exist.
pub const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "make demo",
        "builds for release, minutes; its own test runs `extant-demo`",
    ),
    ("README.md", "make test", "is what runs this test"),
];

/// Returns a script that makes a reader's files in the home directory, before the first command of a document.
pub fn script(document: &str) -> &'static str {
    match document {
        "README.md" | "docs/tutorials/tour.md" => TOUR,
        "docs/mount.md" => "mkdir project; echo text >project/file",
        "docs/how-to/ci-images.md" => "mkdir -p build/bin; echo program >build/bin/program",
        "docs/how-to/disk.md" | "docs/how-to/e2fsprogs.md" => {
            "mkdir -p rootfs/etc; echo hello >rootfs/etc/motd"
        }
        "docs/how-to/untrusted-image.md" | "docs/how-to/examine.md" => FOUND,
        "docs/how-to/firmware.md" => FIRMWARE,
        "docs/how-to/container-layers.md" => LAYERS,
        "docs/how-to/formats.md" => FORMATS,
        "docs/how-to/chroot-shell.md" => ROOT,
        _ => "",
    }
}

/// Directories, and an initramfs like those of distributions.
const FORMATS: &str = r#"
mkdir -p rootfs/etc more
echo hello >rootfs/etc/motd
cat >table <<END
# name     type mode uid gid major minor start inc count
/dev       d    755  0   0   -     -     -     -   -
/dev/null  c    666  0   0   1     3     0     0   -
/dev/tty   c    620  0   5   4     0     0     1   8
/etc/motd  f    600  1   1   -     -     -     -   -
END
mkdir -p early/kernel/x86 main
echo code >early/kernel/x86/microcode
printf '#!/bin/sh\n' >main/init
(cd early; find . | cpio -o -H newc --quiet) >initrd.img
(cd main; find . | cpio -o -H newc --quiet) | gzip >>initrd.img
"#;

/// Directories, archives and the files of the site example.org, among them a root file system whose apt-get only
/// writes a file.
const TOUR: &str = r#"
mkdir -p root/bin root/etc root/proc root/dev root/sys root/tmp
cp "$(command -v busybox)" root/bin/busybox
for name in sh ls cat apt-get; do ln -s busybox root/bin/$name; done
rm root/bin/apt-get
printf '#!/bin/sh\necho "$@" >/etc/asked\n' >root/bin/apt-get
chmod 755 root/bin/apt-get
tar -C root --owner=0 --group=0 -c . | zstd -q >base.tar.zst
mkdir -p app/opt local-files/etc build
echo program >app/opt/program
tar -C app -czf app.tar.gz .
echo setting >local-files/etc/setting
echo built >build/result
tar -C app -c opt | zstd -q >update.tar.zst
mkdir -p .site/work
tar -C root -czf .site/rootfs.tar.gz .
cd .site/work
git init -q .
echo text >file
git add file
git -c user.name=A -c user.email=a@example.org commit -q -m first
git clone -q --bare . ../project.git
"#;

/// An image of unknown origin.
const FOUND: &str =
    "mkdir -p tree/etc; echo hello >tree/etc/motd; extant mkfs found.img --from tree";

/// A root file system, a boot directory and a device table.
const FIRMWARE: &str = r#"
mkdir -p rootfs/etc boot
echo hello >rootfs/etc/motd
echo kernel >boot/vmlinuz
cat >table <<END
/dev          d  755  0     0     -  -  -  -  -
/dev/console  c  600  0     0     5  1  -  -  -
/dev/null     c  666  0     0     1  3  -  -  -
/home/user    d  700  1000  1000  -  -  -  -  -
END
"#;

/// Layers as archives, and in an archive of `docker save`.
const LAYERS: &str = r#"
mkdir -p one/etc two/etc three/etc
echo 1 >one/etc/version; echo old >one/etc/old
echo 2 >two/etc/version; : >two/etc/.wh.old
echo more >three/etc/more
for layer in one two three; do tar -C $layer -cf $layer.tar .; done
first=$(printf %064d 1) second=$(printf %064d 2)
mkdir $first $second
cp one.tar $first/layer.tar; cp two.tar $second/layer.tar
zstd -q one.tar -o base.tar.zst
gzip -k two.tar; mv two.tar.gz update.tar.gz
echo '{}' >$first.json
echo '[{"Config":"'$first.json'","RepoTags":["app:1"],"Layers":["'$first/layer.tar'","'$second/layer.tar'"]}]' >manifest.json
tar -cf saved.tar $first $second $first.json manifest.json
mv three.tar more.tar
"#;

/// A small root file system.
const ROOT: &str = r#"
mkdir -p root/bin root/etc root/proc root/dev root/sys root/tmp
cp "$(command -v busybox)" root/bin/busybox
for name in sh ls cat id rm; do ln -s busybox root/bin/$name; done
echo NAME=Small >root/etc/os-release
extant mkfs root.img --from root --size 64M --owner 0:0
"#;
