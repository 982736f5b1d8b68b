/* `prompt` and `messages` as token ids. Any thread. */
#ifndef BATON_ROUTER_OPENAI_PROMPT_H
#define BATON_ROUTER_OPENAI_PROMPT_H

#include "base/json.h"
#include "router/openai_request.h"

/* Text (no special tokens in it, bos first if the tokenizer says so), an array of ids, or an array
 * with one of these. */
enum status openai_prompt_read(const struct json *body, const struct openai_rules *rules,
                               struct token_list *ids, struct openai_error *error);
/* Chat messages through the model's chat format. */
enum status openai_messages_read(const struct json *body, const struct openai_rules *rules,
                                 struct token_list *ids, struct openai_error *error);

#endif
