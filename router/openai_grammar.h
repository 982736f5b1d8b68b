/* The fields of a request body that say what the answer has to be: response_format, vLLM's
 * structured_outputs and its older guided_* names, llama.cpp's grammar. One of them at most.
 *
 * A source is compiled here only to refuse what cannot be met, with its place; workers get the
 * source and compile it again. Text threads. */
#ifndef BATON_ROUTER_OPENAI_GRAMMAR_H
#define BATON_ROUTER_OPENAI_GRAMMAR_H

#include "base/bytes.h"
#include "base/json.h"
#include "router/openai_error.h"

/* What a job carries at most (transfer/messages.def). */
enum { OPENAI_GRAMMAR_BYTES_MAX = 262144 };

struct openai_grammar {
    uint32_t kind;        /* enum grammar_kind; 0: the answer is free */
    struct buffer source; /* empty where the kind needs none */
};

/* Sources that were compiled lately and found good: nothing is told of them but their digests. Any
 * thread. */
struct openai_grammars;
struct openai_grammars *openai_grammars_create(void);
void openai_grammars_destroy(struct openai_grammars *grammars);

/* Reads every field of a body that is an object, and compiles. known: NULL to compile always. On
 * failure *out still has to be freed. */
enum status openai_grammar_read(const struct json *body, struct openai_grammars *known,
                                struct openai_grammar *out, struct openai_error *error);
/* Compiles a source that was put together here; the 400 names `param`. */
enum status openai_grammar_check(const struct openai_grammar *grammar, const char *param,
                                 struct openai_grammars *known, struct openai_error *error);
void openai_grammar_free(struct openai_grammar *grammar);

#endif
