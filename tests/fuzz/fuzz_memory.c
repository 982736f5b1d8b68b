#include "tests/fuzz/fuzz_memory.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t held, most, base, limit = SIZE_MAX;

static void over(void)
{
    static const char words[] = "an input allocates more than its size allows\n";
    const ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    limit = SIZE_MAX; /* not again while the process ends */
    (void)written;
    abort();
}

void fuzz_memory_limit(size_t bytes)
{
    base = most = held;
    limit = bytes;
}

size_t fuzz_memory_most(void)
{
    return most - base;
}

static void taken(size_t bytes)
{
    held += bytes;
    most = held > most ? held : most;
    if (limit != SIZE_MAX && held > base && held - base > limit)
        over();
}

static void given(size_t bytes)
{
    held -= bytes;
}

#if defined(__SANITIZE_ADDRESS__)

/* As in sanitizer/allocator_interface.h, which gcc comes without. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *block);

static void on_malloc(const volatile void *block, size_t bytes)
{
    if (block != NULL)
        taken(__sanitizer_get_allocated_size(block));
}

static void on_free(const volatile void *block)
{
    if (block != NULL)
        given(__sanitizer_get_allocated_size(block));
}

__attribute__((constructor)) static void hooks_install(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

#else

/* The allocator of the C library under the names that it has besides the usual ones. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

static void asked(size_t bytes)
{
    if (bytes > limit)
        over();
}

static void *counted(void *block)
{
    if (block != NULL)
        taken(malloc_usable_size(block));
    return block;
}

void *malloc(size_t bytes)
{
    asked(bytes);
    return counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    size_t whole;
    asked(__builtin_mul_overflow(count, bytes, &whole) ? SIZE_MAX : whole);
    return counted(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    const size_t before = block != NULL ? malloc_usable_size(block) : 0;
    asked(bytes);
    void *moved = __libc_realloc(block, bytes);
    if (moved == NULL && bytes != 0)
        return NULL;
    given(before);
    return counted(moved);
}

void *memalign(size_t alignment, size_t bytes)
{
    asked(bytes);
    return counted(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block != NULL)
        given(malloc_usable_size(block));
    __libc_free(block);
}

#endif
