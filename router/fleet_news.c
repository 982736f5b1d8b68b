/* What workers tell of their prefix caches, into the index. */
#include "base/bytes.h"
#include "router/fleet_internal.h"

enum {
    EVENT_BYTES = 8,
    SWEEP_ENTRIES = 4096, /* with each heartbeat: a tenth of a millisecond */
};

void fleet_news_forget(struct slot *slot)
{
    if (slot->holder != PREFIX_NO_HOLDER)
        prefix_index_leave(slot->fleet->prefixes, slot->holder);
    slot->holder = PREFIX_NO_HOLDER;
    slot->news_next = 0;
}

/* A worker that begins anew is another holder: what it told before is forgotten at once, however
 * much it was. */
static void begin_anew(struct slot *slot)
{
    fleet_news_forget(slot);
    slot->holder = prefix_index_join(slot->fleet->prefixes);
}

enum status fleet_news_take(struct slot *slot, const struct msg_prefix_news *news, bool *anew_out,
                            struct error *error)
{
    struct prefix_index *index = slot->fleet->prefixes;
    const uint32_t count = news->events.bytes / EVENT_BYTES;
    *anew_out = false;
    if (news->events.bytes % EVENT_BYTES != 0)
        return error_set(error, STATUS_INVALID,
                         "the worker tells of its prefix cache in %u bytes, not in events of %d",
                         news->events.bytes, EVENT_BYTES);
    if (index == NULL)
        return STATUS_OK;
    prefix_index_sweep(index, SWEEP_ENTRIES);
    if (news->anew)
        begin_anew(slot);
    if (slot->holder == PREFIX_NO_HOLDER || news->sequence != slot->news_next) {
        /* A worker without a cache tells of nothing, and misses nothing. */
        *anew_out = news->anew || news->sequence + count > 0;
        fleet_news_forget(slot);
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t event = load_le64(news->events.data + (size_t)i * EVENT_BYTES);
        if ((event & 1) != 0)
            prefix_index_add(index, slot->holder, event);
        else
            prefix_index_remove(index, slot->holder, event);
    }
    slot->news_next += count;
    return STATUS_OK;
}
