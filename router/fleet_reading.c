#include "router/fleet_reading.h"

#include "router/fleet_internal.h"

void fleet_reading_begin(struct fleet_reading *reading, const struct msg_hello *hello,
                         uint32_t heartbeat_ms, uint64_t now_ns)
{
    *reading = (struct fleet_reading){.tokens_per_s = hello->read_tokens_per_s,
                                      .loaded_tokens_per_s = hello->read_tokens_per_s};
    reading->pace = reading->loaded_pace =
        reading_pace_told(hello->read_token_us, hello->read_context_us);
    backlog_init(&reading->backlog, heartbeat_ms, now_ns);
}

void fleet_reading_hear(struct fleet_reading *reading, const struct msg_heartbeat *heartbeat,
                        uint64_t now_ns)
{
    const struct msg_decode_load *load = &heartbeat->decode;
    const struct reading_pace pace =
        reading_pace_told(heartbeat->read_token_us, heartbeat->read_context_us);
    if (pace.token_ms > 0)
        reading->pace = pace;
    if (load->read_tokens_per_s > 0)
        reading->tokens_per_s = load->read_tokens_per_s;
    reading->foreign_tokens = load->unread_tokens > reading->backlog.charged
                                  ? load->unread_tokens - reading->backlog.charged
                                  : 0;
    backlog_hear(&reading->backlog, load->read_tokens, reading->foreign_tokens, now_ns);
}

uint64_t fleet_reading_left(const struct fleet_reading *reading, uint64_t now_ns)
{
    return reading->foreign_tokens + backlog_left(&reading->backlog, reading->tokens_per_s, now_ns);
}

void fleet_charge_reading(struct fleet *fleet, worker_handle handle, uint32_t prompt_tokens,
                          uint64_t tokens)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (!slot)
        return;
    backlog_charge(&slot->worker.reading.backlog, tokens, loop_now_ns(fleet->loop));
    reading_depth_add(&slot->worker.reading.depth, prompt_tokens, tokens);
}

void fleet_release_reading(struct fleet *fleet, worker_handle handle, uint32_t prompt_tokens,
                           uint64_t tokens)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (!slot)
        return;
    backlog_release(&slot->worker.reading.backlog, tokens, slot->worker.reading.tokens_per_s,
                    loop_now_ns(fleet->loop));
    reading_depth_remove(&slot->worker.reading.depth, prompt_tokens, tokens);
}
