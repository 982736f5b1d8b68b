/* The prefix index: which pages hold which beginnings of sequences, so that a prompt which starts
 * like another one is not computed twice.
 *
 * The noun is a radix tree of full pages: a node is one page, known by its slot, below the page
 * that goes before it in a sequence. A node is found by a hash and confirmed by its parent and its
 * token ids: the hash is only an index. The roots are the tenants' salts; a pool's pages are of one
 * numerics profile, so a tree is too. The tree is a holder of its pages (page_pool_keep); pages
 * that it holds alone are idle, and go least recently used first, leaves before what they lean on,
 * when somebody needs room.
 *
 * A page that is being computed can be found too: its owner claims it, others see whom to wait for,
 * and finishing or withdrawing it ends the wait. Whoever holds a page of the tree also holds all
 * pages before it, therefore whatever is idle can go.
 *
 * Any thread: one mutex, taken before the pool's. At most slot_count nodes; nothing is allocated
 * after creation. */
#ifndef BATON_MODEL_KV_PREFIX_TREE_H
#define BATON_MODEL_KV_PREFIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/kv/page_pool.h"

struct prefix_tree;

enum { PREFIX_NOBODY = UINT32_MAX };
/* The root of all who are no tenant: nobody tells of tenants yet. */
enum { PREFIX_NO_SALT = 0 };

/* The hash of a page's tokens below a parent; NULL at creation for hash64 of base/hash.h. */
typedef uint64_t (*prefix_hash)(const void *data, size_t bytes, uint64_t seed);

/* The pool outlives the tree. */
enum status prefix_tree_create(struct page_pool *pool, prefix_hash hash, struct prefix_tree **out,
                               struct error *error);
/* Nothing may be claimed any more. Lets go of all pages. NULL is fine. */
void prefix_tree_destroy(struct prefix_tree *tree);
size_t prefix_tree_bytes(const struct prefix_tree *tree); /* memory beside the pages */

/* ---- finding ---- */

struct prefix_match {
    uint32_t page_count; /* full pages that are there, from the beginning */
    uint32_t idle_count; /* of those, held by the tree alone: holding them makes fewer available */
    uint32_t owner;      /* who computes the page after them, or PREFIX_NOBODY */
};

/* Looks only: nothing is held, counted or touched. tokens: [count]. */
void prefix_tree_peek(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                      uint32_t count, struct prefix_match *out);
/* Holds the longest beginning for the caller, who lets go by page_pool_free; returns its pages.
 * slots_out: [count / page_tokens]. */
uint32_t prefix_tree_lookup(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                            uint32_t count, uint32_t *slots_out);

/* ---- adding ---- */

/* Adds the full pages of a sequence that the caller holds and that are computed; nobody writes them
 * from now on. slots: [count / page_tokens], none of them being sent: where an equal page was there
 * already, the caller's is let go of and slots[i] becomes the old one, held by the caller instead.
 * So whoever shares the caller's pages does so after this, never before. Stops before a page that
 * somebody computes; returns the number of pages that are in the tree and the caller's. */
uint32_t prefix_tree_insert(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                            uint32_t count, uint32_t *slots);
/* Announces pages that `owner` holds and is about to compute, after those that lookup gave it:
 * slots as above, lookup's included. Stops at what is there and not the caller's. Returns the
 * number of pages up to where it stopped. */
uint32_t prefix_tree_claim(struct prefix_tree *tree, uint64_t salt, const int32_t *tokens,
                           uint32_t count, const uint32_t *slots, uint32_t owner);
/* Claimed pages among these, in order, are computed: they are in the tree now. */
void prefix_tree_finish(struct prefix_tree *tree, const uint32_t *slots, uint32_t count);
/* Claimed pages among these will not be computed; before their owner lets go of them. */
void prefix_tree_withdraw(struct prefix_tree *tree, const uint32_t *slots, uint32_t count);

/* ---- making room ---- */

/* Frees up to `count` idle pages; returns how many. */
uint32_t prefix_tree_evict(struct prefix_tree *tree, uint32_t count);
/* Pages that reserving can have: free ones and idle ones. */
uint32_t prefix_tree_available(const struct prefix_tree *tree);
/* page_pool_reserve, making room where it is short. BUSY, and nothing is evicted, when even that
 * would not be enough. */
enum status prefix_tree_reserve(struct prefix_tree *tree, uint32_t count);

struct prefix_tree_counts {
    uint64_t hits, misses; /* lookups that found a page, and that found none */
    uint64_t hit_tokens, miss_tokens;
    uint64_t inserted, evicted; /* pages */
    uint32_t pages;             /* in the tree now, computed */
};
void prefix_tree_count(struct prefix_tree *tree, struct prefix_tree_counts *out);

/* ---- news ---- */

/* A reader of what comes into the tree and goes: first all that is there, then the changes. Zeroed
 * it has seen nothing. One that falls behind by more than slot_count changes begins anew. */
struct prefix_reader {
    bool begun;
    uint64_t change; /* the next one to be told */
    uint32_t slot;   /* and the next one of what was there at the beginning */
};

/* What is new, at most `capacity` events: the hash of a page, with its lowest bit set when it came
 * and clear when it went. Two pages may share a hash, so a reader has no more than a hint.
 * *anew_out: what was told before is to be forgotten. */
uint32_t prefix_tree_news(struct prefix_tree *tree, struct prefix_reader *reader, uint32_t capacity,
                          uint64_t *events_out, bool *anew_out);

#endif
