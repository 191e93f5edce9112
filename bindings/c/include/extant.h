/* ext4 images in process: create, open, read and change them, without root and without the kernel's driver.
 *
 * Every function that can fail returns a negative errno, and 0 or a count otherwise. extant_last_error() says what went wrong in the
 * last call of the same thread that failed. Paths are of bytes other than NUL, from the root of the volume, with or without a leading '/'.
 *
 * Threads: a volume, a file and a device may be used by several threads at once, but closed by one, after all others are done with it.
 * A directory handle belongs to one thread at a time. Close files and directories before their volume.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef EXTANT_H
#define EXTANT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct extant_volume extant_volume;
typedef struct extant_file extant_file;
typedef struct extant_dir extant_dir;

struct extant_time {
    int64_t sec;   /* since 1970 */
    uint32_t nsec; /* below 1000000000 */
};

struct extant_stat {
    uint64_t size;   /* bytes */
    uint64_t blocks; /* of 512 bytes */
    uint32_t ino, mode, nlink, uid, gid, rdev;
    struct extant_time atime, mtime, ctime;
};

struct extant_dirent {
    uint32_t ino;
    uint32_t type;  /* the S_IFMT bits of st_mode */
    char name[256]; /* ends with NUL */
};

struct extant_counts {
    uint64_t files, directories, symlinks, specials, bytes;
};

/* What a new volume is like. Zero bytes (memset) mean the defaults, but for size. */
struct extant_create_options {
    uint64_t size;         /* bytes */
    uint32_t block_size;   /* 1024, 2048, 4096; 0: by the size */
    uint64_t journal_size; /* bytes; 0: by the size */
    const char *features;  /* as mke2fs -O takes them, or NULL */
    const char *label;     /* at most 16 bytes, or NULL */
};

/* A device of the caller's own. The functions return 0 or a negative errno, and are called by several threads at once. write and flush
 * may be NULL for a volume that is opened with EXTANT_READ_ONLY. */
struct extant_device {
    void *user;    /* first argument of each function */
    uint64_t size; /* bytes */
    int (*read)(void *user, uint64_t offset, void *buffer, size_t length);
    int (*write)(void *user, uint64_t offset, const void *buffer, size_t length);
    int (*flush)(void *user);
};

#define EXTANT_READ_ONLY 1u /* nothing is written; a journal is replayed in memory */

/* What went wrong in this thread's last call that failed; "" if none did. Valid until the next call of this thread. */
const char *extant_last_error(void);

int extant_create(const char *path, const struct extant_create_options *options, extant_volume **volume);
int extant_open(const char *path, unsigned flags, extant_volume **volume);
/* The device's fields are copied; user must stay valid until the volume is closed. */
int extant_open_device(const struct extant_device *device, unsigned flags, extant_volume **volume);
/* Makes everything durable and frees the volume, also when it fails. NULL is no error. */
int extant_close(extant_volume *volume);
/* Makes everything durable. */
int extant_sync(extant_volume *volume);

int extant_stat(extant_volume *volume, const char *path, struct extant_stat *st);
int extant_lstat(extant_volume *volume, const char *path, struct extant_stat *st);
int extant_mkdir(extant_volume *volume, const char *path, uint32_t mode);
int extant_rmdir(extant_volume *volume, const char *path);
int extant_unlink(extant_volume *volume, const char *path);
int extant_rename(extant_volume *volume, const char *from, const char *to);
int extant_link(extant_volume *volume, const char *from, const char *to);
int extant_symlink(extant_volume *volume, const char *target, const char *path);
/* Bytes of the target, of which at most size are stored, without a NUL. */
ssize_t extant_readlink(extant_volume *volume, const char *path, char *buffer, size_t size);
int extant_chmod(extant_volume *volume, const char *path, uint32_t mode);
/* UINT32_MAX leaves an owner as it is. */
int extant_chown(extant_volume *volume, const char *path, uint32_t uid, uint32_t gid);
int extant_truncate(extant_volume *volume, const char *path, uint64_t size);
/* NULL for now. */
int extant_utimens(extant_volume *volume, const char *path, const struct extant_time *atime, const struct extant_time *mtime);

/* Bytes of the value; with size 0 nothing is stored. -ERANGE if it does not fit. */
ssize_t extant_getxattr(extant_volume *volume, const char *path, const char *name, void *value, size_t size);
int extant_setxattr(extant_volume *volume, const char *path, const char *name, const void *value, size_t size);
int extant_removexattr(extant_volume *volume, const char *path, const char *name);
/* Names, each with a NUL behind it. */
ssize_t extant_listxattr(extant_volume *volume, const char *path, char *list, size_t size);

/* flags are those of open(2): O_RDONLY, O_WRONLY, O_RDWR with O_CREAT, O_EXCL, O_TRUNC. */
int extant_open_file(extant_volume *volume, const char *path, int flags, uint32_t mode, extant_file **file);
void extant_close_file(extant_file *file);
ssize_t extant_pread(extant_file *file, void *buffer, size_t length, uint64_t offset);
ssize_t extant_pwrite(extant_file *file, const void *buffer, size_t length, uint64_t offset);
int extant_fsync(extant_file *file);
int extant_ftruncate(extant_file *file, uint64_t size);
int extant_fstat(extant_file *file, struct extant_stat *st);

int extant_opendir(extant_volume *volume, const char *path, extant_dir **dir);
/* 1 and the next entry, without "." and ".."; 0 at the end. */
int extant_readdir(extant_dir *dir, struct extant_dirent *entry);
void extant_closedir(extant_dir *dir);

/* Copies a tree between host and volume, by several threads; `to` must not exist. progress may be NULL; it is called by one thread at a
 * time. */
int extant_copy_tree_in(extant_volume *volume, const char *from, const char *to,
                        void (*progress)(void *user, const struct extant_counts *done), void *user);
int extant_copy_tree_out(extant_volume *volume, const char *from, const char *to,
                         void (*progress)(void *user, const struct extant_counts *done), void *user);

/* Checks an image that nobody has open; the number of faults goes to faults. */
int extant_check(const char *path, uint64_t *faults);

#ifdef __cplusplus
}
#endif
#endif
