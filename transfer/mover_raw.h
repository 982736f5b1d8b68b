/* Active messages without a hand-off around them: the peer that benches hold the hand-off against.
 *
 * One noun, `struct mover_raw`: one end of a connection between two processes, driven by polling
 * alone. Both ends call the same function at the same time with the same counts. Settings, sizes
 * and modes are those of mover_ucx.c; there is no loop, no check, no state. Any one thread. */
#ifndef BATON_TRANSFER_MOVER_RAW_H
#define BATON_TRANSFER_MOVER_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct mover_raw;

/* memory: what is sent from, or received to, message by message from the start and around; the
 * caller's, until close. */
enum status mover_raw_listen(const char *address, void *memory, size_t memory_bytes,
                             struct mover_raw **out, struct error *error);
/* "host:port" to dial, of a listening end. */
const char *mover_raw_address(const struct mover_raw *raw);
/* Waits for the other end to dial. */
enum status mover_raw_accept(struct mover_raw *raw, struct error *error);
enum status mover_raw_dial(const char *address, void *memory, size_t memory_bytes,
                           struct mover_raw **out, struct error *error);
void mover_raw_close(struct mover_raw *raw); /* NULL is fine */

/* `count` messages of `bytes` from the dialling to the listening end, `window` of them in flight,
 * gathered from and scattered to pieces of piece_bytes (0: in one piece), by rendezvous (in one
 * piece only) or eager; over when the listening end has said that it has them all. TIMEOUT after
 * timeout_ms, CLOSED when the other end is gone. */
enum status mover_raw_stream(struct mover_raw *raw, size_t bytes, uint64_t count, uint32_t window,
                             size_t piece_bytes, bool rendezvous, uint32_t timeout_ms,
                             struct error *error);
/* `count` round trips of a message of 64 bytes; the dialling end gets the length of each in ns, the
 * other passes NULL. */
enum status mover_raw_rally(struct mover_raw *raw, uint64_t count, double *ns_out,
                            uint32_t timeout_ms, struct error *error);

#endif
