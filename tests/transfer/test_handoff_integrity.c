/* What the data path promises: damage is found, what is held is not sent, nobody starves. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"
#include "transfer/fault.h"
#include "transfer/handoff_internal.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff_integrity, name)

/* At either end of the way: both ends end it, the pages come back, it is counted, and the next one
 * is well. */
EVERY_MOVER(damaged_pages_end_a_hand_off)
{
    static const char *const specs[] = {"data-send:2:corrupt", "data-receive:1:corrupt"};
    for (int i = 0; i < 2; i++) {
        static struct pair_fix fix;
        struct handoff_totals totals;
        struct error error;
        log_init("test", LOG_LEVEL_ERROR);
        cr_assert_eq(fault_arm(specs[i], true, &error), STATUS_OK, "%s", error.text);
        fix_init(&fix, mover_with_faults(ops), 4, 65536);
        fix_start(&fix);
        struct fix_job *job = fix_run(&fix, 9);
        TURN_UNTIL(fix.loop, job->ended && job->failed);
        cr_assert_not(job->landed);
        cr_assert_eq(job->failed_status, STATUS_CORRUPT);
        cr_assert_eq(job->ended_status, STATUS_CORRUPT);
        cr_assert(strstr(job->failed_text, "checksum") && strstr(job->failed_text, " here and "),
                  "%s", job->failed_text);
        TURN_UNTIL(fix.loop, fix_pages_are_back(&fix));
        handoff_receiver_totals(fix.decode.receiver, &totals);
        cr_assert_eq(totals.checksum_faults, 1u);
        cr_assert_eq(totals.failures[HANDOFF_REASON_CORRUPT], 1u);
        struct fix_job *next = fix_run(&fix, 9);
        TURN_UNTIL(fix.loop, next->ended);
        cr_assert_eq(next->ended_status, STATUS_OK, "%s", next->ended_text);
        fix_check(next);
        fix_end(&fix);
    }
}

/* Both ends compute it with the same code, so no hand-off would show that something is left out. */
Test(handoff_integrity, a_checksum_binds_bytes_to_what_they_are)
{
    enum { STRIP_BYTES = 24, SLOTS = 4 };
    static uint8_t memory[2 * SLOTS * STRIP_BYTES]; /* every strip holds the same bytes */
    const struct handoff_region region = {
        .base = memory, .layers = 2, .slots = SLOTS, .strip_bytes = STRIP_BYTES};
    const uint32_t slots[2] = {1, 3}, generations[2] = {7, 8}, later[2] = {7, 9};
    const struct strip_box box = {0, 1, 0, 2}, other_layer = {1, 1, 0, 2};
    const struct strip_identity identity = {5, 0, generations}, other_handoff = {6, 0, generations},
                                other_page = {5, 1, generations}, other_generation = {5, 0, later};
    const uint32_t checksum = strip_checksum(&region, &identity, &box, slots);
    cr_expect_neq(strip_checksum(&region, &other_handoff, &box, slots), checksum);
    cr_expect_neq(strip_checksum(&region, &identity, &other_layer, slots), checksum);
    cr_expect_neq(strip_checksum(&region, &other_page, &box, slots), checksum);
    cr_expect_neq(strip_checksum(&region, &other_generation, &box, slots), checksum);
    memory[3 * STRIP_BYTES + STRIP_BYTES - 1] ^= 1;
    cr_expect_neq(strip_checksum(&region, &identity, &box, slots), checksum);
}

EVERY_MOVER(both_nodes_must_check_the_same_way)
{
    static struct pair_fix fix;
    fix_init(&fix, ops, 3, 512);
    fix_start_decode(&fix);
    fix.limits.checksum = HANDOFF_CHECKSUM_NONE;
    fix_start_prefill(&fix);
    struct fix_job *job = fix_run(&fix, 3);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH);
    cr_assert(strstr(job->ended_text, "checksum is crc32c on the decode node and none on the "
                                      "prefill node"),
              "%s", job->ended_text);
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&fix);
}

EVERY_MOVER(checksums_may_be_left_out_on_both)
{
    static struct pair_fix fix;
    fix_init(&fix, ops, 3, 512);
    fix.limits.checksum = HANDOFF_CHECKSUM_NONE;
    fix_start(&fix);
    struct fix_job *job = fix_run(&fix, 12);
    TURN_UNTIL(fix.loop, job->ended);
    cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
    fix_check(job);
    fix_end(&fix);
}

/* What is at decode by the time of the offer, some of it or all, never goes over the wire. */
EVERY_MOVER(pages_that_are_held_are_not_sent)
{
    static const uint32_t held[] = {1, 4, 11, 12};
    for (int i = 0; i < 8; i++) {
        static struct pair_fix fix;
        struct handoff_totals totals;
        fix_init(&fix, ops, 4, 4096);
        fix_start(&fix);
        struct fix_job *job = fix_reserve(&fix, 12, 5000);
        job->held = held[i % 4];
        fix_open(job);
        if (i < 4) /* strips come before the grant, or after it */
            fix_post_all(job);
        turn_for(fix.loop, 30);
        if (i >= 4)
            fix_post_all(job);
        TURN_UNTIL(fix.loop, job->ended);
        cr_assert_eq(job->ended_status, STATUS_OK, "%s", job->ended_text);
        fix_check(job);
        cr_assert_eq(job->stats.strips, 4u * (12 - job->held));
        handoff_receiver_totals(fix.decode.receiver, &totals);
        cr_assert_eq(totals.bytes, 4u * (12 - job->held) * 4096);
        fix_end(&fix);
    }
}

/* Pages that would land at other places of the prompt than the reservation is for. */
EVERY_MOVER(an_offer_that_begins_elsewhere_is_refused)
{
    static struct pair_fix fix;
    fix_init(&fix, ops, 4, 4096);
    fix_start(&fix);
    struct fix_job *job = fix_reserve(&fix, 12, 5000);
    job->held = HANDOFF_MISPLACED;
    fix_open(job);
    fix_post_all(job);
    TURN_UNTIL(fix.loop, job->ended && job->failed);
    cr_assert_eq(job->ended_status, STATUS_MISMATCH, "%s", job->ended_text);
    cr_assert(strstr(job->failed_text, "begin at another page"), "%s", job->failed_text);
    fix_end(&fix);
}

/* A long prompt has all its strips ready and the whole window in use when short ones come. */
EVERY_MOVER(a_long_hand_off_does_not_starve_short_ones)
{
    enum { SHORT = 6 };
    static struct pair_fix fix;
    struct fix_job *shorts[SHORT];
    fix_init(&fix, ops, 20, 65536);
    fix.limits.data_bytes_max = 65536;
    fix.limits.flow_bytes = fix.limits.peer_bytes = 65536;
    fix_start(&fix);
    struct fix_job *first = fix_run(&fix, 1); /* so that the peers have met */
    TURN_UNTIL(fix.loop, first->ended);
    struct fix_job *longest = fix_run(&fix, 40);
    for (int i = 0; i < SHORT; i++)
        shorts[i] = fix_run(&fix, 1);
    TURN_UNTIL(fix.loop, fix.prefill.ended == 1 + SHORT || longest->ended);
    for (int i = 0; i < SHORT; i++)
        cr_assert(shorts[i]->ended && shorts[i]->ended_status == STATUS_OK, "short one %d: %s", i,
                  shorts[i]->ended_text);
    cr_assert_not(longest->ended);
    TURN_UNTIL(fix.loop, longest->ended);
    cr_assert_eq(longest->ended_status, STATUS_OK, "%s", longest->ended_text);
    fix_check(longest);
    fix_end(&fix);
}

/* ---- for long ---- */

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static size_t resident_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    size_t all, resident = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%zu %zu", &all, &resident), 2);
    fclose(file);
    return resident;
}

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Nothing is left behind by a hand-off: not a descriptor, not a growing byte. */
EVERY_MOVER(many_hand_offs_leave_nothing_behind)
{
    const uint32_t rounds = getenv("BATON_TEST_LONG") ? 10000 / 8 : 40;
    static struct pair_fix fix;
    uint32_t descriptors = 0;
    size_t pages = 0;
    fix_init(&fix, ops, 3, 4096);
    fix_start(&fix);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < 8; i++)
            fix_run(&fix, 1 + (round + i) % 9);
        TURN_UNTIL(fix.loop, fix.prefill.ended == 8 * (round + 1));
        for (uint32_t i = 0; i < 8; i++) {
            fix_check(&fix.jobs[i]);
            fix_release(&fix.jobs[i]);
        }
        memset(fix.jobs, 0, sizeof fix.jobs);
        fix.job_count = 0;
        if (round == rounds / 4) {
            descriptors = open_descriptors();
            pages = resident_pages();
        }
    }
    cr_assert_eq(fix.prefill.ended_ok, 8 * rounds);
    cr_assert_eq(open_descriptors(), descriptors);
    cr_assert(resident_pages() < pages + 256 || SANITIZED); /* of 4 KiB; a sanitizer keeps more */
    fix_end(&fix);
}

/* ---- which strips go next ---- */

enum { LAYERS = 6, PAGES = 150 };

struct picture {
    struct strip_set ready;
    uint32_t counts[LAYERS], source[PAGES], granted[PAGES];
};

static void picture_draw(struct picture *picture, struct random *random, uint32_t breaks)
{
    uint32_t source = 10, granted = 1000;
    strip_set_clear(&picture->ready, LAYERS);
    memset(picture->counts, 0, sizeof picture->counts);
    for (uint32_t page = 0; page < PAGES; page++) {
        source += random_below(random, breaks) == 0 ? 5 : 1;
        granted += random_below(random, breaks) == 0 ? 7 : 1;
        picture->source[page] = source;
        picture->granted[page] = random_below(random, 20) == 0 ? SLOT_NONE : granted;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            if (random_below(random, 10) == 0)
                continue;
            strip_add(&picture->ready, layer, page);
            picture->counts[layer]++;
        }
    }
}

/* Picks until nothing is left: each strip that may go is picked once, in boxes that fit. */
Test(strips, every_strip_is_picked_once)
{
    static struct picture picture;
    static uint8_t memory[1];
    const struct handoff_region region = {memory, LAYERS, 3000, 1};
    struct random random;
    random_init(&random, 5);
    strip_set_create(&picture.ready, LAYERS, PAGES);
    for (int round = 0; round < 200; round++) {
        const struct strip_room room = {1 + (uint32_t)random_below(&random, 90),
                                        1 + (uint32_t)random_below(&random, 40),
                                        1 + (uint32_t)random_below(&random, 90)};
        const struct strip_view view = {&picture.ready,  picture.counts, picture.source,
                                        picture.granted, LAYERS,         PAGES};
        struct strip_box box;
        struct mover_segment segments[MOVER_SEGMENTS_MAX];
        picture_draw(&picture, &random, 1 + (uint32_t)random_below(&random, 30));
        while (strip_pick(&view, &room, (uint32_t)random_below(&random, LAYERS), &box)) {
            const uint32_t strips = box.layer_count * box.page_count;
            const uint32_t most =
                room.strips_most > room.gather_strips ? room.strips_most : room.gather_strips;
            cr_assert(strips > 0 && strips <= most);
            cr_assert_gt(strip_segments(&region, &box, picture.source, segments), 0u);
            cr_assert_gt(strip_segments(&region, &box, picture.granted, segments), 0u);
            for (uint32_t layer = box.layer; layer < box.layer + box.layer_count; layer++) {
                for (uint32_t i = box.page; i < box.page + box.page_count; i++) {
                    cr_assert(strip_has(&picture.ready, layer, i));
                    cr_assert_neq(picture.granted[i], SLOT_NONE);
                    strip_remove(&picture.ready, layer, i);
                    picture.counts[layer]--;
                }
            }
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t page = 0; page < PAGES; page++)
                cr_assert(!strip_has(&picture.ready, layer, page) ||
                          picture.granted[page] == SLOT_NONE);
    }
    strip_set_free(&picture.ready);
}

/* A run that is long enough goes alone; short pieces are gathered, over layers too. */
Test(strips, runs_go_alone_and_pieces_together)
{
    static struct picture picture;
    const struct strip_room room = {32, 4, 32};
    const struct strip_view view = {&picture.ready,  picture.counts, picture.source,
                                    picture.granted, LAYERS,         8};
    struct strip_box box;
    strip_set_create(&picture.ready, LAYERS, PAGES);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t page = 0; page < 8; page++)
            strip_add(&picture.ready, layer, page);
        picture.counts[layer] = 8;
    }
    for (uint32_t page = 0; page < 8; page++) {
        picture.source[page] = page + (page >= 5 ? 10 : 0); /* 0..4, then 5..7 */
        picture.granted[page] = page;
    }
    cr_assert(strip_pick(&view, &room, 2, &box));
    cr_assert(box.layer == 2 && box.layer_count == 1 && box.page == 0 && box.page_count == 5);
    for (uint32_t page = 0; page < 8; page++)
        picture.source[page] = 3 * page;
    cr_assert(strip_pick(&view, &room, 3, &box));
    cr_assert(box.layer == 3 && box.layer_count == 3 && box.page == 0 && box.page_count == 8);
    strip_set_free(&picture.ready);
}
