/* The hand-off over every mover: pages arrive byte for byte or not at all, and all of them are back
 * at the end of each test. */
#include <criterion/criterion.h>

#include <string.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff, name)

EVERY_MOVER(pages_arrive_byte_for_byte)
{
    static const size_t strips[] = {64, 1000, 4096, 65536};
    for (int i = 0; i < 4; i++) {
        struct pair_fix fix;
        fix_init(&fix, ops, 5, strips[i]);
        fix_start(&fix);
        for (uint32_t pages = 1; pages <= 33; pages += 8) {
            struct fix_job *job = fix_run(&fix, pages);
            TURN_UNTIL(fix.loop, job->ended);
            cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
            fix_check(job);
            cr_assert_eq(job->stats.strips, 5u * pages);
            cr_assert_eq(job->stats.bytes, 5u * pages * strips[i]);
            cr_assert(job->stats.first_send_ns > 0 && job->stats.landed_ns > 0);
            fix_release(job);
        }
        struct handoff_totals totals;
        handoff_receiver_totals(fix.decode.receiver, &totals);
        cr_assert_eq(totals.done, 5u);
        cr_assert_eq(totals.failed, 0u);
        fix_end(&fix);
    }
}

EVERY_MOVER(a_page_whose_run_fills_a_message_exactly)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 2, 65536);
    fix.limits.data_bytes_max = 3 * 65536; /* the runs of the source slots */
    fix.limits.flow_bytes = 65536;
    fix_start(&fix);
    struct fix_job *job = fix_run(&fix, 40);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
    fix_check(job);
    fix_end(&fix);
}

EVERY_MOVER(strips_may_come_before_the_grant_and_in_any_order)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 7, 2048);
    fix_start(&fix);
    for (int turn = 0; turn < 20; turn++) {
        struct fix_job *job = fix_reserve(&fix, 1 + (uint32_t)random_below(&fix.random, 30), 5000);
        uint32_t order[7 * FIX_PAGES_MAX];
        const uint32_t count = 7 * job->page_count;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t j = (uint32_t)random_below(&fix.random, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        fix_open(job);
        for (uint32_t i = 0; i < count; i++) {
            fix_post(job, order[i] % 7, order[i] / 7, 1);
            if (i == count / 2)
                fix_first(job);
            if (random_below(&fix.random, 8) == 0)
                loop_run_once(fix.loop, 0);
        }
        TURN_UNTIL(fix.loop, job->ended);
        cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
        fix_check(job);
        fix_release(job);
    }
    fix_end(&fix);
}

EVERY_MOVER(many_hand_offs_at_once)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 4, 16384);
    fix_start(&fix);
    for (uint32_t i = 0; i < 24; i++)
        fix_open(fix_reserve(&fix, 3, 5000));
    for (uint32_t layer = 0; layer < 4; layer++)
        for (uint32_t i = 0; i < 24; i++) {
            fix_post(&fix.jobs[i], layer, 0, 3);
            loop_run_once(fix.loop, 0);
        }
    for (uint32_t i = 0; i < 24; i++)
        fix_first(&fix.jobs[i]);
    TURN_UNTIL(fix.loop, fix.prefill.ended == 24);
    cr_assert_eq(fix.prefill.ended_ok, 24u);
    for (uint32_t i = 0; i < 24; i++)
        fix_check(&fix.jobs[i]);
    fix_end(&fix);
}

/* A short prompt behind a long one does not wait for all of it. */
EVERY_MOVER(a_long_hand_off_does_not_starve_a_short_one)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 24, 65536);
    fix.limits.data_bytes_max = 65536;
    fix.limits.flow_bytes = 4 * 65536;
    fix_start(&fix);
    struct fix_job *warm = fix_run(&fix, 1);
    TURN_UNTIL(fix.loop, warm->ended);
    struct fix_job *longer = fix_run(&fix, 40);
    struct fix_job *shorter = fix_run(&fix, 1);
    TURN_UNTIL(fix.loop, shorter->landed);
    cr_assert_not(longer->landed);
    TURN_UNTIL(fix.loop, longer->ended && shorter->ended);
    fix_check(longer);
    fix_check(shorter);
    fix_end(&fix);
}

/* ---- reserving ---- */

EVERY_MOVER(what_is_not_there_is_not_reserved)
{
    struct pair_fix fix;
    uint64_t handoff, ticket;
    struct error error;
    fix_init(&fix, ops, 2, 64);
    fix.limits.handoffs_max = 3;
    fix_start(&fix);
    fix_reserve(&fix, 40, 100);
    fix_reserve(&fix, 40, 100);
    cr_assert_eq(
        handoff_reserve(fix.decode.receiver, 1, 1, 17, 100, NULL, &handoff, &ticket, &error),
        STATUS_BUSY);
    cr_assert_eq(
        handoff_reserve(fix.decode.receiver, 1, 1, 41, 100, NULL, &handoff, &ticket, &error),
        STATUS_LIMIT);
    cr_assert_eq(
        handoff_reserve(fix.decode.receiver, 1, 1, 0, 100, NULL, &handoff, &ticket, &error),
        STATUS_LIMIT);
    fix_reserve(&fix, 16, 100);
    cr_assert_eq(
        handoff_reserve(fix.decode.receiver, 1, 1, 1, 100, NULL, &handoff, &ticket, &error),
        STATUS_LIMIT);
    cr_assert(strstr(error.text, "3 hand-offs"), "%s", error.text);
    TURN_UNTIL(fix.loop, fix.decode.failed == 3);
    fix_end(&fix);
}

EVERY_MOVER(a_lease_that_ends_gives_the_pages_back)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 2, 64);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 5, 60);
    TURN_UNTIL(fix.loop, job->failed);
    cr_assert_eq(job->failed_status, STATUS_TIMEOUT);
    cr_assert(strstr(job->failed_text, "lease of 60 ms"), "%s", job->failed_text);
    cr_assert(fix_pages_are_back(&fix));
    /* Too late: the offer finds nothing. */
    fix_open(job);
    fix_post_all(job);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_NOT_FOUND);
    cr_assert(strstr(job->ended_text, "lease is over"), "%s", job->ended_text);
    fix_end(&fix);
}

/* A prompt may wait for its turn, or be read, for longer than the lease: the writer renews it. */
EVERY_MOVER(a_writer_that_is_there_keeps_the_lease)
{
    enum { LEASE_MS = 400 };
    struct pair_fix fix;
    fix_init(&fix, ops, 2, 64);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 3, LEASE_MS);
    fix_open(job);
    turn_for(fix.loop, 3 * LEASE_MS);
    fix_post(job, 0, 0, 1);
    turn_for(fix.loop, 3 * LEASE_MS);
    cr_assert(!job->failed && !job->ended, "%s%s", job->failed_text, job->ended_text);
    fix_post(job, 0, 1, 2);
    fix_post(job, 1, 0, 3);
    fix_first(job);
    TURN_UNTIL(fix.loop, job->landed && job->ended);
    cr_assert_eq(job->ended_status, STATUS_OK);
    fix_check(job);
    fix_release(job);
    fix_end(&fix);
}

/* A process that stood still finds its clock far ahead and its peers silent; it is to blame. */
EVERY_MOVER(a_stall_of_ones_own_is_not_the_silence_of_others)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 4, 65536);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 20, 600);
    fix_open(job);
    TURN_UNTIL(fix.loop, fix.decode.reserved_count == 0);
    for (uint32_t layer = 0; layer < 4; layer++) {
        usleep(2 * fix_limits.progress_ms * 1000);
        fix_post(job, layer, 0, 20);
        loop_run_once(fix.loop, 0);
        loop_run_once(fix.loop, 0);
    }
    usleep(2 * fix_limits.progress_ms * 1000);
    fix_first(job);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
    fix_check(job);
    fix_end(&fix);
}

/* ---- aborts, from either side, in every state ---- */

enum abort_when { BEFORE_OPEN, WHEN_OPENED, WHEN_GRANTED, HALFWAY, ALL_POSTED, WHEN_LEFT_COUNT };

static void abort_at(const struct mover_ops *ops, enum abort_when when, bool by_decode,
                     size_t strip_bytes)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 6, strip_bytes);
    fix_start(&fix);
    struct fix_job *other = fix_run(&fix, 4);
    TURN_UNTIL(fix.loop, other->ended);
    struct fix_job *job = fix_reserve(&fix, 20, 5000);
    if (when >= WHEN_OPENED)
        fix_open(job);
    if (when >= WHEN_GRANTED)
        TURN_UNTIL(fix.loop, fix.decode.reserved_count == 0);
    if (when >= HALFWAY)
        for (uint32_t layer = 0; layer < 3; layer++)
            fix_post(job, layer, 0, 20);
    if (when == HALFWAY)
        loop_run_once(fix.loop, 0);
    if (when >= ALL_POSTED) {
        for (uint32_t layer = 3; layer < 6; layer++)
            fix_post(job, layer, 0, 20);
        fix_first(job);
        loop_run_once(fix.loop, 0);
    }
    const bool landed_before = job->landed;
    if (by_decode) {
        handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "the client is gone");
    } else if (job->out) {
        handoff_send_abort(job->out, STATUS_CANCELED, "the client is gone");
    }
    if (when != BEFORE_OPEN) {
        TURN_UNTIL(fix.loop, job->ended && (job->landed || fix.decode.free_count >= FIX_SLOTS - 4));
        if (!job->landed) {
            cr_assert_eq(job->ended_status, STATUS_CANCELED, "%s", job->ended_text);
            if (!(by_decode && when == WHEN_OPENED))
                cr_assert_str_eq(job->ended_text, "the client is gone");
        }
    }
    if (by_decode)
        cr_assert(!job->failed && job->landed == landed_before);
    else if (!job->landed && when > WHEN_OPENED)
        cr_assert_eq(job->failed_status, STATUS_CANCELED);
    /* The pair goes on. */
    if (!job->landed && !job->failed)
        handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    struct fix_job *next = fix_run(&fix, 4);
    TURN_UNTIL(fix.loop, next->ended);
    cr_assert_eq(next->ended_status, STATUS_OK, "%s", next->ended_text);
    fix_check(next);
    fix_end(&fix);
}

EVERY_MOVER(aborts_by_decode_in_every_state)
{
    for (int when = BEFORE_OPEN; when < WHEN_LEFT_COUNT; when++) {
        if (when == WHEN_OPENED)
            continue; /* the offer then meets nothing: below */
        abort_at(ops, (enum abort_when)when, true, 1000);
        abort_at(ops, (enum abort_when)when, true, 65536);
    }
}

EVERY_MOVER(aborts_by_prefill_in_every_state)
{
    for (int when = WHEN_OPENED; when < WHEN_LEFT_COUNT; when++) {
        abort_at(ops, (enum abort_when)when, false, 1000);
        abort_at(ops, (enum abort_when)when, false, 65536);
    }
}

EVERY_MOVER(a_cancelled_reservation_refuses_its_offer)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 2, 64);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 5, 5000);
    fix_open(job);
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "the client is gone");
    cr_assert(fix_pages_are_back(&fix));
    fix_post_all(job);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_NOT_FOUND, "%s", job->ended_text);
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "again");
    handoff_cancel(fix.decode.receiver, 12345, STATUS_CANCELED, "never was");
    cr_assert_not(job->failed);
    fix_end(&fix);
}

/* Aborts at random moments from both sides, many hand-offs at once. */
EVERY_MOVER(abort_storms_leave_nothing_behind)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct pair_fix fix;
        fix_init(&fix, ops, 6, seed % 2 ? 3000 : 65536);
        random_init(&fix.random, seed);
        fix_start(&fix);
        for (int i = 0; i < 12; i++)
            fix_open(fix_reserve(&fix, 6, 5000));
        for (uint32_t layer = 0; layer < 6; layer++)
            for (uint32_t i = 0; i < 12; i++) {
                struct fix_job *job = &fix.jobs[i];
                fix_post(job, layer, 0, 6);
                if (layer == 5)
                    fix_first(job);
                const uint64_t dice = random_below(&fix.random, 24);
                if (dice == 0 && job->out)
                    handoff_send_abort(job->out, STATUS_CANCELED, "by prefill");
                if (dice == 1)
                    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "by decode");
                if (dice < 6)
                    loop_run_once(fix.loop, 0);
            }
        TURN_UNTIL(fix.loop, fix.prefill.ended == 12);
        for (uint32_t i = 0; i < 12; i++) {
            const struct fix_job *job = &fix.jobs[i];
            if (job->ended_status == STATUS_OK)
                fix_check(job);
            /* Given up before it was offered, a reservation ends with its lease or like this. */
            if (!job->landed)
                handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "swept");
        }
        fix_end(&fix);
    }
}

/* ---- who is who ---- */

static void mismatch(const struct mover_ops *ops, void (*change)(struct msg_identity *identity),
                     const char *field)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 2, 64);
    change(&fix.prefill_self.identity);
    fix_start(&fix);
    struct fix_job *job = fix_run(&fix, 3);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH, "%s: %s", field, job->ended_text);
    cr_assert(strstr(job->ended_text, field), "%s: %s", field, job->ended_text);
    cr_assert(strstr(job->ended_text, "on the decode node and"), "%s", job->ended_text);
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&fix);
}

#define CHANGE(name, statement)                                                                    \
    static void change_##name(struct msg_identity *i)                                              \
    {                                                                                              \
        static const uint8_t other[16] = "something else";                                         \
        (void)other;                                                                               \
        statement;                                                                                 \
    }
CHANGE(model, i->model = wire_str("another"))
CHANGE(weights_digest, i->weights_digest.data = other)
CHANGE(tokenizer_digest, i->tokenizer_digest.data = other)
CHANGE(profile_id, i->profile_id++)
CHANGE(probe_digest, i->probe_digest++)
CHANGE(version, i->layout.version++)
CHANGE(layers, i->layout.layers++)
CHANGE(kv_heads, i->layout.kv_heads++)
CHANGE(head_dim, i->layout.head_dim++)
CHANGE(page_tokens, i->layout.page_tokens = 16)
CHANGE(dtype, i->layout.dtype++)
CHANGE(layout_id, i->layout.layout_id++)
CHANGE(window, i->layout.window = 4096)
CHANGE(head_first, i->head_first++)
CHANGE(head_count, i->head_count--)
CHANGE(rank, i->rank++)
CHANGE(rank_count, i->rank_count++)
CHANGE(revision, i->revision = wire_str("v2"))
CHANGE(scale_layout, i->scale_layout++)
CHANGE(rope_pairing, i->rope_pairing++)
CHANGE(rope_rotary, i->rope_rotary++)
CHANGE(rope_base, i->rope_base = 500000.0F)

EVERY_MOVER(every_difference_is_refused_by_name)
{
    mismatch(ops, change_model, "identity.model is \"tiny\" on");
    mismatch(ops, change_weights_digest, "identity.weights_digest is 776569676874732d");
    mismatch(ops, change_tokenizer_digest, "identity.tokenizer_digest");
    mismatch(ops, change_profile_id, "identity.profile_id is 000000000000000b");
    mismatch(ops, change_probe_digest, "identity.probe_digest");
    mismatch(ops, change_version, "layout.version is 1 on");
    mismatch(ops, change_layers, "layout.layers is 5 on");
    mismatch(ops, change_kv_heads, "layout.kv_heads");
    mismatch(ops, change_head_dim, "layout.head_dim");
    mismatch(ops, change_page_tokens, "layout.page_tokens is 64 on");
    mismatch(ops, change_dtype, "layout.dtype");
    mismatch(ops, change_layout_id, "layout.layout_id");
    mismatch(ops, change_window, "layout.window");
    mismatch(ops, change_head_first, "identity.head_first");
    mismatch(ops, change_head_count, "identity.head_count");
    mismatch(ops, change_rank, "identity.rank is");
    mismatch(ops, change_rank_count, "identity.rank_count");
    mismatch(ops, change_revision, "identity.revision is nothing on");
    mismatch(ops, change_scale_layout, "identity.scale_layout");
    mismatch(ops, change_rope_pairing, "identity.rope_pairing");
    mismatch(ops, change_rope_rotary, "identity.rope_rotary");
    mismatch(ops, change_rope_base, "identity.rope_base is 0 on the decode node and 500000 on");
}

EVERY_MOVER(another_boot_is_refused)
{
    struct pair_fix fix;
    struct error error;
    fix_init(&fix, ops, 2, 64);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 3, 5000);
    struct handoff_target target = fix_target(job);
    memset(target.boot_id, 0x77, 16);
    cr_assert_eq(handoff_send_open(fix.prefill.sender, &target, job, &job->out, &error), STATUS_OK);
    fix_post_all(job);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH, "%s", job->ended_text);
    cr_assert(strstr(job->ended_text, "boot_id is d0d0d0d0"), "%s", job->ended_text);
    /* A stale reference does not disturb the right one. */
    struct fix_job *right = fix_run(&fix, 3);
    TURN_UNTIL(fix.loop, right->ended);
    cr_assert_eq(right->ended_status, STATUS_OK, "%s", right->ended_text);
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&fix);
}

/* ---- loss ---- */

EVERY_MOVER(decode_goes_away_and_comes_back_as_another_boot)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 4, 65536);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 20, 5000);
    fix_open(job);
    TURN_UNTIL(fix.loop, fix.decode.reserved_count == 0);
    fix_post(job, 0, 0, 20);
    fix_post(job, 1, 0, 20);
    loop_run_once(fix.loop, 0);
    handoff_receiver_destroy(fix.decode.receiver);
    cr_assert(fix_pages_are_back(&fix));
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_CLOSED, "%s", job->ended_text);
    memset(fix.decode_self.boot_id, 0xd1, 16);
    fix_start_decode(&fix);
    struct fix_job *next = fix_run(&fix, 5);
    TURN_UNTIL(fix.loop, next->ended);
    cr_assert_eq(next->ended_status, STATUS_OK, "%s", next->ended_text);
    fix_check(next);
    fix_end(&fix);
}

EVERY_MOVER(prefill_goes_away)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 4, 65536);
    fix_start(&fix);
    for (int i = 0; i < 3; i++) {
        struct fix_job *job = fix_reserve(&fix, 10, 5000);
        fix_open(job);
        fix_post(job, 0, 0, 10);
        fix_post(job, 1, 0, 10);
    }
    TURN_UNTIL(fix.loop, fix.decode.reserved_count == 0);
    handoff_sender_destroy(fix.prefill.sender);
    TURN_UNTIL(fix.loop, fix.decode.failed == 3);
    cr_assert_eq(fix.jobs[0].failed_status, STATUS_CLOSED, "%s", fix.jobs[0].failed_text);
    TURN_UNTIL(fix.loop, fix_pages_are_back(&fix));
    fix_start_prefill(&fix);
    struct fix_job *next = fix_run(&fix, 5);
    TURN_UNTIL(fix.loop, next->ended);
    fix_check(next);
    fix_end(&fix);
}

EVERY_MOVER(nobody_at_the_address)
{
    struct pair_fix fix;
    struct error error;
    fix_init(&fix, ops, 2, 64);
    fix_start(&fix);
    for (int i = 0; i < 3; i++) { /* the second and third wait for the back-off */
        struct fix_job *job = fix_reserve(&fix, 3, 5000);
        struct handoff_target target = fix_target(job);
        target.address = "127.0.0.1:1";
        cr_assert_eq(handoff_send_open(fix.prefill.sender, &target, job, &job->out, &error),
                     STATUS_OK);
        TURN_UNTIL(fix.loop, job->ended);
        cr_assert(job->ended_status == STATUS_CLOSED || job->ended_status == STATUS_TIMEOUT);
        cr_assert(strstr(job->ended_text, "reached") || strstr(job->ended_text, "connection"), "%s",
                  job->ended_text);
        handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    }
    fix_end(&fix);
}

EVERY_MOVER(wrong_posts_end_only_their_own_hand_off)
{
    struct pair_fix fix;
    fix_init(&fix, ops, 3, 64);
    fix_start(&fix);
    for (int i = 0; i < 5; i++) {
        struct fix_job *job = fix_reserve(&fix, 4, 5000);
        fix_open(job);
        const uint32_t bad_slot = FIX_SLOTS;
        switch (i) {
        case 0:
            fix_post(job, 3, 0, 4); /* no such layer */
            break;
        case 1:
            handoff_send_strips(job->out, 0, job->first_page, 5, job->source_slots);
            break;
        case 2:
            fix_post(job, 0, 0, 2);
            fix_post(job, 0, 1, 1); /* twice */
            break;
        case 3:
            handoff_send_strips(job->out, 0, job->first_page, 1, &bad_slot);
            break;
        case 4:
            fix_post(job, 0, 0, 1);
            handoff_send_strips(job->out, 1, job->first_page, 1, job->source_slots + 1);
            break;
        }
        TURN_UNTIL(fix.loop, job->ended);
        cr_assert_eq(job->ended_status, STATUS_INVALID, "case %d: %s", i, job->ended_text);
        TURN_UNTIL(fix.loop, job->failed || fix.decode.reserved_count > 0);
        handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
        TURN_UNTIL(fix.loop, fix_pages_are_back(&fix));
    }
    struct fix_job *next = fix_run(&fix, 4);
    TURN_UNTIL(fix.loop, next->ended);
    cr_assert_eq(next->ended_status, STATUS_OK, "%s", next->ended_text);
    fix_check(next);
    fix_end(&fix);
}
