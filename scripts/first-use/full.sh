# Somebody whose disk fills up while an image is written: the error says what is full, and the image is well. /small has 24 MB.
. /first-use/words.sh
head -c 8000000 /dev/urandom >/small/other
right "extant mkfs /small/disk.img --size 64M && extant df /small/disk.img" disk.img
head -c 40000000 /dev/urandom >big
wrong "extant cp big /small/disk.img:/big" "space"
worked "an error instead of a broken image"
right "rm /small/other"
right "extant ls /small/disk.img:" lost+found
right "echo small | extant cp - /small/disk.img:/small && extant cat /small/disk.img:/small" small
right "e2fsck -fn /small/disk.img" files
wrong "extant mkfs /small/other.img --from /usr/bin" "space"
