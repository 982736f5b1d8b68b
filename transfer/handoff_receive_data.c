/* The receiver's data path.
 *
 * Data is checked against the grant before a byte is received: hand-off, peer, layer, page range,
 * slots, generations, exact length, and that no strip of it came before. What does not fit lands
 * nowhere and is counted; a peer that goes on is dropped. What landed is checked once more, in its
 * place. */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "transfer/handoff_receive_internal.h"

static struct strip_box box_of(const struct handoff_in *in, const struct mover_data_header *header)
{
    return (struct strip_box){header->layer, header->layer_count,
                              header->first_page - in->first_page, header->page_count};
}

/* NULL when the data fits the grant in every respect, else what is wrong with it. */
static const char *data_fault(const struct handoff_in *in, const struct mover_data_header *header)
{
    const struct handoff_region *region = &in->receiver->region;
    if (header->layer >= region->layers || header->layer_count == 0 ||
        header->layer_count > region->layers - header->layer)
        return "data for a layer that does not exist";
    if (header->page_count == 0 || header->first_page < in->first_page ||
        header->first_page - in->first_page >= in->page_count ||
        header->page_count > in->page_count - (header->first_page - in->first_page))
        return "data for pages outside the grant";
    if (header->payload_bytes !=
        (uint64_t)header->layer_count * header->page_count * region->strip_bytes)
        return "data of another length than its pages have";
    if (header->flags != 0)
        return "data with flags that are not known";
    const uint32_t first = header->first_page - in->first_page;
    if (header->generation != in->generations[first])
        return "data for another generation of a slot";
    if (header->first_slot != in->slots[first] ||
        header->grant !=
            strip_grant(in->slots + first, in->generations + first, header->page_count))
        return "data for slots that were not granted";
    for (uint32_t layer = header->layer; layer < header->layer + header->layer_count; layer++)
        for (uint32_t i = 0; i < header->page_count; i++)
            if (strip_has(&in->begun, layer, first + i))
                return "data for a page that came before";
    return NULL;
}

uint32_t handoff_in_data(void *arg, struct peer *peer, const struct mover_data_header *header,
                         struct mover_segment *segments)
{
    struct handoff_receiver *receiver = arg;
    struct handoff_in *in = handoff_in_find(receiver, header->handoff);
    if (in && in->state == IN_ABORTED && in->peer == peer)
        return 0; /* it was on its way when the hand-off ended */
    if (!in || in->peer != peer || !handoff_in_takes_data(in)) {
        peer_offend(peer, "data for a hand-off that is not its own");
        return 0;
    }
    const char *fault = data_fault(in, header);
    if (fault) {
        peer_offend(peer, fault);
        return 0;
    }
    const struct strip_box box = box_of(in, header);
    const uint32_t count = strip_segments(&receiver->region, &box, in->slots, segments);
    if (count == 0) {
        peer_offend(peer, "data in more pieces than one message may have");
        return 0;
    }
    for (uint32_t layer = box.layer; layer < box.layer + box.layer_count; layer++)
        for (uint32_t i = 0; i < box.page_count; i++)
            strip_add(&in->begun, layer, box.page + i);
    in->receives++;
    if (in->state == IN_GRANTED)
        handoff_in_enter(in, IN_MOVING);
    if (in->receives == 1)
        in->moved_ns = in->renewed_ns = peers_now_ns(receiver->peers);
    if (in->stats.first_send_ns == 0)
        in->stats.first_send_ns = loop_now_ns(receiver->loop);
    return count;
}

/* Are the bytes in their final place those that the writer had in its own? */
static bool is_sound(struct handoff_in *in, const struct mover_data_header *header)
{
    struct handoff_receiver *receiver = in->receiver;
    const struct strip_identity identity = {in->id, in->first_page, in->generations};
    const struct strip_box box = box_of(in, header);
    char text[HANDOFF_TEXT_BYTES];
    if (receiver->limits.checksum == HANDOFF_CHECKSUM_NONE)
        return true;
    const uint32_t checksum = strip_checksum(&receiver->region, &identity, &box, in->slots);
    if (checksum == header->checksum)
        return true;
    receiver->totals.checksum_faults++;
    snprintf(text, sizeof text,
             "layers %u to %u of pages %u to %u have the checksum %08" PRIx32 " here and %08" PRIx64
             " on the prefill node",
             header->layer, header->layer + header->layer_count - 1, header->first_page,
             header->first_page + header->page_count - 1, checksum, header->checksum);
    handoff_in_fail(in, STATUS_CORRUPT, text);
    return false;
}

void handoff_in_data_done(void *arg, const struct mover_data_header *header, enum status status)
{
    struct handoff_receiver *receiver = arg;
    struct handoff_in *in = handoff_in_find(receiver, header->handoff);
    CHECK(in && in->receives > 0); /* it is kept while a receive is pending */
    in->receives--;
    in->moved_ns = in->renewed_ns = peers_now_ns(receiver->peers);
    if (status == STATUS_OK && handoff_in_takes_data(in) && is_sound(in, header)) {
        const uint32_t strips = header->layer_count * header->page_count;
        in->strips_landed += strips;
        in->digest += strip_digest(header);
        in->stats.strips += strips;
        in->stats.messages++;
        in->stats.bytes += header->payload_bytes;
        in->stats.last_sent_ns = loop_now_ns(receiver->loop);
        receiver->totals.bytes += header->payload_bytes;
        if (in->peer)
            in->peer->bytes += header->payload_bytes;
        handoff_in_land_when_whole(in);
    } else if (status != STATUS_OK && in->state == IN_MOVING && in->peer) {
        handoff_in_fail(in, STATUS_CLOSED, "a data message broke off");
    }
    if (in->state != IN_FREE)
        handoff_in_settle(in);
}
