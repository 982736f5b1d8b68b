/* `tail` counts pushes and `head` pops; both only grow and wrap, their difference is the fill. Each
 * side keeps a copy of the other's index on its own cache line and looks at the real one only when
 * the copy says full or empty. */
#include "base/ring.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/futex_internal.h"

enum { CACHE_LINE = 64 };

struct ring {
    /* Written by the producer. */
    _Alignas(CACHE_LINE) _Atomic size_t tail;
    size_t head_copy;
    /* Written by the consumer. */
    _Alignas(CACHE_LINE) _Atomic size_t head;
    size_t tail_copy;
    _Atomic uint32_t sleeping; /* the consumer is about to sleep on `bell`, or does */
    /* Written by whoever wakes the consumer. */
    _Alignas(CACHE_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t interrupted;
    /* Fixed. */
    _Alignas(CACHE_LINE) size_t mask;
    size_t item_bytes;
    unsigned char *items;
};

struct ring *ring_create(size_t item_bytes, size_t capacity)
{
    CHECK(item_bytes > 0 && capacity > 0 && capacity <= (size_t)1 << 32);
    size_t slots = 1;
    while (slots < capacity)
        slots *= 2;
    uint64_t bytes;
    CHECK(size_multiply(item_bytes, slots, &bytes));
    struct ring *ring = aligned_alloc(CACHE_LINE, sizeof *ring);
    CHECK(ring != NULL);
    *ring = (struct ring){.mask = slots - 1, .item_bytes = item_bytes, .items = malloc(bytes)};
    CHECK(ring->items != NULL);
    return ring;
}

void ring_destroy(struct ring *ring)
{
    if (!ring)
        return;
    free(ring->items);
    free(ring);
}

static unsigned char *item_at(struct ring *ring, size_t index)
{
    return ring->items + (index & ring->mask) * ring->item_bytes;
}

static void ring_the_bell(struct ring *ring)
{
    atomic_fetch_add(&ring->bell, 1);
    futex_wake_all(&ring->bell);
}

enum status ring_push(struct ring *ring, const void *item)
{
    const size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_copy > ring->mask) {
        ring->head_copy = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_copy > ring->mask)
            return STATUS_AGAIN;
    }
    memcpy(item_at(ring, tail), item, ring->item_bytes);
    /* Sequentially consistent with ring_wait: either this sees the sleeper, or it sees the item. */
    atomic_store(&ring->tail, tail + 1);
    if (atomic_load(&ring->sleeping))
        ring_the_bell(ring);
    return STATUS_OK;
}

/* Consumer: is there an item? */
static bool has_item(struct ring *ring, size_t head)
{
    if (ring->tail_copy == head)
        ring->tail_copy = atomic_load(&ring->tail);
    return ring->tail_copy != head;
}

enum status ring_pop(struct ring *ring, void *item_out)
{
    const size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (!has_item(ring, head))
        return STATUS_AGAIN;
    memcpy(item_out, item_at(ring, head), ring->item_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return STATUS_OK;
}

bool ring_wait(struct ring *ring, uint32_t timeout_ms)
{
    const size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (has_item(ring, head))
        return true;
    const struct clock *clock = clock_monotonic();
    const uint64_t deadline_ns = clock_now_ns(clock) + (uint64_t)timeout_ms * NS_PER_MS;
    bool found = false;
    for (;;) {
        const uint32_t seen = atomic_load(&ring->bell);
        atomic_store(&ring->sleeping, 1);
        found = has_item(ring, head);
        if (found || atomic_exchange(&ring->interrupted, 0))
            break;
        const uint64_t now_ns = clock_now_ns(clock);
        if (now_ns >= deadline_ns)
            break;
        const uint64_t left_ns = deadline_ns - now_ns;
        const struct timespec timeout = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                                         .tv_nsec = (long)(left_ns % NS_PER_S)};
        futex_wait(&ring->bell, seen, &timeout);
    }
    atomic_store(&ring->sleeping, 0);
    return found;
}

void ring_interrupt(struct ring *ring)
{
    atomic_store(&ring->interrupted, 1);
    if (atomic_load(&ring->sleeping))
        ring_the_bell(ring);
}

size_t ring_count(const struct ring *ring)
{
    /* head first: read the other way round, pops in between could make the difference negative. */
    const size_t head = atomic_load(&ring->head);
    const size_t count = atomic_load(&ring->tail) - head;
    return count <= ring->mask + 1 ? count : ring->mask + 1;
}
