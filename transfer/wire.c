/* Messages as msgpack, driven by the field tables; the one file that names msgpack.
 *
 * Encoding uses the library's packer on a buffer. Decoding uses the library's parser template with
 * our own callbacks instead of its object tree: the tree allocates what a header claims before
 * anyone can look at it, while the callbacks see every count first. They keep three bounds: depth,
 * the field's limit, and a budget of items (everything announced takes a byte at least, so all
 * counts together can never pass the bytes of the payload). Values go straight into the struct;
 * only arrays take memory, from the arena. */
#include "transfer/wire_internal.h"

#include <msgpack.h>

#include "base/check.h"

/* ---- encoding ---- */

static int packer_write(void *data, const char *bytes, size_t count)
{
    buffer_add(data, bytes, count);
    return 0;
}

static uint64_t number_at(const struct wire_field *field, const uint8_t *at)
{
    return field->kind == WIRE_KIND_u64 ? load_le64(at) : load_le32(at);
}

static bool is_number(enum wire_kind kind)
{
    return kind <= WIRE_KIND_f32;
}

/* Missing means zero or empty, so such fields are not sent. */
static bool field_is_empty(const struct wire_field *field, const uint8_t *at)
{
    if (is_number(field->kind))
        return number_at(field, at) == 0;
    if (field->kind == WIRE_KIND_ONE)
        return false;
    return ((const struct wire_items *)(const void *)at)->count == 0;
}

static enum status field_check_limit(const struct wire_message *message,
                                     const struct wire_field *field, uint64_t value,
                                     struct error *error)
{
    if (field->limit == 0 || value <= field->limit)
        return STATUS_OK;
    const char *noun = field->kind <= WIRE_KIND_u64                                   ? ""
                       : field->kind == WIRE_KIND_str || field->kind == WIRE_KIND_bin ? " bytes"
                                                                                      : " items";
    return error_set(error, STATUS_LIMIT, "%s.%s has %llu%s, the limit is %llu", message->name,
                     field->name, (unsigned long long)value, noun,
                     (unsigned long long)field->limit);
}

static enum status message_encode(const struct wire_message *message, const uint8_t *data,
                                  msgpack_packer *packer, struct error *error);

static enum status list_encode(const struct wire_field *field, const struct wire_items *list,
                               msgpack_packer *packer, struct error *error)
{
    const struct wire_message *nested = wire_message(field->nested);
    msgpack_pack_array(packer, list->count);
    for (uint32_t i = 0; i < list->count; i++)
        TRY(message_encode(nested, (const uint8_t *)list->items + (size_t)i * nested->bytes, packer,
                           error));
    return STATUS_OK;
}

static void numbers_encode(enum wire_kind kind, const struct wire_items *list,
                           msgpack_packer *packer)
{
    msgpack_pack_array(packer, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        if (kind == WIRE_KIND_i32s)
            msgpack_pack_int32(packer, ((const int32_t *)list->items)[i]);
        else if (kind == WIRE_KIND_u32s)
            msgpack_pack_uint32(packer, ((const uint32_t *)list->items)[i]);
        else
            msgpack_pack_float(packer, ((const float *)list->items)[i]);
    }
}

static enum status field_encode(const struct wire_message *message, const struct wire_field *field,
                                const uint8_t *at, msgpack_packer *packer, struct error *error)
{
    const struct wire_items *items = (const void *)at;
    float number;
    if (field->kind == WIRE_KIND_u32 || field->kind == WIRE_KIND_u64)
        TRY(field_check_limit(message, field, number_at(field, at), error));
    else if (field->kind >= WIRE_KIND_str && field->kind != WIRE_KIND_ONE)
        TRY(field_check_limit(message, field, items->count, error));
    msgpack_pack_uint32(packer, field->key);
    switch (field->kind) {
    case WIRE_KIND_u32:
    case WIRE_KIND_u64:
        msgpack_pack_uint64(packer, number_at(field, at));
        return STATUS_OK;
    case WIRE_KIND_i32:
        msgpack_pack_int32(packer, (int32_t)load_le32(at));
        return STATUS_OK;
    case WIRE_KIND_f32:
        memcpy(&number, at, sizeof number);
        msgpack_pack_float(packer, number);
        return STATUS_OK;
    case WIRE_KIND_str:
        msgpack_pack_str(packer, items->count);
        msgpack_pack_str_body(packer, items->items, items->count);
        return STATUS_OK;
    case WIRE_KIND_bin:
        msgpack_pack_bin(packer, items->count);
        msgpack_pack_bin_body(packer, items->items, items->count);
        return STATUS_OK;
    case WIRE_KIND_i32s:
    case WIRE_KIND_u32s:
    case WIRE_KIND_f32s:
        numbers_encode(field->kind, items, packer);
        return STATUS_OK;
    case WIRE_KIND_ONE:
        return message_encode(wire_message(field->nested), at, packer, error);
    case WIRE_KIND_LIST:
        return list_encode(field, items, packer, error);
    }
    return error_set(error, STATUS_INTERNAL, "%s.%s has no kind", message->name, field->name);
}

static enum status message_encode(const struct wire_message *message, const uint8_t *data,
                                  msgpack_packer *packer, struct error *error)
{
    uint32_t count = 0;
    for (uint32_t f = 0; f < message->field_count; f++)
        count += !field_is_empty(&message->fields[f], data + message->fields[f].offset);
    msgpack_pack_map(packer, count);
    for (uint32_t f = 0; f < message->field_count; f++) {
        const struct wire_field *field = &message->fields[f];
        if (!field_is_empty(field, data + field->offset))
            TRY(field_encode(message, field, data + field->offset, packer, error));
    }
    return STATUS_OK;
}

enum status wire_encode(enum message_id id, const void *message, struct buffer *out,
                        struct error *error)
{
    const struct wire_message *table = wire_message(id);
    if (table->type == 0)
        return error_set(error, STATUS_INVALID, "%s only stands inside other messages",
                         table->name);
    const size_t start = out->size;
    uint8_t prefix[WIRE_PREFIX_BYTES];
    store_le32(prefix, WIRE_MAGIC);
    store_le16(prefix + 4, WIRE_MAJOR);
    store_le16(prefix + 6, WIRE_MINOR);
    store_le32(prefix + 8, table->type);
    store_le32(prefix + 12, 0);
    store_le32(prefix + WIRE_CRC_AT, 0);
    buffer_add(out, prefix, sizeof prefix);

    msgpack_packer packer;
    msgpack_packer_init(&packer, out, packer_write);
    enum status status = message_encode(table, message, &packer, error);
    const size_t payload = out->size - start - WIRE_PREFIX_BYTES;
    if (status == STATUS_OK && payload > WIRE_FRAME_BYTES_MAX)
        status = error_set(error, STATUS_LIMIT, "%s takes %zu bytes, the limit is %d", table->name,
                           payload, WIRE_FRAME_BYTES_MAX);
    if (status != STATUS_OK) {
        out->size = start;
        out->data[start] = '\0';
        return status;
    }
    store_le32(out->data + start + 12, (uint32_t)payload);
    store_le32(out->data + start + WIRE_CRC_AT,
               wire_frame_crc(out->data + start, out->size - start));
    return STATUS_OK;
}

/* ---- decoding ---- */

enum frame_kind {
    FRAME_MESSAGE, /* a map of a message we know */
    FRAME_NUMBERS, /* an array of numbers */
    FRAME_LIST,    /* an array of messages */
    FRAME_SKIP,    /* below a key that is not known */
};

/* One open map or array. */
struct frame {
    enum frame_kind kind;
    uint32_t index; /* of the next item */
    uint64_t left;  /* keys and values still to come */
    const struct wire_message *message;
    const struct wire_field *field; /* of the value to come; of the array itself */
    uint8_t *target;                /* the struct, or the items */
    uint64_t seen;                  /* fields that came already, by table index */
};

struct decoder {
    const struct wire_message *message;
    void *out;
    struct wire_arena *arena;
    struct error *error;
    enum status status; /* OK until a callback refused something */
    uint64_t items_left;
    uint32_t depth;
    struct frame frames[WIRE_DEPTH_MAX];
};

/* A number, a string or a constant as it stands on the wire. */
enum value_kind { VALUE_UINT, VALUE_INT, VALUE_FLOAT, VALUE_STR, VALUE_BIN, VALUE_OTHER };
struct value {
    enum value_kind kind;
    uint64_t u;
    int64_t i; /* VALUE_INT: negative */
    double f;
    const char *data;
    uint32_t bytes;
};

static int decoder_fail(struct decoder *decoder, enum status status)
{
    decoder->status = status;
    return MSGPACK_UNPACK_PARSE_ERROR;
}

static int decoder_wrong_type(struct decoder *decoder, const struct frame *frame)
{
    if (!frame || !frame->field)
        return decoder_fail(decoder,
                            error_set(decoder->error, STATUS_CORRUPT,
                                      "%s is not a map with integer keys", decoder->message->name));
    return decoder_fail(decoder,
                        error_set(decoder->error, STATUS_CORRUPT, "%s.%s has the wrong type",
                                  frame->message->name, frame->field->name));
}

static bool expects_key(const struct frame *frame)
{
    return frame->kind == FRAME_MESSAGE && frame->left % 2 == 0;
}

/* A value is complete; containers that are full with it are complete too. */
static void value_done(struct decoder *decoder)
{
    while (decoder->depth > 0) {
        if (--decoder->frames[decoder->depth - 1].left > 0)
            return;
        decoder->depth--;
    }
}

static int take_key(struct decoder *decoder, struct frame *frame, const struct value *value)
{
    frame->field = NULL;
    if (value->kind != VALUE_UINT)
        return decoder_wrong_type(decoder, frame);
    for (uint32_t f = 0; f < frame->message->field_count; f++) {
        if (frame->message->fields[f].key != value->u)
            continue;
        frame->field = &frame->message->fields[f];
        if (frame->seen >> f & 1)
            return decoder_fail(decoder,
                                error_set(decoder->error, STATUS_CORRUPT, "%s.%s comes twice",
                                          frame->message->name, frame->field->name));
        frame->seen |= UINT64_C(1) << f;
        break;
    }
    return 0;
}

/* A u32, i32 or f32 into four bytes. False when it is not such a number. */
static bool store_number(enum wire_kind kind, const struct value *value, uint8_t *at)
{
    if (kind == WIRE_KIND_f32 || kind == WIRE_KIND_f32s) {
        if (value->kind != VALUE_FLOAT)
            return false;
        const float number = (float)value->f;
        memcpy(at, &number, sizeof number);
        return true;
    }
    if (kind == WIRE_KIND_i32 || kind == WIRE_KIND_i32s) {
        if (value->kind == VALUE_UINT ? value->u > INT32_MAX
                                      : value->kind != VALUE_INT || value->i < INT32_MIN)
            return false;
        store_le32(at, value->kind == VALUE_UINT ? (uint32_t)value->u : (uint32_t)value->i);
        return true;
    }
    if (value->kind != VALUE_UINT || value->u > UINT32_MAX)
        return false;
    store_le32(at, (uint32_t)value->u);
    return true;
}

static int take_field(struct decoder *decoder, struct frame *frame, const struct value *value)
{
    const struct wire_field *field = frame->field;
    uint8_t *at = frame->target + field->offset;
    uint64_t measure = 0;
    if (field->kind == WIRE_KIND_str || field->kind == WIRE_KIND_bin) {
        if (value->kind != (field->kind == WIRE_KIND_str ? VALUE_STR : VALUE_BIN))
            return decoder_wrong_type(decoder, frame);
        measure = value->bytes;
        *(struct wire_items *)(void *)at =
            (struct wire_items){value->bytes ? value->data : NULL, value->bytes};
    } else if (field->kind == WIRE_KIND_u64) {
        if (value->kind != VALUE_UINT)
            return decoder_wrong_type(decoder, frame);
        measure = value->u;
        store_le64(at, value->u);
    } else {
        if (!is_number(field->kind) || !store_number(field->kind, value, at))
            return decoder_wrong_type(decoder, frame);
        measure = field->kind == WIRE_KIND_u32 ? value->u : 0;
    }
    const enum status status = field_check_limit(frame->message, field, measure, decoder->error);
    return status == STATUS_OK ? 0 : decoder_fail(decoder, status);
}

static int take_value(struct decoder *decoder, const struct value *value)
{
    if (decoder->depth == 0)
        return decoder_wrong_type(decoder, NULL);
    struct frame *frame = &decoder->frames[decoder->depth - 1];
    int result = 0;
    if (expects_key(frame))
        result = take_key(decoder, frame, value);
    else if (frame->kind == FRAME_MESSAGE && frame->field)
        result = take_field(decoder, frame, value);
    else if (frame->kind == FRAME_LIST)
        result = decoder_wrong_type(decoder, frame);
    else if (frame->kind == FRAME_NUMBERS &&
             !store_number(frame->field->kind, value, frame->target + 4 * (size_t)frame->index++))
        result = decoder_wrong_type(decoder, frame);
    if (result == 0)
        value_done(decoder);
    return result;
}

static void *arena_take(struct wire_arena *arena, size_t bytes)
{
    const size_t start = (arena->used + 7) & ~(size_t)7;
    if (start > arena->capacity || bytes > arena->capacity - start)
        return NULL;
    arena->used = start + bytes;
    return arena->data + start;
}

/* Makes room for an array field and points the message at it. */
static int open_array(struct decoder *decoder, const struct frame *parent, uint32_t count,
                      struct frame *frame)
{
    const struct wire_field *field = parent->field;
    const bool is_list = field->kind == WIRE_KIND_LIST;
    if (!is_list && (field->kind < WIRE_KIND_i32s || field->kind > WIRE_KIND_f32s))
        return decoder_wrong_type(decoder, parent);
    const enum status status = field_check_limit(parent->message, field, count, decoder->error);
    if (status != STATUS_OK)
        return decoder_fail(decoder, status);
    const size_t item_bytes = is_list ? wire_message(field->nested)->bytes : 4;
    uint8_t *items = count ? arena_take(decoder->arena, count * item_bytes) : NULL;
    if (count && !items)
        return decoder_fail(decoder, error_set(decoder->error, STATUS_LIMIT,
                                               "%s.%s with %u items does not fit in the %zu bytes "
                                               "set aside for a message",
                                               parent->message->name, field->name, count,
                                               decoder->arena->capacity));
    if (is_list && count)
        memset(items, 0, count * item_bytes);
    *(struct wire_items *)(void *)(parent->target + field->offset) =
        (struct wire_items){items, count};
    frame->kind = is_list ? FRAME_LIST : FRAME_NUMBERS;
    frame->target = items;
    frame->field = field;
    frame->message = parent->message;
    return 0;
}

/* A map in a place where a message stands. */
static int open_message(struct decoder *decoder, struct frame *parent, struct frame *frame)
{
    frame->kind = FRAME_MESSAGE;
    if (!parent) {
        frame->message = decoder->message;
        frame->target = decoder->out;
    } else if (parent->kind == FRAME_LIST) {
        frame->message = wire_message(parent->field->nested);
        frame->target = parent->target + (size_t)parent->index++ * frame->message->bytes;
    } else if (parent->kind == FRAME_MESSAGE && parent->field->kind == WIRE_KIND_ONE) {
        frame->message = wire_message(parent->field->nested);
        frame->target = parent->target + parent->field->offset;
    } else {
        return decoder_wrong_type(decoder, parent);
    }
    return 0;
}

static int open_container(struct decoder *decoder, uint32_t count, bool is_map)
{
    const uint64_t items = is_map ? 2 * (uint64_t)count : count;
    if (items > decoder->items_left)
        return decoder_fail(decoder, error_set(decoder->error, STATUS_CORRUPT,
                                               "%s announces %llu items where at most %llu fit",
                                               decoder->message->name, (unsigned long long)items,
                                               (unsigned long long)decoder->items_left));
    decoder->items_left -= items;
    if (decoder->depth == WIRE_DEPTH_MAX)
        return decoder_fail(decoder, error_set(decoder->error, STATUS_LIMIT,
                                               "%s is nested deeper than %d levels",
                                               decoder->message->name, WIRE_DEPTH_MAX));
    struct frame *parent = decoder->depth ? &decoder->frames[decoder->depth - 1] : NULL;
    struct frame *frame = &decoder->frames[decoder->depth];
    *frame = (struct frame){.kind = FRAME_SKIP, .left = items};
    int result = 0;
    if (parent && expects_key(parent)) {
        parent->field = NULL;
        result = decoder_wrong_type(decoder, parent);
    } else if (!parent || (parent->kind != FRAME_SKIP && parent->field)) {
        if (is_map)
            result = open_message(decoder, parent, frame);
        else if (parent && parent->kind == FRAME_MESSAGE)
            result = open_array(decoder, parent, count, frame);
        else
            result = decoder_wrong_type(decoder, parent);
    }
    if (result != 0)
        return result;
    if (items == 0)
        value_done(decoder);
    else
        decoder->depth++;
    return 0;
}

/* The callbacks of the parser template. Its own objects are not used: an int stands for each. */

static int on_unsigned(struct decoder *decoder, uint64_t number)
{
    return take_value(decoder, &(struct value){.kind = VALUE_UINT, .u = number});
}

static int on_signed(struct decoder *decoder, int64_t number)
{
    if (number >= 0)
        return on_unsigned(decoder, (uint64_t)number);
    return take_value(decoder, &(struct value){.kind = VALUE_INT, .i = number});
}

#define ON_NUMBER(suffix, c_type, function)                                                        \
    static int on_##suffix(struct decoder *decoder, c_type number, int *object)                    \
    {                                                                                              \
        *object = 0;                                                                               \
        return function(decoder, number);                                                          \
    }
ON_NUMBER(uint8, uint8_t, on_unsigned)
ON_NUMBER(uint16, uint16_t, on_unsigned)
ON_NUMBER(uint32, uint32_t, on_unsigned)
ON_NUMBER(uint64, uint64_t, on_unsigned)
ON_NUMBER(int8, int8_t, on_signed)
ON_NUMBER(int16, int16_t, on_signed)
ON_NUMBER(int32, int32_t, on_signed)
ON_NUMBER(int64, int64_t, on_signed)

static int on_double(struct decoder *decoder, double number, int *object)
{
    *object = 0;
    return take_value(decoder, &(struct value){.kind = VALUE_FLOAT, .f = number});
}

static int on_float(struct decoder *decoder, float number, int *object)
{
    return on_double(decoder, (double)number, object);
}

static int on_constant(struct decoder *decoder, int *object)
{
    *object = 0;
    return take_value(decoder, &(struct value){.kind = VALUE_OTHER});
}

static int on_str(struct decoder *decoder, const char *base, const char *data, unsigned bytes,
                  int *object)
{
    *object = 0;
    return take_value(decoder, &(struct value){.kind = VALUE_STR, .data = data, .bytes = bytes});
}

static int on_bin(struct decoder *decoder, const char *base, const char *data, unsigned bytes,
                  int *object)
{
    *object = 0;
    return take_value(decoder, &(struct value){.kind = VALUE_BIN, .data = data, .bytes = bytes});
}

static int on_ext(struct decoder *decoder, const char *base, const char *data, unsigned bytes,
                  int *object)
{
    *object = 0;
    return decoder_fail(decoder, error_set(decoder->error, STATUS_CORRUPT,
                                           "%s holds an extension type, which no message uses",
                                           decoder->message->name));
}

static int on_array(struct decoder *decoder, unsigned count, int *object)
{
    *object = 0;
    return open_container(decoder, count, false);
}

static int on_map(struct decoder *decoder, unsigned count, int *object)
{
    *object = 0;
    return open_container(decoder, count, true);
}

static int on_root(struct decoder *decoder)
{
    return 0;
}

static int on_array_item(struct decoder *decoder, int *container, int item)
{
    return 0;
}

static int on_map_item(struct decoder *decoder, int *container, int key, int item)
{
    return 0;
}

#define on_nil   on_constant
#define on_true  on_constant
#define on_false on_constant

#include <msgpack/unpack_define.h>
#define msgpack_unpack_struct(name)     struct wire_parser##name
#define msgpack_unpack_func(type, name) static inline type wire_parser##name
#define msgpack_unpack_callback(name)   on##name
#define msgpack_unpack_object           int
#define msgpack_unpack_user             struct decoder
#include <msgpack/unpack_template.h>

static bool message_by_type(uint32_t type, enum message_id *out)
{
    for (uint32_t i = 0; type != 0 && i < MESSAGE_ID_COUNT; i++)
        if (wire_message((enum message_id)i)->type == type) {
            *out = (enum message_id)i;
            return true;
        }
    return false;
}

enum status wire_decode(uint32_t type, const void *payload, size_t bytes, struct wire_arena *arena,
                        enum message_id *id_out, void *message, size_t message_capacity,
                        struct error *error)
{
    enum message_id id;
    if (!message_by_type(type, &id))
        return error_set(error, STATUS_UNSUPPORTED, "message type %u is not known here", type);
    const struct wire_message *table = wire_message(id);
    CHECK(message_capacity >= table->bytes);
    arena->used = 0;
    memset(message, 0, table->bytes);

    struct wire_parser_context parser;
    parser.user = (struct decoder){
        .message = table, .out = message, .arena = arena, .error = error, .items_left = bytes};
    wire_parser_init(&parser);
    size_t offset = 0;
    const int result = bytes ? wire_parser_execute(&parser, payload, bytes, &offset) : 0;
    if (result == 0)
        return error_set(error, STATUS_CORRUPT, "%s ends in the middle, after %zu bytes",
                         table->name, bytes);
    if (result < 0 && parser.user.status == STATUS_OK)
        return error_set(error, STATUS_CORRUPT, "%s is not msgpack at byte %zu", table->name,
                         offset);
    if (result < 0)
        return parser.user.status;
    if (offset != bytes)
        return error_set(error, STATUS_CORRUPT, "%s has %zu bytes after its end", table->name,
                         bytes - offset);
    *id_out = id;
    return STATUS_OK;
}
