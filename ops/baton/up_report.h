/* What `baton up` says: progress and events on standard error, the table of the ready cluster on
 * standard output, and the ready file. */
#ifndef BATON_OPS_BATON_UP_REPORT_H
#define BATON_OPS_BATON_UP_REPORT_H

#include <stdint.h>

#include "base/status.h"
#include "ops/baton/up_child.h"
#include "ops/baton/up_cluster.h"

struct up_report;
struct up_report *report_create(void);
void report_destroy(struct up_report *report);

/* One event, one line. */
void report_line(struct up_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The child's status has changed: a line rewritten in place on a terminal, a plain line else. */
void report_progress(struct up_report *report, const struct child *child);
/* children[0] is the router. */
void report_ready(struct up_report *report, const struct cluster_options *options,
                  const struct child *const *children, uint32_t count);
/* {"http","url","control","model": the first one's path,"workdir","pids":{name: pid}} to
 * options->ready_file, put in place by rename; a child without a process has no pid there. Nothing
 * to do without a ready file. */
enum status report_ready_file(const struct cluster_options *options,
                              const struct child *const *children, uint32_t count,
                              struct error *error);

#endif
