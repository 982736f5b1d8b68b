/* The loopback mover with its ends on two threads: data lands whole or not at all, every send ends
 * once, whoever closes in the middle. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/loop.h"
#include "base/random.h"
#include "tests/stress/rounds.h"
#include "transfer/mover.h"

enum { SLOTS = 8, SLOT_BYTES = 4096, SENDS_MAX = 4 };

struct end {
    const struct mover_ops *ops;
    struct loop *loop;
    struct mover *mover;
    struct mover_peer *peer;
    struct random random;
    uint8_t memory[SLOTS][SLOT_BYTES];
    bool busy[SLOTS];
    uint64_t sends, sent_ok, sent_failed, landed, closes;
};

static atomic_bool over;
static char address[128];
static pthread_barrier_t ready;

static void on_peer_accepted(void *arg, struct mover_peer *peer)
{
    ((struct end *)arg)->peer = peer;
}

static void on_peer_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct end *end = arg;
    if (end->peer == peer)
        end->peer = NULL;
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    const uint8_t *at = frame;
    for (size_t i = 1; i < bytes; i++)
        CHECK(at[i] == at[0]);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    struct end *end = arg;
    if (random_below(&end->random, 50) == 0 && end->peer == peer) {
        end->peer = NULL;
        end->closes++;
        end->ops->peer_close(peer);
    }
    if (random_below(&end->random, 10) == 0)
        return 0;
    segments[0] = (struct mover_segment){end->memory[header->first_slot], 1000};
    segments[1] = (struct mover_segment){end->memory[header->first_slot] + 1000, SLOT_BYTES - 1000};
    return 2;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
    struct end *end = arg;
    if (status != STATUS_OK)
        return;
    end->landed++;
    for (size_t i = 0; i < header->payload_bytes; i++)
        CHECK(end->memory[header->first_slot][i] == (uint8_t)header->handoff);
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    struct end *end = arg;
    CHECK(end->busy[cookie]);
    end->busy[cookie] = false;
    end->sent_ok += status == STATUS_OK;
    end->sent_failed += status != STATUS_OK;
    memset(end->memory[cookie], 0xdd, SLOT_BYTES); /* nobody reads it any more */
}

static void end_create(struct end *end, const char *listen, uint64_t seed)
{
    static const struct mover_events events = {on_peer_accepted, on_peer_closed, on_message,
                                               on_data,          on_data_done,   on_sent};
    const struct mover_options options = {.listen = listen,
                                          .sends_max = SENDS_MAX,
                                          .message_bytes_max = 1000,
                                          .data_bytes_max = SLOT_BYTES};
    *end = (struct end){.ops = &mover_loopback_ops, .loop = loop_create()};
    random_init(&end->random, seed);
    CHECK(end->ops->create(end->loop, &options, &events, end, &end->mover, NULL) == STATUS_OK);
}

static void end_destroy(struct end *end)
{
    end->ops->destroy(end->mover);
    loop_destroy(end->loop);
}

static void *serve(void *arg)
{
    struct end *end = arg;
    end_create(end, "127.0.0.1:0", 1);
    snprintf(address, sizeof address, "%s", end->ops->address(end->mover));
    pthread_barrier_wait(&ready);
    while (!atomic_load(&over))
        loop_run_once(end->loop, 1);
    end_destroy(end);
    return NULL;
}

static void send_some(struct end *end)
{
    for (uint64_t slot = 0; slot < SLOTS && end->peer; slot++) {
        if (end->busy[slot])
            continue;
        const struct mover_data_header header = {
            .handoff = end->sends, .first_slot = (uint32_t)slot, .payload_bytes = SLOT_BYTES};
        memset(end->memory[slot], (int)(uint8_t)end->sends, SLOT_BYTES);
        const struct mover_segment segment = {end->memory[slot], SLOT_BYTES};
        const enum status status = end->ops->send_data(end->peer, &header, &segment, 1, slot);
        end->busy[slot] = status == STATUS_OK;
        end->sends += status == STATUS_OK;
    }
    uint8_t message[100];
    memset(message, (int)(uint8_t)end->sends, sizeof message);
    if (end->peer)
        end->ops->send_message(end->peer, message, sizeof message);
}

int main(void)
{
    static struct end server, client;
    const uint64_t sends = stress_rounds(20000);
    pthread_t thread;
    CHECK(pthread_barrier_init(&ready, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, serve, &server) == 0);
    pthread_barrier_wait(&ready);
    end_create(&client, NULL, 2);
    while (client.sends < sends) {
        if (!client.peer)
            CHECK(client.ops->dial(client.mover, address, &client.peer, NULL) == STATUS_OK);
        send_some(&client);
        loop_run_once(client.loop, 1);
        if (client.peer && random_below(&client.random, 100) == 0) {
            struct mover_peer *peer = client.peer;
            client.peer = NULL;
            client.closes++;
            client.ops->peer_close(peer);
        }
    }
    while (client.sent_ok + client.sent_failed < client.sends)
        loop_run_once(client.loop, 1);
    end_destroy(&client);
    atomic_store(&over, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(server.landed <= client.sent_ok && server.landed > sends / 4);
    CHECK(client.sent_failed > 0 && client.closes > 0 && server.closes > 0);
    printf("%llu sends, %llu landed, %llu broken off\n", (unsigned long long)client.sends,
           (unsigned long long)server.landed, (unsigned long long)client.sent_failed);
    return 0;
}
