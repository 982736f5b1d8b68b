/* The prompts that a worker reads: at which pace, and how deep those are that were sent. Of a
 * decode node also what of them is left, and how fast it reads while it writes answers beside, of
 * which its speed at answers says little. Loop thread. */
#ifndef BATON_ROUTER_FLEET_READING_H
#define BATON_ROUTER_FLEET_READING_H

#include "router/backlog.h"
#include "router/reading_pace.h"
#include "transfer/wire.h"

struct fleet_reading {
    struct backlog backlog;  /* of what this router sent */
    uint64_t foreign_tokens; /* of prompts that others sent */
    /* By its last heartbeat that had one, by HELLO; 0: it does not tell, and nothing is known. */
    double tokens_per_s, loaded_tokens_per_s;
    struct reading_pace pace, loaded_pace; /* likewise */
    struct reading_depth depth;            /* of what this router sent */
};

void fleet_reading_begin(struct fleet_reading *reading, const struct msg_hello *hello,
                         uint32_t heartbeat_ms, uint64_t now_ns);
void fleet_reading_hear(struct fleet_reading *reading, const struct msg_heartbeat *heartbeat,
                        uint64_t now_ns);
/* Tokens that are still to be read. */
uint64_t fleet_reading_left(const struct fleet_reading *reading, uint64_t now_ns);

#endif
