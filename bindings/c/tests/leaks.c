/* Opens and closes a volume many times: leaks DIRECTORY OPENS. From 10,000 opens on it fails if memory, file descriptors or threads grow after the
 * first tenth; fewer are for valgrind, which finds smaller losses. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <extant.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bytes that the resident memory may grow by: pages that the allocator has not returned yet. */
#define SLACK (4L << 20)

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, extant_last_error()); \
            exit(1); \
        } \
    } while (0)

static int discard(void *user, const void *bytes, size_t length) {
    (void)bytes;
    *(size_t *)user += length;
    return 0;
}

static void use(const char *image, unsigned flags) {
    extant_volume *volume = NULL;
    extant_file *file = NULL;
    extant_dir *dir = NULL;
    struct extant_dirent entry;
    struct extant_stat st;
    char text[8];
    size_t packed = 0;
    CHECK(extant_open(image, flags, &volume) == 0);
    CHECK(extant_open_file(volume, "/hostname", flags ? O_RDONLY : O_RDWR, 0, &file) == 0);
    CHECK(extant_pread(file, text, sizeof text, 0) == 4);
    if (!flags)
        CHECK(extant_pwrite(file, text, 4, 0) == 4 && extant_fsync(file) == 0);
    extant_close_file(file);
    CHECK(extant_opendir(volume, "/", &dir) == 0);
    while (extant_readdir(dir, &entry) == 1)
        ;
    extant_closedir(dir);
    CHECK(extant_stat(volume, "/none", &st) == -ENOENT);
    CHECK(extant_export(volume, "/", NULL, discard, NULL, &packed) == 0 && packed > 0);
    CHECK(extant_close(volume) == 0);
}

static long entries(const char *path) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    long found = 0;
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL)
        found += entry->d_name[0] != '.';
    closedir(dir);
    return found;
}

struct usage {
    long resident, descriptors, threads;
};

static struct usage usage(void) {
    struct usage used;
    /* A thread that has been joined stays in /proc for a moment. */
    nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %ld", &used.resident) == 1 && fclose(file) == 0);
    used.resident *= sysconf(_SC_PAGESIZE);
    used.descriptors = entries("/proc/self/fd");
    used.threads = entries("/proc/self/task");
    return used;
}

static void compare(struct usage before, struct usage after, int opens) {
    printf("after %d opens: %ld resident bytes, %ld file descriptors, %ld threads\n", opens / 10, before.resident, before.descriptors, before.threads);
    printf("after %d opens: %ld resident bytes, %ld file descriptors, %ld threads\n", opens, after.resident, after.descriptors, after.threads);
    CHECK(after.resident <= before.resident + SLACK);
    CHECK(after.descriptors == before.descriptors && after.threads == before.threads);
}

int main(int count, char **given) {
    char image[4200];
    struct extant_create_options options;
    extant_volume *volume = NULL;
    extant_file *file = NULL;
    uint64_t faults = 1;
    if (count != 3)
        return 2;
    snprintf(image, sizeof image, "%s/leaks.img", given[1]);
    memset(&options, 0, sizeof options);
    options.size = 2u << 20;
    CHECK(extant_create(image, &options, &volume) == 0);
    CHECK(extant_open_file(volume, "/hostname", O_WRONLY | O_CREAT, 0644, &file) == 0);
    CHECK(extant_pwrite(file, "box\n", 4, 0) == 4);
    extant_close_file(file);
    CHECK(extant_close(volume) == 0);
    int opens = atoi(given[2]);
    struct usage warm = usage();
    for (int n = 0; n < opens; n++) {
        use(image, n % 8 ? EXTANT_READ_ONLY : 0);
        CHECK(extant_open("/nonexistent/image", 0, &volume) == -ENOENT);
        if (n == opens / 10)
            warm = usage();
    }
    if (opens >= 10000)
        compare(warm, usage(), opens);
    CHECK(extant_check(image, NULL, NULL, &faults) == 0 && faults == 0);
    return 0;
}
