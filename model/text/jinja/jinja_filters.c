/* Filters on what can be walked, and those for any value. */
#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

#define FILTER(name)                                                                               \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

static bool given(struct value value)
{
    return value.kind != KIND_ABSENT && value.kind != KIND_NONE;
}

static bool flag(struct jinja_run *run, struct value value)
{
    return value_true(&run->heap, value); // KIND_ABSENT is false
}

/* A string in lower case, anything else as it is: how filters compare by default. */
static struct value folded(struct jinja_run *run, struct value value, bool case_sensitive)
{
    static const struct string lower = {.data = "lower", .bytes = 5};
    if (case_sensitive || value.kind != KIND_STRING)
        return value;
    const struct args none = {0};
    return builtin_call(run, string_method_find(&lower), value, &none, "method");
}

/* What a filter looks at in an item. */
static struct value key_of(struct jinja_run *run, struct value item, struct value attribute,
                           bool case_sensitive)
{
    if (given(attribute))
        item = attribute_path(run, item, attribute);
    return folded(run, item, case_sensitive);
}

FILTER(filter_length)
{
    return value_int((int64_t)value_length(&run->heap, self));
}

FILTER(filter_first)
{
    if (self.kind == KIND_GENERATOR) // takes only one
        return self.list->taken < self.list->count
                   ? self.list->items[self.list->taken++]
                   : value_undefined(&run->heap, "no first item, sequence was empty");
    const struct list *items = value_items(&run->heap, self);
    return items->count > 0 ? items->items[0]
                            : value_undefined(&run->heap, "no first item, sequence was empty");
}

FILTER(filter_last)
{
    if (self.kind == KIND_GENERATOR)
        jinja_fail(&run->heap, STATUS_INVALID, "'generator' object is not reversible");
    const struct list *items = value_items(&run->heap, self);
    return items->count > 0 ? items->items[items->count - 1]
                            : value_undefined(&run->heap, "no last item, sequence was empty");
}

static struct value list_copy(struct jinja_run *run, const struct list *items, enum kind kind)
{
    struct value list = value_list(&run->heap, kind);
    for (size_t i = 0; i < items->count; i++)
        list_add(&run->heap, list.list, items->items[i]);
    return list;
}

FILTER(filter_list)
{
    return list_copy(run, value_items(&run->heap, self), KIND_LIST);
}

FILTER(filter_join)
{
    const struct list *items = value_items(&run->heap, self);
    struct builder text = {.heap = &run->heap};
    jinja_charge(&run->heap, items->count);
    for (size_t i = 0; i < items->count; i++) {
        if (i > 0 && a[0].kind != KIND_ABSENT)
            print_value(&text, a[0]);
        print_value(&text,
                    given(a[1]) ? attribute_path(run, items->items[i], a[1]) : items->items[i]);
    }
    return builder_value(&text);
}

static struct value named_arg(const struct args *args, const char *name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (string_is(args->named[i].name, name))
            return args->named[i].value;
    return (struct value){.kind = KIND_ABSENT};
}

static const struct builtin *named_builtin(struct jinja_run *run, struct value name, bool test)
{
    const struct string *text =
        value_as_string(&run->heap, name, test ? "the name of a test" : "the name of a filter");
    const struct builtin *builtin = test ? test_find(text) : filter_find(text);
    if (builtin == NULL)
        jinja_fail(&run->heap, STATUS_INVALID, "there is no %s named '%.*s'",
                   test ? "test" : "filter", (int)(text->bytes < 40 ? text->bytes : 40),
                   text->data);
    return builtin;
}

/* What is false has no items for these filters, whether or not it can be walked. */
static const struct list *walked(struct jinja_run *run, struct value value)
{
    static const struct list none;
    return value_true(&run->heap, value) ? value_items(&run->heap, value) : &none;
}

FILTER(filter_map)
{
    struct value out = value_list(&run->heap, KIND_GENERATOR);
    const struct value attribute = named_arg(args, "attribute");
    if (args->count == 0 && attribute.kind == KIND_ABSENT)
        jinja_fail(&run->heap, STATUS_INVALID, "the filter 'map' needs the name of a filter");
    const struct list *items = walked(run, self);
    if (args->count == 0) {
        const struct value otherwise = named_arg(args, "default");
        for (size_t i = 0; i < items->count; i++) {
            struct value value = attribute_path(run, items->items[i], attribute);
            if (value.kind == KIND_UNDEFINED && otherwise.kind != KIND_ABSENT)
                value = otherwise;
            list_add(&run->heap, out.list, value);
        }
        return out;
    }
    const struct builtin *builtin = named_builtin(run, args->items[0], false);
    struct args rest = *args;
    rest.items++;
    rest.count--;
    for (size_t i = 0; i < items->count; i++)
        list_add(&run->heap, out.list,
                 builtin_call(run, builtin, items->items[i], &rest, "filter"));
    return out;
}

/* select and its relatives. by_attribute: the first argument says what of an item is tested. */
static struct value selected(struct jinja_run *run, struct value self, const struct args *args,
                             bool by_attribute, bool wanted)
{
    struct jinja_heap *heap = &run->heap;
    struct args rest = *args;
    struct value out = value_list(heap, KIND_GENERATOR);
    if (by_attribute && args->count == 0)
        jinja_fail(heap, STATUS_INVALID, "the filter needs the name of an attribute");
    rest.items += by_attribute;
    rest.count -= by_attribute;
    const struct builtin *test = rest.count > 0 ? named_builtin(run, rest.items[0], true) : NULL;
    rest.items += rest.count > 0;
    rest.count -= rest.count > 0;
    const struct list *items = walked(run, self);
    jinja_charge(heap, items->count);
    for (size_t i = 0; i < items->count; i++) {
        struct value value = items->items[i];
        if (by_attribute)
            value = attribute_path(run, value, args->items[0]);
        if (test != NULL)
            value = builtin_call(run, test, value, &rest, "test");
        if (value_true(heap, value) == wanted)
            list_add(heap, out.list, items->items[i]);
    }
    return out;
}

FILTER(filter_select)
{
    return selected(run, self, args, false, true);
}
FILTER(filter_reject)
{
    return selected(run, self, args, false, false);
}
FILTER(filter_selectattr)
{
    return selected(run, self, args, true, true);
}
FILTER(filter_rejectattr)
{
    return selected(run, self, args, true, false);
}

static struct value pair(struct jinja_run *run, struct value first, struct value second)
{
    struct value tuple = value_list(&run->heap, KIND_TUPLE);
    list_add(&run->heap, tuple.list, first);
    list_add(&run->heap, tuple.list, second);
    return tuple;
}

static struct value dict_pairs(struct jinja_run *run, const struct dict *dict, enum kind kind)
{
    struct value list = value_list(&run->heap, kind);
    for (size_t i = 0; i < dict->count; i++)
        list_add(&run->heap, list.list, pair(run, dict->entries[i].key, dict->entries[i].value));
    return list;
}

FILTER(filter_items)
{
    if (self.kind == KIND_UNDEFINED)
        return value_list(&run->heap, KIND_GENERATOR);
    if (self.kind != KIND_DICT)
        jinja_fail(&run->heap, STATUS_INVALID, "can only get item pairs from a mapping, not '%s'",
                   value_type(self));
    return dict_pairs(run, self.dict, KIND_GENERATOR);
}

/* An item and what it is sorted by. */
struct sorted {
    struct value key, item;
};

/* Merge sort: stable also when reversed, as Python's. */
static void sort(struct jinja_run *run, struct sorted *items, struct sorted *spare, size_t count,
                 bool reverse)
{
    if (count < 2)
        return;
    const size_t half = count / 2;
    sort(run, items, spare, half, reverse);
    sort(run, items + half, spare, count - half, reverse);
    memcpy(spare, items, half * sizeof *items);
    size_t left = 0, right = half, out = 0;
    while (left < half && right < count) {
        const int order = reverse
                              ? value_compare(&run->heap, spare[left].key, items[right].key, "<")
                              : value_compare(&run->heap, items[right].key, spare[left].key, "<");
        items[out++] = order < 0 ? items[right++] : spare[left++];
    }
    while (left < half)
        items[out++] = spare[left++];
}

static struct value sorted_values(struct jinja_run *run, struct sorted *items, size_t count,
                                  bool reverse)
{
    struct value list = value_list(&run->heap, KIND_LIST);
    sort(run, items, jinja_take(&run->heap, (count + 1) * sizeof *items), count, reverse);
    for (size_t i = 0; i < count; i++)
        list_add(&run->heap, list.list, items[i].item);
    return list;
}

/* "a,b" sorts by a, then by b. A list also of one: what is equal is not asked which is less, so
 * that what has no order, such as undefined, may be sorted while there is nothing else. */
static struct value sort_key(struct jinja_run *run, struct value item, struct value attribute,
                             bool case_sensitive)
{
    struct value keys = value_list(&run->heap, KIND_LIST);
    if (attribute.kind != KIND_STRING) {
        list_add(&run->heap, keys.list, key_of(run, item, attribute, case_sensitive));
        return keys;
    }
    for (size_t from = 0; from <= attribute.string->bytes;) {
        size_t to = from;
        while (to < attribute.string->bytes && attribute.string->data[to] != ',')
            to++;
        list_add(
            &run->heap, keys.list,
            key_of(run, item, string_part(&run->heap, attribute.string, from, to), case_sensitive));
        from = to + 1;
    }
    return keys;
}

FILTER(filter_sort)
{
    const struct list *items = value_items(&run->heap, self);
    const bool case_sensitive = flag(run, a[1]);
    struct sorted *sorted = jinja_take(&run->heap, (items->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < items->count; i++)
        sorted[i] =
            (struct sorted){sort_key(run, items->items[i], a[2], case_sensitive), items->items[i]};
    return sorted_values(run, sorted, items->count, flag(run, a[0]));
}

FILTER(filter_dictsort)
{
    if (self.kind != KIND_DICT)
        jinja_fail(&run->heap, STATUS_INVALID, "dictsort needs a dict, not '%s'", value_type(self));
    const bool by_value =
        given(a[1]) && string_is(value_as_string(&run->heap, a[1], "by"), "value");
    if (given(a[1]) && !by_value && !string_is(a[1].string, "key"))
        jinja_fail(&run->heap, STATUS_INVALID, "dictsort sorts by \"key\" or \"value\"");
    const struct list *pairs = dict_pairs(run, self.dict, KIND_LIST).list;
    const bool case_sensitive = flag(run, a[0]);
    struct sorted *sorted = jinja_take(&run->heap, (pairs->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < pairs->count; i++)
        sorted[i] = (struct sorted){
            key_of(run, pairs->items[i], value_int(by_value), case_sensitive), pairs->items[i]};
    return sorted_values(run, sorted, pairs->count, flag(run, a[2]));
}

FILTER(filter_unique)
{
    struct value out = value_list(&run->heap, KIND_GENERATOR);
    struct value seen = value_dict(&run->heap);
    const struct list *items = value_items(&run->heap, self);
    for (size_t i = 0; i < items->count; i++) {
        const struct value key = key_of(run, items->items[i], a[1], flag(run, a[0]));
        if (dict_find(&run->heap, seen.dict, key) != NULL)
            continue;
        dict_set(&run->heap, seen.dict, key, value_none());
        list_add(&run->heap, out.list, items->items[i]);
    }
    return out;
}

FILTER(filter_groupby)
{
    struct jinja_heap *heap = &run->heap;
    const struct list *items = value_items(heap, self);
    const bool case_sensitive = flag(run, a[2]);
    struct sorted *sorted = jinja_take(heap, (items->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < items->count; i++) {
        struct value key = attribute_path(run, items->items[i], a[0]);
        if (key.kind == KIND_UNDEFINED && a[1].kind != KIND_ABSENT)
            key = a[1];
        sorted[i] =
            (struct sorted){folded(run, key, case_sensitive), pair(run, key, items->items[i])};
    }
    const struct list *pairs = sorted_values(run, sorted, items->count, false).list;
    struct value groups = value_list(heap, KIND_LIST);
    struct value last = value_none();
    for (size_t i = 0; i < pairs->count; i++) {
        const struct value *parts = pairs->items[i].list->items;
        const struct value key = folded(run, parts[0], case_sensitive);
        if (i == 0 || !value_equal(heap, key, last))
            list_add(heap, groups.list, pair(run, parts[0], value_list(heap, KIND_LIST)));
        last = key;
        list_add(heap, groups.list->items[groups.list->count - 1].list->items[1].list, parts[1]);
    }
    return groups;
}

FILTER(filter_reverse)
{
    if (self.kind == KIND_STRING)
        return slice_get(run, self, value_none(), value_none(), value_int(-1));
    if (self.kind == KIND_UNDEFINED || self.kind == KIND_GENERATOR || self.kind == KIND_DICT) {
        const struct list *items = value_items(&run->heap, self);
        self = list_copy(run, items, KIND_LIST);
    }
    const struct list *items = value_items(&run->heap, self);
    struct value out = value_list(&run->heap, KIND_GENERATOR);
    for (size_t i = items->count; i > 0; i--)
        list_add(&run->heap, out.list, items->items[i - 1]);
    return out;
}

FILTER(filter_batch)
{
    struct jinja_heap *heap = &run->heap;
    const int64_t size = value_as_int(heap, a[0], "the size of a batch");
    const struct list *items = value_items(heap, self);
    struct value out = value_list(heap, KIND_GENERATOR);
    for (size_t i = 0; i < items->count; i++) {
        struct list *last = out.list->count > 0 ? out.list->items[out.list->count - 1].list : NULL;
        if (last == NULL || (int64_t)last->count == size) {
            list_add(heap, out.list, value_list(heap, KIND_LIST));
            last = out.list->items[out.list->count - 1].list;
        }
        list_add(heap, last, items->items[i]);
    }
    if (given(a[1]) && out.list->count > 0) {
        struct list *last = out.list->items[out.list->count - 1].list;
        while ((int64_t)last->count < size)
            list_add(heap, last, a[1]);
    }
    return out;
}

FILTER(filter_slice)
{
    struct jinja_heap *heap = &run->heap;
    const int64_t count = value_as_int(heap, a[0], "the number of slices");
    const struct list *items = value_items(heap, self);
    struct value out = value_list(heap, KIND_GENERATOR);
    if (count <= 0)
        jinja_fail(heap, STATUS_INVALID, "the number of slices must be positive, but is %lld",
                   (long long)count);
    const size_t each = items->count / (size_t)count, longer = items->count % (size_t)count;
    size_t at = 0;
    for (size_t i = 0; i < (size_t)count; i++) {
        struct value slice = value_list(heap, KIND_LIST);
        for (size_t end = at + each + (i < longer); at < end; at++)
            list_add(heap, slice.list, items->items[at]);
        if (given(a[1]) && i >= longer)
            list_add(heap, slice.list, a[1]);
        list_add(heap, out.list, slice);
    }
    return out;
}

FILTER(filter_sum)
{
    struct value sum = a[1].kind != KIND_ABSENT ? a[1] : value_int(0);
    const struct list *items = value_items(&run->heap, self);
    for (size_t i = 0; i < items->count; i++)
        sum =
            arithmetic(run, OP_ADD, sum,
                       given(a[0]) ? attribute_path(run, items->items[i], a[0]) : items->items[i]);
    return sum;
}

static struct value extreme(struct jinja_run *run, struct value self, const struct value *a,
                            int sign)
{
    const struct list *items = value_items(&run->heap, self);
    if (items->count == 0)
        return value_undefined(&run->heap, "no aggregated item, sequence was empty");
    size_t best = 0;
    struct value best_key = key_of(run, items->items[0], a[1], flag(run, a[0]));
    for (size_t i = 1; i < items->count; i++) {
        const struct value key = key_of(run, items->items[i], a[1], flag(run, a[0]));
        if (value_compare(&run->heap, key, best_key, sign < 0 ? "<" : ">") * sign > 0) {
            best = i;
            best_key = key;
        }
    }
    return items->items[best];
}

FILTER(filter_min)
{
    return extreme(run, self, a, -1);
}
FILTER(filter_max)
{
    return extreme(run, self, a, 1);
}

FILTER(filter_default)
{
    if (self.kind == KIND_UNDEFINED || (flag(run, a[1]) && !value_true(&run->heap, self)))
        return a[0].kind != KIND_ABSENT ? a[0] : string_text(&run->heap, "");
    return self;
}

FILTER(filter_attr)
{
    return attribute_get(run, self, value_as_string(&run->heap, a[0], "an attribute"));
}

static struct value indent_of(struct jinja_run *run, struct value indent)
{
    if (!given(indent))
        return value_none();
    if (indent.kind == KIND_STRING)
        return indent;
    const int64_t width = value_as_int(&run->heap, indent, "an indent");
    return arithmetic(run, OP_MULTIPLY, string_text(&run->heap, " "),
                      value_int(width > 0 ? width : 0));
}

/* As transformers sets it up: json.dumps, with characters as they are. */
FILTER(filter_tojson)
{
    struct jinja_heap *heap = &run->heap;
    struct json_style style = {
        .ascii = flag(run, a[0]), .indent = indent_of(run, a[1]), .sort_keys = flag(run, a[3])};
    style.item_separator = string_text(heap, style.indent.kind == KIND_NONE ? ", " : ",").string;
    style.key_separator = string_text(heap, ": ").string;
    if (given(a[2])) {
        const struct list *separators = value_items(heap, a[2]);
        if (separators->count != 2)
            jinja_fail(heap, STATUS_INVALID, "tojson takes 2 separators, not %zu",
                       separators->count);
        style.item_separator = value_as_string(heap, separators->items[0], "a separator");
        style.key_separator = value_as_string(heap, separators->items[1], "a separator");
    }
    struct builder text = {.heap = heap};
    print_json(&text, self, &style, 0);
    return builder_value(&text);
}

static const struct builtin filters[] = {
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"list", "", 0, filter_list},
    {"join", "d attribute", 0, filter_join},
    {"map", "*", 0, filter_map},
    {"select", "*", 0, filter_select},
    {"reject", "*", 0, filter_reject},
    {"selectattr", "*", 0, filter_selectattr},
    {"rejectattr", "*", 0, filter_rejectattr},
    {"items", "", 0, filter_items},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby},
    {"reverse", "", 0, filter_reverse},
    {"batch", "linecount fill_with", 1, filter_batch},
    {"slice", "slices fill_with", 1, filter_slice},
    {"sum", "attribute start", 0, filter_sum},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"default", "default_value boolean", 0, filter_default},
    {"d", "default_value boolean", 0, filter_default},
    {"attr", "name", 1, filter_attr},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
};

const struct builtin *filter_find(const struct string *name)
{
    const struct builtin *builtin = builtin_find(filters, ARRAY_COUNT(filters), name);
    return builtin != NULL ? builtin : text_filter_find(name);
}
