/* Opens and closes a volume many times, for a checker of leaks: leaks DIRECTORY OPENS. */
#include <errno.h>
#include <extant.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    for (int n = 0; n < atoi(given[2]); n++) {
        use(image, n % 2 ? EXTANT_READ_ONLY : 0);
        CHECK(extant_open("/nonexistent/image", 0, &volume) == -ENOENT);
    }
    CHECK(extant_check(image, NULL, NULL, &faults) == 0 && faults == 0);
    return 0;
}
