/* Entries in one array, chained from buckets by their hash and in a list by age. */
#include "router/prefix_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum {
    NONE = UINT32_MAX,
    WORD_BITS = 64,
    SET_WORDS = PREFIX_HOLDERS_MAX / WORD_BITS,
    SECOND_CHANCES_MAX = 8, /* entries that were looked at and therefore stay, when one must go */
};

struct set {
    uint64_t words[SET_WORDS];
};

struct entry {
    uint64_t hash;
    struct set holders; /* none: the entry is free */
    struct set told;    /* of them, those that have said so themselves */
    uint32_t chain;     /* next of the bucket, or of the free ones */
    uint32_t older, younger;
    bool seen; /* since it was last the oldest */
};

struct prefix_index {
    struct entry *entries; /* [pages_max] */
    uint32_t *buckets;     /* [bucket_count] */
    uint32_t pages_max, bucket_count, count, unused, first_free;
    uint32_t oldest, youngest;
    struct set joined, live; /* numbers that are taken; of them, those that have not left */
    struct set sweeping;     /* those of them that left before the sweep was at its beginning */
    uint32_t sweep_at;
    uint64_t steps;
};

/* ---- sets ---- */

static bool set_has(const struct set *set, uint32_t holder)
{
    return (set->words[holder / WORD_BITS] >> holder % WORD_BITS & 1) != 0;
}

static void set_put(struct set *set, uint32_t holder, bool in)
{
    const uint64_t bit = (uint64_t)1 << holder % WORD_BITS;
    uint64_t *word = &set->words[holder / WORD_BITS];
    *word = in ? *word | bit : *word & ~bit;
}

static bool set_empty(const struct set *set)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < SET_WORDS; i++)
        any |= set->words[i];
    return any == 0;
}

static struct set set_and(const struct set *a, const struct set *b)
{
    struct set both;
    for (uint32_t i = 0; i < SET_WORDS; i++)
        both.words[i] = a->words[i] & b->words[i];
    return both;
}

static struct set set_without(const struct set *a, const struct set *b)
{
    struct set rest;
    for (uint32_t i = 0; i < SET_WORDS; i++)
        rest.words[i] = a->words[i] & ~b->words[i];
    return rest;
}

/* ---- life ---- */

uint32_t prefix_hashes(const int32_t *tokens, uint32_t count, uint32_t page_tokens, uint64_t salt,
                       uint64_t *hashes_out)
{
    const uint32_t pages = count / page_tokens;
    uint64_t hash = salt;
    for (uint32_t page = 0; page < pages; page++) {
        hash = hash64(tokens + (size_t)page * page_tokens, page_tokens * sizeof *tokens, hash);
        hashes_out[page] = hash;
    }
    return pages;
}

static uint32_t bucket_count_for(uint32_t pages_max)
{
    uint32_t count = 1;
    while (count < pages_max && count <= UINT32_MAX / 2)
        count *= 2;
    return count;
}

size_t prefix_index_bytes(uint32_t pages_max)
{
    return sizeof(struct prefix_index) + pages_max * sizeof(struct entry) +
           bucket_count_for(pages_max) * sizeof(uint32_t);
}

enum status prefix_index_create(uint32_t pages_max, struct prefix_index **out, struct error *error)
{
    if (pages_max == 0 || pages_max == NONE)
        return error_set(error, STATUS_LIMIT,
                         "a prefix index of %" PRIu32 " pages is asked for; 1 to %" PRIu32
                         " can be",
                         pages_max, NONE - 1);
    struct prefix_index *index = calloc(1, sizeof *index);
    CHECK(index != NULL);
    index->pages_max = pages_max;
    index->bucket_count = bucket_count_for(pages_max);
    index->first_free = index->oldest = index->youngest = NONE;
    /* Zeroed pages of the system: those that are not used cost nothing. */
    index->entries = calloc(pages_max, sizeof *index->entries);
    index->buckets = calloc(index->bucket_count, sizeof *index->buckets);
    if (index->entries == NULL || index->buckets == NULL) {
        prefix_index_destroy(index);
        return error_set(error, STATUS_NO_MEMORY,
                         "no memory for a prefix index of %" PRIu32 " pages, which takes %zu bytes",
                         pages_max, prefix_index_bytes(pages_max));
    }
    *out = index;
    return STATUS_OK;
}

void prefix_index_destroy(struct prefix_index *index)
{
    if (index == NULL)
        return;
    free(index->entries);
    free(index->buckets);
    free(index);
}

uint32_t prefix_index_count(const struct prefix_index *index)
{
    return index->count;
}

uint64_t prefix_index_steps(const struct prefix_index *index)
{
    return index->steps;
}

/* ---- entries ---- */

/* The lowest bit is the event's, not the hash's. */
static uint64_t key_of(uint64_t hash)
{
    return hash & ~(uint64_t)1;
}

/* Buckets hold the entry's number and one, so that zeroed ones are empty. The lowest bit of a hash
 * says nothing. */
static uint32_t *bucket_of(const struct prefix_index *index, uint64_t key)
{
    return &index->buckets[(key >> 1) & (index->bucket_count - 1)];
}

static uint32_t find(struct prefix_index *index, uint64_t key)
{
    index->steps++;
    for (uint32_t at = *bucket_of(index, key); at != 0; at = index->entries[at - 1].chain) {
        index->steps++;
        if (index->entries[at - 1].hash == key)
            return at - 1;
    }
    return NONE;
}

static void list_remove(struct prefix_index *index, uint32_t at)
{
    const struct entry *entry = &index->entries[at];
    *(entry->older == NONE ? &index->oldest : &index->entries[entry->older].younger) =
        entry->younger;
    *(entry->younger == NONE ? &index->youngest : &index->entries[entry->younger].older) =
        entry->older;
}

static void list_append(struct prefix_index *index, uint32_t at)
{
    struct entry *entry = &index->entries[at];
    entry->younger = NONE;
    entry->older = index->youngest;
    *(index->youngest == NONE ? &index->oldest : &index->entries[index->youngest].younger) = at;
    index->youngest = at;
}

static void drop(struct prefix_index *index, uint32_t at)
{
    struct entry *entry = &index->entries[at];
    uint32_t *link = bucket_of(index, entry->hash);
    while (*link != at + 1)
        link = &index->entries[*link - 1].chain;
    *link = entry->chain;
    list_remove(index, at);
    entry->holders = entry->told = (struct set){{0}};
    entry->chain = index->first_free;
    index->first_free = at;
    index->count--;
}

/* The oldest goes; one that was looked at since is the youngest again instead, a few times. */
static void make_room(struct prefix_index *index)
{
    for (uint32_t i = 0; i < SECOND_CHANCES_MAX && index->entries[index->oldest].seen; i++) {
        const uint32_t at = index->oldest;
        index->entries[at].seen = false;
        list_remove(index, at);
        list_append(index, at);
    }
    drop(index, index->oldest);
}

static uint32_t insert(struct prefix_index *index, uint64_t key)
{
    if (index->unused == index->pages_max && index->first_free == NONE)
        make_room(index);
    uint32_t at = index->first_free;
    if (at != NONE)
        index->first_free = index->entries[at].chain;
    else
        at = index->unused++;
    uint32_t *bucket = bucket_of(index, key);
    index->entries[at] = (struct entry){.hash = key, .chain = *bucket};
    *bucket = at + 1;
    list_append(index, at);
    index->count++;
    return at;
}

/* The page's entry, with the holder in it. */
static struct entry *hold(struct prefix_index *index, uint32_t holder, uint64_t hash)
{
    CHECK(holder < PREFIX_HOLDERS_MAX && set_has(&index->live, holder));
    uint32_t at = find(index, key_of(hash));
    if (at == NONE)
        at = insert(index, key_of(hash));
    else
        index->entries[at].seen = true;
    set_put(&index->entries[at].holders, holder, true);
    return &index->entries[at];
}

void prefix_index_add(struct prefix_index *index, uint32_t holder, uint64_t hash)
{
    set_put(&hold(index, holder, hash)->told, holder, true);
}

void prefix_index_expect(struct prefix_index *index, uint32_t holder, uint64_t hash)
{
    hold(index, holder, hash);
}

/* told: also when the holder itself has said that it holds the page. */
static void let_go(struct prefix_index *index, uint32_t holder, uint64_t hash, bool told)
{
    CHECK(holder < PREFIX_HOLDERS_MAX && set_has(&index->live, holder));
    const uint32_t at = find(index, key_of(hash));
    if (at == NONE || (!told && set_has(&index->entries[at].told, holder)))
        return;
    set_put(&index->entries[at].told, holder, false);
    set_put(&index->entries[at].holders, holder, false);
    if (set_empty(&index->entries[at].holders))
        drop(index, at);
}

void prefix_index_remove(struct prefix_index *index, uint32_t holder, uint64_t hash)
{
    let_go(index, holder, hash, true);
}

void prefix_index_expect_not(struct prefix_index *index, uint32_t holder, uint64_t hash)
{
    let_go(index, holder, hash, false);
}

/* ---- holders ---- */

uint32_t prefix_index_join(struct prefix_index *index)
{
    for (uint32_t holder = 0; holder < PREFIX_HOLDERS_MAX; holder++) {
        if (set_has(&index->joined, holder))
            continue;
        set_put(&index->joined, holder, true);
        set_put(&index->live, holder, true);
        return holder;
    }
    return PREFIX_NO_HOLDER;
}

void prefix_index_leave(struct prefix_index *index, uint32_t holder)
{
    CHECK(holder < PREFIX_HOLDERS_MAX && set_has(&index->live, holder));
    set_put(&index->live, holder, false);
}

void prefix_index_sweep(struct prefix_index *index, uint32_t count)
{
    const struct set left = set_without(&index->joined, &index->live);
    if (set_empty(&left))
        return;
    if (index->sweep_at == 0)
        index->sweeping = left;
    for (; count > 0 && index->sweep_at < index->unused; count--, index->sweep_at++) {
        struct entry *entry = &index->entries[index->sweep_at];
        if (set_empty(&entry->holders))
            continue;
        entry->holders = set_without(&entry->holders, &index->sweeping);
        entry->told = set_without(&entry->told, &index->sweeping);
        if (set_empty(&entry->holders))
            drop(index, index->sweep_at);
    }
    if (index->sweep_at < index->unused)
        return;
    index->joined = set_without(&index->joined, &index->sweeping);
    index->sweep_at = 0;
}

/* ---- matching ---- */

/* Of `among`, those that hold the page. */
static struct set holders_of(struct prefix_index *index, uint64_t hash, const struct set *among)
{
    const uint32_t at = find(index, key_of(hash));
    if (at == NONE)
        return (struct set){{0}};
    index->entries[at].seen = true;
    return set_and(&index->entries[at].holders, among);
}

static void write_depth(const struct set *set, uint32_t depth, uint32_t *pages_out)
{
    for (uint32_t i = 0; i < SET_WORDS; i++) {
        for (uint64_t word = set->words[i]; word != 0; word &= word - 1)
            pages_out[i * WORD_BITS + (uint32_t)__builtin_ctzll(word)] = depth;
    }
}

/* `have` hold `low` pages, of them `all` hold `high`: how many do the others hold? */
static void halve(struct prefix_index *index, const uint64_t *hashes, uint32_t low,
                  const struct set *have, uint32_t high, const struct set *all, uint32_t *pages_out)
{
    const struct set between = set_without(have, all);
    if (set_empty(&between))
        return;
    if (high - low == 1) {
        write_depth(&between, low, pages_out);
        return;
    }
    const uint32_t middle = low + (high - low) / 2;
    const struct set in_middle = holders_of(index, hashes[middle - 1], have);
    halve(index, hashes, low, have, middle, &in_middle, pages_out);
    halve(index, hashes, middle, &in_middle, high, all, pages_out);
}

void prefix_index_match(struct prefix_index *index, const uint64_t *hashes, uint32_t count,
                        uint32_t *pages_out)
{
    memset(pages_out, 0, PREFIX_HOLDERS_MAX * sizeof *pages_out);
    if (count == 0)
        return;
    const struct set all = holders_of(index, hashes[count - 1], &index->live);
    write_depth(&all, count, pages_out);
    halve(index, hashes, 0, &index->live, count, &all, pages_out);
}
