/* A listening TCP socket for the HTTP server, which wants the bare descriptor. */
#ifndef BATON_ROUTER_HTTP_ADDRESS_H
#define BATON_ROUTER_HTTP_ADDRESS_H

#include <stdint.h>

#include "base/status.h"

/* "host:port" or "[v6]:port", port 0 picks one; the descriptor is non-blocking and the caller's. */
enum status http_address_listen(const char *address, int *fd_out, uint16_t *port_out,
                                struct error *error);

#endif
