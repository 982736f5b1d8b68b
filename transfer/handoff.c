/* What both ends of the hand-off share. */
#include "transfer/handoff_internal.h"

#include "base/log.h"

const struct handoff_limits handoff_default_limits = {
    .handoffs_max = 64,
    .pages_max = 2048,
    .hello_ms = 3000,
    .progress_ms = 3000,
    .ping_ms = 500,
    .quarantine_ms = 1000,
    .data_bytes_max = 1 << 20,
    .flow_bytes = 8 << 20,
    .peer_bytes = 16 << 20,
    .window_ms = 100,
    .checksum = HANDOFF_CHECKSUM_CRC32C,
};

const char *handoff_checksum_name(enum handoff_checksum checksum)
{
    return checksum == HANDOFF_CHECKSUM_CRC32C ? "crc32c"
           : checksum == HANDOFF_CHECKSUM_NONE ? "none"
                                               : "unknown";
}

enum handoff_reason handoff_reason_of(enum status status)
{
    switch (status) {
    case STATUS_CANCELED:
        return HANDOFF_REASON_CANCELED;
    case STATUS_TIMEOUT:
        return HANDOFF_REASON_TIMEOUT;
    case STATUS_CLOSED:
        return HANDOFF_REASON_PEER_LOST;
    case STATUS_CORRUPT:
        return HANDOFF_REASON_CORRUPT;
    case STATUS_MISMATCH:
    case STATUS_REFUSED:
        return HANDOFF_REASON_MISMATCH;
    default:
        return HANDOFF_REASON_OTHER;
    }
}

const char *handoff_reason_name(enum handoff_reason reason)
{
    static const char *const names[HANDOFF_REASON_COUNT] = {
        [HANDOFF_REASON_CANCELED] = "canceled",   [HANDOFF_REASON_TIMEOUT] = "timeout",
        [HANDOFF_REASON_PEER_LOST] = "peer_lost", [HANDOFF_REASON_CORRUPT] = "corrupt",
        [HANDOFF_REASON_MISMATCH] = "mismatch",   [HANDOFF_REASON_OTHER] = "other",
    };
    return (uint32_t)reason < HANDOFF_REASON_COUNT ? names[reason] : "unknown";
}

enum status handoff_check_setup(const struct handoff_region *region,
                                const struct handoff_limits *limits, struct error *error)
{
    if (!region->base || region->layers == 0 || region->slots == 0 || region->strip_bytes == 0)
        return error_set(error, STATUS_INVALID,
                         "the page region has %u layers, %u slots and strips of %zu bytes",
                         region->layers, region->slots, region->strip_bytes);
    if (region->strip_bytes > limits->data_bytes_max)
        return error_set(error, STATUS_LIMIT,
                         "a page takes %zu bytes in one layer, the limit of a data message is %zu",
                         region->strip_bytes, limits->data_bytes_max);
    if (limits->handoffs_max == 0 || limits->handoffs_max > HANDOFFS_MAX)
        return error_set(error, STATUS_LIMIT, "handoffs_max is %u, the limit is 1 to %d",
                         limits->handoffs_max, HANDOFFS_MAX);
    if (limits->pages_max == 0 || limits->pages_max > 65536)
        return error_set(error, STATUS_LIMIT,
                         "pages_max of a hand-off is %u, the limit is 1 to 65536",
                         limits->pages_max);
    if (limits->flow_bytes == 0 || limits->peer_bytes == 0 || limits->window_ms == 0)
        return error_set(error, STATUS_INVALID,
                         "flow_bytes, peer_bytes and window_ms must be above 0");
    return STATUS_OK;
}

enum status handoff_status_of(uint32_t code)
{
    const int status = -(int)(code <= 64 ? code : 0);
    return status < 0 && status >= STATUS_INTERNAL ? (enum status)status : STATUS_REFUSED;
}

uint32_t handoff_code_of(enum status status)
{
    return (uint32_t)(status < 0 ? -(int)status : 0);
}

void handoff_log_end(uint64_t handoff, const char *state, enum status status, const char *text)
{
    if (status == STATUS_CANCELED)
        LOG_DEBUG("hand-off %016llx is cancelled while %s: %s", (unsigned long long)handoff, state,
                  text);
    else
        LOG_WARN("hand-off %016llx ends while %s: %s", (unsigned long long)handoff, state, text);
}

void handoff_send_abort_to(struct peer *peer, uint64_t handoff, enum status status,
                           const char *text)
{
    struct wire_str said = wire_str(text);
    if (said.bytes > HANDOFF_TEXT_BYTES - 1)
        said.bytes = HANDOFF_TEXT_BYTES - 1;
    const struct msg_abort abort = {
        .handoff = handoff, .code = handoff_code_of(status), .text = said};
    const enum status sent = peer_send(peer, MESSAGE_ID_ABORT, &abort);
    if (sent == STATUS_LIMIT)
        LOG_WARN("too many messages wait for %s, an abort among them", peer->node);
}
