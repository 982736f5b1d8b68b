/* What short pieces of a long text became, so that a word that comes again is looked up. One
 * thread; it lives as long as one call of text_encode, and what it gives is what the model would
 * give. */
#ifndef BATON_MODEL_TEXT_PIECE_CACHE_H
#define BATON_MODEL_TEXT_PIECE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece_cache;
struct token_list;

enum {
    PIECE_CACHE_PIECE_MAX = 64,      /* bytes of a piece that is kept */
    PIECE_CACHE_TEXT_MIN = 16 << 10, /* shorter texts are not worth one */
};

struct piece_cache *piece_cache_create(void);
void piece_cache_destroy(struct piece_cache *cache); /* NULL is fine */
/* Appends the ids of a piece that was kept; false when there is none. */
bool piece_cache_find(const struct piece_cache *cache, const char *piece, size_t bytes,
                      struct token_list *ids);
/* Keeps the ids of a piece of at most PIECE_CACHE_PIECE_MAX bytes, in place of another one. */
void piece_cache_keep(struct piece_cache *cache, const char *piece, size_t bytes,
                      const int32_t *ids, size_t count);

#endif
