#include "tests/transfer/stranger.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "tests/transfer/every_mover.h"

void stranger_say(struct stranger *stranger, enum message_id id, const void *message)
{
    struct buffer frame = {0};
    cr_assert_eq(wire_encode(id, message, &frame, NULL), STATUS_OK);
    const enum status status =
        stranger->fix->ops->send_message(stranger->peer, frame.data, frame.size);
    cr_assert(status == STATUS_OK || status == STATUS_CLOSED);
    buffer_free(&frame);
}

static void take_grant(struct stranger *stranger, const struct msg_grant *grant)
{
    stranger->granted = grant->slots.count;
    memcpy(stranger->slots, grant->slots.items, grant->slots.count * 4);
    memcpy(stranger->generations, grant->generations.items, grant->slots.count * 4);
}

static void take(struct stranger *stranger, enum message_id id, const void *message)
{
    const struct msg_reject *reject = message;
    const struct msg_abort *abort = message;
    const struct msg_offer *offer = message;
    const struct msg_pong pong = {.sequence = 1};
    switch (id) {
    case MESSAGE_ID_PEER_WELCOME:
        stranger->welcomes++;
        break;
    case MESSAGE_ID_PEER_HELLO: {
        const struct msg_peer_welcome welcome = {
            .boot_id = {stranger->fix->decode_self.boot_id, 16},
            .data_bytes_max = 1 << 20,
            .flow_bytes = 1 << 20,
            .peer_bytes = 1 << 20};
        stranger_say(stranger, MESSAGE_ID_PEER_WELCOME, &welcome);
        break;
    }
    case MESSAGE_ID_REJECT:
        stranger->rejects++;
        stranger->code = reject->code;
        wire_str_copy(reject->text, stranger->text, sizeof stranger->text);
        break;
    case MESSAGE_ID_ABORT:
        stranger->aborts++;
        stranger->code = abort->code;
        wire_str_copy(abort->text, stranger->text, sizeof stranger->text);
        break;
    case MESSAGE_ID_OFFER:
        stranger->offers++;
        stranger->offered = offer->handoff;
        stranger->offered_first = offer->first_page;
        stranger->offered_count = offer->page_count;
        break;
    case MESSAGE_ID_GRANT:
        take_grant(stranger, message);
        break;
    case MESSAGE_ID_PING:
        stranger->pings++;
        if (!stranger->silent)
            stranger_say(stranger, MESSAGE_ID_PONG, &pong);
        break;
    case MESSAGE_ID_ABORT_ACK:
        stranger->acks++;
        break;
    case MESSAGE_ID_LANDED:
        stranger->landed++;
        break;
    case MESSAGE_ID_DONE:
        stranger->dones++;
        break;
    default:
        break;
    }
}

static void on_accepted(void *arg, struct mover_peer *peer)
{
    ((struct stranger *)arg)->peer = peer;
}

static void on_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct stranger *stranger = arg;
    stranger->closed++;
    stranger->peer = NULL;
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct stranger *stranger = arg;
    struct wire_arena arena;
    struct wire_prefix prefix;
    enum message_id id;
    void *message = malloc(wire_message_bytes_max());
    wire_arena_init(&arena, wire_arena_bytes(bytes));
    cr_assert_eq(wire_prefix_read(frame, bytes, bytes, &prefix, NULL), STATUS_OK);
    cr_assert_eq(wire_decode(prefix.type, (const uint8_t *)frame + WIRE_PREFIX_BYTES,
                             prefix.payload_bytes, &arena, &id, message, wire_message_bytes_max(),
                             NULL),
                 STATUS_OK);
    take(stranger, id, message);
    wire_arena_free(&arena);
    free(message);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    segments[0] = (struct mover_segment){((struct stranger *)arg)->bytes, header->payload_bytes};
    return 1;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    ((struct stranger *)arg)->sent++;
}

void stranger_create(struct stranger *stranger, struct pair_fix *fix, const char *listen)
{
    static const struct mover_events events = {on_accepted, on_closed,    on_message,
                                               on_data,     on_data_done, on_sent};
    const struct mover_options options = {.listen = listen,
                                          .connect_ms = 20000,
                                          .sends_max = 32,
                                          .message_bytes_max = 60000,
                                          .data_bytes_max = 2 << 20,
                                          .tls = &every_mover_tls};
    struct error error;
    *stranger = (struct stranger){.fix = fix};
    stranger->bytes = malloc(2 << 20);
    memset(stranger->bytes, 0x66, 2 << 20);
    cr_assert_eq(fix->ops->create(fix->loop, &options, &events, stranger, &stranger->mover, &error),
                 STATUS_OK, "%s", error.text);
}

void stranger_dial(struct stranger *stranger)
{
    struct error error;
    cr_assert_eq(
        stranger->fix->ops->dial(stranger->mover, stranger->fix->address, &stranger->peer, &error),
        STATUS_OK, "%s", error.text);
}

struct msg_peer_hello stranger_hello(const struct pair_fix *fix)
{
    return (struct msg_peer_hello){
        .node = wire_str("stranger"),
        .boot_id = {fix->prefill_self.boot_id, 16},
        .identity = fix->prefill_self.identity,
        .expected_boot_id = {fix->decode_self.boot_id, 16},
        .data_bytes_max = 1 << 20,
        .checksum = HANDOFF_CHECKSUM_CRC32C,
    };
}

void stranger_greet(struct stranger *stranger)
{
    const struct msg_peer_hello hello = stranger_hello(stranger->fix);
    stranger_dial(stranger);
    stranger_say(stranger, MESSAGE_ID_PEER_HELLO, &hello);
    TURN_UNTIL(stranger->fix->loop, stranger->welcomes == 1);
}

void stranger_destroy(struct stranger *stranger)
{
    stranger->fix->ops->destroy(stranger->mover);
    free(stranger->bytes);
}

struct mover_data_header hostile_header(const struct hostile *hostile, uint32_t layer,
                                        uint32_t page)
{
    const struct stranger *stranger = &hostile->stranger;
    const uint32_t first_slot = 0;
    struct handoff_region region = {stranger->bytes, LAYERS, 1, STRIP_BYTES};
    const struct strip_identity identity = {hostile->job->handoff, hostile->job->first_page + page,
                                            stranger->generations + page};
    const struct strip_box box = {layer, 1, 0, 1};
    return (struct mover_data_header){
        .handoff = hostile->job->handoff,
        .layer = layer,
        .layer_count = 1,
        .first_page = hostile->job->first_page + page,
        .page_count = 1,
        .first_slot = stranger->slots[page],
        .generation = stranger->generations[page],
        .grant = strip_grant(stranger->slots + page, stranger->generations + page, 1),
        .checksum = strip_checksum(&region, &identity, &box, &first_slot),
        .payload_bytes = STRIP_BYTES,
    };
}

void hostile_send_data(struct hostile *hostile, const struct mover_data_header *header)
{
    struct stranger *stranger = &hostile->stranger;
    const uint32_t sent = stranger->sent;
    if (!stranger->peer)
        return;
    const struct mover_segment segment = {stranger->bytes, header->payload_bytes};
    const enum status status = hostile->fix.ops->send_data(stranger->peer, header, &segment, 1, 1);
    cr_assert(status == STATUS_OK || status == STATUS_CLOSED);
    TURN_UNTIL(hostile->fix.loop, stranger->sent > sent || status != STATUS_OK);
}
