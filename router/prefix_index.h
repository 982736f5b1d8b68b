/* Which worker holds which beginnings of prompts, as far as the router knows: workers tell of pages
 * that come into their prefix caches and go, and placement notes what it has just sent.
 *
 * A beginning is known by the chained hash of its last page, so it is one entry with the set of its
 * holders. Whoever holds a page holds all before it, more or less; therefore a prompt is matched by
 * halving: pages are looked at only where the holders on both sides differ. All of it is a hint: an
 * entry may be forgotten (the oldest one that was not looked at goes when there is no room), two
 * pages may share a hash, and a worker may have thrown a page away since.
 *
 * At most pages_max entries, and nothing is allocated after creation. One thread. */
#ifndef BATON_ROUTER_PREFIX_INDEX_H
#define BATON_ROUTER_PREFIX_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { PREFIX_HOLDERS_MAX = 256, PREFIX_NO_HOLDER = UINT32_MAX };

struct prefix_index;

/* The hashes of the full pages of a prompt, each with all before it: as workers compute them
 * (model/kv/prefix_tree.h). hashes_out: [count / page_tokens]; returns that number. */
uint32_t prefix_hashes(const int32_t *tokens, uint32_t count, uint32_t page_tokens, uint64_t salt,
                       uint64_t *hashes_out);

/* LIMIT when pages_max is 0, NO_MEMORY. */
enum status prefix_index_create(uint32_t pages_max, struct prefix_index **out, struct error *error);
void prefix_index_destroy(struct prefix_index *index); /* NULL is fine */
size_t prefix_index_bytes(uint32_t pages_max);
uint32_t prefix_index_count(const struct prefix_index *index); /* entries there now */

/* A number for somebody who holds pages; NO_HOLDER when all are taken. */
uint32_t prefix_index_join(struct prefix_index *index);
/* At once it holds nothing; its number is free again after so many calls of sweep that they have
 * seen every entry. */
void prefix_index_leave(struct prefix_index *index, uint32_t holder);
/* Takes those that left out of up to `count` entries. */
void prefix_index_sweep(struct prefix_index *index, uint32_t count);

/* The holder has told that the page came into its cache, or that it went. */
void prefix_index_add(struct prefix_index *index, uint32_t holder, uint64_t hash);
void prefix_index_remove(struct prefix_index *index, uint32_t holder, uint64_t hash);
/* The holder was sent what will bring the page into its cache; or that came to nothing, which says
 * nothing of a page that the holder has told of: it will not tell of that again. */
void prefix_index_expect(struct prefix_index *index, uint32_t holder, uint64_t hash);
void prefix_index_expect_not(struct prefix_index *index, uint32_t holder, uint64_t hash);

/* How many pages of the prompt each holder has, from its beginning. hashes: [count] as from
 * prefix_hashes; pages_out: [PREFIX_HOLDERS_MAX]. */
void prefix_index_match(struct prefix_index *index, const uint64_t *hashes, uint32_t count,
                        uint32_t *pages_out);
/* Entries looked at so far, in all calls. */
uint64_t prefix_index_steps(const struct prefix_index *index);

#endif
