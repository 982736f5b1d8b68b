#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/text/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/text/unicode_classes_internal.h"

enum { MATCH_LIMIT_BASE = 1000000, MATCH_LIMIT_PER_BYTE = 16, MATCH_KIB_MAX = 256 << 10 };

struct pattern {
    pcre2_code *code;
};

struct pattern_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    uint64_t steps, steps_max;
    PCRE2_SIZE start, at; /* where the match tried now begins, and where it was counted last */
};

/* How an escape of the file is written for PCRE2, inside a bracketed class and outside. NULL: as it
 * stands. */
static const struct {
    const char *escape, *in_class, *alone;
} escapes[] = {
    {"\\s", CLASS_SPACES, "[" CLASS_SPACES "]"},
    {"\\S", NULL, "[^" CLASS_SPACES "]"},
    {"\\p{L}", CLASS_LETTERS, "[" CLASS_LETTERS "]"},
    {"\\p{N}", CLASS_NUMBERS, "[" CLASS_NUMBERS "]"},
    {"\\P{L}", NULL, "[^" CLASS_LETTERS "]"},
    {"\\P{N}", NULL, "[^" CLASS_NUMBERS "]"},
    {"\\p{Lu}", CLASS_UPPER, "[" CLASS_UPPER "]"},
    {"\\p{Ll}", CLASS_LOWER, "[" CLASS_LOWER "]"},
    {"\\p{Lm}", CLASS_MODIFIERS, "[" CLASS_MODIFIERS "]"},
    {"\\p{Lo}", CLASS_OTHER_LETTERS, "[" CLASS_OTHER_LETTERS "]"},
    {"\\p{M}", CLASS_MARKS, "[" CLASS_MARKS "]"},
    {"\\p{P}", CLASS_PUNCTUATION_UNICODE, "[" CLASS_PUNCTUATION_UNICODE "]"},
    {"\\p{S}", CLASS_SYMBOLS, "[" CLASS_SYMBOLS "]"},
    {"\\p{Nd}", CLASS_DECIMALS, "[" CLASS_DECIMALS "]"},
    {"\\p{Han}", CLASS_HAN, "[" CLASS_HAN "]"},
    {"\\d", CLASS_DECIMALS, "[" CLASS_DECIMALS "]"},
    {"\\D", NULL, "[^" CLASS_DECIMALS "]"},
    {"\\w", CLASS_WORD, "[" CLASS_WORD "]"},
    {"\\W", NULL, "[^" CLASS_WORD "]"},
    {"\\b", NULL, NULL},
    {"\\r", NULL, NULL},
    {"\\n", NULL, NULL},
    {"\\t", NULL, NULL},
    {"\\f", NULL, NULL},
};

/* Groups that both libraries read alike. */
static const char *const groups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};

struct translation {
    const char *at, *end;
    bool in_class, class_begins;
    struct buffer out;
};

static bool begins(const struct translation *translation, const char *what)
{
    const size_t bytes = strlen(what);
    return (size_t)(translation->end - translation->at) >= bytes &&
           memcmp(translation->at, what, bytes) == 0;
}

static void copy(struct translation *translation, size_t bytes)
{
    buffer_add(&translation->out, translation->at, bytes);
    translation->at += bytes;
}

/* \p{…} and \x{…} or \xHH as they are; \u HHHH as \x{HHHH}. False for anything else. */
static bool braces_copy(struct translation *translation)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    const char *at = translation->at;
    const size_t left = (size_t)(translation->end - at);
    const char *close = left > 3 && at[2] == '{' ? memchr(at, '}', left) : NULL;
    if (strchr("pPx", at[1]) != NULL && close != NULL) {
        copy(translation, (size_t)(close - at) + 1);
        return true;
    }
    const size_t digits = at[1] == 'u' ? 4 : 2;
    if ((at[1] != 'x' && at[1] != 'u') || left < 2 + digits)
        return false;
    for (size_t i = 0; i < digits; i++)
        if (strchr(hex, at[2 + i]) == NULL || at[2 + i] == '\0')
            return false;
    buffer_add_text(&translation->out, "\\x{");
    buffer_add(&translation->out, at + 2, digits);
    buffer_add_text(&translation->out, "}");
    translation->at += 2 + digits;
    return true;
}

static bool escape_translate(struct translation *translation)
{
    for (size_t i = 0; i < ARRAY_COUNT(escapes); i++) {
        if (!begins(translation, escapes[i].escape))
            continue;
        if (translation->in_class && strcmp(escapes[i].escape, "\\W") == 0) // PCRE2's is another
            return false;
        const char *written = translation->in_class ? escapes[i].in_class : escapes[i].alone;
        const size_t bytes = strlen(escapes[i].escape);
        if (written == NULL) {
            copy(translation, bytes);
        } else {
            buffer_add_text(&translation->out, written);
            translation->at += bytes;
        }
        return true;
    }
    if (translation->end - translation->at < 2)
        return false;
    const uint8_t next = (uint8_t)translation->at[1];
    if (strchr("pPxu", next) != NULL && next != '\0')
        return braces_copy(translation);
    const bool word = (next >= '0' && next <= '9') || (next >= 'A' && next <= 'Z') ||
                      (next >= 'a' && next <= 'z') || next >= 0x80;
    if (word) // references, anchors and classes that differ, or may
        return false;
    copy(translation, 2);
    return true;
}

static bool class_translate(struct translation *translation)
{
    const char c = *translation->at;
    if (c == '[' || begins(translation, "&&")) // nested classes and intersections
        return false;
    if (c == ']' && !translation->class_begins)
        translation->in_class = false;
    if (c != '^')
        translation->class_begins = false;
    copy(translation, 1);
    return true;
}

static bool open_translate(struct translation *translation)
{
    if (!begins(translation, "(?")) {
        if (begins(translation, "(*"))
            return false;
        copy(translation, 1);
        return true;
    }
    for (size_t i = 0; i < ARRAY_COUNT(groups); i++) {
        if (begins(translation, groups[i])) {
            copy(translation, strlen(groups[i]));
            return true;
        }
    }
    return false;
}

/* One element of the expression. False when it is not known to mean the same. */
static bool element_translate(struct translation *translation)
{
    if (*translation->at == '\\') {
        translation->class_begins = false;
        return escape_translate(translation);
    }
    if (translation->in_class)
        return class_translate(translation);
    if (*translation->at == '(')
        return open_translate(translation);
    if (begins(translation, "}+")) // a repetition of the repetition there, possessive here
        return false;
    if (*translation->at == '[') {
        translation->in_class = true;
        translation->class_begins = true;
    }
    const bool repeats = strchr("*+?}", *translation->at) != NULL && *translation->at != '\0';
    copy(translation, 1);
    /* What is repeated is where a match can take long: there its steps are counted. */
    if (repeats && (translation->at == translation->end || strchr("*+?", *translation->at) == NULL))
        buffer_add_text(&translation->out, "(?C)");
    return true;
}

static enum status code_compile(const char *expression, size_t bytes, uint32_t options,
                                struct pattern **out, struct error *error)
{
    int number;
    PCRE2_SIZE offset;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)expression, bytes, options, &number, &offset, NULL);
    if (code == NULL) {
        char why[160] = "";
        pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(error, STATUS_INVALID, "the regular expression is wrong: %s", why);
    }
    /* Where writable and executable memory is forbidden there is no JIT; pcre2_match interprets. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    struct pattern *pattern = malloc(sizeof *pattern);
    CHECK(pattern != NULL);
    pattern->code = code;
    *out = pattern;
    return STATUS_OK;
}

enum status pattern_create(const char *expression, size_t bytes, struct pattern **out,
                           struct error *error)
{
    if (bytes > PATTERN_BYTES_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "a regular expression has %zu bytes, the limit is %d", bytes,
                         PATTERN_BYTES_MAX);
    /* As it stands this one walks every run of spaces once from each of its characters. */
    static const char trailing_spaces[] = "\\s+$";
    if (bytes == sizeof trailing_spaces - 1 && memcmp(expression, trailing_spaces, bytes) == 0) {
        *out = pattern_create_own("(?m)(?<![" CLASS_SPACES "])[" CLASS_SPACES "]+$");
        return STATUS_OK;
    }
    struct translation translation = {.at = expression, .end = expression + bytes};
    while (translation.at < translation.end) {
        if (!element_translate(&translation)) {
            const size_t left = (size_t)(translation.end - translation.at);
            buffer_free(&translation.out);
            return error_set(error, STATUS_UNSUPPORTED,
                             "a regular expression has '%.*s' at byte %zu, which Baton does not "
                             "know",
                             (int)(left < 12 ? left : 12), translation.at, bytes - left);
        }
    }
    buffer_reserve(&translation.out, 1); // an empty expression is one, too
    const enum status status =
        code_compile(translation.out.data, translation.out.size,
                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, out, error); // ^ and $ are of lines
    buffer_free(&translation.out);
    return status;
}

struct pattern *pattern_create_own(const char *expression)
{
    struct pattern *pattern = NULL;
    struct error error;
    CHECK(code_compile(expression, strlen(expression), PCRE2_UTF | PCRE2_UCP, &pattern, &error) ==
          STATUS_OK);
    return pattern;
}

struct pattern *pattern_create_literal(const char *text, size_t bytes)
{
    struct pattern *pattern = NULL;
    struct error error;
    CHECK(bytes > 0 && bytes <= PATTERN_BYTES_MAX);
    CHECK(code_compile(text, bytes, PCRE2_UTF | PCRE2_LITERAL, &pattern, &error) == STATUS_OK);
    return pattern;
}

void pattern_destroy(struct pattern *pattern)
{
    if (pattern == NULL)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

/* At every callout of an expression: how far the match has moved since the last one, and one. */
static int steps_count(pcre2_callout_block *block, void *arg)
{
    struct pattern_scratch *scratch = arg;
    if (block->start_match != scratch->start)
        scratch->start = scratch->at = block->start_match;
    const PCRE2_SIZE at = block->current_position;
    scratch->steps += 1 + (at > scratch->at ? at - scratch->at : scratch->at - at);
    scratch->at = at;
    return scratch->steps > scratch->steps_max ? PCRE2_ERROR_CALLOUT : 0;
}

struct pattern_scratch *pattern_scratch_create(void)
{
    struct pattern_scratch *scratch = calloc(1, sizeof *scratch);
    CHECK(scratch != NULL);
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    CHECK(scratch->match != NULL && scratch->context != NULL);
    pcre2_set_heap_limit(scratch->context, MATCH_KIB_MAX);
    pcre2_set_callout(scratch->context, steps_count, scratch);
    scratch->steps_max = PATTERN_STEPS_BASE;
    return scratch;
}

void pattern_scratch_allow(struct pattern_scratch *scratch, size_t bytes)
{
    scratch->steps_max += (uint64_t)bytes * PATTERN_STEPS_PER_BYTE;
}

uint64_t pattern_scratch_steps(const struct pattern_scratch *scratch)
{
    return scratch->steps;
}

void pattern_scratch_destroy(struct pattern_scratch *scratch)
{
    if (scratch == NULL)
        return;
    pcre2_match_context_free(scratch->context);
    pcre2_match_data_free(scratch->match);
    free(scratch);
}

static enum status match_fail(const struct pattern_scratch *scratch, int code, size_t bytes,
                              struct error *error)
{
    if (code == PCRE2_ERROR_CALLOUT)
        return error_set(error, STATUS_LIMIT,
                         "searching a text of %zu bytes with the tokenizer's regular expressions "
                         "took more than %llu steps, the limit",
                         bytes, (unsigned long long)scratch->steps_max);
    const bool limit = code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT ||
                       code == PCRE2_ERROR_DEPTHLIMIT;
    return error_set(error, limit ? STATUS_LIMIT : STATUS_INTERNAL,
                     "cutting a text of %zu bytes into pieces %s (PCRE2 error %d)", bytes,
                     limit ? "took too many steps or too much memory" : "failed", code);
}

enum status pattern_find(const struct pattern *pattern, struct pattern_scratch *scratch,
                         const char *text, size_t bytes, size_t at, bool *found_out,
                         size_t *start_out, size_t *end_out, struct error *error)
{
    /* The patterns in use walk back over a run once, so the work of a match is linear. */
    const size_t limit = MATCH_LIMIT_BASE + bytes * MATCH_LIMIT_PER_BYTE;
    pcre2_set_match_limit(scratch->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    scratch->start = PCRE2_UNSET;
    const PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int found = pcre2_match(pattern->code, subject, bytes, at, PCRE2_NO_UTF_CHECK, scratch->match,
                            scratch->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter has its stack on the heap
        found = pcre2_match(pattern->code, subject, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            scratch->match, scratch->context);
    *found_out = found >= 0;
    if (found == PCRE2_ERROR_NOMATCH)
        return STATUS_OK;
    if (found < 0)
        return match_fail(scratch, found, bytes, error);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->match);
    *start_out = ends[0];
    *end_out = ends[1];
    return STATUS_OK;
}
