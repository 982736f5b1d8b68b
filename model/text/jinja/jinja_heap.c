/* Memory in blocks, limits, failures, and text that grows. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/text/jinja/jinja_internal.h"

enum { BLOCK_BYTES = 1 << 15, OWN_BLOCK_BYTES = 1 << 13, ALIGNMENT = 16, STEP_BYTES = 64 };

struct heap_block {
    struct heap_block *next, *previous;
    _Alignas(ALIGNMENT) char data[];
};

static void account(struct jinja_heap *heap, size_t bytes)
{
    if (heap->limit - heap->taken < bytes)
        jinja_fail(heap, STATUS_LIMIT, "the values need more than %llu bytes, the limit",
                   (unsigned long long)heap->limit);
    heap->taken += bytes;
}

static void block_link(struct jinja_heap *heap, struct heap_block *block)
{
    block->previous = NULL;
    block->next = heap->blocks;
    if (heap->blocks != NULL)
        heap->blocks->previous = block;
    heap->blocks = block;
}

static struct heap_block *block_create(struct jinja_heap *heap, size_t bytes)
{
    account(heap, sizeof(struct heap_block) + bytes);
    struct heap_block *block = calloc(1, sizeof *block + bytes);
    CHECK(block != NULL);
    block_link(heap, block);
    return block;
}

void jinja_heap_free(struct jinja_heap *heap)
{
    while (heap->blocks != NULL) {
        struct heap_block *block = heap->blocks;
        heap->blocks = block->next;
        free(block);
    }
}

void *jinja_take(struct jinja_heap *heap, size_t bytes)
{
    if (bytes >= OWN_BLOCK_BYTES)
        return block_create(heap, bytes)->data;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > heap->left) {
        heap->at = block_create(heap, BLOCK_BYTES)->data;
        heap->left = BLOCK_BYTES;
    }
    char *memory = heap->at;
    heap->at += bytes;
    heap->left -= bytes;
    return memory;
}

void *jinja_grow(struct jinja_heap *heap, void *memory, size_t bytes, size_t new_bytes)
{
    if (memory == NULL || bytes < OWN_BLOCK_BYTES) {
        char *moved = jinja_take(heap, new_bytes);
        if (memory != NULL)
            memcpy(moved, memory, bytes);
        return moved;
    }
    account(heap, new_bytes - bytes);
    struct heap_block *block =
        (struct heap_block *)(void *)((char *)memory - offsetof(struct heap_block, data));
    struct heap_block *grown = realloc(block, sizeof *block + new_bytes);
    CHECK(grown != NULL);
    if (grown->previous != NULL)
        grown->previous->next = grown;
    else
        heap->blocks = grown;
    if (grown->next != NULL)
        grown->next->previous = grown;
    return grown->data;
}

_Noreturn void jinja_fail(struct jinja_heap *heap, enum status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (heap->line > 0)
        error_set(heap->error, status, "line %u, column %u: %s", heap->line, heap->column, text);
    else
        error_set(heap->error, status, "%s", text);
    heap->status = status;
    longjmp(heap->failed, 1);
}

void jinja_charge(struct jinja_heap *heap, uint64_t steps)
{
    if (heap->steps_left < steps)
        jinja_fail(heap, STATUS_LIMIT, "the template takes more steps than the limit");
    heap->steps_left -= steps;
}

void jinja_enter(struct jinja_heap *heap)
{
    if (heap->depth >= heap->depth_max)
        jinja_fail(heap, STATUS_LIMIT,
                   "expressions, macros or values are nested more than %u levels deep, the limit",
                   heap->depth_max);
    heap->depth++;
}

static void builder_reserve(struct builder *builder, size_t more)
{
    struct jinja_heap *heap = builder->heap;
    if (builder->limit > 0 && builder->limit - builder->bytes < more)
        jinja_fail(heap, STATUS_LIMIT, "the prompt is longer than %zu bytes, the limit",
                   builder->limit);
    if (more <= builder->capacity - builder->bytes)
        return;
    size_t capacity = builder->capacity * 2 + 64;
    if (capacity < builder->bytes + more)
        capacity = builder->bytes + more;
    builder->data = jinja_grow(heap, builder->data, builder->capacity, capacity);
    builder->marks = jinja_grow(heap, builder->marks, builder->capacity, capacity);
    builder->capacity = capacity;
}

void builder_add(struct builder *builder, const char *data, size_t bytes, const uint8_t *marks,
                 enum origin origin)
{
    if (bytes == 0)
        return;
    jinja_charge(builder->heap, bytes / STEP_BYTES);
    builder_reserve(builder, bytes);
    memcpy(builder->data + builder->bytes, data, bytes);
    if (origin == FROM_BOTH)
        memcpy(builder->marks + builder->bytes, marks, bytes);
    else
        memset(builder->marks + builder->bytes, origin == FROM_INPUT, bytes);
    builder->has_input |= origin != FROM_TEMPLATE;
    builder->has_template |= origin != FROM_INPUT;
    builder->bytes += bytes;
}

void builder_add_string(struct builder *builder, const struct string *string)
{
    builder_add(builder, string->data, string->bytes, string->marks, string->origin);
}

void builder_add_text(struct builder *builder, const char *text)
{
    builder_add(builder, text, strlen(text), NULL, FROM_TEMPLATE);
}

void builder_add_char(struct builder *builder, char c)
{
    builder_add(builder, &c, 1, NULL, FROM_TEMPLATE);
}

struct value builder_value(struct builder *builder)
{
    const enum origin origin = !builder->has_input      ? FROM_TEMPLATE
                               : !builder->has_template ? FROM_INPUT
                                                        : FROM_BOTH;
    struct value value = string_value(builder->heap, builder->data, builder->bytes, origin);
    value.string->marks = origin == FROM_BOTH ? builder->marks : NULL;
    return value;
}
