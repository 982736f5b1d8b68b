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
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    PEERS_MAX = 256,
    SAFETY_MS = 20, /* wake-ups of the event descriptor were seen to get lost */
    DESTROY_TURNS_MAX = 100000,
    SPIN_NS = 50 * NS_PER_US,  /* how long after the last event the next one is spun for */
    TURN_NS = 20 * NS_PER_US,  /* and after how long the loop gets its turn in between */
    MESSAGE_BYTES = 256 << 10, /* of data: as large as gains anything, as small as stays cached */
    RUN_BYTES = 128 << 10,
};

static void on_turn(void *arg);

static void on_readable(void *arg, unsigned events)
{
    struct domain *domain = arg;
    on_turn(domain->mover);
}

/* The domain of a device, opened at first use. */
static enum status domain_for(struct mover *mover, const char *device, struct domain **out,
                              struct error *error)
{
    static const struct domain_handler handlers[] = {{AM_MESSAGE, ucx_on_message},
                                                     {AM_DATA, ucx_on_data}};
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

void ucx_turn_later(struct mover *mover)
{
    if (!mover->in_turn)
        loop_task_schedule(mover->turn);
    if (!mover->safety_runs)
        loop_timer_start(mover->safety, SAFETY_MS, SAFETY_MS);
    mover->safety_runs = true;
}

/* ---- peers ---- */

void ucx_peer_fail(struct mover_peer *peer, enum status status)
{
    if (peer->failed)
        return;
    peer->failed = true;
    peer->status = status == STATUS_OK ? STATUS_CLOSED : status;
    ucx_turn_later(peer->mover);
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct mover_peer *peer = arg;
    LOG_DEBUG("a peer's endpoint failed: %s", ucs_status_string(status));
    ucx_peer_fail(peer, domain_status(status));
}

static void peer_opened(struct mover_peer *peer)
{
    peer->ready = true;
    ucx_send_queued(peer);
}

/* An empty message. The side that dialled sends one at once and the other answers it: that is how
 * both know that the connection is whole. (A flush would tell the same, but UCX 1.13 aborts when
 * the connection breaks under a flush.) */
static void peer_greet(struct mover_peer *peer)
{
    const enum status status = ucx_send_message(peer, NULL, 0);
    CHECK(status == STATUS_OK || status == STATUS_CLOSED);
}

void ucx_peer_greeted(struct mover_peer *peer)
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
    ucx_turn_later(domain->mover);
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
    ucx_turn_later(mover);
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
    ucx_turn_later(peer->mover);
}

static void on_ep_closed(void *request, ucs_status_t status, void *arg)
{
    struct mover_peer *peer = arg;
    peer->gone = true;
    ucp_request_free(request);
    ucx_turn_later(peer->mover);
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
    ucx_cancel_queued(peer);
    const ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        peer->gone = true;
        ucx_turn_later(peer->mover);
    }
}

static void peers_reap(struct mover *mover)
{
    struct mover_peer *peer = LIST_FIRST(&mover->peers);
    while (peer) {
        if (!ucx_peer_is_usable(peer) && !peer->closing)
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

/* ---- progress ---- */

static bool mover_is_busy(const struct mover *mover)
{
    const struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->sends > 0 || peer->receives > 0 || peer->dial_deadline_ns ||
        !ucx_peer_is_usable(peer))
        return true;
    return false;
}

/* Once through everything that is due; false when there is more of it. */
static bool turn_once(struct mover *mover)
{
    bool quiet = true;
    accept_calls(mover);
    ucx_tell_sends(mover);
    peers_reap(mover);
    for (uint32_t i = 0; i < mover->domain_count; i++)
        quiet &= domain_progress(&mover->domains[i]);
    return quiet && STAILQ_EMPTY(&mover->sends_told);
}

/* Turns until nothing more comes, and for a while after the last event waits for the next one
 * without giving up the CPU. False when the loop is to come back at once: there is more to do, or
 * other work of the loop has to be done first. True: armed, the loop may sleep. */
static bool turn(struct mover *mover)
{
    uint64_t now_ns = loop_now_ns(mover->loop);
    const uint64_t end_ns = now_ns + TURN_NS;
    bool spins = true;
    while (spins) {
        const uint64_t told = mover->told;
        const bool quiet = turn_once(mover);
        now_ns = loop_now_ns(mover->loop);
        if (!quiet || mover->told != told)
            mover->active_ns = now_ns;
        if (loop_has_tasks(mover->loop) || now_ns >= end_ns)
            return false;
        spins = now_ns - mover->active_ns < (mover->spins ? SPIN_NS : 1);
    }
    bool armed = true;
    for (uint32_t i = 0; i < mover->domain_count; i++)
        armed &= domain_arm(&mover->domains[i]);
    return armed;
}

static void on_turn(void *arg)
{
    struct mover *mover = arg;
    mover->in_turn = true;
    const bool sleeps = turn(mover);
    mover->in_turn = false;
    if (!sleeps)
        loop_task_schedule(mover->turn);
}

static void on_safety(void *arg)
{
    struct mover *mover = arg;
    const uint64_t now_ns = loop_now_ns(mover->loop);
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->dial_deadline_ns && now_ns >= peer->dial_deadline_ns)
        ucx_peer_fail(peer, STATUS_TIMEOUT);
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
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    peer->closed = true;
    for (int i = 0; i < DESTROY_TURNS_MAX && !LIST_EMPTY(&mover->peers); i++) {
        ucx_tell_sends(mover);
        peers_reap(mover);
        for (uint32_t d = 0; d < mover->domain_count; d++)
            ucp_worker_progress(mover->domains[d].worker);
    }
    ucx_listener_close(mover);
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
    mover->spins = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    mover->rendezvous_bytes = domain_rendezvous_bytes();
    mover->turn = loop_task_create(loop, on_turn, mover);
    mover->safety = loop_timer_create(loop, on_safety, mover);
    if (options->listen) {
        const enum status status = listen_at(mover, error);
        if (status != STATUS_OK) {
            ucx_destroy(mover);
            return status;
        }
        ucx_turn_later(mover);
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
    if (peer->mover->rendezvous_bytes == SIZE_MAX)
        return (struct mover_shape){
            .run_bytes = RUN_BYTES, .gather_bytes = MESSAGE_BYTES, .message_bytes = MESSAGE_BYTES};
    return (struct mover_shape){.run_bytes = peer->mover->rendezvous_bytes,
                                .gather_bytes = MESSAGE_BYTES,
                                .message_bytes = peer->mover->options.data_bytes_max};
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
