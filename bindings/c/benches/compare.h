/* What the programs of scripts/c-compare.sh share: the amounts of work, and the seconds of each step. */
#include <stdio.h>
#include <time.h>

enum { FILES = 100000, DIRS = 100, PIECE = 1 << 20, PIECES = 1024 };
static char piece[PIECE];

static void step(const char *name) {
    static struct timespec before;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (name)
        printf("%s %.3f\n", name, (double)(now.tv_sec - before.tv_sec) + 1e-9 * (double)(now.tv_nsec - before.tv_nsec));
    before = now;
}
