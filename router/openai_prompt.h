/* `prompt` and `messages` as token ids. Any thread. */
#ifndef BATON_ROUTER_OPENAI_PROMPT_H
#define BATON_ROUTER_OPENAI_PROMPT_H

#include "base/json.h"
#include "router/openai_request.h"

/* A job carries at most this many tokens (transfer/messages.def). */
enum { OPENAI_PROMPT_TOKENS_MAX = 4194304 };

/* `prompt`: text (no special tokens in it, bos first if the tokenizer says so and
 * `add_special_tokens` is not false), an array of ids, or an array with one of these. */
enum status openai_prompt_read(const struct json *body, const struct openai_rules *rules,
                               struct token_list *ids, struct openai_error *error);
/* `prompt` as a string that may be empty: for /tokenize. */
enum status openai_text_read(const struct json *body, const struct openai_rules *rules,
                             struct token_list *ids, struct openai_error *error);
/* `content` as llama-server takes it: `parse_special` (true) finds special tokens in the text,
 * `add_special` (false) puts bos first. */
enum status openai_content_read(const struct json *body, const struct openai_rules *rules,
                                struct token_list *ids, struct openai_error *error);
/* Chat messages through the model's chat format, with `add_generation_prompt`,
 * `continue_final_message` and `add_special_tokens`. tools: what the prompt is to show of them, or
 * NULL. final_out, unless NULL: the text of a final message that is to go on is appended. */
enum status openai_messages_read(const struct json *body, const struct json *tools,
                                 const struct openai_rules *rules, struct token_list *ids,
                                 struct buffer *final_out, struct openai_error *error);

#endif
