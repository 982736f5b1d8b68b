/* What a heartbeat says about hand-offs: the totals of one end, and its peers one by one. */
#ifndef BATON_WORKER_HANDOFF_REPORT_H
#define BATON_WORKER_HANDOFF_REPORT_H

#include "transfer/handoff.h"

enum { HANDOFF_REPORT_PEERS_MAX = 64 };

/* What the message points at; a part of the node. */
struct handoff_report {
    struct handoff_totals totals;
    struct handoff_peer_totals peers[HANDOFF_REPORT_PEERS_MAX];
    uint32_t peer_count;
    struct msg_handoff_peer messages[HANDOFF_REPORT_PEERS_MAX];
};

/* Fills the heartbeat's fields about hand-offs from totals and peers; it points into *report. */
void handoff_report_fill(struct handoff_report *report, struct msg_heartbeat *heartbeat);

#endif
