/* What only the TLS mover promises: nobody takes part who did not prove who it is. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stream.h"
#include "tests/transfer/every_mover.h"
#include "tests/transfer/mover_fixture.h"

struct end {
    struct mover *mover;
    struct mover_peer *peer;
    uint32_t accepted, closed, messages;
    enum status status;
};

static void on_accepted(void *arg, struct mover_peer *peer)
{
    struct end *end = arg;
    end->accepted++;
    end->peer = peer;
}

static void on_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct end *end = arg;
    end->closed++;
    end->status = status;
    end->peer = NULL;
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    ((struct end *)arg)->messages++;
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    return 0;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
}

static enum status end_create(struct end *end, struct loop *loop, const struct tls_identity *tls,
                              const char *listen, struct error *error)
{
    static const struct mover_events events = {on_accepted, on_closed,    on_message,
                                               on_data,     on_data_done, on_sent};
    const struct mover_options options = {.listen = listen,
                                          .connect_ms = 500,
                                          .sends_max = 4,
                                          .message_bytes_max = 1000,
                                          .data_bytes_max = 100000,
                                          .tls = tls};
    *end = (struct end){0};
    log_init("test", LOG_LEVEL_ERROR);
    return mover_by_name("tls", NULL)->create(loop, &options, &events, end, &end->mover, error);
}

struct two {
    struct loop *loop;
    struct end server, client;
};

static void two_open(struct two *two, const struct tls_identity *server,
                     const struct tls_identity *client)
{
    const struct mover_ops *ops = mover_by_name("tls", NULL);
    struct error error = {.text = ""};
    two->loop = loop_create();
    cr_assert_eq(end_create(&two->server, two->loop, server, "127.0.0.1:0", &error), STATUS_OK,
                 "%s", error.text);
    cr_assert_eq(end_create(&two->client, two->loop, client, NULL, &error), STATUS_OK, "%s",
                 error.text);
    cr_assert_eq(
        ops->dial(two->client.mover, ops->address(two->server.mover), &two->client.peer, &error),
        STATUS_OK, "%s", error.text);
    cr_assert_eq(ops->send_message(two->client.peer, "hello", 5), STATUS_OK);
}

static void two_close(struct two *two)
{
    const struct mover_ops *ops = mover_by_name("tls", NULL);
    ops->destroy(two->client.mover);
    ops->destroy(two->server.mover);
    loop_destroy(two->loop);
}

static void expect_strangers(const struct tls_identity *server, const struct tls_identity *client)
{
    struct two two;
    two_open(&two, server, client);
    TURN_UNTIL(two.loop, two.client.closed == 1);
    turn_for(two.loop, 50);
    cr_expect_eq(two.client.status, STATUS_MISMATCH);
    cr_expect_eq(two.server.messages, 0);
    two_close(&two);
}

Test(mover_tls, another_key_is_refused)
{
    static const uint8_t other[TLS_KEY_BYTES] = {9};
    const struct tls_identity stranger = {.key = other};
    struct two two;
    two_open(&two, &every_mover_tls, &stranger);
    TURN_UNTIL(two.loop, two.client.closed == 1);
    cr_expect_eq(two.client.status, STATUS_MISMATCH);
    cr_expect_eq(two.server.accepted, 0);
    two_close(&two);
}

Test(mover_tls, without_an_identity_it_does_not_begin)
{
    struct loop *loop = loop_create();
    struct end end;
    struct error error;
    const struct tls_identity half = {.cert_file = "a", .key_file = "b"};
    cr_expect_eq(end_create(&end, loop, NULL, NULL, &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "secret"), "%s", error.text);
    cr_expect_eq(end_create(&end, loop, &half, NULL, &error), STATUS_INVALID);
    const struct tls_identity absent = {
        .cert_file = "/nowhere/cert", .key_file = "/nowhere/key", .ca_file = "/nowhere/ca"};
    cr_expect_eq(end_create(&end, loop, &absent, NULL, &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "/nowhere/cert"), "%s", error.text);
    loop_destroy(loop);
}

/* ---- strangers that speak no TLS ---- */

struct raw {
    struct stream *stream;
    uint32_t opened, closed;
};

static void raw_open(void *arg)
{
    ((struct raw *)arg)->opened++;
}

static size_t raw_data(void *arg, const void *data, size_t bytes)
{
    return bytes;
}

static void raw_close(void *arg, enum status status, const char *text)
{
    ((struct raw *)arg)->closed++;
}

Test(mover_tls, whoever_speaks_no_tls_or_nothing_is_gone_soon)
{
    static const struct stream_events events = {raw_open, raw_data, raw_close};
    const struct stream_limits limits = {1 << 16, 1 << 16, 3000};
    const struct mover_ops *ops = mover_by_name("tls", NULL);
    struct loop *loop = loop_create();
    struct end server;
    struct error error;
    cr_assert_eq(end_create(&server, loop, &every_mover_tls, "127.0.0.1:0", &error), STATUS_OK);
    struct raw raws[3] = {0};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(stream_dial(loop, ops->address(server.mover), &events, &raws[i], &limits,
                                 &raws[i].stream, &error),
                     STATUS_OK);
    TURN_UNTIL(loop, raws[0].opened && raws[1].opened && raws[2].opened);
    cr_assert_eq(stream_send(raws[0].stream, "GET / HTTP/1.1\r\n\r\n", 18), STATUS_OK);
    cr_assert_eq(stream_send(raws[1].stream, "\x16\x03\x01\x02\x00", 5), STATUS_OK);
    TURN_UNTIL(loop, raws[0].closed && raws[1].closed && raws[2].closed);
    cr_expect_eq(server.accepted, 0);
    ops->destroy(server.mover);
    loop_destroy(loop);
}

/* ---- certificates ---- */

static char folder[64];

static bool shell(const char *format, const char *name, const char *authority)
{
    char command[1024];
    snprintf(command, sizeof command, format, folder, name, authority);
    return system(command) == 0;
}

/* An authority; a certificate of NAME by AUTHORITY. False without the openssl command. */
static bool make_files(void)
{
    snprintf(folder, sizeof folder, "/tmp/baton-tls-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    static const char authority[] =
        "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-keyout %s.key -out %s.pem -subj /CN=authority -days 2 2>/dev/null";
    static const char node[] =
        "cd %1$s && openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "
        "%2$s.key -out %2$s.csr -subj /CN=node 2>/dev/null && openssl x509 -req -in %2$s.csr -CA "
        "%3$s.pem -CAkey %3$s.key -CAcreateserial -out %2$s.pem -days 2 2>/dev/null";
    return shell(authority, "ours", "ours") && shell(authority, "theirs", "theirs") &&
           shell(node, "a", "ours") && shell(node, "b", "ours") && shell(node, "c", "theirs");
}

static struct tls_identity identity(const char *name, const char *authority)
{
    static char paths[16][160];
    static int used;
    char *cert = paths[used++ % 16], *key = paths[used++ % 16], *ca = paths[used++ % 16];
    snprintf(cert, 160, "%s/%s.pem", folder, name);
    snprintf(key, 160, "%s/%s.key", folder, name);
    snprintf(ca, 160, "%s/%s.pem", folder, authority);
    return (struct tls_identity){.cert_file = cert, .key_file = key, .ca_file = ca};
}

Test(mover_tls, certificates_of_one_authority_meet_and_others_do_not)
{
    if (!make_files())
        cr_skip_test("the openssl command is not there to make certificates with");
    const struct tls_identity a = identity("a", "ours"), b = identity("b", "ours");
    const struct tls_identity c = identity("c", "theirs"), liar = identity("c", "ours");
    struct two two;
    two_open(&two, &a, &b);
    TURN_UNTIL(two.loop, two.server.messages == 1);
    cr_expect_eq(two.client.closed, 0);
    two_close(&two);
    expect_strangers(&a, &c);
    expect_strangers(&a, &liar); /* it believes us, we do not believe it */
    expect_strangers(&liar, &a);
    expect_strangers(&a, &every_mover_tls);
    expect_strangers(&every_mover_tls, &a);
    struct error error;
    struct tls_identity mixed = a;
    mixed.key_file = b.key_file;
    struct end end;
    struct loop *loop = loop_create();
    cr_expect_eq(end_create(&end, loop, &mixed, NULL, &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "b.key"), "%s", error.text);
    loop_destroy(loop);
    cr_expect(shell("rm -rf %s", "", ""));
}
