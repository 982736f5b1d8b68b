#include "router/openai_grammar.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/grammar/grammar.h"
#include "router/openai_fields.h"

enum { KNOWN_MAX = 1024 };

struct openai_grammars {
    pthread_mutex_t lock; /* guards what follows; held for one walk */
    struct digest128 known[KNOWN_MAX];
    uint32_t count, next; /* of them; the one that is forgotten next */
};

struct openai_grammars *openai_grammars_create(void)
{
    struct openai_grammars *grammars = calloc(1, sizeof *grammars);
    CHECK(grammars != NULL && pthread_mutex_init(&grammars->lock, NULL) == 0);
    return grammars;
}

void openai_grammars_destroy(struct openai_grammars *grammars)
{
    if (grammars == NULL)
        return;
    pthread_mutex_destroy(&grammars->lock);
    free(grammars);
}

static bool is_known(struct openai_grammars *grammars, struct digest128 digest)
{
    bool found = false;
    if (grammars == NULL)
        return false;
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    for (uint32_t i = 0; i < grammars->count && !found; i++)
        found = digest128_equal(grammars->known[i], digest);
    pthread_mutex_unlock(&grammars->lock);
    return found;
}

static void remember(struct openai_grammars *grammars, struct digest128 digest)
{
    if (grammars == NULL)
        return;
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    grammars->known[grammars->next] = digest;
    grammars->next = (grammars->next + 1) % KNOWN_MAX;
    grammars->count += grammars->count < KNOWN_MAX;
    pthread_mutex_unlock(&grammars->lock);
}

enum status openai_grammar_check(const struct openai_grammar *grammar, const char *param,
                                 struct openai_grammars *known, struct openai_error *error)
{
    const struct buffer *source = &grammar->source;
    if (source->size > OPENAI_GRAMMAR_BYTES_MAX)
        return openai_error_set(error, 400, param, NULL, "`%s` has %zu bytes; the limit is %d.",
                                param, source->size, OPENAI_GRAMMAR_BYTES_MAX);
    const struct digest128 digest =
        hash128(source->data, source->size, hash_process_key() + grammar->kind);
    if (is_known(known, digest))
        return STATUS_OK;
    struct grammar *compiled;
    struct error cause;
    const enum status status = grammar_compile((enum grammar_kind)grammar->kind, source->data,
                                               source->size, &compiled, &cause);
    if (status != STATUS_OK)
        return openai_error_set(error, 400, param,
                                status == STATUS_UNSUPPORTED ? "unsupported_value" : NULL,
                                "`%s` cannot be met: %s.", param, cause.text);
    grammar_free(compiled);
    remember(known, digest);
    return STATUS_OK;
}

/* ---- single fields ---- */

/* A value as the source of a grammar: a text as it is, anything else as JSON. */
static enum status put_source(const struct json *value, const char *param,
                              struct openai_grammar *out, struct openai_error *error)
{
    if (json_kind(value) == JSON_STRING) {
        size_t bytes;
        const char *text = json_string(value, &bytes);
        buffer_add(&out->source, text, bytes);
        return STATUS_OK;
    }
    struct json_writer writer;
    json_writer_init(&writer, &out->source);
    if (json_put_value(&writer, value) != STATUS_OK)
        return openai_error_set(error, 400, param, NULL, "`%s` is nested too deeply.", param);
    return STATUS_OK;
}

typedef enum status grammar_field_read(const struct json *value, const char *param,
                                       struct openai_grammar *out, struct openai_error *error);

static enum status read_schema(const struct json *value, const char *param,
                               struct openai_grammar *out, struct openai_error *error)
{
    const enum json_kind kind = json_kind(value);
    if (kind != JSON_OBJECT && kind != JSON_STRING)
        return field_wrong(value, param, "a JSON schema, as an object or a string", error);
    out->kind = GRAMMAR_JSON_SCHEMA;
    return put_source(value, param, out, error);
}

static enum status read_any_object(const struct json *value, const char *param,
                                   struct openai_grammar *out, struct openai_error *error)
{
    if (json_kind(value) != JSON_BOOL)
        return field_wrong(value, param, "a boolean", error);
    out->kind = json_bool(value) ? GRAMMAR_JSON_OBJECT : 0;
    return STATUS_OK;
}

static enum status read_text(const struct json *value, const char *param, enum grammar_kind kind,
                             struct openai_grammar *out, struct openai_error *error)
{
    if (json_kind(value) != JSON_STRING)
        return field_wrong(value, param, "a string", error);
    out->kind = kind;
    return put_source(value, param, out, error);
}

static enum status read_regex(const struct json *value, const char *param,
                              struct openai_grammar *out, struct openai_error *error)
{
    return read_text(value, param, GRAMMAR_REGEX, out, error);
}

/* An empty one says nothing, as llama.cpp's clients send it. */
static enum status read_ebnf(const struct json *value, const char *param,
                             struct openai_grammar *out, struct openai_error *error)
{
    TRY(read_text(value, param, GRAMMAR_EBNF, out, error));
    out->kind = out->source.size == 0 ? 0 : GRAMMAR_EBNF;
    return STATUS_OK;
}

static enum status read_choice(const struct json *value, const char *param,
                               struct openai_grammar *out, struct openai_error *error)
{
    if (json_kind(value) != JSON_ARRAY || json_count(value) == 0)
        return field_wrong(value, param, "an array of strings that is not empty", error);
    for (size_t i = 0; i < json_count(value); i++) {
        char text[FIELD_VALUE_BYTES];
        if (json_kind(json_at(value, i)) != JSON_STRING)
            return openai_error_set(error, 400, param, NULL,
                                    "`%s[%zu]` must be a string, but is %s.", param, i,
                                    field_value_text(json_at(value, i), text));
    }
    out->kind = GRAMMAR_CHOICE;
    return put_source(value, param, out, error);
}

/* {"name", "schema", "strict"}: an answer always keeps to its schema, strict or not. */
static enum status read_named_schema(const struct json *format, struct openai_grammar *out,
                                     struct openai_error *error)
{
    static const char param[] = "response_format";
    const struct json *named = field_get(format, "json_schema");
    bool strict;
    if (!named || json_kind(named) != JSON_OBJECT)
        return openai_error_set(error, 400, param, NULL,
                                "`response_format.json_schema` must be an object with a `name` and "
                                "a `schema`.");
    const struct json *name = field_get(named, "name"), *schema = field_get(named, "schema");
    if (name && json_kind(name) != JSON_STRING)
        return openai_error_set(error, 400, param, NULL,
                                "`response_format.json_schema.name` must be a string.");
    if (field_bool(named, "strict", &strict, error) != STATUS_OK)
        return openai_error_set(error, 400, param, NULL,
                                "`response_format.json_schema.strict` must be a boolean.");
    if (!schema || json_kind(schema) != JSON_OBJECT)
        return openai_error_set(error, 400, param, NULL,
                                "`response_format.json_schema.schema` must be an object.");
    return read_schema(schema, param, out, error);
}

static enum status read_format(const struct json *format, const char *param,
                               struct openai_grammar *out, struct openai_error *error)
{
    const struct json *type = json_kind(format) == JSON_OBJECT ? field_get(format, "type") : NULL;
    if (!type || json_kind(type) != JSON_STRING)
        return openai_error_set(error, 400, param, NULL,
                                "`response_format` must be an object with a `type`.");
    if (field_is_text(type, "text"))
        return STATUS_OK;
    if (field_is_text(type, "json_schema"))
        return read_named_schema(format, out, error);
    if (field_is_text(type, "json_object")) {
        const struct json *schema = field_get(format, "schema"); /* as llama.cpp has it */
        out->kind = GRAMMAR_JSON_OBJECT;
        return schema ? read_schema(schema, param, out, error) : STATUS_OK;
    }
    char text[FIELD_VALUE_BYTES];
    return openai_error_set(error, 400, param, "unsupported_value",
                            "`response_format.type` is %s; \"text\", \"json_object\" and "
                            "\"json_schema\" are supported.",
                            field_value_text(type, text));
}

/* ---- all of them ---- */

static const struct {
    const char *object, *name; /* object: NULL for the body itself */
    grammar_field_read *read;
} fields[] = {
    {NULL, "response_format", read_format},
    {"structured_outputs", "json", read_schema},
    {"structured_outputs", "json_object", read_any_object},
    {"structured_outputs", "regex", read_regex},
    {"structured_outputs", "choice", read_choice},
    {"structured_outputs", "grammar", read_ebnf},
    {NULL, "guided_json", read_schema},
    {NULL, "guided_regex", read_regex},
    {NULL, "guided_choice", read_choice},
    {NULL, "guided_grammar", read_ebnf},
    {NULL, "grammar", read_ebnf},
};

/* They change what is valid. */
static const struct {
    const char *object, *name;
} refused[] = {
    {"structured_outputs", "structural_tag"},
    {"structured_outputs", "whitespace_pattern"},
    {"structured_outputs", "disable_additional_properties"},
    {NULL, "guided_whitespace_pattern"},
};

/* NULL when the field is absent, null or false. */
static const struct json *find(const struct json *body, const char *object, const char *name)
{
    const struct json *within = object != NULL ? field_get(body, object) : body;
    const struct json *value = within != NULL ? field_get(within, name) : NULL;
    return value && json_kind(value) == JSON_BOOL && !json_bool(value) ? NULL : value;
}

static const char *path_of(const char *object, const char *name, char out[OPENAI_PARAM_BYTES])
{
    snprintf(out, OPENAI_PARAM_BYTES, "%s%s%s", object != NULL ? object : "",
             object != NULL ? "." : "", name);
    return out;
}

static enum status check_refused(const struct json *body, struct openai_error *error)
{
    const struct json *object = field_get(body, "structured_outputs");
    if (object && json_kind(object) != JSON_OBJECT)
        return field_wrong(object, "structured_outputs", "an object", error);
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        char path[OPENAI_PARAM_BYTES];
        if (find(body, refused[i].object, refused[i].name))
            return openai_error_set(error, 400, path_of(refused[i].object, refused[i].name, path),
                                    "unsupported_value", "`%s` is not supported.", path);
    }
    return STATUS_OK;
}

enum status openai_grammar_read(const struct json *body, struct openai_grammars *known,
                                struct openai_grammar *out, struct openai_error *error)
{
    char param[OPENAI_PARAM_BYTES] = "";
    TRY(check_refused(body, error));
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        const struct json *value = find(body, fields[i].object, fields[i].name);
        struct openai_grammar one = {0};
        char path[OPENAI_PARAM_BYTES];
        if (!value)
            continue;
        const enum status status =
            fields[i].read(value, path_of(fields[i].object, fields[i].name, path), &one, error);
        if (status != STATUS_OK || one.kind == 0) {
            openai_grammar_free(&one);
            TRY(status);
            continue;
        }
        if (out->kind != 0) {
            openai_grammar_free(&one);
            return openai_error_set(error, 400, path, NULL,
                                    "`%s` and `%s` both say what the answer has to be; only one of "
                                    "them may.",
                                    param, path);
        }
        *out = one;
        memcpy(param, path, sizeof param);
    }
    return out->kind == 0 ? STATUS_OK : openai_grammar_check(out, param, known, error);
}

void openai_grammar_free(struct openai_grammar *grammar)
{
    buffer_free(&grammar->source);
    grammar->kind = 0;
}
