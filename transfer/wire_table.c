/* The tables behind the messages, generated from messages.def, and the small helpers of wire.h that
 * need no msgpack. */
#include "transfer/wire_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

/* The ids by their lower-case names, for fields that hold another message. */
#define FIELD(key, kind, field, limit)
#define FIELD_ONE(key, nested, field)
#define FIELD_LIST(key, nested, field, limit)
#define MESSAGE_END(message)
enum {
#define MESSAGE_BEGIN(message, NAME, type) wire_id_##message = MESSAGE_ID_##NAME,
#include "transfer/messages.def"
#undef MESSAGE_BEGIN
};
#undef FIELD
#undef FIELD_ONE
#undef FIELD_LIST
#undef MESSAGE_END

/* One function a message, so that FIELD can take the offset in a struct it does not name. */
#define MESSAGE_BEGIN(message, NAME, type)                                                         \
    static const struct wire_field *fields_##message(uint32_t *count_out)                          \
    {                                                                                              \
        typedef struct msg_##message self;                                                         \
        static const struct wire_field table[] = {
#define FIELD(key, kind, field, limit)                                                             \
    {key, WIRE_KIND_##kind, offsetof(self, field), limit, MESSAGE_ID_COUNT, #field},
#define FIELD_ONE(key, nested, field)                                                              \
    {key, WIRE_KIND_ONE, offsetof(self, field), 0, (enum message_id)wire_id_##nested, #field},
#define FIELD_LIST(key, nested, field, limit)                                                      \
    {key, WIRE_KIND_LIST, offsetof(self, field), limit, (enum message_id)wire_id_##nested, #field},
#define MESSAGE_END(message)                                                                       \
    }                                                                                              \
    ;                                                                                              \
    *count_out = ARRAY_COUNT(table);                                                               \
    return table;                                                                                  \
    }

#include "transfer/messages.def"
#undef MESSAGE_BEGIN
#undef FIELD
#undef FIELD_ONE
#undef FIELD_LIST
#undef MESSAGE_END

#define FIELD(key, kind, field, limit)
#define FIELD_ONE(key, nested, field)
#define FIELD_LIST(key, nested, field, limit)
#define MESSAGE_END(message)

static struct wire_message messages[] = {
#define MESSAGE_BEGIN(message, NAME, type) {#message, type, sizeof(struct msg_##message), NULL, 0},
#include "transfer/messages.def"
#undef MESSAGE_BEGIN
};

/* Field tables are joined to the messages before main, so that every thread only reads. */
__attribute__((constructor)) static void messages_join(void)
{
#define MESSAGE_BEGIN(message, NAME, type)                                                         \
    messages[MESSAGE_ID_##NAME].fields = fields_##message(&messages[MESSAGE_ID_##NAME].field_count);
#include "transfer/messages.def"
#undef MESSAGE_BEGIN
}

const struct wire_message *wire_message(enum message_id id)
{
    CHECK((uint32_t)id < MESSAGE_ID_COUNT);
    return &messages[id];
}

const char *wire_message_name(enum message_id id)
{
    return (uint32_t)id < MESSAGE_ID_COUNT ? messages[id].name : "unknown";
}

size_t wire_message_bytes_max(void)
{
    size_t most = 0;
    for (uint32_t i = 0; i < MESSAGE_ID_COUNT; i++)
        if (messages[i].bytes > most)
            most = messages[i].bytes;
    return most;
}

struct wire_str wire_str(const char *terminated)
{
    const size_t bytes = terminated ? strlen(terminated) : 0;
    CHECK(bytes <= UINT32_MAX);
    return (struct wire_str){bytes ? terminated : NULL, (uint32_t)bytes};
}

void wire_str_copy(struct wire_str text, char *out, size_t capacity)
{
    if (capacity == 0)
        return;
    const size_t bytes = text.bytes < capacity - 1 ? text.bytes : capacity - 1;
    if (bytes > 0)
        memcpy(out, text.data, bytes);
    out[bytes] = '\0';
}

void wire_arena_init(struct wire_arena *arena, size_t capacity)
{
    arena->data = capacity ? malloc(capacity) : NULL;
    CHECK(arena->data || capacity == 0);
    arena->capacity = capacity;
    arena->used = 0;
}

void wire_arena_free(struct wire_arena *arena)
{
    free(arena->data);
    *arena = (struct wire_arena){0};
}

/* Every number in an array takes a byte at least and becomes four; an array's alignment is paid for
 * by its header and key. Lists of messages are bounded by the largest of them. */
size_t wire_arena_bytes(size_t payload_bytes)
{
    size_t list_bytes = 0;
    for (uint32_t i = 0; i < MESSAGE_ID_COUNT; i++)
        for (uint32_t f = 0; f < messages[i].field_count; f++) {
            const struct wire_field *field = &messages[i].fields[f];
            if (field->kind == WIRE_KIND_LIST) {
                const size_t items = field->limit < payload_bytes ? field->limit : payload_bytes;
                const size_t bytes = items * messages[field->nested].bytes;
                list_bytes = bytes > list_bytes ? bytes : list_bytes;
            }
        }
    return 4 * payload_bytes + list_bytes + 64;
}

uint32_t wire_frame_crc(const void *frame, size_t bytes)
{
    const uint32_t crc = crc32c(0, frame, WIRE_CRC_AT);
    return crc32c(crc, (const uint8_t *)frame + WIRE_PREFIX_BYTES, bytes - WIRE_PREFIX_BYTES);
}

enum status wire_frame_check(const void *frame, size_t bytes, struct error *error)
{
    const uint32_t said = load_le32((const uint8_t *)frame + WIRE_CRC_AT);
    const uint32_t found = wire_frame_crc(frame, bytes);
    if (said == found)
        return STATUS_OK;
    return error_set(error, STATUS_CORRUPT,
                     "a frame of %zu bytes has the checksum %08x, its prefix says %08x", bytes,
                     found, said);
}

enum status wire_prefix_read(const void *data, size_t bytes, size_t frame_bytes_max,
                             struct wire_prefix *out, struct error *error)
{
    /* What is wrong is told as soon as it shows: a stranger may never send a whole prefix. */
    const uint8_t *p = data;
    uint8_t magic[4];
    store_le32(magic, WIRE_MAGIC);
    if (bytes > 0 && memcmp(p, magic, bytes < 4 ? bytes : 4) != 0)
        return error_set(error, STATUS_CORRUPT,
                         "what came is not a Baton frame: it begins with "
                         "0x%02x, not with \"BAT1\"",
                         p[0]);
    if (bytes >= 8 && load_le16(p + 4) != WIRE_MAJOR)
        return error_set(error, STATUS_MISMATCH,
                         "the other side speaks protocol %u.%u, this one %u.%u: run the same major "
                         "version on both",
                         load_le16(p + 4), load_le16(p + 6), WIRE_MAJOR, WIRE_MINOR);
    if (bytes < WIRE_PREFIX_BYTES)
        return STATUS_AGAIN;
    const struct wire_prefix prefix = {load_le16(p + 4), load_le16(p + 6), load_le32(p + 8),
                                       load_le32(p + 12)};
    if (prefix.payload_bytes > frame_bytes_max)
        return error_set(error, STATUS_LIMIT, "a frame announces %u bytes, the limit is %zu",
                         prefix.payload_bytes, frame_bytes_max);
    *out = prefix;
    return STATUS_OK;
}
