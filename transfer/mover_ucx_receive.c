/* The UCX mover's way in: whatever an active message says about itself is checked here, before its
 * bytes go anywhere. */
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "transfer/mover_ucx_internal.h"

/* NULL for a peer that is unknown, failed or closed: nothing of it is taken any more. */
static struct mover_peer *peer_of(struct mover *mover, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) || mover->quiet)
        return NULL;
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    if (peer->ep == param->reply_ep)
        return ucx_peer_is_usable(peer) ? peer : NULL;
    return NULL;
}

ucs_status_t ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data,
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
        ucx_peer_fail(peer, STATUS_CORRUPT);
        return UCS_OK;
    }
    mover->told++;
    if (bytes == 0)
        ucx_peer_greeted(peer);
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
    if (mover->quiet)
        return;
    mover->told++;
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

ucs_status_t ucx_on_data(void *arg, const void *header_bytes_in, size_t header_bytes, void *data,
                         size_t bytes, const ucp_am_recv_param_t *param)
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
        ucx_peer_fail(peer, STATUS_CORRUPT);
        return UCS_OK;
    }
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    mover->told++;
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
