# Root in a job of CI, without FUSE: a root file system from an archive, the same bytes twice.
. /first-use/words.sh
mkdir -p layer/opt && echo app >layer/opt/app && tar cf app.tar -C layer .
right "tar cf base.tar -C / bin etc usr/share/doc/base-files && extant mkfs root.img --from base.tar --from app.tar --free 10%" "files"
right "extant cat root.img:/opt/app" app
worked "a root file system of two layers"
right "export SOURCE_DATE_EPOCH=1700000000; for i in a b; do extant mkfs \$i.img -U 6e4f9d2c-0b1a-4c55-9a70-2f8f3c1d5e77 --from base.tar; done; cmp a.img b.img && echo the same" "the same"
right "echo 127.0.0.1 localhost >hosts; extant cp hosts root.img:/etc/hosts && extant info --json root.img" '"'
right "extant rm -r root.img:/opt && extant tree root.img:/etc | tail -1" directories
wrong "extant mkfs new.img --from none.tar" "none.tar"
wrong "extant mount root.img /mnt" "/dev/fuse"
