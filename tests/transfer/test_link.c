#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stream.h"
#include "transfer/link.h"
#include "transfer/wire_internal.h"
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

/* A prefix whose checksum is right for a frame without payload. */
static size_t frame(uint8_t *out, uint16_t major, uint32_t type, uint32_t payload_bytes)
{
    store_le32(out, WIRE_MAGIC);
    store_le16(out + 4, major);
    store_le16(out + 6, 0);
    store_le32(out + 8, type);
    store_le32(out + 12, payload_bytes);
    store_le32(out + WIRE_CRC_AT, wire_frame_crc(out, WIRE_PREFIX_BYTES));
    return WIRE_PREFIX_BYTES;
}

Test(link, a_bad_frame_closes_the_link_with_a_reason)
{
    uint8_t bytes[64];
    bad_bytes("GET / HTTP/1.1\r\n\r\n", 18, STATUS_CORRUPT, "not a Baton frame");
    bad_bytes(bytes, frame(bytes, WIRE_MAJOR, 6, 1001), STATUS_LIMIT, "announces 1001 bytes");
    bad_bytes(bytes, frame(bytes, WIRE_MAJOR, 6, UINT32_MAX), STATUS_LIMIT, "the limit is 1000");
    bad_bytes(bytes, frame(bytes, 7, 6, 0), STATUS_MISMATCH, "protocol 7.0");
    bad_bytes(bytes, frame(bytes, WIRE_MAJOR, 777, 0), STATUS_UNSUPPORTED, "type 777");
    bad_bytes(bytes, frame(bytes, 1, 6, 0), STATUS_MISMATCH, "protocol 1.0");
    const size_t prefix = frame(bytes, WIRE_MAJOR, 6, 1);
    bytes[prefix] = 0xc1;
    bad_bytes(bytes, prefix + 1, STATUS_CORRUPT, "checksum");
    store_le32(bytes + WIRE_CRC_AT, wire_frame_crc(bytes, prefix + 1));
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
    pair.limits.silent_ms = 400;
    pair_listen(&pair);
    struct error error;
    cr_assert_eq(link_dial(pair.loop, pair.address, &end_events, &pair.client, &pair.limits,
                           &pair.client.link, &error),
                 STATUS_OK);
    uint32_t sent = 0;
    while (send_ack(pair.client.link, sent + 1) == STATUS_OK)
        sent++;
    cr_assert_eq(send_ack(pair.client.link, sent + 1), STATUS_LIMIT);
    cr_assert(sent > 10 && sent <= 4096 / WIRE_PREFIX_BYTES);
    const struct msg_cancel cancel = {.attempt = 70000};
    cr_assert_eq(link_send(pair.client.link, MESSAGE_ID_CANCEL, &cancel), STATUS_LIMIT);
    /* What was taken arrives; then the link ends, because something was not. */
    TURN_UNTIL(pair.loop, pair.server.messages == sent);
    cr_assert_eq(pair.server.last, sent);
    cr_assert_eq(send_ack(pair.client.link, sent + 2), STATUS_LIMIT);
    TURN_UNTIL(pair.loop, pair.client.closed == 1 && pair.server.closed == 1);
    cr_assert_eq(pair.client.status, STATUS_LIMIT);
    cr_assert_eq(pair.server.messages, sent);
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

/* ---- with a secret ---- */

static const uint8_t client_boot[16] = {1}, server_boot[16] = {2};

static void gates_init(struct gate_self *server, struct gate_self *client, const char *server_says,
                       const char *client_says)
{
    struct secret secret = {.count = 16};
    if (server_says)
        memcpy(secret.bytes, server_says, 16);
    gate_self_init(server, server_says ? &secret : NULL, server_boot, GATE_ROLE_ROUTER);
    if (client_says)
        memcpy(secret.bytes, client_says, 16);
    gate_self_init(client, client_says ? &secret : NULL, client_boot, WORKER_DECODE);
}

static void gated_dial(struct pair *pair, struct gate_self *server, struct gate_self *client)
{
    struct error error;
    struct link_limits limits = pair->limits;
    pair->limits.gate = server;
    limits.gate = client;
    pair_listen(pair);
    cr_assert_eq(link_dial(pair->loop, pair->address, &end_events, &pair->client, &limits,
                           &pair->client.link, &error),
                 STATUS_OK, "%s", error.text);
}

Test(link, a_shared_secret_opens_it_before_anybody_hears_of_it)
{
    struct pair pair;
    struct gate_self server, client;
    pair_init(&pair);
    gates_init(&server, &client, "one secret of 16", "one secret of 16");
    gated_dial(&pair, &server, &client);
    TURN_UNTIL(pair.loop, pair.client.opened && pair.accepted);
    cr_assert_eq(pair.server.messages + pair.client.messages, 0);
    cr_assert_eq(send_ack(pair.client.link, 7), STATUS_OK);
    cr_assert_eq(send_ack(pair.server.link, 8), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.last == 7 && pair.client.last == 8);
    cr_expect_eq(link_check_boot(pair.server.link, client_boot, NULL), STATUS_OK);
    cr_expect_eq(link_check_boot(pair.server.link, server_boot, NULL), STATUS_MISMATCH);
    pair_free(&pair);
}

/* Every way in which one side lacks it: both ends are told, nobody is accepted. */
Test(link, no_secret_or_another_one_is_refused_in_words)
{
    static const char *const one = "one secret of 16", *const two = "two secret of 16";
    const struct {
        const char *server, *client;
        uint64_t by_server, by_client;
    } rows[] = {{one, two, 0, 1}, {one, NULL, 1, 0}, {NULL, one, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pair pair;
        struct gate_self server, client;
        pair_init(&pair);
        gates_init(&server, &client, rows[i].server, rows[i].client);
        gated_dial(&pair, &server, &client);
        TURN_UNTIL(pair.loop, pair.client.opened || pair.client.closed);
        if (pair.client.opened) /* it has nothing to prove and speaks at once */
            cr_assert_eq(send_ack(pair.client.link, 1), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.client.closed);
        cr_expect_eq(pair.client.status, STATUS_MISMATCH);
        cr_expect_not_null(strstr(pair.client.text, "--secret-file"), "%s", pair.client.text);
        cr_expect_eq(pair.accepted, rows[i].server ? 0 : 1);
        cr_expect_eq(pair.server.messages, 0);
        cr_expect_eq(server.refused, rows[i].by_server);
        cr_expect_eq(client.refused, rows[i].by_client);
        pair_free(&pair);
    }
}

/* However much or little a stranger says, it is gone after silent_ms and nobody heard of it. */
Test(link, a_stranger_has_little_time_and_little_room)
{
    struct pair pair;
    struct gate_self server, client;
    pair_init(&pair);
    pair.limits.silent_ms = 100;
    gates_init(&server, &client, "one secret of 16", NULL);
    pair.limits.gate = &server;
    pair_listen(&pair);
    struct raw raw = {0};
    const struct stream_limits limits = {1 << 20, 64 << 20, 3000};
    struct error error;
    cr_assert_eq(
        stream_dial(pair.loop, pair.address, &raw_events, &raw, &limits, &raw.stream, &error),
        STATUS_OK, "%s", error.text);
    TURN_UNTIL(pair.loop, raw.opened);
    uint8_t frame[WIRE_PREFIX_BYTES] = "BAT1";
    store_le16(frame + 4, WIRE_MAJOR);
    store_le32(frame + 8, 7); /* a challenge whose payload comes byte by byte */
    store_le32(frame + 12, 500);
    cr_assert_eq(stream_send(raw.stream, frame, sizeof frame), STATUS_OK);
    while (!raw.closed) {
        stream_send(raw.stream, "", 1);
        loop_run_once(pair.loop, 1);
    }
    /* A frame as large as the limit of friends is not waited for. */
    struct raw large = {0};
    cr_assert_eq(
        stream_dial(pair.loop, pair.address, &raw_events, &large, &limits, &large.stream, &error),
        STATUS_OK, "%s", error.text);
    TURN_UNTIL(pair.loop, large.opened);
    store_le32(frame + 12, 1 << 20);
    cr_assert_eq(stream_send(large.stream, frame, sizeof frame), STATUS_OK);
    TURN_UNTIL(pair.loop, large.closed);
    cr_expect_eq(server.refused, 1);
    cr_expect_eq(pair.accepted, 0);
    buffer_free(&raw.heard);
    buffer_free(&large.heard);
    pair_free(&pair);
}

static uint32_t closed_count(const struct raw *raws, uint32_t count)
{
    uint32_t closed = 0;
    for (uint32_t i = 0; i < count; i++)
        closed += raws[i].closed;
    return closed;
}

Test(link, strangers_in_a_crowd_end_with_the_listener)
{
    enum { CROWD = 100 };
    struct pair pair;
    struct gate_self server, client;
    pair_init(&pair);
    gates_init(&server, &client, "one secret of 16", "one secret of 16");
    pair.limits.gate = &server;
    pair_listen(&pair);
    static struct raw raws[CROWD];
    const struct stream_limits limits = {1 << 20, 64 << 20, 3000};
    struct error error;
    for (int i = 0; i < CROWD; i++)
        cr_assert_eq(stream_dial(pair.loop, pair.address, &raw_events, &raws[i], &limits,
                                 &raws[i].stream, &error),
                     STATUS_OK, "%s", error.text);
    TURN_UNTIL(pair.loop, closed_count(raws, CROWD) == CROWD - 64);
    link_listener_close(pair.listener);
    pair.listener = NULL;
    TURN_UNTIL(pair.loop, closed_count(raws, CROWD) == CROWD);
    cr_expect_eq(pair.accepted, 0);
    pair_free(&pair);
}
