/* The header and the segments of a data message, for every mover. Apart from the list of movers, so
 * that a program with the loopback mover alone is not linked with the libraries of the others. */
#include "transfer/mover_internal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

enum status mover_data_check(const struct mover_options *options,
                             const struct mover_data_header *header,
                             const struct mover_segment *segments, uint32_t segment_count)
{
    CHECK(segment_count > 0 && segment_count <= MOVER_SEGMENTS_MAX);
    CHECK(mover_segments_bytes(segments, segment_count) == header->payload_bytes);
    return header->payload_bytes > options->data_bytes_max ? STATUS_LIMIT : STATUS_OK;
}

void mover_header_write(const struct mover_data_header *header, uint8_t *out)
{
    store_le64(out, header->handoff);
    store_le32(out + 8, header->layer);
    store_le32(out + 12, header->layer_count);
    store_le32(out + 16, header->first_page);
    store_le32(out + 20, header->page_count);
    store_le32(out + 24, header->first_slot);
    store_le32(out + 28, header->generation);
    store_le32(out + 32, header->grant);
    store_le32(out + 36, header->flags);
    store_le64(out + 40, header->checksum);
    store_le64(out + 48, header->payload_bytes);
}

void mover_header_read(const uint8_t *in, struct mover_data_header *out)
{
    *out = (struct mover_data_header){
        .handoff = load_le64(in),
        .layer = load_le32(in + 8),
        .layer_count = load_le32(in + 12),
        .first_page = load_le32(in + 16),
        .page_count = load_le32(in + 20),
        .first_slot = load_le32(in + 24),
        .generation = load_le32(in + 28),
        .grant = load_le32(in + 32),
        .flags = load_le32(in + 36),
        .checksum = load_le64(in + 40),
        .payload_bytes = load_le64(in + 48),
    };
}

void mover_segments_copy(const struct mover_segment *to, uint32_t to_count,
                         const struct mover_segment *from, uint32_t from_count)
{
    CHECK(mover_segments_bytes(to, to_count) == mover_segments_bytes(from, from_count));
    size_t to_done = 0, from_done = 0;
    for (uint32_t t = 0, f = 0; t < to_count && f < from_count;) {
        const size_t to_left = to[t].bytes - to_done, from_left = from[f].bytes - from_done;
        const size_t bytes = to_left < from_left ? to_left : from_left;
        memcpy((uint8_t *)to[t].data + to_done, (const uint8_t *)from[f].data + from_done, bytes);
        to_done += bytes;
        from_done += bytes;
        if (to_done == to[t].bytes) {
            t++;
            to_done = 0;
        }
        if (from_done == from[f].bytes) {
            f++;
            from_done = 0;
        }
    }
}
