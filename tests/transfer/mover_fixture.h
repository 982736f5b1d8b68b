/* One end of a mover that counts what happens to it, for the suite that runs every mover. */
#ifndef BATON_TESTS_MOVER_FIXTURE_H
#define BATON_TESTS_MOVER_FIXTURE_H

#include "base/random.h"
#include "transfer/mover.h"
#include "tests/transfer/turn_loop.h"

enum { ENDS_PEERS_MAX = 64, ENDS_SENDS_MAX = 8, ENDS_MEMORY_BYTES = 24 << 20, ENDS_GAP_BYTES = 24 };

struct mover_end {
    const struct mover_ops *ops;
    struct loop *loop;
    struct mover *mover;
    struct mover_peer *peers[ENDS_PEERS_MAX]; /* NULL once closed */
    uint32_t peer_count;
    uint32_t messages, closed, sent, sent_ok, data, data_done, data_ok;
    uint64_t message_bytes, last_cookie;
    enum status close_status;
    uint8_t last_first_byte, last_last_byte;
    struct mover_data_header last_header;
    uint64_t cookies_seen; /* bit n: on_sent came for cookie n */
    bool refuse, close_on_data, echo;
    uint32_t pieces; /* what data is cut into, with gaps between; 0: one */
    uint8_t *memory; /* data lands at first_slot */
};

void mover_end_create(struct mover_end *end, struct loop *loop, const struct mover_ops *ops,
                      const char *listen);
void mover_end_destroy(struct mover_end *end);
/* Bytes from `at` on as so many pieces with gaps between; returns pieces. */
uint32_t mover_end_cut(uint8_t *at, size_t bytes, uint32_t pieces, struct mover_segment *segments);
struct mover_peer *mover_end_dial(struct mover_end *end, const char *address);

/* Bytes that differ for every seed and place. */
void pattern_fill(uint8_t *at, size_t bytes, uint64_t seed);
bool pattern_matches(const uint8_t *at, size_t bytes, uint64_t seed);

#endif
