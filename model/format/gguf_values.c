/* Keys and values of a GGUF file: the walk that checks their extent, and the typed getters. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/format/gguf_internal.h"

static const struct {
    const char *name;
    size_t bytes;
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_value_type type)
{
    return value_types[type].name;
}

size_t gguf_type_bytes(enum gguf_value_type type)
{
    return value_types[type].bytes;
}

struct gguf_quote gguf_quote(const char *data, size_t bytes)
{
    struct gguf_quote quote;
    const size_t shown = bytes < GGUF_QUOTE_MAX ? bytes : GGUF_QUOTE_MAX;
    for (size_t i = 0; i < shown; i++)
        quote.text[i] = data[i] >= ' ' && data[i] <= '~' ? data[i] : '?';
    memcpy(quote.text + shown, shown < bytes ? "..." : "", shown < bytes ? 4 : 1);
    return quote;
}

bool gguf_index_create(struct gguf_index *index, size_t count)
{
    size_t slots = 8;
    while (slots < count * 2)
        slots *= 2;
    index->slots = calloc(slots, sizeof *index->slots);
    index->slot_mask = slots - 1;
    return index->slots != NULL;
}

void gguf_index_free(struct gguf_index *index)
{
    free(index->slots);
}

uint32_t *gguf_index_slot(const struct gguf_index *index, const struct gguf *file,
                          gguf_name_function name_of, const char *name, size_t bytes)
{
    size_t at = (size_t)hash64(name, bytes, hash_process_key()) & index->slot_mask;
    for (;; at = (at + 1) & index->slot_mask) {
        uint32_t *slot = &index->slots[at];
        if (*slot == 0)
            return slot;
        const struct gguf_string other = name_of(file, *slot - 1);
        if (other.bytes == bytes && memcmp(other.data, name, bytes) == 0)
            return slot;
    }
}

static struct gguf_string key_name(const struct gguf *file, size_t i)
{
    return file->keys[i].name;
}

static bool string_read(struct reader *reader, struct gguf_string *out)
{
    const uint64_t bytes = reader_u64(reader);
    out->data = reader_bytes(reader, bytes);
    out->bytes = out->data != NULL ? (size_t)bytes : 0;
    return !reader->failed;
}

static enum status key_name_read(struct gguf *file, struct reader *reader, size_t i,
                                 struct gguf_string *out, struct error *error)
{
    if (!string_read(reader, out))
        return error_set(error, STATUS_CORRUPT, "%s is truncated or damaged in key %zu of %zu",
                         file->path, i + 1, file->key_count);
    if (out->bytes == 0 || out->bytes > GGUF_KEY_BYTES_MAX)
        return error_set(
            error, STATUS_CORRUPT,
            "%s is damaged: the name of key %zu has %zu bytes, the limits are 1 and %d", file->path,
            i + 1, out->bytes, GGUF_KEY_BYTES_MAX);
    return STATUS_OK;
}

/* The elements of an array: their type, count and extent. */
static enum status array_read(struct gguf *file, struct reader *reader, struct gguf_key *key,
                              const char *shown, struct error *error)
{
    const uint32_t element = reader_u32(reader);
    key->count = reader_u64(reader);
    key->data = reader->data + reader->offset;
    if (reader->failed)
        return STATUS_OK; // the caller reports the overrun
    if (element >= ARRAY_COUNT(value_types))
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: key '%s' is an array of type %u, the last known is %zu",
                         file->path, shown, element, ARRAY_COUNT(value_types) - 1);
    if (element == GGUF_ARRAY)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: key '%s' is an array of arrays, which Baton does not read",
                         file->path, shown);
    key->element = (enum gguf_value_type)element;
    const size_t least = element == GGUF_STRING ? 8 : gguf_type_bytes(key->element);
    if (key->count > reader_left(reader) / least)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated or damaged: key '%s' claims %llu elements of at least "
                         "%zu bytes, %zu bytes are left",
                         file->path, shown, (unsigned long long)key->count, least,
                         reader_left(reader));
    if (element != GGUF_STRING)
        reader_bytes(reader, key->count * least);
    struct gguf_string skipped;
    for (uint64_t i = 0; element == GGUF_STRING && i < key->count; i++)
        if (!string_read(reader, &skipped))
            break;
    return STATUS_OK;
}

static enum status value_read(struct gguf *file, struct reader *reader, struct gguf_key *key,
                              struct error *error)
{
    const struct gguf_quote shown = gguf_quote(key->name.data, key->name.bytes);
    const uint32_t type = reader_u32(reader);
    if (type >= ARRAY_COUNT(value_types))
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: key '%s' has the value type %u, the last known is %zu",
                         file->path, shown.text, type, ARRAY_COUNT(value_types) - 1);
    key->type = (enum gguf_value_type)type;
    key->element = key->type;
    key->count = 1;
    key->data = reader->data + reader->offset;
    key->raw.data = (const char *)key->data;
    const size_t begin = reader->offset;
    struct gguf_string skipped;
    if (key->type == GGUF_ARRAY)
        TRY(array_read(file, reader, key, shown.text, error));
    else if (key->type == GGUF_STRING)
        string_read(reader, &skipped);
    else
        reader_bytes(reader, gguf_type_bytes(key->type));
    if (reader->failed)
        return error_set(error, STATUS_CORRUPT, "%s is truncated or damaged in the value of '%s'",
                         file->path, shown.text);
    key->raw.bytes = reader->offset - begin;
    return STATUS_OK;
}

size_t gguf_key_count(const struct gguf *file)
{
    return file->key_count;
}

struct gguf_raw_key gguf_key_at(const struct gguf *file, size_t index)
{
    CHECK(index < file->key_count);
    const struct gguf_key *key = &file->keys[index];
    return (struct gguf_raw_key){key->name, key->type, key->raw};
}

enum status gguf_keys_read(struct gguf *file, struct reader *reader, uint64_t count,
                           struct error *error)
{
    enum { KEY_BYTES_LEAST = 8 + 1 + 4 + 1 };
    if (count > reader_left(reader) / KEY_BYTES_LEAST)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated or damaged: it claims %llu keys, %zu bytes are left",
                         file->path, (unsigned long long)count, reader_left(reader));
    if (count > GGUF_KEYS_MAX)
        return error_set(error, STATUS_UNSUPPORTED, "%s has %llu keys, the limit is %d", file->path,
                         (unsigned long long)count, GGUF_KEYS_MAX);
    file->keys = calloc((size_t)count + 1, sizeof *file->keys);
    if (file->keys == NULL || !gguf_index_create(&file->key_index, (size_t)count))
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu keys of %s",
                         (unsigned long long)count, file->path);
    file->key_count = (size_t)count;
    for (size_t i = 0; i < count; i++) {
        struct gguf_key *key = &file->keys[i];
        TRY(key_name_read(file, reader, i, &key->name, error));
        TRY(value_read(file, reader, key, error));
        uint32_t *slot =
            gguf_index_slot(&file->key_index, file, key_name, key->name.data, key->name.bytes);
        if (*slot != 0)
            return error_set(error, STATUS_CORRUPT, "%s is damaged: key '%s' is there twice",
                             file->path, gguf_quote(key->name.data, key->name.bytes).text);
        *slot = (uint32_t)i + 1;
    }
    return STATUS_OK;
}

const struct gguf_key *gguf_key_find(const struct gguf *file, const char *name)
{
    const uint32_t slot = *gguf_index_slot(&file->key_index, file, key_name, name, strlen(name));
    return slot != 0 ? &file->keys[slot - 1] : NULL;
}

static enum status key_get(const struct gguf *file, const char *name, const struct gguf_key **out,
                           struct error *error)
{
    *out = gguf_key_find(file, name);
    return *out != NULL
               ? STATUS_OK
               : error_set(error, STATUS_NOT_FOUND, "%s has no key '%s'", file->path, name);
}

static enum status type_wrong(const struct gguf *file, const char *name, const struct gguf_key *key,
                              const char *wanted, struct error *error)
{
    const bool array = key->type == GGUF_ARRAY;
    return error_set(error, STATUS_INVALID, "%s: key '%s' is of type %s%s, %s is needed",
                     file->path, name, gguf_type_name(key->element), array ? " array" : "", wanted);
}

/* A value of any integer type that is not negative, as u64. */
static enum status unsigned_get(const struct gguf *file, const char *name, uint64_t limit,
                                uint64_t *out, struct error *error)
{
    const struct gguf_key *key;
    TRY(key_get(file, name, &key, error));
    int64_t value = 0;
    switch (key->type) {
    case GGUF_U8:
        value = key->data[0];
        break;
    case GGUF_I8:
        value = (int8_t)key->data[0];
        break;
    case GGUF_U16:
        value = load_le16(key->data);
        break;
    case GGUF_I16:
        value = (int16_t)load_le16(key->data);
        break;
    case GGUF_U32:
        value = load_le32(key->data);
        break;
    case GGUF_I32:
        value = (int32_t)load_le32(key->data);
        break;
    case GGUF_U64:
    case GGUF_I64:
        value = (int64_t)load_le64(key->data);
        break;
    default:
        return type_wrong(file, name, key, "an integer", error);
    }
    const bool negative = value < 0 && key->type != GGUF_U64;
    if (negative)
        return error_set(error, STATUS_INVALID, "%s: key '%s' is %lld, the limits are 0 and %llu",
                         file->path, name, (long long)value, (unsigned long long)limit);
    if ((uint64_t)value > limit)
        return error_set(error, STATUS_INVALID, "%s: key '%s' is %llu, the limit is %llu",
                         file->path, name, (unsigned long long)value, (unsigned long long)limit);
    *out = (uint64_t)value;
    return STATUS_OK;
}

enum status gguf_get_u32(const struct gguf *file, const char *key, uint32_t *out,
                         struct error *error)
{
    uint64_t value = 0;
    TRY(unsigned_get(file, key, UINT32_MAX, &value, error));
    *out = (uint32_t)value;
    return STATUS_OK;
}

enum status gguf_get_u64(const struct gguf *file, const char *key, uint64_t *out,
                         struct error *error)
{
    return unsigned_get(file, key, UINT64_MAX, out, error);
}

enum status gguf_get_f32(const struct gguf *file, const char *key, float *out, struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    float value;
    if (found->type == GGUF_F32) {
        memcpy(&value, found->data, sizeof value);
    } else if (found->type == GGUF_F64) {
        double wide;
        memcpy(&wide, found->data, sizeof wide);
        value = (float)wide;
    } else {
        return type_wrong(file, key, found, "a number with a fraction", error);
    }
    if (!__builtin_isfinite(value))
        return error_set(error, STATUS_INVALID, "%s: key '%s' is %f, a finite number is needed",
                         file->path, key, (double)value);
    *out = value;
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *file, const char *key, bool *out, struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    if (found->type != GGUF_BOOL)
        return type_wrong(file, key, found, "a bool", error);
    if (found->data[0] > 1)
        return error_set(error, STATUS_INVALID, "%s: the bool '%s' is %u, it must be 0 or 1",
                         file->path, key, found->data[0]);
    *out = found->data[0] == 1;
    return STATUS_OK;
}

/* The string whose length field stands at `data`; its extent was checked at opening. */
static struct gguf_string string_at(const uint8_t *data)
{
    return (struct gguf_string){(const char *)data + 8, (size_t)load_le64(data)};
}

enum status gguf_get_string(const struct gguf *file, const char *key, struct gguf_string *out,
                            struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    if (found->type != GGUF_STRING)
        return type_wrong(file, key, found, "a string", error);
    *out = string_at(found->data);
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *file, const char *key, enum gguf_value_type *type_out,
                           uint64_t *count_out, struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    if (found->type != GGUF_ARRAY)
        return type_wrong(file, key, found, "an array", error);
    *type_out = found->element;
    *count_out = found->count;
    return STATUS_OK;
}

enum status gguf_get_strings(const struct gguf *file, const char *key, struct gguf_string **out,
                             uint64_t *count_out, struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    if (found->type != GGUF_ARRAY || found->element != GGUF_STRING)
        return type_wrong(file, key, found, "a string array", error);
    struct gguf_string *strings = calloc((size_t)found->count + 1, sizeof *strings);
    if (strings == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu strings of '%s' in %s",
                         (unsigned long long)found->count, key, file->path);
    const uint8_t *at = found->data;
    for (uint64_t i = 0; i < found->count; i++) {
        strings[i] = string_at(at);
        at += 8 + strings[i].bytes;
    }
    *out = strings;
    *count_out = found->count;
    return STATUS_OK;
}

enum status gguf_get_numbers(const struct gguf *file, const char *key, enum gguf_value_type type,
                             const void **data_out, uint64_t *count_out, struct error *error)
{
    const struct gguf_key *found;
    TRY(key_get(file, key, &found, error));
    CHECK(gguf_type_bytes(type) != 0);
    if (found->type != GGUF_ARRAY || found->element != type) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%s array", gguf_type_name(type));
        return type_wrong(file, key, found, wanted, error);
    }
    *data_out = found->data;
    *count_out = found->count;
    return STATUS_OK;
}
