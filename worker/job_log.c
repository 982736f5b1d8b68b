#include "worker/job_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "00-<trace>-<span>-<flags>", as the router writes it. */
enum { TRACEPARENT_BYTES = 55, TRACE_AT = 3, TRACE_DIGITS = JOB_TRACE_BYTES - 1 };

void job_trace_read(const struct msg_job *message, char out[JOB_TRACE_BYTES])
{
    const struct wire_str *parent = &message->traceparent;
    out[0] = '\0';
    if (parent->bytes != TRACEPARENT_BYTES || parent->data[TRACE_AT - 1] != '-' ||
        parent->data[TRACE_AT + TRACE_DIGITS] != '-')
        return;
    for (int i = 0; i < TRACE_DIGITS; i++) {
        const char c = parent->data[TRACE_AT + i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return;
    }
    memcpy(out, parent->data + TRACE_AT, TRACE_DIGITS);
    out[TRACE_DIGITS] = '\0';
}

void job_subject_init(struct job_subject *subject, uint64_t request, const char *trace)
{
    snprintf(subject->request, sizeof subject->request, "%016" PRIx64, request);
    subject->fields[0] = (struct log_field){"request", subject->request};
    subject->fields[1] = (struct log_field){"trace_id", trace[0] ? trace : NULL};
}
