#include "ops/baton/run_grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

enum { CACHE_BYTES = 8 << 20 };

static enum status read_source(const char *path, struct buffer *out, struct error *error)
{
    FILE *file = fopen(path, "rbe");
    char piece[4096];
    size_t got;
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    while ((got = fread(piece, 1, sizeof piece, file)) > 0 && out->size <= GRAMMAR_SOURCE_BYTES_MAX)
        buffer_add(out, piece, got);
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set_errno(error, STATUS_IO, "cannot read %s", path);
    if (out->size > GRAMMAR_SOURCE_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "%s has more than %d bytes", path,
                         GRAMMAR_SOURCE_BYTES_MAX);
    return STATUS_OK;
}

static enum status compile(const struct text *text, enum grammar_kind kind, const char *source,
                           size_t bytes, struct run_grammar *out, struct error *error)
{
    struct grammar *grammar;
    TRY(grammar_compile(kind, source, bytes, &grammar, error));
    out->tokens = grammar_tokens_create(text);
    return grammar_program_create(grammar, out->tokens, CACHE_BYTES, &out->program, error);
}

enum status run_grammar_open(const struct text *text, const char *schema_file, const char *regex,
                             const char *rules_file, struct run_grammar *out, struct error *error)
{
    const char *const file = schema_file != NULL ? schema_file : rules_file;
    struct buffer source = {0};
    *out = (struct run_grammar){0};
    if ((schema_file != NULL) + (regex != NULL) + (rules_file != NULL) > 1)
        return error_set(error, STATUS_INVALID,
                         "only one of --json-schema, --regex and --grammar can say what the answer "
                         "has to be");
    enum status status = STATUS_OK;
    if (file != NULL)
        status = read_source(file, &source, error);
    if (status == STATUS_OK && file != NULL)
        status = compile(text, schema_file != NULL ? GRAMMAR_JSON_SCHEMA : GRAMMAR_EBNF,
                         source.size == 0 ? "" : source.data, source.size, out, error);
    if (status == STATUS_OK && regex != NULL)
        status = compile(text, GRAMMAR_REGEX, regex, strlen(regex), out, error);
    buffer_free(&source);
    if (status != STATUS_OK)
        run_grammar_close(out);
    return status;
}

void run_grammar_close(struct run_grammar *grammar)
{
    grammar_program_destroy(grammar->program);
    grammar_tokens_destroy(grammar->tokens);
    *grammar = (struct run_grammar){0};
}
