/* The pool: one allocation, a bitmap of free slots, a count of reservations, holders of each. */
#include "model/kv/page_pool.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"

enum { WORD_BITS = 64 };

/* As two bf16 halves this is NaN twice, as one float it is NaN once. */
static const uint32_t poison_word = 0x7fc07fc0u;

struct page_pool {
    struct backend *backend;
    struct kv_layout layout;
    uint32_t slot_count;
    size_t strip_bytes;
    device_ptr memory; /* [layer][slot][strip_bytes] */
    uint8_t *host;     /* the same as the host sees it; NULL on a device without a view */
    uint32_t *poison_strip;
    void *copy_strip; /* [strip_bytes] on the way from page to page, without a host view */

    pthread_mutex_t mutex; /* guards what follows */
    uint64_t *free_words;  /* bit set: the slot is free */
    uint32_t word_count;
    uint32_t unnamed_count;  /* bits set in free_words: free or reserved */
    uint32_t reserved_count; /* of those, promised to somebody */
    uint32_t *generations;   /* [slot_count] */
    uint32_t *holds;         /* [slot_count] the prefix index's included */
    bool *kept;              /* [slot_count] the prefix index is one of the holders */
    uint32_t idle_count;     /* slots that it holds alone */
    bool poison;
};

static bool slot_is_free(const struct page_pool *pool, uint32_t slot)
{
    return (pool->free_words[slot / WORD_BITS] >> (slot % WORD_BITS) & 1) != 0;
}

static void pool_release(struct page_pool *pool)
{
    pool->backend->ops->release(pool->backend, pool->memory);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->poison_strip);
    free(pool->copy_strip);
    free(pool->holds);
    free(pool->kept);
    free(pool->free_words);
    free(pool->generations);
    free(pool);
}

static enum status pool_allocate(struct page_pool *pool, struct error *error)
{
    uint64_t bytes;
    if (!size_multiply(pool->strip_bytes, pool->layout.layers, &bytes) ||
        !size_multiply(bytes, pool->slot_count, &bytes) || bytes > SIZE_MAX / 2)
        return error_set(error, STATUS_LIMIT,
                         "a pool of %" PRIu32 " KV pages of %zu bytes in %" PRIu32
                         " layers is larger than any memory",
                         pool->slot_count, pool->strip_bytes, pool->layout.layers);
    TRY(pool->backend->ops->allocate(pool->backend, (size_t)bytes, &pool->memory, error));
    pool->host = pool->backend->ops->host_view(pool->backend, pool->memory);
    pool->word_count = (pool->slot_count + WORD_BITS - 1) / WORD_BITS;
    pool->free_words = calloc(pool->word_count, sizeof *pool->free_words);
    pool->generations = calloc(pool->slot_count, sizeof *pool->generations);
    pool->holds = calloc(pool->slot_count, sizeof *pool->holds);
    pool->kept = calloc(pool->slot_count, sizeof *pool->kept);
    pool->poison_strip = malloc(pool->strip_bytes);
    pool->copy_strip = malloc(pool->strip_bytes);
    if (pool->free_words == NULL || pool->generations == NULL || pool->holds == NULL ||
        pool->kept == NULL || pool->poison_strip == NULL || pool->copy_strip == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the table of %" PRIu32 " KV pages",
                         pool->slot_count);
    for (uint32_t slot = 0; slot < pool->slot_count; slot++)
        pool->free_words[slot / WORD_BITS] |= (uint64_t)1 << (slot % WORD_BITS);
    for (size_t i = 0; i < pool->strip_bytes / sizeof poison_word; i++)
        pool->poison_strip[i] = poison_word;
    pool->unnamed_count = pool->slot_count;
    return STATUS_OK;
}

enum status page_pool_create(struct backend *backend, const struct kv_layout *layout,
                             uint32_t slot_count, struct page_pool **out, struct error *error)
{
    if (slot_count == 0)
        return error_set(error, STATUS_INVALID, "a pool needs at least one KV page");
    if (layout->page_tokens == 0 || layout->page_tokens % KV_BLOCK_TOKENS != 0)
        return error_set(error, STATUS_INVALID,
                         "a page of %" PRIu32 " tokens is not a multiple of %d",
                         layout->page_tokens, KV_BLOCK_TOKENS);
    struct page_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for a pool of KV pages");
    pool->backend = backend;
    pool->layout = *layout;
    pool->slot_count = slot_count;
    pool->strip_bytes = kv_layout_strip_bytes(layout);
#ifdef BATON_DEBUG
    pool->poison = true;
#endif
    CHECK(pthread_mutex_init(&pool->mutex, NULL) == 0);
    const enum status status = pool_allocate(pool, error);
    if (status != STATUS_OK) {
        pool_release(pool);
        return status;
    }
    *out = pool;
    return STATUS_OK;
}

void page_pool_destroy(struct page_pool *pool)
{
    if (pool == NULL)
        return;
    CHECK(pool->reserved_count == 0);
    CHECK(pool->unnamed_count == pool->slot_count);
    pool_release(pool);
}

const struct kv_layout *page_pool_layout(const struct page_pool *pool)
{
    return &pool->layout;
}

uint32_t page_pool_slot_count(const struct page_pool *pool)
{
    return pool->slot_count;
}

static void pool_lock(const struct page_pool *pool)
{
    CHECK(pthread_mutex_lock((pthread_mutex_t *)&pool->mutex) == 0);
}

static void pool_unlock(const struct page_pool *pool)
{
    CHECK(pthread_mutex_unlock((pthread_mutex_t *)&pool->mutex) == 0);
}

uint32_t page_pool_free_count(const struct page_pool *pool)
{
    pool_lock(pool);
    const uint32_t count = pool->unnamed_count - pool->reserved_count;
    pool_unlock(pool);
    return count;
}

static size_t strip_offset(const struct page_pool *pool, uint32_t layer, uint32_t slot)
{
    CHECK(layer < pool->layout.layers && slot < pool->slot_count);
    return ((size_t)layer * pool->slot_count + slot) * pool->strip_bytes;
}

struct kv_view page_pool_view(const struct page_pool *pool, uint32_t layer)
{
    return (struct kv_view){
        .base = device_offset(pool->memory, strip_offset(pool, layer, 0)),
        .page_bytes = pool->strip_bytes,
        .page_tokens = pool->layout.page_tokens,
        .kv_heads = pool->layout.kv_heads,
        .head_dim = pool->layout.head_dim,
        .dtype = pool->layout.dtype,
    };
}

void *page_pool_strip(const struct page_pool *pool, uint32_t layer, uint32_t slot)
{
    const size_t offset = strip_offset(pool, layer, slot);
    return pool->host == NULL ? NULL : pool->host + offset;
}

enum status page_pool_reserve(struct page_pool *pool, uint32_t count)
{
    pool_lock(pool);
    const bool there = count <= pool->unnamed_count - pool->reserved_count;
    if (there)
        pool->reserved_count += count;
    pool_unlock(pool);
    return there ? STATUS_OK : STATUS_BUSY;
}

void page_pool_unreserve(struct page_pool *pool, uint32_t count)
{
    pool_lock(pool);
    CHECK(count <= pool->reserved_count);
    pool->reserved_count -= count;
    pool_unlock(pool);
}

/* First slot at or after `from` whose free bit is `wanted`, slot_count when there is none. */
static uint32_t next_slot(const struct page_pool *pool, uint32_t from, bool wanted)
{
    for (uint32_t slot = from; slot < pool->slot_count;) {
        const uint64_t word = pool->free_words[slot / WORD_BITS];
        const uint64_t left = (wanted ? word : ~word) >> (slot % WORD_BITS);
        if (left != 0) {
            const uint32_t found = slot + (uint32_t)__builtin_ctzll(left);
            return found < pool->slot_count ? found : pool->slot_count;
        }
        slot += WORD_BITS - slot % WORD_BITS;
    }
    return pool->slot_count;
}

/* Start of the first run of `count` free slots, slot_count when there is none so long. */
static uint32_t find_run(const struct page_pool *pool, uint32_t count)
{
    uint32_t start = next_slot(pool, 0, true);
    while (start < pool->slot_count) {
        const uint32_t end = next_slot(pool, start, false);
        if (end - start >= count)
            return start;
        start = next_slot(pool, end, true);
    }
    return pool->slot_count;
}

void page_pool_take(struct page_pool *pool, uint32_t count, uint32_t *slots_out)
{
    pool_lock(pool);
    CHECK(count <= pool->reserved_count);
    const uint32_t run = find_run(pool, count);
    /* Without a run that is long enough, the lowest free slots: pieces of runs in order. */
    uint32_t slot = run < pool->slot_count ? run : 0;
    for (uint32_t i = 0; i < count; i++, slot++) {
        slot = next_slot(pool, slot, true);
        CHECK(slot < pool->slot_count);
        pool->free_words[slot / WORD_BITS] &= ~((uint64_t)1 << (slot % WORD_BITS));
        pool->generations[slot]++;
        pool->holds[slot] = 1;
        slots_out[i] = slot;
    }
    pool->reserved_count -= count;
    pool->unnamed_count -= count;
    pool_unlock(pool);
}

uint32_t page_pool_generation(const struct page_pool *pool, uint32_t slot)
{
    CHECK(slot < pool->slot_count);
    pool_lock(pool);
    const uint32_t generation = pool->generations[slot];
    pool_unlock(pool);
    return generation;
}

/* The bytes of a slot that nobody else has. */
static void poison_slot(struct page_pool *pool, uint32_t slot)
{
    for (uint32_t layer = 0; layer < pool->layout.layers; layer++) {
        const size_t offset = strip_offset(pool, layer, slot);
        if (pool->host != NULL)
            memcpy(pool->host + offset, pool->poison_strip, pool->strip_bytes);
        else
            pool->backend->ops->upload(pool->backend, device_offset(pool->memory, offset),
                                       pool->poison_strip, pool->strip_bytes);
    }
}

static bool is_held(const struct page_pool *pool, uint32_t slot)
{
    return slot < pool->slot_count && pool->holds[slot] > 0 && !slot_is_free(pool, slot);
}

/* One hold less, mutex held; the last holder's page is filled with the mutex open: it is in
 * nobody's hands and not yet free. */
static void let_go(struct page_pool *pool, uint32_t slot)
{
    CHECK(is_held(pool, slot));
    pool->holds[slot]--;
    if (pool->holds[slot] > 0) {
        pool->idle_count += pool->kept[slot] && pool->holds[slot] == 1;
        return;
    }
    if (pool->poison) {
        pool_unlock(pool);
        poison_slot(pool, slot);
        pool_lock(pool);
    }
    pool->free_words[slot / WORD_BITS] |= (uint64_t)1 << (slot % WORD_BITS);
    pool->unnamed_count++;
}

void page_pool_hold(struct page_pool *pool, const uint32_t *slots, uint32_t count)
{
    pool_lock(pool);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(is_held(pool, slots[i]) && pool->holds[slots[i]] < UINT32_MAX);
        pool->idle_count -= pool->kept[slots[i]] && pool->holds[slots[i]] == 1;
        pool->holds[slots[i]]++;
    }
    pool_unlock(pool);
}

void page_pool_free(struct page_pool *pool, const uint32_t *slots, uint32_t count)
{
    pool_lock(pool);
    for (uint32_t i = 0; i < count; i++) {
        /* The index's own hold goes by page_pool_unkeep. */
        CHECK(is_held(pool, slots[i]) && pool->holds[slots[i]] > pool->kept[slots[i]]);
        let_go(pool, slots[i]);
    }
    pool_unlock(pool);
}

uint32_t page_pool_hold_count(const struct page_pool *pool, uint32_t slot)
{
    CHECK(slot < pool->slot_count);
    pool_lock(pool);
    const uint32_t count = pool->holds[slot];
    pool_unlock(pool);
    return count;
}

bool page_pool_is_sole(const struct page_pool *pool, const uint32_t *slots, uint32_t count)
{
    bool sole = true;
    pool_lock(pool);
    for (uint32_t i = 0; i < count && sole; i++)
        sole = is_held(pool, slots[i]) && pool->holds[slots[i]] == 1 && !pool->kept[slots[i]];
    pool_unlock(pool);
    return sole;
}

void page_pool_copy(struct page_pool *pool, uint32_t from_slot, uint32_t to_slot)
{
    CHECK(page_pool_hold_count(pool, from_slot) > 0 && page_pool_is_sole(pool, &to_slot, 1));
    const struct backend_ops *ops = pool->backend->ops;
    for (uint32_t layer = 0; layer < pool->layout.layers; layer++) {
        const size_t from = strip_offset(pool, layer, from_slot);
        const size_t to = strip_offset(pool, layer, to_slot);
        if (pool->host != NULL) {
            memcpy(pool->host + to, pool->host + from, pool->strip_bytes);
            continue;
        }
        ops->download(pool->backend, pool->copy_strip, device_offset(pool->memory, from),
                      pool->strip_bytes);
        ops->upload(pool->backend, device_offset(pool->memory, to), pool->copy_strip,
                    pool->strip_bytes);
    }
}

void page_pool_keep(struct page_pool *pool, uint32_t slot)
{
    pool_lock(pool);
    CHECK(is_held(pool, slot) && !pool->kept[slot]);
    pool->kept[slot] = true;
    pool->holds[slot]++;
    pool_unlock(pool);
}

void page_pool_unkeep(struct page_pool *pool, uint32_t slot)
{
    pool_lock(pool);
    CHECK(is_held(pool, slot) && pool->kept[slot]);
    pool->idle_count -= pool->holds[slot] == 1;
    pool->kept[slot] = false;
    let_go(pool, slot);
    pool_unlock(pool);
}

bool page_pool_is_idle(const struct page_pool *pool, uint32_t slot)
{
    CHECK(slot < pool->slot_count);
    pool_lock(pool);
    const bool idle = pool->kept[slot] && pool->holds[slot] == 1;
    pool_unlock(pool);
    return idle;
}

uint32_t page_pool_idle_count(const struct page_pool *pool)
{
    pool_lock(pool);
    const uint32_t count = pool->idle_count;
    pool_unlock(pool);
    return count;
}

void page_pool_poison(struct page_pool *pool, bool on)
{
    pool_lock(pool);
    pool->poison = on;
    pool_unlock(pool);
}
