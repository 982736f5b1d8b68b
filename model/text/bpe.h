/* Byte-pair encoding of one piece of text.
 *
 * Every byte begins as a token; of all neighbouring pairs that have a merge the one of lowest rank,
 * leftmost among equals, is replaced by its result, until none is left. Pairs wait in a heap and
 * tokens in a linked list, so that n bytes take O(n log n) whatever they are. */
#ifndef BATON_MODEL_TEXT_BPE_H
#define BATON_MODEL_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct bpe;
struct token_list;

/* merge_count pairs will follow through bpe_add, in order of rank. */
struct bpe *bpe_create(size_t merge_count);
/* left, right -> merged. Of equal pairs the last one counts. */
void bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged);
void bpe_destroy(struct bpe *bpe); /* NULL is fine */

/* Working memory of a thread, kept between pieces. Zero-initialised is empty. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap;
    size_t heap_capacity, heap_count;
    uint64_t step_count; /* of the heap and the merges, over all pieces */
};
void bpe_scratch_free(struct bpe_scratch *scratch);

/* Appends the tokens of a piece. byte_ids: the token of every byte, -1 where there is none; such
 * bytes are left out, as the reference does. */
void bpe_encode(const struct bpe *bpe, const int32_t byte_ids[256], const char *piece, size_t bytes,
                struct bpe_scratch *scratch, struct token_list *out);

#endif
