/* In place of mover_ucx_raw.c where UCX is not built in: there is nothing to compare with. */
#include "transfer/mover_raw.h"

#include "base/check.h"

static enum status absent(struct error *error)
{
    return error_set(error, STATUS_UNSUPPORTED, "UCX is not built into this program");
}

enum status mover_raw_listen(const char *address, void *memory, size_t memory_bytes,
                             struct mover_raw **out, struct error *error)
{
    return absent(error);
}

enum status mover_raw_dial(const char *address, void *memory, size_t memory_bytes,
                           struct mover_raw **out, struct error *error)
{
    return absent(error);
}

const char *mover_raw_address(const struct mover_raw *raw)
{
    CHECK(!"no end was ever opened");
    return NULL;
}

enum status mover_raw_accept(struct mover_raw *raw, struct error *error)
{
    return absent(error);
}

void mover_raw_close(struct mover_raw *raw)
{
    CHECK(raw == NULL);
}

enum status mover_raw_stream(struct mover_raw *raw, size_t bytes, uint64_t count, uint32_t window,
                             size_t piece_bytes, bool rendezvous, uint32_t timeout_ms,
                             struct error *error)
{
    return absent(error);
}

enum status mover_raw_rally(struct mover_raw *raw, uint64_t count, double *ns_out,
                            uint32_t timeout_ms, struct error *error)
{
    return absent(error);
}
