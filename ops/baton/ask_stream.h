/* An answer as it comes in: server-sent events of a chat completion, taken apart.
 *
 * ask_stream_add is fed the bytes of the response body in any pieces; each piece of text goes to
 * on_text at once, everything else is kept in struct ask_answer. No network in here. */
#ifndef BATON_OPS_BATON_ASK_STREAM_H
#define BATON_OPS_BATON_ASK_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

enum { ASK_EVENT_BYTES_MAX = 4 << 20, ASK_ANSWER_BYTES_MAX = 64 << 20 };

/* The times and sizes of the router's "timings" object, in its order. */
#define ASK_TIMING_ROWS(X)                                                                         \
    X(queue_ms)                                                                                    \
    X(prefill_ms)                                                                                  \
    X(cached_tokens)                                                                               \
    X(handoff_ms)                                                                                  \
    X(handoff_bytes)                                                                               \
    X(handoff_wait_ms)                                                                             \
    X(decode_queue_ms)                                                                             \
    X(first_step_ms)                                                                               \
    X(decode_ms)                                                                                   \
    X(ttft_ms)                                                                                     \
    X(tokens_per_s)

struct ask_timings {
#define X(name) double name;
    ASK_TIMING_ROWS(X)
#undef X
};

struct ask_answer {
    struct buffer text;
    char finish_reason[32];
    bool done; /* data: [DONE] has come */
    bool has_usage;
    int64_t prompt_tokens, completion_tokens;
    bool has_timings;
    struct ask_timings timings; /* a value the server left out is NAN */
    uint64_t first_text_ns;     /* 0 until text has come */
    uint64_t last_text_ns;
};

struct ask_stream {
    struct ask_answer answer;
    struct buffer line, event;
    void (*on_text)(void *arg, const char *text, size_t bytes);
    void *arg;
};

/* on_text may be NULL. */
void ask_stream_init(struct ask_stream *stream, void (*on_text)(void *, const char *, size_t),
                     void *arg);
void ask_stream_free(struct ask_stream *stream);
/* Bytes that came at now_ns. STATUS_REFUSED with the server's sentence when it sent an error event,
 * STATUS_CORRUPT for what is no chat completion stream, STATUS_LIMIT over the bounds above. */
enum status ask_stream_add(struct ask_stream *stream, const char *data, size_t bytes,
                           uint64_t now_ns, struct error *error);
/* The sentence of an OpenAI error body {"error":{"message":…}}, or a cut of the body itself. */
void ask_error_message(const char *body, size_t bytes, char *out, size_t out_bytes);

#endif
