/* The steps of a tokenizer.json: each kind is a row, an unknown one is refused by its name. */
#include <stdio.h>

#include "base/check.h"
#include "model/text/tokenizer_json_internal.h"
#include "model/text/unicode_classes_internal.h"

enum { STEP_DEPTH_MAX = 8 };

enum status json_member_string(const struct json *object, const char *key, const char *path,
                               const char **out, size_t *bytes_out, struct error *error)
{
    const struct json *value = json_get(object, key);
    if (value == NULL || json_kind(value) != JSON_STRING)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' is %s, it must be a string", path, key,
                         value == NULL ? "missing" : json_kind_name(json_kind(value)));
    *out = json_string(value, bytes_out);
    return STATUS_OK;
}

bool json_member_bool(const struct json *object, const char *key, bool otherwise)
{
    const struct json *value = json_get(object, key);
    return value != NULL && json_kind(value) == JSON_BOOL ? json_bool(value) : otherwise;
}

/* What a reader of one step works on. */
struct context {
    struct text *text;
    const char *path;
    struct error *error;
    bool ended; /* a step was read behind which none may stand */
    bool fused; /* decoder: what follows is about the whole text */
};

typedef enum status (*step_read)(struct context *context, const struct json *step);

struct step_row {
    const char *name;
    step_read read;
};

struct step_table {
    const char *part;    /* "normalizer" */
    const char *members; /* of a Sequence: "normalizers" */
    const struct step_row *rows;
    size_t count;
};

static enum status step_unknown(const struct context *context, const struct step_table *table,
                                const char *name)
{
    struct buffer known = {0};
    for (size_t i = 0; i < table->count; i++)
        buffer_printf(&known, " %s", table->rows[i].name);
    const enum status status =
        error_set(context->error, STATUS_UNSUPPORTED,
                  "%s: the %s step '%.40s' is not known, Baton has: Sequence%s", context->path,
                  table->part, name, known.data);
    buffer_free(&known);
    return status;
}

static enum status steps_read(struct context *context, const struct step_table *table,
                              const struct json *step, int depth)
{
    const char *name;
    size_t bytes;
    if (step == NULL || json_kind(step) == JSON_NULL)
        return STATUS_OK;
    if (json_kind(step) != JSON_OBJECT || depth > STEP_DEPTH_MAX)
        return error_set(context->error, STATUS_CORRUPT,
                         "%s: a %s step is %s at depth %d, it must be an object, and the limit is "
                         "%d",
                         context->path, table->part, json_kind_name(json_kind(step)), depth,
                         STEP_DEPTH_MAX);
    TRY(json_member_string(step, "type", context->path, &name, &bytes, context->error));
    if (strcmp(name, "Sequence") == 0) {
        const struct json *members = json_get(step, table->members);
        if (members == NULL || json_kind(members) != JSON_ARRAY)
            return error_set(context->error, STATUS_CORRUPT, "%s: a %s Sequence has no array '%s'",
                             context->path, table->part, table->members);
        for (size_t i = 0; i < json_count(members); i++)
            TRY(steps_read(context, table, json_at(members, i), depth + 1));
        return STATUS_OK;
    }
    if (context->ended)
        return error_set(context->error, STATUS_UNSUPPORTED,
                         "%s: the %s step '%.40s' stands behind one that must be the last",
                         context->path, table->part, name);
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            return table->rows[i].read(context, step);
    return step_unknown(context, table, name);
}

/* {"String": …} or {"Regex": …}; *out NULL for an empty string, which matches nothing. */
static enum status pattern_read(const struct context *context, const struct json *step,
                                struct pattern **out)
{
    const struct json *pattern = json_get(step, "pattern");
    const char *written;
    size_t bytes;
    *out = NULL;
    if (pattern == NULL || json_kind(pattern) != JSON_OBJECT)
        return error_set(context->error, STATUS_CORRUPT, "%s: a step's 'pattern' must be an object",
                         context->path);
    if (json_get(pattern, "String") != NULL) {
        TRY(json_member_string(pattern, "String", context->path, &written, &bytes, context->error));
        if (bytes > PATTERN_BYTES_MAX)
            return error_set(context->error, STATUS_UNSUPPORTED,
                             "%s: a step's 'String' has %zu bytes, the limit is %d", context->path,
                             bytes, PATTERN_BYTES_MAX);
        if (bytes > 0)
            *out = pattern_create_literal(written, bytes);
        return STATUS_OK;
    }
    TRY(json_member_string(pattern, "Regex", context->path, &written, &bytes, context->error));
    struct error reason;
    const enum status status = pattern_create(written, bytes, out, &reason);
    if (status != STATUS_OK)
        return error_set(context->error, status, "%s: %s", context->path, reason.text);
    return STATUS_OK;
}

/* Normalizers */

static enum status read_nfc(struct context *context, const struct json *step)
{
    return normalizer_add_form(context->text->normalizer, UNICODE_NFC, context->error);
}

static enum status read_nfd(struct context *context, const struct json *step)
{
    return normalizer_add_form(context->text->normalizer, UNICODE_NFD, context->error);
}

static enum status read_nfkc(struct context *context, const struct json *step)
{
    return normalizer_add_form(context->text->normalizer, UNICODE_NFKC, context->error);
}

static enum status read_nfkd(struct context *context, const struct json *step)
{
    return normalizer_add_form(context->text->normalizer, UNICODE_NFKD, context->error);
}

static enum status read_precompiled(struct context *context, const struct json *step)
{
    const char *map;
    size_t bytes;
    struct charsmap *charsmap;
    struct error reason;
    TRY(json_member_string(step, "precompiled_charsmap", context->path, &map, &bytes,
                           context->error));
    const enum status status = charsmap_create(map, bytes, &charsmap, &reason);
    if (status != STATUS_OK)
        return error_set(context->error, status, "%s: 'precompiled_charsmap' is damaged: %s",
                         context->path, reason.text);
    return normalizer_add_charsmap(context->text->normalizer, charsmap, context->error);
}

static enum status read_lowercase(struct context *context, const struct json *step)
{
    return normalizer_add_lowercase(context->text->normalizer, context->error);
}

static enum status read_strip_accents(struct context *context, const struct json *step)
{
    return normalizer_add_strip_marks(context->text->normalizer, context->error);
}

static enum status read_strip(struct context *context, const struct json *step)
{
    const unsigned sides = (json_member_bool(step, "strip_left", true) ? STRIP_LEFT : 0u) |
                           (json_member_bool(step, "strip_right", true) ? STRIP_RIGHT : 0u);
    return normalizer_add_strip(context->text->normalizer, sides, context->error);
}

static enum status read_prepend(struct context *context, const struct json *step)
{
    const char *text;
    size_t bytes;
    TRY(json_member_string(step, "prepend", context->path, &text, &bytes, context->error));
    return normalizer_add_prepend(context->text->normalizer, text, bytes, context->error);
}

static enum status read_replace(struct context *context, const struct json *step)
{
    const char *content;
    size_t bytes;
    struct pattern *pattern;
    TRY(json_member_string(step, "content", context->path, &content, &bytes, context->error));
    TRY(pattern_read(context, step, &pattern));
    if (pattern == NULL)
        return STATUS_OK;
    return normalizer_add_replace(context->text->normalizer, pattern, content, bytes,
                                  context->error);
}

static const struct step_row normalizer_rows[] = {
    {"NFC", read_nfc},
    {"NFD", read_nfd},
    {"NFKC", read_nfkc},
    {"NFKD", read_nfkd},
    {"Precompiled", read_precompiled},
    {"Lowercase", read_lowercase},
    {"StripAccents", read_strip_accents},
    {"Strip", read_strip},
    {"Prepend", read_prepend},
    {"Replace", read_replace},
};

enum status tokenizer_json_normalizer(struct text *text, const struct json *step, const char *path,
                                      struct error *error)
{
    static const struct step_table table = {"normalizer", "normalizers", normalizer_rows,
                                            ARRAY_COUNT(normalizer_rows)};
    struct context context = {.text = text, .path = path, .error = error};
    return steps_read(&context, &table, step, 0);
}

/* Pre-tokenizers */

static enum status behavior_read(const struct context *context, const struct json *step,
                                 enum pretokenize_cut *out)
{
    static const char *const names[] = {
        [CUT_ISOLATED] = "Isolated",
        [CUT_REMOVED] = "Removed",
        [CUT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [CUT_MERGED_WITH_NEXT] = "MergedWithNext",
        [CUT_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    size_t bytes;
    *out = CUT_ISOLATED;
    if (json_get(step, "behavior") == NULL)
        return STATUS_OK;
    TRY(json_member_string(step, "behavior", context->path, &name, &bytes, context->error));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum pretokenize_cut)i;
            return STATUS_OK;
        }
    }
    return error_set(context->error, STATUS_UNSUPPORTED,
                     "%s: the behavior '%.40s' of a pre_tokenizer step is not known", context->path,
                     name);
}

static enum status own_add(struct context *context, const char *expression,
                           enum pretokenize_cut cut, bool invert)
{
    return pretokenizer_add_pattern(context->text->pretokenizer, pattern_create_own(expression),
                                    cut, invert, context->error);
}

static enum status read_split(struct context *context, const struct json *step)
{
    enum pretokenize_cut cut;
    struct pattern *pattern;
    TRY(behavior_read(context, step, &cut));
    TRY(pattern_read(context, step, &pattern));
    if (pattern == NULL)
        return STATUS_OK;
    return pretokenizer_add_pattern(context->text->pretokenizer, pattern, cut,
                                    json_member_bool(step, "invert", false), context->error);
}

static enum status read_byte_level(struct context *context, const struct json *step)
{
    struct pretokenizer *pretokenizer = context->text->pretokenizer;
    if (json_member_bool(step, "add_prefix_space", true))
        TRY(pretokenizer_add_space_prefix(pretokenizer, context->error));
    if (json_member_bool(step, "use_regex", true))
        TRY(pretokenizer_add_named(pretokenizer, "gpt-2", 5, context->error));
    context->text->level = LEVEL_BYTES;
    context->ended = true;
    return STATUS_OK;
}

/* The mark and the scheme of a Metaspace, which older files write as a bool. */
static enum status metaspace_read(const struct context *context, const struct json *step,
                                  const char **mark, size_t *mark_bytes,
                                  enum pretokenize_prefix *prefix)
{
    const char *scheme;
    size_t bytes;
    TRY(json_member_string(step, "replacement", context->path, mark, mark_bytes, context->error));
    *prefix = json_member_bool(step, "add_prefix_space", true) ? PREFIX_ALWAYS : PREFIX_NEVER;
    if (json_get(step, "prepend_scheme") == NULL)
        return STATUS_OK;
    TRY(json_member_string(step, "prepend_scheme", context->path, &scheme, &bytes, context->error));
    if (strcmp(scheme, "always") == 0)
        *prefix = PREFIX_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        *prefix = PREFIX_FIRST;
    else if (strcmp(scheme, "never") == 0)
        *prefix = PREFIX_NEVER;
    else
        return error_set(context->error, STATUS_UNSUPPORTED,
                         "%s: the prepend_scheme '%.40s' is not known", context->path, scheme);
    return STATUS_OK;
}

static enum status read_metaspace(struct context *context, const struct json *step)
{
    const char *mark;
    size_t bytes;
    enum pretokenize_prefix prefix;
    TRY(metaspace_read(context, step, &mark, &bytes, &prefix));
    return pretokenizer_add_spaces(context->text->pretokenizer, mark, bytes, prefix,
                                   json_member_bool(step, "split", true), context->error);
}

static enum status read_digits(struct context *context, const struct json *step)
{
    return own_add(
        context, "[" CLASS_NUMBERS CLASS_DIGITS_LATER "]",
        json_member_bool(step, "individual_digits", false) ? CUT_ISOLATED : CUT_CONTIGUOUS, false);
}

static enum status read_punctuation(struct context *context, const struct json *step)
{
    enum pretokenize_cut cut;
    TRY(behavior_read(context, step, &cut));
    return own_add(context, PATTERN_PUNCTUATION, cut, false);
}

static enum status read_whitespace(struct context *context, const struct json *step)
{
    return own_add(context, "[" CLASS_WORD_OF_STEP "]+|[^" CLASS_WORD_OF_STEP CLASS_SPACES "]+",
                   CUT_REMOVED, true);
}

static enum status read_whitespace_split(struct context *context, const struct json *step)
{
    return own_add(context, "[" CLASS_SPACES "]", CUT_REMOVED, false);
}

static enum status read_delimiter(struct context *context, const struct json *step)
{
    const char *delimiter;
    size_t bytes;
    TRY(json_member_string(step, "delimiter", context->path, &delimiter, &bytes, context->error));
    if (bytes == 0 || bytes > PATTERN_BYTES_MAX)
        return error_set(context->error, STATUS_CORRUPT,
                         "%s: a 'delimiter' has %zu bytes, the limits are 1 and %d", context->path,
                         bytes, PATTERN_BYTES_MAX);
    return pretokenizer_add_pattern(context->text->pretokenizer,
                                    pattern_create_literal(delimiter, bytes), CUT_REMOVED, false,
                                    context->error);
}

static enum status read_bert(struct context *context, const struct json *step)
{
    TRY(read_whitespace_split(context, step));
    return own_add(context, PATTERN_PUNCTUATION, CUT_ISOLATED, false);
}

static const struct step_row pretokenizer_rows[] = {
    {"ByteLevel", read_byte_level},
    {"Split", read_split},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
    {"CharDelimiterSplit", read_delimiter},
    {"BertPreTokenizer", read_bert},
};

enum status tokenizer_json_pretokenizer(struct text *text, const struct json *step,
                                        const char *path, struct error *error)
{
    static const struct step_table table = {"pre_tokenizer", "pretokenizers", pretokenizer_rows,
                                            ARRAY_COUNT(pretokenizer_rows)};
    struct context context = {.text = text, .path = path, .error = error};
    text->level = LEVEL_CHARACTERS;
    return steps_read(&context, &table, step, 0);
}

/* Decoders */

static enum status read_decode_byte_level(struct context *context, const struct json *step)
{
    context->ended = true; // it makes bytes, which other steps do not take
    return decoder_add_byte_level(context->text->decoder, context->error);
}

static enum status read_decode_byte_fallback(struct context *context, const struct json *step)
{
    return decoder_add_byte_fallback(context->text->decoder, context->error);
}

static enum status read_decode_fuse(struct context *context, const struct json *step)
{
    context->fused = true;
    return STATUS_OK;
}

static enum status whole_refuse(const struct context *context, const char *name)
{
    return error_set(context->error, STATUS_UNSUPPORTED,
                     "%s: the decoder step %s behind Fuse would need a whole text at once",
                     context->path, name);
}

static enum status read_decode_replace(struct context *context, const struct json *step)
{
    const char *content;
    size_t bytes;
    struct pattern *pattern;
    if (context->fused)
        return whole_refuse(context, "Replace");
    TRY(json_member_string(step, "content", context->path, &content, &bytes, context->error));
    TRY(pattern_read(context, step, &pattern));
    if (pattern == NULL)
        return STATUS_OK;
    return decoder_add_replace(context->text->decoder, pattern, content, bytes, context->error);
}

static enum status count_read(const struct context *context, const struct json *step,
                              const char *key, size_t *out)
{
    enum { STRIP_MAX = 1000 };
    const struct json *value = json_get(step, key);
    *out = 0;
    if (value == NULL || json_kind(value) != JSON_INT || json_int(value) < 0 ||
        json_int(value) > STRIP_MAX)
        return error_set(context->error, STATUS_CORRUPT,
                         "%s: '%s' of a Strip must be a number from 0 to %d", context->path, key,
                         STRIP_MAX);
    *out = (size_t)json_int(value);
    return STATUS_OK;
}

static enum status read_decode_strip(struct context *context, const struct json *step)
{
    const char *content;
    size_t bytes;
    size_t left;
    size_t right;
    TRY(json_member_string(step, "content", context->path, &content, &bytes, context->error));
    TRY(count_read(context, step, "start", &left));
    TRY(count_read(context, step, "stop", &right));
    if (!context->fused)
        return decoder_add_strip(context->text->decoder, content, bytes, left, right,
                                 context->error);
    if (right > 0)
        return whole_refuse(context, "Strip with a 'stop'");
    if (bytes == 0 || bytes > DECODER_MARK_BYTES_MAX)
        return error_set(context->error, STATUS_CORRUPT,
                         "%s: 'content' of a Strip has %zu bytes, the limits are 1 and %d",
                         context->path, bytes, DECODER_MARK_BYTES_MAX);
    struct decoder_start start = {.mark_bytes = bytes, .strip_count = left};
    memcpy(start.mark, content, bytes);
    decoder_set_start(context->text->decoder, &start);
    context->ended = true;
    return STATUS_OK;
}

static enum status read_decode_metaspace(struct context *context, const struct json *step)
{
    const char *mark;
    size_t bytes;
    enum pretokenize_prefix prefix;
    if (context->fused)
        return whole_refuse(context, "Metaspace");
    TRY(metaspace_read(context, step, &mark, &bytes, &prefix));
    if (bytes == 0 || bytes > DECODER_MARK_BYTES_MAX)
        return error_set(context->error, STATUS_CORRUPT,
                         "%s: a 'replacement' has %zu bytes, the limits are 1 and %d",
                         context->path, bytes, DECODER_MARK_BYTES_MAX);
    struct decoder_start start = {.mark_bytes = bytes, .first_token_bare = prefix != PREFIX_NEVER};
    memcpy(start.mark, mark, bytes);
    decoder_set_start(context->text->decoder, &start);
    return decoder_add_replace(context->text->decoder, pattern_create_literal(mark, bytes), " ", 1,
                               context->error);
}

static const struct step_row decoder_rows[] = {
    {"ByteLevel", read_decode_byte_level},
    {"ByteFallback", read_decode_byte_fallback},
    {"Fuse", read_decode_fuse},
    {"Replace", read_decode_replace},
    {"Strip", read_decode_strip},
    {"Metaspace", read_decode_metaspace},
};

enum status tokenizer_json_decoder(struct text *text, const struct json *step, const char *path,
                                   struct error *error)
{
    static const struct step_table table = {"decoder", "decoders", decoder_rows,
                                            ARRAY_COUNT(decoder_rows)};
    struct context context = {.text = text, .path = path, .error = error};
    if (step != NULL && json_kind(step) != JSON_NULL)
        return steps_read(&context, &table, step, 0);
    if (text->level == LEVEL_BYTES)
        return decoder_add_byte_level(text->decoder, error);
    decoder_set_start(text->decoder, &(struct decoder_start){.joined = true});
    return STATUS_OK;
}
