/* Addresses as text, shared by stream.c and stream_listen.c. */
#ifndef BATON_BASE_STREAM_INTERNAL_H
#define BATON_BASE_STREAM_INTERNAL_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/stream.h"

enum { STREAM_ADDRESS_BYTES = 80 };

/* "host:port" or "[v6]:port" into the addresses it stands for (freeaddrinfo frees them). listening:
 * no host is every address of this machine, and port 0 picks one. */
enum status stream_resolve(const char *address, bool listening, struct addrinfo **list_out,
                           struct error *error);
void stream_address_text(const struct sockaddr *address, char out[STREAM_ADDRESS_BYTES]);

/* An accepted socket as a stream without events; takes the descriptor. */
struct stream *stream_adopt(struct loop *loop, int fd, const struct sockaddr *peer,
                            const struct stream_limits *limits);
/* Ends the adoption: begins to read, or closes a stream that nobody attached to. */
void stream_adopted(struct stream *stream);

#endif
