/* What the two halves of the GGUF reader share. Private to model/format.
 *
 * Opening parses forward through one `struct reader`: header and keys (gguf_values.c), then the
 * tensor table (gguf.c). Keys stay where they are in the mapping; a value is decoded when asked
 * for, from bytes whose extent was checked at opening. */
#ifndef BATON_MODEL_FORMAT_GGUF_INTERNAL_H
#define BATON_MODEL_FORMAT_GGUF_INTERNAL_H

#include "base/bytes.h"
#include "model/format/gguf.h"
#include "model/format/mapped_file.h"

enum {
    GGUF_ALIGNMENT_FALLBACK = 32,
    GGUF_ALIGNMENT_MAX = 1 << 20,
    GGUF_KEY_BYTES_MAX = 65535,
    GGUF_KEYS_MAX = 1 << 20,
    GGUF_TENSORS_MAX = 1 << 20,
    GGUF_QUOTE_MAX = 64, /* bytes of a foreign name that an error shows */
};

struct gguf_key {
    struct gguf_string name;
    enum gguf_value_type type;
    enum gguf_value_type element; /* arrays; else the same as type */
    uint64_t count;               /* array elements, else 1 */
    const uint8_t *data;          /* the value; an array's first element; a string's length */
    struct gguf_string raw;       /* all bytes of the value */
};

/* Open-addressing index over an array of named things; a slot holds index + 1. */
struct gguf_index {
    uint32_t *slots;
    size_t slot_mask;
};

struct gguf {
    char *path;
    struct mapped_file map;
    uint32_t version;
    struct gguf_key *keys;
    size_t key_count;
    struct gguf_index key_index;
    struct gguf_split split;
    struct tensor_view *tensors;
    char *names; /* the tensors' names, terminated, one after another */
    size_t tensor_count;
    struct gguf_index tensor_index;
};

/* "F32 array" and the like, for messages; the type must be known. */
const char *gguf_type_name(enum gguf_value_type type);
/* Bytes of one element; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_value_type type);

/* Copies a foreign name for a message: cut to GGUF_QUOTE_MAX, unprintable bytes as '?'. */
struct gguf_quote {
    char text[GGUF_QUOTE_MAX + 4];
};
struct gguf_quote gguf_quote(const char *data, size_t bytes);

/* Reads file->key_count keys into file->keys (allocated by the caller of gguf_open's steps). */
enum status gguf_keys_read(struct gguf *file, struct reader *reader, uint64_t count,
                           struct error *error);
const struct gguf_key *gguf_key_find(const struct gguf *file, const char *name);

/* An index with room for `count` things; false when out of memory. */
bool gguf_index_create(struct gguf_index *index, size_t count);
void gguf_index_free(struct gguf_index *index);
/* The slot of a name: one that holds a thing with this name, or the empty one where it belongs.
 * name_of gives the name of thing i. */
typedef struct gguf_string (*gguf_name_function)(const struct gguf *file, size_t i);
uint32_t *gguf_index_slot(const struct gguf_index *index, const struct gguf *file,
                          gguf_name_function name_of, const char *name, size_t bytes);

#endif
