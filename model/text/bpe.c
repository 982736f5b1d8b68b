#include "model/text/bpe.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "model/text/text.h"

static const uint32_t NO_RANK = UINT32_MAX;

struct merge {
    int32_t left, right; /* left -1: an empty slot */
    int32_t merged;
    uint32_t rank;
};

struct bpe {
    struct merge *slots; /* by the keyed hash of left and right */
    size_t slot_mask;
    uint64_t key;
    uint32_t rank_next;
    size_t room;
    bpe_find find; /* NULL: merges are in the table */
    const void *find_arg;
    uint32_t longest;
};

/* A token of the piece. Symbols stand in the order of the text; merging removes the right one. */
struct bpe_symbol {
    int32_t id;
    int32_t merged;          /* what this and the next one become */
    uint32_t previous, next; /* index, NO_RANK at the ends */
    uint32_t rank;           /* of the pair (this, next); NO_RANK: no merge, or removed */
    uint32_t at, bytes;      /* its text in the piece */
};

struct bpe *bpe_create(size_t merge_count)
{
    struct bpe *bpe = calloc(1, sizeof *bpe);
    CHECK(bpe != NULL);
    size_t slots = 16;
    while (slots < merge_count * 2)
        slots *= 2;
    bpe->slots = malloc(slots * sizeof *bpe->slots);
    CHECK(bpe->slots != NULL);
    for (size_t i = 0; i < slots; i++)
        bpe->slots[i].left = -1;
    bpe->slot_mask = slots - 1;
    bpe->key = hash_process_key();
    bpe->room = merge_count;
    return bpe;
}

struct bpe *bpe_create_by_text(bpe_find find, const void *arg, uint32_t longest)
{
    struct bpe *bpe = calloc(1, sizeof *bpe);
    CHECK(bpe != NULL);
    *bpe = (struct bpe){.find = find, .find_arg = arg, .longest = longest};
    return bpe;
}

static struct merge *merge_slot(const struct bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t mixed =
        hash_u64_keyed((uint64_t)(uint32_t)left << 32 | (uint32_t)right, bpe->key);
    for (size_t at = (size_t)mixed & bpe->slot_mask;; at = (at + 1) & bpe->slot_mask) {
        struct merge *slot = &bpe->slots[at];
        if (slot->left < 0 || (slot->left == left && slot->right == right))
            return slot;
    }
}

void bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    CHECK(bpe->rank_next < bpe->room);
    CHECK(left >= 0 && right >= 0 && merged >= 0);
    *merge_slot(bpe, left, right) = (struct merge){left, right, merged, bpe->rank_next++};
}

void bpe_destroy(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    free(bpe->slots);
    free(bpe);
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

/* A pair in the heap: rank above, position below, so that plain order is the merge order. */
static uint64_t heap_entry(uint32_t rank, uint32_t position)
{
    return (uint64_t)rank << 32 | position;
}

static void heap_sink(struct bpe_scratch *scratch, size_t at)
{
    uint64_t *heap = scratch->heap;
    const uint64_t entry = heap[at];
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= scratch->heap_count)
            break;
        if (child + 1 < scratch->heap_count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= entry)
            break;
        heap[at] = heap[child];
        at = child;
        scratch->step_count++;
    }
    heap[at] = entry;
}

static void heap_push(struct bpe_scratch *scratch, uint64_t entry)
{
    uint64_t *heap = scratch->heap;
    size_t at = scratch->heap_count++;
    while (at > 0 && heap[(at - 1) / 2] > entry) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
        scratch->step_count++;
    }
    heap[at] = entry;
}

static uint64_t heap_pop(struct bpe_scratch *scratch)
{
    const uint64_t first = scratch->heap[0];
    scratch->heap[0] = scratch->heap[--scratch->heap_count];
    heap_sink(scratch, 0);
    return first;
}

/* n symbols have at most n - 1 pairs at first, and each of n - 1 merges adds two. */
static void scratch_reserve(struct bpe_scratch *scratch, size_t symbols)
{
    if (symbols <= scratch->symbol_capacity)
        return;
    size_t capacity = 64;
    while (capacity < symbols)
        capacity *= 2;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
    scratch->heap = malloc(capacity * 3 * sizeof *scratch->heap);
    CHECK(scratch->symbols != NULL && scratch->heap != NULL);
    scratch->symbol_capacity = capacity;
}

static void pair_rank_by_text(const struct bpe *bpe, struct bpe_symbol *symbol,
                              const struct bpe_symbol *next, const char *piece)
{
    const uint32_t bytes = symbol->bytes + next->bytes;
    if (bytes > bpe->longest)
        return;
    uint32_t rank;
    symbol->merged = bpe->find(bpe->find_arg, piece + symbol->at, bytes, &rank);
    if (symbol->merged >= 0)
        symbol->rank = rank;
}

static void pair_rank(const struct bpe *bpe, struct bpe_symbol *symbols, uint32_t at,
                      const char *piece)
{
    struct bpe_symbol *symbol = &symbols[at];
    symbol->rank = NO_RANK;
    if (symbol->next == NO_RANK)
        return;
    const struct bpe_symbol *next = &symbols[symbol->next];
    if (bpe->find != NULL) {
        pair_rank_by_text(bpe, symbol, next, piece);
        return;
    }
    const struct merge *merge = merge_slot(bpe, symbol->id, next->id);
    if (merge->left >= 0) {
        symbol->rank = merge->rank;
        symbol->merged = merge->merged;
    }
}

void bpe_begin(struct bpe_scratch *scratch, size_t symbols_max)
{
    CHECK(symbols_max < NO_RANK);
    scratch_reserve(scratch, symbols_max);
    scratch->symbol_count = 0;
}

void bpe_symbol_add(struct bpe_scratch *scratch, int32_t id, size_t at, size_t bytes)
{
    const uint32_t count = scratch->symbol_count++;
    DCHECK(count < scratch->symbol_capacity);
    scratch->symbols[count] = (struct bpe_symbol){.id = id,
                                                  .merged = -1,
                                                  .previous = count - 1,
                                                  .next = count + 1,
                                                  .rank = NO_RANK,
                                                  .at = (uint32_t)at,
                                                  .bytes = (uint32_t)bytes};
}

/* Links the symbols and puts their pairs into the heap. */
static void pairs_begin(const struct bpe *bpe, struct bpe_scratch *scratch, const char *piece)
{
    struct bpe_symbol *symbols = scratch->symbols;
    const uint32_t count = scratch->symbol_count;
    symbols[0].previous = NO_RANK;
    symbols[count - 1].next = NO_RANK;
    scratch->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        pair_rank(bpe, symbols, i, piece);
        if (symbols[i].rank != NO_RANK)
            scratch->heap[scratch->heap_count++] = heap_entry(symbols[i].rank, i);
    }
    for (size_t i = scratch->heap_count / 2; i-- > 0;)
        heap_sink(scratch, i);
}

static void pair_update(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t at,
                        const char *piece)
{
    pair_rank(bpe, scratch->symbols, at, piece);
    if (scratch->symbols[at].rank != NO_RANK)
        heap_push(scratch, heap_entry(scratch->symbols[at].rank, at));
}

void bpe_merge(const struct bpe *bpe, struct bpe_scratch *scratch, const char *piece,
               bpe_token on_token, void *arg)
{
    if (scratch->symbol_count == 0)
        return;
    pairs_begin(bpe, scratch, piece);
    struct bpe_symbol *symbols = scratch->symbols;
    while (scratch->heap_count > 0) {
        const uint64_t entry = heap_pop(scratch);
        const uint32_t at = (uint32_t)entry;
        struct bpe_symbol *symbol = &symbols[at];
        scratch->step_count++;
        if (symbol->rank != (uint32_t)(entry >> 32)) // the pair has changed since
            continue;
        struct bpe_symbol *right = &symbols[symbol->next];
        symbol->id = symbol->merged;
        symbol->bytes += right->bytes;
        symbol->next = right->next;
        right->rank = NO_RANK;
        if (symbol->next != NO_RANK)
            symbols[symbol->next].previous = at;
        pair_update(bpe, scratch, at, piece);
        if (symbol->previous != NO_RANK)
            pair_update(bpe, scratch, symbol->previous, piece);
    }
    for (uint32_t at = 0; at != NO_RANK; at = symbols[at].next)
        on_token(arg, symbols[at].id, piece + symbols[at].at, symbols[at].bytes);
}
