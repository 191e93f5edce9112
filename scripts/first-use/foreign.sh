# Somebody with images of others: another tool's, one that was not closed, a damaged one, and no image at all.
. /first-use/words.sh
head -c 3000000 /dev/urandom >noise
right "truncate -s 32M a.img && mke2fs -q -t ext4 -d /etc a.img && extant ls a.img:/" passwd
worked "an image of mke2fs"
right "debugfs -w -R 'ssv state 2' a.img && extant info a.img" "State"
right "truncate -s 8M q.img && mke2fs -q -t ext4 -O quota q.img && extant ls q.img: " lost+found
wrong "extant touch q.img:/new" "quota"
right "truncate -s 8M i.img && mke2fs -q -t ext4 -O inline_data i.img && { extant ls i.img: || true; }" "inline_data\|lost+found"
wrong "extant ls noise:" "noise"
right "cp a.img cut.img && truncate -s 20M cut.img && { extant ls cut.img: 2>&1 || true; }" "cut.img\|passwd"
right "cp a.img bad.img && dd if=/dev/zero of=bad.img bs=4096 seek=40 count=200 conv=notrunc status=none; extant tree bad.img >/dev/null 2>err || true; head -2 err; echo the program is well" "the program is well"
wrong "extant cat a.img:/etc/passwd" "/etc"
right "extant export a.img:/ - >all.tar && tar tf all.tar" passwd
