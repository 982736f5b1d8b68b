/* What `baton ask` prints after the answer: the timeline for people, one object for programs. */
#ifndef BATON_OPS_BATON_ASK_REPORT_H
#define BATON_OPS_BATON_ASK_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "ops/baton/ask_stream.h"

/* A small aligned table; sent_ns is when the request left. */
void ask_timeline_print(const struct ask_answer *answer, uint64_t sent_ns, FILE *to);
/* {"text","finish_reason","usage":{},"timings":{},"client":{"first_text_ms","total_ms"}} */
void ask_json_print(const struct ask_answer *answer, uint64_t sent_ns, FILE *to);

#endif
