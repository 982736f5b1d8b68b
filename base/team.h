/* A thread team: fork-join over the caller and count-1 helpers, spin-then-sleep. */
#ifndef BATON_BASE_TEAM_H
#define BATON_BASE_TEAM_H

#include <stddef.h>
#include <stdint.h>

struct team;

/* index in [0, count). */
typedef void (*team_function)(void *arg, uint32_t index, uint32_t count);

/* count 0: as many as the process may use CPUs. Aborts on failure (start-up only). */
struct team *team_create(uint32_t count);
void team_destroy(struct team *team);
uint32_t team_count(const struct team *team);
/* Runs function on every member, the caller as index 0, and returns when all are done; what they
 * wrote is visible then. One caller at a time. */
void team_run(struct team *team, team_function function, void *arg);
/* Inside team_run: waits for all members. */
void team_barrier(struct team *team);

/* Splits [0, total) in pieces that are multiples of grain: [*first_out, *end_out) is member index's
 * part (may be empty). */
void team_split(size_t total, size_t grain, uint32_t index, uint32_t count, size_t *first_out,
                size_t *end_out);

#endif
