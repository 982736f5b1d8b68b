/* The mover over UCX active messages. README.md lists the traps of UCX 1.13 that shape it.
 *
 * A domain is a UCX context and worker bound to one network device. The listening side has one; a
 * side that only dials opens one for each device its peers are reached through. The worker's event
 * descriptor is armed before every return to the loop: whoever calls into UCX from elsewhere
 * schedules `turn`, which progresses until quiet and arms. UCX callbacks only note what happened or
 * tell the owner; endpoints are created and closed from `turn` alone.
 *
 * A peer is LIVE until it failed or its owner closed it. Then `turn` closes the endpoint by force,
 * UCX completes everything that was pending, and when nothing is left the owner is told (unless it
 * was the one who closed) and the peer is freed. */
#include "transfer/mover_ucx_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    AM_MESSAGE = 1,
    AM_DATA = 2,
    DOMAINS_MAX = 4,
    PEERS_MAX = 256,
    CALLS_WAITING_MAX = 64,      /* connection requests of one turn */
    MESSAGES_WAITING_MAX = 1024, /* small messages of one peer not yet sent */
    SAFETY_MS = 20,              /* wake-ups of the event descriptor were seen to get lost */
    DESTROY_TURNS_MAX = 100000,
};

/* A message or data on its way out. Data sends are preallocated, messages carry their bytes. */
struct send {
    STAILQ_ENTRY(send) entry; /* free list, queue of a peer, or list of those to be told */
    struct mover_peer *peer;
    bool is_data;
    ucs_status_t status;
    uint64_t cookie;
    const void *data; /* of a message, or of the only segment */
    size_t bytes;
    uint32_t segment_count;
    ucp_dt_iov_t *segments;             /* [MOVER_SEGMENTS_MAX]; NULL in a message */
    uint8_t header[MOVER_HEADER_BYTES]; /* UCX 1.13 reads it until the send is complete */
    uint8_t frame[];
};
STAILQ_HEAD(send_list, send);

/* A rendezvous being received. Kept for reuse; there are never more than the owner has named
 * destinations for. */
struct receive {
    SLIST_ENTRY(receive) entry;
    struct mover_peer *peer;
    struct mover_data_header header;
    ucp_dt_iov_t segments[MOVER_SEGMENTS_MAX];
    bool begun; /* ucp_am_recv_data_nbx has returned */
    bool over;
    ucs_status_t status;
};
SLIST_HEAD(receive_list, receive);

struct mover_peer {
    LIST_ENTRY(mover_peer) entry;
    struct mover *mover;
    struct domain *domain;
    ucp_ep_h ep;
    void *context;
    struct send_list queue; /* waits until the endpoint may be used */
    uint32_t messages;      /* not yet complete */
    uint32_t sends;         /* data and messages given to UCX, not yet complete or not yet told */
    uint32_t receives;
    uint64_t dial_deadline_ns; /* 0: connected, or accepted */
    bool ready;                /* accepted endpoints send once the other side has spoken */
    bool failed;               /* never call into this endpoint again but to close it */
    bool closed;               /* by the owner: tells it nothing but ends of sends and receives */
    bool closing, gone;        /* the endpoint is being closed, is closed */
    bool shares_memory;        /* it is on this host, and shared memory is used */
    enum status status;        /* why it failed */
};
LIST_HEAD(peer_list, mover_peer);

struct mover {
    struct loop *loop;
    struct mover_options options;
    struct mover_events events;
    void *arg;
    struct domain domains[DOMAINS_MAX];
    uint32_t domain_count;
    ucp_listener_h listener;
    ucp_conn_request_h calls[CALLS_WAITING_MAX];
    uint32_t call_count;
    struct loop_task *turn;
    struct loop_timer *safety;
    bool safety_runs;
    bool quiet; /* being destroyed: no callbacks */
    struct peer_list peers;
    uint32_t peer_count;
    struct send *sends;     /* [sends_max] */
    ucp_dt_iov_t *segments; /* [sends_max][MOVER_SEGMENTS_MAX] */
    struct send_list sends_free, sends_told;
    struct receive_list receives_free;
    char address[MOVER_ADDRESS_BYTES];
};

static void on_turn(void *arg);

static ucs_status_t on_am_message(void *arg, const void *header, size_t header_bytes, void *data,
                                  size_t bytes, const ucp_am_recv_param_t *param);
static ucs_status_t on_am_data(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param);

static void on_readable(void *arg, unsigned events)
{
    struct domain *domain = arg;
    on_turn(domain->mover);
}

/* The domain of a device, opened at first use. */
static enum status domain_for(struct mover *mover, const char *device, struct domain **out,
                              struct error *error)
{
    static const struct domain_handler handlers[] = {{AM_MESSAGE, on_am_message},
                                                     {AM_DATA, on_am_data}};
    for (uint32_t i = 0; i < mover->domain_count; i++) {
        struct domain *domain = &mover->domains[i];
        if (domain->device[0] == '\0' || strcmp(domain->device, device) == 0) {
            *out = domain;
            return STATUS_OK;
        }
    }
    if (mover->domain_count == DOMAINS_MAX)
        return error_set(error, STATUS_LIMIT,
                         "peers are reached through more than %d network devices, now also %s: "
                         "set UCX_NET_DEVICES",
                         DOMAINS_MAX, device);
    struct domain *domain = &mover->domains[mover->domain_count];
    *domain = (struct domain){.mover = mover};
    int fd;
    TRY(domain_open(domain, device, handlers, ARRAY_COUNT(handlers), mover->options.memory,
                    mover->options.memory_bytes, &fd, error));
    domain->io = loop_io_create(mover->loop, fd, LOOP_READ, on_readable, domain);
    mover->domain_count++;
    *out = domain;
    return STATUS_OK;
}

/* ---- sends ---- */

static void turn_later(struct mover *mover)
{
    loop_task_schedule(mover->turn);
    if (!mover->safety_runs)
        loop_timer_start(mover->safety, SAFETY_MS, SAFETY_MS);
    mover->safety_runs = true;
}

/* Known to be over; UCX does not read it any more. Data is told to the owner. */
static void send_finish(struct send *send)
{
    struct mover_peer *peer = send->peer;
    struct mover *mover = peer->mover;
    const uint64_t cookie = send->cookie;
    const enum status status = domain_status(send->status);
    peer->sends--;
    if (!send->is_data) {
        peer->messages--;
        free(send);
        return;
    }
    send->peer = NULL;
    STAILQ_INSERT_HEAD(&mover->sends_free, send, entry);
    if (!mover->quiet)
        mover->events.on_sent(mover->arg, peer, cookie, status);
}

static void on_send_complete(void *request, ucs_status_t status, void *arg)
{
    struct send *send = arg;
    send->status = status;
    ucp_request_free(request);
    send_finish(send);
}

/* Over before UCX was asked, or at once: told from the next turn, not inside the owner's call. */
static void finish_later(struct send *send, ucs_status_t status)
{
    send->status = status;
    STAILQ_INSERT_TAIL(&send->peer->mover->sends_told, send, entry);
    turn_later(send->peer->mover);
}

static void send_post(struct send *send)
{
    struct mover_peer *peer = send->peer;
    const bool gathered = send->is_data && send->segment_count > 1;
    /* A rendezvous of several pieces takes a slow path of UCX. */
    const bool rendezvous = send->is_data && !gathered && !peer->shares_memory &&
                            send->bytes >= DOMAIN_RENDEZVOUS_FROM_BYTES;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE,
        .flags =
            UCP_AM_SEND_FLAG_REPLY | (rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER),
        .datatype = gathered ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .cb.send = on_send_complete,
        .user_data = send,
    };
    const ucs_status_ptr_t request = ucp_am_send_nbx(
        peer->ep, send->is_data ? AM_DATA : AM_MESSAGE, send->is_data ? send->header : NULL,
        send->is_data ? sizeof send->header : 0, gathered ? send->segments : send->data,
        gathered ? send->segment_count : send->bytes, &param);
    if (!UCS_PTR_IS_PTR(request))
        finish_later(send, UCS_PTR_STATUS(request));
    else
        turn_later(peer->mover);
}

static void send_or_queue(struct send *send)
{
    send->peer->sends++;
    if (send->peer->ready)
        send_post(send);
    else
        STAILQ_INSERT_TAIL(&send->peer->queue, send, entry);
}

static bool is_usable(const struct mover_peer *peer)
{
    return !peer->failed && !peer->closed;
}

static enum status ucx_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    if (!is_usable(peer))
        return STATUS_CLOSED;
    if (bytes > peer->mover->options.message_bytes_max || peer->messages == MESSAGES_WAITING_MAX)
        return STATUS_LIMIT;
    struct send *send = malloc(sizeof *send + bytes);
    CHECK(send != NULL);
    *send = (struct send){.peer = peer, .bytes = bytes, .data = send->frame};
    if (bytes > 0)
        memcpy(send->frame, frame, bytes);
    peer->messages++;
    send_or_queue(send);
    return STATUS_OK;
}

static enum status ucx_send_data(struct mover_peer *peer, const struct mover_data_header *header,
                                 const struct mover_segment *segments, uint32_t segment_count,
                                 uint64_t cookie)
{
    struct mover *mover = peer->mover;
    CHECK(segment_count > 0 && segment_count <= MOVER_SEGMENTS_MAX);
    CHECK(mover_segments_bytes(segments, segment_count) == header->payload_bytes);
    if (!is_usable(peer))
        return STATUS_CLOSED;
    if (header->payload_bytes > mover->options.data_bytes_max)
        return STATUS_LIMIT;
    struct send *send = STAILQ_FIRST(&mover->sends_free);
    if (!send)
        return STATUS_AGAIN;
    STAILQ_REMOVE_HEAD(&mover->sends_free, entry);
    send->peer = peer;
    send->is_data = true;
    send->cookie = cookie;
    send->data = segments[0].data;
    send->bytes = header->payload_bytes;
    send->segment_count = segment_count;
    for (uint32_t i = 0; segment_count > 1 && i < segment_count; i++)
        send->segments[i] = (ucp_dt_iov_t){segments[i].data, segments[i].bytes};
    mover_header_write(header, send->header);
    send_or_queue(send);
    return STATUS_OK;
}

/* ---- peers ---- */

static void peer_fail(struct mover_peer *peer, enum status status)
{
    if (peer->failed)
        return;
    peer->failed = true;
    peer->status = status == STATUS_OK ? STATUS_CLOSED : status;
    turn_later(peer->mover);
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct mover_peer *peer = arg;
    LOG_DEBUG("a peer's endpoint failed: %s", ucs_status_string(status));
    peer_fail(peer, domain_status(status));
}

static void peer_opened(struct mover_peer *peer)
{
    peer->ready = true;
    struct send *send;
    while ((send = STAILQ_FIRST(&peer->queue))) {
        STAILQ_REMOVE_HEAD(&peer->queue, entry);
        send_post(send);
    }
}

/* An empty message. The side that dialled sends one at once and the other answers it: that is how
 * both know that the connection is whole. (A flush would tell the same, but UCX 1.13 aborts when
 * the connection breaks under a flush.) */
static void peer_greet(struct mover_peer *peer)
{
    const enum status status = ucx_send_message(peer, NULL, 0);
    CHECK(status == STATUS_OK || status == STATUS_CLOSED);
}

static void peer_greeted(struct mover_peer *peer)
{
    if (!peer->ready) {
        peer_opened(peer);
        peer_greet(peer);
    }
    peer->dial_deadline_ns = 0;
}

static struct mover_peer *peer_create(struct domain *domain, ucp_ep_params_t *params,
                                      ucs_status_t *status_out)
{
    struct mover_peer *peer = calloc(1, sizeof *peer);
    CHECK(peer != NULL);
    peer->mover = domain->mover;
    peer->domain = domain;
    STAILQ_INIT(&peer->queue);
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_ep_error;
    params->err_handler.arg = peer;
    *status_out = ucp_ep_create(domain->worker, params, &peer->ep);
    if (*status_out != UCS_OK) {
        free(peer);
        return NULL;
    }
    LIST_INSERT_HEAD(&domain->mover->peers, peer, entry);
    domain->mover->peer_count++;
    turn_later(domain->mover);
    return peer;
}

static enum status ucx_dial(struct mover *mover, const char *address, struct mover_peer **out,
                            struct error *error)
{
    struct sockaddr_storage target;
    char device[MOVER_DEVICE_BYTES] = "";
    struct domain *domain;
    ucs_status_t status;
    TRY(mover_address_resolve(address, &target, error));
    if (mover->peer_count >= PEERS_MAX)
        return error_set(error, STATUS_LIMIT, "%u peers are connected, the limit is %d",
                         mover->peer_count, PEERS_MAX);
    if (!getenv("UCX_NET_DEVICES") && !mover_address_route_device(&target, device))
        return error_set(error, STATUS_IO, "no network device leads to %.100s", address);
    TRY(domain_for(mover, device, &domain, error));
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {(const struct sockaddr *)&target, mover_address_bytes(&target)},
    };
    struct mover_peer *peer = peer_create(domain, &params, &status);
    if (!peer)
        return error_set(error, STATUS_IO, "%.100s cannot be dialled: %s", address,
                         ucs_status_string(status));
    peer->ready = true;
    peer->shares_memory = domain_shares_memory() && mover_address_device(&target, device);
    peer->dial_deadline_ns =
        loop_now_ns(mover->loop) + (uint64_t)mover->options.connect_ms * NS_PER_MS;
    peer_greet(peer);
    *out = peer;
    return STATUS_OK;
}

static void on_connection_request(ucp_conn_request_h request, void *arg)
{
    struct mover *mover = arg;
    if (mover->quiet || mover->call_count == CALLS_WAITING_MAX ||
        mover->peer_count + mover->call_count >= PEERS_MAX) {
        LOG_WARN("a peer that dialled was turned away: %u are connected, the limit is %d",
                 mover->peer_count, PEERS_MAX);
        ucp_listener_reject(mover->listener, request);
        return;
    }
    mover->calls[mover->call_count++] = request;
    turn_later(mover);
}

static void accept_calls(struct mover *mover)
{
    for (uint32_t i = 0; i < mover->call_count; i++) {
        ucs_status_t status;
        ucp_ep_params_t params = {
            .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
            .conn_request = mover->calls[i],
        };
        struct mover_peer *peer = peer_create(&mover->domains[0], &params, &status);
        if (!peer) {
            LOG_WARN("a peer that dialled could not be taken: %s", ucs_status_string(status));
            continue;
        }
        mover->events.on_peer_accepted(mover->arg, peer);
    }
    mover->call_count = 0;
}

static void ucx_peer_close(struct mover_peer *peer)
{
    CHECK(!peer->closed);
    peer->closed = true;
    turn_later(peer->mover);
}

static void on_ep_closed(void *request, ucs_status_t status, void *arg)
{
    struct mover_peer *peer = arg;
    peer->gone = true;
    ucp_request_free(request);
    turn_later(peer->mover);
}

/* What never reached UCX is over now; the rest UCX completes while it closes. */
static void peer_close_endpoint(struct mover_peer *peer)
{
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = on_ep_closed,
        .user_data = peer,
    };
    peer->closing = true;
    struct send *send;
    while ((send = STAILQ_FIRST(&peer->queue))) {
        STAILQ_REMOVE_HEAD(&peer->queue, entry);
        finish_later(send, UCS_ERR_CANCELED);
    }
    const ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        peer->gone = true;
        turn_later(peer->mover);
    }
}

static void peers_reap(struct mover *mover)
{
    struct mover_peer *peer = LIST_FIRST(&mover->peers);
    while (peer) {
        if (!is_usable(peer) && !peer->closing)
            peer_close_endpoint(peer);
        struct mover_peer *next = LIST_NEXT(peer, entry);
        if (!peer->gone || peer->sends > 0 || peer->receives > 0) {
            peer = next;
            continue;
        }
        /* The callback may close other peers, which only marks them: next stays. */
        if (!peer->closed && !mover->quiet)
            mover->events.on_peer_closed(mover->arg, peer, peer->status);
        LIST_REMOVE(peer, entry);
        mover->peer_count--;
        free(peer);
        peer = next;
    }
}

/* ---- what arrives ---- */

/* NULL for a peer that is unknown, failed or closed: nothing of it is taken any more. */
static struct mover_peer *peer_of(struct mover *mover, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) || mover->quiet)
        return NULL;
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->ep == param->reply_ep)
        return is_usable(peer) ? peer : NULL;
    return NULL;
}

static ucs_status_t on_am_message(void *arg, const void *header, size_t header_bytes, void *data,
                                  size_t bytes, const ucp_am_recv_param_t *param)
{
    struct mover *mover = ((struct domain *)arg)->mover;
    struct mover_peer *peer = peer_of(mover, param);
    if (!peer)
        return UCS_OK;
    if (header_bytes != 0 || bytes > mover->options.message_bytes_max ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        LOG_WARN("a peer sent a message of %zu bytes where %zu is the limit; it is dropped", bytes,
                 mover->options.message_bytes_max);
        peer_fail(peer, STATUS_CORRUPT);
        return UCS_OK;
    }
    if (bytes == 0)
        peer_greeted(peer);
    else
        mover->events.on_message(mover->arg, peer, data, bytes);
    return UCS_OK;
}

static void receive_finish(struct receive *receive)
{
    struct mover_peer *peer = receive->peer;
    struct mover *mover = peer->mover;
    const struct mover_data_header header = receive->header;
    const enum status status = domain_status(receive->status);
    SLIST_INSERT_HEAD(&mover->receives_free, receive, entry);
    peer->receives--;
    if (!mover->quiet)
        mover->events.on_data_done(mover->arg, peer, &header, status);
}

/* Comes inside ucp_am_recv_data_nbx when the endpoint has just failed. */
static void on_received(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    struct receive *receive = arg;
    receive->over = true;
    receive->status = status;
    ucp_request_free(request);
    if (receive->begun)
        receive_finish(receive);
}

static struct receive *receive_take(struct mover_peer *peer, const struct mover_data_header *header)
{
    struct receive *receive = SLIST_FIRST(&peer->mover->receives_free);
    if (receive) {
        SLIST_REMOVE_HEAD(&peer->mover->receives_free, entry);
    } else {
        receive = malloc(sizeof *receive);
        CHECK(receive != NULL);
    }
    receive->peer = peer;
    receive->header = *header;
    receive->begun = receive->over = false;
    peer->receives++;
    return receive;
}

static void receive_rendezvous(struct mover_peer *peer, const struct mover_data_header *header,
                               void *description, const struct mover_segment *segments,
                               uint32_t count)
{
    struct receive *receive = receive_take(peer, header);
    for (uint32_t i = 0; i < count; i++)
        receive->segments[i] = (ucp_dt_iov_t){segments[i].data, segments[i].bytes};
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE,
        .datatype = count > 1 ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .cb.recv_am = on_received,
        .user_data = receive,
    };
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(
        peer->domain->worker, description, count > 1 ? receive->segments : segments[0].data,
        count > 1 ? count : header->payload_bytes, &param);
    receive->begun = true;
    if (!receive->over && !UCS_PTR_IS_PTR(request)) {
        receive->over = true;
        receive->status = UCS_PTR_STATUS(request);
    }
    if (receive->over)
        receive_finish(receive);
}

static ucs_status_t on_am_data(void *arg, const void *header_bytes_in, size_t header_bytes,
                               void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
    struct mover *mover = ((struct domain *)arg)->mover;
    struct mover_peer *peer = peer_of(mover, param);
    if (!peer)
        return UCS_OK;
    struct mover_data_header header = {0};
    if (header_bytes == MOVER_HEADER_BYTES)
        mover_header_read(header_bytes_in, &header);
    /* A receive buffer that is not exactly as long as what comes would abort the process. */
    if (header_bytes != MOVER_HEADER_BYTES || header.payload_bytes != bytes ||
        bytes > mover->options.data_bytes_max) {
        LOG_WARN(
            "a peer sent %zu bytes of data under a header of %zu that says %llu; it is dropped",
            bytes, header_bytes, (unsigned long long)header.payload_bytes);
        peer_fail(peer, STATUS_CORRUPT);
        return UCS_OK;
    }
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    const uint32_t count = mover->events.on_data(mover->arg, peer, &header, segments);
    if (count == 0)
        return UCS_OK; /* a rendezvous is answered by UCX without moving anything */
    CHECK(mover_segments_bytes(segments, count) == bytes);
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        receive_rendezvous(peer, &header, data, segments, count);
    } else {
        const struct mover_segment from = {data, bytes};
        mover_segments_copy(segments, count, &from, 1);
        mover->events.on_data_done(mover->arg, peer, &header, STATUS_OK);
    }
    return UCS_OK;
}

/* ---- progress ---- */

static bool mover_is_busy(const struct mover *mover)
{
    const struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->sends > 0 || peer->receives > 0 || peer->dial_deadline_ns || !is_usable(peer))
        return true;
    return false;
}

static void tell_sends(struct mover *mover)
{
    struct send *send;
    while ((send = STAILQ_FIRST(&mover->sends_told))) {
        STAILQ_REMOVE_HEAD(&mover->sends_told, entry);
        send_finish(send);
    }
}

static void on_turn(void *arg)
{
    struct mover *mover = arg;
    accept_calls(mover);
    tell_sends(mover);
    peers_reap(mover);
    bool more = false;
    for (uint32_t i = 0; i < mover->domain_count; i++)
        more |= !domain_progress(&mover->domains[i]);
    if (more)
        loop_task_schedule(mover->turn);
}

static void on_safety(void *arg)
{
    struct mover *mover = arg;
    const uint64_t now_ns = loop_now_ns(mover->loop);
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->dial_deadline_ns && now_ns >= peer->dial_deadline_ns)
        peer_fail(peer, STATUS_TIMEOUT);
    on_turn(mover);
    if (mover_is_busy(mover))
        return;
    loop_timer_stop(mover->safety);
    mover->safety_runs = false;
}

/* ---- the table ---- */

static enum status listen_at(struct mover *mover, struct error *error)
{
    const char *address = mover->options.listen;
    struct sockaddr_storage local;
    char device[MOVER_DEVICE_BYTES] = "";
    struct domain *domain;
    TRY(mover_address_resolve(address, &local, error));
    if (!getenv("UCX_NET_DEVICES") && !mover_address_device(&local, device))
        LOG_WARN("%s names no single network device; UCX will choose one: set UCX_NET_DEVICES",
                 address);
    TRY(domain_for(mover, device, &domain, error));
    const ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {(const struct sockaddr *)&local, mover_address_bytes(&local)},
        .conn_handler = {on_connection_request, mover},
    };
    ucs_status_t status = ucp_listener_create(domain->worker, &params, &mover->listener);
    if (status != UCS_OK)
        return error_set(error, STATUS_IO, "UCX cannot listen on %.100s: %s", address,
                         ucs_status_string(status));
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    status = ucp_listener_query(mover->listener, &attributes);
    CHECK(status == UCS_OK);
    mover_address_text(&attributes.sockaddr, mover->address);
    return STATUS_OK;
}

static void ucx_destroy(struct mover *mover)
{
    if (!mover)
        return;
    mover->quiet = true;
    for (uint32_t i = 0; i < mover->call_count; i++)
        ucp_listener_reject(mover->listener, mover->calls[i]);
    mover->call_count = 0;
    if (mover->listener)
        ucp_listener_destroy(mover->listener);
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    peer->closed = true;
    for (int i = 0; i < DESTROY_TURNS_MAX && !LIST_EMPTY(&mover->peers); i++) {
        tell_sends(mover);
        peers_reap(mover);
        for (uint32_t d = 0; d < mover->domain_count; d++)
            ucp_worker_progress(mover->domains[d].worker);
    }
    for (uint32_t i = 0; i < mover->domain_count; i++)
        domain_close(&mover->domains[i]);
    while ((peer = LIST_FIRST(&mover->peers))) {
        LOG_WARN("a peer's endpoint did not close in time");
        LIST_REMOVE(peer, entry);
        free(peer);
    }
    struct receive *receive;
    while ((receive = SLIST_FIRST(&mover->receives_free))) {
        SLIST_REMOVE_HEAD(&mover->receives_free, entry);
        free(receive);
    }
    loop_task_destroy(mover->turn);
    loop_timer_destroy(mover->safety);
    free(mover->sends);
    free(mover->segments);
    free(mover);
}

static enum status ucx_create(struct loop *loop, const struct mover_options *options,
                              const struct mover_events *events, void *arg, struct mover **out,
                              struct error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, domain_library_tame);
    struct mover *mover = calloc(1, sizeof *mover);
    CHECK(mover != NULL && options->sends_max > 0);
    mover->loop = loop;
    mover->options = *options;
    mover->events = *events;
    mover->arg = arg;
    LIST_INIT(&mover->peers);
    SLIST_INIT(&mover->receives_free);
    STAILQ_INIT(&mover->sends_free);
    STAILQ_INIT(&mover->sends_told);
    mover->sends = calloc(options->sends_max, sizeof *mover->sends);
    mover->segments =
        calloc((size_t)options->sends_max * MOVER_SEGMENTS_MAX, sizeof *mover->segments);
    CHECK(mover->sends != NULL && mover->segments != NULL);
    for (uint32_t i = 0; i < options->sends_max; i++)
        mover->sends[i].segments = mover->segments + (size_t)i * MOVER_SEGMENTS_MAX;
    for (uint32_t i = 0; i < options->sends_max; i++)
        STAILQ_INSERT_TAIL(&mover->sends_free, &mover->sends[i], entry);
    mover->turn = loop_task_create(loop, on_turn, mover);
    mover->safety = loop_timer_create(loop, on_safety, mover);
    if (options->listen) {
        const enum status status = listen_at(mover, error);
        if (status != STATUS_OK) {
            ucx_destroy(mover);
            return status;
        }
        turn_later(mover);
    }
    *out = mover;
    return STATUS_OK;
}

static const char *ucx_address(const struct mover *mover)
{
    return mover->address;
}

static void ucx_peer_set_context(struct mover_peer *peer, void *context)
{
    peer->context = context;
}

static void *ucx_peer_context(const struct mover_peer *peer)
{
    return peer->context;
}

static struct mover_shape ucx_peer_shape(const struct mover_peer *peer)
{
    if (peer->shares_memory)
        return (struct mover_shape){.run_bytes = 64 << 10, .gather_bytes = 1 << 20};
    return (struct mover_shape){.run_bytes = DOMAIN_RENDEZVOUS_FROM_BYTES,
                                .gather_bytes = 256 << 10};
}

const struct mover_ops mover_ucx_ops = {
    .name = "ucx",
    .create = ucx_create,
    .destroy = ucx_destroy,
    .address = ucx_address,
    .dial = ucx_dial,
    .send_message = ucx_send_message,
    .send_data = ucx_send_data,
    .peer_close = ucx_peer_close,
    .peer_set_context = ucx_peer_set_context,
    .peer_context = ucx_peer_context,
    .peer_shape = ucx_peer_shape,
};
