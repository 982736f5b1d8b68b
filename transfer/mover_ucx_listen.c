/* The end of a UCX listener.
 *
 * UCX 1.13 accepts connections in a thread of its own, and reads there what a dialler says first. A
 * connection that was accepted and has said nothing yet keeps a pointer to its listener: when that
 * was destroyed meanwhile, the thread goes through freed memory (uct_tcp_sockcm_ep_recv, then
 * ucp_cm_server_conn_request_cb). UCX has no call that waits for such connections, but they are
 * sockets of this process at the listener's port. So nobody new is let in, by a filter on the
 * listening socket that drops what comes; whoever is connected there and belongs to no endpoint any
 * more is shut down, which UCX takes as a dialler that left; and when none has been seen twice, the
 * listener may go. */
#include "transfer/mover_ucx_internal.h"

#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

enum { CLEAR_LOOKS_MAX = 1000, LOOK_NS = 1000000, LOOKS_EMPTY = 2 };

static in_port_t port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_port;
    return address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port : 0;
}

/* Lets nothing in any more; how many connections wait to be accepted. */
static uint32_t shut_listening(int fd)
{
    struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const struct sock_fprog program = {.len = 1, .filter = nothing};
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return 0;
    return info.tcpi_unacked; /* of a listening socket: the length of its queue */
}

/* Of one descriptor: how many connections it stands for that are not over. */
static uint32_t shut_one(int fd, in_port_t port)
{
    struct sockaddr_storage local;
    socklen_t bytes = sizeof local;
    int listens = 0;
    socklen_t listens_bytes = sizeof listens;
    if (getsockname(fd, (struct sockaddr *)&local, &bytes) != 0 || port_of(&local) != port ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0)
        return 0;
    if (listens)
        return shut_listening(fd);
    shutdown(fd, SHUT_RDWR);
    return 1;
}

/* Shuts down all connections at the port; returns how many there are. */
static uint32_t shut_all(in_port_t port)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(folder))
            count += shut_one(fd, port);
    }
    closedir(folder);
    return count;
}

void ucx_listener_close(struct mover *mover)
{
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    uint32_t empty = 0;
    if (mover->listener == NULL)
        return;
    CHECK(ucp_listener_query(mover->listener, &attributes) == UCS_OK);
    const in_port_t port = port_of(&attributes.sockaddr);
    for (uint32_t look = 0; look < CLEAR_LOOKS_MAX && empty < LOOKS_EMPTY; look++) {
        empty = shut_all(port) == 0 ? empty + 1 : 0;
        ucp_worker_progress(mover->domains[0].worker);
        nanosleep(&pause, NULL); /* for the other thread, which tells nobody when it is through */
    }
    if (empty < LOOKS_EMPTY)
        LOG_WARN("connections at %s did not end in time", mover->address);
    ucp_listener_destroy(mover->listener);
    mover->listener = NULL;
}
