/* The library as C programs use it. The argument is a directory for images. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    CHECK(extant_pread(file, buffer, 4, 0) == 4 && memcmp(buffer, "\0\0\0\0", 4) == 0);
    CHECK(extant_fsync(file) == 0);
    CHECK(extant_fstat(file, &st) == 0 && st.size == 100010 && st.mode == (S_IFREG | 0640));
    CHECK(extant_ftruncate(file, 5) == 0);
    extant_close_file(file);
    CHECK(extant_symlink(volume, "d/f", "/l") == 0);
    CHECK(extant_readlink(volume, "/l", buffer, 2) == 3 && memcmp(buffer, "d/", 2) == 0);
    CHECK(extant_link(volume, "/d/f", "/second") == 0 && extant_rename(volume, "/second", "/moved") == 0);
    CHECK(extant_stat(volume, "/l", &st) == 0 && st.nlink == 2 && st.size == 5);
    CHECK(extant_lstat(volume, "/l", &st) == 0 && S_ISLNK(st.mode));
    CHECK(extant_chmod(volume, "/moved", 0600) == 0 && extant_chown(volume, "/moved", 1000, UINT32_MAX) == 0);
    struct extant_time time = {1000000000, 7};
    CHECK(extant_utimens(volume, "/moved", &time, NULL) == 0);
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
    CHECK(extant_check(image, &faults) == 0 && faults == 0);
    CHECK(extant_open("/nonexistent/image", 0, &volume) == -ENOENT);
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

static void told(void *user, const struct extant_counts *done) { *(uint64_t *)user = done->files; }

static void trees(const char *scratch) {
    extant_volume *volume = made();
    char out[4200];
    uint64_t seen = 0;
    extant_file *file = NULL;
    CHECK(extant_mkdir(volume, "/tree", 0755) == 0);
    CHECK(extant_open_file(volume, "/tree/f", O_WRONLY | O_CREAT, 0644, &file) == 0);
    CHECK(extant_pwrite(file, "x", 1, 0) == 1);
    extant_close_file(file);
    snprintf(out, sizeof out, "%s/out", scratch);
    CHECK(extant_copy_tree_out(volume, "/tree", out, told, &seen) == 0);
    CHECK(extant_copy_tree_in(volume, out, "/again", NULL, NULL) == 0);
    CHECK(extant_copy_tree_in(volume, out, "/again", NULL, NULL) == -EEXIST);
    CHECK(extant_close(volume) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    snprintf(image, sizeof image, "%s/disk.img", arguments[1]);
    files();
    devices();
    threads();
    trees(arguments[1]);
    puts("all is well");
    return 0;
}
