/* Functions that every template can call, and the methods of loops and cyclers. */
#include <time.h>

#include "model/text/jinja/jinja_internal.h"

#define FUNCTION(name)                                                                             \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

enum { RANGE_MAX = 100000, TIME_TEXT_MAX = 4096 };

FUNCTION(call_range)
{
    struct jinja_heap *heap = &run->heap;
    int64_t start = 0, step = 1;
    int64_t stop = value_as_int(heap, a[0], "a bound of range()");
    if (a[1].kind != KIND_ABSENT) {
        start = stop;
        stop = value_as_int(heap, a[1], "a bound of range()");
    }
    if (a[2].kind != KIND_ABSENT)
        step = value_as_int(heap, a[2], "the step of range()");
    if (step == 0)
        jinja_fail(heap, STATUS_INVALID, "range() arg 3 must not be zero");
    const long double exact = ((long double)stop - (long double)start) / (long double)step;
    if (exact > RANGE_MAX)
        jinja_fail(heap, STATUS_LIMIT, "the range has more than %d items, the limit", RANGE_MAX);
    struct value range = value_list(heap, KIND_RANGE);
    range.list->start = start;
    range.list->stop = stop;
    range.list->step = step;
    for (int64_t at = start; step > 0 ? at < stop : at > stop; at += step) {
        list_add(heap, range.list, value_int(at));
        if (step > 0 ? step >= stop - at : step <= stop - at)
            break;
    }
    return range;
}

static void pairs_add(struct jinja_run *run, struct dict *dict, struct value from)
{
    struct jinja_heap *heap = &run->heap;
    if (from.kind == KIND_DICT) {
        for (size_t i = 0; i < from.dict->count; i++)
            dict_set(heap, dict, from.dict->entries[i].key, from.dict->entries[i].value);
        return;
    }
    const struct list *pairs = value_items(heap, from);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct list *pair = value_items(heap, pairs->items[i]);
        if (pair->count != 2)
            jinja_fail(heap, STATUS_INVALID, "item %zu of a dict's pairs has %zu values, not 2", i,
                       pair->count);
        dict_set(heap, dict, pair->items[0], pair->items[1]);
    }
}

static struct value dict_made(struct jinja_run *run, const struct args *args)
{
    struct value dict = value_dict(&run->heap);
    if (args->count > 1)
        jinja_fail(&run->heap, STATUS_INVALID, "a dict is made of at most 1 argument, not %zu",
                   args->count);
    if (args->count == 1)
        pairs_add(run, dict.dict, args->items[0]);
    for (size_t i = 0; i < args->named_count; i++) {
        const struct string *name = args->named[i].name;
        dict_set(&run->heap, dict.dict, string_part(&run->heap, name, 0, name->bytes),
                 args->named[i].value);
    }
    return dict;
}

FUNCTION(call_dict)
{
    return dict_made(run, args);
}

FUNCTION(call_namespace)
{
    struct value dict = dict_made(run, args);
    dict.kind = KIND_NAMESPACE;
    return dict;
}

FUNCTION(call_raise)
{
    const struct string *text = value_str(&run->heap, a[0]);
    jinja_fail(&run->heap, STATUS_INVALID, "%.*s",
               (int)(text->bytes < ERROR_TEXT_BYTES ? text->bytes : ERROR_TEXT_BYTES), text->data);
}

FUNCTION(call_strftime)
{
    const struct string *format = value_as_string(&run->heap, a[0], "a format of time");
    char terminated[TIME_TEXT_MAX / 8], out[TIME_TEXT_MAX];
    struct tm when;
    const time_t now = (time_t)run->now_s;
    if (format->bytes == 0)
        return string_text(&run->heap, "");
    if (format->bytes >= sizeof terminated || memchr(format->data, '\0', format->bytes) != NULL ||
        localtime_r(&now, &when) == NULL)
        jinja_fail(&run->heap, STATUS_INVALID,
                   "a format of time has less than %zu bytes and no NUL, and this one has %zu",
                   sizeof terminated, format->bytes);
    memcpy(terminated, format->data, format->bytes);
    terminated[format->bytes] = '\0';
    const size_t bytes = strftime(out, sizeof out, terminated, &when);
    if (!string_is(format, "") && bytes == 0 && !string_is(format, "%p"))
        jinja_fail(&run->heap, STATUS_LIMIT, "the time needs more than %zu bytes, the limit",
                   sizeof out);
    struct value text = string_copy(&run->heap, out, bytes);
    if (format->origin != FROM_TEMPLATE) // what is no conversion is copied
        text.string->origin = FROM_INPUT;
    return text;
}

FUNCTION(call_cycler)
{
    if (args->count == 0)
        jinja_fail(&run->heap, STATUS_INVALID, "at least one item has to be provided");
    struct cycler *cycler = jinja_take(&run->heap, sizeof *cycler);
    for (size_t i = 0; i < args->count; i++)
        list_add(&run->heap, &cycler->items, args->items[i]);
    return (struct value){.kind = KIND_CYCLER, .cycler = cycler};
}

FUNCTION(call_joiner)
{
    struct cycler *joiner = jinja_take(&run->heap, sizeof *joiner);
    list_add(&run->heap, &joiner->items,
             a[0].kind != KIND_ABSENT ? a[0] : string_text(&run->heap, ", "));
    return (struct value){.kind = KIND_JOINER, .cycler = joiner};
}

FUNCTION(loop_cycle)
{
    if (self.kind != KIND_LOOP || args->count == 0)
        jinja_fail(&run->heap, STATUS_INVALID, "no items for cycling given");
    return args->items[self.loop->at % args->count];
}

FUNCTION(loop_changed)
{
    struct value now = value_list(&run->heap, KIND_TUPLE);
    for (size_t i = 0; i < args->count; i++)
        list_add(&run->heap, now.list, args->items[i]);
    struct loop_state *loop = self.loop;
    if (loop->changed_called && value_equal(&run->heap, loop->changed, now))
        return value_bool(false);
    loop->changed_called = true;
    loop->changed = now;
    return value_bool(true);
}

FUNCTION(cycler_next)
{
    const struct value value = self.cycler->items.items[self.cycler->at];
    self.cycler->at = (self.cycler->at + 1) % self.cycler->items.count;
    return value;
}

FUNCTION(cycler_reset)
{
    self.cycler->at = 0;
    return value_none();
}

static const struct builtin functions[] = {
    {"range", "start stop step", 1, call_range},
    {"dict", "*", 0, call_dict},
    {"namespace", "*", 0, call_namespace},
    {"raise_exception", "message", 1, call_raise},
    {"strftime_now", "format", 1, call_strftime},
    {"cycler", "*", 0, call_cycler},
    {"joiner", "sep", 0, call_joiner},
};

static const struct builtin loop_methods[] = {
    {"cycle", "*", 0, loop_cycle},
    {"changed", "*", 0, loop_changed},
};

static const struct builtin cycler_methods[] = {
    {"next", "", 0, cycler_next},
    {"reset", "", 0, cycler_reset},
};

const struct builtin *loop_method_find(const struct string *name)
{
    return builtin_find(loop_methods, ARRAY_COUNT(loop_methods), name);
}

const struct builtin *cycler_method_find(const struct string *name)
{
    return builtin_find(cycler_methods, ARRAY_COUNT(cycler_methods), name);
}

void globals_fill(struct jinja_run *run)
{
    for (size_t i = 0; i < ARRAY_COUNT(functions); i++) {
        struct bound *bound = jinja_take(&run->heap, sizeof *bound);
        bound->builtin = &functions[i];
        const struct value *symbol = dict_find_text(&run->heap, &run->template->symbols,
                                                    functions[i].name, strlen(functions[i].name));
        if (symbol != NULL)
            run->globals[symbol->integer] = (struct value){.kind = KIND_BUILTIN, .bound = bound};
    }
}
