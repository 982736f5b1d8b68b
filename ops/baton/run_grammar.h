/* What the answer of `baton run` has to be, as its options say. */
#ifndef BATON_OPS_BATON_RUN_GRAMMAR_H
#define BATON_OPS_BATON_RUN_GRAMMAR_H

#include "base/status.h"
#include "model/text/grammar/grammar.h"
#include "model/text/text.h"

struct run_grammar {
    struct grammar_tokens *tokens;
    struct grammar_program *program; /* NULL: the answer is free */
};

/* Each NULL or a source; one of them at most. schema_file, rules_file: names of files. On failure
 * nothing is left. */
enum status run_grammar_open(const struct text *text, const char *schema_file, const char *regex,
                             const char *rules_file, struct run_grammar *out, struct error *error);
void run_grammar_close(struct run_grammar *grammar);

#endif
