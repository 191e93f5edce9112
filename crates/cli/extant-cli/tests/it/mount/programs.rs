//! Programs as judges. After each program the image is clean, and the kernel's ext4 shows the same tree.

use super::support::{Mounted, image, over_each, over_one, place, run, script};
use super::tree::{describe, unmount_and_compare};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of this repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .canonicalize()
        .unwrap()
}

/// Runs a script on a separate mount, and compares at the end.
fn judge(programs: &[&str], size: &str, text: &str) {
    over_one(programs[0], |transport| {
        if !needs::have(programs) {
            return;
        }
        let place = place();
        let image = image(place.path(), size, &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        let prologue = format!(
            "OUT={} REPO={}; export HOME=$OUT\n",
            outside.display(),
            repository().display()
        );
        script(mounted.dir(), &(prologue + text));
        unmount_and_compare(mounted);
    });
}

#[test]
fn git() {
    judge(
        &["git"],
        "256M",
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
         export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
         if git -C $REPO rev-parse --git-dir >/dev/null 2>&1; then
           git clone -q --depth 30 file://$REPO clone
         else
           git init -q clone; cp -r $REPO/crates clone/; git -C clone add .; git -C clone commit -qm all
         fi
         cd clone
         git fsck --full --strict 2>&1 | grep -v '^dangling' || true
         git gc -q --prune=now
         echo change >>file; git add file; git commit -qm change
         git checkout -q -b other HEAD~1; echo more >>third; git add third; git commit -qm third
         git merge -q -m merge @{-1}
         git repack -q -a -d; git fsck --full; test -z \"$(git status --porcelain)\"
         cd ..; git clone -q clone second; git -C second status --porcelain | wc -l | grep -qx 0",
    );
}

#[test]
fn tar_there_and_back() {
    judge(
        &["tar", "setfattr", "setfacl"],
        "256M",
        "mkdir tree; cd tree
         cp -r $REPO/crates/engine/extant/src src
         ln src/lib.rs hard; ln -s nowhere soft; mkfifo fifo; mknod null c 1 3; mknod disk b 7 0
         touch -d '2001-02-03 04:05:06.123456789' old; touch -h -d '1999-01-01' soft
         truncate -s 50M sparse; echo end >>sparse; chmod 4755 hard; chmod 1777 src; chown 12:34 old
         setfattr -n user.a -v b old; setfattr -n trusted.t -v 1 old
         setfacl -m u:5:rw,g:6:r old; setfacl -d -m u:7:rwx src
         cd ..
         tar --xattrs --acls --xattrs-include='*' -Scpf $OUT/a.tar tree
         mkdir again; tar --xattrs --acls --xattrs-include='*' -xpf $OUT/a.tar -C again
         tar --xattrs --acls --xattrs-include='*' --numeric-owner -df $OUT/a.tar -C again
         test $(du -k again/tree/sparse | cut -f1) -lt 1000
         rm -r tree; mv again/tree .; rmdir again",
    );
}

#[test]
fn rsync_both_ways() {
    judge(
        &["rsync", "setfattr", "setfacl"],
        "256M",
        "mkdir $OUT/tree; cp -r $REPO/crates/engine/extant/src $REPO/docs $OUT/tree/; cd $OUT/tree
         ln src/lib.rs hard; ln -s nowhere soft; mkfifo fifo; mknod null c 1 3
         chown 12:34 docs; chmod 2750 docs; touch -d '2001-02-03 04:05:06.123456789' hard
         cd - >/dev/null
         rsync -aHAX $OUT/tree/ there/
         setfattr -n user.a -v b there/hard; setfacl -m u:5:rw there/hard; echo more >>there/docs/new
         rsync -aHAX --delete there/ $OUT/back/
         test -z \"$(rsync -aHAXni --delete --checksum there/ $OUT/back/)\"
         test -z \"$(rsync -aHAXni --delete --checksum $OUT/back/ there/)\"
         rsync -a --inplace --append-verify $OUT/back/docs/ there/docs/",
    );
}

#[test]
fn a_c_build() {
    judge(
        &["gcc", "make"],
        "128M",
        "mkdir proj; cd proj
         for i in $(seq 40); do echo \"int f$i(int x){return x*$i+1;}\" >f$i.c; done
         { for i in $(seq 40); do echo \"int f$i(int);\"; done; echo '#include <stdio.h>'
           echo 'int main(void){int s=0;'; for i in $(seq 40); do echo \"s+=f$i($i);\"; done
           echo 'printf(\"%d\\n\",s);return 0;}'; } >main.c
         printf 'O=$(patsubst %%.c,%%.o,$(wildcard *.c))\\nprog: $(O)\\n\\tgcc -o $@ $(O)\\n%%.o: %%.c\\n\\tgcc -c -O1 $<\\n' >Makefile
         make -j4 >/dev/null; ./prog | grep -qx 22180
         touch f3.c; make 2>&1 | grep -c 'gcc -c' | grep -qx 1
         gcc -shared -fPIC -o libf.so f1.c f2.c; test -s libf.so; make -q",
    );
}

#[test]
fn sqlite() {
    judge(
        &["sqlite3"],
        "128M",
        "for mode in delete wal truncate; do
           sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(a integer primary key, b text);\" >/dev/null
           writer() { for i in $(seq 30); do
             sqlite3 -cmd '.timeout 20000' $mode.db \"begin immediate; insert into t(b) select hex(randomblob(50)) from
               (with recursive c(x) as (select 1 union all select x+1 from c limit 50) select x from c); commit;\"; done; }
           writer & writer & wait
           test \"$(sqlite3 $mode.db 'select count(*) from t')\" = 3000
           test \"$(sqlite3 $mode.db 'pragma integrity_check')\" = ok
           sqlite3 $mode.db 'delete from t where a%2; vacuum;'
           test \"$(sqlite3 $mode.db 'pragma integrity_check')\" = ok
         done",
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    let common = "--directory=. --size=24M --verify=crc32c --verify_fatal=1 --do_verify=1 --group_reporting --minimal";
    let text = format!(
        "fio --name=psync {common} --rw=randwrite --bs=4k --fsync=64 --ioengine=psync --numjobs=2 >/dev/null
         fio --name=mixed {common} --rw=randrw --bsrange=512-64k --ioengine=psync --norandommap=0 >/dev/null
         fio --name=direct {common} --rw=randwrite --bs=8k --direct=1 --ioengine=libaio --iodepth=8 >/dev/null
         fio --name=mapped {common} --rw=randwrite --bs=4k --ioengine=mmap >/dev/null
         fio --name=seq {common} --rw=write --bs=1M --fallocate=keep --end_fsync=1 >/dev/null"
    );
    judge(&["fio"], "512M", &text);
}

#[test]
fn stress_ng() {
    // In short, each test ends after some operations.
    let (seconds, ops) = if std::env::var_os("EXTANT_TORTURE").is_some() {
        (10, "")
    } else {
        (1, "--$s-ops 50")
    };
    // Four tests at a time, each in a separate folder and with separate checks. Tests that need something FUSE does not have are
    // left out.
    let text = format!(
        "one() {{
           s=$1; n=2; mkdir $s
           # Both processes of fcntl use the directory of the parent, and the first to end removes it.
           if [ $s = fcntl ]; then n=1; fi
           stress-ng --$s $n {ops} --timeout {seconds}s --temp-path $s --verify --oomable -q \
             --hdd-bytes 16M --iomix-bytes 16M --copy-file-bytes 128M --fallocate-bytes 16M --seek-size 8M --sync-file-bytes 16M \
             --readahead-bytes 16M --revio-bytes 16M >$OUT/log.$s 2>&1 || {{
             code=$?
             # 4: not implemented here; 2: there is no such stressor in this version.
             if [ $code != 4 ] && ! grep -q 'unrecognized\\|nvalid option' $OUT/log.$s; then
               echo \"$s: $code\"; cat $OUT/log.$s; exit 1
             fi; }}
         }}
         pids=
         for s in access chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap filename flock \
                  fstat getdent hdd inode-flags io iomix lease link locka lockf lockofd metamix mmap-fd open readahead \
                  rename revio rotate seal seek sendfile symlink sync-file touch truncate unlink utime xattr; do
           one $s & pids=\"$pids $!\"
           if [ $(echo $pids | wc -w) = 4 ]; then for p in $pids; do wait $p || exit 1; done; pids=; fi
         done
         for p in $pids; do wait $p || exit 1; done
         # A process that is ended leaves files, with their flags. After a change of the flags the kernel shows the ctime of before.
         chattr -R -ia inode-flags; rm -rf inode-flags"
    );
    judge(&["stress-ng"], "512M", &text);
}

#[test]
fn dbench() {
    judge(
        &["dbench"],
        "1G",
        "dbench -D . -t 4 -c /usr/share/dbench/client.txt 4 >$OUT/log 2>&1 || { tail -5 $OUT/log; exit 1; }
         grep -q '^Throughput' $OUT/log",
    );
}

/// Images of `extant mkfs` work as well, with every block and inode size, and without journal or extents.
#[test]
fn kinds_of_images() {
    over_one("kinds", |transport| {
        for args in [
            &["-b", "1024", "-I", "128"][..],
            &["-b", "2048", "-O", "^has_journal"],
            &["-t", "ext3"],
            &["-t", "ext2", "-b", "1024"],
            &["-O", "^metadata_csum,^64bit,uninit_bg"],
        ] {
            let place = place();
            let image = image(place.path(), "64M", args);
            let mounted = Mounted::new(&image, transport, &[]);
            script(
                mounted.dir(),
                "mkdir d; for i in $(seq 300); do echo $i >d/file$i; done; head -c 2000000 /dev/zero >big
                 truncate -s 20M sparse; echo x >>sparse; ln d/file1 hard; ln -s /x soft; rm d/file2??",
            );
            unmount_and_compare(mounted);
        }
    });
}

/// Copies that the kernel can make itself, and moves within a mount.
#[test]
fn coreutils() {
    judge(
        &["cp"],
        "128M",
        "cp -a $REPO/crates/engine/extant/src one; cp -a --reflink=auto one two; diff -r one two
         mv one three; test ! -e one; rm -r two; cp -al three four; find four -type f -links 2 | wc -l | grep -qvx 0
         dd if=/dev/urandom of=r bs=64k count=50 status=none; cp r s; cmp r s; shred -n1 -u s; test ! -e s
         split -b 100k r part.; cat part.* | cmp - r; install -m 600 r t; ln -sfn three link; ls link/ >/dev/null
         chmod -R go-rwx three; chown -R 7:8 three; find three -perm /077 | wc -l | grep -qx 0; du -s . >/dev/null
         mkdir -p $(printf 'deep/%.0s' $(seq 60)); rm -r deep; touch 'a b' \"$(printf 'x%.0s' $(seq 255))\"
         ! touch \"$(printf 'x%.0s' $(seq 256))\" 2>/dev/null; flock r true; sort -o t t; tac t >u; sync -f u",
    );
    // Two listings and two walks show the same names.
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        run(Command::new("cp")
            .arg("-a")
            .arg(repository().join("docs"))
            .arg(mounted.dir()));
        assert_eq!(describe(mounted.dir()), describe(mounted.dir()));
        mounted.unmount();
    });
}
