#include "router/sse.h"

void sse_open(struct buffer *out)
{
    buffer_add_text(out, "data: ");
}

void sse_close(struct buffer *out)
{
    buffer_add_text(out, "\n\n");
}

void sse_done(struct buffer *out)
{
    buffer_add_text(out, "data: [DONE]\n\n");
}
