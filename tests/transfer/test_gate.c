/* Who gets through the gate, played message by message, with everything an attacker could do with
 * what it has heard or holds itself. */
#include <criterion/criterion.h>

#include <string.h>

#include "base/check.h"
#include "transfer/gate.h"

static const struct secret right = {.bytes = "the right secret", .count = 16};
static const struct secret wrong = {.bytes = "the wrong secret", .count = 16};

struct side {
    struct gate_self self;
    struct gate gate;
    struct gate_reply said; /* the last one */
    struct error error;
};

static void side_init(struct side *side, const struct secret *secret, uint32_t role, uint8_t boot)
{
    const uint8_t boot_id[16] = {boot, 1, 2, 3};
    memset(side, 0, sizeof *side);
    gate_self_init(&side->self, secret, boot_id, role);
}

static enum status hear(struct side *side, const struct gate_reply *reply)
{
    cr_assert_neq(reply->id, MESSAGE_ID_COUNT);
    return gate_take(&side->gate, &side->self, reply->id, &reply->message, &side->said,
                     &side->error);
}

/* Both sides to the end, or to the first fault. */
static enum status meet(struct side *dialler, struct side *acceptor)
{
    gate_dial(&dialler->gate, &dialler->self, &dialler->said);
    gate_accept(&acceptor->gate, &acceptor->self);
    TRY(hear(acceptor, &dialler->said));
    TRY(hear(dialler, &acceptor->said));
    return hear(acceptor, &dialler->said);
}

static void expect_shut(const struct side *side)
{
    cr_expect_neq(side->gate.state, GATE_OPEN);
    cr_expect_not(side->gate.proven);
}

Test(gate, opens_for_both_who_know_the_secret)
{
    static const uint32_t pairs[][2] = {{WORKER_PREFILL, GATE_ROLE_ROUTER},
                                        {WORKER_DECODE, GATE_ROLE_ROUTER},
                                        {WORKER_PREFILL, WORKER_DECODE}};
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct side a, b;
        side_init(&a, &right, pairs[i][0], 1);
        side_init(&b, &right, pairs[i][1], 2);
        cr_assert_eq(meet(&a, &b), STATUS_OK, "%s%s", a.error.text, b.error.text);
        cr_expect(a.gate.state == GATE_OPEN && a.gate.proven && a.gate.role == pairs[i][1]);
        cr_expect(b.gate.state == GATE_OPEN && b.gate.proven && b.gate.role == pairs[i][0]);
        cr_expect_eq(gate_check(&b.gate, a.self.boot_id, NULL), STATUS_OK);
        cr_expect_eq(gate_check(&b.gate, b.self.boot_id, NULL), STATUS_MISMATCH);
        cr_expect_eq(a.self.refused + b.self.refused, 0);
    }
}

Test(gate, is_open_where_there_is_no_secret)
{
    struct side a;
    side_init(&a, NULL, WORKER_PREFILL, 1);
    gate_dial(&a.gate, &a.self, &a.said);
    cr_expect(a.gate.state == GATE_OPEN && a.said.id == MESSAGE_ID_COUNT && !a.gate.proven);
    gate_accept(&a.gate, NULL);
    cr_expect_eq(a.gate.state, GATE_OPEN);
    const uint8_t any[16] = {9};
    cr_expect_eq(gate_check(&a.gate, any, NULL), STATUS_OK);
}

Test(gate, another_secret_is_found_by_the_side_that_dials)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &wrong, GATE_ROLE_ROUTER, 2);
    cr_expect_eq(meet(&a, &b), STATUS_MISMATCH);
    cr_expect_not_null(strstr(a.error.text, "--secret-file"));
    cr_expect_eq(a.self.refused, 1);
    expect_shut(&a);
    expect_shut(&b);
}

Test(gate, a_dialler_that_goes_on_with_a_wrong_proof_is_found)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    for (size_t bit = 0; bit < 8 * sizeof a.said.proof; bit++) {
        gate_dial(&a.gate, &a.self, &a.said);
        gate_accept(&b.gate, &b.self);
        cr_assert_eq(hear(&b, &a.said), STATUS_OK);
        cr_assert_eq(hear(&a, &b.said), STATUS_OK);
        a.said.proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_expect_eq(hear(&b, &a.said), STATUS_MISMATCH);
        expect_shut(&b);
    }
    cr_expect_eq(b.self.refused, 8 * sizeof a.said.proof);
}

Test(gate, a_proof_cut_short_or_missing_is_none)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    for (uint32_t bytes = 0; bytes < 32; bytes++) {
        gate_dial(&a.gate, &a.self, &a.said);
        gate_accept(&b.gate, &b.self);
        cr_assert_eq(hear(&b, &a.said), STATUS_OK);
        cr_assert_eq(hear(&a, &b.said), STATUS_OK);
        a.said.message.proof.proof.bytes = bytes;
        cr_expect_eq(hear(&b, &a.said), STATUS_MISMATCH);
    }
    gate_dial(&a.gate, &a.self, &a.said);
    gate_accept(&b.gate, &b.self);
    cr_assert_eq(hear(&b, &a.said), STATUS_OK);
    b.said.message.challenge.proof = (struct wire_bin){NULL, 0};
    cr_expect_eq(hear(&a, &b.said), STATUS_MISMATCH);
    expect_shut(&a);
}

/* Everything one side said in an earlier connection is worth nothing in the next. */
Test(gate, what_was_heard_cannot_be_played_again)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    uint8_t nonce[32], proof[32], answer_nonce[32], answer_proof[32];
    gate_dial(&a.gate, &a.self, &a.said);
    memcpy(nonce, a.gate.ours, 32);
    gate_accept(&b.gate, &b.self);
    cr_assert_eq(hear(&b, &a.said), STATUS_OK);
    memcpy(answer_nonce, b.gate.ours, 32);
    memcpy(answer_proof, b.said.proof, 32);
    cr_assert_eq(hear(&a, &b.said), STATUS_OK);
    memcpy(proof, a.said.proof, 32);
    cr_assert_eq(hear(&b, &a.said), STATUS_OK);

    /* To the router as the worker. */
    gate_accept(&b.gate, &b.self);
    struct gate_reply replay = {.id = MESSAGE_ID_CHALLENGE};
    replay.message.challenge = (struct msg_challenge){
        .nonce = {nonce, 32}, .boot_id = {a.self.boot_id, 16}, .role = WORKER_PREFILL};
    cr_assert_eq(hear(&b, &replay), STATUS_OK);
    cr_expect_neq(memcmp(b.gate.ours, answer_nonce, 32), 0);
    replay.id = MESSAGE_ID_PROOF;
    replay.message.proof.proof = (struct wire_bin){proof, 32};
    cr_expect_eq(hear(&b, &replay), STATUS_MISMATCH);
    expect_shut(&b);

    /* To the worker as the router. */
    gate_dial(&a.gate, &a.self, &a.said);
    replay.id = MESSAGE_ID_CHALLENGE;
    replay.message.challenge = (struct msg_challenge){.nonce = {answer_nonce, 32},
                                                      .boot_id = {b.self.boot_id, 16},
                                                      .role = GATE_ROLE_ROUTER,
                                                      .proof = {answer_proof, 32}};
    cr_expect_eq(hear(&a, &replay), STATUS_MISMATCH);
    expect_shut(&a);
}

/* A stranger that answers a challenge with what another end of the same cluster makes of it. */
Test(gate, a_challenge_sent_back_proves_nothing)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    gate_dial(&a.gate, &a.self, &a.said);
    struct gate_reply own = a.said;
    cr_expect_eq(hear(&a, &own), STATUS_MISMATCH);
    expect_shut(&a);

    /* The same boot id under another nonce. */
    gate_dial(&a.gate, &a.self, &a.said);
    uint8_t nonce[32] = {1};
    own = a.said;
    own.message.challenge.nonce = (struct wire_bin){nonce, 32};
    own.message.challenge.role = GATE_ROLE_ROUTER;
    cr_expect_eq(hear(&a, &own), STATUS_MISMATCH);

    /* The acceptor's proof, sent back to it as the dialler's. */
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    gate_dial(&a.gate, &a.self, &a.said);
    gate_accept(&b.gate, &b.self);
    cr_assert_eq(hear(&b, &a.said), STATUS_OK);
    struct gate_reply echo = {.id = MESSAGE_ID_PROOF};
    memcpy(echo.proof, b.said.proof, 32);
    echo.message.proof.proof = (struct wire_bin){echo.proof, 32};
    cr_expect_eq(hear(&b, &echo), STATUS_MISMATCH);
    expect_shut(&b);
}

/* What the proof covers: another boot id or role in place of the one that was proven. */
Test(gate, a_challenge_changed_on_its_way_is_found)
{
    struct side a, b;
    uint8_t other[16] = {77};
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    for (int what = 0; what < 2; what++) {
        gate_dial(&a.gate, &a.self, &a.said);
        gate_accept(&b.gate, &b.self);
        struct gate_reply changed = a.said;
        if (what == 0)
            changed.message.challenge.boot_id = (struct wire_bin){other, 16};
        else
            changed.message.challenge.role = WORKER_DECODE;
        cr_assert_eq(hear(&b, &changed), STATUS_OK);
        cr_expect_eq(hear(&a, &b.said), STATUS_MISMATCH);
        expect_shut(&a);
    }
}

Test(gate, roles_that_never_meet_are_refused)
{
    static const uint32_t pairs[][2] = {{WORKER_PREFILL, WORKER_PREFILL},
                                        {WORKER_DECODE, WORKER_DECODE},
                                        {GATE_ROLE_ROUTER, GATE_ROLE_ROUTER}};
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct side a, b;
        side_init(&a, &right, pairs[i][0], 1);
        side_init(&b, &right, pairs[i][1], 2);
        cr_expect_eq(meet(&a, &b), STATUS_MISMATCH);
        cr_expect_not_null(strstr(b.error.text, "role"));
    }
}

Test(gate, messages_out_of_turn_are_refused)
{
    struct side a, b;
    side_init(&a, &right, WORKER_PREFILL, 1);
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    const struct gate_reply proof = {.id = MESSAGE_ID_PROOF};
    const struct gate_reply hello = {.id = MESSAGE_ID_HELLO};
    gate_accept(&b.gate, &b.self);
    cr_expect_eq(hear(&b, &proof), STATUS_MISMATCH);
    gate_accept(&b.gate, &b.self);
    cr_expect_eq(hear(&b, &hello), STATUS_MISMATCH);
    gate_dial(&a.gate, &a.self, &a.said);
    cr_expect_eq(hear(&a, &proof), STATUS_MISMATCH);
    /* A second challenge in place of the proof. */
    gate_dial(&a.gate, &a.self, &a.said);
    gate_accept(&b.gate, &b.self);
    cr_assert_eq(hear(&b, &a.said), STATUS_OK);
    cr_expect_eq(hear(&b, &a.said), STATUS_MISMATCH);
    expect_shut(&b);
    /* Nonces and boot ids of another length. */
    gate_accept(&b.gate, &b.self);
    a.said.message.challenge.nonce.bytes = 31;
    cr_expect_eq(hear(&b, &a.said), STATUS_CORRUPT);
    cr_expect_not_null(strstr(b.error.text, "31"));
}

Test(gate, a_stranger_is_not_listened_to_for_long)
{
    struct side b;
    side_init(&b, &right, GATE_ROLE_ROUTER, 2);
    gate_accept(&b.gate, &b.self);
    cr_expect(gate_lets_in(&b.gate, &(struct wire_prefix){.type = 7, .payload_bytes = 90}));
    cr_expect_not(gate_lets_in(
        &b.gate, &(struct wire_prefix){.type = 7, .payload_bytes = GATE_PAYLOAD_BYTES_MAX + 1}));
    cr_expect_not(gate_lets_in(&b.gate, &(struct wire_prefix){.type = 1, .payload_bytes = 90}));
    cr_expect_not(gate_lets_in(&b.gate, &(struct wire_prefix){.type = 4242}));
}

static enum status open_with(const char *address, bool insecure, struct error *error)
{
    const uint8_t boot_id[16] = {1};
    struct gate_self self;
    return gate_self_open(&self, NULL, insecure, boot_id, WORKER_DECODE, &address, 1, error);
}

Test(gate, addresses_beyond_this_host_need_a_secret)
{
    static const char *const here[] = {"127.0.0.1:0", "127.9.8.7:1", "[::1]:7", "localhost:9"};
    static const char *const beyond[] = {"10.0.0.1:1", "0.0.0.0:1", "[::]:1",
                                         ":1",         "node-7:1",  "128.0.0.1:1"};
    struct error error;
    for (size_t i = 0; i < ARRAY_COUNT(here); i++)
        cr_expect_eq(open_with(here[i], false, &error), STATUS_OK, "%s", error.text);
    for (size_t i = 0; i < ARRAY_COUNT(beyond); i++) {
        cr_expect_eq(open_with(beyond[i], false, &error), STATUS_INVALID);
        cr_expect(strstr(error.text, beyond[i]) && strstr(error.text, "--secret-file"), "%s",
                  error.text);
        cr_expect_eq(open_with(beyond[i], true, &error), STATUS_OK);
    }
}
