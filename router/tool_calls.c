#include "router/tool_calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"

bool tool_names_have(const struct tool_names *names, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (strlen(names->items[i]) == bytes && memcmp(names->items[i], name, bytes) == 0)
            return true;
    return false;
}

void tool_calls_init(struct tool_calls *calls, enum tool_style style,
                     const struct tool_names *names, uint32_t told_max, uint64_t id_seed)
{
    *calls = (struct tool_calls){.syntax = tool_syntax(style),
                                 .names = names,
                                 .id_seed = id_seed,
                                 .told_max = told_max,
                                 .part = style == TOOL_STYLE_NONE ? TOOL_PART_REST : TOOL_PART_TEXT,
                                 .edge = true,
                                 .current = -1};
}

void tool_calls_free(struct tool_calls *calls)
{
    for (uint32_t i = 0; i < calls->count; i++)
        buffer_free(&calls->calls[i].arguments);
    free(calls->calls);
    calls->calls = NULL;
    calls->count = calls->capacity = 0;
    buffer_free(&calls->content);
    buffer_free(&calls->held);
    buffer_free(&calls->blank);
    buffer_free(&calls->early);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* ---- text ---- */

static void put_text(struct tool_calls *calls, const char *text, size_t bytes)
{
    size_t blanks = 0;
    while (calls->edge && blanks < bytes && is_blank(text[blanks]))
        blanks++;
    buffer_add(&calls->blank, text, blanks);
    if (blanks == bytes)
        return;
    buffer_add(&calls->content, calls->blank.data, calls->blank.size);
    buffer_clear(&calls->blank);
    buffer_add(&calls->content, text + blanks, bytes - blanks);
    calls->edge = false;
}

static void put_held(struct tool_calls *calls)
{
    put_text(calls, calls->held.data, calls->held.size);
    buffer_clear(&calls->held);
}

static enum tool_part text_part(const struct tool_calls *calls)
{
    return calls->syntax->anywhere ? TOOL_PART_TEXT : TOOL_PART_REST;
}

/* The byte that comes next does not belong to a call: what was held is text, or the call that began
 * is broken. Returns that the byte was not taken. */
static bool refuse(struct tool_calls *calls)
{
    if (calls->begun)
        calls->edge = false;
    calls->begun = false;
    calls->current = -1;
    put_held(calls);
    calls->part = text_part(calls);
    return false;
}

/* ---- calls ---- */

static void make_id(const struct tool_calls *calls, struct tool_call *call)
{
    static const char characters[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t prefix = strlen(calls->syntax->id_prefix);
    const size_t end = prefix + (size_t)calls->syntax->id_characters;
    CHECK(end < sizeof call->id);
    memcpy(call->id, calls->syntax->id_prefix, prefix);
    for (size_t i = prefix; i < end; i++)
        call->id[i] =
            characters[random_at(calls->id_seed, calls->count, i) % (sizeof characters - 1)];
    call->id[end] = '\0';
}

static struct tool_call *add_call(struct tool_calls *calls)
{
    if (calls->count == calls->capacity) {
        calls->capacity = calls->capacity ? calls->capacity * 2 : 4;
        calls->calls = realloc(calls->calls, calls->capacity * sizeof *calls->calls);
        CHECK(calls->calls != NULL);
    }
    struct tool_call *call = &calls->calls[calls->count];
    *call = (struct tool_call){0};
    make_id(calls, call);
    memcpy(call->name, calls->name, calls->name_bytes);
    calls->current = (int32_t)calls->count++;
    return call;
}

/* From here on it is a call, whatever follows. False: there are too many. */
static bool begin_call(struct tool_calls *calls)
{
    if (calls->seen == TOOL_CALLS_MAX)
        return false;
    calls->seen++;
    calls->begun = true;
    calls->current = -1;
    if (calls->count < calls->told_max) {
        struct tool_call *call = add_call(calls);
        buffer_add(&call->arguments, calls->early.data, calls->early.size);
    }
    buffer_clear(&calls->early);
    buffer_clear(&calls->held);
    buffer_clear(&calls->blank);
    return true;
}

static void complete_call(struct tool_calls *calls)
{
    if (calls->current >= 0)
        calls->calls[calls->current].complete = true;
    calls->begun = false;
    calls->current = -1;
    calls->edge = true;
    calls->part = calls->in_list            ? TOOL_PART_AFTER_ITEM
                  : calls->syntax->anywhere ? TOOL_PART_TEXT
                                            : TOOL_PART_AFTER_CALL;
}

static void add_argument_byte(struct tool_calls *calls, char byte)
{
    if (!calls->begun)
        buffer_add_char(&calls->early, byte);
    else if (calls->current >= 0)
        buffer_add_char(&calls->calls[calls->current].arguments, byte);
}

static void open_object(struct tool_calls *calls, enum tool_part part)
{
    json_scan_init(&calls->scan);
    json_scan_byte(&calls->scan, '{');
    buffer_clear(&calls->early);
    calls->part = part;
    calls->begun = calls->arguments_seen = false;
    if (part == TOOL_PART_OBJECT) {
        calls->name_bytes = 0;
        calls->name_known = false;
    }
}

/* ---- a call's object ---- */

static bool key_is(const struct tool_calls *calls, const char *key)
{
    return calls->key_bytes == strlen(key) && memcmp(calls->key, key, calls->key_bytes) == 0;
}

/* False: the object has this member already. */
static bool take_key(struct tool_calls *calls)
{
    calls->field = key_is(calls, "name") ? TOOL_FIELD_NAME
                   : key_is(calls, "arguments") || key_is(calls, "parameters")
                       ? TOOL_FIELD_ARGUMENTS
                       : TOOL_FIELD_OTHER;
    return !(calls->field == TOOL_FIELD_NAME && calls->name_known) &&
           !(calls->field == TOOL_FIELD_ARGUMENTS && calls->arguments_seen);
}

/* A key that is too long for its place is none that matters. */
static void add_key_byte(struct tool_calls *calls, char byte)
{
    if (calls->key_bytes < sizeof calls->key)
        calls->key[calls->key_bytes++] = byte;
}

static bool add_name_byte(struct tool_calls *calls, char byte)
{
    if (calls->name_bytes == sizeof calls->name)
        return false;
    calls->name[calls->name_bytes++] = byte;
    return true;
}

static bool take_name(struct tool_calls *calls)
{
    calls->name_known = tool_names_have(calls->names, calls->name, calls->name_bytes);
    return calls->name_known && (!calls->arguments_seen || begin_call(calls));
}

static bool begin_value(struct tool_calls *calls, char byte)
{
    switch (calls->field) {
    case TOOL_FIELD_NAME:
        calls->name_bytes = 0;
        return byte == '"';
    case TOOL_FIELD_ARGUMENTS:
        calls->arguments_seen = true;
        if (byte != '{' || (calls->name_known && !begin_call(calls)))
            return false;
        add_argument_byte(calls, byte);
        return true;
    default:
        return true;
    }
}

/* A byte that the scan has taken at the level of the call's own members, or below. False: the
 * object is no call. */
static bool follow_member(struct tool_calls *calls, const struct json_scan *before, char byte)
{
    const enum json_scan_state now = calls->scan.state;
    if (before->depth > 1) {
        if (calls->field == TOOL_FIELD_ARGUMENTS)
            add_argument_byte(calls, byte);
        return true;
    }
    switch (before->state) {
    case JSON_SCAN_KEY:
    case JSON_SCAN_KEY_OR_CLOSE:
        calls->key_bytes = 0;
        return true;
    case JSON_SCAN_VALUE:
        return now == JSON_SCAN_VALUE || begin_value(calls, byte);
    case JSON_SCAN_STRING:
        if (before->in_key && now == JSON_SCAN_COLON)
            return take_key(calls);
        if (!before->in_key && calls->field == TOOL_FIELD_NAME)
            return now == JSON_SCAN_AFTER ? take_name(calls) : add_name_byte(calls, byte);
        break;
    default:
        break;
    }
    if (before->in_key)
        add_key_byte(calls, byte);
    return true;
}

static bool close_object(struct tool_calls *calls)
{
    if (!calls->begun) { /* no arguments, or arguments and no name */
        if (!calls->name_known || !calls->syntax->may_lack_arguments)
            return false;
        buffer_add_text(&calls->early, "{}");
        if (!begin_call(calls))
            return false;
    }
    complete_call(calls);
    return true;
}

/* ---- one byte in each part: true when it was taken ---- */

static bool step_rest(struct tool_calls *calls, char byte)
{
    put_text(calls, &byte, 1);
    return true;
}

static bool step_text(struct tool_calls *calls, char byte)
{
    const struct tool_syntax *syntax = calls->syntax;
    calls->in_list = false;
    if (byte == syntax->open[0]) {
        buffer_add_char(&calls->held, byte);
        calls->part = TOOL_PART_MARK;
    } else if (byte == '{' && syntax->tag_optional) {
        buffer_add_char(&calls->held, byte);
        open_object(calls, TOOL_PART_OBJECT);
    } else if (!syntax->anywhere && !is_blank(byte)) {
        calls->part = TOOL_PART_REST;
        return false;
    } else {
        put_text(calls, &byte, 1);
    }
    return true;
}

/* Whether text is the beginning of the mark, or all of it. */
static bool begins(const struct buffer *text, const char *mark, bool *whole_out)
{
    const size_t bytes = strlen(mark);
    *whole_out = text->size == bytes;
    return text->size <= bytes && memcmp(text->data, mark, text->size) == 0;
}

/* The first byte of a mark does not come again in it, so that what is no mark holds none. */
static bool step_mark(struct tool_calls *calls, char byte)
{
    bool whole;
    buffer_add_char(&calls->held, byte);
    if (begins(&calls->held, calls->syntax->open, &whole)) {
        if (whole)
            calls->part = TOOL_PART_OPEN;
        return true;
    }
    const bool closes = calls->syntax->close && calls->edge && calls->seen > 0;
    if (closes && begins(&calls->held, calls->syntax->close, &whole)) {
        if (whole) {
            buffer_clear(&calls->held);
            calls->part = TOOL_PART_TEXT;
        }
        return true;
    }
    calls->held.size--;
    return refuse(calls);
}

/* What may stand where structure is expected, blanks aside. */
enum need { NEED_NOTHING, NEED_ARRAY, NEED_NAME };

static const struct {
    enum tool_part from;
    char byte; /* 'a': what names are made of */
    enum need need;
    enum tool_part to;
} moves[] = {
    {TOOL_PART_OPEN, '{', NEED_NOTHING, TOOL_PART_OBJECT},
    {TOOL_PART_OPEN, '[', NEED_ARRAY, TOOL_PART_ITEM},
    {TOOL_PART_OPEN, 'a', NEED_NAME, TOOL_PART_NAME},
    {TOOL_PART_ITEM, '{', NEED_NOTHING, TOOL_PART_OBJECT},
    {TOOL_PART_AFTER_ITEM, ',', NEED_NOTHING, TOOL_PART_ITEM},
    {TOOL_PART_AFTER_ITEM, ']', NEED_NOTHING, TOOL_PART_TEXT},
    {TOOL_PART_AFTER_CALL, ';', NEED_NOTHING, TOOL_PART_SEPARATED},
    {TOOL_PART_SEPARATED, '{', NEED_NOTHING, TOOL_PART_OBJECT},
    {TOOL_PART_ARGUMENTS_OPEN, '{', NEED_NOTHING, TOOL_PART_ARGUMENTS},
};

static void enter(struct tool_calls *calls, enum tool_part to, char byte)
{
    calls->part = to;
    if (to == TOOL_PART_ITEM) {
        calls->in_list = true;
    } else if (to == TOOL_PART_TEXT) {
        buffer_clear(&calls->held); /* the array's end */
    } else if (to == TOOL_PART_OBJECT) {
        open_object(calls, to);
    } else if (to == TOOL_PART_NAME) {
        calls->name_bytes = 0;
        add_name_byte(calls, byte);
    }
}

static bool step_structure(struct tool_calls *calls, char byte)
{
    const struct tool_syntax *syntax = calls->syntax;
    if (is_blank(byte)) {
        buffer_add_char(&calls->held, byte);
        return true;
    }
    for (size_t i = 0; i < ARRAY_COUNT(moves); i++) {
        if (moves[i].from != calls->part ||
            (moves[i].byte == 'a' ? !is_name(byte) : byte != moves[i].byte) ||
            (moves[i].need == NEED_ARRAY && !syntax->in_array) ||
            (moves[i].need == NEED_NAME && !syntax->by_name))
            continue;
        if (moves[i].to == TOOL_PART_ARGUMENTS) {
            open_object(calls, TOOL_PART_ARGUMENTS);
            if (!begin_call(calls))
                return refuse(calls);
            add_argument_byte(calls, byte);
            return true;
        }
        buffer_add_char(&calls->held, byte);
        enter(calls, moves[i].to, byte);
        return true;
    }
    return refuse(calls);
}

static bool step_object(struct tool_calls *calls, char byte)
{
    const struct json_scan before = calls->scan;
    const enum json_scan_result result = json_scan_byte(&calls->scan, byte);
    if (result == JSON_SCAN_BAD || !follow_member(calls, &before, byte))
        return refuse(calls);
    if (result == JSON_SCAN_DONE)
        return close_object(calls) || refuse(calls);
    if (!calls->begun)
        buffer_add_char(&calls->held, byte);
    return true;
}

static bool step_arguments(struct tool_calls *calls, char byte)
{
    const enum json_scan_result result = json_scan_byte(&calls->scan, byte);
    if (result == JSON_SCAN_BAD)
        return refuse(calls);
    add_argument_byte(calls, byte);
    if (result == JSON_SCAN_DONE)
        complete_call(calls);
    return true;
}

static bool step_name(struct tool_calls *calls, char byte)
{
    if (byte == '[' && tool_names_have(calls->names, calls->name, calls->name_bytes)) {
        calls->part = TOOL_PART_NAME_MARK;
        calls->key_bytes = 0;
        add_key_byte(calls, byte);
    } else if (!is_name(byte) || !add_name_byte(calls, byte)) {
        return refuse(calls);
    }
    buffer_add_char(&calls->held, byte);
    return true;
}

static bool step_name_mark(struct tool_calls *calls, char byte)
{
    add_key_byte(calls, byte);
    const struct buffer mark = {.data = calls->key, .size = calls->key_bytes};
    bool whole;
    if (begins(&mark, TOOL_MARK_ARGUMENTS, &whole)) {
        if (whole)
            calls->part = TOOL_PART_ARGUMENTS_OPEN;
    } else if (begins(&mark, TOOL_MARK_ID, &whole)) {
        if (whole)
            calls->part = TOOL_PART_ID;
    } else {
        return refuse(calls);
    }
    buffer_add_char(&calls->held, byte);
    return true;
}

/* Ours takes its place. */
static bool step_id(struct tool_calls *calls, char byte)
{
    if (byte == '[') {
        calls->part = TOOL_PART_NAME_MARK;
        calls->key_bytes = 0;
        add_key_byte(calls, byte);
    } else if (!is_name(byte)) {
        return refuse(calls);
    }
    buffer_add_char(&calls->held, byte);
    return true;
}

typedef bool step_function(struct tool_calls *calls, char byte);

static step_function *const steps[TOOL_PART_COUNT] = {
    [TOOL_PART_TEXT] = step_text,
    [TOOL_PART_MARK] = step_mark,
    [TOOL_PART_OPEN] = step_structure,
    [TOOL_PART_ITEM] = step_structure,
    [TOOL_PART_AFTER_ITEM] = step_structure,
    [TOOL_PART_AFTER_CALL] = step_structure,
    [TOOL_PART_SEPARATED] = step_structure,
    [TOOL_PART_OBJECT] = step_object,
    [TOOL_PART_NAME] = step_name,
    [TOOL_PART_NAME_MARK] = step_name_mark,
    [TOOL_PART_ID] = step_id,
    [TOOL_PART_ARGUMENTS_OPEN] = step_structure,
    [TOOL_PART_ARGUMENTS] = step_arguments,
    [TOOL_PART_REST] = step_rest,
};

/* A byte that is not taken leads to a part that takes text, so that it is taken at the third try at
 * the latest: in a call, as text, as the rest. */
void tool_calls_feed(struct tool_calls *calls, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        int tries = 0;
        while (!steps[calls->part](calls, text[i]))
            CHECK(++tries < 3);
    }
}

/* What stands between calls goes with them when no call follows. */
static bool holds_separator(const struct tool_calls *calls)
{
    switch (calls->part) {
    case TOOL_PART_ITEM:
    case TOOL_PART_AFTER_ITEM:
    case TOOL_PART_AFTER_CALL:
    case TOOL_PART_SEPARATED:
        return calls->edge && calls->seen > 0;
    case TOOL_PART_MARK:
        return calls->edge && calls->seen > 0 && calls->held.size > 1 && calls->syntax->close &&
               calls->held.data[1] == calls->syntax->close[1];
    default:
        return false;
    }
}

void tool_calls_finish(struct tool_calls *calls)
{
    if (holds_separator(calls))
        buffer_clear(&calls->held);
    put_held(calls);
    if (calls->seen == 0)
        buffer_add(&calls->content, calls->blank.data, calls->blank.size);
    buffer_clear(&calls->blank);
    calls->begun = false;
    calls->part = TOOL_PART_REST;
}

bool tool_calls_ready(const struct tool_calls *calls)
{
    return calls->content.size > 0 || tool_calls_grown(calls);
}

bool tool_calls_grown(const struct tool_calls *calls)
{
    for (uint32_t i = 0; i < calls->count; i++)
        if (!calls->calls[i].begin_taken ||
            calls->calls[i].arguments_taken < calls->calls[i].arguments.size)
            return true;
    return false;
}

void tool_calls_take(struct tool_calls *calls)
{
    buffer_clear(&calls->content);
    for (uint32_t i = 0; i < calls->count; i++) {
        calls->calls[i].begin_taken = true;
        calls->calls[i].arguments_taken = calls->calls[i].arguments.size;
    }
}

bool tool_calls_end(const struct tool_calls *calls, bool cut)
{
    uint32_t complete = 0;
    for (uint32_t i = 0; i < calls->count; i++)
        complete += calls->calls[i].complete;
    return complete > 0 && !(cut && complete < calls->count);
}
