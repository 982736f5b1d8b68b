#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stream.h"
#include "transfer/link.h"
#include "tests/transfer/turn_loop.h"

/* One end of a link and what happened to it. */
struct end {
    struct link *link;
    uint32_t opened, messages, closed;
    uint64_t last;
    enum message_id last_id;
    bool close_on_message;
    enum status status;
    char text[600];
};

struct pair {
    struct loop *loop;
    struct link_listener *listener;
    struct end server, client;
    struct link_limits limits;
    char address[32];
    uint32_t accepted;
};

static void end_open(void *arg)
{
    ((struct end *)arg)->opened++;
}

static void end_message(void *arg, enum message_id id, const void *message)
{
    struct end *end = arg;
    end->messages++;
    end->last_id = id;
    if (id == MESSAGE_ID_HEARTBEAT_ACK)
        end->last = ((const struct msg_heartbeat_ack *)message)->sequence;
    if (end->close_on_message) {
        struct link *link = end->link;
        end->link = NULL;
        link_close(link, STATUS_CANCELED, "enough of this");
        /* The message lives until the callback returns, closed or not. */
        cr_assert_eq(((const struct msg_heartbeat_ack *)message)->sequence, end->last);
    }
}

static void end_close(void *arg, enum status status, const char *text)
{
    struct end *end = arg;
    end->closed++;
    end->status = status;
    end->link = NULL;
    snprintf(end->text, sizeof end->text, "%s", text);
}

static const struct link_events end_events = {end_open, end_message, end_close};

static void on_accept(void *arg, struct link *link)
{
    struct pair *pair = arg;
    pair->accepted++;
    pair->server.link = link;
    link_attach(link, &end_events, &pair->server);
}

static void pair_init(struct pair *pair)
{
    *pair = (struct pair){.loop = loop_create(), .limits = link_default_limits};
}

static void pair_listen(struct pair *pair)
{
    struct error error;
    cr_assert_eq(link_listen(pair->loop, "127.0.0.1:0", on_accept, pair, &pair->limits,
                             &pair->listener, &error),
                 STATUS_OK, "%s", error.text);
    snprintf(pair->address, sizeof pair->address, "127.0.0.1:%u",
             link_listener_port(pair->listener));
}

static void pair_connect(struct pair *pair)
{
    struct error error;
    pair_listen(pair);
    cr_assert_eq(link_dial(pair->loop, pair->address, &end_events, &pair->client, &pair->limits,
                           &pair->client.link, &error),
                 STATUS_OK, "%s", error.text);
    TURN_UNTIL(pair->loop, pair->client.opened && pair->accepted);
}

static void pair_free(struct pair *pair)
{
    link_close(pair->client.link, STATUS_OK, NULL);
    link_close(pair->server.link, STATUS_OK, NULL);
    link_listener_close(pair->listener);
    loop_destroy(pair->loop);
}

static enum status send_ack(struct link *link, uint64_t sequence)
{
    const struct msg_heartbeat_ack ack = {.sequence = sequence};
    return link_send(link, MESSAGE_ID_HEARTBEAT_ACK, &ack);
}

/* A plain stream in place of one end, to say what no link would. */
struct raw {
    struct stream *stream;
    struct buffer heard;
    uint32_t opened, closed;
};

static void raw_open(void *arg)
{
    ((struct raw *)arg)->opened++;
}

static size_t raw_data(void *arg, const void *data, size_t bytes)
{
    buffer_add(&((struct raw *)arg)->heard, data, bytes);
    return bytes;
}

static void raw_close(void *arg, enum status status, const char *text)
{
    ((struct raw *)arg)->closed++;
}

static const struct stream_events raw_events = {raw_open, raw_data, raw_close};

static void raw_dial(struct pair *pair, struct raw *raw)
{
    const struct stream_limits limits = {1 << 20, 64 << 20, 3000};
    struct error error;
    cr_assert_eq(
        stream_dial(pair->loop, pair->address, &raw_events, raw, &limits, &raw->stream, &error),
        STATUS_OK, "%s", error.text);
    TURN_UNTIL(pair->loop, raw->opened && pair->accepted);
}

Test(link, messages_pass_both_ways)
{
    struct pair pair;
    pair_init(&pair);
    pair_connect(&pair);
    for (uint64_t i = 1; i <= 100; i++) {
        cr_assert_eq(send_ack(pair.client.link, i), STATUS_OK);
        cr_assert_eq(send_ack(pair.server.link, 2 * i), STATUS_OK);
    }
    TURN_UNTIL(pair.loop, pair.server.messages == 100 && pair.client.messages == 100);
    cr_assert_eq(pair.server.last, 100u);
    cr_assert_eq(pair.client.last, 200u);
    cr_assert(strncmp(link_peer(pair.client.link), "127.0.0.1:", 10) == 0);
    pair_free(&pair);
}

Test(link, a_large_message_passes)
{
    struct pair pair;
    pair_init(&pair);
    pair_connect(&pair);
    const uint32_t count = 1000000;
    int32_t *tokens = calloc(count, sizeof *tokens);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)i;
    const struct msg_prefill prefill = {.job = {.tokens = {tokens, count}}};
    cr_assert_eq(link_send(pair.client.link, MESSAGE_ID_PREFILL, &prefill), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.messages == 1);
    cr_assert_eq(pair.server.last_id, MESSAGE_ID_PREFILL);
    free(tokens);
    pair_free(&pair);
}

Test(link, frames_may_come_in_any_pieces)
{
    struct pair pair;
    pair_init(&pair);
    pair_listen(&pair);
    struct raw raw = {0};
    raw_dial(&pair, &raw);
    struct buffer frames = {0};
    for (uint64_t i = 1; i <= 3; i++) {
        const struct msg_heartbeat_ack ack = {.sequence = i << 40};
        cr_assert_eq(wire_encode(MESSAGE_ID_HEARTBEAT_ACK, &ack, &frames, NULL), STATUS_OK);
    }
    for (size_t cut = 0; cut <= frames.size; cut++) {
        const uint32_t before = pair.server.messages;
        cr_assert_eq(stream_send(raw.stream, frames.data, cut), STATUS_OK);
        loop_run_once(pair.loop, 1);
        cr_assert_eq(stream_send(raw.stream, frames.data + cut, frames.size - cut), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.server.messages == before + 3);
        cr_assert_eq(pair.server.last, UINT64_C(3) << 40);
    }
    stream_close(raw.stream);
    TURN_UNTIL(pair.loop, pair.server.closed == 1);
    cr_assert_eq(pair.server.status, STATUS_CLOSED);
    buffer_free(&frames);
    buffer_free(&raw.heard);
    pair_free(&pair);
}

Test(link, a_silent_peer_is_a_timeout)
{
    struct pair pair;
    pair_init(&pair);
    pair.limits.silent_ms = 100;
    pair_listen(&pair);
    struct raw raw = {0};
    raw_dial(&pair, &raw);
    TURN_UNTIL(pair.loop, pair.server.closed == 1);
    cr_assert_eq(pair.server.status, STATUS_TIMEOUT);
    cr_assert(strstr(pair.server.text, "for 100 ms"), "%s", pair.server.text);
    TURN_UNTIL(pair.loop, raw.closed == 1);
    cr_assert(memmem(raw.heard.data, raw.heard.size, "nothing was heard", 17),
              "the other side was told nothing");
    buffer_free(&raw.heard);
    pair_free(&pair);
}

/* Sends bytes that are no good; the link closes with this status and the stranger is told why. */
static void bad_bytes(const void *data, size_t bytes, enum status status, const char *sentence)
{
    struct pair pair;
    pair_init(&pair);
    pair.limits.frame_bytes_max = 1000;
    pair_listen(&pair);
    struct raw raw = {0};
    raw_dial(&pair, &raw);
    cr_assert_eq(stream_send(raw.stream, data, bytes), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.closed == 1 && raw.closed == 1);
    cr_assert_eq(pair.server.status, status, "%s", pair.server.text);
    cr_assert(strstr(pair.server.text, sentence), "%s", pair.server.text);
    cr_assert(memmem(raw.heard.data, raw.heard.size, sentence, strlen(sentence)),
              "the sentence did not arrive");
    cr_assert_eq(pair.server.messages, 0u);
    buffer_free(&raw.heard);
    pair_free(&pair);
}

static size_t frame(uint8_t *out, uint16_t major, uint32_t type, uint32_t payload_bytes)
{
    store_le32(out, WIRE_MAGIC);
    store_le16(out + 4, major);
    store_le16(out + 6, 0);
    store_le32(out + 8, type);
    store_le32(out + 12, payload_bytes);
    return WIRE_PREFIX_BYTES;
}

Test(link, a_bad_frame_closes_the_link_with_a_reason)
{
    uint8_t bytes[64];
    bad_bytes("GET / HTTP/1.1\r\n\r\n", 18, STATUS_CORRUPT, "not a Baton frame");
    bad_bytes(bytes, frame(bytes, 1, 6, 1001), STATUS_LIMIT, "announces 1001 bytes");
    bad_bytes(bytes, frame(bytes, 1, 6, UINT32_MAX), STATUS_LIMIT, "the limit is 1000");
    bad_bytes(bytes, frame(bytes, 7, 6, 0), STATUS_MISMATCH, "protocol 7.0");
    bad_bytes(bytes, frame(bytes, 1, 777, 0), STATUS_UNSUPPORTED, "type 777");
    const size_t prefix = frame(bytes, 1, 6, 1);
    bytes[prefix] = 0xc1;
    bad_bytes(bytes, prefix + 1, STATUS_CORRUPT, "heartbeat_ack");
}

Test(link, a_reject_arrives_with_code_and_text)
{
    struct pair pair;
    pair_init(&pair);
    pair_connect(&pair);
    link_close(pair.server.link, STATUS_MISMATCH, "the model is another");
    pair.server.link = NULL;
    TURN_UNTIL(pair.loop, pair.client.closed == 1);
    cr_assert_eq(pair.client.status, STATUS_MISMATCH);
    cr_assert_str_eq(pair.client.text, "the model is another");
    cr_assert_eq(pair.server.closed, 0u);
    pair_free(&pair);
}

Test(link, closing_inside_a_callback_is_fine)
{
    struct pair pair;
    pair_init(&pair);
    pair_connect(&pair);
    pair.server.close_on_message = true;
    for (uint64_t i = 1; i <= 5; i++)
        cr_assert_eq(send_ack(pair.client.link, 9), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.client.closed == 1);
    cr_assert_eq(pair.server.messages, 1u);
    cr_assert_eq(pair.client.status, STATUS_CANCELED);
    cr_assert_str_eq(pair.client.text, "enough of this");
    pair_free(&pair);
}

Test(link, the_output_bound_and_field_limits_hold)
{
    struct pair pair;
    pair_init(&pair);
    pair.limits.output_bytes_max = 4096;
    pair_listen(&pair);
    struct error error;
    cr_assert_eq(link_dial(pair.loop, pair.address, &end_events, &pair.client, &pair.limits,
                           &pair.client.link, &error),
                 STATUS_OK);
    uint32_t sent = 0;
    while (send_ack(pair.client.link, sent + 1) == STATUS_OK)
        sent++;
    cr_assert_eq(send_ack(pair.client.link, 1), STATUS_LIMIT);
    cr_assert(sent > 10 && sent <= 4096 / WIRE_PREFIX_BYTES);
    const struct msg_cancel cancel = {.attempt = 70000};
    cr_assert_eq(link_send(pair.client.link, MESSAGE_ID_CANCEL, &cancel), STATUS_LIMIT);
    TURN_UNTIL(pair.loop, pair.server.messages == sent);
    cr_assert_eq(pair.server.last, sent);
    pair_free(&pair);
}

Test(link, nobody_there_is_told_by_on_close)
{
    struct pair pair;
    pair_init(&pair);
    pair_listen(&pair);
    link_listener_close(pair.listener);
    pair.listener = NULL;
    struct error error;
    cr_assert_eq(link_dial(pair.loop, pair.address, &end_events, &pair.client, &pair.limits,
                           &pair.client.link, &error),
                 STATUS_OK);
    TURN_UNTIL(pair.loop, pair.client.closed == 1);
    cr_assert_eq(pair.client.status, STATUS_IO);
    cr_assert(strstr(pair.client.text, "127.0.0.1"), "%s", pair.client.text);
    pair_free(&pair);
}
