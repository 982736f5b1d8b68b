#include "router/http_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/stream.h"

enum { HOST_BYTES = 256, BACKLOG = 512 };

static enum status split(const char *address, char host[HOST_BYTES], const char **port_out,
                         struct error *error)
{
    TRY(stream_address_check(address, true, error));
    const char *colon = strrchr(address, ':');
    CHECK(colon != NULL && colon - address < HOST_BYTES + 2);
    size_t bytes = (size_t)(colon - address);
    if (bytes >= 2 && address[0] == '[' && address[bytes - 1] == ']') {
        address++;
        bytes -= 2;
    }
    memcpy(host, address, bytes);
    host[bytes] = '\0';
    *port_out = colon + 1;
    return STATUS_OK;
}

static int open_socket(const struct addrinfo *address)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

enum status http_address_listen(const char *address, int *fd_out, uint16_t *port_out,
                                struct error *error)
{
    char host[HOST_BYTES];
    const char *port = NULL;
    TRY(split(address, host, &port, error));
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *list;
    const int code = getaddrinfo(host[0] ? host : NULL, port, &wanted, &list);
    if (code != 0)
        return error_set(error, STATUS_INVALID, "the address \"%s\" is not usable: %s", address,
                         gai_strerror(code));
    int fd = -1;
    for (const struct addrinfo *each = list; each && fd < 0; each = each->ai_next)
        fd = open_socket(each);
    const int cause = errno;
    freeaddrinfo(list);
    errno = cause;
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "listening for HTTP on %s failed", address);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {0};
    socklen_t own_bytes = sizeof own;
    if (getsockname(fd, &own.any, &own_bytes) != 0) {
        error_set_errno(error, STATUS_IO, "the port of %s can not be read", address);
        close(fd);
        return STATUS_IO;
    }
    *port_out = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
    *fd_out = fd;
    return STATUS_OK;
}
