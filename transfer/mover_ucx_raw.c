/* Raw active messages, for benches. */
#include "transfer/mover_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "transfer/mover_ucx_internal.h"

enum {
    AM_NOTE = AM_MESSAGE,
    NOTE_BYTES = 64,
    SENDS_MAX = 64,
    STRIDE = 10007,
    CONNECT_MS = 5000,
    CLOSE_TURNS_MAX = 100000
};

struct mover_raw {
    struct domain domain; /* first: handlers get its address */
    ucp_listener_h listener;
    ucp_conn_request_h call;
    ucp_ep_h ep;
    bool dialled, failed, rendezvous;
    uint8_t *memory;
    size_t memory_bytes, piece_bytes;
    uint64_t next;                                      /* place */
    ucp_dt_iov_t pieces[SENDS_MAX][MOVER_SEGMENTS_MAX]; /* read until a send is over */
    uint32_t next_pieces;
    uint64_t received, notes;
    uint64_t sends, receives; /* in flight */
    uint8_t header[MOVER_HEADER_BYTES];
    char address[MOVER_ADDRESS_BYTES];
};

static uint64_t now_ns(void)
{
    return clock_now_ns(clock_monotonic());
}

/* The places of the next message, and on to the one after it. Pieces are taken from all over the
 * memory, so that no two are neighbours. */
static uint32_t next_places(struct mover_raw *raw, size_t bytes, struct mover_segment *out)
{
    const size_t piece =
        raw->piece_bytes > 0 && raw->piece_bytes < bytes ? raw->piece_bytes : bytes;
    const uint64_t places = raw->memory_bytes / piece;
    uint32_t count = 0;
    for (size_t done = 0; done < bytes && count < MOVER_SEGMENTS_MAX; count++) {
        const size_t size = piece < bytes - done ? piece : bytes - done;
        const uint64_t place = piece < bytes ? raw->next * STRIDE % places : raw->next % places;
        out[count] = (struct mover_segment){raw->memory + place * piece, size};
        raw->next++;
        done += size;
    }
    return count;
}

/* ---- what arrives ---- */

static void on_received(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    struct mover_raw *raw = arg;
    (void)bytes;
    raw->receives--;
    raw->failed |= status != UCS_OK;
    raw->received++;
    ucp_request_free(request);
}

static ucs_status_t on_am_data(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct mover_raw *raw = arg;
    (void)header, (void)header_bytes;
    if (bytes > raw->memory_bytes) {
        raw->failed = true;
        return UCS_OK;
    }
    struct mover_segment to[MOVER_SEGMENTS_MAX];
    const uint32_t count = next_places(raw, bytes, to);
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        const struct mover_segment from = {data, bytes};
        mover_segments_copy(to, count, &from, 1);
        raw->received++;
        return UCS_OK;
    }
    const ucp_request_param_t receive = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = on_received,
        .user_data = raw,
    };
    raw->receives++;
    const ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(raw->domain.worker, data, to[0].data, bytes, &receive);
    if (!UCS_PTR_IS_PTR(request)) {
        raw->receives--;
        raw->received++;
        raw->failed |= UCS_PTR_STATUS(request) != UCS_OK;
    }
    return UCS_OK;
}

static ucs_status_t on_am_note(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct mover_raw *raw = arg;
    (void)header, (void)header_bytes, (void)data, (void)bytes, (void)param;
    raw->notes++;
    return UCS_OK;
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep, (void)status;
    ((struct mover_raw *)arg)->failed = true;
}

static void on_call(ucp_conn_request_h request, void *arg)
{
    struct mover_raw *raw = arg;
    if (raw->call || raw->ep)
        ucp_listener_reject(raw->listener, request);
    else
        raw->call = request;
}

/* ---- sending ---- */

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct mover_raw *raw = arg;
    raw->sends--;
    raw->failed |= status != UCS_OK;
    ucp_request_free(request);
}

static void send_am(struct mover_raw *raw, unsigned id, const void *data, size_t bytes,
                    ucp_datatype_t datatype)
{
    const bool rendezvous = id == AM_DATA && raw->rendezvous;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE,
        .datatype = datatype,
        .flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = raw,
    };
    raw->sends++;
    const ucs_status_ptr_t request = ucp_am_send_nbx(
        raw->ep, id, raw->header, id == AM_DATA ? sizeof raw->header : 0, data, bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        raw->sends--;
        raw->failed |= UCS_PTR_STATUS(request) != UCS_OK;
    }
}

static void send_note(struct mover_raw *raw, const void *data, size_t bytes)
{
    send_am(raw, AM_NOTE, data, bytes, ucp_dt_make_contig(1));
}

static void send_next(struct mover_raw *raw, size_t bytes)
{
    struct mover_segment from[MOVER_SEGMENTS_MAX];
    const uint32_t count = next_places(raw, bytes, from);
    if (count == 1) {
        send_am(raw, AM_DATA, from[0].data, bytes, ucp_dt_make_contig(1));
        return;
    }
    ucp_dt_iov_t *pieces = raw->pieces[raw->next_pieces++ % SENDS_MAX];
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (ucp_dt_iov_t){from[i].data, from[i].bytes};
    send_am(raw, AM_DATA, pieces, count, ucp_dt_make_iov());
}

static enum status check(const struct mover_raw *raw, uint64_t deadline_ns, struct error *error)
{
    if (raw->failed)
        return error_set(error, STATUS_CLOSED, "the raw connection broke off");
    if (now_ns() >= deadline_ns)
        return error_set(error, STATUS_TIMEOUT, "raw messages did not pass in time");
    return STATUS_OK;
}

/* Progresses until the counter has reached `goal`. */
static enum status wait_for(struct mover_raw *raw, const uint64_t *counter, uint64_t goal,
                            uint64_t deadline_ns, struct error *error)
{
    for (uint32_t turn = 1; *counter < goal; turn++) {
        ucp_worker_progress(raw->domain.worker);
        if (raw->failed || turn % 4096 == 0)
            TRY(check(raw, deadline_ns, error));
    }
    return STATUS_OK;
}

/* Until UCX has nothing of ours left to send: nobody progresses this end between two parts. */
static enum status send_out(struct mover_raw *raw, uint64_t deadline_ns, struct error *error)
{
    while (raw->sends > 0) {
        ucp_worker_progress(raw->domain.worker);
        TRY(check(raw, deadline_ns, error));
    }
    return check(raw, deadline_ns, error);
}

enum status mover_raw_stream(struct mover_raw *raw, size_t bytes, uint64_t count, uint32_t window,
                             size_t piece_bytes, bool rendezvous, uint32_t timeout_ms,
                             struct error *error)
{
    raw->rendezvous = rendezvous && piece_bytes == 0;
    raw->piece_bytes = piece_bytes;
    const uint64_t deadline_ns = now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    CHECK(bytes > 0 && bytes <= raw->memory_bytes && window > 0 && window <= SENDS_MAX);
    CHECK(piece_bytes == 0 || bytes <= piece_bytes * MOVER_SEGMENTS_MAX);
    raw->next = 0;
    if (!raw->dialled) {
        TRY(wait_for(raw, &raw->received, raw->received + count, deadline_ns, error));
        send_note(raw, raw->header, NOTE_BYTES / 2);
        return send_out(raw, deadline_ns, error);
    }
    const uint64_t notes = raw->notes;
    for (uint64_t sent = 0; sent < count;) {
        for (; sent < count && raw->sends < window && !raw->failed; sent++)
            send_next(raw, bytes);
        ucp_worker_progress(raw->domain.worker);
        if (raw->failed)
            break;
    }
    return wait_for(raw, &raw->notes, notes + 1, deadline_ns, error);
}

enum status mover_raw_rally(struct mover_raw *raw, uint64_t count, double *ns_out,
                            uint32_t timeout_ms, struct error *error)
{
    static uint8_t ball[NOTE_BYTES];
    const uint64_t deadline_ns = now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t begun_ns = now_ns();
        const uint64_t notes = raw->notes;
        if (raw->dialled)
            send_note(raw, ball, sizeof ball);
        TRY(wait_for(raw, &raw->notes, notes + 1, deadline_ns, error));
        if (raw->dialled)
            ns_out[i] = (double)(now_ns() - begun_ns);
        else
            send_note(raw, ball, sizeof ball);
    }
    return send_out(raw, deadline_ns, error);
}

/* ---- connecting ---- */

static enum status raw_open(void *memory, size_t memory_bytes, const char *device,
                            struct mover_raw **out, struct error *error)
{
    static const struct domain_handler handlers[] = {{AM_DATA, on_am_data}, {AM_NOTE, on_am_note}};
    int fd;
    domain_library_tame();
    struct mover_raw *raw = calloc(1, sizeof *raw);
    CHECK(raw != NULL);
    raw->memory = memory;
    raw->memory_bytes = memory_bytes;
    const enum status status = domain_open(&raw->domain, device, handlers, ARRAY_COUNT(handlers),
                                           memory, memory_bytes, &fd, error);
    if (status != STATUS_OK)
        free(raw);
    else
        *out = raw;
    return status;
}

static enum status ep_open(struct mover_raw *raw, ucp_ep_params_t *params, struct error *error)
{
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_ep_error;
    params->err_handler.arg = raw;
    const ucs_status_t status = ucp_ep_create(raw->domain.worker, params, &raw->ep);
    if (status != UCS_OK)
        return error_set(error, STATUS_IO, "no raw connection: %s", ucs_status_string(status));
    return STATUS_OK;
}

static enum status raw_device(const char *address, struct sockaddr_storage *at, char *device,
                              struct error *error)
{
    TRY(mover_address_resolve(address, at, error));
    device[0] = '\0';
    if (!getenv("UCX_NET_DEVICES") && !mover_address_route_device(at, device))
        return error_set(error, STATUS_IO, "no network device leads to %.100s", address);
    return STATUS_OK;
}

enum status mover_raw_listen(const char *address, void *memory, size_t memory_bytes,
                             struct mover_raw **out, struct error *error)
{
    struct sockaddr_storage at;
    char device[MOVER_DEVICE_BYTES];
    struct mover_raw *raw;
    TRY(raw_device(address, &at, device, error));
    TRY(raw_open(memory, memory_bytes, device, &raw, error));
    const ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {(const struct sockaddr *)&at, mover_address_bytes(&at)},
        .conn_handler = {on_call, raw},
    };
    ucs_status_t status = ucp_listener_create(raw->domain.worker, &params, &raw->listener);
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    if (status == UCS_OK)
        status = ucp_listener_query(raw->listener, &attributes);
    if (status != UCS_OK) {
        mover_raw_close(raw);
        return error_set(error, STATUS_IO, "UCX cannot listen on %.100s: %s", address,
                         ucs_status_string(status));
    }
    mover_address_text(&attributes.sockaddr, raw->address);
    *out = raw;
    return STATUS_OK;
}

const char *mover_raw_address(const struct mover_raw *raw)
{
    return raw->address;
}

enum status mover_raw_accept(struct mover_raw *raw, struct error *error)
{
    const uint64_t deadline_ns = now_ns() + (uint64_t)CONNECT_MS * NS_PER_MS;
    while (!raw->call) {
        ucp_worker_progress(raw->domain.worker);
        TRY(check(raw, deadline_ns, error));
    }
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                              .conn_request = raw->call};
    raw->call = NULL;
    TRY(ep_open(raw, &params, error));
    /* The dialling end speaks first; its note says that the connection is whole. */
    TRY(wait_for(raw, &raw->notes, 1, deadline_ns, error));
    send_note(raw, raw->header, NOTE_BYTES / 2);
    return send_out(raw, deadline_ns, error);
}

enum status mover_raw_dial(const char *address, void *memory, size_t memory_bytes,
                           struct mover_raw **out, struct error *error)
{
    struct sockaddr_storage at;
    char device[MOVER_DEVICE_BYTES];
    struct mover_raw *raw;
    TRY(raw_device(address, &at, device, error));
    TRY(raw_open(memory, memory_bytes, device, &raw, error));
    raw->dialled = true;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {(const struct sockaddr *)&at, mover_address_bytes(&at)},
    };
    enum status status = ep_open(raw, &params, error);
    if (status == STATUS_OK) {
        send_note(raw, raw->header, NOTE_BYTES / 2);
        status = wait_for(raw, &raw->notes, 1, now_ns() + (uint64_t)CONNECT_MS * NS_PER_MS, error);
    }
    if (status != STATUS_OK)
        mover_raw_close(raw);
    else
        *out = raw;
    return status;
}

void mover_raw_close(struct mover_raw *raw)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    if (!raw)
        return;
    if (raw->call)
        ucp_listener_reject(raw->listener, raw->call);
    if (raw->ep) {
        const ucs_status_ptr_t request = ucp_ep_close_nbx(raw->ep, &param);
        for (int i = 0; i < CLOSE_TURNS_MAX && UCS_PTR_IS_PTR(request) &&
                        ucp_request_check_status(request) == UCS_INPROGRESS;
             i++)
            ucp_worker_progress(raw->domain.worker);
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
    }
    if (raw->listener)
        ucp_listener_destroy(raw->listener);
    domain_close(&raw->domain);
    free(raw);
}
