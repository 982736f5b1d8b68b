/* Addresses of movers and the network devices behind them. */
#include "transfer/mover_internal.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

enum status mover_address_resolve(const char *address, struct sockaddr_storage *out,
                                  struct error *error)
{
    char host[MOVER_ADDRESS_BYTES];
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || strlen(address) >= sizeof host)
        return error_set(error, STATUS_INVALID, "\"%.100s\" is not host:port", address);
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    char *name = host;
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        name++;
    }
    char *end;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > 65535)
        return error_set(error, STATUS_INVALID, "\"%.100s\" has no port from 0 to 65535", address);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(name, NULL, &hints, &found);
    if (code != 0)
        return error_set(error, STATUS_IO, "the host of %.100s is not known: %s", address,
                         gai_strerror(code));
    *out = (struct sockaddr_storage){0};
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (out->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)out)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)out)->sin_port = htons((uint16_t)port);
    return STATUS_OK;
}

socklen_t mover_address_bytes(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

static bool is_wildcard(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, 16) == 0;
    /* All of 127/8 is on lo, whichever of it the interface names. */
    const uint32_t left = ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr;
    const uint32_t right = ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return left == right || (ntohl(left) >> 24 == 127 && ntohl(right) >> 24 == 127);
}

/* The first address of a device that is up and not loopback, of the same family. */
static void reachable_host(int family, struct sockaddr_storage *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != family || !(one->ifa_flags & IFF_UP) ||
            (one->ifa_flags & IFF_LOOPBACK))
            continue;
        if (family == AF_INET6)
            ((struct sockaddr_in6 *)out)->sin6_addr =
                ((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr;
        else
            ((struct sockaddr_in *)out)->sin_addr =
                ((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr;
        break;
    }
    freeifaddrs(all);
}

void mover_address_text(const struct sockaddr_storage *address, char out[MOVER_ADDRESS_BYTES])
{
    struct sockaddr_storage shown = *address;
    if (is_wildcard(&shown))
        reachable_host(shown.ss_family, &shown);
    char host[64];
    char port[8];
    CHECK(getnameinfo((const struct sockaddr *)&shown, mover_address_bytes(&shown), host,
                      sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0);
    const bool v6 = shown.ss_family == AF_INET6;
    snprintf(out, MOVER_ADDRESS_BYTES, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

bool mover_address_device(const struct sockaddr_storage *local, char out[MOVER_DEVICE_BYTES])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (is_wildcard(local) || getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
        if (!one->ifa_addr || !same_host(one->ifa_addr, local))
            continue;
        snprintf(out, MOVER_DEVICE_BYTES, "%s", one->ifa_name);
        found = true;
    }
    freeifaddrs(all);
    return found;
}

bool mover_address_route_device(const struct sockaddr_storage *target, char out[MOVER_DEVICE_BYTES])
{
    /* Connecting a datagram socket sends nothing; it only asks for the route. */
    const int fd = socket(target->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    struct sockaddr_storage local = {0};
    socklen_t bytes = sizeof local;
    const bool known =
        connect(fd, (const struct sockaddr *)target, mover_address_bytes(target)) == 0 &&
        getsockname(fd, (struct sockaddr *)&local, &bytes) == 0;
    close(fd);
    return known && mover_address_device(&local, out);
}
