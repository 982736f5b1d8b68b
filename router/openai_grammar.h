/* The fields of a request body that say what the answer has to be: response_format, vLLM's
 * structured_outputs and its older guided_* names, llama.cpp's grammar. One of them at most.
 * Workers get the source. */
#ifndef BATON_ROUTER_OPENAI_GRAMMAR_H
#define BATON_ROUTER_OPENAI_GRAMMAR_H

#include <stdint.h>

#include "base/bytes.h"

/* What a job carries at most (transfer/messages.def). */
enum { OPENAI_GRAMMAR_BYTES_MAX = 262144 };

struct openai_grammar {
    uint32_t kind;        /* enum grammar_kind; 0: the answer is free */
    struct buffer source; /* empty where the kind needs none */
};

#endif
