#include "worker/handoff_report.h"

#include "base/clock.h"

void handoff_report_fill(struct handoff_report *report, struct msg_heartbeat *heartbeat)
{
    const struct handoff_totals *totals = &report->totals;
    for (uint32_t i = 0; i < report->peer_count; i++) {
        const struct handoff_peer_totals *peer = &report->peers[i];
        report->messages[i] = (struct msg_handoff_peer){
            .node = wire_str(peer->node),
            .state = wire_str(peer->state),
            .open = peer->open,
            .in_flight = peer->in_flight,
            .bytes = peer->bytes,
            .done = peer->done,
            .failed = peer->failed,
        };
    }
    heartbeat->pages_handoff = totals->pages;
    heartbeat->handoff_bytes = totals->bytes;
    heartbeat->handoffs_done = totals->done;
    heartbeat->handoffs_failed = totals->failed;
    heartbeat->handoff = (struct msg_handoff_load){
        .open = totals->open,
        .busy_us = totals->busy_ns / NS_PER_US,
        .queue_bytes = totals->queue_bytes,
        .oldest_ms = totals->oldest_ms,
        .checksum_faults = totals->checksum_faults,
        .canceled = totals->failures[HANDOFF_REASON_CANCELED],
        .timeout = totals->failures[HANDOFF_REASON_TIMEOUT],
        .peer_lost = totals->failures[HANDOFF_REASON_PEER_LOST],
        .corrupt = totals->failures[HANDOFF_REASON_CORRUPT],
        .mismatch = totals->failures[HANDOFF_REASON_MISMATCH],
        .other = totals->failures[HANDOFF_REASON_OTHER],
        .peers = {report->messages, report->peer_count},
    };
}
