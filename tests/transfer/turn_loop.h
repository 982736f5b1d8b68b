/* Turning a loop until something holds, with an end for tests that would hang. */
#ifndef BATON_TESTS_TURN_LOOP_H
#define BATON_TESTS_TURN_LOOP_H

#include <criterion/criterion.h>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"

#define TURN_UNTIL(loop, condition)                                                                \
    do {                                                                                           \
        const uint64_t begun_ns = loop_now_ns(loop);                                               \
        while (!(condition)) {                                                                     \
            loop_run_once(loop, 5);                                                                \
            cr_assert(loop_now_ns(loop) - begun_ns < 60 * (uint64_t)NS_PER_S,                      \
                      "never came true: " #condition);                                             \
        }                                                                                          \
    } while (0)

/* A child that dies with its parent, so that a test that fails leaves nothing running. */
static inline pid_t fork_mortal(void)
{
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(1);
    return child;
}

/* Turns for a while: to see that something does not happen. */
static inline void turn_for(struct loop *loop, uint32_t ms)
{
    const uint64_t begun_ns = loop_now_ns(loop);
    while (loop_now_ns(loop) - begun_ns < (uint64_t)ms * NS_PER_MS)
        loop_run_once(loop, 1);
}

#endif
