/* Faults between prefill and decode nodes: a mover around another one, used only while faults are
 * armed. It looks at the frames and data that pass and does to them what fault.h orders; both ends
 * of the hand-off stay as they are. */
#include "transfer/mover_internal.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "base/bytes.h"
#include "base/check.h"
#include "transfer/fault.h"
#include "transfer/wire_internal.h"

enum { PEERS_MAX = 256 };

/* Data that was lost without a word: its sender is told all the same that it was sent. */
struct lost_send {
    STAILQ_ENTRY(lost_send) entry;
    struct mover_peer *peer;
    uint64_t cookie;
};
STAILQ_HEAD(lost_list, lost_send);

/* One mover's owner, with what stands between. */
struct faulty {
    LIST_ENTRY(faulty) entry;
    struct mover *mover;
    struct mover_events events;
    void *arg;
    struct mover_peer *peers[PEERS_MAX];
    struct lost_list lost;
    struct loop_task *tell;
    /* Where a bit is to flip once the bytes are in place. */
    uint8_t *flip;
    struct mover_data_header flip_header;
};
LIST_HEAD(faulty_list, faulty);

/* The movers of this process are all of one kind. Loop thread. */
static const struct mover_ops *inner;
static struct faulty_list all = LIST_HEAD_INITIALIZER(all);

/* ---- whose peer it is ---- */

static void peer_add(struct faulty *faulty, struct mover_peer *peer)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        if (faulty->peers[i])
            continue;
        faulty->peers[i] = peer;
        return;
    }
}

static struct faulty *faulty_of(const struct mover_peer *peer)
{
    struct faulty *faulty;
    LIST_FOREACH(faulty, &all, entry)
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (faulty->peers[i] == peer)
            return faulty;
    return NULL;
}

static void tell_lost(struct faulty *faulty, const struct mover_peer *peer, enum status status)
{
    struct lost_list rest = STAILQ_HEAD_INITIALIZER(rest);
    struct lost_send *send;
    while ((send = STAILQ_FIRST(&faulty->lost))) {
        STAILQ_REMOVE_HEAD(&faulty->lost, entry);
        if (peer && send->peer != peer) {
            STAILQ_INSERT_TAIL(&rest, send, entry);
            continue;
        }
        faulty->events.on_sent(faulty->arg, send->peer, send->cookie, status);
        free(send);
    }
    STAILQ_CONCAT(&faulty->lost, &rest);
}

static void on_tell(void *arg)
{
    tell_lost(arg, NULL, STATUS_OK);
}

/* It is gone: what was lost of it is told first. */
static void peer_remove(struct faulty *faulty, const struct mover_peer *peer)
{
    tell_lost(faulty, peer, STATUS_CANCELED);
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (faulty->peers[i] == peer)
            faulty->peers[i] = NULL;
}

/* ---- events, on their way to the owner ---- */

static void on_peer_accepted(void *arg, struct mover_peer *peer)
{
    struct faulty *faulty = arg;
    peer_add(faulty, peer);
    faulty->events.on_peer_accepted(faulty->arg, peer);
}

static void on_peer_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct faulty *faulty = arg;
    peer_remove(faulty, peer);
    faulty->events.on_peer_closed(faulty->arg, peer, status);
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct faulty *faulty = arg;
    faulty->events.on_message(faulty->arg, peer, frame, bytes);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    struct faulty *faulty = arg;
    const enum fault_action action = fault_at(FAULT_DATA_RECEIVE);
    if (action == FAULT_REFUSE)
        return 0;
    const uint32_t count = faulty->events.on_data(faulty->arg, peer, header, segments);
    if (action == FAULT_CORRUPT && count > 0) {
        faulty->flip = segments[0].data;
        faulty->flip_header = *header;
    }
    return count;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
    struct faulty *faulty = arg;
    const struct mover_data_header *flip = &faulty->flip_header;
    if (faulty->flip && flip->handoff == header->handoff && flip->layer == header->layer &&
        flip->first_page == header->first_page) {
        if (status == STATUS_OK)
            faulty->flip[0] ^= 1;
        faulty->flip = NULL;
    }
    faulty->events.on_data_done(faulty->arg, peer, header, status);
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    struct faulty *faulty = arg;
    faulty->events.on_sent(faulty->arg, peer, cookie, status);
}

/* ---- calls, on their way to the mover ---- */

static enum status fault_create(struct loop *loop, const struct mover_options *options,
                                const struct mover_events *events, void *arg, struct mover **out,
                                struct error *error)
{
    static const struct mover_events ours = {
        .on_peer_accepted = on_peer_accepted,
        .on_peer_closed = on_peer_closed,
        .on_message = on_message,
        .on_data = on_data,
        .on_data_done = on_data_done,
        .on_sent = on_sent,
    };
    struct faulty *faulty = calloc(1, sizeof *faulty);
    CHECK(faulty != NULL);
    faulty->events = *events;
    faulty->arg = arg;
    STAILQ_INIT(&faulty->lost);
    const enum status status = inner->create(loop, options, &ours, faulty, &faulty->mover, error);
    if (status != STATUS_OK) {
        free(faulty);
        return status;
    }
    faulty->tell = loop_task_create(loop, on_tell, faulty);
    LIST_INSERT_HEAD(&all, faulty, entry);
    *out = faulty->mover;
    return STATUS_OK;
}

static struct faulty *faulty_around(const struct mover *mover)
{
    struct faulty *faulty;
    LIST_FOREACH(faulty, &all, entry)
    if (faulty->mover == mover)
        return faulty;
    CHECK(!"a mover that was not made here");
    return NULL;
}

static void fault_destroy(struct mover *mover)
{
    if (!mover)
        return;
    struct faulty *faulty = faulty_around(mover);
    struct lost_send *send;
    inner->destroy(mover);
    while ((send = STAILQ_FIRST(&faulty->lost))) {
        STAILQ_REMOVE_HEAD(&faulty->lost, entry);
        free(send);
    }
    loop_task_destroy(faulty->tell);
    LIST_REMOVE(faulty, entry);
    free(faulty);
}

static const char *fault_address(const struct mover *mover)
{
    return inner->address(mover);
}

static enum status fault_dial(struct mover *mover, const char *address, struct mover_peer **out,
                              struct error *error)
{
    TRY(inner->dial(mover, address, out, error));
    peer_add(faulty_around(mover), *out);
    return STATUS_OK;
}

/* The point that a frame passes; FAULT_POINT_COUNT for none. */
static enum fault_point point_of(const void *frame, size_t bytes)
{
    static const struct {
        enum message_id id;
        enum fault_point point;
    } rows[] = {
        {MESSAGE_ID_PEER_HELLO, FAULT_HELLO}, {MESSAGE_ID_PEER_WELCOME, FAULT_WELCOME},
        {MESSAGE_ID_OFFER, FAULT_OFFER},      {MESSAGE_ID_GRANT, FAULT_GRANT},
        {MESSAGE_ID_DONE, FAULT_DONE},        {MESSAGE_ID_LANDED, FAULT_LANDED},
        {MESSAGE_ID_ABORT, FAULT_ABORT},
    };
    const uint32_t type = bytes >= WIRE_PREFIX_BYTES ? load_le32((const uint8_t *)frame + 8) : 0;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (wire_message(rows[i].id)->type == type)
            return rows[i].point;
    return FAULT_POINT_COUNT;
}

static enum status send_corrupt(struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct buffer copy = {0};
    buffer_add(&copy, frame, bytes);
    copy.data[bytes - 1] ^= 1;
    const enum status status = inner->send_message(peer, copy.data, copy.size);
    buffer_free(&copy);
    return status;
}

static enum status send_refusal(struct mover_peer *peer)
{
    struct buffer frame = {0};
    const struct msg_reject reject = {.code = (uint32_t)-STATUS_REFUSED,
                                      .text = wire_str("it was told to refuse for a test")};
    enum status status = wire_encode(MESSAGE_ID_REJECT, &reject, &frame, NULL);
    CHECK(status == STATUS_OK);
    status = inner->send_message(peer, frame.data, frame.size);
    buffer_free(&frame);
    return status;
}

static enum status fault_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    const enum fault_point point = point_of(frame, bytes);
    switch (point < FAULT_POINT_COUNT ? fault_at(point) : FAULT_NO) {
    case FAULT_DROP:
        return STATUS_OK;
    case FAULT_CORRUPT:
        return send_corrupt(peer, frame, bytes);
    case FAULT_SHORT:
        return inner->send_message(peer, frame, bytes / 2);
    case FAULT_REFUSE:
        return send_refusal(peer);
    default:
        return inner->send_message(peer, frame, bytes);
    }
}

static enum status lose_data(struct mover_peer *peer, uint64_t cookie)
{
    struct faulty *faulty = faulty_of(peer);
    struct lost_send *send = calloc(1, sizeof *send);
    CHECK(faulty != NULL && send != NULL);
    send->peer = peer;
    send->cookie = cookie;
    STAILQ_INSERT_TAIL(&faulty->lost, send, entry);
    loop_task_schedule(faulty->tell);
    return STATUS_OK;
}

/* Bytes the segments do not say are not there: the last one loses its last byte. */
static enum status send_short(struct mover_peer *peer, struct mover_data_header header,
                              const struct mover_segment *segments, uint32_t count, uint64_t cookie)
{
    struct mover_segment shorter[MOVER_SEGMENTS_MAX];
    for (uint32_t i = 0; i < count; i++)
        shorter[i] = segments[i];
    shorter[count - 1].bytes--;
    header.payload_bytes--;
    return inner->send_data(peer, &header, shorter, count, cookie);
}

static enum status fault_send_data(struct mover_peer *peer, const struct mover_data_header *header,
                                   const struct mover_segment *segments, uint32_t segment_count,
                                   uint64_t cookie)
{
    struct mover_data_header changed = *header;
    switch (fault_at(FAULT_DATA_SEND)) {
    case FAULT_DROP:
        return lose_data(peer, cookie);
    case FAULT_CORRUPT:
        changed.checksum ^= 1; /* the pages themselves may be wanted again */
        break;
    case FAULT_SHORT:
        return send_short(peer, changed, segments, segment_count, cookie);
    default:
        break;
    }
    return inner->send_data(peer, &changed, segments, segment_count, cookie);
}

static void fault_peer_close(struct mover_peer *peer)
{
    struct faulty *faulty = faulty_of(peer);
    if (faulty)
        peer_remove(faulty, peer);
    inner->peer_close(peer);
}

static void fault_peer_set_context(struct mover_peer *peer, void *context)
{
    inner->peer_set_context(peer, context);
}

static void *fault_peer_context(const struct mover_peer *peer)
{
    return inner->peer_context(peer);
}

static struct mover_shape fault_peer_shape(const struct mover_peer *peer)
{
    return inner->peer_shape(peer);
}

const struct mover_ops *mover_with_faults(const struct mover_ops *ops)
{
    static const struct mover_ops faulty_ops = {
        .name = "faulty",
        .create = fault_create,
        .destroy = fault_destroy,
        .address = fault_address,
        .dial = fault_dial,
        .send_message = fault_send_message,
        .send_data = fault_send_data,
        .peer_close = fault_peer_close,
        .peer_set_context = fault_peer_set_context,
        .peer_context = fault_peer_context,
        .peer_shape = fault_peer_shape,
    };
    if (!fault_armed)
        return ops;
    CHECK(LIST_EMPTY(&all) || inner == ops);
    inner = ops;
    return &faulty_ops;
}
