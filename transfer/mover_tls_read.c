/* What arrives at the TLS mover: records taken apart, payload read to where it belongs. */
#include "transfer/mover_tls_internal.h"

#include <stdio.h>

#include "base/check.h"

/* What a peer may say is checked before a byte of it is kept. */
static void take_record(struct mover_peer *peer)
{
    const struct mover_options *options = &peer->mover->options;
    struct tls_input *in = &peer->in;
    char text[128];
    const uint32_t kind = load_le32(in->prefix);
    const uint32_t bytes = load_le32(in->prefix + 4);
    in->record_bytes = bytes;
    in->done = 0;
    if (kind == TLS_RECORD_MESSAGE && bytes > 0 && bytes <= options->message_bytes_max) {
        in->reading = TLS_READING_MESSAGE;
        buffer_clear(&in->frame);
        buffer_reserve(&in->frame, bytes);
        return;
    }
    if (kind == TLS_RECORD_DATA && bytes > MOVER_HEADER_BYTES &&
        bytes - MOVER_HEADER_BYTES <= options->data_bytes_max) {
        in->reading = TLS_READING_HEADER;
        return;
    }
    snprintf(text, sizeof text, "it sent a record of kind %u with %u bytes, over a limit", kind,
             bytes);
    tls_peer_fail(peer, STATUS_CORRUPT, text);
}

static void take_message(struct mover_peer *peer)
{
    struct mover *mover = peer->mover;
    struct tls_input *in = &peer->in;
    in->reading = TLS_READING_RECORD;
    in->done = 0;
    mover->events.on_message(mover->arg, peer, in->frame.data, in->record_bytes);
}

/* The owner names the destination, or none. It may close the peer inside; what it named is then
 * over with the peer. */
static void take_header(struct mover_peer *peer)
{
    struct mover *mover = peer->mover;
    struct tls_input *in = &peer->in;
    mover_header_read(in->prefix, &in->header);
    in->done = 0;
    if (in->header.payload_bytes != in->record_bytes - MOVER_HEADER_BYTES) {
        tls_peer_fail(peer, STATUS_CORRUPT, "a data header and its record differ in length");
        return;
    }
    in->reading = TLS_READING_DATA;
    in->segment = 0;
    in->segment_count = mover->events.on_data(mover->arg, peer, &in->header, in->segments);
    in->receiving = in->segment_count > 0;
    in->refused_left = in->receiving ? 0 : in->header.payload_bytes;
    CHECK(!in->receiving ||
          mover_segments_bytes(in->segments, in->segment_count) == in->header.payload_bytes);
}

static void take_data(struct mover_peer *peer)
{
    struct mover *mover = peer->mover;
    struct tls_input *in = &peer->in;
    in->reading = TLS_READING_RECORD;
    in->done = 0;
    if (!in->receiving)
        return;
    in->receiving = false;
    mover->events.on_data_done(mover->arg, peer, &in->header, STATUS_OK);
}

/* Where the next bytes go, and how many belong there. */
static void *input_place(struct tls_input *in, uint8_t *nowhere, size_t nowhere_bytes,
                         size_t *bytes_out)
{
    switch (in->reading) {
    case TLS_READING_RECORD:
        *bytes_out = TLS_RECORD_BYTES - in->done;
        return in->prefix + in->done;
    case TLS_READING_HEADER:
        *bytes_out = MOVER_HEADER_BYTES - in->done;
        return in->prefix + in->done;
    case TLS_READING_MESSAGE:
        *bytes_out = in->record_bytes - in->done;
        return in->frame.data + in->done;
    case TLS_READING_DATA:
        break;
    }
    if (!in->receiving) {
        *bytes_out = in->refused_left < nowhere_bytes ? (size_t)in->refused_left : nowhere_bytes;
        return nowhere;
    }
    *bytes_out = in->segments[in->segment].bytes - in->done;
    return (uint8_t *)in->segments[in->segment].data + in->done;
}

static void data_advance(struct mover_peer *peer, size_t done)
{
    struct tls_input *in = &peer->in;
    if (!in->receiving) {
        in->refused_left -= done;
        if (in->refused_left == 0)
            take_data(peer);
        return;
    }
    in->done += done;
    if (in->done < in->segments[in->segment].bytes)
        return;
    in->done = 0;
    if (++in->segment == in->segment_count)
        take_data(peer);
}

static void input_advance(struct mover_peer *peer, size_t done)
{
    struct tls_input *in = &peer->in;
    if (in->reading == TLS_READING_DATA) {
        data_advance(peer, done);
        return;
    }
    in->done += done;
    if (in->reading == TLS_READING_RECORD && in->done == TLS_RECORD_BYTES)
        take_record(peer);
    else if (in->reading == TLS_READING_HEADER && in->done == MOVER_HEADER_BYTES)
        take_header(peer);
    else if (in->reading == TLS_READING_MESSAGE && in->done == in->record_bytes)
        take_message(peer);
}

void tls_peer_read(struct mover_peer *peer)
{
    uint8_t nowhere[4096];
    size_t share = TLS_BYTES_PER_TURN;
    struct error error = {0};
    while (peer->state == TLS_PEER_OPEN) {
        size_t bytes, done = 0;
        void *place = input_place(&peer->in, nowhere, sizeof nowhere, &bytes);
        const enum status status = tls_read(peer->tls, place, bytes, &done, &error);
        if (status == STATUS_AGAIN) {
            peer->read_waits_for_write = tls_wants(peer->tls) == LOOP_WRITE;
            return;
        }
        if (status != STATUS_OK) {
            tls_peer_fail(peer, status, error.text);
            return;
        }
        input_advance(peer, done);
        share -= done < share ? done : share;
        if (share == 0) {
            /* The rest may be inside the library, where no descriptor tells of it. */
            peer->read_again = true;
            loop_task_schedule(peer->mover->turn);
            return;
        }
    }
}
