/* Messages as bytes: a fixed frame prefix read before anything else, then a msgpack map.
 *
 * The structs and enums below come from messages.def. Decoding is bounded in depth, counts, string
 * bytes and total memory; a decoded message points into the frame and into a wire_arena and is
 * valid until either is reused. Pure functions, any thread. */
#ifndef BATON_TRANSFER_WIRE_H
#define BATON_TRANSFER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

enum {
    WIRE_MAGIC = 0x31544142, /* "BAT1" in memory order */
    WIRE_MAJOR = 2,          /* another major is refused with a sentence */
    WIRE_MINOR = 0,          /* another minor is fine: unknown keys are skipped */
    WIRE_PREFIX_BYTES = 20,  /* magic u32, major u16, minor u16, type u32, payload bytes u32, crc */
    WIRE_CRC_AT = 16,        /* CRC-32C of the frame without these four bytes */
    WIRE_FRAME_BYTES_MAX = 32 << 20,
};

enum worker_role { WORKER_PREFILL = 1, WORKER_DECODE = 2 };

/* What a job may ask for that a worker of an earlier version would pass over: a bit each. */
enum worker_ability { WORKER_SCORES = 1 /* tells how likely the tokens of a prompt are */ };

enum finish_code {
    FINISH_NONE,
    FINISH_STOP,   /* an EOS or stop id; its id is not among the tokens */
    FINISH_LENGTH, /* max_tokens or the end of the context */
};

struct wire_str {
    const char *data; /* not terminated; NULL when empty */
    uint32_t bytes;
};
struct wire_bin {
    const uint8_t *data;
    uint32_t bytes;
};
struct wire_i32s {
    const int32_t *items;
    uint32_t count;
};
struct wire_u32s {
    const uint32_t *items;
    uint32_t count;
};
struct wire_f32s {
    const float *items;
    uint32_t count;
};

/* C types of the kinds. */
typedef uint32_t wire_kind_u32;
typedef uint64_t wire_kind_u64;
typedef int32_t wire_kind_i32;
typedef float wire_kind_f32;
typedef struct wire_str wire_kind_str;
typedef struct wire_bin wire_kind_bin;
typedef struct wire_i32s wire_kind_i32s;
typedef struct wire_u32s wire_kind_u32s;
typedef struct wire_f32s wire_kind_f32s;

#define MESSAGE_BEGIN(name, NAME, type) struct msg_##name {
#define FIELD(key, kind, name, limit)   wire_kind_##kind name;
#define FIELD_ONE(key, nested, name)    struct msg_##nested name;
#define FIELD_LIST(key, nested, name, limit)                                                       \
    struct {                                                                                       \
        const struct msg_##nested *items;                                                          \
        uint32_t count;                                                                            \
    } name;
#define MESSAGE_END(name)                                                                          \
    }                                                                                              \
    ;
#include "transfer/messages.def"
#undef MESSAGE_BEGIN
#undef FIELD
#undef FIELD_ONE
#undef FIELD_LIST
#undef MESSAGE_END

enum message_id {
#define MESSAGE_BEGIN(name, NAME, type) MESSAGE_ID_##NAME,
#define FIELD(key, kind, name, limit)
#define FIELD_ONE(key, nested, name)
#define FIELD_LIST(key, nested, name, limit)
#define MESSAGE_END(name)
#include "transfer/messages.def"
#undef MESSAGE_BEGIN
#undef FIELD
#undef FIELD_ONE
#undef FIELD_LIST
#undef MESSAGE_END
    MESSAGE_ID_COUNT
};

/* "offer"; for logs. */
const char *wire_message_name(enum message_id id);
struct wire_str wire_str(const char *terminated);
/* Copies at most capacity-1 bytes and terminates. */
void wire_str_copy(struct wire_str text, char *out, size_t capacity);

/* Memory for lists of decoded messages. */
struct wire_arena {
    uint8_t *data;
    size_t capacity, used;
};
void wire_arena_init(struct wire_arena *arena, size_t capacity);
void wire_arena_free(struct wire_arena *arena);

struct wire_prefix {
    uint16_t major, minor;
    uint32_t type, payload_bytes;
};
/* How large an arena must be so that no payload of this size can fail for lack of it. */
size_t wire_arena_bytes(size_t payload_bytes);

/* AGAIN when fewer than WIRE_PREFIX_BYTES are there; CORRUPT for another magic, MISMATCH for
 * another major, LIMIT for a payload over frame_bytes_max: each with a sentence. */
enum status wire_prefix_read(const void *data, size_t bytes, size_t frame_bytes_max,
                             struct wire_prefix *out, struct error *error);

/* CORRUPT when a whole frame is not what its writer made: a bit that flips on the way, or a stream
 * that lost its place, must not become another token. */
enum status wire_frame_check(const void *frame, size_t bytes, struct error *error);

/* Appends one whole frame. The message struct must be that of the id; its counts and values are
 * checked against the same limits (LIMIT with the field's name; nothing is appended then). */
enum status wire_encode(enum message_id id, const void *message, struct buffer *out,
                        struct error *error);
/* Decodes the payload of a frame of this type into *message (at least wire_message_bytes big),
 * resetting the arena first. UNSUPPORTED for an unknown type, CORRUPT or LIMIT with message and
 * field named otherwise. */
enum status wire_decode(uint32_t type, const void *payload, size_t bytes, struct wire_arena *arena,
                        enum message_id *id_out, void *message, size_t message_capacity,
                        struct error *error);
/* Size of the largest message struct. */
size_t wire_message_bytes_max(void);

#endif
