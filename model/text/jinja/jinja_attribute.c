/* a.b, a['b'] and a[1:2:3]: what jinja2's sandbox gives for them. */
#include "model/text/jinja/jinja_internal.h"

static struct value method(struct jinja_run *run, const struct builtin *builtin, struct value self)
{
    struct bound *bound = jinja_take(&run->heap, sizeof *bound);
    *bound = (struct bound){builtin, self};
    return (struct value){.kind = KIND_BUILTIN, .bound = bound};
}

static struct value member(struct value *found)
{
    return found != NULL ? *found : (struct value){.kind = KIND_ABSENT};
}

static struct value loop_member(struct jinja_run *run, const struct loop_state *loop,
                                const struct string *name)
{
    const struct {
        const char *name;
        struct value value;
    } members[] = {
        {"index", value_int((int64_t)loop->at + 1)},
        {"index0", value_int((int64_t)loop->at)},
        {"revindex", value_int((int64_t)(loop->count - loop->at))},
        {"revindex0", value_int((int64_t)(loop->count - loop->at) - 1)},
        {"first", value_bool(loop->at == 0)},
        {"last", value_bool(loop->at + 1 >= loop->count)},
        {"length", value_int((int64_t)loop->count)},
        {"depth", value_int(loop->depth)},
        {"depth0", value_int((int64_t)loop->depth - 1)},
    };
    for (size_t i = 0; i < ARRAY_COUNT(members); i++)
        if (string_is(name, members[i].name))
            return members[i].value;
    if (string_is(name, "previtem"))
        return loop->at > 0 ? loop->items[loop->at - 1]
                            : value_undefined(&run->heap, "there is no previous item");
    if (string_is(name, "nextitem"))
        return loop->at + 1 < loop->count ? loop->items[loop->at + 1]
                                          : value_undefined(&run->heap, "there is no next item");
    return (struct value){.kind = KIND_ABSENT};
}

static struct value macro_member(struct jinja_run *run, const struct macro *macro,
                                 const struct string *name)
{
    if (string_is(name, "name"))
        return string_value(&run->heap, macro->node->text.data, macro->node->text.bytes,
                            FROM_TEMPLATE);
    if (!string_is(name, "arguments"))
        return (struct value){.kind = KIND_ABSENT};
    struct value list = value_list(&run->heap, KIND_TUPLE);
    for (size_t i = 0; i < macro->node->items.count; i++) {
        const struct string *parameter = &macro->node->items.items[i]->text;
        list_add(&run->heap, list.list,
                 string_value(&run->heap, parameter->data, parameter->bytes, FROM_TEMPLATE));
    }
    return list;
}

/* What Python has as an attribute, KIND_ABSENT for nothing. */
static struct value own_attribute(struct jinja_run *run, struct value of, const struct string *name)
{
    const struct builtin *builtin = NULL;
    switch (of.kind) {
    case KIND_STRING:
        builtin = string_method_find(name);
        break;
    case KIND_DICT:
        builtin = dict_method_find(name);
        break;
    case KIND_LIST:
    case KIND_TUPLE:
    case KIND_RANGE:
        builtin = list_method_find(name);
        break;
    case KIND_NAMESPACE:
        return member(dict_find_text(&run->heap, of.dict, name->data, name->bytes));
    case KIND_MACRO:
        return macro_member(run, of.macro, name);
    case KIND_CYCLER:
        if (string_is(name, "current"))
            return of.cycler->items.items[of.cycler->at];
        builtin = cycler_method_find(name);
        break;
    case KIND_LOOP:
        builtin = loop_method_find(name);
        if (builtin == NULL)
            return loop_member(run, of.loop, name);
        break;
    default:
        break;
    }
    if (builtin == NULL)
        return (struct value){.kind = KIND_ABSENT};
    if (builtin->call == NULL) // in the table, but it would change a value
        return value_undefined(&run->heap, "access to attribute '%s' of '%s' object is unsafe",
                               builtin->name, value_type(of));
    return method(run, builtin, of);
}

/* of[key] by Python's rules, KIND_ABSENT for nothing. */
static struct value own_item(struct jinja_run *run, struct value of, struct value key)
{
    struct jinja_heap *heap = &run->heap;
    if (of.kind == KIND_DICT) {
        switch (key.kind) {
        case KIND_LIST:
        case KIND_DICT:
            return (struct value){.kind = KIND_ABSENT};
        default:
            return member(dict_find(heap, of.dict, key));
        }
    }
    if ((of.kind != KIND_STRING && !value_is_sequence(of)) ||
        (key.kind != KIND_INT && key.kind != KIND_BOOL))
        return (struct value){.kind = KIND_ABSENT};
    int64_t index = value_as_int(heap, key, "an index");
    const int64_t count = (int64_t)value_length(heap, of);
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count)
        return (struct value){.kind = KIND_ABSENT};
    if (of.kind != KIND_STRING)
        return of.list->items[index];
    const size_t at = string_offset(of.string, (size_t)index);
    return string_part(heap, of.string, at, string_next(of.string, at, &(uint32_t){0}));
}

static struct value missing(struct jinja_run *run, struct value of, const struct string *name)
{
    if (of.kind == KIND_NONE)
        return value_undefined(&run->heap, "'None' has no attribute '%.*s'",
                               (int)(name->bytes < 80 ? name->bytes : 80), name->data);
    return value_undefined(&run->heap, "'%s object' has no attribute '%.*s'", value_type(of),
                           (int)(name->bytes < 80 ? name->bytes : 80), name->data);
}

struct value attribute_get(struct jinja_run *run, struct value of, const struct string *name)
{
    value_use(&run->heap, of);
    struct value found = own_attribute(run, of, name);
    if (found.kind == KIND_ABSENT && of.kind == KIND_DICT)
        found = member(dict_find_text(&run->heap, of.dict, name->data, name->bytes));
    return found.kind == KIND_ABSENT ? missing(run, of, name) : found;
}

struct value item_get(struct jinja_run *run, struct value of, struct value key)
{
    value_use(&run->heap, of);
    struct value found = own_item(run, of, key);
    if (found.kind == KIND_ABSENT && key.kind == KIND_STRING)
        found = own_attribute(run, of, key.string);
    return found.kind == KIND_ABSENT ? missing(run, of, value_str(&run->heap, key)) : found;
}

/* A bound of a slice, moved into low .. high. */
static int64_t slice_bound(struct jinja_run *run, struct value bound, int64_t absent, int64_t count,
                           int64_t low, int64_t high)
{
    if (bound.kind == KIND_NONE)
        return absent;
    int64_t at = value_as_int(&run->heap, bound, "a bound of a slice");
    at += at < 0 ? count : 0;
    return at < low ? low : at > high ? high : at;
}

/* Characters of a string from start on, in steps. */
static struct value string_slice(struct jinja_run *run, const struct string *string, int64_t start,
                                 int64_t stop, int64_t step)
{
    struct jinja_heap *heap = &run->heap;
    if (step == 1) {
        const size_t from = string_offset(string, (size_t)start);
        const struct string rest = {.data = string->data + from, .bytes = string->bytes - from};
        const size_t bytes = stop > start ? string_offset(&rest, (size_t)(stop - start)) : 0;
        return string_part(heap, string, from, from + bytes);
    }
    const struct list *characters = string_characters(heap, string).list;
    struct builder text = {.heap = heap};
    for (int64_t at = start; step > 0 ? at < stop : at > stop; at += step) {
        builder_add_string(&text, characters->items[at].string);
        if (step > 0 ? step >= stop - at : step <= stop - at)
            break;
    }
    return builder_value(&text);
}

struct value slice_get(struct jinja_run *run, struct value of, struct value start,
                       struct value stop, struct value step)
{
    struct jinja_heap *heap = &run->heap;
    value_use(heap, of);
    if (of.kind != KIND_STRING && !value_is_sequence(of))
        jinja_fail(heap, STATUS_INVALID, "'%s' object can not be sliced", value_type(of));
    const int64_t by = step.kind == KIND_NONE ? 1 : value_as_int(heap, step, "the step of a slice");
    if (by == 0)
        jinja_fail(heap, STATUS_INVALID, "slice step cannot be zero");
    const int64_t count = (int64_t)value_length(heap, of);
    const int64_t low = by > 0 ? 0 : -1;
    const int64_t high = by > 0 ? count : count - 1;
    const int64_t from = slice_bound(run, start, by > 0 ? 0 : count - 1, count, low, high);
    const int64_t to = slice_bound(run, stop, by > 0 ? count : -1, count, low, high);
    if (of.kind == KIND_STRING)
        return string_slice(run, of.string, from, to, by);
    struct value list = value_list(heap, of.kind == KIND_RANGE ? KIND_LIST : of.kind);
    for (int64_t at = from; by > 0 ? at < to : at > to; at += by) {
        list_add(heap, list.list, of.list->items[at]);
        if (by > 0 ? by >= to - at : by <= to - at) // the next one would be outside, or not an int
            break;
    }
    return list;
}

static int64_t decimal(const char *digits, size_t count)
{
    int64_t number = 0;
    for (size_t i = 0; i < count; i++)
        number = number * 10 + (digits[i] - '0');
    return number;
}

/* jinja2 takes the parts of a path that are digits as numbers. */
struct value attribute_path(struct jinja_run *run, struct value of, struct value path)
{
    struct jinja_heap *heap = &run->heap;
    if (path.kind == KIND_INT)
        return item_get(run, of, path);
    const struct string *text = value_as_string(heap, path, "an attribute");
    for (size_t from = 0; from <= text->bytes;) {
        size_t to = from;
        bool digits = true;
        for (; to < text->bytes && text->data[to] != '.'; to++)
            digits = digits && text->data[to] >= '0' && text->data[to] <= '9';
        struct value key = string_part(heap, text, from, to);
        if (digits && to > from && to - from < 18)
            key = value_int(decimal(text->data + from, to - from));
        of = item_get(run, of, key);
        from = to + 1;
    }
    return of;
}
