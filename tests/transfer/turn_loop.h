/* Turning a loop until something holds, with an end for tests that would hang. */
#ifndef BATON_TESTS_TURN_LOOP_H
#define BATON_TESTS_TURN_LOOP_H

#include <criterion/criterion.h>

#include "base/clock.h"
#include "base/loop.h"

#define TURN_UNTIL(loop, condition)                                                                \
    do {                                                                                           \
        const uint64_t begun_ns = loop_now_ns(loop);                                               \
        while (!(condition)) {                                                                     \
            loop_run_once(loop, 5);                                                                \
            cr_assert(loop_now_ns(loop) - begun_ns < 20 * (uint64_t)NS_PER_S,                      \
                      "never came true: " #condition);                                             \
        }                                                                                          \
    } while (0)

/* Turns for a while: to see that something does not happen. */
static inline void turn_for(struct loop *loop, uint32_t ms)
{
    const uint64_t begun_ns = loop_now_ns(loop);
    while (loop_now_ns(loop) - begun_ns < (uint64_t)ms * NS_PER_MS)
        loop_run_once(loop, 1);
}

#endif
