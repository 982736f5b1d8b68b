/* W3C Trace Context: the header traceparent, "00-<trace>-<span>-<flags>". */
#ifndef BATON_ROUTER_TRACE_CONTEXT_H
#define BATON_ROUTER_TRACE_CONTEXT_H

#include <stdbool.h>

enum { TRACE_ID_BYTES = 33, TRACE_SPAN_BYTES = 17, TRACE_PARENT_BYTES = 56 };

struct trace_context {
    char id[TRACE_ID_BYTES];     /* hexadecimal; empty: the client sent none that is sound */
    char span[TRACE_SPAN_BYTES]; /* of this process, whose parent is the client's */
    char flags[3];
};

/* False for anything the standard does not allow; *out is empty then. A header of a later version
 * is read as far as this one goes. */
bool trace_context_read(const char *header, struct trace_context *out);
/* The header for whom this process calls; empty when there is no trace. */
void trace_context_write(const struct trace_context *trace, char out[TRACE_PARENT_BYTES]);

#endif
