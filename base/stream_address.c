#include "base/stream_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { HOST_BYTES = 256, PORT_MAX = 65535 };

struct parts {
    char host[HOST_BYTES]; /* empty: none given */
    unsigned port;
};

static enum status split_port(const char *address, const char *text, bool listening,
                              unsigned *port_out, struct error *error)
{
    unsigned long port = 0;
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits])
        return error_set(error, STATUS_INVALID, "the address \"%s\" has no port number at its end",
                         address);
    port = strtoul(text, NULL, 10);
    if (port > PORT_MAX)
        return error_set(error, STATUS_INVALID,
                         "the port in the address \"%s\" is over the limit of %d", address,
                         PORT_MAX);
    if (port == 0 && !listening)
        return error_set(error, STATUS_INVALID, "the port in the address \"%s\" is 0", address);
    *port_out = (unsigned)port;
    return STATUS_OK;
}

static enum status split(const char *address, bool listening, struct parts *parts_out,
                         struct error *error)
{
    struct parts parts = {0};
    const char *colon = strrchr(address, ':');
    if (!colon)
        return error_set(error, STATUS_INVALID, "the address \"%s\" is not of the form HOST:PORT",
                         address);
    TRY(split_port(address, colon + 1, listening, &parts.port, error));
    const char *host = address;
    size_t bytes = (size_t)(colon - address);
    if (bytes >= 2 && host[0] == '[' && host[bytes - 1] == ']') {
        host++;
        bytes -= 2;
    } else if (memchr(host, ':', bytes)) {
        return error_set(error, STATUS_INVALID,
                         "the address \"%s\" has several colons; write IPv6 as [ADDRESS]:PORT",
                         address);
    }
    if (bytes >= HOST_BYTES)
        return error_set(error, STATUS_INVALID,
                         "the host in the address \"%.40s...\" is over the limit of %d bytes",
                         address, HOST_BYTES - 1);
    if (bytes == 0 && !listening)
        return error_set(error, STATUS_INVALID, "the address \"%s\" names no host", address);
    memcpy(parts.host, host, bytes);
    *parts_out = parts;
    return STATUS_OK;
}

enum status stream_address_check(const char *address, bool listening, struct error *error)
{
    struct parts parts;
    return split(address, listening, &parts, error);
}

bool stream_address_is_loopback(const char *address)
{
    struct parts parts;
    struct in_addr v4;
    struct in6_addr v6;
    if (split(address, true, &parts, NULL) != STATUS_OK)
        return false;
    if (inet_pton(AF_INET, parts.host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, parts.host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(parts.host, "localhost") == 0;
}

enum status stream_resolve(const char *address, bool listening, struct addrinfo **list_out,
                           struct error *error)
{
    struct parts parts = {0};
    TRY(split(address, listening, &parts, error));
    char service[16];
    snprintf(service, sizeof service, "%u", parts.port);
    const struct addrinfo wanted = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (listening ? AI_PASSIVE : 0),
    };
    const int result = getaddrinfo(parts.host[0] ? parts.host : NULL, service, &wanted, list_out);
    if (result == EAI_SYSTEM)
        return error_set_errno(error, STATUS_IO, "the address \"%s\" cannot be resolved", address);
    if (result != 0)
        return error_set(error, STATUS_IO, "the address \"%s\" cannot be resolved: %s", address,
                         gai_strerror(result));
    return STATUS_OK;
}

void stream_address_text(const struct sockaddr *address, char out[STREAM_ADDRESS_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, STREAM_ADDRESS_BYTES, "%s:%u", host, ntohs(v4->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, STREAM_ADDRESS_BYTES, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        snprintf(out, STREAM_ADDRESS_BYTES, "?");
    }
}
