/* A thread team: the caller and count-1 helpers, which spin, then yield, then sleep. `team_run` is
 * a fork and join over every member; `team_share` deals out pieces of work to whoever has a CPU,
 * and is what work should use that does not need all members at once. */
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
/* Calls function(arg, member, piece) once for every piece in [0, piece_count) and returns when all
 * have been done; what they wrote is visible then. Pieces are drawn in ascending order by the
 * caller and by those helpers that are awake: one that is not (several processes share few CPUs) is
 * not waited for, and finds nothing left when it comes. A member works on one piece at a time, so
 * `member` may choose scratch memory. One caller at a time, not inside a run. */
typedef void (*team_piece_function)(void *arg, uint32_t member, uint32_t piece);
void team_share(struct team *team, team_piece_function function, void *arg, uint32_t piece_count);
/* Inside team_run: waits for all members. */
void team_barrier(struct team *team);

/* Splits [0, total) in pieces that are multiples of grain: [*first_out, *end_out) is member index's
 * part (may be empty). */
void team_split(size_t total, size_t grain, uint32_t index, uint32_t count, size_t *first_out,
                size_t *end_out);

#endif
