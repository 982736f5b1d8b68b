/* What mover_ucx.c and mover_ucx_domain.c share; the two files (and this header) are all that names
 * UCX. Private to them. */
#ifndef BATON_TRANSFER_MOVER_UCX_INTERNAL_H
#define BATON_TRANSFER_MOVER_UCX_INTERNAL_H

#include <ucp/api/ucp.h>

#include "transfer/mover_internal.h"

enum {
    DOMAIN_RENDEZVOUS_FROM_BYTES = 256 << 10, /* below it eager wins on TCP, from it rendezvous */
};

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
/* Do the settings allow shared memory between processes of one host? There eager wins always. */
bool domain_shares_memory(void);
void domain_close(struct domain *domain);
/* Progresses until quiet and arms: true. False when there is more to do than one turn may. */
bool domain_progress(struct domain *domain);
enum status domain_status(ucs_status_t status);

#endif
