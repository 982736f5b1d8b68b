/* Bodies of /tokenize and /detokenize, in and out. Runs on a text thread.
 *
 * /tokenize takes `prompt` or `messages` and gives {count, max_model_len, tokens, token_strs}, or
 * `content` as llama-server has it and gives {tokens}, with pieces when asked. /detokenize takes
 * `tokens` and gives {prompt}. */
#ifndef BATON_ROUTER_OPENAI_TOKENIZE_H
#define BATON_ROUTER_OPENAI_TOKENIZE_H

#include "base/bytes.h"
#include "router/openai_request.h"

/* Append the answer to *out; on failure *error is what the client gets and *out holds nothing
 * worth sending. */
enum status openai_tokenize(const char *body, size_t bytes, const struct openai_rules *rules,
                            struct buffer *out, struct openai_error *error);
enum status openai_detokenize(const char *body, size_t bytes, const struct openai_rules *rules,
                              struct buffer *out, struct openai_error *error);

#endif
