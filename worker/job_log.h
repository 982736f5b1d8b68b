/* Lines about one request carry its ids as fields, the same that the router's lines carry, so that
 * a request and its trace can be followed through all processes. */
#ifndef BATON_WORKER_JOB_LOG_H
#define BATON_WORKER_JOB_LOG_H

#include "base/log.h"
#include "worker/job.h"

struct job_subject {
    char request[17];
    struct log_field fields[2];
};

/* The trace's id out of a job's traceparent; empty when there is none, or none that is sound. */
void job_trace_read(const struct msg_job *message, char out[JOB_TRACE_BYTES]);
/* trace: kept by reference; empty for none. The subject must stay where it is. */
void job_subject_init(struct job_subject *subject, uint64_t request, const char *trace);

/* One line about a request; the arguments behind the trace as those of log_write. */
#define LOG_JOB(level, request, trace, ...)                                                        \
    do {                                                                                           \
        struct job_subject subject_;                                                               \
        job_subject_init(&subject_, request, trace);                                               \
        log_write_with(level, subject_.fields, 2, __VA_ARGS__);                                    \
    } while (0)

#endif
