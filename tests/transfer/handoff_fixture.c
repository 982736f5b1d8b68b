#include "tests/transfer/handoff_fixture.h"
#include "tests/transfer/every_mover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

const struct handoff_limits fix_limits = {
    .handoffs_max = FIX_JOBS_MAX,
    .pages_max = FIX_PAGES_MAX,
    .hello_ms = 20000,
    .progress_ms = 300,
    .ping_ms = 50,
    .quarantine_ms = 100,
    .data_bytes_max = 1 << 20,
    .flow_bytes = 4 << 20,
    .peer_bytes = 8 << 20,
    .window_ms = 100,
    .checksum = HANDOFF_CHECKSUM_CRC32C,
};

/* ---- the pool ---- */

static uint32_t pool_held(void *arg, void *context, uint32_t first_page, uint32_t page_count)
{
    const struct fix_job *job = context;
    (void)arg;
    cr_assert_eq(first_page, job->first_page);
    cr_assert_eq(page_count, job->page_count);
    return job->held;
}

static enum status pool_reserve(void *arg, uint32_t count)
{
    struct pair_fix *fix = arg;
    if (count > fix->decode.free_count - fix->decode.reserved_count)
        return STATUS_BUSY;
    fix->decode.reserved_count += count;
    return STATUS_OK;
}

static void pool_unreserve(void *arg, uint32_t count)
{
    struct pair_fix *fix = arg;
    cr_assert_leq(count, fix->decode.reserved_count);
    fix->decode.reserved_count -= count;
}

/* Some runs, some jumps. */
static void pool_take(void *arg, uint32_t count, uint32_t *slots_out, uint32_t *generations_out)
{
    struct pair_fix *fix = arg;
    struct decode_side *decode = &fix->decode;
    cr_assert_leq(count, decode->reserved_count);
    uint32_t slot = (uint32_t)random_below(&fix->random, FIX_SLOTS);
    for (uint32_t i = 0; i < count; i++) {
        if (random_below(&fix->random, 4) == 0)
            slot = (uint32_t)random_below(&fix->random, FIX_SLOTS);
        while (decode->used[slot])
            slot = (slot + 1) % FIX_SLOTS;
        decode->used[slot] = true;
        slots_out[i] = slot;
        generations_out[i] = ++decode->generations[slot];
    }
    decode->reserved_count -= count;
    decode->free_count -= count;
}

static void pool_give_back(void *arg, const uint32_t *slots, uint32_t count)
{
    struct pair_fix *fix = arg;
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(fix->decode.used[slots[i]], "slot %u came back twice", slots[i]);
        fix->decode.used[slots[i]] = false;
    }
    fix->decode.free_count += count;
}

/* ---- events ---- */

static void on_landed(void *arg, void *context, const uint32_t *slots, uint32_t slot_count,
                      const struct msg_done *done, const struct handoff_stats *stats)
{
    struct pair_fix *fix = arg;
    struct fix_job *job = context;
    cr_assert(!job->landed && !job->failed);
    cr_assert_eq(slot_count, job->page_count - job->held);
    job->landed = true;
    memcpy(job->slots + job->held, slots, slot_count * sizeof *slots);
    cr_assert_eq(done->first.tokens.count, 1u);
    job->first_token = done->first.tokens.items[0];
    cr_assert_eq(stats->strips, (uint64_t)slot_count * fix->decode.region.layers);
    fix->decode.landed++;
}

static void on_failed(void *arg, void *context, enum status status, const char *text)
{
    struct pair_fix *fix = arg;
    struct fix_job *job = context;
    cr_assert(!job->landed && !job->failed);
    job->failed = true;
    job->failed_status = status;
    snprintf(job->failed_text, sizeof job->failed_text, "%s", text);
    fix->decode.failed++;
}

static void on_end(void *arg, void *context, enum status status, const char *text,
                   const struct handoff_stats *stats)
{
    struct pair_fix *fix = arg;
    struct fix_job *job = context;
    cr_assert(!job->ended);
    job->ended = true;
    job->out = NULL;
    job->ended_status = status;
    job->stats = *stats;
    snprintf(job->ended_text, sizeof job->ended_text, "%s", text);
    fix->prefill.ended++;
    fix->prefill.ended_ok += status == STATUS_OK;
    /* No source page is read any more: what is written there now must not arrive. */
    for (uint32_t layer = 0; layer < fix->prefill.region.layers; layer++)
        for (uint32_t i = 0; i < job->page_count; i++)
            memset(fix->prefill.region.base + ((size_t)layer * FIX_SLOTS + job->source_slots[i]) *
                                                  fix->prefill.region.strip_bytes,
                   0xdd, fix->prefill.region.strip_bytes);
}

/* ---- set-up ---- */

static void region_create(struct handoff_region *region, uint32_t layers, size_t strip_bytes)
{
    const size_t bytes = (size_t)layers * FIX_SLOTS * strip_bytes;
    region->layers = layers;
    region->slots = FIX_SLOTS;
    region->strip_bytes = strip_bytes;
    region->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(region->base, MAP_FAILED);
}

static void region_free(struct handoff_region *region)
{
    munmap(region->base, (size_t)region->layers * region->slots * region->strip_bytes);
}

static void self_init(struct handoff_self *self, const char *node, uint8_t boot)
{
    static const uint8_t weights[16] = "weights-digest-";
    static const uint8_t tokenizer[16] = "tokenizer-diges";
    snprintf(self->node, sizeof self->node, "%s", node);
    memset(self->boot_id, boot, sizeof self->boot_id);
    self->identity = (struct msg_identity){
        .model = wire_str("tiny"),
        .weights_digest = {weights, 16},
        .tokenizer_digest = {tokenizer, 16},
        .profile_id = 11,
        .probe_digest = 12,
        .layout = {1, 5, 3, 64, 64, 1, 2, 0},
        .head_first = 0,
        .head_count = 3,
        .rank = 0,
        .rank_count = 1,
    };
}

void fix_init(struct pair_fix *fix, const struct mover_ops *ops, uint32_t layers,
              size_t strip_bytes)
{
    log_init("test", LOG_LEVEL_ERROR);
    memset(fix, 0, sizeof *fix);
    fix->ops = ops;
    fix->limits = fix_limits;
    fix->connect_ms = 20000;
    random_init(&fix->random, 42);
    self_init(&fix->decode_self, "decode-0", 0xd0);
    self_init(&fix->prefill_self, "prefill-0", 0xb0);
    region_create(&fix->decode.region, layers, strip_bytes);
    region_create(&fix->prefill.region, layers, strip_bytes);
    fix->decode.free_count = FIX_SLOTS;
}

void fix_start_decode(struct pair_fix *fix)
{
    static const struct handoff_pages pages = {pool_held, pool_reserve, pool_unreserve, pool_take,
                                               pool_give_back};
    static const struct handoff_receiver_events events = {on_landed, on_failed};
    const char *listen = fix->address[0] ? fix->address : "127.0.0.1:0";
    const struct mover_options options = {
        .listen = listen, .connect_ms = fix->connect_ms, .sends_max = 16, .tls = &every_mover_tls};
    struct error error;
    if (!fix->loop)
        fix->loop = loop_create();
    cr_assert_eq(handoff_receiver_create(fix->loop, fix->ops, &options, &fix->decode.region,
                                         &fix->decode_self, &fix->limits, &pages, &events, fix,
                                         &fix->decode.receiver, &error),
                 STATUS_OK, "%s", error.text);
    snprintf(fix->address, sizeof fix->address, "%s",
             handoff_receiver_address(fix->decode.receiver));
    fix->decode_here = true;
}

void fix_start_prefill(struct pair_fix *fix)
{
    static const struct handoff_sender_events events = {on_end};
    const struct mover_options options = {
        .connect_ms = fix->connect_ms, .sends_max = 16, .tls = &every_mover_tls};
    struct error error;
    if (!fix->loop)
        fix->loop = loop_create();
    cr_assert_eq(handoff_sender_create(fix->loop, fix->ops, &options, &fix->prefill.region,
                                       &fix->prefill_self, &fix->limits, &events, fix,
                                       &fix->prefill.sender, &error),
                 STATUS_OK, "%s", error.text);
    fix->prefill_here = true;
}

void fix_start(struct pair_fix *fix)
{
    fix_start_decode(fix);
    fix_start_prefill(fix);
}

bool fix_pages_are_back(const struct pair_fix *fix)
{
    return fix->decode.free_count == FIX_SLOTS && fix->decode.reserved_count == 0;
}

void fix_end(struct pair_fix *fix)
{
    struct handoff_totals totals;
    for (uint32_t i = 0; i < fix->job_count; i++)
        if (fix->jobs[i].landed)
            fix_release(&fix->jobs[i]);
    if (fix->prefill_here) {
        TURN_UNTIL(fix->loop, (handoff_sender_totals(fix->prefill.sender, &totals),
                               totals.open == 0 && totals.pages == 0));
        handoff_sender_destroy(fix->prefill.sender);
    }
    if (fix->decode_here) {
        TURN_UNTIL(fix->loop, fix_pages_are_back(fix));
        handoff_receiver_totals(fix->decode.receiver, &totals);
        cr_assert_eq(totals.open, 0u);
        cr_assert_eq(totals.pages, 0u);
        handoff_receiver_destroy(fix->decode.receiver);
    }
    loop_destroy(fix->loop);
    region_free(&fix->decode.region);
    region_free(&fix->prefill.region);
}

/* ---- jobs ---- */

static uint64_t seed_of(uint32_t job, uint32_t page, uint32_t layer)
{
    return ((uint64_t)job << 32 | page << 8 | layer) + 1;
}

static uint8_t *strip_at(const struct handoff_region *region, uint32_t layer, uint32_t slot)
{
    return region->base + ((size_t)layer * region->slots + slot) * region->strip_bytes;
}

void fix_fill_source(struct pair_fix *fix, uint32_t job, uint32_t page, uint32_t slot)
{
    for (uint32_t layer = 0; layer < fix->prefill.region.layers; layer++)
        pattern_fill(strip_at(&fix->prefill.region, layer, slot), fix->prefill.region.strip_bytes,
                     seed_of(job, page, layer));
}

struct fix_job *fix_reserve(struct pair_fix *fix, uint32_t page_count, uint32_t lease_ms)
{
    struct error error;
    struct fix_job *job = &fix->jobs[fix->job_count];
    cr_assert_lt(fix->job_count, (uint32_t)FIX_JOBS_MAX);
    job->fix = fix;
    job->index = fix->job_count++;
    job->page_count = page_count;
    job->first_page = job->index % 3 * 7;
    for (uint32_t i = 0; i < page_count; i++) {
        /* Runs of three, then a jump. Jobs share no slot while they are few. */
        job->source_slots[i] = fix->source_next % FIX_SLOTS;
        fix->source_next += i % 3 == 2 ? 2 : 1;
    }
    cr_assert_eq(handoff_reserve(fix->decode.receiver, 1000 + job->index, 1, page_count, lease_ms,
                                 job, &job->handoff, &job->ticket, &error),
                 STATUS_OK, "%s", error.text);
    return job;
}

struct handoff_target fix_target(const struct fix_job *job)
{
    struct handoff_target target = {
        .address = job->fix->address,
        .handoff = job->handoff,
        .ticket = job->ticket,
        .request = 1000 + job->index,
        .attempt = 1,
        .first_page = job->first_page,
        .page_count = job->page_count,
    };
    memcpy(target.boot_id, job->fix->decode_self.boot_id, 16);
    return target;
}

void fix_open(struct fix_job *job)
{
    struct error error;
    const struct handoff_target target = fix_target(job);
    for (uint32_t i = 0; i < job->page_count; i++)
        fix_fill_source(job->fix, job->index, i, job->source_slots[i]);
    cr_assert_eq(handoff_send_open(job->fix->prefill.sender, &target, job, &job->out, &error),
                 STATUS_OK, "%s", error.text);
}

void fix_post(struct fix_job *job, uint32_t layer, uint32_t first, uint32_t count)
{
    if (job->out)
        handoff_send_strips(job->out, layer, job->first_page + first, count,
                            job->source_slots + first);
}

void fix_first(struct fix_job *job)
{
    const int32_t token = 7000 + (int32_t)job->index;
    const struct msg_step first = {
        .request = 1000 + job->index, .attempt = 1, .first_position = 64, .tokens = {&token, 1}};
    if (job->out)
        handoff_send_first(job->out, &first, 1);
}

void fix_post_all(struct fix_job *job)
{
    for (uint32_t layer = 0; layer < job->fix->prefill.region.layers; layer++)
        fix_post(job, layer, 0, job->page_count);
    fix_first(job);
}

struct fix_job *fix_run(struct pair_fix *fix, uint32_t page_count)
{
    struct fix_job *job = fix_reserve(fix, page_count, 5000);
    fix_open(job);
    fix_post_all(job);
    return job;
}

void fix_check(const struct fix_job *job)
{
    const struct handoff_region *region = &job->fix->decode.region;
    cr_assert(job->landed);
    cr_assert_eq(job->first_token, 7000 + (int32_t)job->index);
    for (uint32_t layer = 0; layer < region->layers; layer++)
        for (uint32_t i = job->held; i < job->page_count; i++)
            cr_assert(pattern_matches(strip_at(region, layer, job->slots[i]), region->strip_bytes,
                                      seed_of(job->index, i, layer)),
                      "job %u page %u layer %u is not what was sent", job->index, i, layer);
}

void fix_release(struct fix_job *job)
{
    cr_assert(job->landed);
    pool_give_back(job->fix, job->slots + job->held, job->page_count - job->held);
    job->landed = false;
}
