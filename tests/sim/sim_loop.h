/* base/loop.h over virtual time: what the simulated nodes run on.
 *
 * sim_loop.c takes the place of base/loop.c in the program that links it. A node has a loop of its
 * own, so that one can stand still while the others go on. There are no descriptors, signals or
 * threads; whoever asks for one ends the program. */
#ifndef BATON_TESTS_SIM_LOOP_H
#define BATON_TESTS_SIM_LOOP_H

#include <stdint.h>

#include "base/loop.h"

/* The clock of all loops. */
extern uint64_t sim_now_ns;

/* When the first timer of the loop is due; UINT64_MAX when none runs. */
uint64_t sim_loop_next_ns(const struct loop *loop);
/* Runs the timers that are due and all tasks, until neither is left. */
void sim_loop_run(struct loop *loop);

#endif
