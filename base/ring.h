/* Bounded single-producer single-consumer ring of fixed-size items; the only thing engine and
 * control threads share. Wake-ups are the caller's business (loop_wake, or ring_wait). */
#ifndef BATON_BASE_RING_H
#define BATON_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ring;

/* capacity: rounded up to a power of two. Aborts when out of memory (start-up only). */
struct ring *ring_create(size_t item_bytes, size_t capacity);
void ring_destroy(struct ring *ring);
/* Producer thread. Copies the item; STATUS_AGAIN when full. */
enum status ring_push(struct ring *ring, const void *item);
/* Consumer thread. STATUS_AGAIN when empty. */
enum status ring_pop(struct ring *ring, void *item_out);
/* Consumer thread: sleeps until an item is there or timeout_ms passed (true: there is one).
 * ring_push wakes it. */
bool ring_wait(struct ring *ring, uint32_t timeout_ms);
/* Any thread: wakes a ring_wait without an item. */
void ring_interrupt(struct ring *ring);
size_t ring_count(const struct ring *ring); /* a snapshot */

#endif
