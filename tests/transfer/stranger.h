/* A peer that says what no honest one does: a mover driven by hand, and what it heard. */
#ifndef BATON_TESTS_STRANGER_H
#define BATON_TESTS_STRANGER_H

#include "tests/transfer/handoff_fixture.h"
#include "transfer/handoff_internal.h"
#include "transfer/wire.h"

enum { STRIP_BYTES = 512, LAYERS = 3 };

struct stranger {
    struct pair_fix *fix;
    struct mover *mover;
    struct mover_peer *peer;
    uint32_t welcomes, rejects, aborts, acks, landed, offers, dones, pings, closed, sent;
    uint32_t code;
    char text[600];
    uint32_t slots[FIX_PAGES_MAX], generations[FIX_PAGES_MAX], granted;
    uint64_t offered;
    uint32_t offered_first, offered_count;
    bool silent;
    uint8_t *bytes;
};

/* listen: NULL for one that only dials. */
void stranger_create(struct stranger *stranger, struct pair_fix *fix, const char *listen);
void stranger_destroy(struct stranger *stranger);
void stranger_say(struct stranger *stranger, enum message_id id, const void *message);
/* A greeting like that of the fixture's prefill node. */
struct msg_peer_hello stranger_hello(const struct pair_fix *fix);
void stranger_dial(struct stranger *stranger);
/* Dials, greets and is welcomed. */
void stranger_greet(struct stranger *stranger);

/* One end of the hand-off against a stranger, and their one hand-off. */
struct hostile {
    struct pair_fix fix;
    struct stranger stranger;
    struct fix_job *job;
};

/* The right header for one strip of the stranger's bytes, under the grant it has. */
struct mover_data_header hostile_header(const struct hostile *hostile, uint32_t layer,
                                        uint32_t page);
/* Sends the stranger's bytes under that header and waits until they are gone. */
void hostile_send_data(struct hostile *hostile, const struct mover_data_header *header);

#endif
