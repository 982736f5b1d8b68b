/* One end of the bench: a region of pages, both kinds of hand-off, a bare mover, raw messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crypto_tls.h"
#include "base/random.h"
#include "ops/baton/bench_time.h"
#include "ops/baton/bench_transfer.h"
#include "transfer/mover_raw.h"

enum {
    SENDS_MAX = 256,
    CONNECT_MS = 5000,
    RALLIES = 2000,
    RALLY_BYTES = 64,
    RAW_WINDOW = 16,
    BEAT_MS = 1
};

/* Both ends are this program's: a key that is no secret costs what one costs. */
static const uint8_t tls_key[TLS_KEY_BYTES];
static const struct tls_identity tls = {.key = tls_key};

/* One kind of hand-off: with checksums or without. */
struct lane {
    struct transfer_end *end;
    struct handoff_self self;
    struct handoff_sender *sender;
    struct handoff_receiver *receiver;
    char address[128];
};

struct transfer_end {
    const struct transfer_plan *plan;
    bool listens;
    struct loop *loop;
    struct loop_timer *deadline, *beat;
    uint64_t beat_ns; /* when it is due */
    struct handoff_region region;
    size_t region_bytes;
    uint32_t *slots, slot_next; /* the order in which slots are dealt out */
    uint32_t *generations;
    struct lane lanes[2]; /* without and with checksums */
    struct mover *rally;
    struct mover_peer *rally_peer;
    struct mover_raw *raw;
    uint32_t left; /* of the part that runs */
    uint64_t served_ns;
    double *rally_ns;
    struct transfer_figures figures;
    struct error failure;
};

static uint64_t now_ns(void)
{
    return clock_now_ns(clock_monotonic());
}

static void part_failed(struct transfer_end *end, enum status status, const char *text)
{
    if (end->failure.status == STATUS_OK)
        error_set(&end->failure, status, "%s", text);
    loop_stop(end->loop);
}

static void part_step(struct transfer_end *end)
{
    CHECK(end->left > 0);
    if (--end->left == 0)
        loop_stop(end->loop);
}

static void on_deadline(void *arg)
{
    part_failed(arg, STATUS_TIMEOUT, "a part of the bench did not end in time");
}

/* Stands for the other work of a control thread, which waits while pages are looked after. */
static void on_beat(void *arg)
{
    struct transfer_end *end = arg;
    const uint64_t at_ns = now_ns();
    const double late_ns = at_ns > end->beat_ns ? (double)(at_ns - end->beat_ns) : 0;
    if (late_ns > end->figures.late_ns)
        end->figures.late_ns = late_ns;
    end->beat_ns = at_ns + BEAT_MS * NS_PER_MS;
    loop_timer_start(end->beat, BEAT_MS, 0);
}

/* ---- pages ---- */

static enum status pages_reserve(void *arg, uint32_t count)
{
    (void)arg, (void)count;
    return STATUS_OK;
}

static void pages_unreserve(void *arg, uint32_t count)
{
    (void)arg, (void)count;
}

/* Each run of the bench takes every slot once, in the order that was dealt. */
static void pages_take(void *arg, uint32_t count, uint32_t *slots_out, uint32_t *generations_out)
{
    struct transfer_end *end = ((struct lane *)arg)->end;
    for (uint32_t i = 0; i < count; i++) {
        slots_out[i] = end->slots[end->slot_next++ % end->region.slots];
        generations_out[i] = ++end->generations[slots_out[i]];
    }
}

static void pages_give_back(void *arg, const uint32_t *slots, uint32_t count)
{
    (void)arg, (void)slots, (void)count;
}

static void on_landed(void *arg, void *context, const uint32_t *slots, uint32_t slot_count,
                      const struct msg_done *done, const struct handoff_stats *stats)
{
    (void)context, (void)slots, (void)slot_count, (void)done, (void)stats;
    part_step(((struct lane *)arg)->end);
}

static void on_failed(void *arg, void *context, enum status status, const char *text)
{
    (void)context;
    part_failed(((struct lane *)arg)->end, status, text);
}

static void on_end(void *arg, void *context, enum status status, const char *text,
                   const struct handoff_stats *stats)
{
    struct transfer_end *end = ((struct lane *)arg)->end;
    (void)context;
    end->figures.bytes += stats->bytes;
    end->figures.messages += stats->messages;
    if (status != STATUS_OK)
        part_failed(end, status, text);
    else
        part_step(end);
}

/* ---- round trips over the mover ---- */

static void on_peer_accepted(void *arg, struct mover_peer *peer)
{
    ((struct transfer_end *)arg)->rally_peer = peer;
}

static void on_peer_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct transfer_end *end = arg;
    (void)peer;
    end->rally_peer = NULL;
    if (end->left > 0)
        part_failed(end, status, "the peer of the round trips is gone");
}

static void rally_serve(struct transfer_end *end)
{
    static const uint8_t ball[RALLY_BYTES];
    end->served_ns = now_ns();
    const enum status status = end->plan->ops->send_message(end->rally_peer, ball, sizeof ball);
    if (status != STATUS_OK)
        part_failed(end, status, "a message of a round trip could not be sent");
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct transfer_end *end = arg;
    (void)peer, (void)frame, (void)bytes;
    if (end->left == 0)
        return;
    if (end->listens) {
        rally_serve(end);
        part_step(end);
        return;
    }
    end->rally_ns[end->left - 1] = (double)(now_ns() - end->served_ns);
    part_step(end);
    if (end->left > 0)
        rally_serve(end);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    (void)arg, (void)peer, (void)header, (void)segments;
    return 0;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
    (void)arg, (void)peer, (void)header, (void)status;
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    (void)arg, (void)peer, (void)cookie, (void)status;
}

/* ---- life ---- */

static enum status region_create(struct transfer_end *end, struct error *error)
{
    const struct transfer_plan *plan = end->plan;
    end->region = (struct handoff_region){.layers = plan->layers,
                                          .slots = plan->pages * plan->handoffs,
                                          .strip_bytes = plan->page_bytes};
    end->region_bytes = (size_t)plan->layers * end->region.slots * plan->page_bytes;
    void *memory =
        mmap(NULL, end->region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(error, STATUS_NO_MEMORY, "no memory for %zu bytes of pages",
                         end->region_bytes);
    end->region.base = memory;
    memset(memory, end->listens ? 0xdd : 0x5b, end->region_bytes);
    end->slots = calloc(end->region.slots, sizeof *end->slots);
    end->generations = calloc(end->region.slots, sizeof *end->generations);
    end->rally_ns = calloc(RALLIES, sizeof *end->rally_ns);
    CHECK(end->slots != NULL && end->generations != NULL && end->rally_ns != NULL);
    for (uint32_t i = 0; i < end->region.slots; i++)
        end->slots[i] = i;
    struct random random;
    random_init(&random, end->listens ? 1 : 2);
    for (uint32_t i = end->region.slots; plan->scatter && i > 1; i--) {
        const uint32_t other = (uint32_t)random_below(&random, i);
        const uint32_t slot = end->slots[other];
        end->slots[other] = end->slots[i - 1];
        end->slots[i - 1] = slot;
    }
    return STATUS_OK;
}

static enum status lane_create(struct transfer_end *end, struct lane *lane,
                               enum handoff_checksum checksum, char *address, struct error *error)
{
    static const struct handoff_pages pages = {.reserve = pages_reserve,
                                               .unreserve = pages_unreserve,
                                               .take = pages_take,
                                               .give_back = pages_give_back};
    static const struct handoff_receiver_events receiver_events = {on_landed, on_failed};
    static const struct handoff_sender_events sender_events = {on_end};
    struct handoff_limits limits = handoff_default_limits;
    const struct mover_options options = {.listen = end->listens ? "127.0.0.1:0" : NULL,
                                          .tls = &tls,
                                          .connect_ms = CONNECT_MS,
                                          .sends_max = SENDS_MAX,
                                          .memory = end->region.base,
                                          .memory_bytes = end->region_bytes};
    limits.handoffs_max = TRANSFER_HANDOFFS_MAX;
    limits.pages_max = end->plan->pages;
    limits.checksum = checksum;
    if (limits.data_bytes_max < end->plan->page_bytes)
        limits.data_bytes_max = end->plan->page_bytes;
    lane->end = end;
    snprintf(lane->self.node, sizeof lane->self.node, "%s", end->listens ? "decode" : "prefill");
    memset(lane->self.boot_id, end->listens ? 0xd0 : 0xb0, sizeof lane->self.boot_id);
    if (!end->listens) {
        snprintf(lane->address, sizeof lane->address, "%s", address);
        return handoff_sender_create(end->loop, end->plan->ops, &options, &end->region, &lane->self,
                                     &limits, &sender_events, lane, &lane->sender, error);
    }
    TRY(handoff_receiver_create(end->loop, end->plan->ops, &options, &end->region, &lane->self,
                                &limits, &pages, &receiver_events, lane, &lane->receiver, error));
    snprintf(address, sizeof lane->address, "%s", handoff_receiver_address(lane->receiver));
    return STATUS_OK;
}

static enum status rally_create(struct transfer_end *end, char *address, struct error *error)
{
    static const struct mover_events events = {on_peer_accepted, on_peer_closed, on_message,
                                               on_data,          on_data_done,   on_sent};
    const struct mover_options options = {.listen = end->listens ? "127.0.0.1:0" : NULL,
                                          .tls = &tls,
                                          .connect_ms = CONNECT_MS,
                                          .sends_max = 1,
                                          .message_bytes_max = RALLY_BYTES,
                                          .data_bytes_max = RALLY_BYTES};
    const struct mover_ops *ops = end->plan->ops;
    TRY(ops->create(end->loop, &options, &events, end, &end->rally, error));
    if (!end->listens)
        return ops->dial(end->rally, address, &end->rally_peer, error);
    snprintf(address, sizeof end->lanes[0].address, "%s", ops->address(end->rally));
    return STATUS_OK;
}

static enum status raw_create(struct transfer_end *end, char *address, struct error *error)
{
    if (!end->plan->has_raw)
        return STATUS_OK;
    if (!end->listens)
        return mover_raw_dial(address, end->region.base, end->region_bytes, &end->raw, error);
    TRY(mover_raw_listen("127.0.0.1:0", end->region.base, end->region_bytes, &end->raw, error));
    snprintf(address, sizeof end->lanes[0].address, "%s", mover_raw_address(end->raw));
    return STATUS_OK;
}

enum status transfer_end_create(const struct transfer_plan *plan, bool listens,
                                struct transfer_addresses *addresses, struct transfer_end **out,
                                struct error *error)
{
    struct transfer_end *end = calloc(1, sizeof *end);
    CHECK(end != NULL);
    end->plan = plan;
    end->listens = listens;
    end->loop = loop_create();
    end->deadline = loop_timer_create(end->loop, on_deadline, end);
    end->beat = loop_timer_create(end->loop, on_beat, end);
    enum status status = region_create(end, error);
    if (status == STATUS_OK)
        status = lane_create(end, &end->lanes[0], HANDOFF_CHECKSUM_NONE, addresses->plain, error);
    if (status == STATUS_OK)
        status =
            lane_create(end, &end->lanes[1], HANDOFF_CHECKSUM_CRC32C, addresses->checked, error);
    if (status == STATUS_OK)
        status = rally_create(end, addresses->rally, error);
    if (status == STATUS_OK)
        status = raw_create(end, addresses->raw, error);
    if (status != STATUS_OK)
        transfer_end_destroy(end);
    else
        *out = end;
    return status;
}

void transfer_end_destroy(struct transfer_end *end)
{
    if (end == NULL)
        return;
    mover_raw_close(end->raw);
    if (end->rally)
        end->plan->ops->destroy(end->rally);
    for (int i = 0; i < 2; i++) {
        handoff_sender_destroy(end->lanes[i].sender);
        handoff_receiver_destroy(end->lanes[i].receiver);
    }
    loop_timer_destroy(end->deadline);
    loop_timer_destroy(end->beat);
    loop_destroy(end->loop);
    if (end->region.base)
        munmap(end->region.base, end->region_bytes);
    free(end->slots);
    free(end->generations);
    free(end->rally_ns);
    free(end);
}

enum status transfer_end_meet(struct transfer_end *end, struct error *error)
{
    return end->raw == NULL ? STATUS_OK : mover_raw_accept(end->raw, error);
}

/* ---- the parts ---- */

enum status transfer_end_prepare(struct transfer_end *end, struct transfer_order *order,
                                 struct error *error)
{
    const struct transfer_plan *plan = end->plan;
    order->handoffs = plan->handoffs;
    if (order->message_bytes > 0)
        order->message_count = end->region_bytes / order->message_bytes;
    if (order->part != TRANSFER_PLAIN && order->part != TRANSFER_CHECKED)
        return STATUS_OK;
    struct lane *lane = &end->lanes[order->part == TRANSFER_CHECKED];
    for (uint32_t i = 0; i < plan->handoffs; i++)
        TRY(handoff_reserve(lane->receiver, i + 1, 1, plan->pages, TRANSFER_PART_TIMEOUT_MS, lane,
                            &order->reserved[i].handoff, &order->reserved[i].ticket, error));
    return STATUS_OK;
}

/* The loop runs, as in a node, until every step is done. */
static enum status run_loop(struct transfer_end *end, struct error *error)
{
    end->failure = (struct error){0};
    loop_timer_start(end->deadline, TRANSFER_PART_TIMEOUT_MS, 0);
    end->beat_ns = now_ns() + BEAT_MS * NS_PER_MS;
    loop_timer_start(end->beat, BEAT_MS, 0);
    loop_run(end->loop);
    loop_timer_stop(end->deadline);
    loop_timer_stop(end->beat);
    end->left = 0;
    if (end->failure.status == STATUS_OK)
        return STATUS_OK;
    *error = end->failure;
    return error->status;
}

static enum status open_one(struct transfer_end *end, struct lane *lane,
                            const struct transfer_order *order, uint32_t index, struct error *error)
{
    const struct transfer_plan *plan = end->plan;
    const int32_t token = 1;
    const struct msg_step first = {.request = index + 1, .attempt = 1, .tokens = {&token, 1}};
    struct handoff_target target = {
        .address = lane->address,
        .handoff = order->reserved[index].handoff,
        .ticket = order->reserved[index].ticket,
        .request = index + 1,
        .attempt = 1,
        .page_count = plan->pages,
    };
    struct handoff_out *out;
    memset(target.boot_id, 0xd0, sizeof target.boot_id);
    TRY(handoff_send_open(lane->sender, &target, lane, &out, error));
    for (uint32_t layer = 0; layer < plan->layers; layer++)
        handoff_send_strips(out, layer, 0, plan->pages, end->slots + (size_t)index * plan->pages);
    handoff_send_first(out, &first, 1);
    return STATUS_OK;
}

static enum status run_handoffs(struct transfer_end *end, const struct transfer_order *order,
                                struct error *error)
{
    struct lane *lane = &end->lanes[order->part == TRANSFER_CHECKED];
    end->left = order->handoffs;
    for (uint32_t i = 0; !end->listens && i < order->handoffs; i++)
        TRY(open_one(end, lane, order, i, error));
    return run_loop(end, error);
}

static enum status run_raw(struct transfer_end *end, const struct transfer_order *order,
                           struct error *error)
{
    if (order->part != TRANSFER_RALLY_RAW)
        return mover_raw_stream(end->raw, order->message_bytes, order->message_count, RAW_WINDOW,
                                end->plan->scatter ? end->plan->page_bytes : 0,
                                order->part == TRANSFER_RAW_RENDEZVOUS, TRANSFER_PART_TIMEOUT_MS,
                                error);
    return mover_raw_rally(end->raw, RALLIES, end->rally_ns, TRANSFER_PART_TIMEOUT_MS, error);
}

static enum status run_rally(struct transfer_end *end, struct error *error)
{
    end->left = RALLIES;
    if (!end->listens)
        rally_serve(end);
    return run_loop(end, error);
}

static double cpu_seconds(const struct transfer_plan *plan)
{
    struct rusage usage;
    CHECK(getrusage(plan->threads ? RUSAGE_THREAD : RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

enum status transfer_end_run(struct transfer_end *end, const struct transfer_order *order,
                             struct transfer_figures *out, struct error *error)
{
    const uint64_t begun_ns = now_ns();
    const double begun_cpu = cpu_seconds(end->plan);
    enum status status;
    end->figures = (struct transfer_figures){0};
    end->slot_next = 0;
    if (order->part == TRANSFER_RALLY)
        status = run_rally(end, error);
    else if (order->part != TRANSFER_PLAIN && order->part != TRANSFER_CHECKED)
        status = run_raw(end, order, error);
    else
        status = run_handoffs(end, order, error);
    TRY(status);
    if (order->part == TRANSFER_RAW || order->part == TRANSFER_RAW_RENDEZVOUS) {
        end->figures.bytes = order->message_count * order->message_bytes;
        end->figures.messages = order->message_count;
    }
    end->figures.seconds = (double)(now_ns() - begun_ns) * 1e-9;
    end->figures.cpu_seconds = cpu_seconds(end->plan) - begun_cpu;
    if (!end->listens && (order->part == TRANSFER_RALLY || order->part == TRANSFER_RALLY_RAW))
        end->figures.round_trip_ns = bench_median(end->rally_ns, RALLIES);
    *out = end->figures;
    return STATUS_OK;
}
