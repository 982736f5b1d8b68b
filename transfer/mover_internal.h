/* What the movers share: their tables, the data header as bytes, and addresses. Private to
 * transfer/. */
#ifndef BATON_TRANSFER_MOVER_INTERNAL_H
#define BATON_TRANSFER_MOVER_INTERNAL_H

#include <stdbool.h>
#include <sys/socket.h>

#include "transfer/mover.h"

extern const struct mover_ops mover_ucx_ops, mover_tls_ops;

enum { MOVER_HEADER_BYTES = 56, MOVER_ADDRESS_BYTES = 128, MOVER_DEVICE_BYTES = 16 };

static inline size_t mover_segments_bytes(const struct mover_segment *segments, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += segments[i].bytes;
    return bytes;
}
/* What every mover asks of a data send: LIMIT for more than the options allow. Anything else is a
 * bug of the caller. */
enum status mover_data_check(const struct mover_options *options,
                             const struct mover_data_header *header,
                             const struct mover_segment *segments, uint32_t segment_count);
/* Copies from one list of segments to another of as many bytes. */
void mover_segments_copy(const struct mover_segment *to, uint32_t to_count,
                         const struct mover_segment *from, uint32_t from_count);
void mover_header_write(const struct mover_data_header *header, uint8_t *out);
void mover_header_read(const uint8_t *in, struct mover_data_header *out);

/* "host:port" or "[v6]:port" as a socket address; names are resolved, blocking. */
enum status mover_address_resolve(const char *address, struct sockaddr_storage *out,
                                  struct error *error);
socklen_t mover_address_bytes(const struct sockaddr_storage *address);
/* "127.0.0.1:4567". A wildcard is replaced by an address of this host that others can reach. */
void mover_address_text(const struct sockaddr_storage *address, char out[MOVER_ADDRESS_BYTES]);
/* The network device that holds this local address; false for a wildcard or an address of none. */
bool mover_address_device(const struct sockaddr_storage *local, char out[MOVER_DEVICE_BYTES]);
/* The device that the kernel would send through to reach this address. */
bool mover_address_route_device(const struct sockaddr_storage *target,
                                char out[MOVER_DEVICE_BYTES]);

#endif
