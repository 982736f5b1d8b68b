#include "tests/sim/sim_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "base/clock.h"
#include "tests/sim/sim_loop.h"

enum { NODES_MAX = 4, RETRY_NS = 50 * NS_PER_MS, LATE_MS = 3000, LONG_DELAY_IN = 200 };

enum event_kind { EVENT_ACCEPT, EVENT_MESSAGE, EVENT_DATA, EVENT_WRITE, EVENT_SENT, EVENT_CLOSED };

/* One data message on its way. */
struct transfer {
    LIST_ENTRY(transfer) entry;
    struct mover_peer *from, *to;
    struct mover_data_header header;
    struct mover_segment source[MOVER_SEGMENTS_MAX], place[MOVER_SEGMENTS_MAX];
    uint32_t source_count, place_count;
    uint8_t *bytes; /* of an eager one; NULL: read from the source when it is written */
    uint64_t cookie;
    bool told;      /* the sender knows that it is over */
    bool receiving; /* the receiver waits for the end */
    bool corrupt;
};

struct event {
    TAILQ_ENTRY(event) entry;
    uint64_t at_ns;
    enum event_kind kind;
    struct mover_peer *to;
    struct transfer *transfer;
    enum status status;
    size_t bytes;
    uint8_t frame[];
};

struct mover_peer {
    LIST_ENTRY(mover_peer) entry;
    struct mover *mover; /* NULL: destroyed */
    struct mover_peer *other;
    void *context;
    bool dialled, accepted;
    bool closed;      /* by the owner, or told to it */
    uint64_t last_ns; /* when the last message to it is due */
    uint64_t left_ns; /* when the last byte for it goes out, where the link has a rate */
};

struct mover {
    struct sim_network *network;
    struct mover_events events;
    struct mover_options options;
    void *arg;
    uint32_t node, sends;
    char address[32];
};

struct sim_network {
    struct random random;
    struct sim_odds odds;
    bool parted, stopped[NODES_MAX];
    uint32_t node; /* of movers to be created */
    struct mover *listeners[NODES_MAX];
    uint64_t corrupted;
    TAILQ_HEAD(event_queue, event) events; /* in the order of their time */
    LIST_HEAD(, mover_peer) peers;
    LIST_HEAD(, transfer) transfers;
};

static struct sim_network *entered; /* where movers are created */

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static bool chance(struct sim_network *network, uint32_t in_a_thousand)
{
    return random_below(&network->random, 1000) < in_a_thousand;
}

static uint64_t delay_ns(struct sim_network *network)
{
    uint64_t most_us = network->odds.delay_us;
    if (random_below(&network->random, LONG_DELAY_IN) == 0)
        most_us *= 1000;
    return random_below(&network->random, most_us + 1) * NS_PER_US;
}

/* ---- events ---- */

static void put(struct sim_network *network, struct event *event)
{
    struct event *before;
    TAILQ_FOREACH_REVERSE(before, &network->events, event_queue, entry)
    if (before->at_ns <= event->at_ns)
        break;
    if (before)
        TAILQ_INSERT_AFTER(&network->events, before, event, entry);
    else
        TAILQ_INSERT_HEAD(&network->events, event, entry);
}

static struct event *make_event(enum event_kind kind, struct mover_peer *to, uint64_t at_ns,
                                size_t bytes)
{
    struct event *event = allocate(sizeof *event + bytes);
    event->kind = kind;
    event->to = to;
    event->at_ns = at_ns;
    event->bytes = bytes;
    return event;
}

static void post(struct sim_network *network, enum event_kind kind, struct mover_peer *to,
                 struct transfer *transfer, enum status status, uint64_t after_ns)
{
    struct event *event = make_event(kind, to, sim_now_ns + after_ns, 0);
    event->transfer = transfer;
    event->status = status;
    put(network, event);
}

/* When something that is sent now has left. */
static uint64_t leave_ns(const struct sim_network *network, struct mover_peer *to, uint64_t bytes)
{
    if (network->odds.bytes_per_s == 0)
        return sim_now_ns;
    if (to->left_ns < sim_now_ns)
        to->left_ns = sim_now_ns;
    to->left_ns += bytes * NS_PER_S / network->odds.bytes_per_s;
    return to->left_ns;
}

/* When it arrives. */
static uint64_t arrival_ns(struct sim_network *network, struct mover_peer *to, uint64_t left_ns)
{
    uint64_t at_ns = left_ns + delay_ns(network);
    if ((network->odds.in_order || !to->accepted) && at_ns < to->last_ns)
        at_ns = to->last_ns;
    if (at_ns > to->last_ns)
        to->last_ns = at_ns;
    return at_ns;
}

/* ---- ends of links and of transfers ---- */

static void tell_sent(struct transfer *transfer, enum status status)
{
    struct mover_peer *from = transfer->from;
    if (transfer->told)
        return;
    transfer->told = true;
    if (!from->mover)
        return;
    from->mover->sends--;
    from->mover->events.on_sent(from->mover->arg, from, transfer->cookie, status);
}

static void tell_received(struct transfer *transfer, enum status status)
{
    struct mover_peer *to = transfer->to;
    if (!transfer->receiving)
        return;
    transfer->receiving = false;
    if (to->mover)
        to->mover->events.on_data_done(to->mover->arg, to, &transfer->header, status);
}

/* Everything of this end that is still on its way is over. */
static void cancel_all(struct sim_network *network, struct mover_peer *peer)
{
    struct transfer *transfer;
    LIST_FOREACH(transfer, &network->transfers, entry)
    {
        if (transfer->from == peer)
            tell_sent(transfer, STATUS_CANCELED);
        if (transfer->to == peer)
            tell_received(transfer, STATUS_CANCELED);
    }
}

static void link_breaks(struct sim_network *network, struct mover_peer *peer)
{
    const uint64_t late_ns = random_below(&network->random, LATE_MS) * NS_PER_MS;
    post(network, EVENT_CLOSED, peer, NULL, STATUS_CLOSED, delay_ns(network));
    post(network, EVENT_CLOSED, peer->other, NULL, STATUS_CLOSED, late_ns);
}

/* ---- delivering ---- */

static void deliver_accept(struct sim_network *network, struct mover_peer *peer)
{
    struct mover_peer *dialler = peer->other;
    if (!peer->mover || peer->closed || network->parted) {
        post(network, EVENT_CLOSED, dialler, NULL, STATUS_TIMEOUT,
             dialler->mover ? (uint64_t)dialler->mover->options.connect_ms * NS_PER_MS : 0);
        return;
    }
    peer->accepted = dialler->accepted = true;
    peer->mover->events.on_peer_accepted(peer->mover->arg, peer);
}

static void deliver_data(struct sim_network *network, struct transfer *transfer)
{
    struct mover_peer *to = transfer->to;
    transfer->place_count =
        to->mover->events.on_data(to->mover->arg, to, &transfer->header, transfer->place);
    if (transfer->place_count == 0) {
        post(network, EVENT_SENT, transfer->from, transfer, STATUS_OK, delay_ns(network));
        return;
    }
    transfer->receiving = true;
    post(network, EVENT_WRITE, to, transfer, STATUS_OK, transfer->bytes ? 0 : delay_ns(network));
}

static void copy(const struct transfer *transfer)
{
    size_t done = 0, from = 0, offset = 0;
    for (uint32_t i = 0; i < transfer->place_count; i++) {
        uint8_t *at = transfer->place[i].data;
        for (size_t b = 0; b < transfer->place[i].bytes; b++, done++) {
            if (transfer->bytes) {
                at[b] = transfer->bytes[done];
                continue;
            }
            if (offset == transfer->source[from].bytes) {
                from++;
                offset = 0;
            }
            at[b] = ((const uint8_t *)transfer->source[from].data)[offset++];
        }
    }
    CHECK(done == transfer->header.payload_bytes);
}

static void deliver_write(struct sim_network *network, struct transfer *transfer)
{
    if (!transfer->receiving)
        return; /* it was cancelled meanwhile */
    /* The source is read at last: a sender that was told before is not waiting any more. */
    if (!transfer->bytes && transfer->told) {
        link_breaks(network, transfer->to);
        return;
    }
    copy(transfer);
    if (transfer->corrupt) {
        uint8_t *at = transfer->place[0].data;
        at[random_below(&network->random, transfer->place[0].bytes)] ^= 1;
        network->corrupted++;
    }
    post(network, EVENT_SENT, transfer->from, transfer, STATUS_OK, delay_ns(network));
    tell_received(transfer, STATUS_OK);
}

static void deliver_closed(struct sim_network *network, struct mover_peer *peer, enum status status)
{
    if (!peer->mover || peer->closed)
        return;
    if (!peer->dialled && !peer->accepted) { /* nobody knows of it yet, and nobody will */
        peer->closed = true;
        return;
    }
    cancel_all(network, peer);
    if (peer->closed)
        return; /* by its owner, in a callback */
    peer->closed = true;
    peer->mover->events.on_peer_closed(peer->mover->arg, peer, status);
}

static void deliver(struct sim_network *network, const struct event *event)
{
    struct mover_peer *to = event->to;
    const bool takes = to->mover && !to->closed;
    switch (event->kind) {
    case EVENT_ACCEPT:
        deliver_accept(network, to);
        break;
    case EVENT_MESSAGE:
        if (takes && to->accepted)
            to->mover->events.on_message(to->mover->arg, to, event->frame, event->bytes);
        break;
    case EVENT_DATA:
        if (takes && to->accepted)
            deliver_data(network, event->transfer);
        break;
    case EVENT_WRITE:
        deliver_write(network, event->transfer);
        break;
    case EVENT_SENT:
        tell_sent(event->transfer, event->status);
        break;
    case EVENT_CLOSED:
        deliver_closed(network, to, event->status);
        break;
    }
}

static bool is_held(const struct sim_network *network, const struct event *event)
{
    return event->to->mover && network->stopped[event->to->mover->node];
}

uint64_t sim_network_next_ns(const struct sim_network *network)
{
    const struct event *event;
    TAILQ_FOREACH(event, &network->events, entry)
    if (!is_held(network, event))
        return event->at_ns > sim_now_ns ? event->at_ns : sim_now_ns;
    return UINT64_MAX;
}

bool sim_network_deliver(struct sim_network *network, uint32_t *node_out)
{
    struct event *event;
    TAILQ_FOREACH(event, &network->events, entry)
    if (!is_held(network, event))
        break;
    if (!event || event->at_ns > sim_now_ns)
        return false;
    TAILQ_REMOVE(&network->events, event, entry);
    *node_out = event->to->mover ? event->to->mover->node : 0;
    const bool local = event->kind == EVENT_SENT && event->transfer->bytes;
    const bool waits = event->kind == EVENT_WRITE || event->kind == EVENT_CLOSED ||
                       (event->kind == EVENT_SENT && !local);
    if (network->parted && waits && event->status != STATUS_TIMEOUT) {
        event->at_ns = sim_now_ns + RETRY_NS; /* it would have to come over the network */
        put(network, event);
        return true;
    }
    if (!network->parted || waits || local || event->kind == EVENT_ACCEPT)
        deliver(network, event);
    free(event);
    return true;
}

/* ---- the table ---- */

static enum status sim_create(struct loop *loop, const struct mover_options *options,
                              const struct mover_events *events, void *arg, struct mover **out,
                              struct error *error)
{
    (void)loop, (void)error;
    struct mover *mover = allocate(sizeof *mover);
    *mover = (struct mover){.network = entered,
                            .events = *events,
                            .options = *options,
                            .arg = arg,
                            .node = entered->node};
    if (options->listen) {
        CHECK(entered->listeners[mover->node] == NULL);
        entered->listeners[mover->node] = mover;
        snprintf(mover->address, sizeof mover->address, "sim:%u", mover->node);
    }
    *out = mover;
    return STATUS_OK;
}

static void sim_destroy(struct mover *mover)
{
    struct sim_network *network = mover->network;
    struct mover_peer *peer;
    if (network->listeners[mover->node] == mover)
        network->listeners[mover->node] = NULL;
    LIST_FOREACH(peer, &network->peers, entry)
    {
        if (peer->mover != mover)
            continue;
        peer->mover = NULL;
        cancel_all(network, peer);
        if (!peer->closed)
            post(network, EVENT_CLOSED, peer->other, NULL, STATUS_CLOSED, delay_ns(network));
        peer->closed = true;
    }
    free(mover);
}

static const char *sim_address(const struct mover *mover)
{
    return mover->address;
}

static struct mover_peer *peer_new(struct sim_network *network, struct mover *mover)
{
    struct mover_peer *peer = allocate(sizeof *peer);
    peer->mover = mover;
    LIST_INSERT_HEAD(&network->peers, peer, entry);
    return peer;
}

static enum status sim_dial(struct mover *mover, const char *address, struct mover_peer **out,
                            struct error *error)
{
    struct sim_network *network = mover->network;
    unsigned node;
    if (sscanf(address, "sim:%u", &node) != 1 || node >= NODES_MAX)
        return error_set(error, STATUS_INVALID, "\"%.50s\" is no simulated address", address);
    struct mover_peer *peer = peer_new(network, mover);
    peer->other = peer_new(network, network->listeners[node]);
    peer->other->other = peer;
    peer->dialled = true;
    struct event *accept =
        make_event(EVENT_ACCEPT, peer->other, arrival_ns(network, peer->other, sim_now_ns), 0);
    put(network, accept);
    *out = peer;
    return STATUS_OK;
}

static enum status sim_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct sim_network *network = peer->mover->network;
    if (peer->closed)
        return STATUS_CLOSED;
    if (bytes > peer->mover->options.message_bytes_max)
        return STATUS_LIMIT;
    if (chance(network, network->odds.cut))
        link_breaks(network, peer);
    const int copies =
        chance(network, network->odds.drop) ? 0 : 1 + chance(network, network->odds.repeat);
    for (int i = 0; i < copies && !network->parted; i++) {
        const uint64_t left_ns = leave_ns(network, peer->other, bytes);
        struct event *event = make_event(EVENT_MESSAGE, peer->other,
                                         arrival_ns(network, peer->other, left_ns), bytes);
        memcpy(event->frame, frame, bytes);
        put(network, event);
    }
    return STATUS_OK;
}

static void take_bytes(struct transfer *transfer)
{
    size_t done = 0;
    transfer->bytes = allocate(transfer->header.payload_bytes);
    for (uint32_t i = 0; i < transfer->source_count; i++) {
        memcpy(transfer->bytes + done, transfer->source[i].data, transfer->source[i].bytes);
        done += transfer->source[i].bytes;
    }
    CHECK(done == transfer->header.payload_bytes);
}

static enum status sim_send_data(struct mover_peer *peer, const struct mover_data_header *header,
                                 const struct mover_segment *segments, uint32_t segment_count,
                                 uint64_t cookie)
{
    struct mover *mover = peer->mover;
    struct sim_network *network = mover->network;
    if (peer->closed)
        return STATUS_CLOSED;
    if (header->payload_bytes > mover->options.data_bytes_max)
        return STATUS_LIMIT;
    if (mover->sends == mover->options.sends_max)
        return STATUS_AGAIN;
    mover->sends++;
    const bool eager = random_below(&network->random, 2) == 0;
    const int copies = chance(network, network->odds.drop)
                           ? 0
                           : 1 + (eager && chance(network, network->odds.repeat));
    for (int i = 0; i < (copies > 0 ? copies : 1); i++) {
        struct transfer *transfer = allocate(sizeof *transfer);
        *transfer = (struct transfer){.from = peer,
                                      .to = peer->other,
                                      .header = *header,
                                      .source_count = segment_count,
                                      .cookie = cookie,
                                      .told = i > 0,
                                      .corrupt = chance(network, network->odds.corrupt)};
        memcpy(transfer->source, segments, segment_count * sizeof *segments);
        if (eager)
            take_bytes(transfer);
        LIST_INSERT_HEAD(&network->transfers, transfer, entry);
        const uint64_t left_ns = leave_ns(network, peer->other, header->payload_bytes);
        if (eager && i == 0)
            post(network, EVENT_SENT, peer, transfer, STATUS_OK,
                 left_ns - sim_now_ns + delay_ns(network));
        if (copies == 0 || network->parted)
            continue;
        struct event *event =
            make_event(EVENT_DATA, peer->other, arrival_ns(network, peer->other, left_ns), 0);
        event->transfer = transfer;
        put(network, event);
    }
    return STATUS_OK;
}

static void sim_peer_close(struct mover_peer *peer)
{
    struct sim_network *network = peer->mover->network;
    struct transfer *transfer;
    CHECK(!peer->closed);
    peer->closed = true;
    LIST_FOREACH(transfer, &network->transfers, entry)
    {
        if (transfer->from == peer && !transfer->told)
            post(network, EVENT_SENT, peer, transfer, STATUS_CANCELED, 0);
        if (transfer->to == peer && transfer->receiving) {
            /* The end is told at once or by the turn of the loop; nothing is written from now on.
             */
            tell_received(transfer, STATUS_CANCELED);
        }
    }
    post(network, EVENT_CLOSED, peer->other, NULL, STATUS_CLOSED, delay_ns(network));
}

static void sim_peer_set_context(struct mover_peer *peer, void *context)
{
    peer->context = context;
}

static void *sim_peer_context(const struct mover_peer *peer)
{
    return peer->context;
}

static struct mover_shape sim_peer_shape(const struct mover_peer *peer)
{
    (void)peer;
    return (struct mover_shape){.run_bytes = 256, .gather_bytes = 512, .message_bytes = 1024};
}

const struct mover_ops *sim_network_mover(void)
{
    static const struct mover_ops ops = {
        .name = "simulated",
        .create = sim_create,
        .destroy = sim_destroy,
        .address = sim_address,
        .dial = sim_dial,
        .send_message = sim_send_message,
        .send_data = sim_send_data,
        .peer_close = sim_peer_close,
        .peer_set_context = sim_peer_set_context,
        .peer_context = sim_peer_context,
        .peer_shape = sim_peer_shape,
    };
    return &ops;
}

/* ---- the world's side ---- */

struct sim_network *sim_network_create(uint64_t seed)
{
    struct sim_network *network = allocate(sizeof *network);
    random_init(&network->random, seed);
    TAILQ_INIT(&network->events);
    LIST_INIT(&network->peers);
    LIST_INIT(&network->transfers);
    entered = network;
    return network;
}

void sim_network_destroy(struct sim_network *network)
{
    struct event *event;
    struct mover_peer *peer;
    struct transfer *transfer;
    while ((event = TAILQ_FIRST(&network->events))) {
        TAILQ_REMOVE(&network->events, event, entry);
        free(event);
    }
    while ((peer = LIST_FIRST(&network->peers))) {
        CHECK(peer->mover == NULL);
        LIST_REMOVE(peer, entry);
        free(peer);
    }
    while ((transfer = LIST_FIRST(&network->transfers))) {
        LIST_REMOVE(transfer, entry);
        free(transfer->bytes);
        free(transfer);
    }
    free(network);
    entered = NULL;
}

void sim_network_odds(struct sim_network *network, const struct sim_odds *odds)
{
    network->odds = *odds;
}

void sim_network_part(struct sim_network *network, bool parted)
{
    network->parted = parted;
}

void sim_network_stop(struct sim_network *network, uint32_t node, bool stopped)
{
    network->stopped[node] = stopped;
}

void sim_network_enter(struct sim_network *network, uint32_t node)
{
    CHECK(node < NODES_MAX);
    network->node = node;
}

static bool is_inside(const struct mover_segment *segments, uint32_t count, const uint8_t *at,
                      size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *begin = segments[i].data;
        if (begin < at + bytes && at < begin + segments[i].bytes)
            return true;
    }
    return false;
}

bool sim_network_uses(const struct sim_network *network, const void *at, size_t bytes)
{
    const struct transfer *transfer;
    LIST_FOREACH(transfer, &network->transfers, entry)
    {
        if (transfer->receiving && is_inside(transfer->place, transfer->place_count, at, bytes))
            return true;
        if (!transfer->told && is_inside(transfer->source, transfer->source_count, at, bytes))
            return true;
    }
    return false;
}

uint64_t sim_network_corrupted(const struct sim_network *network)
{
    return network->corrupted;
}
