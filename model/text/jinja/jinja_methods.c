/* Methods of strings, dicts and lists. Those that would change a value are named without a
 * function: the sandbox refuses them. */
#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

#define METHOD(name)                                                                               \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

enum { SHARP_S = 0xdf, ANY_CASE_STEP = 16 };

static bool given(struct value value)
{
    return value.kind != KIND_ABSENT && value.kind != KIND_NONE;
}

static const struct string *text_of(struct jinja_run *run, struct value value)
{
    return value_as_string(&run->heap, value, "an argument of a string's method");
}

/* A code point in place of one that begins at `at`, with its mark. */
static void point_put(struct builder *out, const struct string *from, size_t at, uint32_t point)
{
    char bytes[4];
    const int extra = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char)(leads[extra] | point >> (6 * extra));
    for (int i = 1; i <= extra; i++)
        bytes[i] = (char)(0x80 | (point >> (6 * (extra - i)) & 0x3f));
    const bool input =
        from->origin == FROM_INPUT || (from->origin == FROM_BOTH && from->marks[at] != 0);
    builder_add(out, bytes, (size_t)extra + 1, NULL, input ? FROM_INPUT : FROM_TEMPLATE);
}

enum casing { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZED, CASE_TITLED, CASE_SWAPPED };

static struct value cased(struct jinja_run *run, const struct string *text, enum casing casing)
{
    struct builder out = {.heap = &run->heap};
    bool after_letter = false;
    jinja_charge(&run->heap, text->bytes / ANY_CASE_STEP);
    for (size_t at = 0; at < text->bytes;) {
        uint32_t point;
        const size_t next = string_next(text, at, &point);
        const enum unicode_case is = unicode_case(point);
        const bool upper = casing == CASE_UPPER || (casing == CASE_CAPITALIZED && at == 0) ||
                           (casing == CASE_TITLED && !after_letter) ||
                           (casing == CASE_SWAPPED && is == UNICODE_CASE_LOWER);
        after_letter = is != UNICODE_CASE_NONE;
        if (upper && point == SHARP_S) {
            point_put(&out, text, at, 'S');
            point_put(&out, text, at, casing == CASE_UPPER ? 'S' : 's');
        } else {
            point_put(&out, text, at, upper ? unicode_to_upper(point) : unicode_to_lower(point));
        }
        at = next;
    }
    struct value value = builder_value(&out);
    value.string->safe = text->safe;
    return value;
}

METHOD(str_lower)
{
    return cased(run, self.string, CASE_LOWER);
}
METHOD(str_upper)
{
    return cased(run, self.string, CASE_UPPER);
}
METHOD(str_capitalize)
{
    return cased(run, self.string, CASE_CAPITALIZED);
}
METHOD(str_title)
{
    return cased(run, self.string, CASE_TITLED);
}
METHOD(str_swapcase)
{
    return cased(run, self.string, CASE_SWAPPED);
}

static struct value stripped(struct jinja_run *run, struct value self, const struct value *a,
                             bool left, bool right)
{
    return string_strip(&run->heap, self.string, given(a[0]) ? text_of(run, a[0]) : NULL, left,
                        right);
}
METHOD(str_strip)
{
    return stripped(run, self, a, true, true);
}
METHOD(str_lstrip)
{
    return stripped(run, self, a, true, false);
}
METHOD(str_rstrip)
{
    return stripped(run, self, a, false, true);
}

static bool is_space(uint32_t point)
{
    return unicode_is_space(point) || (point >= 0x1c && point <= 0x1f);
}

/* Words between white space; what is left after `most` cuts stays together. */
static struct value words(struct jinja_run *run, const struct string *text, int64_t most)
{
    struct jinja_heap *heap = &run->heap;
    struct value list = value_list(heap, KIND_LIST);
    uint32_t point;
    jinja_charge(heap, text->bytes / ANY_CASE_STEP);
    for (size_t at = 0; at < text->bytes;) {
        size_t next = string_next(text, at, &point);
        if (is_space(point)) {
            at = next;
            continue;
        }
        if (most >= 0 && (int64_t)list.list->count == most) {
            list_add(heap, list.list,
                     string_strip(heap, string_part(heap, text, at, text->bytes).string, NULL,
                                  false, true));
            break;
        }
        size_t end = next;
        while (end < text->bytes) {
            next = string_next(text, end, &point);
            if (is_space(point))
                break;
            end = next;
        }
        list_add(heap, list.list, string_part(heap, text, at, end));
        at = end;
    }
    return list;
}

static void list_turn(struct list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const struct value value = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = value;
    }
}

/* The last place at which needle begins and ends before `end`; SIZE_MAX: nowhere. */
static size_t find_last(struct jinja_run *run, const struct string *text,
                        const struct string *needle, size_t end)
{
    jinja_charge(&run->heap, 1 + needle->bytes / ANY_CASE_STEP);
    if (needle->bytes > end)
        return SIZE_MAX;
    for (size_t at = end - needle->bytes + 1; at > 0; at--) {
        if (memcmp(text->data + at - 1, needle->data, needle->bytes) == 0)
            return at - 1;
        jinja_charge(&run->heap, at % ANY_CASE_STEP == 0 ? 1 + needle->bytes / 64 : 0);
    }
    return SIZE_MAX;
}

static const struct string *separator(struct jinja_run *run, struct value value)
{
    const struct string *text = text_of(run, value);
    if (text->bytes == 0)
        jinja_fail(&run->heap, STATUS_INVALID, "empty separator");
    return text;
}

METHOD(str_split)
{
    struct jinja_heap *heap = &run->heap;
    const int64_t most = given(a[1]) ? value_as_int(heap, a[1], "maxsplit") : -1;
    if (!given(a[0]))
        return words(run, self.string, most);
    const struct string *between = separator(run, a[0]);
    struct value list = value_list(heap, KIND_LIST);
    size_t from = 0;
    while (most < 0 || (int64_t)list.list->count < most) {
        const size_t found = string_find(heap, self.string, between, from);
        if (found == SIZE_MAX)
            break;
        list_add(heap, list.list, string_part(heap, self.string, from, found));
        from = found + between->bytes;
    }
    list_add(heap, list.list, string_part(heap, self.string, from, self.string->bytes));
    return list;
}

/* Words from the right. */
static struct value words_right(struct jinja_run *run, const struct string *text, int64_t most)
{
    struct jinja_heap *heap = &run->heap;
    struct list *all = words(run, text, -1).list;
    if (most < 0 || (int64_t)all->count <= most)
        return (struct value){.kind = KIND_LIST, .list = all};
    const size_t kept = all->count - (size_t)most;
    const struct string *last = all->items[kept - 1].string;
    struct value list = value_list(heap, KIND_LIST);
    const struct string *whole = string_strip(heap, text, NULL, true, false).string;
    list_add(heap, list.list,
             string_part(heap, whole, 0, (size_t)(last->data + last->bytes - whole->data)));
    for (size_t i = kept; i < all->count; i++)
        list_add(heap, list.list, all->items[i]);
    return list;
}

METHOD(str_rsplit)
{
    struct jinja_heap *heap = &run->heap;
    const int64_t most = given(a[1]) ? value_as_int(heap, a[1], "maxsplit") : -1;
    if (!given(a[0]))
        return words_right(run, self.string, most);
    const struct string *between = separator(run, a[0]);
    struct value list = value_list(heap, KIND_LIST);
    size_t end = self.string->bytes;
    while (most < 0 || (int64_t)list.list->count < most) {
        const size_t found = find_last(run, self.string, between, end);
        if (found == SIZE_MAX)
            break;
        list_add(heap, list.list, string_part(heap, self.string, found + between->bytes, end));
        end = found;
    }
    list_add(heap, list.list, string_part(heap, self.string, 0, end));
    list_turn(list.list);
    return list;
}

METHOD(str_splitlines)
{
    return string_lines(&run->heap, self.string, value_true(&run->heap, a[0]));
}

static struct value parted(struct jinja_run *run, const struct string *text, size_t found,
                           size_t bytes, bool right)
{
    struct jinja_heap *heap = &run->heap;
    struct value tuple = value_list(heap, KIND_TUPLE);
    const bool none = found == SIZE_MAX;
    const size_t from = none ? (right ? 0 : text->bytes) : found;
    const size_t to = none ? from : found + bytes;
    list_add(heap, tuple.list, string_part(heap, text, 0, from));
    list_add(heap, tuple.list, string_part(heap, text, from, to));
    list_add(heap, tuple.list, string_part(heap, text, to, text->bytes));
    return tuple;
}
METHOD(str_partition)
{
    const struct string *between = separator(run, a[0]);
    return parted(run, self.string, string_find(&run->heap, self.string, between, 0),
                  between->bytes, false);
}
METHOD(str_rpartition)
{
    const struct string *between = separator(run, a[0]);
    return parted(run, self.string, find_last(run, self.string, between, self.string->bytes),
                  between->bytes, true);
}

/* self[start:stop], as several methods take it. */
static const struct string *ranged(struct jinja_run *run, struct value self, struct value start,
                                   struct value stop)
{
    return slice_get(run, self, given(start) ? start : value_none(),
                     given(stop) ? stop : value_none(), value_none())
        .string;
}

static bool has_end(struct jinja_run *run, const struct string *text, const struct string *end,
                    bool at_start)
{
    jinja_charge(&run->heap, 1 + end->bytes / ANY_CASE_STEP);
    return text->bytes >= end->bytes &&
           memcmp(text->data + (at_start ? 0 : text->bytes - end->bytes), end->data, end->bytes) ==
               0;
}

static struct value has_ends(struct jinja_run *run, struct value self, const struct value *a,
                             bool at_start)
{
    const struct string *text = ranged(run, self, a[1], a[2]);
    if (a[0].kind != KIND_TUPLE)
        return value_bool(has_end(run, text, text_of(run, a[0]), at_start));
    for (size_t i = 0; i < a[0].list->count; i++)
        if (has_end(run, text, text_of(run, a[0].list->items[i]), at_start))
            return value_bool(true);
    return value_bool(false);
}
METHOD(str_startswith)
{
    return has_ends(run, self, a, true);
}
METHOD(str_endswith)
{
    return has_ends(run, self, a, false);
}
METHOD(str_removeprefix)
{
    const struct string *prefix = text_of(run, a[0]);
    const size_t from = has_end(run, self.string, prefix, true) ? prefix->bytes : 0;
    return string_part(&run->heap, self.string, from, self.string->bytes);
}
METHOD(str_removesuffix)
{
    const struct string *suffix = text_of(run, a[0]);
    const size_t gone = has_end(run, self.string, suffix, false) ? suffix->bytes : 0;
    return string_part(&run->heap, self.string, 0, self.string->bytes - gone);
}

METHOD(str_replace)
{
    return string_replace(&run->heap, self.string, text_of(run, a[0]), text_of(run, a[1]),
                          given(a[2]) ? value_as_int(&run->heap, a[2], "count") : -1);
}

static int64_t found_at(struct jinja_run *run, struct value self, const struct value *a, bool last)
{
    const struct string *text = ranged(run, self, a[1], a[2]);
    const struct string *needle = text_of(run, a[0]);
    const size_t found =
        last ? find_last(run, text, needle, text->bytes) : string_find(&run->heap, text, needle, 0);
    if (found == SIZE_MAX)
        return -1;
    const struct string before = {.data = self.string->data,
                                  .bytes = (size_t)(text->data - self.string->data) + found};
    return (int64_t)string_count(&run->heap, &before);
}
METHOD(str_find)
{
    return value_int(found_at(run, self, a, false));
}
METHOD(str_rfind)
{
    return value_int(found_at(run, self, a, true));
}
METHOD(str_index)
{
    const int64_t at = found_at(run, self, a, false);
    if (at < 0)
        jinja_fail(&run->heap, STATUS_INVALID, "substring not found");
    return value_int(at);
}

METHOD(str_count)
{
    const struct string *text = ranged(run, self, a[1], a[2]);
    const struct string *needle = text_of(run, a[0]);
    if (needle->bytes == 0)
        return value_int((int64_t)string_count(&run->heap, text) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = string_find(&run->heap, text, needle, at)) != SIZE_MAX;
         at += needle->bytes)
        count++;
    return value_int(count);
}

METHOD(str_join)
{
    const struct list *items = value_items(&run->heap, a[0]);
    struct builder text = {.heap = &run->heap};
    jinja_charge(&run->heap, items->count);
    for (size_t i = 0; i < items->count; i++) {
        if (i > 0)
            builder_add_string(&text, self.string);
        builder_add_string(&text,
                           value_as_string(&run->heap, items->items[i], "an item of join()"));
    }
    return builder_value(&text);
}

/* Whether all characters are of a class, and there is one. */
static struct value all_are(struct jinja_run *run, const struct string *text,
                            bool (*is)(uint32_t point))
{
    uint32_t point;
    jinja_charge(&run->heap, text->bytes / ANY_CASE_STEP);
    for (size_t at = 0; at < text->bytes;) {
        at = string_next(text, at, &point);
        if (!is(point))
            return value_bool(false);
    }
    return value_bool(text->bytes > 0);
}
static bool is_alnum(uint32_t point)
{
    return unicode_is_letter(point) || unicode_is_digit(point);
}
METHOD(str_isdigit)
{
    return all_are(run, self.string, unicode_is_digit);
}
METHOD(str_isalpha)
{
    return all_are(run, self.string, unicode_is_letter);
}
METHOD(str_isalnum)
{
    return all_are(run, self.string, is_alnum);
}
METHOD(str_isspace)
{
    return all_are(run, self.string, is_space);
}

static struct value as_test(struct jinja_run *run, const char *test, struct value self)
{
    const struct string name = {.data = test, .bytes = strlen(test)};
    const struct args none = {0};
    return builtin_call(run, test_find(&name), self, &none, "method");
}
METHOD(str_islower)
{
    return as_test(run, "lower", self);
}
METHOD(str_isupper)
{
    return as_test(run, "upper", self);
}

static struct value padded(struct jinja_run *run, struct value self, const struct value *a,
                           bool left, bool right)
{
    struct jinja_heap *heap = &run->heap;
    const int64_t width = value_as_int(heap, a[0], "a width");
    const int64_t count = (int64_t)string_count(heap, self.string);
    const struct value fill = given(a[1]) ? a[1] : string_text(heap, " ");
    if (string_count(heap, text_of(run, fill)) != 1)
        jinja_fail(heap, STATUS_INVALID, "the fill character must be exactly one character long");
    const int64_t room = width > count ? width - count : 0;
    const int64_t before = !left ? 0 : !right ? room : room / 2 + (room & width & 1);
    struct builder out = {.heap = heap};
    builder_add_string(&out, arithmetic(run, OP_MULTIPLY, fill, value_int(before)).string);
    builder_add_string(&out, self.string);
    builder_add_string(&out, arithmetic(run, OP_MULTIPLY, fill, value_int(room - before)).string);
    return builder_value(&out);
}
METHOD(str_center)
{
    return padded(run, self, a, true, true);
}
METHOD(str_ljust)
{
    return padded(run, self, a, false, true);
}
METHOD(str_rjust)
{
    return padded(run, self, a, true, false);
}
METHOD(str_zfill)
{
    struct jinja_heap *heap = &run->heap;
    const bool sign =
        self.string->bytes > 0 && (self.string->data[0] == '-' || self.string->data[0] == '+');
    const struct value rest = string_part(heap, self.string, sign, self.string->bytes);
    const struct value values[] = {value_int(value_as_int(heap, a[0], "a width") - sign),
                                   string_text(heap, "0")};
    struct builder out = {.heap = heap};
    builder_add_string(&out, string_part(heap, self.string, 0, sign).string);
    builder_add_string(&out, padded(run, rest, values, true, false).string);
    return builder_value(&out);
}

static const struct builtin string_methods[] = {
    {"split", "sep maxsplit", 0, str_split},
    {"rsplit", "sep maxsplit", 0, str_rsplit},
    {"splitlines", "keepends", 0, str_splitlines},
    {"partition", "sep", 1, str_partition},
    {"rpartition", "sep", 1, str_rpartition},
    {"strip", "chars", 0, str_strip},
    {"lstrip", "chars", 0, str_lstrip},
    {"rstrip", "chars", 0, str_rstrip},
    {"startswith", "prefix start end", 1, str_startswith},
    {"endswith", "suffix start end", 1, str_endswith},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"replace", "old new count", 2, str_replace},
    {"lower", "", 0, str_lower},
    {"casefold", "", 0, str_lower},
    {"upper", "", 0, str_upper},
    {"title", "", 0, str_title},
    {"capitalize", "", 0, str_capitalize},
    {"swapcase", "", 0, str_swapcase},
    {"find", "sub start end", 1, str_find},
    {"rfind", "sub start end", 1, str_rfind},
    {"index", "sub start end", 1, str_index},
    {"count", "sub start end", 1, str_count},
    {"join", "iterable", 1, str_join},
    {"format", "*", 0, string_method_format},
    {"isdigit", "", 0, str_isdigit},
    {"isdecimal", "", 0, str_isdigit},
    {"isnumeric", "", 0, str_isdigit},
    {"isalpha", "", 0, str_isalpha},
    {"isalnum", "", 0, str_isalnum},
    {"isspace", "", 0, str_isspace},
    {"islower", "", 0, str_islower},
    {"isupper", "", 0, str_isupper},
    {"center", "width fillchar", 1, str_center},
    {"ljust", "width fillchar", 1, str_ljust},
    {"rjust", "width fillchar", 1, str_rjust},
    {"zfill", "width", 1, str_zfill},
};

const struct builtin *string_method_find(const struct string *name)
{
    return builtin_find(string_methods, ARRAY_COUNT(string_methods), name);
}
