/* ext4 images in process: create, open, read and change them, without root and without the kernel's driver.
 *
 * Every function that can fail returns a negative errno, and 0 or a count otherwise. extant_last_error() returns the message of the last
 * failed call of the same thread, whatever its handle. Messages are not kept in handles, because threads that share a handle would wait for
 * each other there. Paths are bytes other than NUL, from the root of the volume, with or without a leading '/'. Sizes,
 * offsets and lengths are bytes. Strings and structures that a call receives are used only during the call.
 *
 * Threads. Each function has one of these letters:
 *   [T] may be called by any number of threads at once, also with the same handle.
 *   [H] may be called by any thread, but a handle belongs to one call at a time.
 *   [E] ends the handle: no other call may use the handle at the same time or later.
 * Close files and directories before their volume. After fork(2) the child may not use handles of its parent.
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

struct iovec; /* <sys/uio.h> */

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

struct extant_statfs {
    uint64_t blocks, free_blocks, available_blocks, inodes, free_inodes;
    uint32_t block_size; /* bytes */
    uint32_t name_max;   /* bytes */
    uint8_t uuid[16];
};

struct extant_dirent {
    uint32_t ino;
    uint32_t type;  /* the S_IFMT bits of st_mode */
    char name[256]; /* ends with NUL */
};

struct extant_direntplus {
    struct extant_dirent entry;
    struct extant_stat st; /* of the entry itself: a symbolic link is not followed */
};

struct extant_counts {
    uint64_t files, directories, symlinks, specials, bytes;
};

/* Options of a new volume. Zero bytes (memset) are the defaults, except that size or source must be set. */
struct extant_create_options {
    uint64_t size;         /* bytes; 0: as the source needs */
    uint32_t block_size;   /* 1024, 2048, 4096; 0: by the size */
    uint64_t journal_size; /* bytes; 0: by the size */
    const char *features;  /* as mke2fs -O takes them, or NULL */
    const char *label;     /* at most 16 bytes, or NULL */
    const char *source;    /* directory or archive that fills the volume, or NULL */
};

/* A device of the caller's. The functions return 0 or a negative errno, and are called by several threads at once. write and flush
 * may be NULL for a volume that is opened with EXTANT_READ_ONLY. */
struct extant_device {
    void *user;    /* first argument of each function */
    uint64_t size; /* bytes */
    int (*read)(void *user, uint64_t offset, void *buffer, size_t length);
    int (*write)(void *user, uint64_t offset, const void *buffer, size_t length);
    int (*flush)(void *user);
};

#define EXTANT_READ_ONLY 1u /* nothing is written; a journal is replayed in memory */

/* [T] Version of the library, such as "0.1.0". */
const char *extant_version(void);
/* [T] Message of the last failed call of this thread; "" if no call failed. Valid until the next call of this thread. */
const char *extant_last_error(void);

/* [T] Makes a file with a new volume, and opens the volume for writing. */
int extant_create(const char *path, const struct extant_create_options *options, extant_volume **volume);
/* [T] Opens a file or block device; flags: 0 or EXTANT_READ_ONLY. -EBUSY if another process has it open for writing. */
int extant_open(const char *path, unsigned flags, extant_volume **volume);
/* [T] Opens a device of the caller's; flags: as of extant_open. The fields are copied; user must stay valid until the volume is closed. */
int extant_open_device(const struct extant_device *device, unsigned flags, extant_volume **volume);
/* [E] Makes everything durable and frees the volume, also if it fails. NULL is allowed. */
int extant_close(extant_volume *volume);
/* [T] Makes everything durable. */
int extant_sync(extant_volume *volume);
/* [T] Returns 0 if the volume takes changes. Otherwise returns the length of the reason, such as the damage that stopped the volume or
 * EXTANT_READ_ONLY, and stores what fits of it in size bytes, with a NUL. The reason is that of the volume: another thread's call may have met it. */
ssize_t extant_read_only(extant_volume *volume, char *buffer, size_t size);
/* [T] Space and inodes. */
int extant_statfs(extant_volume *volume, struct extant_statfs *st);
/* [T] Grows an open volume to size bytes, or with 0 to the end of its device; *grown (or NULL) receives the new size. */
int extant_grow(extant_volume *volume, uint64_t size, uint64_t *grown);

/* [T] Attributes of a path. */
int extant_stat(extant_volume *volume, const char *path, struct extant_stat *st);
/* [T] As extant_stat, but a symbolic link is not followed. */
int extant_lstat(extant_volume *volume, const char *path, struct extant_stat *st);
/* [T] */
int extant_mkdir(extant_volume *volume, const char *path, uint32_t mode);
/* [T] mode has a type of mknod(2): S_IFREG or none, S_IFIFO, S_IFSOCK, S_IFCHR or S_IFBLK; rdev is a device number as of makedev(3). */
int extant_mknod(extant_volume *volume, const char *path, uint32_t mode, uint32_t rdev);
/* [T] -ENOTEMPTY if the directory has entries. */
int extant_rmdir(extant_volume *volume, const char *path);
/* [T] -EISDIR for a directory. */
int extant_unlink(extant_volume *volume, const char *path);
/* [T] Replaces a file of the new name in one step, as rename(2). */
int extant_rename(extant_volume *volume, const char *from, const char *to);
/* [T] */
int extant_link(extant_volume *volume, const char *from, const char *to);
/* [T] */
int extant_symlink(extant_volume *volume, const char *target, const char *path);
/* [T] Returns the length of the target, of which at most size bytes are stored, without a NUL. */
ssize_t extant_readlink(extant_volume *volume, const char *path, char *buffer, size_t size);
/* [T] Stores the absolute path of a file, without symbolic links, "." and "..", as realpath(3). Returns its length; at most `size` bytes
 * are stored, without a NUL. */
ssize_t extant_realpath(extant_volume *volume, const char *path, char *buffer, size_t size);
/* [T] */
int extant_chmod(extant_volume *volume, const char *path, uint32_t mode);
/* [T] UINT32_MAX leaves an owner unchanged. */
int extant_chown(extant_volume *volume, const char *path, uint32_t uid, uint32_t gid);
/* [T] */
int extant_truncate(extant_volume *volume, const char *path, uint64_t size);
/* [T] NULL is the present time; -EINVAL for 1000000000 or more nanoseconds. */
int extant_utimens(extant_volume *volume, const char *path, const struct extant_time *atime, const struct extant_time *mtime);

/* The attributes of a symbolic link are its own, as those of lgetxattr(2): the link is not followed. */

/* [T] Returns the length of the value; with size 0 nothing is stored. -ERANGE if the value does not fit. */
ssize_t extant_getxattr(extant_volume *volume, const char *path, const char *name, void *value, size_t size);
/* [T] */
int extant_setxattr(extant_volume *volume, const char *path, const char *name, const void *value, size_t size);
/* [T] */
int extant_removexattr(extant_volume *volume, const char *path, const char *name);
/* [T] Stores the names, each followed by a NUL; otherwise as extant_getxattr. */
ssize_t extant_listxattr(extant_volume *volume, const char *path, char *list, size_t size);

/* [T] flags are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY and O_NOFOLLOW.
 * With O_APPEND each write goes to the end of the file in one step, whatever its offset. With O_DIRECTORY the path must be a directory
 * (-ENOTDIR); directories are opened with O_RDONLY, also without that flag, for extant_fstat and extant_fsync. O_CLOEXEC, O_LARGEFILE,
 * O_NOCTTY and O_NONBLOCK have no effect. Other flags, such as O_SYNC, and O_WRONLY | O_RDWR are -EINVAL. */
int extant_open_file(extant_volume *volume, const char *path, int flags, uint32_t mode, extant_file **file);
/* [E] NULL is allowed. */
void extant_close_file(extant_file *file);
/* [T] Returns fewer bytes than length only at the end of the file. The rest of the buffer is not written. */
ssize_t extant_pread(extant_file *file, void *buffer, size_t length, uint64_t offset);
/* [T] Writes all bytes, or fails. A file that was opened with O_APPEND ignores offset. */
ssize_t extant_pwrite(extant_file *file, const void *buffer, size_t length, uint64_t offset);
/* [T] As extant_pread, into count buffers in turn. */
ssize_t extant_preadv(extant_file *file, const struct iovec *vectors, size_t count, uint64_t offset);
/* [T] As extant_pwrite, from count buffers in turn; with O_APPEND as one write. */
ssize_t extant_pwritev(extant_file *file, const struct iovec *vectors, size_t count, uint64_t offset);
/* [T] Makes data and attributes durable. */
int extant_fsync(extant_file *file);
/* [T] Makes data durable, and of the attributes those that lead to them. */
int extant_fdatasync(extant_file *file);
/* [T] */
int extant_ftruncate(extant_file *file, uint64_t size);
/* [T] */
int extant_fstat(extant_file *file, struct extant_stat *st);
/* [T] mode is that of fallocate(2): 0, or flags FALLOC_FL_* of <linux/falloc.h>; -EOPNOTSUPP for others. */
int extant_fallocate(extant_file *file, int mode, uint64_t offset, uint64_t length);
/* [T] Returns the offset of the next data (SEEK_DATA) or hole (SEEK_HOLE) at or after offset; the end of the file is a hole. -ENXIO if no data
 * follow, or if offset is at or behind the end. Nothing is moved: a file has no offset of its own. <unistd.h> has both constants if _GNU_SOURCE
 * is defined. */
int64_t extant_lseek(extant_file *file, uint64_t offset, int whence);
/* [T] */
int extant_fchmod(extant_file *file, uint32_t mode);
/* [T] UINT32_MAX leaves an owner unchanged. */
int extant_fchown(extant_file *file, uint32_t uid, uint32_t gid);
/* [T] As extant_utimens. */
int extant_futimens(extant_file *file, const struct extant_time *atime, const struct extant_time *mtime);
/* [T] As extant_getxattr. */
ssize_t extant_fgetxattr(extant_file *file, const char *name, void *value, size_t size);
/* [T] */
int extant_fsetxattr(extant_file *file, const char *name, const void *value, size_t size);
/* [T] */
int extant_fremovexattr(extant_file *file, const char *name);
/* [T] As extant_listxattr. */
ssize_t extant_flistxattr(extant_file *file, char *list, size_t size);

/* [T] Opens a directory, to list its names and to start paths there. The names are read when the first of them is asked for. */
int extant_opendir(extant_volume *volume, const char *path, extant_dir **dir);
/* [H] Returns 1 and the next entry, without "." and ".."; 0 at the end. */
int extant_readdir(extant_dir *dir, struct extant_dirent *entry);
/* [H] Stores up to count entries with their attributes; returns the number of entries, 0 at the end. */
ssize_t extant_readdirplus(extant_dir *dir, struct extant_direntplus *entries, size_t count);
/* [H] Starts the list again; it then has the names that exist at the time of the next extant_readdir. */
int extant_rewinddir(extant_dir *dir);
/* [E] NULL is allowed. */
void extant_closedir(extant_dir *dir);

/* Paths that start at an open directory, as those of openat(2), so that a directory is found once, and stays the same when it is moved. "." is
 * the directory itself. A path with a leading '/' starts at the root of the volume. These functions do not touch the list of names: threads
 * may use a directory here while one of them lists it. <fcntl.h> has the flags AT_*; those that a function does not name are -EINVAL. */

/* [T] As extant_open_file. */
int extant_openat(extant_dir *dir, const char *path, int flags, uint32_t mode, extant_file **file);
/* [T] As extant_opendir. */
int extant_opendirat(extant_dir *dir, const char *path, extant_dir **opened);
/* [T] flags: 0 or AT_SYMLINK_NOFOLLOW. */
int extant_fstatat(extant_dir *dir, const char *path, struct extant_stat *st, int flags);
/* [T] */
int extant_mkdirat(extant_dir *dir, const char *path, uint32_t mode);
/* [T] As extant_mknod. */
int extant_mknodat(extant_dir *dir, const char *path, uint32_t mode, uint32_t rdev);
/* [T] flags: 0, or AT_REMOVEDIR for an empty directory. */
int extant_unlinkat(extant_dir *dir, const char *path, int flags);
/* [T] flags: 0, EXTANT_NOREPLACE or EXTANT_EXCHANGE. */
int extant_renameat(extant_dir *from_dir, const char *from, extant_dir *to_dir, const char *to, unsigned flags);
#define EXTANT_NOREPLACE 1u /* -EEXIST if the new name exists */
#define EXTANT_EXCHANGE 2u  /* both names exist, and change places in one step */
/* [T] A symbolic link at `from` is not followed. */
int extant_linkat(extant_dir *from_dir, const char *from, extant_dir *to_dir, const char *to);
/* [T] */
int extant_symlinkat(const char *target, extant_dir *dir, const char *path);
/* [T] As extant_readlink. */
ssize_t extant_readlinkat(extant_dir *dir, const char *path, char *buffer, size_t size);
/* [T] As extant_realpath. */
ssize_t extant_realpathat(extant_dir *dir, const char *path, char *buffer, size_t size);
/* [T] A symbolic link is followed. */
int extant_fchmodat(extant_dir *dir, const char *path, uint32_t mode);
/* [T] As extant_chown; flags: 0 or AT_SYMLINK_NOFOLLOW. */
int extant_fchownat(extant_dir *dir, const char *path, uint32_t uid, uint32_t gid, int flags);
/* [T] As extant_utimens; flags: 0 or AT_SYMLINK_NOFOLLOW. */
int extant_utimensat(extant_dir *dir, const char *path, const struct extant_time *atime, const struct extant_time *mtime, int flags);

/* Operations of extant_submit: path is the object unless a comment says otherwise. */
enum extant_op_code {
    EXTANT_OP_MKDIR = 1, /* mode */
    EXTANT_OP_RMDIR = 2,
    EXTANT_OP_UNLINK = 3,
    EXTANT_OP_RENAME = 4,      /* target: the new name */
    EXTANT_OP_LINK = 5,        /* target: the new name */
    EXTANT_OP_SYMLINK = 6,     /* target: where the link leads */
    EXTANT_OP_CHMOD = 7,       /* mode */
    EXTANT_OP_CHOWN = 8,       /* uid, gid */
    EXTANT_OP_TRUNCATE = 9,    /* length: the new size */
    EXTANT_OP_STAT = 10,       /* st */
    EXTANT_OP_LSTAT = 11,      /* st */
    EXTANT_OP_WRITE_FILE = 12, /* mode, buffer, length: creates or truncates the file, and writes it */
    EXTANT_OP_READ_FILE = 13,  /* buffer, length, offset */
    EXTANT_OP_PREAD = 14,      /* file instead of path; buffer, length, offset */
    EXTANT_OP_PWRITE = 15,     /* file instead of path; buffer, length, offset */
    EXTANT_OP_FSYNC = 16       /* file instead of path */
};

/* One operation. Fields that its code does not name are ignored. */
struct extant_op {
    uint32_t code; /* enum extant_op_code */
    uint32_t mode, uid, gid;
    const char *path;
    const char *target;
    extant_file *file;
    void *buffer;
    uint64_t length, offset;
    struct extant_stat *st;
    int64_t result; /* set: 0, a count of bytes, or a negative errno */
};

/* [T] Runs count operations, by `threads` threads (0: one for each CPU), and stores the result of each. Returns the number of failed
 * operations. With one thread the operations run in the order of the array; with more, their order is undefined. Operations before a failed
 * one stay done. Any thread may use the pointers of the operations during the call. */
ssize_t extant_submit(extant_volume *volume, struct extant_op *ops, size_t count, unsigned threads);

/* Progress of a copy; one thread calls the function at a time. A result other than 0 ends the copy with -EINTR. */
typedef int (*extant_progress)(void *user, const struct extant_counts *done);

/* [T] Copies a directory of the host into the volume, by several threads; `to` must not exist. progress may be NULL. */
int extant_copy_tree_in(extant_volume *volume, const char *from, const char *to, extant_progress progress, void *user);
/* [T] Copies a directory of the volume to the host, likewise. */
int extant_copy_tree_out(extant_volume *volume, const char *from, const char *to, extant_progress progress, void *user);
/* [T] Extracts an archive of the host (tar, cpio or SquashFS, plain or compressed) into directory `to`, which is made if it does not exist.
 * Directories are merged, and files of the same name are replaced. */
int extant_import(extant_volume *volume, const char *archive, const char *to, extant_progress progress, void *user);

/* Takes the next bytes of an archive. A result other than 0, an errno of either sign, ends the export with that error. */
typedef int (*extant_output)(void *user, const void *bytes, size_t length);

/* [T] Writes the contents of directory `from`, or one file, as an archive. format is "tar", "tar.gz", "tar.zst", "cpio", "cpio.gz" or
 * "cpio.zst"; NULL is "tar". Several threads read; the calling thread calls output, and not again after a failure. The
 * bytes do not depend on the number of threads. output and progress, which may be NULL, receive the same user. */
int extant_export(extant_volume *volume, const char *from, const char *format, extant_output output, extant_progress progress, void *user);

/* The following functions take closed images: files or block devices that no process has open for writing. They plan a change in memory and
 * check the result before they write. A change that is interrupted is taken back by the next one. undo is a new file that keeps the old
 * bytes for `extant undo`, or NULL. Structures for results may be NULL. Flags that a function does not name are -EINVAL. */

#define EXTANT_SAFE_ONLY 1u /* extant_repair: no change that loses anything */
#define EXTANT_DRY_RUN 2u   /* only plan; nothing is written */

struct extant_finding {
    const char *rule; /* name of the broken rule, such as "link-count" */
    const char *text; /* place and detail */
    uint64_t block;   /* 0: none */
    uint32_t inode;   /* 0: none */
    uint32_t group;   /* UINT32_MAX: none */
};

struct extant_repair_result {
    uint64_t mends, declined, faults_before, faults_after;
};

struct extant_resize_result {
    uint64_t old_blocks, new_blocks, moved_blocks;
    uint64_t bytes; /* new size */
    uint32_t block_size;
};

/* Properties to change. Zero bytes (memset) leave everything unchanged. */
struct extant_tune_options {
    const char *features;           /* as tune2fs -O: "name,^name" */
    const char *label;              /* at most 16 bytes */
    const char *quota;              /* as tune2fs -Q: "usrquota,^prjquota" */
    const char *mount_options;      /* as tune2fs -o */
    const uint8_t *uuid;            /* 16 bytes */
    const double *reserved_percent; /* 0 to 50 */
    uint64_t journal_size;          /* bytes, a multiple of 1 MiB: replaces or adds the journal */
};

/* [T] Checks an image; the number of faults goes to faults. on_finding may be NULL; it is called by the calling thread. */
int extant_check(const char *path, void (*on_finding)(void *user, const struct extant_finding *finding), void *user, uint64_t *faults);
/* [T] Repairs an image; flags: EXTANT_SAFE_ONLY, EXTANT_DRY_RUN. */
int extant_repair(const char *path, unsigned flags, const char *undo, struct extant_repair_result *result);
/* [T] Grows or shrinks an image to size bytes, or with 0 to the least size that its files fit in; flags: EXTANT_DRY_RUN. */
int extant_resize(const char *path, uint64_t size, unsigned flags, const char *undo, struct extant_resize_result *result);
/* [T] Changes properties of an image; flags: EXTANT_DRY_RUN. The number of changes goes to changes. */
int extant_tune(const char *path, const struct extant_tune_options *options, unsigned flags, const char *undo, uint64_t *changes);

#ifdef __cplusplus
}
#endif
#endif
