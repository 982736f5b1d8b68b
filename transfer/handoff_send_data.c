/* The sender's data path: which strips go into the next message, under which header, within which
 * window. */
#include "base/bytes.h"
#include "base/check.h"
#include "transfer/handoff_send_internal.h"

/* ---- the window ---- */

static void window_posted(struct peer *peer, uint64_t bytes)
{
    struct peer_window *window = &peer->window;
    peer->bytes_in_flight += bytes;
    window->posted += bytes;
    if (window->probe.end != 0)
        return;
    window->probe.end = window->posted;
    window->probe.bytes = peer->bytes_in_flight;
    window->probe.since_ns = loop_now_ns(peer->peers->loop);
}

void handoff_window_sent(struct peer *peer, uint64_t bytes)
{
    struct peer_window *window = &peer->window;
    peer->bytes_in_flight -= bytes;
    window->sent += bytes;
    if (window->probe.end == 0 || window->sent < window->probe.end)
        return;
    const uint64_t took_ns = loop_now_ns(peer->peers->loop) - window->probe.since_ns;
    const uint64_t wanted_ns = (uint64_t)peer->peers->limits->window_ms * NS_PER_MS;
    const double fits = (double)window->probe.bytes * (double)wanted_ns / (double)(took_ns + 1);
    /* What the system buffers goes out in no time: only a window that was used may grow. */
    uint64_t most = window->bytes;
    if (2 * window->probe.bytes >= most) {
        most = 2 * (most > window->probe.bytes ? most : window->probe.bytes);
        most = most < peer->peer_bytes ? most : peer->peer_bytes;
    }
    window->bytes = fits < 1 ? 1 : fits < (double)most ? (uint64_t)fits : most;
    window->probe.end = 0;
}

/* Credits: a hand-off, and all of one peer, stop at the first message that takes them over. */
static bool window_is_full(const struct handoff_out *out)
{
    return out->bytes_in_flight >= out->peer->flow_bytes ||
           out->peer->bytes_in_flight >= out->peer->peer_bytes ||
           out->peer->bytes_in_flight >= out->peer->window.bytes;
}

/* ---- messages ---- */

static void out_mark_sent(struct handoff_out *out, const struct strip_box *box, uint64_t bytes)
{
    struct handoff_sender *sender = out->sender;
    for (uint32_t layer = box->layer; layer < box->layer + box->layer_count; layer++) {
        for (uint32_t i = 0; i < box->page_count; i++)
            strip_remove(&out->ready, layer, box->page + i);
        out->ready_counts[layer] -= box->page_count;
    }
    out->ready_total -= box->layer_count * box->page_count;
    out->strips_sent += box->layer_count * box->page_count;
    out->next_layer = box->layer;
    out->sends++;
    if (sender->sends++ == 0)
        sender->busy_from_ns = loop_now_ns(sender->loop);
    out->bytes_in_flight += bytes;
    window_posted(out->peer, bytes);
    if (out->stats.first_send_ns == 0)
        out->stats.first_send_ns = loop_now_ns(sender->loop);
    if (out->sends == 1)
        out->moved_ns = peers_now_ns(sender->peers);
}

/* Sizes in strips that suit the way to the peer. */
static struct strip_room out_room(const struct handoff_out *out)
{
    const struct handoff_sender *sender = out->sender;
    const size_t strip = sender->region.strip_bytes;
    const struct mover_shape shape = sender->peers->ops->peer_shape(out->peer->link);
    const size_t limit = (size_t)out->peer->data_bytes_max;
    const size_t wanted =
        shape.message_bytes > 0 && shape.message_bytes < limit ? shape.message_bytes : limit;
    const size_t most = wanted < strip ? 1 : wanted / strip;
    const size_t run = (shape.run_bytes + strip - 1) / strip;
    const size_t gather = shape.gather_bytes / strip;
    return (struct strip_room){
        .strips_most = (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX),
        .run_strips = (uint32_t)(run < most ? run : most),
        .gather_strips = (uint32_t)(gather == 0     ? 1
                                    : gather < most ? gather
                                                    : most),
    };
}

/* Little is ready, more will be, and the way to the peer is not idle meanwhile. */
static bool worth_waiting(const struct handoff_out *out, const struct strip_room *room,
                          uint32_t strips)
{
    return out->sends > 0 && strips < room->run_strips && strips < room->gather_strips &&
           strips == out->ready_total && out->strips_sent + strips < out->strips_total;
}

static struct mover_data_header out_header(const struct handoff_out *out,
                                           const struct strip_box *box)
{
    const struct handoff_region *region = &out->sender->region;
    const struct strip_identity identity = {out->target.handoff, out->target.first_page,
                                            out->generations};
    return (struct mover_data_header){
        .handoff = out->target.handoff,
        .layer = box->layer,
        .layer_count = box->layer_count,
        .first_page = out->target.first_page + box->page,
        .page_count = box->page_count,
        .first_slot = out->granted_slots[box->page],
        .generation = out->generations[box->page],
        .grant = strip_grant(out->granted_slots + box->page, out->generations + box->page,
                             box->page_count),
        .checksum = out->sender->limits.checksum == HANDOFF_CHECKSUM_CRC32C
                        ? strip_checksum(region, &identity, box, out->source_slots)
                        : 0,
        .payload_bytes = (uint64_t)box->layer_count * box->page_count * region->strip_bytes,
    };
}

enum status handoff_out_send(struct handoff_out *out)
{
    struct handoff_sender *sender = out->sender;
    if (out->state != OUT_SENDING || out->ready_total == 0)
        return STATUS_PENDING;
    if (sender->sends == sender->sends_max)
        return STATUS_AGAIN; /* known before the checksum is computed */
    if (window_is_full(out))
        return STATUS_PENDING;
    const struct strip_room room = out_room(out);
    const struct strip_view view = {&out->ready,           out->ready_counts,
                                    out->source_slots,     out->granted_slots,
                                    sender->region.layers, out->target.page_count};
    struct strip_box box;
    if (!strip_pick(&view, &room, out->next_layer, &box) ||
        worth_waiting(out, &room, box.layer_count * box.page_count))
        return STATUS_PENDING;
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    const uint32_t count = strip_segments(&sender->region, &box, out->source_slots, segments);
    CHECK(count > 0);
    const struct mover_data_header header = out_header(out, &box);
    const uint64_t cookie = header.payload_bytes << COOKIE_INDEX_BITS | out->index;
    const enum status status =
        sender->peers->ops->send_data(out->peer->link, &header, segments, count, cookie);
    if (status == STATUS_OK) {
        out->digest += strip_digest(&header);
        out_mark_sent(out, &box, header.payload_bytes);
    }
    return status;
}

enum status handoff_out_make_done(struct handoff_out *out, struct error *error)
{
    struct handoff_sender *sender = out->sender;
    const uint8_t *frame = (const uint8_t *)out->done.data;
    enum message_id id;
    TRY(wire_decode(load_le32(frame + 8), frame + WIRE_PREFIX_BYTES,
                    out->done.size - WIRE_PREFIX_BYTES, &sender->arena, &id, sender->message,
                    wire_message_bytes_max(), error));
    struct msg_done *done = sender->message;
    done->strips = out->strips_total;
    done->bytes = out->strips_total * sender->region.strip_bytes;
    done->digest = out->digest;
    buffer_clear(&sender->frame);
    return wire_encode(MESSAGE_ID_DONE, done, &sender->frame, error);
}
