/* What both ends of the hand-off share: the rows of their state tables, and sets of (layer, page).
 * Private to transfer/. */
#ifndef BATON_TRANSFER_HANDOFF_INTERNAL_H
#define BATON_TRANSFER_HANDOFF_INTERNAL_H

#include "transfer/handoff.h"
#include "transfer/peer_internal.h"

enum { HANDOFF_TEXT_BYTES = 513, HANDOFFS_MAX = 4096, SLOT_NONE = UINT32_MAX };

/* Which limit ends a state that lasts too long. */
enum handoff_wait {
    WAIT_NONE,       /* the caller's own deadline, or the watch over the peer */
    WAIT_HELLO,      /* since the state began */
    WAIT_LEASE,      /* the lease of the reservation, since anything last moved */
    WAIT_PROGRESS,   /* since anything last moved */
    WAIT_QUARANTINE, /* since the state began */
};

/* A set of (layer, page) pairs. */
struct strip_set {
    uint64_t *words; /* [layers][words_per_layer] */
    uint32_t words_per_layer;
};
void strip_set_create(struct strip_set *set, uint32_t layers, uint32_t pages);
void strip_set_free(struct strip_set *set);
void strip_set_clear(struct strip_set *set, uint32_t layers);

static inline uint64_t *strip_word(const struct strip_set *set, uint32_t layer, uint32_t page)
{
    return &set->words[(size_t)layer * set->words_per_layer + page / 64];
}
static inline bool strip_has(const struct strip_set *set, uint32_t layer, uint32_t page)
{
    return *strip_word(set, layer, page) >> (page % 64) & 1;
}
static inline void strip_add(struct strip_set *set, uint32_t layer, uint32_t page)
{
    *strip_word(set, layer, page) |= UINT64_C(1) << (page % 64);
}
static inline void strip_remove(struct strip_set *set, uint32_t layer, uint32_t page)
{
    *strip_word(set, layer, page) &= ~(UINT64_C(1) << (page % 64));
}
/* The first page of the layer in the set, from `page` on; pages when there is none. */
uint32_t strip_next(const struct strip_set *set, uint32_t layer, uint32_t page, uint32_t pages);

/* Strips of some pages in some layers that follow each other: what one data message carries. Pages
 * count from the first of the hand-off. */
struct strip_box {
    uint32_t layer, layer_count;
    uint32_t page, page_count;
};

/* What the sender has to choose from. */
struct strip_view {
    const struct strip_set *ready;
    const uint32_t *ready_counts;  /* [layers] strips in `ready` */
    const uint32_t *source_slots;  /* [pages] */
    const uint32_t *granted_slots; /* [pages] SLOT_NONE: not granted yet */
    uint32_t layers, pages;
};

/* Sizes of a message, in strips, 1 at least: the most of all, from where a run goes alone, and up
 * to where shorter pieces are gathered. */
struct strip_room {
    uint32_t strips_most, run_strips, gather_strips;
};

/* The next strips that are ready and granted, looking at first_layer first: a run without a gap
 * where it is long enough, else pieces of one layer, and of the next ones when all of the same
 * pages are ready there. False when there are none. */
bool strip_pick(const struct strip_view *view, const struct strip_room *room, uint32_t first_layer,
                struct strip_box *out);
/* Their bytes, layer by layer, neighbours joined. 0 when there are more than MOVER_SEGMENTS_MAX
 * pieces. slots: [pages of the hand-off]. */
uint32_t strip_segments(const struct handoff_region *region, const struct strip_box *box,
                        const uint32_t *slots, struct mover_segment out[MOVER_SEGMENTS_MAX]);
/* CRC-32C over the slots and generations of a run of pages. */
uint32_t strip_grant(const uint32_t *slots, const uint32_t *generations, uint32_t count);

/* What a checksum binds the bytes to. */
struct strip_identity {
    uint64_t handoff;
    uint32_t first_page;         /* of the hand-off, in the prompt */
    const uint32_t *generations; /* [pages] at the receiver */
};
/* CRC-32C over hand-off, layer, page, generation and bytes of each strip. */
uint32_t strip_checksum(const struct handoff_region *region, const struct strip_identity *identity,
                        const struct strip_box *box, const uint32_t *slots);
/* Of one data message, checksum and all; the sum of them is what DONE says. */
uint64_t strip_digest(const struct mover_data_header *header);

/* Refuses limits and regions that cannot work, with a sentence. */
enum status handoff_check_setup(const struct handoff_region *region,
                                const struct handoff_limits *limits, struct error *error);
/* The status an ABORT carries. */
enum status handoff_status_of(uint32_t code);
uint32_t handoff_code_of(enum status status);
/* Says in the log that a hand-off ends before it landed: aloud, unless it was merely cancelled. */
void handoff_log_end(uint64_t handoff, const char *state, enum status status, const char *text);
/* Sends an ABORT; a peer that cannot take it is about to be lost. */
void handoff_send_abort_to(struct peer *peer, uint64_t handoff, enum status status,
                           const char *text);

static inline uint32_t handoff_age_ms(uint64_t now_ns, uint64_t since_ns)
{
    const uint64_t ms = now_ns > since_ns ? (now_ns - since_ns) / NS_PER_MS : 0;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static inline uint64_t handoff_ms(uint32_t ms)
{
    return (uint64_t)ms * NS_PER_MS;
}

#endif
