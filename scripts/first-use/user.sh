# An ordinary user on Debian, who has the program and the packages fuse3 and uidmap.
. /first-use/words.sh
mkdir -p tree/etc && echo hello >tree/etc/motd
right "extant mkfs disk.img --from tree --size 64M" "1 file"
right "extant cat disk.img:/etc/motd" hello
worked "an image of a directory, and a file of it"
right "echo text | extant cp - disk.img:/new"
right "extant ls disk.img:/" new
right "mkdir mnt && extant mount disk.img mnt && echo more >mnt/etc/more && extant umount mnt"
right "extant cat disk.img:/etc/more" more
right "extant mkfs empty.img --size 16M && extant mount empty.img mnt && touch mnt/mine && extant umount mnt"
right "extant shell disk.img -- id -u" 0
right "extant export disk.img: - | tar t" etc/motd
right "extant doctor || true" "FUSE"
wrong "extant ls disk.img:etc" "disk.img:/etc"
wrong "extant mount disk.img nowhere" "nowhere"
wrong "extant cat disk.img:/none" "/none"
