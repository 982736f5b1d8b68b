#include "tests/transfer/random_message.h"

#include <string.h>

#include "base/check.h"

static void *take(struct wire_arena *arena, size_t bytes)
{
    arena->used = (arena->used + 7) & ~(size_t)7;
    CHECK(bytes <= arena->capacity - arena->used);
    void *at = arena->data + arena->used;
    arena->used += bytes;
    memset(at, 0, bytes);
    return at;
}

/* Small numbers, large ones and the edges of every msgpack width. */
static uint64_t random_number(struct random *random, uint64_t most)
{
    static const uint64_t edges[] = {0,         1,           127,        128,
                                     255,       256,         65535,      65536,
                                     INT32_MAX, 0x80000000u, UINT32_MAX, UINT64_C(1) << 32,
                                     UINT64_MAX};
    uint64_t number = random_next(random) >> random_below(random, 64);
    if (random_below(random, 3) == 0)
        number = edges[random_below(random, ARRAY_COUNT(edges))];
    return most == 0 || number <= most ? number : number % (most + 1);
}

static void random_array(const struct wire_field *field, struct random *random,
                         struct wire_arena *arena, uint8_t *at)
{
    const uint64_t most = field->limit && field->limit < 70 ? field->limit : 70;
    struct wire_items items = {NULL, (uint32_t)random_below(random, most + 1)};
    const bool is_text = field->kind == WIRE_KIND_str || field->kind == WIRE_KIND_bin;
    if (items.count == 0)
        return;
    const size_t item_bytes = field->kind == WIRE_KIND_LIST ? wire_message(field->nested)->bytes
                              : is_text                     ? 1
                                                            : 4;
    uint8_t *data = take(arena, items.count * item_bytes);
    items.items = data;
    for (uint32_t i = 0; i < items.count; i++) {
        if (field->kind == WIRE_KIND_LIST) {
            random_message(field->nested, random, arena, data + i * item_bytes);
        } else if (field->kind == WIRE_KIND_f32s) {
            const float number = (float)random_normal(random);
            memcpy(data + 4 * i, &number, 4);
        } else if (is_text) {
            data[i] = (uint8_t)random_next(random);
        } else {
            store_le32(data + 4 * i, (uint32_t)random_number(random, UINT32_MAX));
        }
    }
    memcpy(at, &items, sizeof items);
}

void random_message(enum message_id id, struct random *random, struct wire_arena *arena,
                    void *message)
{
    const struct wire_message *table = wire_message(id);
    memset(message, 0, table->bytes);
    for (uint32_t f = 0; f < table->field_count; f++) {
        const struct wire_field *field = &table->fields[f];
        uint8_t *at = (uint8_t *)message + field->offset;
        const uint64_t most32 = field->limit ? field->limit : UINT32_MAX;
        const float number = (float)random_normal(random);
        switch (field->kind) {
        case WIRE_KIND_u32:
            store_le32(at, (uint32_t)random_number(random, most32));
            break;
        case WIRE_KIND_u64:
            store_le64(at, random_number(random, field->limit));
            break;
        case WIRE_KIND_i32:
            store_le32(at, (uint32_t)random_number(random, UINT32_MAX));
            break;
        case WIRE_KIND_f32:
            memcpy(at, &number, 4);
            break;
        case WIRE_KIND_ONE:
            random_message(field->nested, random, arena, at);
            break;
        default:
            random_array(field, random, arena, at);
        }
    }
}

static const char *array_difference(const struct wire_field *field, const void *a, const void *b)
{
    struct wire_items left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    if (left.count != right.count)
        return field->name;
    if (field->kind == WIRE_KIND_LIST) {
        const size_t bytes = wire_message(field->nested)->bytes;
        for (uint32_t i = 0; i < left.count; i++) {
            const char *name =
                message_difference(field->nested, (const uint8_t *)left.items + i * bytes,
                                   (const uint8_t *)right.items + i * bytes);
            if (name)
                return name;
        }
        return NULL;
    }
    const size_t bytes = field->kind == WIRE_KIND_str || field->kind == WIRE_KIND_bin ? 1 : 4;
    const bool same = left.count == 0 || memcmp(left.items, right.items, left.count * bytes) == 0;
    return same ? NULL : field->name;
}

const char *message_difference(enum message_id id, const void *a, const void *b)
{
    const struct wire_message *table = wire_message(id);
    for (uint32_t f = 0; f < table->field_count; f++) {
        const struct wire_field *field = &table->fields[f];
        const uint8_t *left = (const uint8_t *)a + field->offset;
        const uint8_t *right = (const uint8_t *)b + field->offset;
        const char *name = NULL;
        if (field->kind <= WIRE_KIND_f32)
            name = memcmp(left, right, field->kind == WIRE_KIND_u64 ? 8 : 4) ? field->name : NULL;
        else if (field->kind == WIRE_KIND_ONE)
            name = message_difference(field->nested, left, right);
        else
            name = array_difference(field, left, right);
        if (name)
            return name;
    }
    return NULL;
}
