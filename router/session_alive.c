/* Streams that have nothing to say for a while: a comment keeps what is between them and their
 * clients from taking them for dead. Off unless --sse-keep-alive-ms is set: there are clients that
 * read a comment as an event. */
#include "base/clock.h"
#include "router/router_internal.h"

/* A silence lasts a quarter longer than it is allowed to, at most. */
enum { LOOKS_PER_SILENCE = 4, LOOK_MIN_MS = 10 };

/* Its prompts are admitted and placed, so that none of them has a status to hope for but 200. */
static bool is_under_way(const struct session_reply *reply)
{
    bool placed = reply->member_count > 0;
    for (uint32_t i = 0; i < reply->member_count && placed; i++) {
        const enum request_state state = reply->members[i]->request.state;
        placed = state == REQUEST_PREFILLING || state == REQUEST_DECODING;
    }
    return placed;
}

static void look_at_streams(void *arg)
{
    struct router *router = arg;
    const uint64_t now_ns = loop_now_ns(router->loop);
    const uint64_t silence_ns = (uint64_t)router->options.sse_keep_alive_ms * NS_PER_MS;
    for (uint32_t i = 0; i < router->slot_count; i++) {
        struct session *session = router->slots[i].session;
        if (!session || !session->reply->exchange)
            continue;
        /* A stream that has begun goes on while it looks for workers again, and while one prompt
         * has its answer and another waits. */
        const bool begun = session->reply->stream_begun;
        if (!begun && (!is_under_way(session->reply) || !session->parsed.stream))
            continue;
        const uint64_t said_ns =
            begun ? session->reply->said_ns : session->request.times.accepted_ns;
        if (now_ns - said_ns >= silence_ns)
            session_say_alive(session);
    }
}

void session_alive_start(struct router *router)
{
    const uint32_t silence_ms = router->options.sse_keep_alive_ms;
    if (silence_ms == 0)
        return;
    const uint32_t look_ms = silence_ms / LOOKS_PER_SILENCE;
    router->alive_timer = loop_timer_create(router->loop, look_at_streams, router);
    loop_timer_start(router->alive_timer, silence_ms,
                     look_ms < LOOK_MIN_MS ? LOOK_MIN_MS : look_ms);
}
