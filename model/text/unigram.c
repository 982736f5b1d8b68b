#include "model/text/unigram.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/utf8.h"

static const double UNKNOWN_PENALTY = 10.0;
static const uint32_t NOWHERE = UINT32_MAX;

/* The trie is one hash table with a key: (node, byte) to the node behind it. Node 0 is the root. */
struct edge {
    uint32_t from; /* NOWHERE: an empty slot */
    uint32_t to;
    uint8_t byte;
};

struct unigram {
    struct edge *edges;
    size_t edge_mask, edge_count;
    uint64_t key;
    int32_t *ids; /* [node_capacity] token that ends there, -1 */
    size_t node_count, node_capacity;
    double *scores; /* [token_count] */
    double unknown_score;
};

/* The best way to a byte of the piece: where its last token starts, NOWHERE when none is known. */
struct unigram_end {
    double score;
    uint32_t start;
    int32_t id; /* -1: one character without a token */
};

static uint32_t node_add(struct unigram *unigram)
{
    if (unigram->node_count == unigram->node_capacity) {
        unigram->node_capacity = unigram->node_capacity * 2 + 1024;
        unigram->ids = realloc(unigram->ids, unigram->node_capacity * sizeof *unigram->ids);
        CHECK(unigram->ids != NULL);
    }
    unigram->ids[unigram->node_count] = -1;
    return (uint32_t)unigram->node_count++;
}

static void edges_allocate(struct unigram *unigram, size_t slots)
{
    unigram->edges = malloc(slots * sizeof *unigram->edges);
    CHECK(unigram->edges != NULL);
    unigram->edge_mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        unigram->edges[i].from = NOWHERE;
}

struct unigram *unigram_create(uint32_t token_count)
{
    struct unigram *unigram = calloc(1, sizeof *unigram);
    CHECK(unigram != NULL);
    unigram->scores = calloc(token_count, sizeof *unigram->scores);
    CHECK(unigram->scores != NULL);
    unigram->key = hash_process_key();
    edges_allocate(unigram, 1024);
    node_add(unigram);
    return unigram;
}

void unigram_destroy(struct unigram *unigram)
{
    if (unigram == NULL)
        return;
    free(unigram->edges);
    free(unigram->ids);
    free(unigram->scores);
    free(unigram);
}

void unigram_scratch_free(struct unigram_scratch *scratch)
{
    free(scratch->ends);
    free(scratch->path);
    *scratch = (struct unigram_scratch){.step_count = scratch->step_count};
}

static struct edge *edge_find(const struct unigram *unigram, uint32_t from, uint8_t byte)
{
    const uint64_t mixed = hash_u64_keyed((uint64_t)from << 8 | byte, unigram->key);
    for (size_t at = (size_t)mixed & unigram->edge_mask;; at = (at + 1) & unigram->edge_mask) {
        struct edge *edge = &unigram->edges[at];
        if (edge->from == NOWHERE || (edge->from == from && edge->byte == byte))
            return edge;
    }
}

static void edges_grow(struct unigram *unigram)
{
    struct edge *old = unigram->edges;
    const size_t slots = unigram->edge_mask + 1;
    edges_allocate(unigram, slots * 2);
    for (size_t i = 0; i < slots; i++)
        if (old[i].from != NOWHERE)
            *edge_find(unigram, old[i].from, old[i].byte) = old[i];
    free(old);
}

void unigram_add(struct unigram *unigram, const char *text, size_t bytes, int32_t id, double score)
{
    uint32_t node = 0;
    unigram->scores[id] = score;
    if (bytes == 0)
        return;
    for (size_t i = 0; i < bytes; i++) {
        struct edge *edge = edge_find(unigram, node, (uint8_t)text[i]);
        if (edge->from == NOWHERE) {
            *edge = (struct edge){node, node_add(unigram), (uint8_t)text[i]};
            node = edge->to;
            if (++unigram->edge_count * 2 > unigram->edge_mask)
                edges_grow(unigram);
        } else {
            node = edge->to;
        }
    }
    unigram->ids[node] = id;
}

void unigram_set_lowest(struct unigram *unigram, double score)
{
    unigram->unknown_score = score - UNKNOWN_PENALTY;
}

static void end_improve(struct unigram_end *end, double score, size_t start, int32_t id)
{
    if (end->start == NOWHERE || score > end->score)
        *end = (struct unigram_end){score, (uint32_t)start, id};
}

/* Every token that starts at `at`, and one unknown character where none is that short. */
static size_t starts_extend(const struct unigram *unigram, struct unigram_scratch *scratch,
                            const char *piece, size_t bytes, size_t at)
{
    const int length = utf8_sequence((const uint8_t *)piece + at, bytes - at, NULL);
    CHECK(length > 0);
    const size_t character_end = at + (size_t)length;
    const double score = scratch->ends[at].score;
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < bytes;) {
        const struct edge *edge = edge_find(unigram, node, (uint8_t)piece[end]);
        scratch->step_count++;
        if (edge->from == NOWHERE)
            break;
        node = edge->to;
        end++;
        const int32_t id = unigram->ids[node];
        if (id < 0)
            continue;
        end_improve(&scratch->ends[end], unigram->scores[id] + score, at, id);
        single = single || end == character_end;
    }
    if (!single)
        end_improve(&scratch->ends[character_end], unigram->unknown_score + score, at, -1);
    return character_end;
}

void unigram_encode(const struct unigram *unigram, struct unigram_scratch *scratch,
                    const char *piece, size_t bytes, unigram_token on_token, void *arg)
{
    CHECK(bytes < NOWHERE);
    if (bytes + 1 > scratch->capacity) {
        unigram_scratch_free(scratch);
        scratch->capacity = bytes + 1 + bytes / 2;
        scratch->ends = malloc(scratch->capacity * sizeof *scratch->ends);
        scratch->path = malloc(scratch->capacity * sizeof *scratch->path);
        CHECK(scratch->ends != NULL && scratch->path != NULL);
    }
    struct unigram_end *ends = scratch->ends;
    for (size_t i = 0; i <= bytes; i++)
        ends[i] = (struct unigram_end){0, NOWHERE, -1};
    for (size_t at = 0; at < bytes;)
        at = starts_extend(unigram, scratch, piece, bytes, at);
    size_t count = 0;
    for (uint32_t end = (uint32_t)bytes; end > 0; end = ends[end].start)
        scratch->path[count++] = end;
    for (size_t i = count; i-- > 0;) {
        const uint32_t start = ends[scratch->path[i]].start;
        const int32_t id = ends[scratch->path[i]].id;
        while (id < 0 && i > 0 && ends[scratch->path[i - 1]].id < 0) // neighbours are fused
            i--;
        on_token(arg, id, piece + start, scratch->path[i] - start);
    }
}
