#include "router/fleet_handoff.h"

#include "base/clock.h"
#include "router/fleet_counts.h"
#include "router/router_metrics.h"

static const char *const count_names[FLEET_HANDOFF_COUNTS] = {
    [FLEET_HANDOFF_LANDED] = "landed",
    [FLEET_HANDOFF_CANCELED] = "canceled",
    [FLEET_HANDOFF_TIMEOUT] = "timeout",
    [FLEET_HANDOFF_PEER_LOST] = "peer_lost",
    [FLEET_HANDOFF_CORRUPT] = "corrupt",
    [FLEET_HANDOFF_MISMATCH] = "mismatch",
    [FLEET_HANDOFF_OTHER] = "other",
    [FLEET_HANDOFF_BYTES] = "bytes",
    [FLEET_HANDOFF_BUSY_US] = "busy_us",
    [FLEET_HANDOFF_CHECKSUM_FAULTS] = "checksum_faults",
    [FLEET_HANDOFF_WAITS_HANDOFFS] = "waits_handoffs",
    [FLEET_HANDOFF_WAITS_PROMPTS] = "waits_prompts",
};

static void take_peers(struct fleet_handoff *handoff, const struct msg_handoff_load *load)
{
    handoff->peer_count = 0;
    for (uint32_t i = 0; i < load->peers.count && i < FLEET_HANDOFF_PEERS_MAX; i++) {
        const struct msg_handoff_peer *from = &load->peers.items[i];
        struct fleet_handoff_peer *peer = &handoff->peers[handoff->peer_count++];
        *peer = (struct fleet_handoff_peer){.open = from->open,
                                            .in_flight = from->in_flight,
                                            .bytes = from->bytes,
                                            .done = from->done,
                                            .failed = from->failed};
        wire_str_copy(from->node, peer->node, sizeof peer->node);
        wire_str_copy(from->state, peer->state, sizeof peer->state);
    }
}

void fleet_handoff_take(struct fleet_handoff *handoff, const struct msg_heartbeat *heartbeat)
{
    const struct msg_handoff_load *load = &heartbeat->handoff;
    const uint64_t told[FLEET_HANDOFF_COUNTS] = {
        [FLEET_HANDOFF_LANDED] = heartbeat->handoffs_done,
        [FLEET_HANDOFF_CANCELED] = load->canceled,
        [FLEET_HANDOFF_TIMEOUT] = load->timeout,
        [FLEET_HANDOFF_PEER_LOST] = load->peer_lost,
        [FLEET_HANDOFF_CORRUPT] = load->corrupt,
        [FLEET_HANDOFF_MISMATCH] = load->mismatch,
        [FLEET_HANDOFF_OTHER] = load->other,
        [FLEET_HANDOFF_BYTES] = heartbeat->handoff_bytes,
        [FLEET_HANDOFF_BUSY_US] = load->busy_us,
        [FLEET_HANDOFF_CHECKSUM_FAULTS] = load->checksum_faults,
        [FLEET_HANDOFF_WAITS_HANDOFFS] = load->waits_handoffs,
        [FLEET_HANDOFF_WAITS_PROMPTS] = load->waits_prompts,
    };
    fleet_counts_take(told, FLEET_HANDOFF_COUNTS, handoff->counts, handoff->news);
    handoff->open = load->open;
    handoff->oldest_ms = load->oldest_ms;
    handoff->queue_bytes = load->queue_bytes;
    take_peers(handoff, load);
}

void fleet_handoff_measure(const struct fleet_handoff *handoff, enum worker_role role,
                           struct metrics *metrics)
{
    const uint32_t at = role == WORKER_PREFILL ? 0 : 1;
    for (uint32_t i = 0; i < FLEET_HANDOFF_OUTCOMES; i++)
        metrics_add(metrics, METRIC_HANDOFFS + at * FLEET_HANDOFF_OUTCOMES + i,
                    (double)handoff->news[i]);
    metrics_add(metrics, METRIC_HANDOFF_MOVED + at, (double)handoff->news[FLEET_HANDOFF_BYTES]);
    metrics_add(metrics, METRIC_HANDOFF_BUSY + at,
                (double)handoff->news[FLEET_HANDOFF_BUSY_US] / 1e6);
    metrics_add(metrics, METRIC_HANDOFF_CHECKSUM_FAULTS,
                (double)handoff->news[FLEET_HANDOFF_CHECKSUM_FAULTS]);
    metrics_add(metrics, METRIC_WAITS_HANDOFFS,
                (double)handoff->news[FLEET_HANDOFF_WAITS_HANDOFFS]);
    metrics_add(metrics, METRIC_WAITS_PROMPTS, (double)handoff->news[FLEET_HANDOFF_WAITS_PROMPTS]);
}

static void put(struct json_writer *writer, const char *key, uint64_t value)
{
    json_key(writer, key);
    json_put_u64(writer, value);
}

void fleet_handoff_write(const struct fleet_handoff *handoff, struct json_writer *writer)
{
    const double busy_us = (double)handoff->counts[FLEET_HANDOFF_BUSY_US];
    json_open_object(writer);
    put(writer, "open", handoff->open);
    put(writer, "oldest_ms", handoff->oldest_ms);
    put(writer, "queue_bytes", handoff->queue_bytes);
    for (uint32_t i = 0; i < FLEET_HANDOFF_COUNTS; i++)
        put(writer, count_names[i], handoff->counts[i]);
    json_key(writer, "gb_per_s");
    json_put_number(
        writer, busy_us > 0 ? (double)handoff->counts[FLEET_HANDOFF_BYTES] / busy_us / 1e3 : 0, 4);
    json_key(writer, "peers");
    json_open_array(writer);
    for (uint32_t i = 0; i < handoff->peer_count; i++) {
        const struct fleet_handoff_peer *peer = &handoff->peers[i];
        json_open_object(writer);
        json_key(writer, "node");
        json_put_text(writer, peer->node);
        json_key(writer, "state");
        json_put_text(writer, peer->state);
        put(writer, "open", peer->open);
        put(writer, "in_flight_bytes", peer->in_flight);
        put(writer, "bytes", peer->bytes);
        put(writer, "landed", peer->done);
        put(writer, "failed", peer->failed);
        json_close_object(writer);
    }
    json_close_array(writer);
    json_close_object(writer);
}
