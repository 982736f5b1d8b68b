/* May two nodes exchange pages? Every field of their identities is compared by walking the field
 * table, so a field added to messages.def is compared from the first day. */
#include "transfer/peer_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "transfer/wire_internal.h"

enum { VALUE_BYTES = 80 };

static void value_text(const struct wire_field *field, const uint8_t *at, char out[VALUE_BYTES])
{
    const struct wire_items *items = (const void *)at;
    out[0] = '\0';
    if (field->kind == WIRE_KIND_u32)
        snprintf(out, VALUE_BYTES, "%" PRIu32, load_le32(at));
    else if (field->kind == WIRE_KIND_u64)
        snprintf(out, VALUE_BYTES, "%016" PRIx64, load_le64(at));
    else if (field->kind == WIRE_KIND_f32) {
        float value;
        memcpy(&value, at, sizeof value);
        snprintf(out, VALUE_BYTES, "%.9g", (double)value);
    } else if (items->count == 0)
        snprintf(out, VALUE_BYTES, "nothing");
    else if (field->kind == WIRE_KIND_str)
        snprintf(out, VALUE_BYTES, "\"%.*s\"", (int)(items->count < 70 ? items->count : 70),
                 (const char *)items->items);
    else
        for (uint32_t i = 0; i < items->count && i < 16; i++)
            snprintf(out + (size_t)2 * i, VALUE_BYTES - (size_t)2 * i, "%02x",
                     ((const uint8_t *)items->items)[i]);
}

static bool values_equal(const struct wire_field *field, const uint8_t *a, const uint8_t *b)
{
    if (field->kind == WIRE_KIND_u64)
        return load_le64(a) == load_le64(b);
    if (field->kind <= WIRE_KIND_f32)
        return load_le32(a) == load_le32(b);
    const struct wire_items *left = (const void *)a;
    const struct wire_items *right = (const void *)b;
    return left->count == right->count &&
           (left->count == 0 || memcmp(left->items, right->items, left->count) == 0);
}

static enum status compare(enum message_id id, const uint8_t *decode, const uint8_t *prefill,
                           struct error *error)
{
    const struct wire_message *table = wire_message(id);
    for (uint32_t f = 0; f < table->field_count; f++) {
        const struct wire_field *field = &table->fields[f];
        const uint8_t *ours = decode + field->offset;
        const uint8_t *theirs = prefill + field->offset;
        if (field->kind == WIRE_KIND_ONE) {
            TRY(compare(field->nested, ours, theirs, error));
            continue;
        }
        if (values_equal(field, ours, theirs))
            continue;
        char left[VALUE_BYTES];
        char right[VALUE_BYTES];
        value_text(field, ours, left);
        value_text(field, theirs, right);
        return error_set(error, STATUS_MISMATCH,
                         "%s.%s is %s on the decode node and %s on the prefill node, so they "
                         "cannot exchange pages",
                         table->name, field->name, left, right);
    }
    return STATUS_OK;
}

enum status peer_identity_compare(const struct msg_identity *decode,
                                  const struct msg_identity *prefill, struct error *error)
{
    return compare(MESSAGE_ID_IDENTITY, (const uint8_t *)decode, (const uint8_t *)prefill, error);
}

void peer_boot_text(const uint8_t boot_id[16], char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", boot_id[i]);
}
