/* The worker's side of its router links, the same for both roles: dial every router, say HELLO,
 * send heartbeats, come back after a loss with back-off and jitter, one attempt in flight each.
 *
 * Loop thread only. A reply goes to the router that asked, named by `struct router_ref`, which
 * stays safe to use after that router is gone (sends then give CLOSED). */
#ifndef BATON_TRANSFER_ROUTER_CLIENT_H
#define BATON_TRANSFER_ROUTER_CLIENT_H

#include "base/loop.h"
#include "base/status.h"
#include "transfer/link.h"

enum { ROUTER_LINKS_MAX = 8 };

struct router_client;

struct router_ref {
    uint32_t index;      /* which --router */
    uint32_t generation; /* which connection to it */
};

struct router_client_events {
    void (*on_message)(void *arg, struct router_ref router, enum message_id id,
                       const void *message);
    /* The link is lost: requests of that router are orphans. */
    void (*on_lost)(void *arg, struct router_ref router);
    /* Fills what to say in HELLO and in each HEARTBEAT to this router; what pointers lead to stays
     * as it is until the next of them. */
    void (*on_hello)(void *arg, struct msg_hello *hello);
    void (*on_heartbeat)(void *arg, struct router_ref router, struct msg_heartbeat *heartbeat);
    /* The router has taken a heartbeat. May be NULL. */
    void (*on_ack)(void *arg, struct router_ref router, const struct msg_heartbeat_ack *ack);
};

struct router_client_limits {
    uint32_t retry_first_ms, retry_max_ms; /* the wait doubles from the one to the other */
    uint32_t refused_retry_ms;             /* after a MISMATCH */
    struct link_limits link;
};
extern const struct router_client_limits router_client_default_limits; /* 100 ms, 3 s, 10 s */

/* Dials from the next turn of the loop on. */
enum status router_client_create(struct loop *loop, const char *const *addresses, uint32_t count,
                                 const struct router_client_events *events, void *arg,
                                 struct router_client **out, struct error *error);
/* Other limits than the default ones; right after creation. */
void router_client_set_limits(struct router_client *client,
                              const struct router_client_limits *limits);
/* Tells all routers to send no new requests; the links stay, for those that are open. A router that
 * comes back later is told likewise. */
void router_client_goaway(struct router_client *client);
/* GOAWAY to all, then closes. */
void router_client_destroy(struct router_client *client);
enum status router_client_send(struct router_client *client, struct router_ref router,
                               enum message_id id, const void *message);
uint32_t router_client_connected_count(const struct router_client *client);
/* True when every router has refused this worker for good (MISMATCH); text says why. */
bool router_client_refused(const struct router_client *client, const char **text_out);

#endif
