/* One suite, every mover. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/mover_fixture.h"
#include "transfer/mover_internal.h"

#define EVERY_MOVER(name)   EVERY_MOVER_OF(mover, name)
#define PROCESS_MOVER(name) PROCESS_MOVER_OF(mover, name)

struct pair {
    struct loop *loop;
    struct mover_end server, client;
    struct mover_peer *peer; /* the client's */
    char address[128];
};

static void pair_open(struct pair *pair, const struct mover_ops *ops)
{
    pair->loop = loop_create();
    mover_end_create(&pair->server, pair->loop, ops, "127.0.0.1:0");
    mover_end_create(&pair->client, pair->loop, ops, NULL);
    snprintf(pair->address, sizeof pair->address, "%s", ops->address(pair->server.mover));
    pair->peer = mover_end_dial(&pair->client, pair->address);
}

static void pair_close(struct pair *pair)
{
    mover_end_destroy(&pair->client);
    mover_end_destroy(&pair->server);
    loop_destroy(pair->loop);
}

static enum status send_data(struct mover_end *end, struct mover_peer *peer, void *data,
                             size_t bytes, uint32_t place, uint64_t cookie)
{
    const struct mover_data_header header = {
        .handoff = UINT64_C(0x1122334455667788),
        .layer = 3,
        .layer_count = 2,
        .first_page = 4,
        .page_count = 5,
        .first_slot = place,
        .generation = 6,
        .grant = 8,
        .flags = 7,
        .checksum = UINT64_C(0x8877665544332211),
        .payload_bytes = bytes,
    };
    const struct mover_segment segment = {data, bytes};
    return end->ops->send_data(peer, &header, &segment, 1, cookie);
}

EVERY_MOVER(messages_pass_both_ways_in_order)
{
    static const size_t sizes[] = {1, 16, 100, 4096, 8191, 8192, 20000, 65536, 100000};
    struct pair pair;
    uint8_t *frame = malloc(100001);
    pair_open(&pair, ops);
    pair.server.echo = true;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(frame, (int)i + 1, sizes[i]);
        bytes += sizes[i];
        cr_assert_eq(ops->send_message(pair.peer, frame, sizes[i]), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.client.messages == i + 1);
        cr_assert_eq(pair.server.last_first_byte, i + 1);
        cr_assert_eq(pair.client.last_last_byte, i + 1);
    }
    cr_assert_eq(pair.client.message_bytes, bytes);
    for (uint32_t i = 0; i < 500; i++) {
        frame[0] = (uint8_t)i;
        cr_assert_eq(ops->send_message(pair.peer, frame, 1), STATUS_OK);
    }
    TURN_UNTIL(pair.loop, pair.client.messages == 509);
    cr_assert_eq(pair.client.last_first_byte, (uint8_t)499);
    cr_assert_eq(ops->send_message(pair.peer, frame, 100001), STATUS_LIMIT);
    free(frame);
    pair_close(&pair);
}

EVERY_MOVER(the_accepting_side_may_speak_first)
{
    struct pair pair;
    pair_open(&pair, ops);
    TURN_UNTIL(pair.loop, pair.server.peer_count == 1);
    cr_assert_eq(ops->send_message(pair.server.peers[0], "hello", 5), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.client.messages == 1);
    cr_assert_eq(pair.client.last_last_byte, 'o');
    pair_close(&pair);
}

EVERY_MOVER(data_lands_in_place_whatever_its_size)
{
    static const size_t sizes[] = {1,      7,      63,      64,      4096,          8185,   8186,
                                   20553,  20554,  65535,   65536,   262143,        262144, 262145,
                                   524288, 777777, 1 << 20, 3 << 20, (4 << 20) - 1, 4 << 20};
    struct pair pair;
    uint8_t *source = malloc(4 << 20);
    pair_open(&pair, ops);
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t place = 64 + 8 * i;
        pattern_fill(source, sizes[i], i);
        memset(pair.server.memory, 0xee, ENDS_MEMORY_BYTES);
        cr_assert_eq(send_data(&pair.client, pair.peer, source, sizes[i], place, i), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.client.sent == i + 1 && pair.server.data_done == i + 1);
        cr_assert_eq(pair.client.last_cookie, i);
        cr_assert_eq(pair.client.sent_ok, i + 1);
        cr_assert_eq(pair.server.data_ok, i + 1);
        const struct mover_data_header *header = &pair.server.last_header;
        cr_assert(header->handoff == UINT64_C(0x1122334455667788) && header->layer == 3 &&
                  header->layer_count == 2 && header->grant == 8 && header->first_page == 4 &&
                  header->page_count == 5 && header->generation == 6 && header->flags == 7 &&
                  header->checksum == UINT64_C(0x8877665544332211) &&
                  header->payload_bytes == sizes[i]);
        cr_assert(pattern_matches(pair.server.memory + place, sizes[i], i), "%zu bytes", sizes[i]);
        cr_assert_eq(pair.server.memory[place - 1], 0xee);
        cr_assert_eq(pair.server.memory[place + sizes[i]], 0xee);
    }
    free(source);
    pair_close(&pair);
}

/* Gathered from pieces at one end, scattered to others at the other end, by every path of a mover.
 */
EVERY_MOVER(data_in_pieces_lands_in_pieces)
{
    static const uint32_t pieces[][2] = {{1, 3}, {2, 1}, {7, 5}, {64, 1}, {1, 64}, {64, 64}};
    static const size_t sizes[] = {64, 5000, 65536, 400000, 1 << 20};
    struct pair pair;
    struct mover_segment from[MOVER_SEGMENTS_MAX], to[MOVER_SEGMENTS_MAX];
    uint8_t *whole = malloc(1 << 20);
    uint8_t *source = calloc(1, (1 << 20) + 64 * ENDS_GAP_BYTES);
    uint32_t sent = 0;
    pair_open(&pair, ops);
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pattern_fill(whole, sizes[i], i);
        for (uint32_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            const struct mover_data_header header = {.first_slot = 8, .payload_bytes = sizes[i]};
            const struct mover_segment all = {whole, sizes[i]};
            const uint32_t count = mover_end_cut(source, sizes[i], pieces[p][0], from);
            mover_segments_copy(from, count, &all, 1);
            pair.server.pieces = pieces[p][1];
            memset(pair.server.memory, 0xee, (1 << 20) + 65 * ENDS_GAP_BYTES);
            cr_assert_eq(ops->send_data(pair.peer, &header, from, count, sent & 63), STATUS_OK);
            sent++;
            pair.client.cookies_seen = 0;
            TURN_UNTIL(pair.loop, pair.client.sent_ok == sent && pair.server.data_ok == sent);
            uint8_t *at = pair.server.memory + 8;
            mover_end_cut(at, sizes[i], pieces[p][1], to);
            for (uint32_t t = 0, done = 0; t < pieces[p][1]; t++) {
                const uint8_t *after = (const uint8_t *)to[t].data + to[t].bytes;
                cr_assert(memcmp(to[t].data, whole + done, to[t].bytes) == 0,
                          "%zu bytes from %u pieces: piece %u of %u", sizes[i], count, t,
                          pieces[p][1]);
                cr_assert_eq(*after, 0xee);
                done += (uint32_t)to[t].bytes;
            }
        }
    }
    free(whole);
    free(source);
    pair_close(&pair);
}

EVERY_MOVER(refused_data_lands_nowhere)
{
    static const size_t sizes[] = {64, 65536, 1 << 20};
    struct pair pair;
    uint8_t *source = malloc(1 << 20);
    memset(source, 0x55, 1 << 20);
    pair_open(&pair, ops);
    for (uint32_t i = 0; i < 3; i++) {
        pair.server.refuse = true;
        cr_assert_eq(send_data(&pair.client, pair.peer, source, sizes[i], 0, 2 * i), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.server.data == 2 * i + 1 && pair.client.sent == 2 * i + 1);
        for (size_t b = 0; b < sizes[i]; b++)
            cr_assert_eq(pair.server.memory[b], 0);
        cr_assert_eq(pair.server.data_done, i);
        pair.server.refuse = false;
        cr_assert_eq(send_data(&pair.client, pair.peer, source, sizes[i], 0, 2 * i + 1), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.server.data_ok == i + 1 && pair.client.sent == 2 * i + 2);
        memset(pair.server.memory, 0, sizes[i]);
    }
    cr_assert_eq(pair.client.closed + pair.server.closed, 0u);
    free(source);
    pair_close(&pair);
}

EVERY_MOVER(too_many_sends_are_told_to_wait)
{
    struct pair pair;
    const size_t bytes = 300000;
    uint8_t *source = malloc(bytes);
    memset(source, 1, bytes);
    pair_open(&pair, ops);
    uint32_t posted = 0;
    uint32_t waits = 0;
    while (posted < 60) {
        const enum status status =
            send_data(&pair.client, pair.peer, source, bytes, (uint32_t)(posted * bytes), posted);
        if (status == STATUS_OK) {
            posted++;
            cr_assert(posted - pair.client.sent <= ENDS_SENDS_MAX);
            continue;
        }
        cr_assert_eq(status, STATUS_AGAIN);
        cr_assert_eq(posted - pair.client.sent, (uint32_t)ENDS_SENDS_MAX);
        waits++;
        const uint32_t sent = pair.client.sent;
        TURN_UNTIL(pair.loop, pair.client.sent > sent);
    }
    TURN_UNTIL(pair.loop, pair.client.sent == 60 && pair.server.data_ok == 60);
    cr_assert_gt(waits, 0u);
    cr_assert_eq(pair.client.cookies_seen, (UINT64_C(1) << 60) - 1);
    cr_assert_eq(send_data(&pair.client, pair.peer, source, (4 << 20) + 1, 0, 61), STATUS_LIMIT);
    free(source);
    pair_close(&pair);
}

/* Both sides settle their accounts, whoever closes and whatever was on its way. */
static void close_midway(const struct mover_ops *ops, bool by_sender, size_t bytes)
{
    struct pair pair;
    uint8_t *source = calloc(1, bytes);
    pair_open(&pair, ops);
    cr_assert_eq(ops->send_message(pair.peer, "x", 1), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.messages == 1);
    for (uint32_t i = 0; i < ENDS_SENDS_MAX; i++)
        cr_assert_eq(send_data(&pair.client, pair.peer, source, bytes, (uint32_t)(i * bytes), i),
                     STATUS_OK);
    struct mover_end *closer = by_sender ? &pair.client : &pair.server;
    struct mover_end *other = by_sender ? &pair.server : &pair.client;
    if (!by_sender)
        TURN_UNTIL(pair.loop, pair.server.data >= 2);
    struct mover_peer *peer = closer->peers[0];
    closer->peers[0] = NULL;
    ops->peer_close(peer);
    TURN_UNTIL(pair.loop, pair.client.sent == ENDS_SENDS_MAX && other->closed == 1 &&
                              pair.server.data_done == pair.server.data);
    turn_for(pair.loop, 50);
    cr_assert_eq(closer->closed, 0u);
    cr_assert_eq(pair.client.cookies_seen, (UINT64_C(1) << ENDS_SENDS_MAX) - 1);
    free(source);
    pair_close(&pair);
}

EVERY_MOVER(closing_midway_completes_everything)
{
    static const size_t sizes[] = {1000, 100000, 2 << 20};
    for (int i = 0; i < 3; i++) {
        close_midway(ops, true, sizes[i]);
        close_midway(ops, false, sizes[i]);
    }
}

EVERY_MOVER(closing_inside_on_data_is_fine)
{
    static const size_t sizes[] = {1000, 100000, 2 << 20};
    for (int i = 0; i < 3; i++) {
        struct pair pair;
        uint8_t *source = calloc(1, sizes[i]);
        pair_open(&pair, ops);
        pair.server.close_on_data = true;
        for (uint32_t s = 0; s < 4; s++)
            cr_assert_eq(
                send_data(&pair.client, pair.peer, source, sizes[i], (uint32_t)(s * sizes[i]), s),
                STATUS_OK);
        TURN_UNTIL(pair.loop, pair.client.closed == 1);
        cr_assert_eq(pair.client.sent, 4u);
        cr_assert_eq(pair.server.data, 1u);
        TURN_UNTIL(pair.loop, pair.server.data_done == 1);
        free(source);
        pair_close(&pair);
    }
}

EVERY_MOVER(a_closed_peer_takes_nothing)
{
    struct pair pair;
    uint8_t byte = 1;
    pair_open(&pair, ops);
    TURN_UNTIL(pair.loop, pair.server.peer_count == 1);
    struct mover_peer *peer = pair.server.peers[0];
    pair.server.peers[0] = NULL;
    ops->peer_close(peer);
    uint32_t posted = 0;
    while (pair.client.closed == 0) { /* the peer is there until it was told to be gone */
        const enum status status = send_data(&pair.client, pair.peer, &byte, 1, 0, posted & 63);
        cr_assert(status == STATUS_OK || status == STATUS_AGAIN || status == STATUS_CLOSED);
        posted += status == STATUS_OK;
        loop_run_once(pair.loop, 1);
        pair.client.cookies_seen = 0;
    }
    cr_assert_eq(pair.client.sent, posted);
    cr_assert_eq(pair.server.messages + pair.server.data, 0u);
    pair_close(&pair);
}

EVERY_MOVER(dialling_nobody_is_told)
{
    struct pair pair;
    pair_open(&pair, ops);
    TURN_UNTIL(pair.loop, pair.server.peer_count == 1);
    uint8_t *source = calloc(1, 1000);
    struct mover_peer *nobody = mover_end_dial(&pair.client, "127.0.0.1:1");
    ops->send_message(nobody, "x", 1);
    const enum status status = send_data(&pair.client, nobody, source, 1000, 0, 0);
    TURN_UNTIL(pair.loop, pair.client.closed == 1);
    cr_assert_eq(pair.client.sent, status == STATUS_OK ? 1u : 0u);
    cr_assert_eq(pair.client.sent_ok, 0u);
    cr_assert_lt((int)pair.client.close_status, 0);
    struct error error;
    cr_assert_lt((int)ops->dial(pair.client.mover, "nonsense", &nobody, &error), 0);
    cr_assert(strstr(error.text, "nonsense"), "%s", error.text);
    free(source);
    pair_close(&pair);
}

EVERY_MOVER(many_peers_stay_apart)
{
    struct pair pair;
    struct mover_peer *peers[30];
    uint8_t *source = malloc(30 * 10000);
    pair_open(&pair, ops);
    peers[0] = pair.peer;
    for (uint32_t i = 1; i < 30; i++)
        peers[i] = mover_end_dial(&pair.client, pair.address);
    TURN_UNTIL(pair.loop, pair.server.peer_count == 30);
    for (uint32_t i = 0; i < 30; i++) {
        pattern_fill(source + 10000 * i, 10000, i);
        while (send_data(&pair.client, peers[i], source + 10000 * i, 10000, 10000 * i, i) ==
               STATUS_AGAIN)
            loop_run_once(pair.loop, 1);
    }
    TURN_UNTIL(pair.loop, pair.server.data_ok == 30 && pair.client.sent_ok == 30);
    for (uint32_t i = 0; i < 30; i++)
        cr_assert(pattern_matches(pair.server.memory + 10000 * i, 10000, i));
    /* One goes; the others do not notice. */
    pair.client.peers[7] = NULL;
    ops->peer_close(peers[7]);
    TURN_UNTIL(pair.loop, pair.server.closed == 1);
    for (uint32_t i = 0; i < 30; i++)
        if (i != 7)
            cr_assert_eq(ops->send_message(peers[i], "x", 1), STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.messages == 29);
    cr_assert_eq(pair.client.closed, 0u);
    free(source);
    pair_close(&pair);
}

EVERY_MOVER(a_listener_may_come_back_on_its_port)
{
    struct pair pair;
    pair_open(&pair, ops);
    for (uint32_t i = 1; i <= 3; i++) {
        cr_assert_eq(ops->send_message(pair.peer, "x", 1), STATUS_OK);
        TURN_UNTIL(pair.loop, pair.server.messages == 1);
        mover_end_destroy(&pair.server);
        TURN_UNTIL(pair.loop, pair.client.closed == i);
        mover_end_create(&pair.server, pair.loop, ops, pair.address);
        cr_assert_str_eq(ops->address(pair.server.mover), pair.address);
        pair.peer = mover_end_dial(&pair.client, pair.address);
    }
    pair_close(&pair);
}

EVERY_MOVER(a_port_in_use_is_refused)
{
    struct pair pair;
    pair_open(&pair, ops);
    const struct mover_options options = {
        .listen = pair.address, .sends_max = 1, .tls = &every_mover_tls};
    const struct mover_events events = {0};
    struct mover *mover;
    struct error error;
    cr_assert_eq(ops->create(pair.loop, &options, &events, NULL, &mover, &error), STATUS_IO);
    cr_assert(strstr(error.text, pair.address), "%s", error.text);
    pair_close(&pair);
}

EVERY_MOVER(destroying_midway_is_quiet)
{
    struct pair pair;
    uint8_t *source = calloc(1, 2 << 20);
    pair_open(&pair, ops);
    for (uint32_t i = 0; i < 8; i++)
        cr_assert_eq(send_data(&pair.client, pair.peer, source, 2 << 20, i * (2u << 20), i),
                     STATUS_OK);
    TURN_UNTIL(pair.loop, pair.server.data >= 1);
    const uint32_t sent = pair.client.sent;
    ops->destroy(pair.client.mover);
    cr_assert_eq(pair.client.sent, sent);
    TURN_UNTIL(pair.loop, pair.server.closed == 1);
    cr_assert_eq(pair.server.data_done, pair.server.data);
    free(source);
    free(pair.client.memory);
    mover_end_destroy(&pair.server);
    loop_destroy(pair.loop);
}

Test(mover, names)
{
    const char *names = NULL;
    cr_assert_null(mover_by_name("carrier-pigeon", &names));
    cr_assert_not_null(strstr(names, "tls, loopback"));
    cr_assert_not_null(strstr(names, mover_default_name));
}

/* ---- death of a process; only a mover between processes can see one ---- */

/* Sends without end to the address it reads from `from`, until it is killed. */
static void run_sender(const struct mover_ops *ops, int from, size_t bytes)
{
    char address[128] = {0};
    struct mover_end end;
    uint8_t *source = calloc(1, bytes);
    if (read(from, address, sizeof address - 1) <= 0)
        _exit(1);
    struct loop *loop = loop_create();
    mover_end_create(&end, loop, ops, NULL);
    struct mover_peer *peer = mover_end_dial(&end, address);
    for (uint32_t posted = 0;;) {
        while (send_data(&end, peer, source, bytes, 0, posted & 63) == STATUS_OK)
            posted++;
        loop_run_once(loop, 5);
        end.cookies_seen = 0;
    }
}

static void kill_sender(const struct mover_ops *ops, size_t bytes)
{
    struct loop *loop;
    struct mover_end server;
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    const pid_t child = fork_mortal();
    if (child == 0)
        run_sender(ops, pipes[0], bytes);
    loop = loop_create();
    mover_end_create(&server, loop, ops, "127.0.0.1:0");
    const char *address = server.ops->address(server.mover);
    cr_assert_gt(write(pipes[1], address, strlen(address)), 0);
    TURN_UNTIL(loop, server.data_ok >= 20);
    cr_assert_eq(kill(child, SIGKILL), 0);
    TURN_UNTIL(loop, server.closed == 1);
    cr_assert_eq(server.data_done, server.data);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    /* The survivor still works. */
    struct mover_end client;
    mover_end_create(&client, loop, server.ops, NULL);
    struct mover_peer *peer = mover_end_dial(&client, address);
    cr_assert_eq(server.ops->send_message(peer, "x", 1), STATUS_OK);
    TURN_UNTIL(loop, server.messages == 1);
    mover_end_destroy(&client);
    mover_end_destroy(&server);
    loop_destroy(loop);
}

PROCESS_MOVER(a_sender_is_killed_sending_small_data)
{
    kill_sender(ops, 100000);
}

PROCESS_MOVER(a_sender_is_killed_sending_large_data)
{
    kill_sender(ops, 1 << 20);
}

static void run_receiver(const struct mover_ops *ops, int to)
{
    struct mover_end end;
    struct loop *loop = loop_create();
    mover_end_create(&end, loop, ops, "127.0.0.1:0");
    const char *address = end.ops->address(end.mover);
    if (write(to, address, strlen(address)) <= 0)
        _exit(1);
    for (;;)
        loop_run_once(loop, 5);
}

PROCESS_MOVER(a_receiver_is_killed)
{
    int pipes[2];
    char address[128] = {0};
    struct mover_end client;
    cr_assert_eq(pipe(pipes), 0);
    const pid_t child = fork_mortal();
    if (child == 0)
        run_receiver(ops, pipes[1]);
    cr_assert_gt(read(pipes[0], address, sizeof address - 1), 0);
    struct loop *loop = loop_create();
    mover_end_create(&client, loop, ops, NULL);
    struct mover_peer *peer = mover_end_dial(&client, address);
    uint8_t *source = calloc(1, 1 << 20);
    uint32_t posted = 0;
    while (client.sent_ok < 20) {
        while (send_data(&client, peer, source, 1 << 20, 0, posted & 63) == STATUS_OK)
            posted++;
        loop_run_once(loop, 5);
        client.cookies_seen = 0;
    }
    cr_assert_eq(kill(child, SIGKILL), 0);
    TURN_UNTIL(loop, client.closed == 1);
    cr_assert_eq(client.sent, posted);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    free(source);
    mover_end_destroy(&client);
    loop_destroy(loop);
}
