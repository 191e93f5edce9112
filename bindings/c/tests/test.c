/* The library as C programs use it. The argument is a directory for images. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "extant.h"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, extant_last_error());                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char image[4096];

static extant_volume *made(void) {
    struct extant_create_options options;
    extant_volume *volume = NULL;
    memset(&options, 0, sizeof options);
    options.size = 64u << 20;
    options.label = "box";
    CHECK(extant_create(image, &options, &volume) == 0);
    return volume;
}

static void files(void) {
    extant_volume *volume = made();
    extant_file *file = NULL;
    struct extant_stat st;
    char buffer[64];
    CHECK(extant_mkdir(volume, "/d", 0750) == 0);
    CHECK(extant_mkdir(volume, "/d", 0750) == -EEXIST);
    CHECK(strstr(extant_last_error(), "exists") != NULL);
    CHECK(extant_open_file(volume, "/d/f", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == 0);
    CHECK(extant_pwrite(file, "0123456789", 10, 100000) == 10);
    CHECK(extant_pread(file, buffer, sizeof buffer, 100003) == 7 && memcmp(buffer, "3456789", 7) == 0);
    CHECK(extant_pread(file, buffer, sizeof buffer, 200000) == 0);
    memset(buffer, 'x', sizeof buffer);
    CHECK(extant_pread(file, buffer, sizeof buffer, 100003) == 7 && buffer[7] == 'x' && buffer[63] == 'x');
    CHECK(extant_pread(file, buffer, 4, 0) == 4 && memcmp(buffer, "\0\0\0\0", 4) == 0);
    CHECK(extant_fsync(file) == 0);
    CHECK(extant_fstat(file, &st) == 0 && st.size == 100010 && st.mode == (S_IFREG | 0640));
    CHECK(extant_ftruncate(file, 5) == 0);
    extant_close_file(file);
    CHECK(extant_symlink(volume, "d/f", "/l") == 0);
    CHECK(extant_realpath(volume, "/./l", buffer, sizeof buffer) == 4 && memcmp(buffer, "/d/f", 4) == 0);
    CHECK(extant_realpath(volume, "/l", buffer, 2) == 4 && extant_realpath(volume, "/none", buffer, 2) == -ENOENT);
    CHECK(extant_readlink(volume, "/l", buffer, 2) == 3 && memcmp(buffer, "d/", 2) == 0);
    CHECK(extant_link(volume, "/d/f", "/second") == 0 && extant_rename(volume, "/second", "/moved") == 0);
    CHECK(extant_stat(volume, "/l", &st) == 0 && st.nlink == 2 && st.size == 5);
    CHECK(extant_lstat(volume, "/l", &st) == 0 && S_ISLNK(st.mode));
    CHECK(extant_chmod(volume, "/moved", 0600) == 0 && extant_chown(volume, "/moved", 1000, UINT32_MAX) == 0);
    struct extant_time time = {1000000000, 7};
    CHECK(extant_utimens(volume, "/moved", &time, NULL) == 0);
    struct extant_time late = {1, 1000000000};
    CHECK(extant_utimens(volume, "/moved", &late, NULL) == -EINVAL && extant_utimens(volume, "/moved", NULL, &late) == -EINVAL);
    CHECK(extant_stat(volume, "/d/f", &st) == 0 && st.uid == 1000 && st.gid == 0 && st.atime.nsec == 7);
    CHECK(extant_setxattr(volume, "/moved", "user.note", "value", 5) == 0);
    CHECK(extant_getxattr(volume, "/moved", "user.note", NULL, 0) == 5);
    CHECK(extant_getxattr(volume, "/moved", "user.note", buffer, 3) == -ERANGE);
    CHECK(extant_getxattr(volume, "/moved", "user.note", buffer, sizeof buffer) == 5);
    CHECK(extant_listxattr(volume, "/moved", buffer, sizeof buffer) == 10 && strcmp(buffer, "user.note") == 0);
    CHECK(extant_removexattr(volume, "/moved", "user.note") == 0);
    CHECK(extant_unlink(volume, "/none") == -ENOENT && extant_rmdir(volume, "/d") == -ENOTEMPTY);
    CHECK(extant_stat(NULL, "/", &st) == -EINVAL && extant_stat(volume, NULL, &st) == -EINVAL);
    extant_dir *dir = NULL;
    struct extant_dirent entry;
    int names = 0;
    CHECK(extant_opendir(volume, "/", &dir) == 0);
    while (extant_readdir(dir, &entry) == 1)
        names++;
    CHECK(names == 4); /* lost+found, d, l, moved */
    extant_closedir(dir);
    CHECK(extant_sync(volume) == 0 && extant_close(volume) == 0 && extant_close(NULL) == 0);
    uint64_t faults = 1;
    CHECK(extant_check(image, NULL, NULL, &faults) == 0 && faults == 0);
    CHECK(strcmp(extant_version(), "0.1.0") == 0);
    CHECK(extant_open("/nonexistent/image", 0, &volume) == -ENOENT);
    CHECK(extant_open(image, EXTANT_READ_ONLY << 3, &volume) == -EINVAL);
    struct extant_create_options none;
    memset(&none, 0, sizeof none);
    char other[sizeof image + 6];
    snprintf(other, sizeof other, "%s.other", image);
    CHECK(extant_create(other, &none, &volume) == -EINVAL);
    none.source = "/nonexistent/tree";
    CHECK(extant_create(other, &none, &volume) == -ENOENT);
    CHECK(access(other, F_OK) == -1);
}

static int opened(extant_volume *volume, const char *path, int flags) {
    extant_file *file = NULL;
    int done = extant_open_file(volume, path, flags, 0600, &file);
    CHECK((done == 0) == (file != NULL));
    extant_close_file(file);
    return done;
}

/* The flags of open(2). */
static void open_flags(void) {
    extant_volume *volume = made();
    extant_file *file = NULL, *other = NULL;
    struct extant_stat st;
    char buffer[16] = "";
    CHECK(extant_mkdir(volume, "/d", 0755) == 0 && extant_symlink(volume, "f", "/link") == 0);
    CHECK(extant_open_file(volume, "/f", O_RDWR | O_CREAT | O_APPEND, 0600, &file) == 0);
    CHECK(extant_open_file(volume, "/f", O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0, &other) == 0);
    CHECK(extant_pwrite(file, "one ", 4, 0) == 4 && extant_pwrite(other, "two ", 4, 0) == 4);
    struct iovec vectors[] = {{"th", 2}, {"ree", 3}};
    CHECK(extant_pwritev(file, vectors, 2, 1000) == 5);
    CHECK(extant_pread(file, buffer, sizeof buffer, 0) == 13 && memcmp(buffer, "one two three", 13) == 0);
    CHECK(extant_pread(other, buffer, 1, 0) == -EBADF);
    extant_close_file(file);
    extant_close_file(other);
    CHECK(extant_open_file(volume, "/f", O_RDONLY | O_APPEND, 0, &file) == 0 && extant_pwrite(file, "x", 1, 0) == -EBADF);
    extant_close_file(file);

    CHECK(opened(volume, "/f", O_ACCMODE) == -EINVAL && strstr(extant_last_error(), "O_RDWR") != NULL);
    CHECK(opened(volume, "/new", O_ACCMODE | O_CREAT) == -EINVAL && opened(volume, "/f", O_ACCMODE | O_TRUNC) == -EINVAL);
    CHECK(opened(volume, "/f", O_RDWR | O_SYNC) == -EINVAL && strstr(extant_last_error(), "extant_fsync") != NULL);
    CHECK(opened(volume, "/f", O_RDWR | O_DSYNC) == -EINVAL);
    CHECK(opened(volume, "/f", O_RDONLY | 1 << 30) == -EINVAL && strstr(extant_last_error(), "010000000000") != NULL);
    CHECK(opened(volume, "/f", O_RDONLY | INT_MIN) == -EINVAL);
    CHECK(opened(volume, "/new", O_RDWR | O_CREAT | 1 << 29) == -EINVAL && extant_stat(volume, "/new", &st) == -ENOENT);

    CHECK(opened(volume, "/d", O_RDONLY | O_DIRECTORY) == 0 && opened(volume, "/d", O_RDONLY) == 0);
    CHECK(opened(volume, "/d", O_RDWR | O_DIRECTORY) == -EISDIR && opened(volume, "/d", O_RDWR) == -EISDIR);
    CHECK(opened(volume, "/f", O_RDONLY | O_DIRECTORY) == -ENOTDIR && opened(volume, "/link", O_DIRECTORY) == -ENOTDIR);
    CHECK(opened(volume, "/f", O_RDWR | O_DIRECTORY | O_TRUNC) == -ENOTDIR);
    CHECK(opened(volume, "/f", O_RDONLY | O_DIRECTORY | O_TRUNC) == -ENOTDIR);
    CHECK(extant_stat(volume, "/f", &st) == 0 && st.size == 13);
    CHECK(opened(volume, "/new", O_RDONLY | O_DIRECTORY | O_CREAT) == -EINVAL && extant_stat(volume, "/new", &st) == -ENOENT);
    CHECK(opened(volume, "/link", O_RDONLY) == 0 && opened(volume, "/link", O_RDONLY | O_NOFOLLOW) == -ELOOP);
    CHECK(extant_open_file(volume, "/d", O_RDONLY | O_DIRECTORY, 0, &file) == 0 && extant_fsync(file) == 0);
    CHECK(extant_fstat(file, &st) == 0 && S_ISDIR(st.mode) && extant_pread(file, buffer, 1, 0) == -EISDIR);
    extant_close_file(file);
    CHECK(extant_close(volume) == 0);
}

/* Paths from open directories. */
static void directories(void) {
    extant_volume *volume = made();
    extant_dir *a = NULL, *b = NULL, *root = NULL;
    extant_file *file = NULL;
    struct extant_stat st;
    struct extant_dirent entry;
    char buffer[16];
    CHECK(extant_opendir(volume, "/", &root) == 0 && extant_mkdirat(root, "a", 0755) == 0 && extant_mkdirat(root, "b", 0700) == 0);
    CHECK(extant_opendirat(root, "a", &a) == 0 && extant_opendir(volume, "/b", &b) == 0);
    CHECK(extant_opendirat(root, "none", &a) == -ENOENT && extant_opendirat(NULL, "a", &a) == -EINVAL);
    CHECK(extant_openat(a, "f", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == 0 && extant_pwrite(file, "text", 4, 0) == 4);
    CHECK(extant_opendirat(a, "f", &root) == -ENOTDIR);
    extant_close_file(file);
    /* A directory that moves stays the same. */
    CHECK(extant_renameat(root, "a", b, "inside", 0) == 0 && extant_fstatat(a, "f", &st, 0) == 0 && st.size == 4);
    CHECK(extant_fstatat(a, "..", &st, 0) == 0 && extant_fstatat(b, ".", &st, 0) == 0 && st.mode == (S_IFDIR | 0700));
    CHECK(extant_symlinkat("f", a, "link") == 0 && extant_readlinkat(a, "link", buffer, sizeof buffer) == 1 && buffer[0] == 'f');
    CHECK(extant_realpathat(a, "link", buffer, sizeof buffer) == 11 && memcmp(buffer, "/b/inside/f", 11) == 0);
    CHECK(extant_fstatat(a, "link", &st, 0) == 0 && S_ISREG(st.mode));
    CHECK(extant_fstatat(a, "link", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.mode));
    CHECK(extant_fstatat(a, "link", &st, 1 << 20) == -EINVAL && extant_unlinkat(a, "link", AT_SYMLINK_NOFOLLOW) == -EINVAL);
    CHECK(extant_fchownat(a, "link", 7, UINT32_MAX, AT_SYMLINK_NOFOLLOW) == 0 && extant_fchownat(a, "link", 8, 9, 0) == 0);
    CHECK(extant_fstatat(a, "link", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.uid == 7 && st.gid == 0);
    CHECK(extant_fstatat(a, "f", &st, 0) == 0 && st.uid == 8 && st.gid == 9);
    struct extant_time time = {1000000000, 7};
    CHECK(extant_utimensat(a, "link", &time, &time, AT_SYMLINK_NOFOLLOW) == 0 && extant_fchmodat(a, "link", 0600) == 0);
    CHECK(extant_fstatat(a, "f", &st, 0) == 0 && st.mode == (S_IFREG | 0600) && st.mtime.sec != 1000000000);
    CHECK(extant_linkat(a, "f", b, "second") == 0 && extant_fstatat(b, "second", &st, 0) == 0 && st.nlink == 2);
    CHECK(extant_renameat(a, "f", b, "second", EXTANT_NOREPLACE) == -EEXIST);
    CHECK(extant_renameat(a, "link", b, "second", EXTANT_EXCHANGE) == 0);
    CHECK(extant_fstatat(b, "second", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.mode));
    CHECK(extant_renameat(a, "f", b, "x", EXTANT_EXCHANGE | EXTANT_NOREPLACE) == -EINVAL);
    CHECK(extant_renameat(a, "f", b, "x", 4) == -EINVAL && extant_renameat(NULL, "f", b, "x", 0) == -EINVAL);
    CHECK(extant_mknodat(a, "null", S_IFCHR | 0666, 0x103) == 0 && extant_fstatat(a, "null", &st, 0) == 0 && st.rdev == 0x103);
    CHECK(extant_mknod(volume, "/plain", 0600, 0) == 0 && extant_stat(volume, "/plain", &st) == 0 && st.mode == (S_IFREG | 0600));
    CHECK(extant_mknod(volume, "/plain", S_IFIFO, 0) == -EEXIST && extant_mknod(volume, "/x", S_IFDIR, 0) < 0);
    CHECK(extant_mknod(volume, "/x", 1u << 20, 0) == -EINVAL);
    CHECK(extant_unlinkat(b, "inside", AT_REMOVEDIR) == -ENOTEMPTY && extant_unlinkat(b, "inside", 0) == -EISDIR);
    /* The list begins with the first name that is asked for, and again after a rewind. */
    int names = 0, again = 0;
    while (extant_readdir(a, &entry) == 1)
        names++;
    CHECK(extant_unlinkat(a, "null", 0) == 0 && extant_readdir(a, &entry) == 0 && extant_rewinddir(a) == 0);
    while (extant_readdir(a, &entry) == 1)
        again++;
    CHECK(names == 3 && again == 2);
    extant_closedir(a);
    extant_closedir(b);
    extant_closedir(root);
    CHECK(extant_close(volume) == 0);
}

/* Attributes and space of open files. */
static void open_files(void) {
    extant_volume *volume = made();
    extant_file *file = NULL;
    struct extant_stat st;
    char buffer[32];
    CHECK(extant_open_file(volume, "/f", O_RDWR | O_CREAT, 0600, &file) == 0);
    CHECK(extant_fallocate(file, 0, 0, 1 << 20) == 0 && extant_fstat(file, &st) == 0 && st.size == 1 << 20 && st.blocks == 2048);
    CHECK(extant_pwrite(file, "data", 4, 65536) == 4 && extant_fdatasync(file) == 0);
    CHECK(extant_fallocate(file, 3, 0, 65536) == 0 && extant_lseek(file, 0, SEEK_DATA) == 65536 && extant_lseek(file, 0, SEEK_HOLE) == 0);
    CHECK(extant_lseek(file, 1 << 20, SEEK_DATA) == -ENXIO && extant_lseek(file, 0, SEEK_CUR) == -EINVAL);
    CHECK(extant_fallocate(file, 2, 0, 4096) == -EOPNOTSUPP && extant_fallocate(file, 1 << 12, 0, 1) == -EOPNOTSUPP);
    struct extant_time time = {1000000000, 7};
    CHECK(extant_fchmod(file, 0640) == 0 && extant_fchown(file, UINT32_MAX, 5) == 0 && extant_futimens(file, &time, &time) == 0);
    CHECK(extant_fstat(file, &st) == 0 && st.mode == (S_IFREG | 0640) && st.uid == 0 && st.gid == 5 && st.mtime.nsec == 7);
    CHECK(extant_fsetxattr(file, "user.note", "value", 5) == 0 && extant_fgetxattr(file, "user.note", buffer, sizeof buffer) == 5);
    CHECK(extant_flistxattr(file, buffer, sizeof buffer) == 10 && strcmp(buffer, "user.note") == 0);
    CHECK(extant_fremovexattr(file, "user.note") == 0 && extant_flistxattr(file, NULL, 0) == 0);
    extant_close_file(file);
    CHECK(extant_read_only(volume, buffer, sizeof buffer) == 0 && extant_close(volume) == 0);
    CHECK(extant_open(image, EXTANT_READ_ONLY, &volume) == 0);
    memset(buffer, 'x', sizeof buffer);
    CHECK(extant_read_only(volume, buffer, 5) > 5 && buffer[4] == '\0' && buffer[5] == 'x' && extant_read_only(volume, NULL, 0) > 5);
    CHECK(extant_close(volume) == 0);
}

/* A device in memory. */
static int read_memory(void *user, uint64_t offset, void *buffer, size_t length) {
    memcpy(buffer, (char *)user + offset, length);
    return 0;
}

static int write_memory(void *user, uint64_t offset, const void *buffer, size_t length) {
    memcpy((char *)user + offset, buffer, length);
    return 0;
}

static int flush_memory(void *user) {
    (void)user;
    return 0;
}

static int fail(void *user) {
    (void)user;
    return -ENOSPC;
}

static void devices(void) {
    FILE *file = fopen(image, "rb");
    size_t size = 64u << 20;
    char *memory = malloc(size);
    CHECK(file && memory && fread(memory, 1, size, file) == size);
    fclose(file);
    struct extant_device device = {memory, size, read_memory, write_memory, flush_memory};
    extant_volume *volume = NULL;
    CHECK(extant_open_device(&device, EXTANT_READ_ONLY << 1, &volume) == -EINVAL);
    CHECK(extant_open_device(&device, EXTANT_READ_ONLY | 1u << 31, &volume) == -EINVAL);
    CHECK(extant_open_device(&device, 0, &volume) == 0);
    CHECK(extant_mkdir(volume, "/in memory", 0700) == 0 && extant_close(volume) == 0);
    device.write = NULL;
    struct extant_stat st;
    CHECK(extant_open_device(&device, 0, &volume) == -EINVAL);
    CHECK(extant_open_device(&device, EXTANT_READ_ONLY, &volume) == 0);
    CHECK(extant_stat(volume, "/in memory", &st) == 0 && extant_mkdir(volume, "/x", 0700) == -EROFS);
    CHECK(extant_close(volume) == 0);
    device.write = write_memory;
    device.flush = fail;
    CHECK(extant_open_device(&device, 0, &volume) == 0);
    CHECK(extant_mkdir(volume, "/lost", 0700) == 0 && extant_sync(volume) < 0);
    extant_close(volume);
    free(memory);
}

struct work {
    extant_volume *volume;
    int task;
};

static void *creates(void *given) {
    struct work *work = given;
    char path[64];
    for (int n = 0; n < 500; n++) {
        extant_file *file = NULL;
        snprintf(path, sizeof path, "/t%d-%d", work->task, n);
        CHECK(extant_open_file(work->volume, path, O_WRONLY | O_CREAT, 0644, &file) == 0);
        CHECK(extant_pwrite(file, path, strlen(path), 0) == (ssize_t)strlen(path));
        extant_close_file(file);
    }
    return NULL;
}

static void threads(void) {
    extant_volume *volume = made();
    pthread_t thread[4];
    struct work work[4];
    for (int n = 0; n < 4; n++) {
        work[n] = (struct work){volume, n};
        CHECK(pthread_create(&thread[n], NULL, creates, &work[n]) == 0);
    }
    for (int n = 0; n < 4; n++)
        pthread_join(thread[n], NULL);
    struct extant_stat st;
    CHECK(extant_stat(volume, "/t3-499", &st) == 0 && st.size == 7);
    CHECK(extant_close(volume) == 0);
}

static int told(void *user, const struct extant_counts *done) {
    uint64_t *most = user; /* an older count may come later */
    if (done->files > *most)
        *most = done->files;
    return 0;
}

static int refuse(void *user, const struct extant_counts *done) {
    (void)user;
    return done->directories > 0;
}

static int to_file(void *user, const void *bytes, size_t length) {
    return fwrite(bytes, 1, length, user) == length ? 0 : EIO;
}

static int full(void *user, const void *bytes, size_t length) {
    (void)bytes;
    (void)length;
    ++*(int *)user;
    return ENOSPC;
}

/* A volume exports an archive that tar and the library read. */
static void exported(extant_volume *volume, const char *scratch) {
    char archive[4200], command[9000];
    struct extant_stat st;
    int calls = 0;
    snprintf(archive, sizeof archive, "%s/exported.tar.gz", scratch);
    FILE *out = fopen(archive, "wb");
    CHECK(out && extant_export(volume, "/tree", "tar.gz", to_file, NULL, out) == 0 && fclose(out) == 0);
    snprintf(command, sizeof command, "test \"$(tar -tzf '%s' | tr '\\n' ' ')\" = './ ./f '", archive);
    CHECK(system(command) == 0);
    CHECK(extant_import(volume, archive, "/back", NULL, NULL) == 0);
    CHECK(extant_stat(volume, "/back/f", &st) == 0 && st.size == 1);
    CHECK(extant_export(volume, "/tree", NULL, full, NULL, &calls) == -ENOSPC && calls == 1);
    CHECK(extant_export(volume, "/none", NULL, full, NULL, &calls) == -ENOENT && calls == 1);
    CHECK(extant_export(volume, "/tree", "zip", full, NULL, &calls) == -EINVAL && strstr(extant_last_error(), "tar.zst"));
    CHECK(extant_export(volume, "/tree", NULL, NULL, NULL, NULL) == -EINVAL);
}

static void trees(const char *scratch) {
    extant_volume *volume = made();
    char out[4200];
    uint64_t seen = 0;
    extant_file *file = NULL;
    CHECK(extant_mkdir(volume, "/tree", 0755) == 0);
    CHECK(extant_open_file(volume, "/tree/f", O_WRONLY | O_CREAT, 0644, &file) == 0);
    CHECK(extant_pwrite(file, "x", 1, 0) == 1);
    extant_close_file(file);
    exported(volume, scratch);
    snprintf(out, sizeof out, "%s/out", scratch);
    CHECK(extant_copy_tree_out(volume, "/tree", out, told, &seen) == 0);
    CHECK(extant_copy_tree_in(volume, out, "/again", NULL, NULL) == 0);
    CHECK(extant_copy_tree_in(volume, out, "/again", NULL, NULL) == -EEXIST);
    CHECK(seen == 1 && extant_copy_tree_in(volume, out, "/ended", refuse, NULL) == -EINTR);
    CHECK(extant_close(volume) == 0);

    /* The same directory as an archive, into an open volume and into a new one. */
    char command[9000], archive[4200];
    struct extant_create_options options;
    struct extant_stat st;
    snprintf(archive, sizeof archive, "%s/out.tar", scratch);
    snprintf(command, sizeof command, "tar -C '%s' -cf '%s' .", out, archive);
    CHECK(system(command) == 0);
    CHECK(extant_open(image, 0, &volume) == 0);
    CHECK(extant_import(volume, archive, "/imported", told, &seen) == 0);
    CHECK(extant_stat(volume, "/imported/f", &st) == 0 && st.size == 1);
    CHECK(extant_close(volume) == 0);
    memset(&options, 0, sizeof options);
    options.source = archive;
    CHECK(extant_create(image, &options, &volume) == 0);
    CHECK(extant_stat(volume, "/f", &st) == 0 && st.size == 1);
    CHECK(extant_close(volume) == 0);
    options.source = out;
    CHECK(extant_create(image, &options, &volume) == 0);
    CHECK(extant_stat(volume, "/f", &st) == 0 && extant_close(volume) == 0);
}

/* Vectors of buffers, and entries with their attributes. */
static void vectors(void) {
    extant_volume *volume = made();
    extant_file *file = NULL;
    char first[3], second[8], text[] = "0123456789";
    struct iovec in[] = {{text, 4}, {text + 4, 6}}, out[] = {{first, 3}, {second, 8}};
    CHECK(extant_open_file(volume, "/f", O_RDWR | O_CREAT, 0600, &file) == 0);
    CHECK(extant_pwritev(file, in, 2, 5) == 10);
    CHECK(extant_preadv(file, out, 2, 7) == 8 && memcmp(first, "234", 3) == 0 && memcmp(second, "56789", 5) == 0);
    CHECK(extant_preadv(file, NULL, 0, 0) == 0 && extant_preadv(file, NULL, 1, 0) == -EINVAL);
    extant_close_file(file);
    extant_dir *dir = NULL;
    struct extant_direntplus entries[8];
    CHECK(extant_opendir(volume, "/", &dir) == 0 && extant_readdirplus(dir, entries, 8) == 2);
    int which = strcmp(entries[0].entry.name, "f") == 0 ? 0 : 1;
    CHECK(entries[which].st.size == 15 && entries[which].st.ino == entries[which].entry.ino);
    CHECK(S_ISDIR(entries[1 - which].st.mode) && extant_readdirplus(dir, entries, 8) == 0);
    extant_closedir(dir);
    struct extant_statfs st;
    CHECK(extant_statfs(volume, &st) == 0 && st.blocks * st.block_size > 48u << 20 && st.free_blocks < st.blocks);
    CHECK(extant_close(volume) == 0);
}

/* One call, many operations: in the order of the array by one thread, in any order by several. */
static void batches(void) {
    enum { FILES = 300 };
    extant_volume *volume = made();
    static struct extant_op ops[FILES];
    static char paths[FILES][32], back[FILES][32];
    static struct extant_stat st[FILES];
    struct extant_op ordered[3];
    memset(ordered, 0, sizeof ordered);
    ordered[0].code = EXTANT_OP_MKDIR;
    ordered[0].path = "/many";
    ordered[0].mode = 0755;
    ordered[1] = ordered[0]; /* fails */
    ordered[2].code = EXTANT_OP_SYMLINK;
    ordered[2].path = "/many/link";
    ordered[2].target = "nowhere";
    CHECK(extant_submit(volume, ordered, 3, 1) == 1);
    CHECK(ordered[0].result == 0 && ordered[1].result == -EEXIST && ordered[2].result == 0);
    for (int n = 0; n < FILES; n++) {
        snprintf(paths[n], sizeof paths[n], "/many/%d", n);
        ops[n].code = EXTANT_OP_WRITE_FILE;
        ops[n].mode = 0640;
        ops[n].path = paths[n];
        ops[n].buffer = paths[n];
        ops[n].length = strlen(paths[n]);
    }
    CHECK(extant_submit(volume, ops, FILES, 4) == 0);
    for (int n = 0; n < FILES; n++) {
        ops[n].code = n % 2 ? EXTANT_OP_STAT : EXTANT_OP_READ_FILE;
        ops[n].buffer = back[n];
        ops[n].length = sizeof back[n];
        ops[n].st = &st[n];
    }
    memset(back, 'x', sizeof back);
    CHECK(extant_submit(volume, ops, FILES, 0) == 0);
    for (int n = 0; n < FILES; n++) {
        size_t length = strlen(paths[n]);
        CHECK(n % 2 ? st[n].size == length && st[n].mode == (S_IFREG | 0640)
                    : ops[n].result == (int64_t)length && memcmp(back[n], paths[n], length) == 0 && back[n][length] == 'x');
    }
    ops[7].code = 99;
    ops[8].code = EXTANT_OP_RENAME;
    ops[8].target = NULL;
    CHECK(extant_submit(volume, ops + 7, 2, 0) == 2 && ops[7].result == -EINVAL && ops[8].result == -EINVAL);
    CHECK(extant_submit(volume, NULL, 1, 0) == -EINVAL && extant_submit(volume, NULL, 0, 0) == 0);
    CHECK(extant_close(volume) == 0);
}

static void found(void *user, const struct extant_finding *finding) {
    CHECK(finding->rule[0] && finding->text[0]);
    ++*(int *)user;
}

/* Closed images. */
static void offline(const char *scratch) {
    extant_volume *volume = made();
    struct extant_tune_options options;
    struct extant_resize_result resized;
    struct extant_repair_result repaired;
    struct extant_statfs statfs;
    struct stat st;
    uint64_t changes = 0, faults = 0;
    double percent = 1.5;
    CHECK(extant_mkdir(volume, "/kept", 0755) == 0);
    CHECK(extant_tune(image, &(struct extant_tune_options){.label = "x"}, 0, NULL, &changes) == -EBUSY);
    CHECK(extant_close(volume) == 0);
    memset(&options, 0, sizeof options);
    options.label = "renamed";
    options.features = "^metadata_csum";
    options.reserved_percent = &percent;
    CHECK(extant_tune(image, &options, EXTANT_DRY_RUN, NULL, &changes) == 0 && changes >= 3);
    CHECK(extant_tune(image, &options, EXTANT_SAFE_ONLY, NULL, NULL) == -EINVAL);
    CHECK(extant_resize(image, 96u << 20, EXTANT_DRY_RUN << 1, NULL, NULL) == -EINVAL);
    CHECK(extant_repair(image, EXTANT_DRY_RUN | 1u << 30, NULL, NULL) == -EINVAL);
    CHECK(extant_tune(image, &options, 0, NULL, NULL) == 0);
    options.features = "no_such_feature";
    CHECK(extant_tune(image, &options, 0, NULL, &changes) == -EINVAL);
    CHECK(strstr(extant_last_error(), "no_such_feature") != NULL);
    CHECK(extant_resize(image, 96u << 20, 0, NULL, &resized) == 0 && resized.bytes == 96u << 20);
    CHECK(stat(image, &st) == 0 && st.st_size == 96 << 20);
    CHECK(extant_resize(image, 0, 0, NULL, &resized) == 0 && resized.bytes < 32u << 20);
    CHECK(stat(image, &st) == 0 && (uint64_t)st.st_size == resized.bytes);
    CHECK(extant_resize(image, 4096, 0, NULL, NULL) == -EINVAL);
    CHECK(extant_open(image, 0, &volume) == 0 && extant_grow(volume, 48u << 20, &changes) == 0 && changes == 48u << 20);
    CHECK(extant_statfs(volume, &statfs) == 0 && statfs.blocks * statfs.block_size > 24u << 20);
    CHECK(extant_close(volume) == 0);

    /* A wrong count of free blocks in the superblock, with its checksum of zero. */
    char undo[4200];
    int findings = 0;
    FILE *file = fopen(image, "r+b");
    CHECK(file && fseek(file, 1024 + 12, SEEK_SET) == 0 && fwrite("\1\0\0\0", 1, 4, file) == 4 && fclose(file) == 0);
    snprintf(undo, sizeof undo, "%s/undo", scratch);
    CHECK(extant_check(image, found, &findings, &faults) == 0);
    CHECK(extant_repair(image, EXTANT_DRY_RUN, NULL, &repaired) == 0 && repaired.mends > 0 && repaired.faults_after == 0);
    CHECK(extant_repair(image, EXTANT_SAFE_ONLY, undo, &repaired) == 0 && repaired.mends > 0 && findings > 0);
    CHECK(stat(undo, &st) == 0 && st.st_size > 0);
    CHECK(extant_check(image, NULL, NULL, &faults) == 0 && faults == 0);
    CHECK(truncate(image, 0) == 0 && truncate(image, 1 << 20) == 0 && extant_check(image, NULL, NULL, &faults) == -EUCLEAN);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    snprintf(image, sizeof image, "%s/disk.img", arguments[1]);
    files();
    open_flags();
    directories();
    open_files();
    devices();
    threads();
    vectors();
    batches();
    offline(arguments[1]);
    trees(arguments[1]);
    puts("all is well");
    return 0;
}
