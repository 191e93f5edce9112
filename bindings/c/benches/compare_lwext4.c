/* The work of compare.c with lwext4, with its journal and its cache for writing: compare_lwext4 IMAGE. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <ext4.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compare.h"

#define MUST(what)                                                                                                     \
    do {                                                                                                               \
        long failed = (long)(what);                                                                                    \
        if (failed) {                                                                                                  \
            fprintf(stderr, "%s:%d: %s: %ld\n", __FILE__, __LINE__, #what, failed);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { SECTOR = 512 };
static const char *image;
static int fd = -1;

static int device_open(struct ext4_blockdev *device);
static int device_close(struct ext4_blockdev *device);

static int device_read(struct ext4_blockdev *device, void *buffer, uint64_t first, uint32_t count) {
    (void)device;
    size_t length = (size_t)count * SECTOR;
    return pread(fd, buffer, length, (off_t)(first * SECTOR)) == (ssize_t)length ? EOK : EIO;
}

static int device_write(struct ext4_blockdev *device, const void *buffer, uint64_t first, uint32_t count) {
    (void)device;
    size_t length = (size_t)count * SECTOR;
    return pwrite(fd, buffer, length, (off_t)(first * SECTOR)) == (ssize_t)length ? EOK : EIO;
}

EXT4_BLOCKDEV_STATIC_INSTANCE(device, SECTOR, 0, device_open, device_read, device_write, device_close, 0, 0);

static int device_open(struct ext4_blockdev *opened) {
    struct stat st;
    fd = open(image, O_RDWR);
    if (fd < 0 || fstat(fd, &st) != 0)
        return EIO;
    opened->part_offset = 0;
    opened->part_size = (uint64_t)st.st_size;
    opened->bdif->ph_bcnt = opened->part_size / SECTOR;
    return EOK;
}

static int device_close(struct ext4_blockdev *closed) {
    (void)closed;
    return close(fd) == 0 ? EOK : EIO;
}

static void attach(void) {
    MUST(ext4_mount("image", "/", false));
    int recovered = ext4_recover("/");
    MUST(recovered != EOK && recovered != ENOTSUP);
    MUST(ext4_journal_start("/"));
    MUST(ext4_cache_write_back("/", true));
}

static void detach(void) {
    MUST(ext4_cache_write_back("/", false));
    MUST(ext4_journal_stop("/"));
    MUST(ext4_umount("/"));
}

static void sync_all(void) {
    MUST(ext4_cache_flush("/"));
    MUST(fsync(fd));
}

int main(int count, char **arguments) {
    ext4_file file;
    char path[64];
    size_t done;
    if (count != 2)
        return 2;
    image = arguments[1];
    memset(piece, 7, sizeof piece);
    MUST(ext4_device_register(&device, "image"));
    attach();
    for (int n = 0; n < DIRS; n++) {
        snprintf(path, sizeof path, "/d%d", n);
        MUST(ext4_dir_mk(path));
    }
    step(NULL);
    for (int n = 0; n < FILES; n++) {
        snprintf(path, sizeof path, "/d%d/f%d", n % DIRS, n);
        MUST(ext4_fopen(&file, path, "wb"));
        MUST(ext4_fclose(&file));
    }
    sync_all();
    step("creates");
    MUST(ext4_fopen(&file, "/large", "wb"));
    for (int n = 0; n < PIECES; n++)
        MUST(ext4_fwrite(&file, piece, PIECE, &done) || done != PIECE);
    sync_all();
    step("writes");
    MUST(ext4_fclose(&file));
    detach();
    attach();
    MUST(ext4_fopen(&file, "/large", "rb"));
    step(NULL);
    for (int n = 0; n < PIECES; n++)
        MUST(ext4_fread(&file, piece, PIECE, &done) || done != PIECE);
    step("reads");
    MUST(ext4_fclose(&file));
    detach();
    return 0;
}
