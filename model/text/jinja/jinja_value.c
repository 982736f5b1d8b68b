/* Values: lists, dicts, and how Python compares, counts and walks them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/hash.h"
#include "model/text/jinja/jinja_internal.h"

enum { SLOTS_FROM = 8 };

struct value value_undefined(struct jinja_heap *heap, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const size_t bytes = strlen(text) + 1;
    char *why = jinja_take(heap, bytes);
    memcpy(why, text, bytes);
    return (struct value){.kind = KIND_UNDEFINED, .why = why};
}

struct value value_list(struct jinja_heap *heap, enum kind kind)
{
    return (struct value){.kind = kind, .list = jinja_take(heap, sizeof(struct list))};
}

void list_add(struct jinja_heap *heap, struct list *list, struct value value)
{
    jinja_charge(heap, 1);
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 4;
        list->items = jinja_grow(heap, list->items, list->capacity * sizeof *list->items,
                                 capacity * sizeof *list->items);
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
}

struct value value_dict(struct jinja_heap *heap)
{
    return (struct value){.kind = KIND_DICT, .dict = jinja_take(heap, sizeof(struct dict))};
}

static uint64_t number_hash(double number)
{
    uint64_t bits;
    number += 0.0; // -0.0 equals 0.0
    memcpy(&bits, &number, sizeof bits);
    return hash_u64_keyed(bits, hash_process_key());
}

/* Equal values have equal hashes: True, 1 and 1.0 are one key. */
static uint64_t value_hash(struct jinja_heap *heap, struct value value)
{
    uint64_t hash = 0;
    switch (value.kind) {
    case KIND_UNDEFINED:
    case KIND_NONE:
        return number_hash((double)value.kind);
    case KIND_BOOL:
    case KIND_INT:
    case KIND_FLOAT:
        return number_hash(value_number(value));
    case KIND_STRING:
        jinja_charge(heap, value.string->bytes / 64);
        return hash64(value.string->data, value.string->bytes, hash_process_key());
    case KIND_TUPLE:
        jinja_enter(heap);
        for (size_t i = 0; i < value.list->count; i++)
            hash =
                hash_u64_keyed(hash + value_hash(heap, value.list->items[i]), hash_process_key());
        jinja_leave(heap);
        return hash;
    default:
        jinja_fail(heap, STATUS_INVALID, "a value of type '%s' can not be a key",
                   value_type(value));
    }
}

static void slots_make(struct jinja_heap *heap, struct dict *dict)
{
    size_t count = 4 * SLOTS_FROM;
    while (count < 4 * dict->count)
        count *= 2;
    dict->slots = jinja_take(heap, count * sizeof *dict->slots);
    dict->slot_mask = count - 1;
    for (size_t i = 0; i < dict->count; i++) {
        size_t slot = dict->entries[i].hash & dict->slot_mask;
        while (dict->slots[slot] != 0)
            slot = (slot + 1) & dict->slot_mask;
        dict->slots[slot] = (uint32_t)i + 1;
    }
}

static struct dict_entry *entry_find(struct jinja_heap *heap, const struct dict *dict,
                                     struct value key, uint64_t hash)
{
    if (dict->slots == NULL) {
        for (size_t i = 0; i < dict->count; i++)
            if (dict->entries[i].hash == hash && value_equal(heap, dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    for (size_t slot = hash & dict->slot_mask; dict->slots[slot] != 0;
         slot = (slot + 1) & dict->slot_mask) {
        struct dict_entry *entry = &dict->entries[dict->slots[slot] - 1];
        if (entry->hash == hash && value_equal(heap, entry->key, key))
            return entry;
    }
    return NULL;
}

void dict_set(struct jinja_heap *heap, struct dict *dict, struct value key, struct value value)
{
    const uint64_t hash = value_hash(heap, key);
    struct dict_entry *entry = entry_find(heap, dict, key, hash);
    jinja_charge(heap, 1);
    if (entry != NULL) {
        entry->value = value;
        return;
    }
    if (dict->count == dict->capacity) {
        const size_t capacity = dict->capacity * 2 + 4;
        dict->entries = jinja_grow(heap, dict->entries, dict->capacity * sizeof *dict->entries,
                                   capacity * sizeof *dict->entries);
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (struct dict_entry){key, value, hash};
    if (dict->count <= SLOTS_FROM)
        return;
    if (dict->slots == NULL || 2 * dict->count > dict->slot_mask) {
        slots_make(heap, dict);
        return;
    }
    size_t slot = hash & dict->slot_mask;
    while (dict->slots[slot] != 0)
        slot = (slot + 1) & dict->slot_mask;
    dict->slots[slot] = (uint32_t)dict->count;
}

struct value *dict_find(struct jinja_heap *heap, const struct dict *dict, struct value key)
{
    struct dict_entry *entry = entry_find(heap, dict, key, value_hash(heap, key));
    return entry != NULL ? &entry->value : NULL;
}

struct value *dict_find_text(struct jinja_heap *heap, const struct dict *dict, const char *text,
                             size_t bytes)
{
    struct string string = {.data = text, .bytes = bytes};
    return dict_find(heap, dict, (struct value){.kind = KIND_STRING, .string = &string});
}

bool value_is_sequence(struct value value)
{
    return value.kind == KIND_LIST || value.kind == KIND_TUPLE || value.kind == KIND_RANGE;
}

bool value_is_number(struct value value)
{
    return value.kind == KIND_BOOL || value.kind == KIND_INT || value.kind == KIND_FLOAT;
}

double value_number(struct value value)
{
    return value.kind == KIND_FLOAT  ? value.real
           : value.kind == KIND_BOOL ? (double)value.boolean
                                     : (double)value.integer;
}

bool value_true(struct jinja_heap *heap, struct value value)
{
    switch (value.kind) {
    case KIND_ABSENT:
    case KIND_UNDEFINED:
    case KIND_NONE:
        return false;
    case KIND_BOOL:
        return value.boolean;
    case KIND_INT:
    case KIND_FLOAT:
        return value_number(value) != 0;
    case KIND_STRING:
        return value.string->bytes > 0;
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_RANGE:
    case KIND_VIEW:
    case KIND_DICT:
        return value_length(heap, value) > 0;
    default:
        return true;
    }
}

static int64_t integer_of(struct value value)
{
    return value.kind == KIND_BOOL ? value.boolean : value.integer;
}

/* Exact, also where an integer has more digits than a double. */
static int numbers_compare(struct value a, struct value b)
{
    if (a.kind != KIND_FLOAT && b.kind != KIND_FLOAT)
        return (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b));
    const long double x = a.kind == KIND_FLOAT ? a.real : (long double)integer_of(a);
    const long double y = b.kind == KIND_FLOAT ? b.real : (long double)integer_of(b);
    return (x > y) - (x < y);
}

static bool dicts_equal(struct jinja_heap *heap, const struct dict *a, const struct dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct dict_entry *entry = entry_find(heap, b, a->entries[i].key, a->entries[i].hash);
        if (entry == NULL || !value_equal(heap, a->entries[i].value, entry->value))
            return false;
    }
    return true;
}

static bool strings_equal(const struct string *a, const struct string *b)
{
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

bool value_equal(struct jinja_heap *heap, struct value a, struct value b)
{
    jinja_charge(heap, 1);
    if (value_is_number(a) && value_is_number(b)) {
        const bool nan =
            (a.kind == KIND_FLOAT && isnan(a.real)) || (b.kind == KIND_FLOAT && isnan(b.real));
        return !nan && numbers_compare(a, b) == 0;
    }
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case KIND_UNDEFINED:
    case KIND_NONE:
        return true;
    case KIND_STRING:
        jinja_charge(heap, a.string->bytes / 64);
        return strings_equal(a.string, b.string);
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_RANGE:
        if (a.list->count != b.list->count)
            return false;
        jinja_enter(heap);
        for (size_t i = 0; i < a.list->count; i++) {
            if (!value_equal(heap, a.list->items[i], b.list->items[i])) {
                jinja_leave(heap);
                return false;
            }
        }
        jinja_leave(heap);
        return true;
    case KIND_DICT: {
        jinja_enter(heap);
        const bool equal = dicts_equal(heap, a.dict, b.dict);
        jinja_leave(heap);
        return equal;
    }
    default:
        return a.list == b.list;
    }
}

static int strings_compare(const struct string *a, const struct string *b)
{
    const size_t shared = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = memcmp(a->data, b->data, shared); // UTF-8 sorts as its code points do
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

int value_compare(struct jinja_heap *heap, struct value a, struct value b, const char *what)
{
    value_use(heap, a);
    value_use(heap, b);
    jinja_charge(heap, 1);
    if (value_is_number(a) && value_is_number(b))
        return numbers_compare(a, b);
    if (a.kind == KIND_STRING && b.kind == KIND_STRING) {
        jinja_charge(heap, a.string->bytes / 64);
        return strings_compare(a.string, b.string);
    }
    if (a.kind != b.kind || (a.kind != KIND_LIST && a.kind != KIND_TUPLE))
        jinja_fail(heap, STATUS_INVALID, "'%s' is not supported between '%s' and '%s'", what,
                   value_type(a), value_type(b));
    jinja_enter(heap);
    int order = 0;
    for (size_t i = 0; order == 0 && i < a.list->count && i < b.list->count; i++)
        if (!value_equal(heap, a.list->items[i], b.list->items[i]))
            order = value_compare(heap, a.list->items[i], b.list->items[i], what);
    jinja_leave(heap);
    return order != 0 ? order : (a.list->count > b.list->count) - (a.list->count < b.list->count);
}

bool value_contains(struct jinja_heap *heap, struct value container, struct value item)
{
    if (container.kind == KIND_STRING) {
        if (item.kind != KIND_STRING)
            jinja_fail(heap, STATUS_INVALID, "'in <string>' requires string, not '%s'",
                       value_type(item));
        return string_find(heap, container.string, item.string, 0) != SIZE_MAX;
    }
    if (container.kind == KIND_DICT)
        return dict_find(heap, container.dict, item) != NULL;
    const struct list *items = value_items(heap, container);
    for (size_t i = 0; i < items->count; i++)
        if (value_equal(heap, items->items[i], item))
            return true;
    return false;
}

size_t value_length(struct jinja_heap *heap, struct value value)
{
    switch (value.kind) {
    case KIND_UNDEFINED:
        return 0;
    case KIND_STRING:
        return string_count(heap, value.string);
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_RANGE:
    case KIND_VIEW:
        return value.list->count;
    case KIND_DICT:
        return value.dict->count;
    case KIND_LOOP:
        return value.loop->count;
    default:
        jinja_fail(heap, STATUS_INVALID, "a value of type '%s' has no length", value_type(value));
    }
}

struct list *value_items(struct jinja_heap *heap, struct value value)
{
    switch (value.kind) {
    case KIND_UNDEFINED:
        return jinja_take(heap, sizeof(struct list));
    case KIND_STRING:
        return string_characters(heap, value.string).list;
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_RANGE:
    case KIND_VIEW:
        return value.list;
    case KIND_GENERATOR: {
        struct list *rest = jinja_take(heap, sizeof *rest);
        *rest = *value.list;
        if (rest->taken > 0) // else there may be no items at all, and no memory of theirs
            rest->items += rest->taken;
        rest->count -= rest->taken;
        value.list->taken = value.list->count;
        return rest;
    }
    case KIND_DICT: {
        struct value keys = value_list(heap, KIND_LIST);
        for (size_t i = 0; i < value.dict->count; i++)
            list_add(heap, keys.list, value.dict->entries[i].key);
        return keys.list;
    }
    default:
        jinja_fail(heap, STATUS_INVALID, "'%s' object is not iterable", value_type(value));
    }
}

const char *value_type(struct value value)
{
    static const char *const names[] = {
        [KIND_ABSENT] = "Undefined", [KIND_UNDEFINED] = "Undefined",
        [KIND_NONE] = "NoneType",    [KIND_BOOL] = "bool",
        [KIND_INT] = "int",          [KIND_FLOAT] = "float",
        [KIND_STRING] = "str",       [KIND_LIST] = "list",
        [KIND_TUPLE] = "tuple",      [KIND_RANGE] = "range",
        [KIND_VIEW] = "dict_view",   [KIND_GENERATOR] = "generator",
        [KIND_DICT] = "dict",        [KIND_NAMESPACE] = "Namespace",
        [KIND_BUILTIN] = "function", [KIND_MACRO] = "Macro",
        [KIND_LOOP] = "LoopContext", [KIND_CYCLER] = "Cycler",
        [KIND_JOINER] = "Joiner",
    };
    return names[value.kind];
}

void value_use(struct jinja_heap *heap, struct value value)
{
    if (value.kind == KIND_UNDEFINED)
        jinja_fail(heap, STATUS_INVALID, "%s", value.why);
}

int64_t value_as_int(struct jinja_heap *heap, struct value value, const char *what)
{
    value_use(heap, value);
    if (value.kind != KIND_INT && value.kind != KIND_BOOL)
        jinja_fail(heap, STATUS_INVALID, "%s must be an int, not '%s'", what, value_type(value));
    return integer_of(value);
}

const struct string *value_as_string(struct jinja_heap *heap, struct value value, const char *what)
{
    value_use(heap, value);
    if (value.kind != KIND_STRING)
        jinja_fail(heap, STATUS_INVALID, "%s must be str, not '%s'", what, value_type(value));
    return value.string;
}

struct value value_from_json(struct jinja_heap *heap, const struct json *json)
{
    struct value value = value_none();
    size_t bytes;
    const char *text;
    switch (json_kind(json)) {
    case JSON_NULL:
        return value;
    case JSON_BOOL:
        return value_bool(json_bool(json));
    case JSON_INT:
        return value_int(json_int(json));
    case JSON_REAL:
        return value_real(json_number(json));
    case JSON_STRING:
        text = json_string(json, &bytes);
        return string_value(heap, text, bytes, FROM_INPUT);
    case JSON_ARRAY:
        value = value_list(heap, KIND_LIST);
        for (size_t i = 0; i < json_count(json); i++)
            list_add(heap, value.list, value_from_json(heap, json_at(json, i)));
        return value;
    case JSON_OBJECT: {
        value = value_dict(heap);
        void *cursor = NULL;
        const char *key;
        const struct json *member;
        while (json_next(json, &cursor, &key, &member))
            dict_set(heap, value.dict, string_value(heap, key, strlen(key), FROM_INPUT),
                     value_from_json(heap, member));
        return value;
    }
    }
    return value;
}
