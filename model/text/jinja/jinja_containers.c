/* Methods of dicts and lists. Those that would change one are named without a function: the
 * sandbox refuses them. */
#include "model/text/jinja/jinja_internal.h"

#define METHOD(name)                                                                               \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

METHOD(dict_items)
{
    struct value view = value_list(&run->heap, KIND_VIEW);
    for (size_t i = 0; i < self.dict->count; i++) {
        struct value pair = value_list(&run->heap, KIND_TUPLE);
        list_add(&run->heap, pair.list, self.dict->entries[i].key);
        list_add(&run->heap, pair.list, self.dict->entries[i].value);
        list_add(&run->heap, view.list, pair);
    }
    return view;
}
METHOD(dict_keys)
{
    struct value view = value_list(&run->heap, KIND_VIEW);
    for (size_t i = 0; i < self.dict->count; i++)
        list_add(&run->heap, view.list, self.dict->entries[i].key);
    return view;
}
METHOD(dict_values)
{
    struct value view = value_list(&run->heap, KIND_VIEW);
    for (size_t i = 0; i < self.dict->count; i++)
        list_add(&run->heap, view.list, self.dict->entries[i].value);
    return view;
}
METHOD(dict_get)
{
    const struct value *found = dict_find(&run->heap, self.dict, a[0]);
    return found != NULL ? *found : a[1].kind != KIND_ABSENT ? a[1] : value_none();
}
METHOD(dict_copy)
{
    struct value copy = value_dict(&run->heap);
    for (size_t i = 0; i < self.dict->count; i++)
        dict_set(&run->heap, copy.dict, self.dict->entries[i].key, self.dict->entries[i].value);
    return copy;
}

static const struct builtin dict_methods[] = {
    {"items", "", 0, dict_items},   {"keys", "", 0, dict_keys},
    {"values", "", 0, dict_values}, {"get", "key default", 1, dict_get},
    {"copy", "", 0, dict_copy},     {"clear", "", 0, NULL},
    {"pop", "", 0, NULL},           {"popitem", "", 0, NULL},
    {"setdefault", "", 0, NULL},    {"update", "", 0, NULL},
};

const struct builtin *dict_method_find(const struct string *name)
{
    return builtin_find(dict_methods, ARRAY_COUNT(dict_methods), name);
}

METHOD(list_index)
{
    for (size_t i = 0; i < self.list->count; i++)
        if (value_equal(&run->heap, self.list->items[i], a[0]))
            return value_int((int64_t)i);
    jinja_fail(&run->heap, STATUS_INVALID, "the value is not in the list");
}
METHOD(list_count)
{
    int64_t count = 0;
    for (size_t i = 0; i < self.list->count; i++)
        count += value_equal(&run->heap, self.list->items[i], a[0]);
    return value_int(count);
}
METHOD(list_copy)
{
    return slice_get(run, self, value_none(), value_none(), value_none());
}

static const struct builtin list_methods[] = {
    {"index", "value", 1, list_index},
    {"count", "value", 1, list_count},
    {"copy", "", 0, list_copy},
    {"append", "", 0, NULL},
    {"clear", "", 0, NULL},
    {"extend", "", 0, NULL},
    {"insert", "", 0, NULL},
    {"pop", "", 0, NULL},
    {"remove", "", 0, NULL},
    {"reverse", "", 0, NULL},
    {"sort", "", 0, NULL},
};

const struct builtin *list_method_find(const struct string *name)
{
    return builtin_find(list_methods, ARRAY_COUNT(list_methods), name);
}
