/* The special tokens of a vocabulary as a trie over their bytes. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/text_internal.h"

void special_tokens_init(struct special_tokens *special)
{
    *special = (struct special_tokens){0};
    for (size_t i = 0; i < ARRAY_COUNT(special->root); i++)
        special->root[i] = -1;
}

void special_tokens_free(struct special_tokens *special)
{
    free(special->nodes);
}

static int32_t node_add(struct special_tokens *special, uint8_t byte, int32_t sibling)
{
    if (special->count == special->capacity) {
        special->capacity = special->capacity * 2 + 256;
        special->nodes = realloc(special->nodes, special->capacity * sizeof *special->nodes);
        CHECK(special->nodes != NULL);
    }
    special->nodes[special->count] = (struct special_node){-1, sibling, -1, byte};
    return (int32_t)special->count++;
}

static int32_t sibling_find(const struct special_tokens *special, int32_t node, uint8_t byte)
{
    while (node >= 0 && special->nodes[node].byte != byte)
        node = special->nodes[node].sibling;
    return node;
}

void special_tokens_add(struct special_tokens *special, const char *text, size_t bytes, int32_t id)
{
    if (bytes == 0)
        return;
    const uint8_t first = (uint8_t)text[0];
    if (special->root[first] < 0)
        special->root[first] = node_add(special, first, -1);
    int32_t node = special->root[first];
    for (size_t i = 1; i < bytes; i++) {
        int32_t child = sibling_find(special, special->nodes[node].child, (uint8_t)text[i]);
        if (child < 0) {
            child = node_add(special, (uint8_t)text[i], special->nodes[node].child);
            special->nodes[node].child = child;
        }
        node = child;
    }
    if (special->nodes[node].id < 0)
        special->nodes[node].id = id;
}

int32_t special_tokens_match(const struct special_tokens *special, const uint8_t *types,
                             bool control, const char *text, size_t bytes, size_t *bytes_out)
{
    int32_t best = -1;
    int32_t node = special->root[(uint8_t)text[0]];
    for (size_t i = 1; node >= 0; i++) {
        const int32_t id = special->nodes[node].id;
        if (id >= 0 && (control || types[id] == TOKEN_USER_DEFINED)) {
            best = id;
            *bytes_out = i;
        }
        if (i == bytes)
            break;
        node = sibling_find(special, special->nodes[node].child, (uint8_t)text[i]);
    }
    return best;
}
