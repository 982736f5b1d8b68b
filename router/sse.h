/* Server-sent events, as OpenAI's clients read them: "data: <json>\n\n", at last "[DONE]". */
#ifndef BATON_ROUTER_SSE_H
#define BATON_ROUTER_SSE_H

#include "base/bytes.h"

/* The JSON of one event goes between the two; it must hold no newline. */
void sse_open(struct buffer *out);
void sse_close(struct buffer *out);
void sse_done(struct buffer *out);

#endif
