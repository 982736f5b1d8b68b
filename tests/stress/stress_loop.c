/* Threads push work into rings and wake a loop, which answers by another ring; then threads stop
 * loops. Every piece of work is seen, though most signals fall into one another. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/check.h"
#include "base/loop.h"
#include "base/ring.h"
#include "tests/stress/rounds.h"

enum { THREADS = 3 };

struct client {
    struct loop *loop;
    struct ring *requests, *answers;
    struct loop_wake *wake;
    uint64_t count, served;
    atomic_int *running;
    pthread_t thread;
};

static void *ask(void *arg)
{
    struct client *client = arg;
    uint64_t answered = 0;
    for (uint64_t i = 0; i < client->count; i++) {
        while (ring_push(client->requests, &i) != STATUS_OK)
            sched_yield();
        loop_wake_signal(client->wake);
        uint64_t answer;
        /* Every hundredth question is waited for, so that the loop runs dry in between. */
        while (i % 100 == 99 ? answered <= i && ring_wait(client->answers, 3600000)
                             : ring_count(client->answers) > 0) {
            CHECK(ring_pop(client->answers, &answer) == STATUS_OK);
            CHECK(answer == answered);
            answered++;
        }
    }
    while (answered < client->count) {
        uint64_t answer;
        ring_wait(client->answers, 3600000);
        if (ring_pop(client->answers, &answer) == STATUS_OK)
            CHECK(answer == answered++);
    }
    if (atomic_fetch_sub(client->running, 1) == 1)
        loop_stop(client->loop);
    return NULL;
}

static void serve(void *arg)
{
    struct client *client = arg;
    uint64_t request;
    while (ring_pop(client->requests, &request) == STATUS_OK) {
        CHECK(request == client->served);
        client->served++;
        CHECK(ring_push(client->answers, &request) == STATUS_OK);
    }
}

static void serve_clients(uint64_t count)
{
    struct loop *loop = loop_create();
    struct client clients[THREADS];
    atomic_int running = THREADS;
    for (int i = 0; i < THREADS; i++) {
        clients[i] = (struct client){.loop = loop, .count = count, .running = &running};
        clients[i].requests = ring_create(sizeof(uint64_t), 64);
        clients[i].answers = ring_create(sizeof(uint64_t), 256);
        clients[i].wake = loop_wake_create(loop, serve, &clients[i]);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&clients[i].thread, NULL, ask, &clients[i]) == 0);
    loop_run(loop);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(clients[i].thread, NULL) == 0);
        CHECK(clients[i].served == count);
        loop_wake_destroy(clients[i].wake);
        ring_destroy(clients[i].requests);
        ring_destroy(clients[i].answers);
    }
    loop_destroy(loop);
}

static void *stop(void *arg)
{
    loop_stop(arg);
    return NULL;
}

static void stop_from_outside(uint64_t count)
{
    struct loop *loop = loop_create();
    for (uint64_t i = 0; i < count; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, stop, loop) == 0);
        loop_run(loop);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    loop_destroy(loop);
}

int main(void)
{
    struct stress_part part = stress_part(stress_rounds(300000));
    for (uint64_t count; (count = stress_next(&part, 10000)) > 0;)
        serve_clients(count);
    printf("wake-ups: ok\n");
    part = stress_part(stress_rounds(5000));
    for (uint64_t count; (count = stress_next(&part, 100)) > 0;)
        stop_from_outside(count);
    printf("stops: ok\n");
    return 0;
}
