/* Sleeping on a 32-bit word until another thread says it changed (futex(2)). Wake-ups may be
 * spurious: the caller looks at the word again. */
#ifndef BATON_BASE_FUTEX_INTERNAL_H
#define BATON_BASE_FUTEX_INTERNAL_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns when *word is no longer `seen`, on a wake-up, a signal, or after `timeout` (relative;
 * NULL: none). */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
}

static inline void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
