#include "model/text/bpe.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/text/text.h"

static const uint32_t NO_RANK = UINT32_MAX;

struct merge {
    int32_t left, right; /* left -1: an empty slot */
    int32_t merged;
    uint32_t rank;
};

struct bpe {
    struct merge *slots;
    size_t slot_mask;
    uint32_t rank_next;
    size_t room;
};

/* A token of the piece. Symbols stand in the order of the text; merging removes the right one. */
struct bpe_symbol {
    int32_t id;
    int32_t merged;          /* what this and the next one become */
    uint32_t previous, next; /* index, NO_RANK at the ends */
    uint32_t rank;           /* of the pair (this, next); NO_RANK: no merge, or removed */
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
    bpe->room = merge_count;
    return bpe;
}

static struct merge *merge_slot(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t mixed = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
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

static void pair_rank(const struct bpe *bpe, struct bpe_symbol *symbols, uint32_t at)
{
    struct bpe_symbol *symbol = &symbols[at];
    symbol->rank = NO_RANK;
    if (symbol->next == NO_RANK)
        return;
    const struct merge *merge = merge_slot(bpe, symbol->id, symbols[symbol->next].id);
    if (merge->left >= 0) {
        symbol->rank = merge->rank;
        symbol->merged = merge->merged;
    }
}

/* The bytes as symbols, their pairs as a heap. Returns how many symbols there are. */
static uint32_t symbols_begin(const struct bpe *bpe, const int32_t byte_ids[256], const char *piece,
                              size_t bytes, struct bpe_scratch *scratch)
{
    scratch_reserve(scratch, bytes);
    struct bpe_symbol *symbols = scratch->symbols;
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = byte_ids[(uint8_t)piece[i]];
        if (id < 0)
            continue;
        symbols[count] = (struct bpe_symbol){id, -1, count - 1, count + 1, NO_RANK};
        count++;
    }
    if (count == 0)
        return 0;
    symbols[0].previous = NO_RANK;
    symbols[count - 1].next = NO_RANK;
    scratch->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        pair_rank(bpe, symbols, i);
        if (symbols[i].rank != NO_RANK)
            scratch->heap[scratch->heap_count++] = heap_entry(symbols[i].rank, i);
    }
    for (size_t i = scratch->heap_count / 2; i-- > 0;)
        heap_sink(scratch, i);
    return count;
}

static void pair_update(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t at)
{
    pair_rank(bpe, scratch->symbols, at);
    if (scratch->symbols[at].rank != NO_RANK)
        heap_push(scratch, heap_entry(scratch->symbols[at].rank, at));
}

void bpe_encode(const struct bpe *bpe, const int32_t byte_ids[256], const char *piece, size_t bytes,
                struct bpe_scratch *scratch, struct token_list *out)
{
    CHECK(bytes < NO_RANK);
    if (symbols_begin(bpe, byte_ids, piece, bytes, scratch) == 0)
        return;
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
        symbol->next = right->next;
        right->rank = NO_RANK;
        if (symbol->next != NO_RANK)
            symbols[symbol->next].previous = at;
        pair_update(bpe, scratch, at);
        if (symbol->previous != NO_RANK)
            pair_update(bpe, scratch, symbol->previous);
    }
    for (uint32_t at = 0; at != NO_RANK; at = symbols[at].next)
        token_list_add(out, symbols[at].id);
}
