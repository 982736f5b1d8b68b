#include "tests/fuzz/fuzz_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

enum { PATH_BYTES = 160 };

static int memories[FUZZ_FILES_MAX]; /* 0: none yet */
static char paths[FUZZ_FILES_MAX][64];
static char folder[64], links[FUZZ_FILES_MAX][PATH_BYTES];

static void file_make(size_t index)
{
    CHECK(index < FUZZ_FILES_MAX);
    if (memories[index] != 0)
        return;
    log_init("fuzz", LOG_LEVEL_ERROR); /* what is odd in a file is worth a warning, not here */
    memories[index] = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(memories[index] > 0);
    snprintf(paths[index], sizeof paths[index], "/proc/self/fd/%d", memories[index]);
}

const char *fuzz_file_fill(size_t index, const uint8_t *data, size_t bytes)
{
    file_make(index);
    CHECK(ftruncate(memories[index], 0) == 0 &&
          pwrite(memories[index], data, bytes, 0) == (ssize_t)bytes);
    return paths[index];
}

static void folder_remove(void)
{
    for (size_t i = 0; i < FUZZ_FILES_MAX; i++)
        if (links[i][0] != '\0')
            unlink(links[i]);
    rmdir(folder);
}

const char *fuzz_folder(const char *const *names, size_t count)
{
    const char *temporary = getenv("TMPDIR");
    if (folder[0] != '\0')
        return folder;
    CHECK(snprintf(folder, sizeof folder, "%s/baton-fuzz-XXXXXX",
                   temporary != NULL ? temporary : "/tmp") < (int)sizeof folder);
    CHECK(mkdtemp(folder) != NULL);
    atexit(folder_remove);
    for (size_t i = 0; i < count; i++) {
        file_make(i);
        CHECK(snprintf(links[i], PATH_BYTES, "%s/%s", folder, names[i]) < PATH_BYTES);
        CHECK(symlink(paths[i], links[i]) == 0);
    }
    return folder;
}

void fuzz_files_divide(const uint8_t *data, size_t bytes, size_t count)
{
    static const char divider[] = FUZZ_DIVIDER;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *cut =
            i + 1 < count && bytes > 0 ? memmem(data, bytes, divider, sizeof divider - 1) : NULL;
        const size_t piece = cut == NULL ? bytes : (size_t)(cut - data);
        const size_t taken = cut == NULL ? bytes : piece + sizeof divider - 1;
        fuzz_file_fill(i, data, piece);
        data += taken;
        bytes -= taken;
    }
}
