/* `prompt` and `messages` as token ids. Any thread. */
#ifndef BATON_ROUTER_OPENAI_PROMPT_H
#define BATON_ROUTER_OPENAI_PROMPT_H

#include "base/json.h"
#include "router/openai_request.h"

/* A job carries at most this many tokens (transfer/messages.def). */
enum { OPENAI_PROMPT_TOKENS_MAX = 4194304 };

/* How many prompts `prompt` holds: 1 to OPENAI_PROMPTS_MAX. */
enum status openai_prompt_count(const struct json *body, uint32_t *count_out,
                                struct openai_error *error);
/* The one at index of them: text (no special tokens in it, bos first if the tokenizer says so and
 * `add_special_tokens` is not false) or an array of ids. */
enum status openai_prompt_read(const struct json *body, const struct openai_rules *rules,
                               uint32_t index, struct token_list *ids, struct openai_error *error);
/* `prompt` as a string that may be empty: for /tokenize. */
enum status openai_text_read(const struct json *body, const struct openai_rules *rules,
                             struct token_list *ids, struct openai_error *error);
/* `content` as llama-server takes it: `parse_special` (true) finds special tokens in the text,
 * `add_special` (false) puts bos first. */
enum status openai_content_read(const struct json *body, const struct openai_rules *rules,
                                struct token_list *ids, struct openai_error *error);
/* Chat messages through the chat template, with `add_generation_prompt`, `continue_final_message`,
 * `add_special_tokens`, `chat_template`, `chat_template_kwargs`, `documents` and
 * `reasoning_effort`. tools: what the prompt is to show of them, or NULL. final_out, unless NULL:
 * the text of a final message that is to go on is appended. */
enum status openai_messages_read(const struct json *body, const struct json *tools,
                                 const struct openai_rules *rules, struct token_list *ids,
                                 struct buffer *final_out, struct openai_error *error);

#endif
