/* The movers that are built in, by name. */
#include "transfer/mover_internal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

const struct mover_ops *mover_by_name(const char *name, const char **names_out)
{
    static const struct mover_ops *const movers[] = {&mover_ucx_ops, &mover_loopback_ops};
    if (names_out)
        *names_out = "ucx, loopback";
    for (size_t i = 0; i < ARRAY_COUNT(movers); i++)
        if (strcmp(movers[i]->name, name) == 0)
            return movers[i];
    return NULL;
}

void mover_header_write(const struct mover_data_header *header, uint8_t *out)
{
    store_le64(out, header->handoff);
    store_le32(out + 8, header->layer);
    store_le32(out + 12, header->first_page);
    store_le32(out + 16, header->page_count);
    store_le32(out + 20, header->first_slot);
    store_le32(out + 24, header->generation);
    store_le32(out + 28, header->flags);
    store_le64(out + 32, header->checksum);
    store_le64(out + 40, header->payload_bytes);
}

void mover_header_read(const uint8_t *in, struct mover_data_header *out)
{
    *out = (struct mover_data_header){
        .handoff = load_le64(in),
        .layer = load_le32(in + 8),
        .first_page = load_le32(in + 12),
        .page_count = load_le32(in + 16),
        .first_slot = load_le32(in + 20),
        .generation = load_le32(in + 24),
        .flags = load_le32(in + 28),
        .checksum = load_le64(in + 32),
        .payload_bytes = load_le64(in + 40),
    };
}
