#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/stream.h"

/* One end of a connection and what happened to it. */
struct end {
    struct stream *stream;
    struct buffer got;
    size_t take_most; /* on_data takes at most this much, 0: everything */
    size_t offered;   /* most bytes on_data has seen at once */
    int opens, datas, closes;
    bool close_in_open, close_in_data, echo, take_nothing;
    enum status status;
    char text[ERROR_TEXT_BYTES];
};

static struct loop *loop;
static struct stream_listener *listener;
static struct end dialled, accepted;
static struct stream_limits limits;
static char address[64];
static bool attach_in_accept, close_in_accept, close_listener_in_accept;
static int accepts;

static void on_open(void *arg)
{
    struct end *end = arg;
    end->opens++;
    if (end->close_in_open) {
        stream_close(end->stream);
        end->stream = NULL;
    }
}

static size_t on_data(void *arg, const void *data, size_t bytes)
{
    struct end *end = arg;
    end->datas++;
    end->offered = bytes > end->offered ? bytes : end->offered;
    if (end->take_nothing)
        return 0;
    const size_t taken = end->take_most && bytes > end->take_most ? end->take_most : bytes;
    if (end->close_in_data) {
        stream_close(end->stream);
        end->stream = NULL;
    }
    buffer_add(&end->got, data, taken);
    if (end->echo)
        CHECK(stream_send(end->stream, data, taken) == STATUS_OK);
    return taken;
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct end *end = arg;
    end->closes++;
    end->status = status;
    snprintf(end->text, sizeof end->text, "%s", text);
    CHECK(stream_send(end->stream, "x", 1) == STATUS_CLOSED);
    end->stream = NULL;
}

static const struct stream_events events = {on_open, on_data, on_close};

static void on_accept(void *arg, struct stream *stream)
{
    (void)arg;
    accepts++;
    if (close_listener_in_accept) {
        stream_listener_close(listener);
        listener = NULL;
    }
    if (close_in_accept) {
        stream_close(stream);
        return;
    }
    if (!attach_in_accept)
        return;
    accepted.stream = stream;
    stream_attach(stream, &events, &accepted);
}

static void set_up(void)
{
    loop = loop_create();
    limits = (struct stream_limits){
        .input_bytes = 1 << 20, .output_bytes = 1 << 20, .connect_ms = 10000};
    attach_in_accept = true;
}

static void listen_here(void)
{
    struct error error;
    cr_assert_eq(stream_listen(loop, "127.0.0.1:0", on_accept, NULL, &limits, &listener, &error),
                 STATUS_OK, "%s", error.text);
    snprintf(address, sizeof address, "127.0.0.1:%u", stream_listener_port(listener));
}

static void dial(void)
{
    struct error error;
    cr_assert_eq(stream_dial(loop, address, &events, &dialled, &limits, &dialled.stream, &error),
                 STATUS_OK, "%s", error.text);
    cr_assert_eq(dialled.opens, 0, "events begin after stream_dial");
}

/* Turns the loop until the condition holds; the deadline is only there to end a failing test. */
#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        const uint64_t deadline_ns_ = loop_now_ns(loop) + 100 * (uint64_t)NS_PER_S;                \
        while (!(condition)) {                                                                     \
            cr_assert_lt(loop_now_ns(loop), deadline_ns_, "never: " #condition);                   \
            loop_run_once(loop, 100);                                                              \
        }                                                                                          \
    } while (0)

static void connect_both(void)
{
    listen_here();
    dial();
    RUN_UNTIL(dialled.opens == 1 && accepted.stream);
}

/* Nothing may be left: loop_destroy checks that all is given back. */
static void tear_down(void)
{
    stream_close(dialled.stream);
    stream_close(accepted.stream);
    stream_listener_close(listener);
    buffer_free(&dialled.got);
    buffer_free(&accepted.got);
    loop_destroy(loop);
}

TestSuite(stream, .init = set_up, .fini = tear_down, .timeout = 60);

Test(stream, bytes_go_both_ways)
{
    connect_both();
    accepted.echo = true;
    cr_assert_eq(strncmp(stream_peer(accepted.stream), "127.0.0.1:", 10), 0);
    cr_assert_str_eq(stream_peer(dialled.stream), address);
    for (int i = 0; i < 50; i++) {
        cr_assert_eq(stream_send(dialled.stream, "ping", 4), STATUS_OK);
        RUN_UNTIL(dialled.got.size == (size_t)(i + 1) * 4);
    }
    cr_assert_eq(strncmp(dialled.got.data, "pingping", 8), 0);
}

Test(stream, what_is_sent_while_dialling_is_delivered_after_opening)
{
    listen_here();
    dial();
    cr_assert_eq(stream_send(dialled.stream, "early ", 6), STATUS_OK);
    cr_assert_eq(stream_send(dialled.stream, "bird", 4), STATUS_OK);
    cr_assert_eq(stream_unsent(dialled.stream), 10);
    RUN_UNTIL(accepted.got.size == 10);
    cr_assert_str_eq(accepted.got.data, "early bird");
    cr_assert_eq(stream_unsent(dialled.stream), 0);
}

Test(stream, names_are_resolved_and_small_messages_are_not_held_back)
{
    listen_here();
    snprintf(address, sizeof address, "localhost:%u", stream_listener_port(listener));
    dial();
    RUN_UNTIL(dialled.opens == 1 && accepted.stream);
    /* The only sockets of this process with a peer are the two ends. */
    int checked = 0;
    for (int fd = 3; fd < 64; fd++) {
        struct sockaddr_storage peer = {0};
        socklen_t peer_bytes = sizeof peer;
        int on = 0;
        socklen_t on_bytes = sizeof on;
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 ||
            peer.ss_family == AF_UNIX)
            continue;
        if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &on_bytes) != 0)
            continue;
        cr_assert(on);
        checked++;
    }
    cr_assert_geq(checked, 2);
}

Test(stream, what_was_not_taken_comes_again_with_more_behind)
{
    connect_both();
    accepted.take_most = 3;
    stream_send(dialled.stream, "abcdef", 6);
    RUN_UNTIL(accepted.datas == 1);
    loop_run_once(loop, 10);
    cr_assert_eq(accepted.datas, 1); /* not before there is more */
    stream_send(dialled.stream, "gh", 2);
    RUN_UNTIL(accepted.datas == 2);
    cr_assert_eq(accepted.offered, 6);
    cr_assert_str_eq(accepted.got.data, "abcdef");
}

Test(stream, output_is_bounded_and_a_refused_message_leaves_nothing)
{
    connect_both();
    static char block[64 * 1024];
    memset(block, 'b', sizeof block);
    size_t sent = 0;
    /* Without turning the loop, the peer reads nothing: the kernel's buffers fill, then ours. */
    enum status status;
    while ((status = stream_send(dialled.stream, block, sizeof block)) == STATUS_OK)
        sent += sizeof block;
    cr_assert_eq(status, STATUS_LIMIT);
    const size_t unsent = stream_unsent(dialled.stream);
    cr_assert(unsent > limits.output_bytes - sizeof block && unsent <= limits.output_bytes);
    /* What still fits is taken, one byte more is not. */
    const size_t room = limits.output_bytes - unsent;
    cr_assert_eq(stream_send(dialled.stream, block, room + 1), STATUS_LIMIT);
    cr_assert_eq(stream_unsent(dialled.stream), unsent);
    cr_assert_eq(stream_send(dialled.stream, block, room), STATUS_OK);
    sent += room;
    cr_assert_eq(stream_send(dialled.stream, block, 1), STATUS_LIMIT);
    RUN_UNTIL(accepted.got.size == sent);
    cr_assert_eq(stream_unsent(dialled.stream), 0);
    cr_assert_eq(stream_send(dialled.stream, block, 1), STATUS_OK);
}

Test(stream, a_message_over_the_bound_is_refused_even_on_an_idle_stream)
{
    limits.output_bytes = 100;
    connect_both();
    static const char text[101];
    cr_assert_eq(stream_send(dialled.stream, text, 101), STATUS_LIMIT);
    cr_assert_eq(stream_send(dialled.stream, text, 100), STATUS_OK);
    RUN_UNTIL(accepted.got.size == 100);
}

Test(stream, much_data_arrives_in_order)
{
    connect_both();
    enum { TOTAL = 8 << 20 };
    uint32_t next = 0;
    static uint32_t block[4096];
    while (accepted.got.size < TOTAL) {
        while (next < TOTAL / 4) {
            for (uint32_t i = 0; i < 4096; i++)
                block[i] = next + i;
            if (stream_send(dialled.stream, block, sizeof block) != STATUS_OK)
                break;
            next += 4096;
        }
        const size_t before = accepted.got.size;
        RUN_UNTIL(accepted.got.size > before);
    }
    for (uint32_t i = 0; i < TOTAL / 4; i++)
        cr_assert_eq(load_le32(accepted.got.data + (size_t)i * 4), i);
}

Test(stream, input_over_the_limit_closes_the_stream)
{
    limits.input_bytes = 100;
    connect_both();
    accepted.take_nothing = true;
    static const char text[400];
    stream_send(dialled.stream, text, sizeof text);
    RUN_UNTIL(accepted.closes == 1);
    cr_assert_eq(accepted.status, STATUS_LIMIT);
    cr_assert_not_null(strstr(accepted.text, "limit of 100 bytes"), "%s", accepted.text);
    cr_assert_leq(accepted.offered, 100);
    RUN_UNTIL(dialled.closes == 1);
}

Test(stream, messages_of_the_input_limit_pass)
{
    limits.input_bytes = 100;
    connect_both();
    static const char text[1000];
    stream_send(dialled.stream, text, sizeof text);
    RUN_UNTIL(accepted.got.size == sizeof text);
    cr_assert_eq(accepted.closes, 0);
}

Test(stream, a_close_is_seen_once_after_the_data)
{
    connect_both();
    stream_send(dialled.stream, "last words", 10);
    stream_close(dialled.stream);
    dialled.stream = NULL;
    RUN_UNTIL(accepted.closes == 1);
    cr_assert_str_eq(accepted.got.data, "last words");
    cr_assert_eq(accepted.status, STATUS_CLOSED);
    cr_assert_not_null(strstr(accepted.text, "closed the connection"));
    loop_run_once(loop, 10);
    cr_assert_eq(accepted.closes, 1);
    cr_assert_eq(dialled.closes, 0, "no callback after stream_close");
}

/* The peer has sent what was never read; the goodbye must arrive all the same. */
Test(stream, the_last_message_is_not_lost_to_unread_input)
{
    connect_both();
    static char block[32 * 1024];
    stream_send(dialled.stream, block, sizeof block);
    stream_send(accepted.stream, "bad frame", 9);
    stream_close(accepted.stream);
    accepted.stream = NULL;
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_str_eq(dialled.got.data, "bad frame");
}

/* Sending fails before the peer's last words are read; they are delivered before on_close. */
Test(stream, a_failed_send_still_delivers_what_the_peer_had_said)
{
    connect_both();
    stream_send(accepted.stream, "reason", 6);
    stream_close(accepted.stream);
    accepted.stream = NULL;
    /* The first send draws the reset, a later one reports it. */
    while (stream_send(dialled.stream, "x", 1) == STATUS_OK)
        continue;
    cr_assert_eq(stream_send(dialled.stream, "x", 1), STATUS_CLOSED);
    cr_assert_eq(dialled.closes, 0, "never from inside stream_send");
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(dialled.status, STATUS_CLOSED);
    cr_assert_str_eq(dialled.got.data, "reason");
}

static int raw_connect(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(stream_listener_port(listener)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

Test(stream, a_half_close_counts_as_closed)
{
    listen_here();
    const int fd = raw_connect();
    CHECK(send(fd, "abc", 3, 0) == 3);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    RUN_UNTIL(accepted.closes == 1);
    cr_assert_eq(accepted.status, STATUS_CLOSED);
    cr_assert_str_eq(accepted.got.data, "abc");
    char byte;
    cr_assert_eq(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

Test(stream, a_reset_counts_as_closed)
{
    listen_here();
    const int fd = raw_connect();
    RUN_UNTIL(accepted.stream);
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    close(fd);
    RUN_UNTIL(accepted.closes == 1);
    cr_assert_eq(accepted.status, STATUS_CLOSED);
}

Test(stream, a_refused_dial_is_told_by_on_close)
{
    listen_here();
    stream_listener_close(listener);
    listener = NULL;
    dial();
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(dialled.opens, 0);
    cr_assert_eq(dialled.status, STATUS_IO);
    cr_assert_not_null(strstr(dialled.text, address), "%s", dialled.text);
    cr_assert_not_null(strstr(dialled.text, "Connection refused"), "%s", dialled.text);
}

/* A listener with a full queue drops the handshake, as a dead host would. */
Test(stream, a_dial_without_an_answer_times_out)
{
    const int full = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t own_bytes = sizeof own;
    CHECK(bind(full, (struct sockaddr *)&own, sizeof own) == 0 && listen(full, 0) == 0);
    CHECK(getsockname(full, (struct sockaddr *)&own, &own_bytes) == 0);
    int fillers[4];
    for (size_t i = 0; i < ARRAY_COUNT(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        const int result = connect(fillers[i], (struct sockaddr *)&own, sizeof own);
        CHECK(result == 0 || errno == EINPROGRESS);
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(own.sin_port));
    limits.connect_ms = 50;
    dial();
    const uint64_t begin_ns = loop_now_ns(loop);
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(dialled.status, STATUS_TIMEOUT);
    cr_assert_not_null(strstr(dialled.text, "within 50 ms"), "%s", dialled.text);
    cr_assert_geq(loop_now_ns(loop) - begin_ns, 49 * (uint64_t)NS_PER_MS);
    for (size_t i = 0; i < ARRAY_COUNT(fillers); i++)
        close(fillers[i]);
    close(full);
}

Test(stream, callbacks_may_close_the_stream)
{
    listen_here();
    dialled.close_in_open = true;
    dial();
    RUN_UNTIL(dialled.opens == 1 && accepted.closes == 1);
    cr_assert_eq(dialled.closes, 0);
    dialled = (struct end){0};
    accepted = (struct end){.close_in_data = true};
    dial();
    RUN_UNTIL(dialled.opens == 1);
    stream_send(dialled.stream, "abc", 3);
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(accepted.datas, 1);
    cr_assert_eq(accepted.closes, 0);
}

Test(stream, a_stream_may_be_closed_while_dialling)
{
    listen_here();
    dial();
    stream_send(dialled.stream, "abc", 3);
    stream_close(dialled.stream);
    dialled.stream = NULL;
    loop_run_once(loop, 10);
    cr_assert_eq(dialled.opens + dialled.closes, 0);
    stream_close(NULL);
}

Test(stream, an_accepted_stream_nobody_wants_is_closed)
{
    listen_here();
    attach_in_accept = false;
    dial();
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(dialled.status, STATUS_CLOSED);
    dialled = (struct end){0};
    close_in_accept = true;
    dial();
    RUN_UNTIL(dialled.closes == 1);
    cr_assert_eq(accepts, 2);
}

Test(stream, a_listener_may_be_closed_while_it_accepts)
{
    listen_here();
    close_listener_in_accept = true;
    const int fd = raw_connect();
    RUN_UNTIL(accepted.stream);
    cr_assert_null(listener);
    close(fd);
}

Test(stream, running_out_of_descriptors_pauses_the_listener_only)
{
    listen_here();
    const int fd = raw_connect();
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = before.rlim_max};
    int holes[64], hole_count = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    while (hole_count < 64 && (holes[hole_count] = dup(fd)) >= 0)
        hole_count++;
    loop_run_once(loop, 50);
    loop_run_once(loop, 50);
    cr_assert_eq(accepts, 0);
    for (int i = 0; i < hole_count; i++)
        close(holes[i]);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    RUN_UNTIL(accepted.stream); /* once the pause is over */
    close(fd);
}

Test(stream, addresses_that_do_not_work_are_refused_with_a_sentence)
{
    static const struct {
        const char *address;
        bool listening;
        enum status status;
        const char *wanted;
    } cases[] = {
        {"127.0.0.1", false, STATUS_INVALID, "not of the form HOST:PORT"},
        {"127.0.0.1:", false, STATUS_INVALID, "no port number"},
        {"127.0.0.1:http", false, STATUS_INVALID, "no port number"},
        {"127.0.0.1:8x", true, STATUS_INVALID, "no port number"},
        {"127.0.0.1:65536", false, STATUS_INVALID, "limit of 65535"},
        {"127.0.0.1:0", false, STATUS_INVALID, "is 0"},
        {":80", false, STATUS_INVALID, "names no host"},
        {"::1:80", false, STATUS_INVALID, "[ADDRESS]:PORT"},
        {"[::1:80", true, STATUS_INVALID, "[ADDRESS]:PORT"},
        {"256.1.1.1:80", false, STATUS_IO, "cannot be resolved"},
        {"192.0.2.1:0", true, STATUS_IO, "cannot listen on 192.0.2.1:0: "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct error error = {.text = ""};
        const enum status status =
            cases[i].listening
                ? stream_listen(loop, cases[i].address, on_accept, NULL, &limits, &listener, &error)
                : stream_dial(loop, cases[i].address, &events, &dialled, &limits, &dialled.stream,
                              &error);
        cr_assert_eq(status, cases[i].status, "%s: %s", cases[i].address, error.text);
        cr_assert_not_null(strstr(error.text, cases[i].wanted), "%s", error.text);
    }
    cr_assert_null(listener);
    cr_assert_null(dialled.stream);
}

Test(stream, a_port_in_use_is_said)
{
    listen_here();
    struct stream_listener *second = NULL;
    struct error error;
    cr_assert_eq(stream_listen(loop, address, on_accept, NULL, &limits, &second, &error),
                 STATUS_IO);
    cr_assert_not_null(strstr(error.text, address), "%s", error.text);
    cr_assert_not_null(strstr(error.text, "Address already in use"), "%s", error.text);
    cr_assert_null(second);
}
