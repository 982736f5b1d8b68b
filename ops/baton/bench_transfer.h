/* The two ends of `baton bench transfer`: what they are told, what they answer, and their parts.
 *
 * The ends are two processes (two threads for the loopback mover, which has no other), joined by a
 * pair of sockets. The decode end asks for one part after the other; both then do it at the same
 * time, and the prefill end answers with what it measured. */
#ifndef BATON_OPS_BATON_BENCH_TRANSFER_H
#define BATON_OPS_BATON_BENCH_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transfer/handoff.h"

enum { TRANSFER_HANDOFFS_MAX = 64, TRANSFER_PART_TIMEOUT_MS = 60000 };

struct transfer_plan {
    const struct mover_ops *ops;
    bool threads; /* the ends are threads of one process */
    bool has_raw; /* UCX stands beside it; else copies of the same sizes */
    bool scatter; /* pages are dealt out without runs */
    uint32_t pages, layers, handoffs;
    size_t page_bytes; /* of one page in one layer */
};

enum transfer_part {
    TRANSFER_RAW,            /* raw messages, eager */
    TRANSFER_RAW_RENDEZVOUS, /* and by rendezvous */
    TRANSFER_PLAIN,          /* hand-offs without checksums */
    TRANSFER_CHECKED,        /* hand-offs with them */
    TRANSFER_RALLY_RAW,      /* round trips of raw messages */
    TRANSFER_RALLY,          /* round trips of control messages over the mover and a loop */
    TRANSFER_PART_COUNT,
    TRANSFER_END = TRANSFER_PART_COUNT,
};

/* What the prefill end measured, and what both ends spent. */
struct transfer_figures {
    double seconds, cpu_seconds;
    uint64_t bytes, messages;
    double round_trip_ns; /* median */
    double late_ns;       /* the longest that other work of a loop waited, at either end */
};

struct transfer_pair;

/* Starts the other end and everything the parts need. */
enum status transfer_pair_start(const struct transfer_plan *plan, struct transfer_pair **out,
                                struct error *error);
/* One part. message_bytes: of raw messages. */
enum status transfer_pair_run(struct transfer_pair *pair, enum transfer_part part,
                              size_t message_bytes, struct transfer_figures *out,
                              struct error *error);
void transfer_pair_end(struct transfer_pair *pair); /* NULL is fine */

/* GB/s of the checksum over pages that are not in the cache. */
double transfer_checksum_speed(const struct transfer_plan *plan);
/* GB/s of copies of so many bytes from and to memory that is not in the cache. */
double transfer_copy_speed(const struct transfer_plan *plan, size_t bytes);

/* ---- one end; bench_transfer_ends.c, for bench_transfer_pair.c ---- */

struct transfer_order {
    enum transfer_part part;
    size_t message_bytes;
    uint64_t message_count;
    uint32_t handoffs;
    struct {
        uint64_t handoff, ticket;
    } reserved[TRANSFER_HANDOFFS_MAX];
};

struct transfer_addresses {
    char plain[128], checked[128], rally[128], raw[128];
};

struct transfer_end;

/* listens: the decode end. The other dials what it is told. */
enum status transfer_end_create(const struct transfer_plan *plan, bool listens,
                                struct transfer_addresses *addresses, struct transfer_end **out,
                                struct error *error);
/* The decode end waits for the raw call of the other, which is made while that end is created. */
enum status transfer_end_meet(struct transfer_end *end, struct error *error);
void transfer_end_destroy(struct transfer_end *end); /* NULL is fine */
/* The decode end sets pages aside and completes the order before both run it. */
enum status transfer_end_prepare(struct transfer_end *end, struct transfer_order *order,
                                 struct error *error);
enum status transfer_end_run(struct transfer_end *end, const struct transfer_order *order,
                             struct transfer_figures *out, struct error *error);

#endif
