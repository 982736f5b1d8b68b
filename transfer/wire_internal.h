/* The field tables generated from messages.def: what wire.c walks to encode and decode, and what
 * the tests walk to make random messages. Private to transfer/ and its tests. */
#ifndef BATON_TRANSFER_WIRE_INTERNAL_H
#define BATON_TRANSFER_WIRE_INTERNAL_H

#include "transfer/wire.h"

enum wire_kind {
    WIRE_KIND_u32,
    WIRE_KIND_u64,
    WIRE_KIND_i32,
    WIRE_KIND_f32,
    WIRE_KIND_str,
    WIRE_KIND_bin,
    WIRE_KIND_i32s,
    WIRE_KIND_u32s,
    WIRE_KIND_f32s,
    WIRE_KIND_ONE,
    WIRE_KIND_LIST,
};

struct wire_field {
    uint32_t key;
    enum wire_kind kind;
    uint32_t offset; /* in the message struct */
    uint64_t limit;  /* as messages.def says; 0: any */
    enum message_id nested;
    const char *name;
};

struct wire_message {
    const char *name;
    uint32_t type;
    uint32_t bytes; /* of the struct */
    const struct wire_field *fields;
    uint32_t field_count;
};

uint32_t wire_frame_crc(const void *frame, size_t bytes);
/* Aborts on an id out of range. */
const struct wire_message *wire_message(enum message_id id);

/* What wire_str, wire_bin, wire_i32s, ... and every FIELD_LIST look like in memory. */
struct wire_items {
    const void *items;
    uint32_t count;
};

enum {
    WIRE_DEPTH_MAX = 12, /* maps and arrays inside each other; the messages themselves need 5 */
};

#endif
