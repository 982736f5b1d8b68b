/* The UCX mover's way out: messages and data as active messages. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "transfer/mover_ucx_internal.h"

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
    if (mover->quiet)
        return;
    mover->told++;
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
    ucx_turn_later(send->peer->mover);
}

static void send_post(struct send *send)
{
    struct mover_peer *peer = send->peer;
    const bool gathered = send->is_data && send->segment_count > 1;
    /* A rendezvous of several pieces takes a slow path of UCX. */
    const bool rendezvous =
        send->is_data && !gathered && send->bytes >= peer->mover->rendezvous_bytes;
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
    peer->mover->active_ns = loop_now_ns(peer->mover->loop);
    if (!UCS_PTR_IS_PTR(request))
        finish_later(send, UCS_PTR_STATUS(request));
    else
        ucx_turn_later(peer->mover);
}

static void send_or_queue(struct send *send)
{
    send->peer->sends++;
    if (send->peer->ready)
        send_post(send);
    else
        STAILQ_INSERT_TAIL(&send->peer->queue, send, entry);
}

enum status ucx_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    if (!ucx_peer_is_usable(peer))
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

enum status ucx_send_data(struct mover_peer *peer, const struct mover_data_header *header,
                          const struct mover_segment *segments, uint32_t segment_count,
                          uint64_t cookie)
{
    struct mover *mover = peer->mover;
    if (!ucx_peer_is_usable(peer))
        return STATUS_CLOSED;
    TRY(mover_data_check(&mover->options, header, segments, segment_count));
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

void ucx_send_queued(struct mover_peer *peer)
{
    struct send *send;
    while ((send = STAILQ_FIRST(&peer->queue))) {
        STAILQ_REMOVE_HEAD(&peer->queue, entry);
        send_post(send);
    }
}

void ucx_cancel_queued(struct mover_peer *peer)
{
    struct send *send;
    while ((send = STAILQ_FIRST(&peer->queue))) {
        STAILQ_REMOVE_HEAD(&peer->queue, entry);
        finish_later(send, UCS_ERR_CANCELED);
    }
}

void ucx_tell_sends(struct mover *mover)
{
    struct send *send;
    while ((send = STAILQ_FIRST(&mover->sends_told))) {
        STAILQ_REMOVE_HEAD(&mover->sends_told, entry);
        send_finish(send);
    }
}
