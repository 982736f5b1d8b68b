/* The files that an input becomes: memory with a path, so that none meets a disk. */
#ifndef BATON_TESTS_FUZZ_FILES_H
#define BATON_TESTS_FUZZ_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_FILES_MAX = 8 };

/* Gives file `index` these bytes; returns its path, which stays the same. */
const char *fuzz_file_fill(size_t index, const uint8_t *data, size_t bytes);
/* A folder that lasts as long as the process, with file i under the name names[i]. */
const char *fuzz_folder(const char *const *names, size_t count);

/* Cuts an input at its dividers (FUZZ_DIVIDER) into files 0 to count - 1; what is behind the last
 * divider that counts goes to the last file, and files without a piece are empty. */
#define FUZZ_DIVIDER "\n%%%%\n"
void fuzz_files_divide(const uint8_t *data, size_t bytes, size_t count);

#endif
