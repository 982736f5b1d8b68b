#include "ops/baton/run_grammar.h"

#include <string.h>

#include "base/bytes.h"
#include "ops/baton/text_input.h"

enum { CACHE_BYTES = 8 << 20 };

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
        status = text_file_read(file, GRAMMAR_SOURCE_BYTES_MAX, &source, error);
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
