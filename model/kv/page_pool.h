/* The fixed pool of KV pages: who holds which slot, and where its bytes lie.
 *
 * A page ("slot") is `page_tokens` tokens of one sequence in every layer of one KV group. Memory
 * order is [kv_group][layer][slot][K|V][kv_head][16-token block]; today there is one group. All
 * memory is allocated at creation.
 *
 * Rules of access, in five sentences. (1) A slot is free or has holders, who are counted; taking it
 * makes the first and raises its generation by one, and the last to let go frees it. (2) The bytes
 * are written only by a sole holder that is not the prefix index, on its own thread; a page that is
 * shared is never written, and any holder may read it. (3) A slot granted to a hand-off belongs to
 * the control thread until it is landed, or until its writer is known to have stopped. (4) A slot
 * pinned for sending is not written, and its holder does not let go, before the send has completed.
 * (5) At shutdown every slot is free; page_pool_destroy CHECKs it.
 *
 * Reserving, taking, holding and giving back are safe from the engine and the control thread: one
 * mutex, held for the few instructions that move slot numbers, never while bytes move. */
#ifndef BATON_MODEL_KV_PAGE_POOL_H
#define BATON_MODEL_KV_PAGE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"

struct page_pool;

/* What a page looks like; compared field by field when two nodes meet. */
struct kv_layout {
    uint32_t version; /* of this description */
    uint32_t layers, kv_heads, head_dim;
    uint32_t page_tokens;
    enum kv_dtype dtype;
    uint32_t layout_id; /* order inside a block, from the kernels */
    uint32_t window;    /* 0: full attention */
};

size_t kv_layout_strip_bytes(const struct kv_layout *layout); /* one page of one layer */
size_t kv_layout_page_bytes(const struct kv_layout *layout);  /* one page, all layers */
enum { KV_LAYOUT_VERSION = 1 };

enum status page_pool_create(struct backend *backend, const struct kv_layout *layout,
                             uint32_t slot_count, struct page_pool **out, struct error *error);
void page_pool_destroy(struct page_pool *pool);

const struct kv_layout *page_pool_layout(const struct page_pool *pool);
uint32_t page_pool_slot_count(const struct page_pool *pool);
uint32_t page_pool_free_count(const struct page_pool *pool); /* neither taken nor reserved */
/* The view of one layer for the kernels. */
struct kv_view page_pool_view(const struct page_pool *pool, uint32_t layer);
/* Host address of [layer][slot] for the network, NULL on a device without one. The pool's base and
 * size, for registration, are those of layer 0, slot 0 and layers * slots * strip bytes. */
void *page_pool_strip(const struct page_pool *pool, uint32_t layer, uint32_t slot);

/* Sets `count` slots aside without naming them; BUSY when so many are not free. */
enum status page_pool_reserve(struct page_pool *pool, uint32_t count);
/* Gives back a reservation, or the rest of one. */
void page_pool_unreserve(struct page_pool *pool, uint32_t count);
/* Names `count` slots out of a reservation, consecutive ones where the pool has such a run. */
void page_pool_take(struct page_pool *pool, uint32_t count, uint32_t *slots_out);
uint32_t page_pool_generation(const struct page_pool *pool, uint32_t slot);
/* One holder more for each slot; the caller is sure that it is held meanwhile. */
void page_pool_hold(struct page_pool *pool, const uint32_t *slots, uint32_t count);
/* Lets go of one hold of each slot; the last one returns it to the free list. Debug builds and
 * tests fill it with NaN first. */
void page_pool_free(struct page_pool *pool, const uint32_t *slots, uint32_t count);
uint32_t page_pool_hold_count(const struct page_pool *pool, uint32_t slot); /* 0: free */
/* Whether each slot has one holder and that is not the prefix index: whether it may be written. */
bool page_pool_is_sole(const struct page_pool *pool, const uint32_t *slots, uint32_t count);
/* Copies the bytes of a held page into one that may be written. */
void page_pool_copy(struct page_pool *pool, uint32_t from_slot, uint32_t to_slot);

/* ---- for the prefix index, which holds a page once ---- */

/* A page that only the index holds is idle: nobody misses it when it goes. */
void page_pool_keep(struct page_pool *pool, uint32_t slot);
void page_pool_unkeep(struct page_pool *pool, uint32_t slot);
bool page_pool_is_idle(const struct page_pool *pool, uint32_t slot);
uint32_t page_pool_idle_count(const struct page_pool *pool);

/* Tests: fill every freed page with NaN from now on. */
void page_pool_poison(struct page_pool *pool, bool on);

#endif
