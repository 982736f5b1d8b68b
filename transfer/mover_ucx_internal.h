/* What the files mover_ucx*.c share; they and this header are all that names UCX. Private to them.
 */
#ifndef BATON_TRANSFER_MOVER_UCX_INTERNAL_H
#define BATON_TRANSFER_MOVER_UCX_INTERNAL_H

#include <sys/queue.h>

#include <ucp/api/ucp.h>

#include "transfer/mover_internal.h"

/* A UCX context and worker bound to one network device. */
struct domain {
    struct mover *mover;
    char device[MOVER_DEVICE_BYTES]; /* empty: all, or what UCX_NET_DEVICES says */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    struct loop_io *io;
};

/* Who is called for an active message; arg is the domain. */
struct domain_handler {
    unsigned id;
    ucp_am_recv_callback_t callback;
};

/* Settings, log and signals of the library; before the first domain, once. */
void domain_library_tame(void);
/* Opens a domain on a device (all for an empty name) and registers the memory; *fd_out is readable
 * when there is something to progress, once armed. */
enum status domain_open(struct domain *domain, const char *device,
                        const struct domain_handler *handlers, uint32_t handler_count, void *memory,
                        size_t memory_bytes, int *fd_out, struct error *error);
/* From how many bytes on data goes by rendezvous. Without remote access to memory (TCP, shared
 * memory) eager messages win at every size, so there it is never, unless UCX_RNDV_THRESH says so.
 */
size_t domain_rendezvous_bytes(void);
/* Do the settings allow shared memory between processes of one host? */
bool domain_shares_memory(void);
void domain_close(struct domain *domain);
/* Progresses until quiet: true. False when there is more to do than one turn may. */
bool domain_progress(struct domain *domain);
/* True when there was something to progress. */
bool domain_poll(struct domain *domain);
/* Arms the event descriptor; false when something came meanwhile. */
bool domain_arm(struct domain *domain);
enum status domain_status(ucs_status_t status);

enum {
    AM_MESSAGE = 1,
    AM_DATA = 2,
    DOMAINS_MAX = 4,
    CALLS_WAITING_MAX = 64,      /* connection requests of one turn */
    MESSAGES_WAITING_MAX = 1024, /* small messages of one peer not yet sent */
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
    enum status status;        /* why it failed */
};
LIST_HEAD(ucx_peer_list, mover_peer);

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
    bool quiet;    /* being destroyed: no callbacks */
    bool in_turn;  /* progress is being made: nobody has to ask for it */
    uint64_t told; /* how often the owner was called */
    uint64_t
        active_ns; /* when anything was last sent or told: spinning lasts for a while after it */
    bool spins;    /* there is a second CPU to wait for the other side on */
    size_t rendezvous_bytes;
    struct ucx_peer_list peers;
    uint32_t peer_count;
    struct send *sends;     /* [sends_max] */
    ucp_dt_iov_t *segments; /* [sends_max][MOVER_SEGMENTS_MAX] */
    struct send_list sends_free, sends_told;
    struct receive_list receives_free;
    char address[MOVER_ADDRESS_BYTES];
};

static inline bool ucx_peer_is_usable(const struct mover_peer *peer)
{
    return !peer->failed && !peer->closed;
}

/* ---- mover_ucx.c ---- */

/* Progress is due: after every call into UCX from outside of a turn. */
void ucx_turn_later(struct mover *mover);
void ucx_peer_fail(struct mover_peer *peer, enum status status);
/* The other side has spoken: the connection is whole. */
void ucx_peer_greeted(struct mover_peer *peer);

/* ---- mover_ucx_listen.c ---- */

/* Ends the listener once nobody is half way in; a second at most. After the peers have closed. */
void ucx_listener_close(struct mover *mover);

/* ---- mover_ucx_send.c ---- */

enum status ucx_send_message(struct mover_peer *peer, const void *frame, size_t bytes);
enum status ucx_send_data(struct mover_peer *peer, const struct mover_data_header *header,
                          const struct mover_segment *segments, uint32_t segment_count,
                          uint64_t cookie);
/* Sends what waited until the endpoint may be used. */
void ucx_send_queued(struct mover_peer *peer);
/* Ends it without having sent it. */
void ucx_cancel_queued(struct mover_peer *peer);
/* Tells of sends that were over at once. */
void ucx_tell_sends(struct mover *mover);

/* ---- mover_ucx_receive.c: arg is the domain ---- */

ucs_status_t ucx_on_message(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param);
ucs_status_t ucx_on_data(void *arg, const void *header, size_t header_bytes, void *data,
                         size_t bytes, const ucp_am_recv_param_t *param);

#endif
