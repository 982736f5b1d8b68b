/* Faults on purpose: for the tests of failures, and for operators of a staging cluster.
 *
 * The points are compiled into every program and cost one branch that is never taken until they are
 * armed. `--enable-fault-injection` arms what `--fault` (BATON_FAULT) says:
 *
 *   POINT[:N[+]]:ACTION[,...]     at the N-th passage of the point (1 by default), once; with a
 *                                 plus at all later ones too
 *
 * fault.def has the points and what each can suffer. Any thread; armed once, at start. */
#ifndef BATON_TRANSFER_FAULT_H
#define BATON_TRANSFER_FAULT_H

#include <stdbool.h>

#include "base/status.h"

enum fault_point {
#define FAULT(name, text, actions, where) FAULT_##name,
#include "transfer/fault.def"
#undef FAULT
    FAULT_POINT_COUNT
};

/* Of these only DROP, CORRUPT, SHORT and REFUSE are left to the place itself. */
enum fault_action {
    FAULT_NO, /* go on */
    FAULT_DIE,
    FAULT_STOP,
    FAULT_DELAY,
    FAULT_DROP,
    FAULT_CORRUPT,
    FAULT_SHORT,
    FAULT_REFUSE,
    FAULT_ACTION_COUNT
};

extern bool fault_armed;
enum fault_action fault_pass(enum fault_point point);

/* What happens here, now. */
static inline enum fault_action fault_at(enum fault_point point)
{
    return __builtin_expect(fault_armed, 0) ? fault_pass(point) : FAULT_NO;
}

/* Before other threads run. spec NULL or empty: nothing. Without `enabled` a spec is only warned
 * about. INVALID for a point, passage or action that does not exist, with the names of those that
 * do. */
enum status fault_arm(const char *spec, bool enabled, struct error *error);

#endif
