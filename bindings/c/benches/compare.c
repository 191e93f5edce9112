/* 100,000 creates, and 1 GiB written and read, with libextant or with libext2fs. scripts/c-compare.sh runs both in turn, and
 * compare_lwext4.c.
 *   compare extant|ext2fs IMAGE      IMAGE: a new ext4 volume of at least 2 GiB; prints seconds of each step */
#define _GNU_SOURCE
#include <ext2fs/ext2fs.h>
#include <extant.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

#define MUST(what)                                                                                                     \
    do {                                                                                                               \
        long failed = (long)(what);                                                                                    \
        if (failed) {                                                                                                  \
            fprintf(stderr, "%s:%d: %s: %ld %s\n", __FILE__, __LINE__, #what, failed, extant_last_error());            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void by_extant(const char *image) {
    extant_volume *volume;
    extant_file *file;
    char path[64];
    MUST(extant_open(image, 0, &volume));
    for (int n = 0; n < DIRS; n++) {
        snprintf(path, sizeof path, "/d%d", n);
        MUST(extant_mkdir(volume, path, 0755));
    }
    step(NULL);
    for (int n = 0; n < FILES; n++) {
        snprintf(path, sizeof path, "/d%d/f%d", n % DIRS, n);
        MUST(extant_open_file(volume, path, O_WRONLY | O_CREAT, 0644, &file));
        extant_close_file(file);
    }
    MUST(extant_sync(volume));
    step("creates");
    MUST(extant_open_file(volume, "/large", O_RDWR | O_CREAT, 0644, &file));
    for (int n = 0; n < PIECES; n++)
        MUST(extant_pwrite(file, piece, PIECE, (uint64_t)n * PIECE) != PIECE);
    MUST(extant_fsync(file));
    step("writes");
    extant_close_file(file);
    MUST(extant_close(volume));
    MUST(extant_open(image, 0, &volume));
    MUST(extant_open_file(volume, "/large", O_RDONLY, 0, &file));
    step(NULL);
    for (int n = 0; n < PIECES; n++)
        MUST(extant_pread(file, piece, PIECE, (uint64_t)n * PIECE) != PIECE);
    step("reads");
    extant_close_file(file);
    MUST(extant_close(volume));
}

static ext2_ino_t create(ext2_filsys fs, ext2_ino_t dir, const char *name, struct ext2_inode *inode) {
    ext2_ino_t ino;
    ext2_extent_handle_t extents;
    MUST(ext2fs_new_inode(fs, dir, LINUX_S_IFREG | 0644, 0, &ino));
    memset(inode, 0, sizeof *inode);
    inode->i_mode = LINUX_S_IFREG | 0644;
    inode->i_links_count = 1;
    inode->i_flags = EXT4_EXTENTS_FL;
    MUST(ext2fs_extent_open2(fs, ino, inode, &extents));
    ext2fs_extent_free(extents);
    errcode_t failed = ext2fs_link(fs, dir, name, ino, EXT2_FT_REG_FILE);
    if (failed == EXT2_ET_DIR_NO_SPACE) {
        MUST(ext2fs_expand_dir(fs, dir));
        failed = ext2fs_link(fs, dir, name, ino, EXT2_FT_REG_FILE);
    }
    MUST(failed);
    ext2fs_inode_alloc_stats2(fs, ino, +1, 0);
    MUST(ext2fs_write_new_inode(fs, ino, inode));
    return ino;
}

static ext2_filsys opened(const char *image) {
    ext2_filsys fs;
    MUST(ext2fs_open(image, EXT2_FLAG_RW | EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs));
    MUST(ext2fs_read_bitmaps(fs));
    return fs;
}

static void by_ext2fs(const char *image) {
    ext2_filsys fs = opened(image);
    ext2_ino_t dirs[DIRS], large;
    struct ext2_inode inode;
    ext2_file_t file;
    unsigned done;
    char name[64];
    for (int n = 0; n < DIRS; n++) {
        snprintf(name, sizeof name, "d%d", n);
        MUST(ext2fs_mkdir(fs, EXT2_ROOT_INO, 0, name));
        MUST(ext2fs_namei(fs, EXT2_ROOT_INO, EXT2_ROOT_INO, name, &dirs[n]));
    }
    step(NULL);
    for (int n = 0; n < FILES; n++) {
        snprintf(name, sizeof name, "f%d", n);
        create(fs, dirs[n % DIRS], name, &inode);
    }
    MUST(ext2fs_flush(fs));
    step("creates");
    large = create(fs, EXT2_ROOT_INO, "large", &inode);
    MUST(ext2fs_file_open2(fs, large, &inode, EXT2_FILE_WRITE, &file));
    for (int n = 0; n < PIECES; n++)
        MUST(ext2fs_file_write(file, piece, PIECE, &done) || done != PIECE);
    MUST(ext2fs_file_close(file));
    MUST(ext2fs_flush(fs));
    step("writes");
    MUST(ext2fs_close(fs));
    fs = opened(image);
    MUST(ext2fs_file_open(fs, large, 0, &file));
    step(NULL);
    for (int n = 0; n < PIECES; n++)
        MUST(ext2fs_file_read(file, piece, PIECE, &done) || done != PIECE);
    step("reads");
    MUST(ext2fs_file_close(file));
    MUST(ext2fs_close(fs));
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    memset(piece, 7, sizeof piece);
    if (strcmp(arguments[1], "extant") == 0)
        by_extant(arguments[2]);
    else
        by_ext2fs(arguments[2]);
    return 0;
}
