#include "router/trace_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"

/* Copies `count` lower-case hexadecimal digits; false when there are others or, where zero is not
 * allowed, all are 0. */
static bool take_hex(const char *text, size_t count, bool zero_fine, char *out)
{
    bool zero = true;
    for (size_t i = 0; i < count; i++) {
        const char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        zero = zero && c == '0';
        out[i] = c;
    }
    out[count] = '\0';
    return zero_fine || !zero;
}

bool trace_context_read(const char *header, struct trace_context *out)
{
    struct trace_context trace = {.id = ""};
    char version[3], parent[TRACE_SPAN_BYTES];
    *out = trace;
    const size_t bytes = header ? strlen(header) : 0;
    if (bytes < TRACE_PARENT_BYTES - 1 || !take_hex(header, 2, true, version) ||
        strcmp(version, "ff") == 0)
        return false;
    /* Version 00 ends here; later ones may go on behind a dash. */
    if (bytes > TRACE_PARENT_BYTES - 1 &&
        (strcmp(version, "00") == 0 || header[TRACE_PARENT_BYTES - 1] != '-'))
        return false;
    if (header[2] != '-' || header[35] != '-' || header[52] != '-' ||
        !take_hex(header + 3, 32, false, trace.id) || !take_hex(header + 36, 16, false, parent) ||
        !take_hex(header + 53, 2, true, trace.flags))
        return false;
    snprintf(trace.span, sizeof trace.span, "%016" PRIx64, random_os_u64() | 1);
    *out = trace;
    return true;
}

void trace_context_write(const struct trace_context *trace, char out[TRACE_PARENT_BYTES])
{
    out[0] = '\0';
    if (trace->id[0])
        snprintf(out, TRACE_PARENT_BYTES, "00-%s-%s-%s", trace->id, trace->span, trace->flags);
}
