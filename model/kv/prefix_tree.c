/* The tree: a node for each slot, hash chains over them, and a list by last use.
 *
 * Touching a node touches all before it, the first page last, so in the list a page is always
 * younger than those that lean on it: from the old end leaves come before their parents, and one
 * walk evicts a whole branch. */
#include "model/kv/prefix_tree.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { NONE = UINT32_MAX };

enum node_state { NODE_ABSENT, NODE_CLAIMED, NODE_READY };

struct node {
    uint64_t hash;
    uint64_t salt;
    uint32_t parent; /* NONE at a root */
    uint32_t child_count;
    uint32_t owner; /* while it is claimed */
    uint32_t chain; /* next of the same bucket */
    uint32_t older, younger;
    enum node_state state;
};

struct prefix_tree {
    struct page_pool *pool;
    prefix_hash hash;
    uint32_t slot_count, page_tokens;
    pthread_mutex_t mutex; /* guards what follows */
    struct node *nodes;    /* [slot_count] by slot */
    int32_t *tokens;       /* [slot_count][page_tokens] */
    uint32_t *buckets;     /* [bucket_count] */
    uint32_t bucket_count; /* a power of two */
    uint32_t oldest, youngest;
    uint32_t claimed_count;
    struct prefix_tree_counts counts;
    uint64_t *changes;     /* [change_room] by number modulo their count: the latest events */
    uint64_t change_count; /* since creation */
    uint32_t change_room;
};

/* ---- life ---- */

enum status prefix_tree_create(struct page_pool *pool, prefix_hash hash, struct prefix_tree **out,
                               struct error *error)
{
    struct prefix_tree *tree = calloc(1, sizeof *tree);
    if (tree == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for a prefix index");
    tree->pool = pool;
    tree->hash = hash != NULL ? hash : hash64;
    tree->slot_count = page_pool_slot_count(pool);
    tree->page_tokens = page_pool_layout(pool)->page_tokens;
    tree->bucket_count = 1;
    while (tree->bucket_count < tree->slot_count && tree->bucket_count <= UINT32_MAX / 2)
        tree->bucket_count *= 2;
    tree->nodes = calloc(tree->slot_count, sizeof *tree->nodes);
    tree->tokens = calloc((size_t)tree->slot_count * tree->page_tokens, sizeof *tree->tokens);
    tree->buckets = malloc(tree->bucket_count * sizeof *tree->buckets);
    tree->change_room = tree->slot_count;
    tree->changes = malloc(tree->change_room * sizeof *tree->changes);
    CHECK(pthread_mutex_init(&tree->mutex, NULL) == 0);
    tree->oldest = tree->youngest = NONE;
    if (tree->nodes == NULL || tree->tokens == NULL || tree->buckets == NULL ||
        tree->changes == NULL) {
        prefix_tree_destroy(tree);
        return error_set(error, STATUS_NO_MEMORY,
                         "no memory for a prefix index of %" PRIu32 " KV pages", tree->slot_count);
    }
    for (uint32_t i = 0; i < tree->bucket_count; i++)
        tree->buckets[i] = NONE;
    *out = tree;
    return STATUS_OK;
}

void prefix_tree_destroy(struct prefix_tree *tree)
{
    if (tree == NULL)
        return;
    CHECK(tree->claimed_count == 0);
    for (uint32_t slot = tree->oldest; slot != NONE; slot = tree->nodes[slot].younger)
        page_pool_unkeep(tree->pool, slot);
    pthread_mutex_destroy(&tree->mutex);
    free(tree->nodes);
    free(tree->tokens);
    free(tree->buckets);
    free(tree->changes);
    free(tree);
}

size_t prefix_tree_bytes(const struct prefix_tree *tree)
{
    return sizeof *tree + tree->bucket_count * sizeof *tree->buckets +
           tree->slot_count * (sizeof *tree->nodes + sizeof *tree->changes +
                               (size_t)tree->page_tokens * sizeof *tree->tokens);
}

static void tree_lock(struct prefix_tree *tree)
{
    CHECK(pthread_mutex_lock(&tree->mutex) == 0);
}

static void tree_unlock(struct prefix_tree *tree)
{
    CHECK(pthread_mutex_unlock(&tree->mutex) == 0);
}

/* ---- nodes ---- */

static int32_t *node_tokens(const struct prefix_tree *tree, uint32_t slot)
{
    return tree->tokens + (size_t)slot * tree->page_tokens;
}

/* Everything before the page is in the parent's hash, so equal pages of different beginnings lie in
 * different buckets. */
static uint64_t page_hash(const struct prefix_tree *tree, uint64_t salt, uint32_t parent,
                          const int32_t *tokens)
{
    const uint64_t seed = parent == NONE ? salt : tree->nodes[parent].hash;
    return tree->hash(tokens, tree->page_tokens * sizeof *tokens, seed);
}

static uint32_t *bucket_of(const struct prefix_tree *tree, uint64_t hash)
{
    return &tree->buckets[hash & (tree->bucket_count - 1)];
}

/* The page of these tokens after `parent`, NONE when it is not there. */
static uint32_t find_child(const struct prefix_tree *tree, uint64_t salt, uint32_t parent,
                           const int32_t *tokens)
{
    const uint64_t hash = page_hash(tree, salt, parent, tokens);
    for (uint32_t slot = *bucket_of(tree, hash); slot != NONE; slot = tree->nodes[slot].chain) {
        const struct node *node = &tree->nodes[slot];
        if (node->hash == hash && node->parent == parent && node->salt == salt &&
            memcmp(node_tokens(tree, slot), tokens, tree->page_tokens * sizeof *tokens) == 0)
            return slot;
    }
    return NONE;
}

static void list_remove(struct prefix_tree *tree, uint32_t slot)
{
    const struct node *node = &tree->nodes[slot];
    *(node->older == NONE ? &tree->oldest : &tree->nodes[node->older].younger) = node->younger;
    *(node->younger == NONE ? &tree->youngest : &tree->nodes[node->younger].older) = node->older;
}

static void list_append(struct prefix_tree *tree, uint32_t slot)
{
    struct node *node = &tree->nodes[slot];
    node->younger = NONE;
    node->older = tree->youngest;
    *(tree->youngest == NONE ? &tree->oldest : &tree->nodes[tree->youngest].younger) = slot;
    tree->youngest = slot;
}

static void touch_path(struct prefix_tree *tree, uint32_t slot)
{
    for (; slot != NONE; slot = tree->nodes[slot].parent) {
        list_remove(tree, slot);
        list_append(tree, slot);
    }
}

static void node_add(struct prefix_tree *tree, uint32_t slot, uint64_t salt, uint32_t parent,
                     const int32_t *tokens, uint32_t owner)
{
    CHECK(slot < tree->slot_count && tree->nodes[slot].state == NODE_ABSENT);
    const uint64_t hash = page_hash(tree, salt, parent, tokens);
    uint32_t *bucket = bucket_of(tree, hash);
    tree->nodes[slot] = (struct node){.hash = hash,
                                      .salt = salt,
                                      .parent = parent,
                                      .owner = owner,
                                      .chain = *bucket,
                                      .state = NODE_CLAIMED};
    *bucket = slot;
    memcpy(node_tokens(tree, slot), tokens, tree->page_tokens * sizeof *tokens);
    if (parent != NONE)
        tree->nodes[parent].child_count++;
    tree->claimed_count++;
}

static uint64_t event_of(const struct node *node, bool came)
{
    return came ? node->hash | 1 : node->hash & ~(uint64_t)1;
}

static void note_change(struct prefix_tree *tree, uint32_t slot, bool came)
{
    tree->changes[tree->change_count++ % tree->change_room] = event_of(&tree->nodes[slot], came);
}

/* From claimed to ready: the tree holds the page from here on. */
static void node_ready(struct prefix_tree *tree, uint32_t slot)
{
    struct node *node = &tree->nodes[slot];
    CHECK(node->parent == NONE || tree->nodes[node->parent].state == NODE_READY);
    page_pool_keep(tree->pool, slot);
    node->state = NODE_READY;
    node->owner = PREFIX_NOBODY;
    list_append(tree, slot);
    tree->claimed_count--;
    note_change(tree, slot, true);
    tree->counts.inserted++;
    tree->counts.pages++;
}

/* Takes a leaf out of the tree; the page stays as it is. */
static void node_remove(struct prefix_tree *tree, uint32_t slot)
{
    struct node *node = &tree->nodes[slot];
    CHECK(node->child_count == 0);
    uint32_t *link = bucket_of(tree, node->hash);
    while (*link != slot)
        link = &tree->nodes[*link].chain;
    *link = node->chain;
    if (node->parent != NONE)
        tree->nodes[node->parent].child_count--;
    node->state = NODE_ABSENT;
}

/* ---- finding ---- */

void prefix_tree_peek(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                      uint32_t count, struct prefix_match *out)
{
    *out = (struct prefix_match){.owner = PREFIX_NOBODY};
    uint32_t parent = NONE;
    tree_lock(tree);
    for (uint32_t page = 0; page < count / tree->page_tokens; page++) {
        parent = find_child(tree, salt, parent, tokens + (size_t)page * tree->page_tokens);
        if (parent == NONE)
            break;
        if (tree->nodes[parent].state == NODE_CLAIMED) {
            out->owner = tree->nodes[parent].owner;
            break;
        }
        out->page_count++;
        out->idle_count += page_pool_is_idle(tree->pool, parent);
    }
    tree_unlock(tree);
}

uint32_t prefix_tree_lookup(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                            uint32_t count, uint32_t *slots_out)
{
    uint32_t pages = 0, last = NONE;
    tree_lock(tree);
    for (; pages < count / tree->page_tokens; pages++) {
        const uint32_t slot =
            find_child(tree, salt, last, tokens + (size_t)pages * tree->page_tokens);
        if (slot == NONE || tree->nodes[slot].state != NODE_READY)
            break;
        slots_out[pages] = last = slot;
    }
    page_pool_hold(tree->pool, slots_out, pages);
    touch_path(tree, last);
    *(pages > 0 ? &tree->counts.hits : &tree->counts.misses) += 1;
    tree->counts.hit_tokens += (uint64_t)pages * tree->page_tokens;
    tree->counts.miss_tokens += count - (uint64_t)pages * tree->page_tokens;
    tree_unlock(tree);
    return pages;
}

/* ---- adding ---- */

uint32_t prefix_tree_insert(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                            uint32_t count, uint32_t *slots)
{
    uint32_t page = 0, last = NONE;
    tree_lock(tree);
    for (; page < count / tree->page_tokens; page++) {
        const int32_t *ids = tokens + (size_t)page * tree->page_tokens;
        const uint32_t old = find_child(tree, salt, last, ids);
        if (old != NONE && tree->nodes[old].state != NODE_READY)
            break;
        if (old == NONE) {
            node_add(tree, slots[page], salt, last, ids, PREFIX_NOBODY);
            node_ready(tree, slots[page]);
        } else if (old != slots[page]) {
            page_pool_hold(tree->pool, &old, 1);
            page_pool_free(tree->pool, &slots[page], 1);
            slots[page] = old;
        }
        last = slots[page];
    }
    touch_path(tree, last);
    tree_unlock(tree);
    return page;
}

uint32_t prefix_tree_claim(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                           uint32_t count, const uint32_t *slots, uint32_t owner)
{
    uint32_t page = 0, last = NONE;
    tree_lock(tree);
    for (; page < count / tree->page_tokens; page++) {
        const int32_t *ids = tokens + (size_t)page * tree->page_tokens;
        const uint32_t old = find_child(tree, salt, last, ids);
        if (old != NONE && old != slots[page])
            break;
        if (old == NONE)
            node_add(tree, slots[page], salt, last, ids, owner);
        last = slots[page];
    }
    tree_unlock(tree);
    return page;
}

void prefix_tree_finish(struct prefix_tree *tree, const uint32_t *slots, uint32_t count)
{
    uint32_t last = NONE;
    tree_lock(tree);
    for (uint32_t i = 0; i < count; i++) {
        if (tree->nodes[slots[i]].state != NODE_CLAIMED)
            continue;
        node_ready(tree, slots[i]);
        last = slots[i];
    }
    touch_path(tree, last);
    tree_unlock(tree);
}

void prefix_tree_withdraw(struct prefix_tree *tree, const uint32_t *slots, uint32_t count)
{
    tree_lock(tree);
    for (uint32_t i = count; i-- > 0;) {
        if (tree->nodes[slots[i]].state != NODE_CLAIMED)
            continue;
        node_remove(tree, slots[i]);
        tree->claimed_count--;
    }
    tree_unlock(tree);
}

/* ---- making room ---- */

static uint32_t evict_locked(struct prefix_tree *tree, uint32_t count)
{
    uint32_t freed = 0;
    for (uint32_t slot = tree->oldest; slot != NONE && freed < count;) {
        const uint32_t younger = tree->nodes[slot].younger;
        if (tree->nodes[slot].child_count == 0 && page_pool_is_idle(tree->pool, slot)) {
            node_remove(tree, slot);
            list_remove(tree, slot);
            page_pool_unkeep(tree->pool, slot);
            note_change(tree, slot, false);
            tree->counts.pages--;
            tree->counts.evicted++;
            freed++;
        }
        slot = younger;
    }
    return freed;
}

uint32_t prefix_tree_evict(struct prefix_tree *tree, uint32_t count)
{
    tree_lock(tree);
    const uint32_t freed = evict_locked(tree, count);
    tree_unlock(tree);
    return freed;
}

uint32_t prefix_tree_available(const struct prefix_tree *tree)
{
    return page_pool_free_count(tree->pool) + page_pool_idle_count(tree->pool);
}

enum status prefix_tree_reserve(struct prefix_tree *tree, uint32_t count)
{
    tree_lock(tree);
    enum status status = page_pool_reserve(tree->pool, count);
    /* The pool is also used without the tree, so what was made free may be gone again. */
    while (status != STATUS_OK && prefix_tree_available(tree) >= count) {
        const uint32_t free_count = page_pool_free_count(tree->pool);
        if (free_count < count && evict_locked(tree, count - free_count) == 0)
            break;
        status = page_pool_reserve(tree->pool, count);
    }
    tree_unlock(tree);
    return status;
}

void prefix_tree_count(struct prefix_tree *tree, struct prefix_tree_counts *out)
{
    tree_lock(tree);
    *out = tree->counts;
    tree_unlock(tree);
}

/* ---- news ---- */

/* In one call the changes go before what was there: a slot that is told of as it is now has had all
 * its changes up to now, and later ones come later. */
uint32_t prefix_tree_news(struct prefix_tree *tree, struct prefix_reader *reader, uint32_t capacity,
                          uint64_t *events_out, bool *anew_out)
{
    uint32_t count = 0;
    tree_lock(tree);
    *anew_out = !reader->begun || tree->change_count - reader->change > tree->change_room;
    if (*anew_out)
        *reader = (struct prefix_reader){.begun = true, .change = tree->change_count};
    while (reader->change < tree->change_count && count < capacity)
        events_out[count++] = tree->changes[reader->change++ % tree->change_room];
    for (; reader->slot < tree->slot_count && count < capacity; reader->slot++) {
        if (tree->nodes[reader->slot].state == NODE_READY)
            events_out[count++] = event_of(&tree->nodes[reader->slot], true);
    }
    tree_unlock(tree);
    return count;
}
