/* Both ends of the hand-off on simulated nodes: one decode node, two prefill nodes, virtual time, a
 * network with an adversary, nodes that are killed, stopped and cut off at any moment, all from one
 * seed. Whatever happens: no page is lost or owned twice, nothing is written to a page after it was
 * given back or read from one after the end was told, what lands is right byte for byte, every
 * hand-off ends once at each end, and all of it is over soon after the trouble is. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "tests/sim/sim_loop.h"
#include "tests/sim/sim_network.h"
#include "transfer/handoff.h"

enum {
    LAYERS = 3,
    STRIP_BYTES = 72,
    DECODE_SLOTS = 120,
    PREFILL_SLOTS = 120,
    PREFILLS = 2,
    JOBS = 60,
    PAGES_MAX = 12,
    LEASE_MS = 2000,
    TROUBLE_MS = 20000, /* how long the adversary is at work */
    SETTLE_MS = 40000,  /* all must be over by then; a refused peer rests for 10 s */
    STEPS_MAX = 3000000,
    SEEDS_SHORT = 60,
    SEEDS_LONG = 1000,
    POISON = 0xdd,
};

static struct handoff_limits limits = {
    .handoffs_max = 32,
    .pages_max = PAGES_MAX,
    .hello_ms = 500,
    .progress_ms = 300,
    .ping_ms = 50,
    .quarantine_ms = 100,
    .data_bytes_max = 1024,
    .flow_bytes = 1500,
    .peer_bytes = 2500,
    .window_ms = 30,
    .checksum = HANDOFF_CHECKSUM_CRC32C,
};

struct job {
    struct world *world;
    uint32_t index, prefill, page_count, held;
    uint64_t handoff, ticket;
    struct handoff_out *out;
    uint32_t source[PAGES_MAX];
    uint32_t posted_layers;
    bool reserved, opened;
    uint32_t decode_ends, prefill_ends; /* how often it ended there; cancels and deaths count */
    bool landed, delivered;             /* at decode; by the word of prefill */
};

struct node {
    struct loop *loop;
    struct handoff_self self;
    struct handoff_region region;
    bool stopped;
    uint64_t resumes_ns;
    bool *used; /* [slots] */
};

struct world {
    struct random random;
    struct sim_network *network;
    struct node decode, prefills[PREFILLS];
    struct handoff_receiver *receiver;
    struct handoff_sender *senders[PREFILLS];
    uint32_t *generations;
    uint32_t reserved, free_count;
    struct job jobs[JOBS];
    uint32_t job_count, boots;
    uint64_t heals_ns;
    uint64_t landed, failed, trace;
    bool honest; /* the network delivers what was sent, once and whole */
};

static uint64_t current_seed;

/* ---- bytes ---- */

static uint8_t byte_of(uint32_t job, uint32_t layer, uint32_t page, uint32_t at)
{
    return (uint8_t)(random_at(job * 131 + page, layer, at / 8) >> at % 8 * 8);
}

static uint8_t *strip_of(const struct handoff_region *region, uint32_t layer, uint32_t slot)
{
    return region->base + ((size_t)layer * region->slots + slot) * region->strip_bytes;
}

static void poison(const struct world *world, const struct handoff_region *region, uint32_t slot)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        uint8_t *at = strip_of(region, layer, slot);
        cr_assert_not(sim_network_uses(world->network, at, STRIP_BYTES),
                      "seed %llu: slot %u is given back while something on its way uses it",
                      (unsigned long long)current_seed, slot);
        memset(at, POISON, STRIP_BYTES);
    }
}

/* ---- the decode node's pages ---- */

static uint32_t pages_held(void *arg, void *context, uint32_t first_page, uint32_t page_count)
{
    const struct job *job = context;
    (void)arg, (void)first_page;
    cr_assert_eq(page_count, job->page_count);
    return job->held;
}

static enum status pages_reserve(void *arg, uint32_t count)
{
    struct world *world = arg;
    if (count > world->free_count - world->reserved)
        return STATUS_BUSY;
    world->reserved += count;
    return STATUS_OK;
}

static void pages_unreserve(void *arg, uint32_t count)
{
    struct world *world = arg;
    cr_assert_leq(count, world->reserved);
    world->reserved -= count;
}

static void pages_take(void *arg, uint32_t count, uint32_t *slots_out, uint32_t *generations_out)
{
    struct world *world = arg;
    struct node *node = &world->decode;
    uint32_t slot = (uint32_t)random_below(&world->random, DECODE_SLOTS);
    cr_assert_leq(count, world->reserved);
    for (uint32_t i = 0; i < count; i++, slot++) {
        if (random_below(&world->random, 3) == 0)
            slot = (uint32_t)random_below(&world->random, DECODE_SLOTS);
        while (node->used[slot % DECODE_SLOTS])
            slot++;
        slot %= DECODE_SLOTS;
        node->used[slot] = true;
        slots_out[i] = slot;
        generations_out[i] = ++world->generations[slot];
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t b = 0; b < STRIP_BYTES; b++)
                cr_assert_eq(strip_of(&node->region, layer, slot)[b], POISON,
                             "seed %llu: slot %u was written while it was free",
                             (unsigned long long)current_seed, slot);
    }
    world->reserved -= count;
    world->free_count -= count;
}

static void pages_give_back(void *arg, const uint32_t *slots, uint32_t count)
{
    struct world *world = arg;
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(world->decode.used[slots[i]], "seed %llu: slot %u came back twice",
                  (unsigned long long)current_seed, slots[i]);
        poison(world, &world->decode.region, slots[i]);
        world->decode.used[slots[i]] = false;
    }
    world->free_count += count;
}

/* ---- ends ---- */

static void decode_end(struct job *job)
{
    job->decode_ends++;
    cr_assert_eq(job->decode_ends, 1u, "seed %llu: job %u ended twice at decode",
                 (unsigned long long)current_seed, job->index);
}

static void on_landed(void *arg, void *context, const uint32_t *slots, uint32_t slot_count,
                      const struct msg_done *done, const struct handoff_stats *stats)
{
    struct world *world = arg;
    struct job *job = context;
    (void)stats;
    decode_end(job);
    job->landed = true;
    world->landed++;
    cr_assert_eq(slot_count, job->page_count - job->held);
    cr_assert(done->first.tokens.count == 1 && done->first.tokens.items[0] == (int32_t)job->index);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t i = 0; i < slot_count; i++)
            for (uint32_t b = 0; b < STRIP_BYTES; b++)
                cr_assert_eq(strip_of(&world->decode.region, layer, slots[i])[b],
                             byte_of(job->index, layer, job->held + i, b),
                             "seed %llu: job %u landed with a wrong byte in page %u, layer %u",
                             (unsigned long long)current_seed, job->index, job->held + i, layer);
    pages_give_back(world, slots, slot_count);
}

static void on_failed(void *arg, void *context, enum status status, const char *text)
{
    struct world *world = arg;
    cr_assert(status < 0 && text[0] != '\0');
    decode_end(context);
    world->failed++;
}

static void prefill_end(struct job *job)
{
    struct world *world = job->world;
    struct node *node = &world->prefills[job->prefill];
    job->prefill_ends++;
    job->out = NULL;
    cr_assert_eq(job->prefill_ends, 1u, "seed %llu: job %u ended twice at prefill",
                 (unsigned long long)current_seed, job->index);
    for (uint32_t i = 0; i < job->page_count; i++) {
        poison(world, &node->region, job->source[i]);
        node->used[job->source[i]] = false;
    }
}

static void on_end(void *arg, void *context, enum status status, const char *text,
                   const struct handoff_stats *stats)
{
    struct job *job = context;
    (void)arg, (void)stats;
    cr_assert(status == STATUS_OK || text[0] != '\0');
    job->delivered = status == STATUS_OK;
    cr_assert(!job->delivered || job->landed, "seed %llu: job %u is said to have landed",
              (unsigned long long)current_seed, job->index);
    prefill_end(job);
}

/* ---- nodes ---- */

static void node_init(struct node *node, const char *name, uint32_t slots)
{
    const size_t bytes = (size_t)LAYERS * slots * STRIP_BYTES;
    node->loop = loop_create();
    node->region = (struct handoff_region){malloc(bytes), LAYERS, slots, STRIP_BYTES};
    node->used = calloc(slots, sizeof *node->used);
    CHECK(node->region.base != NULL && node->used != NULL);
    memset(node->region.base, POISON, bytes);
    snprintf(node->self.node, sizeof node->self.node, "%s", name);
    node->self.identity = (struct msg_identity){.model = wire_str("sim")};
}

static void node_free(struct node *node)
{
    loop_destroy(node->loop);
    free(node->region.base);
    free(node->used);
}

static void boot(struct world *world, struct node *node)
{
    world->boots++;
    memset(node->self.boot_id, 0, sizeof node->self.boot_id);
    memcpy(node->self.boot_id, &world->boots, sizeof world->boots);
}

static void start_decode(struct world *world)
{
    static const struct handoff_pages pages = {pages_held, pages_reserve, pages_unreserve,
                                               pages_take, pages_give_back};
    static const struct handoff_receiver_events events = {on_landed, on_failed};
    const struct mover_options options = {.listen = "sim", .connect_ms = 500, .sends_max = 8};
    struct error error;
    boot(world, &world->decode);
    sim_network_enter(world->network, 0);
    cr_assert_eq(handoff_receiver_create(world->decode.loop, sim_network_mover(), &options,
                                         &world->decode.region, &world->decode.self, &limits,
                                         &pages, &events, world, &world->receiver, &error),
                 STATUS_OK, "%s", error.text);
}

static void start_prefill(struct world *world, uint32_t index)
{
    static const struct handoff_sender_events events = {on_end};
    const struct mover_options options = {.connect_ms = 500, .sends_max = 8};
    struct node *node = &world->prefills[index];
    struct error error;
    boot(world, node);
    sim_network_enter(world->network, 1 + index);
    cr_assert_eq(handoff_sender_create(node->loop, sim_network_mover(), &options, &node->region,
                                       &node->self, &limits, &events, world, &world->senders[index],
                                       &error),
                 STATUS_OK, "%s", error.text);
}

/* Its pages are gone with it; the process that follows has another boot id. */
static void kill_decode(struct world *world)
{
    handoff_receiver_destroy(world->receiver);
    for (uint32_t i = 0; i < world->job_count; i++)
        if (world->jobs[i].reserved && world->jobs[i].decode_ends == 0)
            decode_end(&world->jobs[i]);
    cr_assert(world->reserved == 0 && world->free_count == DECODE_SLOTS);
}

static void kill_prefill(struct world *world, uint32_t index)
{
    handoff_sender_destroy(world->senders[index]);
    for (uint32_t i = 0; i < world->job_count; i++) {
        struct job *job = &world->jobs[i];
        if (job->prefill == index && job->opened && job->prefill_ends == 0)
            prefill_end(job);
    }
}

/* ---- jobs ---- */

static bool take_source(struct world *world, struct job *job)
{
    struct node *node = &world->prefills[job->prefill];
    uint32_t taken = 0;
    for (uint32_t slot = 0; slot < PREFILL_SLOTS && taken < job->page_count; slot++)
        if (!node->used[slot] && random_below(&world->random, 4) != 0)
            job->source[taken++] = slot;
    for (uint32_t i = 0; taken == job->page_count && i < taken; i++)
        node->used[job->source[i]] = true;
    return taken == job->page_count;
}

static void job_open(struct world *world, struct job *job)
{
    struct node *node = &world->prefills[job->prefill];
    struct error error;
    struct handoff_target target = {
        .address = handoff_receiver_address(world->receiver),
        .handoff = job->handoff,
        .ticket = job->ticket,
        .request = job->index,
        .attempt = 1,
        .first_page = job->index % 5,
        .page_count = job->page_count,
    };
    memcpy(target.boot_id, world->decode.self.boot_id, sizeof target.boot_id);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t i = 0; i < job->page_count; i++)
            for (uint32_t b = 0; b < STRIP_BYTES; b++)
                strip_of(&node->region, layer, job->source[i])[b] =
                    byte_of(job->index, layer, i, b);
    job->opened = true;
    if (handoff_send_open(world->senders[job->prefill], &target, job, &job->out, &error) !=
        STATUS_OK)
        prefill_end(job);
}

static void job_start(struct world *world)
{
    struct job *job = &world->jobs[world->job_count];
    struct error error;
    if (world->job_count == JOBS)
        return;
    *job = (struct job){.world = world,
                        .index = world->job_count,
                        .prefill = (uint32_t)random_below(&world->random, PREFILLS),
                        .page_count = 1 + (uint32_t)random_below(&world->random, PAGES_MAX)};
    if (random_below(&world->random, 4) == 0)
        job->held = (uint32_t)random_below(&world->random, job->page_count + 1);
    if (world->decode.stopped || world->prefills[job->prefill].stopped)
        return;
    if (handoff_reserve(world->receiver, job->index, 1, job->page_count, LEASE_MS, job,
                        &job->handoff, &job->ticket, &error) != STATUS_OK)
        return;
    world->job_count++;
    job->reserved = true;
    if (take_source(world, job))
        job_open(world, job);
}

/* The engine has another layer ready, or the first token. */
static void job_step(struct job *job)
{
    const int32_t token = (int32_t)job->index;
    const struct msg_step first = {.request = job->index, .attempt = 1, .tokens = {&token, 1}};
    if (!job->out || job->world->prefills[job->prefill].stopped)
        return;
    if (job->posted_layers < LAYERS)
        handoff_send_strips(job->out, job->posted_layers++, job->index % 5, job->page_count,
                            job->source);
    else if (job->posted_layers++ == LAYERS)
        handoff_send_first(job->out, &first, 1);
}

static void job_cancel(struct job *job, bool at_decode)
{
    struct world *world = job->world;
    if (at_decode && job->reserved && job->decode_ends == 0 && !world->decode.stopped) {
        decode_end(job);
        handoff_cancel(world->receiver, job->handoff, STATUS_CANCELED, "the client is gone");
    } else if (!at_decode && job->out && !world->prefills[job->prefill].stopped) {
        handoff_send_abort(job->out, STATUS_CANCELED, "the client is gone");
    }
}

/* ---- trouble ---- */

static struct node *any_node(struct world *world, uint32_t *number)
{
    *number = (uint32_t)random_below(&world->random, 1 + PREFILLS);
    return *number == 0 ? &world->decode : &world->prefills[*number - 1];
}

static void node_stop(struct world *world)
{
    uint32_t number;
    struct node *node = any_node(world, &number);
    node->stopped = true;
    node->resumes_ns = sim_now_ns + random_below(&world->random, 10000) * NS_PER_MS;
    sim_network_stop(world->network, number, true);
}

static void node_kill(struct world *world)
{
    uint32_t number;
    const struct node *node = any_node(world, &number);
    if (node->stopped)
        return;
    if (number == 0) {
        kill_decode(world);
        start_decode(world);
    } else {
        kill_prefill(world, number - 1);
        start_prefill(world, number - 1);
    }
}

static void resume_nodes(struct world *world, bool all)
{
    for (uint32_t number = 0; number <= PREFILLS; number++) {
        struct node *node = number == 0 ? &world->decode : &world->prefills[number - 1];
        if (!node->stopped || (!all && sim_now_ns < node->resumes_ns))
            continue;
        node->stopped = false;
        sim_network_stop(world->network, number, false);
    }
    if (all || sim_now_ns >= world->heals_ns)
        sim_network_part(world->network, false);
}

static void act(struct world *world)
{
    struct job *job = NULL;
    if (world->job_count > 0)
        job = &world->jobs[random_below(&world->random, world->job_count)];
    const uint64_t what = random_below(&world->random, 500);
    /* With nothing else going wrong, much is given up in the middle. */
    const uint64_t cancels = world->honest ? 386 : 486;
    resume_nodes(world, false);
    if (what < 60) {
        job_start(world);
    } else if (what < cancels && job) {
        for (uint32_t i = 0; i < world->job_count; i++)
            if (random_below(&world->random, 2) == 0)
                job_step(&world->jobs[i]);
    } else if (what < 491 && job) {
        job_cancel(job, random_below(&world->random, 2) == 0);
    } else if (what < 494) {
        node_stop(world);
    } else if (what < 497) {
        node_kill(world);
    } else {
        world->heals_ns = sim_now_ns + random_below(&world->random, 4000) * NS_PER_MS;
        sim_network_part(world->network, true);
    }
}

/* ---- time ---- */

static void run_loops(struct world *world)
{
    if (!world->decode.stopped)
        sim_loop_run(world->decode.loop);
    for (uint32_t i = 0; i < PREFILLS; i++)
        if (!world->prefills[i].stopped)
            sim_loop_run(world->prefills[i].loop);
}

static uint64_t next_ns(const struct world *world)
{
    uint64_t next = sim_network_next_ns(world->network);
    for (uint32_t i = 0; i <= PREFILLS; i++) {
        const struct node *node = i == 0 ? &world->decode : &world->prefills[i - 1];
        const uint64_t due = node->stopped ? UINT64_MAX : sim_loop_next_ns(node->loop);
        next = due < next ? due : next;
    }
    return next > sim_now_ns ? next : sim_now_ns;
}

/* Everything that is due up to then. */
static void run_until(struct world *world, uint64_t end_ns)
{
    for (int step = 0; step < STEPS_MAX; step++) {
        const uint64_t next = next_ns(world);
        uint32_t node;
        if (next > end_ns) {
            sim_now_ns = end_ns;
            return;
        }
        sim_now_ns = next;
        world->trace = world->trace * 31 + next;
        sim_network_deliver(world->network, &node);
        run_loops(world);
    }
    cr_assert_fail("seed %llu: time does not pass any more", (unsigned long long)current_seed);
}

/* Messages that cross on their way are nobody's fault. */
static void expect_no_offence(const struct world *world)
{
    enum { MOST = 8 };
    struct handoff_peer_totals peers[(1 + PREFILLS) * MOST];
    uint32_t count = handoff_receiver_peers(world->receiver, peers, MOST);
    for (uint32_t i = 0; i < PREFILLS; i++)
        count += handoff_sender_peers(world->senders[i], peers + count, MOST);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(peers[i].offences, 0u, "seed %llu: %s is said to have broken the protocol",
                     (unsigned long long)current_seed, peers[i].node);
}

static bool is_settled(const struct world *world)
{
    struct handoff_totals totals;
    handoff_receiver_totals(world->receiver, &totals);
    bool settled = totals.open == 0 && world->reserved == 0 && world->free_count == DECODE_SLOTS;
    for (uint32_t i = 0; i < PREFILLS; i++) {
        handoff_sender_totals(world->senders[i], &totals);
        settled = settled && totals.open == 0 && totals.pages == 0;
    }
    return settled;
}

static void draw_odds(struct world *world)
{
    const uint32_t level = (uint32_t)random_below(&world->random, 4);
    world->honest = level == 0;
    const struct sim_odds odds = {
        .drop = level == 0 ? 0 : (uint32_t)random_below(&world->random, 60),
        .repeat = level == 0 ? 0 : (uint32_t)random_below(&world->random, 60),
        .corrupt = level == 0 ? 0 : (uint32_t)random_below(&world->random, 40),
        .cut = level < 2 ? 0 : (uint32_t)random_below(&world->random, 10),
        .delay_us = 1 + (uint32_t)random_below(&world->random, 3000),
        .in_order = level < 3,
    };
    sim_network_odds(world->network, &odds);
}

static void heal(struct world *world)
{
    const struct sim_odds odds = {.delay_us = 100, .in_order = true};
    sim_network_odds(world->network, &odds);
    resume_nodes(world, true);
    for (uint32_t i = 0; i < world->job_count; i++)
        while (world->jobs[i].out && world->jobs[i].posted_layers <= LAYERS)
            job_step(&world->jobs[i]);
}

/* The network is well again: a hand-off that begins now lands. */
static void expect_service(struct world *world)
{
    const uint64_t landed = world->landed;
    world->job_count = 0;
    for (int i = 0; i < 20 && world->landed == landed; i++) {
        job_start(world);
        for (int step = 0; step <= LAYERS; step++)
            for (uint32_t j = 0; j < world->job_count; j++)
                job_step(&world->jobs[j]);
        run_until(world, sim_now_ns + 1000 * NS_PER_MS);
    }
    cr_assert_gt(world->landed, landed, "seed %llu: nothing lands any more",
                 (unsigned long long)current_seed);
}

static void expect_ended_once(const struct world *world)
{
    for (uint32_t i = 0; i < world->job_count; i++) {
        const struct job *job = &world->jobs[i];
        cr_assert_eq(job->decode_ends, 1u, "seed %llu: job %u has no end at decode",
                     (unsigned long long)current_seed, i);
        cr_assert_eq(job->prefill_ends, (uint32_t)job->opened,
                     "seed %llu: job %u has no end at prefill", (unsigned long long)current_seed,
                     i);
    }
}

static void world_end(struct world *world)
{
    handoff_receiver_destroy(world->receiver);
    for (uint32_t i = 0; i < PREFILLS; i++)
        handoff_sender_destroy(world->senders[i]);
    sim_network_destroy(world->network);
    node_free(&world->decode);
    for (uint32_t i = 0; i < PREFILLS; i++)
        node_free(&world->prefills[i]);
    free(world->generations);
}

struct outcome {
    uint64_t landed, failed, corrupted, faults, trace;
};

static void world_begin(struct world *world, uint64_t seed)
{
    current_seed = seed;
    sim_now_ns = NS_PER_S;
    *world = (struct world){.free_count = DECODE_SLOTS};
    random_init(&world->random, seed);
    world->network = sim_network_create(seed + 1);
    world->generations = calloc(DECODE_SLOTS, sizeof *world->generations);
    node_init(&world->decode, "decode", DECODE_SLOTS);
    node_init(&world->prefills[0], "prefill-0", PREFILL_SLOTS);
    node_init(&world->prefills[1], "prefill-1", PREFILL_SLOTS);
    draw_odds(world);
    start_decode(world);
    for (uint32_t i = 0; i < PREFILLS; i++)
        start_prefill(world, i);
}

static struct outcome play(uint64_t seed)
{
    static struct world world;
    struct handoff_totals totals;
    world_begin(&world, seed);
    const uint64_t end_ns = sim_now_ns + (uint64_t)TROUBLE_MS * NS_PER_MS;
    while (sim_now_ns < end_ns) {
        act(&world);
        run_loops(&world);
        run_until(&world, sim_now_ns + random_below(&world.random, 60) * NS_PER_MS);
        if (world.honest)
            expect_no_offence(&world);
    }
    heal(&world);
    run_until(&world, sim_now_ns + (uint64_t)SETTLE_MS * NS_PER_MS);
    cr_assert(is_settled(&world), "seed %llu: something is still open", (unsigned long long)seed);
    expect_ended_once(&world);
    expect_service(&world);
    handoff_receiver_totals(world.receiver, &totals);
    const struct outcome outcome = {world.landed, world.failed,
                                    sim_network_corrupted(world.network), totals.checksum_faults,
                                    world.trace};
    world_end(&world);
    return outcome;
}

/* ---- the test ---- */

/* Tickets and waits come from the operating system; here they come from the seed as well. */
uint64_t __wrap_random_os_u64(void);
uint64_t __wrap_random_os_u64(void)
{
    static uint64_t count;
    return random_at(current_seed, 7, count++);
}

static void on_abort(int number)
{
    char text[64];
    const int bytes =
        snprintf(text, sizeof text, "the seed was %llu\n", (unsigned long long)current_seed);
    (void)number;
    if (write(STDERR_FILENO, text, (size_t)bytes) < 0)
        _exit(2);
}

Test(sim_handoff, survives_every_seed)
{
    const uint64_t seeds = getenv("BATON_TEST_LONG") ? SEEDS_LONG : SEEDS_SHORT;
    struct outcome sum = {0};
    log_init("sim", LOG_LEVEL_ERROR);
    signal(SIGABRT, on_abort);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const struct outcome one = play(seed);
        sum.landed += one.landed;
        sum.failed += one.failed;
        sum.corrupted += one.corrupted;
        sum.faults += one.faults;
    }
    /* Not for nothing: hand-offs landed, failed, and were damaged. */
    cr_assert_gt(sum.landed, 3 * seeds);
    cr_assert_gt(sum.failed, 3 * seeds);
    cr_assert_gt(sum.corrupted, seeds / 10);
    cr_assert_gt(sum.faults, 0u);
}

/* A link takes more than twice progress_ms for what is ready at once, and many times quarantine_ms:
 * all of it lands, because little is on its way at a time, and those that are cancelled in the
 * middle take no other with them. */
Test(sim_handoff, a_slow_link_takes_longer_and_loses_nothing)
{
    const struct sim_odds slow = {.delay_us = 100, .in_order = true, .bytes_per_s = 40000};
    static struct world world;
    log_init("sim", LOG_LEVEL_ERROR);
    limits.flow_bytes = limits.peer_bytes = 40000;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t canceled = 0;
        world_begin(&world, seed);
        sim_network_odds(world.network, &slow);
        while (world.job_count < JOBS && world.free_count - world.reserved >= PAGES_MAX)
            job_start(&world);
        for (int step = 0; step <= LAYERS; step++)
            for (uint32_t i = 0; i < world.job_count; i++)
                job_step(&world.jobs[i]);
        for (uint32_t i = 0; i < world.job_count; i += 5) {
            run_until(&world, sim_now_ns + random_below(&world.random, 200) * NS_PER_MS);
            const bool decode = random_below(&world.random, 2) == 0;
            canceled += world.jobs[i].decode_ends == 0 && world.jobs[i].out != NULL;
            job_cancel(&world.jobs[i], decode);
        }
        run_until(&world, sim_now_ns + (uint64_t)SETTLE_MS * NS_PER_MS);
        cr_assert(is_settled(&world), "seed %llu: something is still open",
                  (unsigned long long)seed);
        cr_assert_geq(world.landed, world.job_count - canceled, "seed %llu: %llu of %u landed",
                      (unsigned long long)seed, (unsigned long long)world.landed, world.job_count);
        world_end(&world);
    }
}
