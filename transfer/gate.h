/* The gate: both ends of a connection prove that they know the cluster's secret, before anything
 * else is taken from either.
 *
 *   dialling side                                  accepting side
 *   CHALLENGE {nonce, boot id, role}        ->
 *                                           <-     CHALLENGE {nonce, boot id, role, proof}
 *   PROOF {proof}, then its first message   ->
 *
 * A proof is HMAC-SHA256, under a key derived from the secret, over the direction, both roles, both
 * nonces and both boot ids: it is worth nothing in another direction, on another connection or for
 * another life of either process. It says who is at the other end when the connection begins; it
 * does not encrypt, and who can change packets can change what follows. Pure but for the nonces;
 * both the links to routers and the peers of the hand-off stand on it. */
#ifndef BATON_TRANSFER_GATE_H
#define BATON_TRANSFER_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/secret.h"
#include "transfer/wire.h"

enum {
    GATE_ROLE_ROUTER = 3, /* beside the values of enum worker_role */
    GATE_NONCE_BYTES = 32,
    /* The largest frame taken from a stranger: a REJECT with its reason. */
    GATE_PAYLOAD_BYTES_MAX = 600,
};

/* This process; one for all its connections. */
struct gate_self {
    bool shut;     /* false: nobody has to prove anything, and nobody can */
    bool insecure; /* without a secret, addresses beyond this host are fine all the same */
    uint8_t key[SECRET_KEY_BYTES];
    uint8_t tls_key[SECRET_KEY_BYTES]; /* for connections that are encrypted as well */
    uint8_t boot_id[16];
    uint32_t role;
    uint64_t refused; /* connections that ended because the proof was missing or wrong */
};
/* secret_file NULL: without. addresses: what is listened at and dialled; one that is not of this
 * host needs a secret, unless `insecure` (a warning then). INVALID with a sentence otherwise, and
 * whatever secret_load says. */
enum status gate_self_open(struct gate_self *self, const char *secret_file, bool insecure,
                           const uint8_t boot_id[16], uint32_t role, const char *const *addresses,
                           uint32_t address_count, struct error *error);
/* From a secret that is at hand; NULL: without. */
void gate_self_init(struct gate_self *self, const struct secret *secret, const uint8_t boot_id[16],
                    uint32_t role);

enum gate_state {
    GATE_OPEN, /* also where no proof is asked for */
    GATE_AWAITS_CHALLENGE,
    GATE_AWAITS_ANSWER, /* a challenge with a proof */
    GATE_AWAITS_PROOF,
};

/* One connection. */
struct gate {
    enum gate_state state;
    bool proven; /* boot_id and role are those of a process that knows the secret */
    uint8_t ours[GATE_NONCE_BYTES], theirs[GATE_NONCE_BYTES];
    uint8_t boot_id[16]; /* of the other side */
    uint32_t role;
};

/* What to send next; id is MESSAGE_ID_COUNT for nothing. Points into itself: not to be copied. */
struct gate_reply {
    enum message_id id;
    union {
        struct msg_challenge challenge;
        struct msg_proof proof;
    } message;
    uint8_t proof[32];
};

/* Begins; the first message goes out before all others. */
void gate_dial(struct gate *gate, const struct gate_self *self, struct gate_reply *reply);
void gate_accept(struct gate *gate, const struct gate_self *self);
/* May this frame be read in this state? Nothing else of a stranger is looked at. */
bool gate_lets_in(const struct gate *gate, const struct wire_prefix *prefix);
/* Takes a message while the gate is not open. The reply is to be sent first; then, if the state is
 * OPEN, the conversation begins. MISMATCH or CORRUPT with a sentence for both sides, counted in
 * self, when the connection has to end. */
enum status gate_take(struct gate *gate, struct gate_self *self, enum message_id id,
                      const void *message, struct gate_reply *reply, struct error *error);
/* The sentence for a first frame that the state does not let in, counted. */
enum status gate_refuse(struct gate_self *self, struct error *error);
/* OK unless the connection was proven by another process than the one that says it is boot_id. */
enum status gate_check(const struct gate *gate, const uint8_t boot_id[16], struct error *error);

#endif
