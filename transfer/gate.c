#include "transfer/gate.h"

#include <string.h>

#include "base/check.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stream.h"
#include "transfer/wire_internal.h"

/* Who may talk to whom, as bits of roles. */
static const uint32_t partners[] = {
    [WORKER_PREFILL] = 1u << WORKER_DECODE | 1u << GATE_ROLE_ROUTER,
    [WORKER_DECODE] = 1u << WORKER_PREFILL | 1u << GATE_ROLE_ROUTER,
    [GATE_ROLE_ROUTER] = 1u << WORKER_PREFILL | 1u << WORKER_DECODE,
};

enum direction { BY_DIALLER = 1, BY_ACCEPTOR = 2 };

_Static_assert(sizeof((struct gate_reply *)0)->proof == CRYPTO_MAC_BYTES, "a proof is a digest");

void gate_self_init(struct gate_self *self, const struct secret *secret, const uint8_t boot_id[16],
                    uint32_t role)
{
    CHECK(role < ARRAY_COUNT(partners) && partners[role] != 0);
    *self = (struct gate_self){.shut = secret != NULL, .role = role};
    memcpy(self->boot_id, boot_id, sizeof self->boot_id);
    if (secret) {
        secret_key(secret, "baton gate 1", self->key);
        secret_key(secret, "baton tls 1", self->tls_key);
    }
}

enum status gate_self_open(struct gate_self *self, const char *secret_file, bool insecure,
                           const uint8_t boot_id[16], uint32_t role, const char *const *addresses,
                           uint32_t address_count, struct error *error)
{
    if (secret_file) {
        struct secret secret;
        TRY(secret_load(secret_file, &secret, error));
        gate_self_init(self, &secret, boot_id, role);
        crypto_wipe(&secret, sizeof secret);
        return STATUS_OK;
    }
    gate_self_init(self, NULL, boot_id, role);
    self->insecure = insecure;
    for (uint32_t i = 0; i < address_count; i++) {
        if (stream_address_is_loopback(addresses[i]))
            continue;
        if (!insecure)
            return error_set(error, STATUS_INVALID,
                             "%s is not of this host alone: give all nodes of the cluster one "
                             "--secret-file, or --insecure",
                             addresses[i]);
        LOG_WARN("without a secret whoever reaches %s can take part in this cluster", addresses[i]);
        break;
    }
    return STATUS_OK;
}

/* The digest that one side shows the other; all fields have a fixed length. */
static void prove(const struct gate *gate, const struct gate_self *self, bool we_dialled,
                  enum direction by, uint8_t out[CRYPTO_MAC_BYTES])
{
    uint8_t text[3 + 2 * GATE_NONCE_BYTES + 2 * 16];
    uint8_t *at = text;
    *at++ = (uint8_t)by;
    *at++ = (uint8_t)(we_dialled ? self->role : gate->role);
    *at++ = (uint8_t)(we_dialled ? gate->role : self->role);
    memcpy(at, we_dialled ? gate->ours : gate->theirs, GATE_NONCE_BYTES);
    at += GATE_NONCE_BYTES;
    memcpy(at, we_dialled ? gate->theirs : gate->ours, GATE_NONCE_BYTES);
    at += GATE_NONCE_BYTES;
    memcpy(at, we_dialled ? self->boot_id : gate->boot_id, 16);
    at += 16;
    memcpy(at, we_dialled ? gate->boot_id : self->boot_id, 16);
    at += 16;
    CHECK((size_t)(at - text) == sizeof text);
    crypto_mac(self->key, sizeof self->key, text, sizeof text, out);
}

static void challenge(const struct gate *gate, const struct gate_self *self,
                      struct gate_reply *reply)
{
    reply->id = MESSAGE_ID_CHALLENGE;
    reply->message.challenge = (struct msg_challenge){
        .nonce = {gate->ours, sizeof gate->ours},
        .boot_id = {self->boot_id, sizeof self->boot_id},
        .role = self->role,
    };
}

void gate_dial(struct gate *gate, const struct gate_self *self, struct gate_reply *reply)
{
    *gate = (struct gate){.state = GATE_OPEN};
    reply->id = MESSAGE_ID_COUNT;
    if (!self || !self->shut)
        return;
    gate->state = GATE_AWAITS_ANSWER;
    random_os_bytes(gate->ours, sizeof gate->ours);
    challenge(gate, self, reply);
}

void gate_accept(struct gate *gate, const struct gate_self *self)
{
    *gate = (struct gate){.state = GATE_OPEN};
    if (!self || !self->shut)
        return;
    gate->state = GATE_AWAITS_CHALLENGE;
    random_os_bytes(gate->ours, sizeof gate->ours);
}

bool gate_lets_in(const struct gate *gate, const struct wire_prefix *prefix)
{
    static const enum message_id known[] = {MESSAGE_ID_CHALLENGE, MESSAGE_ID_PROOF,
                                            MESSAGE_ID_REJECT};
    if (gate->state == GATE_OPEN)
        return true;
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (prefix->type == wire_message(known[i])->type)
            return prefix->payload_bytes <= GATE_PAYLOAD_BYTES_MAX;
    return false;
}

enum status gate_refuse(struct gate_self *self, struct error *error)
{
    self->refused++;
    return error_set(error, STATUS_MISMATCH,
                     "the other side has to prove the cluster's secret first: start it with the "
                     "same --secret-file");
}

static enum status wrong(struct gate_self *self, struct error *error)
{
    self->refused++;
    return error_set(error, STATUS_MISMATCH,
                     "the proof of the cluster's secret is wrong: both sides need the same "
                     "--secret-file");
}

/* Whose challenge it is. One that comes back to its maker is refused like any other fault. */
static enum status take_challenge(struct gate *gate, struct gate_self *self,
                                  const struct msg_challenge *message, struct error *error)
{
    if (message->nonce.bytes != GATE_NONCE_BYTES || message->boot_id.bytes != 16) {
        self->refused++;
        return error_set(error, STATUS_CORRUPT,
                         "a challenge has a nonce of %u bytes and a boot id of %u, not %d and 16",
                         message->nonce.bytes, message->boot_id.bytes, GATE_NONCE_BYTES);
    }
    if (message->role > GATE_ROLE_ROUTER || !(partners[self->role] >> message->role & 1)) {
        self->refused++;
        return error_set(error, STATUS_MISMATCH,
                         "a process of role %u has no business with role %u", message->role,
                         self->role);
    }
    if (crypto_equal(message->boot_id.data, self->boot_id, 16) ||
        crypto_equal(message->nonce.data, gate->ours, GATE_NONCE_BYTES)) {
        self->refused++;
        return error_set(error, STATUS_MISMATCH, "a challenge came back to the one that made it");
    }
    memcpy(gate->theirs, message->nonce.data, GATE_NONCE_BYTES);
    memcpy(gate->boot_id, message->boot_id.data, 16);
    gate->role = message->role;
    return STATUS_OK;
}

static enum status take_proof(const struct gate *gate, struct gate_self *self, bool we_dialled,
                              struct wire_bin proof, struct error *error)
{
    uint8_t wanted[CRYPTO_MAC_BYTES];
    prove(gate, self, we_dialled, we_dialled ? BY_ACCEPTOR : BY_DIALLER, wanted);
    const bool right =
        proof.bytes == sizeof wanted && crypto_equal(proof.data, wanted, sizeof wanted);
    crypto_wipe(wanted, sizeof wanted);
    return right ? STATUS_OK : wrong(self, error);
}

enum status gate_take(struct gate *gate, struct gate_self *self, enum message_id id,
                      const void *message, struct gate_reply *reply, struct error *error)
{
    const struct msg_challenge *theirs = message;
    reply->id = MESSAGE_ID_COUNT;
    if (gate->state == GATE_AWAITS_CHALLENGE && id == MESSAGE_ID_CHALLENGE) {
        TRY(take_challenge(gate, self, theirs, error));
        challenge(gate, self, reply);
        prove(gate, self, false, BY_ACCEPTOR, reply->proof);
        reply->message.challenge.proof = (struct wire_bin){reply->proof, sizeof reply->proof};
        gate->state = GATE_AWAITS_PROOF;
        return STATUS_OK;
    }
    if (gate->state == GATE_AWAITS_ANSWER && id == MESSAGE_ID_CHALLENGE) {
        TRY(take_challenge(gate, self, theirs, error));
        TRY(take_proof(gate, self, true, theirs->proof, error));
        prove(gate, self, true, BY_DIALLER, reply->proof);
        reply->id = MESSAGE_ID_PROOF;
        reply->message.proof.proof = (struct wire_bin){reply->proof, sizeof reply->proof};
    } else if (gate->state == GATE_AWAITS_PROOF && id == MESSAGE_ID_PROOF) {
        TRY(take_proof(gate, self, false, ((const struct msg_proof *)message)->proof, error));
    } else {
        return gate_refuse(self, error);
    }
    gate->state = GATE_OPEN;
    gate->proven = true;
    return STATUS_OK;
}

enum status gate_check(const struct gate *gate, const uint8_t boot_id[16], struct error *error)
{
    if (!gate->proven || memcmp(gate->boot_id, boot_id, 16) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_MISMATCH,
                     "the boot id of the greeting is not the one that proved the secret");
}
