/* The vocabulary's texts as a tree; see grammar_internal.h. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_internal.h"
#include "model/text/text.h"

struct token_text {
    const char *bytes;
    uint32_t count, id;
};

static int order(const void *a, const void *b)
{
    const struct token_text *x = a;
    const struct token_text *y = b;
    const int bytes = memcmp(x->bytes, y->bytes, x->count < y->count ? x->count : y->count);
    if (bytes != 0)
        return bytes;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void *array(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static uint32_t tokens_collect(const struct text *text, struct token_text *list, size_t *bytes_out)
{
    const struct text_info *info = text_info(text);
    uint32_t count = 0;
    for (uint32_t id = 0; id < info->picked_count; id++) {
        size_t bytes;
        const char *token = text_token_bytes(text, (int32_t)id, &bytes);
        if (text_token_special(text, (int32_t)id) || bytes == 0 || bytes > TOKEN_BYTES_MAX)
            continue;
        list[count++] = (struct token_text){token, (uint32_t)bytes, id};
        *bytes_out += bytes;
    }
    qsort(list, count, sizeof *list, order);
    return count;
}

static uint32_t shared_bytes(const struct token_text *a, const struct token_text *b)
{
    uint32_t count = 0;
    while (count < a->count && count < b->count && a->bytes[count] == b->bytes[count])
        count++;
    return count;
}

/* Tokens come in order, so that each adds its nodes below those of the one before. */
static void tree_build(struct grammar_tokens *tokens, const struct token_text *list, uint32_t count)
{
    uint32_t path[TOKEN_BYTES_MAX + 1] = {0}; // the open node of each depth
    uint32_t depth = 0;
    tokens->node_count = 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t shared = i > 0 ? shared_bytes(&list[i - 1], &list[i]) : 0;
        for (; depth > shared; depth--)
            tokens->ends[path[depth]] = tokens->node_count;
        while (depth < list[i].count) {
            const uint32_t node = tokens->node_count++;
            tokens->bytes[node] = (uint8_t)list[i].bytes[depth];
            tokens->depths[node] = (uint8_t)++depth;
            tokens->id_begin[node] = i;
            path[depth] = node;
        }
        tokens->ids[i] = list[i].id;
        tokens->depth_max = depth > tokens->depth_max ? depth : tokens->depth_max;
        if (list[i].count == 1)
            tokens->single[(uint8_t)list[i].bytes[0]] = true;
    }
    for (; depth > 0; depth--)
        tokens->ends[path[depth]] = tokens->node_count;
    tokens->ends[0] = tokens->node_count;
    tokens->id_begin[tokens->node_count] = count;
}

struct grammar_tokens *grammar_tokens_create(const struct text *text)
{
    struct grammar_tokens *tokens = array(1, sizeof *tokens);
    const struct text_info *info = text_info(text);
    struct token_text *list = array(info->vocab_count, sizeof *list);
    size_t bytes = 0;
    const uint32_t count = tokens_collect(text, list, &bytes);
    tokens->text = text;
    tokens->vocab_count = info->vocab_count;
    tokens->bytes = array(bytes + 1, sizeof *tokens->bytes);
    tokens->depths = array(bytes + 1, sizeof *tokens->depths);
    tokens->ends = array(bytes + 1, sizeof *tokens->ends);
    tokens->id_begin = array(bytes + 2, sizeof *tokens->id_begin);
    tokens->ids = array(count, sizeof *tokens->ids);
    tree_build(tokens, list, count);
    free(list);
    return tokens;
}

void grammar_tokens_destroy(struct grammar_tokens *tokens)
{
    if (tokens == NULL)
        return;
    free(tokens->bytes);
    free(tokens->depths);
    free(tokens->ends);
    free(tokens->id_begin);
    free(tokens->ids);
    free(tokens);
}

size_t grammar_mask_words(const struct grammar_tokens *tokens)
{
    return (tokens->vocab_count + 31) / 32;
}
