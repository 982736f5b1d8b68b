/* Prefill and decode nodes with and without the cluster's secret, over every mover. */
#include <criterion/criterion.h>

#include <string.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff_gate, name)

struct gated {
    struct pair_fix fix;
    struct gate_self decode, prefill;
};

/* A secret of 16 bytes each; NULL: none. */
static void gated_start(struct gated *gated, const struct mover_ops *ops, const char *decode,
                        const char *prefill)
{
    struct secret secret = {.count = 16};
    struct pair_fix *fix = &gated->fix;
    fix_init(fix, ops, 3, 4096);
    if (decode)
        memcpy(secret.bytes, decode, 16);
    gate_self_init(&gated->decode, decode ? &secret : NULL, fix->decode_self.boot_id,
                   WORKER_DECODE);
    if (prefill)
        memcpy(secret.bytes, prefill, 16);
    gate_self_init(&gated->prefill, prefill ? &secret : NULL, fix->prefill_self.boot_id,
                   WORKER_PREFILL);
    fix->decode_self.gate = &gated->decode;
    fix->prefill_self.gate = &gated->prefill;
    fix_start(fix);
}

EVERY_MOVER(pages_move_between_those_that_share_it)
{
    static struct gated gated;
    gated_start(&gated, ops, "one secret of 16", "one secret of 16");
    for (int i = 0; i < 3; i++) {
        struct fix_job *job = fix_run(&gated.fix, 7);
        TURN_UNTIL(gated.fix.loop, job->ended);
        cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
        fix_check(job);
        fix_release(job);
    }
    cr_assert_eq(gated.decode.refused + gated.prefill.refused, 0u);
    fix_end(&gated.fix);
}

/* Whichever side lacks it: no page moves, the reason reaches the hand-off, all pages come back. */
static void refused(const struct mover_ops *ops, const char *decode, const char *prefill,
                    uint64_t by_decode, uint64_t by_prefill)
{
    static struct gated gated;
    memset(&gated, 0, sizeof gated);
    gated_start(&gated, ops, decode, prefill);
    struct fix_job *job = fix_run(&gated.fix, 7);
    TURN_UNTIL(gated.fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH, "%s", job->ended_text);
    cr_assert(strstr(job->ended_text, "--secret-file"), "%s", job->ended_text);
    cr_assert_eq(gated.decode.refused, by_decode);
    cr_assert_eq(gated.prefill.refused, by_prefill);
    cr_assert_not(job->landed);
    handoff_cancel(gated.fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    TURN_UNTIL(gated.fix.loop, fix_pages_are_back(&gated.fix));
    fix_end(&gated.fix);
}

EVERY_MOVER(another_secret_is_refused)
{
    refused(ops, "one secret of 16", "two secret of 16", 0, 1);
}

EVERY_MOVER(a_prefill_node_without_it_is_refused)
{
    refused(ops, "one secret of 16", NULL, 1, 0);
}

EVERY_MOVER(a_decode_node_without_it_is_refused)
{
    refused(ops, NULL, "one secret of 16", 0, 0);
}

/* A node that proved one boot id and greets with another is none of ours. */
EVERY_MOVER(the_boot_id_that_greets_is_the_one_that_was_proven)
{
    static struct gated gated;
    memset(&gated, 0, sizeof gated);
    gated_start(&gated, ops, "one secret of 16", "one secret of 16");
    gated.prefill.boot_id[3] ^= 1;
    struct fix_job *job = fix_run(&gated.fix, 2);
    TURN_UNTIL(gated.fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH, "%s", job->ended_text);
    cr_assert(strstr(job->ended_text, "boot id"), "%s", job->ended_text);
    handoff_cancel(gated.fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&gated.fix);
}

EVERY_MOVER(addresses_beyond_this_host_are_not_dialled_without_it)
{
    static struct gated gated;
    struct error error;
    memset(&gated, 0, sizeof gated);
    gated_start(&gated, ops, NULL, NULL);
    struct fix_job *job = fix_reserve(&gated.fix, 2, 5000);
    struct handoff_target target = fix_target(job);
    target.address = "192.0.2.1:9"; /* RFC 5737: nobody's */
    cr_assert_eq(handoff_send_open(gated.fix.prefill.sender, &target, job, &job->out, &error),
                 STATUS_REFUSED);
    cr_assert(strstr(error.text, "192.0.2.1:9") && strstr(error.text, "--secret-file"), "%s",
              error.text);
    handoff_cancel(gated.fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&gated.fix);
}
