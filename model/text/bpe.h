/* Byte-pair encoding of one piece of text.
 *
 * A piece begins as symbols, its bytes or characters; of all neighbouring pairs that have a merge
 * the one of lowest rank, leftmost among equals, is replaced by its result, until none is left.
 * Pairs wait in a heap and symbols in a linked list, so that n symbols take O(n log n) whatever
 * they are. A pair has a merge when a table lists its two tokens, or when its text is a token. */
#ifndef BATON_MODEL_TEXT_BPE_H
#define BATON_MODEL_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct bpe;
struct token_list;

/* merge_count pairs will follow through bpe_add, in order of rank. */
struct bpe *bpe_create(size_t merge_count);
/* The token that has this text, and its rank; -1 for none. */
typedef int32_t (*bpe_find)(const void *arg, const char *text, size_t bytes, uint32_t *rank_out);
/* Merges are found by text instead: any pair whose text, of at most longest bytes, find knows. */
struct bpe *bpe_create_by_text(bpe_find find, const void *arg, uint32_t longest);
/* left, right -> merged. Of equal pairs the last one counts. */
void bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged);
void bpe_destroy(struct bpe *bpe); /* NULL is fine */

/* Working memory of a thread, kept between pieces. Zero-initialised is empty. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    uint32_t symbol_count;
    uint64_t *heap;
    size_t heap_count;
    uint64_t step_count; /* of the heap and the merges, over all pieces */
};
void bpe_scratch_free(struct bpe_scratch *scratch);

/* Encoding is begin, an add for every symbol in the order of the text, then merge. */
void bpe_begin(struct bpe_scratch *scratch, size_t symbols_max);
/* id -1: no token yet; only merges by text can make it one. */
void bpe_symbol_add(struct bpe_scratch *scratch, int32_t id, size_t at, size_t bytes);
/* on_token gets what is left, in order: token, or -1 and the text that has none. */
typedef void (*bpe_token)(void *arg, int32_t id, const char *text, size_t bytes);
void bpe_merge(const struct bpe *bpe, struct bpe_scratch *scratch, const char *piece,
               bpe_token on_token, void *arg);

#endif
