/* Counts the bytes that are allocated, so that an input which brings about more than it may is
 * caught. The allocator of the process is replaced, that of libraries too; under the address
 * sanitizer, which has replaced it already, its hooks are used. */
#ifndef BATON_TESTS_FUZZ_MEMORY_H
#define BATON_TESTS_FUZZ_MEMORY_H

#include <stddef.h>

/* From here on abort when more than `bytes` are held on top of what is held now, or asked for at
 * once. SIZE_MAX: no limit. */
void fuzz_memory_limit(size_t bytes);
/* The most that was held on top since the last call of fuzz_memory_limit. */
size_t fuzz_memory_most(void);

#endif
