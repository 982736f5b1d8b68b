/* One producer, one consumer and an interrupter over rings of several sizes: nothing is lost,
 * doubled, torn or out of order, and no sleep misses its wake-up. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/check.h"
#include "base/random.h"
#include "base/ring.h"
#include "tests/stress/rounds.h"

struct item {
    uint64_t number, copies[6]; /* larger than one store, so that a torn one shows */
};

struct job {
    struct ring *ring;
    uint64_t item_count;
    atomic_bool done;
};

static void *produce(void *arg)
{
    struct job *job = arg;
    struct random random;
    random_init(&random, job->item_count);
    for (uint64_t number = 0; number < job->item_count; number++) {
        struct item item = {.number = number};
        for (size_t i = 0; i < ARRAY_COUNT(item.copies); i++)
            item.copies[i] = number * 31 + i;
        while (ring_push(job->ring, &item) != STATUS_OK)
            sched_yield();
        if (random_below(&random, 64) == 0)
            sched_yield(); /* lets the consumer run dry and sleep */
    }
    return NULL;
}

static void *interrupt(void *arg)
{
    struct job *job = arg;
    while (!atomic_load(&job->done)) {
        ring_interrupt(job->ring);
        CHECK(ring_count(job->ring) <= 1024);
        sched_yield();
    }
    return NULL;
}

static void consume(struct job *job)
{
    for (uint64_t expected = 0; expected < job->item_count;) {
        struct item item;
        if (ring_pop(job->ring, &item) != STATUS_OK) {
            /* A lost wake-up would keep us here until the test's time is over. */
            ring_wait(job->ring, 3600000);
            continue;
        }
        CHECK(item.number == expected);
        for (size_t i = 0; i < ARRAY_COUNT(item.copies); i++)
            CHECK(item.copies[i] == expected * 31 + i);
        expected++;
    }
}

static void run(size_t capacity, uint64_t item_count, bool with_interrupts)
{
    struct job job = {.ring = ring_create(sizeof(struct item), capacity), .item_count = item_count};
    pthread_t producer, interrupter;
    CHECK(pthread_create(&producer, NULL, produce, &job) == 0);
    if (with_interrupts)
        CHECK(pthread_create(&interrupter, NULL, interrupt, &job) == 0);
    consume(&job);
    atomic_store(&job.done, true);
    CHECK(pthread_join(producer, NULL) == 0);
    if (with_interrupts)
        CHECK(pthread_join(interrupter, NULL) == 0);
    CHECK(ring_count(job.ring) == 0);
    ring_destroy(job.ring);
}

static void run_part(size_t capacity, uint64_t item_count, bool with_interrupts)
{
    struct stress_part part = stress_part(item_count);
    for (uint64_t count; (count = stress_next(&part, 10000)) > 0;)
        run(capacity, count, with_interrupts);
}

int main(void)
{
    static const size_t capacities[] = {1, 2, 16, 1024};
    const uint64_t item_count = stress_rounds(1000000);
    for (size_t i = 0; i < ARRAY_COUNT(capacities); i++) {
        run_part(capacities[i], capacities[i] < 16 ? item_count / 10 + 1 : item_count, false);
        run_part(capacities[i], item_count / 10 + 1, true);
        printf("ring of %zu: ok\n", capacities[i]);
    }
    return 0;
}
