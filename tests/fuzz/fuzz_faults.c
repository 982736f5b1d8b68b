/* A target with every fault that the driver is to catch, each for an input of its name. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {NULL};

/* Volatile, so that no compiler sees what is wrong. */
static volatile size_t depth_wanted = SIZE_MAX;
static volatile uint8_t *volatile nowhere;

static size_t descend(size_t depth)
{
    volatile uint8_t frame[4096] = {(uint8_t)depth};
    return depth == depth_wanted ? 0 : descend(depth + 1) + frame[0];
}

static bool is(const uint8_t *data, size_t bytes, const char *name)
{
    return bytes == strlen(name) && memcmp(data, name, bytes) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (is(data, bytes, "read"))
        return nowhere[0];
    if (is(data, bytes, "bus"))
        raise(SIGBUS);
    CHECK(!is(data, bytes, "check"));
    if (is(data, bytes, "stack"))
        return (int)(descend(0) & 1);
    if (is(data, bytes, "memory")) {
        for (size_t i = 0; i < 1024; i++) {
            volatile char *piece = malloc(1 << 15); /* a leak, too */
            piece[0] = 1;
        }
    }
    if (is(data, bytes, "block")) {
        nowhere = malloc((size_t)1 << 31);
        free((void *)(uintptr_t)nowhere);
    }
    while (is(data, bytes, "spin"))
        depth_wanted++;
    return 0;
}
