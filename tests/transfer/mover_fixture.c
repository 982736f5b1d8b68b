#include "tests/transfer/mover_fixture.h"
#include "tests/transfer/every_mover.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static uint32_t index_of(struct mover_end *end, struct mover_peer *peer)
{
    for (uint32_t i = 0; i < end->peer_count; i++)
        if (end->peers[i] == peer)
            return i;
    cr_assert_fail("an event of a peer that is closed or was never there");
    return 0;
}

static void on_peer_accepted(void *arg, struct mover_peer *peer)
{
    struct mover_end *end = arg;
    cr_assert_lt(end->peer_count, (uint32_t)ENDS_PEERS_MAX);
    end->peers[end->peer_count++] = peer;
    end->ops->peer_set_context(peer, end);
}

static void on_peer_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct mover_end *end = arg;
    end->peers[index_of(end, peer)] = NULL;
    end->closed++;
    end->close_status = status;
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct mover_end *end = arg;
    index_of(end, peer);
    cr_assert_eq(end->ops->peer_context(peer), end);
    end->messages++;
    end->message_bytes += bytes;
    end->last_first_byte = ((const uint8_t *)frame)[0];
    end->last_last_byte = ((const uint8_t *)frame)[bytes - 1];
    if (end->echo)
        cr_assert_eq(end->ops->send_message(peer, frame, bytes), STATUS_OK);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    struct mover_end *end = arg;
    const uint32_t index = index_of(end, peer);
    end->data++;
    end->last_header = *header;
    if (end->close_on_data) {
        end->peers[index] = NULL;
        end->ops->peer_close(peer);
    }
    if (end->refuse)
        return 0;
    const size_t gaps = end->pieces > 1 ? (size_t)(end->pieces - 1) * ENDS_GAP_BYTES : 0;
    cr_assert(header->first_slot + header->payload_bytes + gaps <= ENDS_MEMORY_BYTES);
    return mover_end_cut(end->memory + header->first_slot, header->payload_bytes,
                         end->pieces > 0 ? end->pieces : 1, segments);
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
    struct mover_end *end = arg;
    end->data_done++;
    end->data_ok += status == STATUS_OK;
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    struct mover_end *end = arg;
    end->sent++;
    end->sent_ok += status == STATUS_OK;
    end->last_cookie = cookie;
    cr_assert_not(end->cookies_seen >> (cookie & 63) & 1, "on_sent came twice for one cookie");
    end->cookies_seen |= UINT64_C(1) << (cookie & 63);
}

uint32_t mover_end_cut(uint8_t *at, size_t bytes, uint32_t pieces, struct mover_segment *segments)
{
    size_t done = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        const size_t end = bytes * (i + 1) / pieces;
        segments[i] = (struct mover_segment){at + done + (size_t)i * ENDS_GAP_BYTES, end - done};
        done = end;
    }
    return pieces;
}

void mover_end_create(struct mover_end *end, struct loop *loop, const struct mover_ops *ops,
                      const char *listen)
{
    static const struct mover_events events = {
        on_peer_accepted, on_peer_closed, on_message, on_data, on_data_done, on_sent,
    };
    log_init("test", LOG_LEVEL_WARN);
    *end = (struct mover_end){.ops = ops, .loop = loop};
    end->memory = calloc(1, ENDS_MEMORY_BYTES);
    const struct mover_options options = {
        .listen = listen,
        .connect_ms = 20000,
        .sends_max = ENDS_SENDS_MAX,
        .message_bytes_max = 100000,
        .data_bytes_max = 4 << 20,
        .memory = end->memory,
        .memory_bytes = ENDS_MEMORY_BYTES,
        .tls = &every_mover_tls,
    };
    struct error error;
    cr_assert_eq(ops->create(loop, &options, &events, end, &end->mover, &error), STATUS_OK, "%s",
                 error.text);
}

void mover_end_destroy(struct mover_end *end)
{
    end->ops->destroy(end->mover);
    free(end->memory);
}

struct mover_peer *mover_end_dial(struct mover_end *end, const char *address)
{
    struct mover_peer *peer;
    struct error error;
    cr_assert_eq(end->ops->dial(end->mover, address, &peer, &error), STATUS_OK, "%s", error.text);
    end->ops->peer_set_context(peer, end);
    end->peers[end->peer_count++] = peer;
    return peer;
}

static uint64_t pattern_at(uint64_t seed, size_t place)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + place;
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

void pattern_fill(uint8_t *at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = pattern_at(seed, i);
        memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

bool pattern_matches(const uint8_t *at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = pattern_at(seed, i);
        if (memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
            return false;
    }
    return true;
}
