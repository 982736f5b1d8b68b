#include "model/text/piece_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/text.h"

enum { SLOT_COUNT = 1 << 13, IDS_MAX = 8 };

/* A piece of few tokens; others are rare, and not kept. */
struct slot {
    char piece[PIECE_CACHE_PIECE_MAX];
    int32_t ids[IDS_MAX];
    uint8_t bytes, count; /* bytes 0: empty */
};

struct piece_cache {
    struct slot slots[SLOT_COUNT];
};

struct piece_cache *piece_cache_create(void)
{
    struct piece_cache *cache = calloc(1, sizeof *cache);
    CHECK(cache != NULL);
    return cache;
}

void piece_cache_destroy(struct piece_cache *cache)
{
    free(cache);
}

static size_t slot_of(const char *piece, size_t bytes)
{
    return (size_t)hash64(piece, bytes, 0) % SLOT_COUNT;
}

bool piece_cache_find(const struct piece_cache *cache, const char *piece, size_t bytes,
                      struct token_list *ids)
{
    if (bytes > PIECE_CACHE_PIECE_MAX)
        return false;
    const struct slot *slot = &cache->slots[slot_of(piece, bytes)];
    if (slot->bytes != bytes || memcmp(slot->piece, piece, bytes) != 0)
        return false;
    for (size_t i = 0; i < slot->count; i++)
        token_list_add(ids, slot->ids[i]);
    return true;
}

void piece_cache_keep(struct piece_cache *cache, const char *piece, size_t bytes,
                      const int32_t *ids, size_t count)
{
    if (bytes == 0 || bytes > PIECE_CACHE_PIECE_MAX || count > IDS_MAX)
        return;
    struct slot *slot = &cache->slots[slot_of(piece, bytes)];
    memcpy(slot->piece, piece, bytes);
    if (count > 0)
        memcpy(slot->ids, ids, count * sizeof *ids);
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
}
