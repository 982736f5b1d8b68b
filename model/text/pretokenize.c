/* The rules as regular expressions, run by PCRE2 (with its JIT where the system allows one).
 *
 * A set of rules is a list of patterns. Each cuts the pieces of the one before: its matches become
 * pieces, and so does what lies between them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/text/pretokenize.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/text/unicode_classes_internal.h"

enum { STAGES_MAX = 4, MATCH_LIMIT_BASE = 1000000, MATCH_LIMIT_PER_BYTE = 16 };

#define LETTERS         "[" CLASS_LETTERS "]+"
#define NUMBER          "[" CLASS_NUMBERS "]"
#define SPACES          "[" CLASS_SPACES "]+"
#define SPACES_BUT_LAST "[" CLASS_SPACES "]+(?![^" CLASS_SPACES "])" /* at the end of text: all */
#define SYMBOLS         " ?[^" CLASS_SPACES CLASS_LETTERS CLASS_NUMBERS "]+"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?" LETTERS "| ?" NUMBER "+|" SYMBOLS "|" SPACES_BUT_LAST "|" SPACES
/* Llama 3 and Qwen2 differ in how many digits stand together. */
#define CL100K_PATTERN(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" CLASS_LETTERS CLASS_NUMBERS "]?" LETTERS "|" digits    \
    "|" SYMBOLS "[\\r\\n]*|[" CLASS_SPACES "]*[\\r\\n]+|" SPACES_BUT_LAST "|" SPACES

struct rules {
    const char *names; /* canonical first, then aliases, each followed by a space */
    const char *patterns[STAGES_MAX];
    bool normalizes, ignores_merges, adds_bos;
};

static const struct rules all_rules[] = {
    {"smollm ", {"[" CLASS_NUMBERS CLASS_DIGITS_LATER "]", GPT2_PATTERN}, false, false, false},
    {"gpt-2 gpt2 ", {GPT2_PATTERN}, false, false, false},
    {"qwen2 deepseek-r1-qwen ", {CL100K_PATTERN(NUMBER)}, true, false, false},
    {"llama-bpe llama3 llama-v3 ", {CL100K_PATTERN(NUMBER "{1,3}")}, false, true, true},
    /* What converters write for a vocabulary they do not know. */
    {"default ",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_PATTERN, NUMBER "+", "[0-9][0-9][0-9]"},
     false,
     false,
     false},
};

struct pretokenizer {
    const struct rules *rules;
    char name[32];
    pcre2_code *stages[STAGES_MAX];
    size_t stage_count;
};

/* Position of the name among a row's names, NULL. */
static const char *name_find(const char *names, const char *name, size_t bytes)
{
    for (const char *at = names; *at != '\0'; at = strchr(at, ' ') + 1)
        if (strcspn(at, " ") == bytes && memcmp(at, name, bytes) == 0)
            return at;
    return NULL;
}

static enum status name_unknown(const char *name, size_t bytes, struct error *error)
{
    char known[128] = "";
    for (size_t i = 0; i < ARRAY_COUNT(all_rules); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s", all_rules[i].names);
    }
    const int shown = bytes < 40 ? (int)bytes : 40;
    return error_set(error, STATUS_UNSUPPORTED,
                     "the pre-tokenizer '%.*s' (tokenizer.ggml.pre) is not known, Baton has: %s",
                     shown, name, known);
}

static enum status stage_compile(const char *pattern, pcre2_code **out, struct error *error)
{
    int code;
    PCRE2_SIZE offset;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                         &offset, NULL);
    if (*out == NULL)
        return error_set(error, STATUS_INTERNAL,
                         "the pre-tokenizer's pattern is wrong at %zu (PCRE2 error %d)", offset,
                         code);
    /* Where writable and executable memory is forbidden there is no JIT; pcre2_match interprets. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return STATUS_OK;
}

enum status pretokenizer_create(const char *name, size_t name_bytes, struct pretokenizer **out,
                                struct error *error)
{
    const struct rules *rules = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(all_rules) && name_bytes > 0; i++)
        if (name_find(all_rules[i].names, name, name_bytes) != NULL)
            rules = &all_rules[i];
    if (rules == NULL)
        return name_unknown(name, name_bytes, error);
    struct pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);
    CHECK(pretokenizer != NULL);
    pretokenizer->rules = rules;
    snprintf(pretokenizer->name, sizeof pretokenizer->name, "%.*s", (int)strcspn(rules->names, " "),
             rules->names);
    for (size_t i = 0; i < STAGES_MAX && rules->patterns[i] != NULL; i++) {
        const enum status status =
            stage_compile(rules->patterns[i], &pretokenizer->stages[i], error);
        if (status != STATUS_OK) {
            pretokenizer_destroy(pretokenizer);
            return status;
        }
        pretokenizer->stage_count++;
    }
    *out = pretokenizer;
    return STATUS_OK;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    for (size_t i = 0; i < pretokenizer->stage_count; i++)
        pcre2_code_free(pretokenizer->stages[i]);
    free(pretokenizer);
}

const char *pretokenizer_name(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->name;
}

bool pretokenizer_normalizes(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->rules->normalizes;
}

bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->rules->ignores_merges;
}

bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->rules->adds_bos;
}

/* One call of pretokenize. */
struct run {
    const struct pretokenizer *pretokenizer;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pretokenize_piece on_piece;
    void *arg;
    struct error *error;
};

static enum status stage_run(struct run *run, size_t stage, const char *text, size_t bytes);

static enum status piece_pass(struct run *run, size_t stage, const char *piece, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    if (stage == run->pretokenizer->stage_count)
        return run->on_piece(run->arg, piece, bytes);
    return stage_run(run, stage, piece, bytes);
}

static enum status match_fail(const struct run *run, int code, size_t bytes)
{
    const bool limit = code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_HEAPLIMIT ||
                       code == PCRE2_ERROR_DEPTHLIMIT;
    return error_set(run->error, limit ? STATUS_LIMIT : STATUS_INTERNAL,
                     "cutting a text of %zu bytes into pieces %s (PCRE2 error %d)", bytes,
                     limit ? "took too many steps" : "failed", code);
}

/* The next match at or after `at`; 0 when there is none. */
static int match_next(const struct run *run, const pcre2_code *code, const char *text, size_t bytes,
                      size_t at)
{
    const PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int found = pcre2_match(code, subject, bytes, at, PCRE2_NO_UTF_CHECK, run->match, run->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter has its stack on the heap
        found = pcre2_match(code, subject, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->match,
                            run->context);
    return found == PCRE2_ERROR_NOMATCH ? 0 : found;
}

static enum status stage_run(struct run *run, size_t stage, const char *text, size_t bytes)
{
    const pcre2_code *code = run->pretokenizer->stages[stage];
    size_t at = 0;
    while (at < bytes) {
        const int found = match_next(run, code, text, bytes, at);
        if (found < 0)
            return match_fail(run, found, bytes);
        if (found == 0)
            break;
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(run->match);
        const size_t start = ends[0];
        const size_t end = ends[1];
        CHECK(start >= at && end > start && end <= bytes); // no pattern matches nothing
        TRY(piece_pass(run, stage + 1, text + at, start - at));
        TRY(piece_pass(run, stage + 1, text + start, end - start));
        at = end;
    }
    return piece_pass(run, stage + 1, text + at, bytes - at);
}

enum status pretokenize(const struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                        pretokenize_piece on_piece, void *arg, struct error *error)
{
    struct run run = {.pretokenizer = pretokenizer,
                      .match = pcre2_match_data_create(1, NULL),
                      .context = pcre2_match_context_create(NULL),
                      .on_piece = on_piece,
                      .arg = arg,
                      .error = error};
    CHECK(run.match != NULL && run.context != NULL);
    /* A run of spaces is walked back once, so the work of one match is linear in the text. */
    const size_t limit = MATCH_LIMIT_BASE + bytes * MATCH_LIMIT_PER_BYTE;
    pcre2_set_match_limit(run.context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    const enum status status = piece_pass(&run, 0, text, bytes);
    pcre2_match_context_free(run.context);
    pcre2_match_data_free(run.match);
    return status;
}
