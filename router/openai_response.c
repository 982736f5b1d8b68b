#include "router/openai_response.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

void openai_head_init(struct openai_head *head, enum openai_endpoint endpoint, uint64_t request,
                      int64_t created_s, const char *model, const struct text *text)
{
    *head = (struct openai_head){
        .endpoint = endpoint, .created_s = created_s, .model = model, .text = text};
    snprintf(head->id, sizeof head->id, "%s-%016" PRIx64,
             endpoint == OPENAI_CHAT ? "chatcmpl" : "cmpl", request);
}

static void put_ids(struct json_writer *writer, const char *key, const struct token_list *ids)
{
    json_key(writer, key);
    json_open_array(writer);
    for (size_t i = 0; i < ids->count; i++)
        json_put_int(writer, ids->ids[i]);
    json_close_array(writer);
}

/* NULL where nothing is told of tokens, or nothing wanted. */
static void put_logprobs(struct json_writer *writer, const struct openai_head *head,
                         const struct openai_logprobs *logprobs, const struct openai_scores *scores)
{
    json_key(writer, "logprobs");
    if (logprobs && head->request->logprobs)
        openai_logprobs_put(writer, head->endpoint, scores ? &scores->echoed : NULL, logprobs);
    else
        json_put_null(writer);
}

static void put_prompt_logprobs(struct json_writer *writer, const struct openai_scores *scores)
{
    json_key(writer, "prompt_logprobs");
    json_open_array(writer);
    json_put_written(writer, &scores->beside);
    json_close_array(writer);
}

/* The ids of what a chunk or a choice holds, and with the first one those of the prompt. A chat has
 * the latter beside its choices. */
static void put_choice_ids(struct json_writer *writer, const struct openai_head *head,
                           const struct answer *answer, const struct openai_logprobs *logprobs,
                           bool first)
{
    if (!head->request->return_token_ids)
        return;
    if (first && head->endpoint == OPENAI_COMPLETIONS)
        put_ids(writer, "prompt_token_ids",
                answer ? &answer->request->prompt : &head->request->prompt);
    json_key(writer, "token_ids");
    json_open_array(writer);
    if (logprobs)
        json_put_written(writer, &logprobs->ids);
    json_close_array(writer);
}

static void put_chat_prompt(struct json_writer *writer, const struct openai_head *head, bool first)
{
    if (first && head->request->return_token_ids && head->endpoint == OPENAI_CHAT)
        put_ids(writer, "prompt_token_ids", &head->request->prompt);
}

static void put_end(struct json_writer *writer, const struct openai_end *end)
{
    json_key(writer, "finish_reason");
    json_put_text(writer, end->finish_reason);
    json_key(writer, "stop_reason");
    if (end->stop_string)
        json_put_string(writer, end->stop_string, end->stop_bytes);
    else if (end->stop_id >= 0)
        json_put_int(writer, end->stop_id);
    else
        json_put_null(writer);
}

static void put_usage(struct json_writer *writer, const struct openai_usage *usage)
{
    json_key(writer, "usage");
    json_open_object(writer);
    json_key(writer, "prompt_tokens");
    json_put_u64(writer, usage->prompt_tokens);
    json_key(writer, "completion_tokens");
    json_put_u64(writer, usage->completion_tokens);
    json_key(writer, "total_tokens");
    json_put_u64(writer, (uint64_t)usage->prompt_tokens + usage->completion_tokens);
    json_key(writer, "prompt_tokens_details");
    json_open_object(writer);
    json_key(writer, "cached_tokens");
    json_put_u64(writer, usage->cached_tokens);
    json_close_object(writer);
    json_close_object(writer);
}

static void put_ms(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    if (value < 0)
        json_put_null(writer);
    else
        json_put_number(writer, value, 6);
}

static void put_timings(struct json_writer *writer, const struct openai_timings *timings)
{
    json_key(writer, "timings");
    json_open_object(writer);
    put_ms(writer, "queue_ms", timings->queue_ms);
    put_ms(writer, "prefill_ms", timings->prefill_ms);
    json_key(writer, "cached_tokens");
    json_put_u64(writer, timings->cached_tokens);
    put_ms(writer, "handoff_ms", timings->handoff_ms);
    json_key(writer, "handoff_bytes");
    json_put_u64(writer, timings->handoff_bytes);
    put_ms(writer, "handoff_wait_ms", timings->handoff_wait_ms);
    put_ms(writer, "decode_queue_ms", timings->decode_queue_ms);
    put_ms(writer, "first_step_ms", timings->first_step_ms);
    put_ms(writer, "decode_ms", timings->decode_ms);
    put_ms(writer, "ttft_ms", timings->ttft_ms);
    put_ms(writer, "tokens_per_s", timings->tokens_per_s);
    json_close_object(writer);
}

static void put_head(struct json_writer *writer, const struct openai_head *head,
                     const char *chat_object)
{
    json_key(writer, "id");
    json_put_text(writer, head->id);
    json_key(writer, "object");
    json_put_text(writer, head->endpoint == OPENAI_CHAT ? chat_object : "text_completion");
    json_key(writer, "created");
    json_put_int(writer, head->created_s);
    json_key(writer, "model");
    json_put_text(writer, head->model);
}

static void put_calls(struct json_writer *writer, const struct tool_calls *calls)
{
    json_key(writer, "tool_calls");
    json_open_array(writer);
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct tool_call *call = &calls->calls[i];
        json_open_object(writer);
        json_key(writer, "id");
        json_put_text(writer, call->id);
        json_key(writer, "type");
        json_put_text(writer, "function");
        json_key(writer, "function");
        json_open_object(writer);
        json_key(writer, "name");
        json_put_text(writer, call->name);
        json_key(writer, "arguments");
        json_put_string(writer, call->arguments.data, call->arguments.size);
        json_close_object(writer);
        json_close_object(writer);
    }
    json_close_array(writer);
}

/* What each call has gained: its id and name go with the first piece of its arguments. */
static void put_call_deltas(struct json_writer *writer, const struct tool_calls *calls)
{
    json_key(writer, "tool_calls");
    json_open_array(writer);
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct tool_call *call = &calls->calls[i];
        const size_t fresh = call->arguments.size - call->arguments_taken;
        if (call->begin_taken && fresh == 0)
            continue;
        json_open_object(writer);
        json_key(writer, "index");
        json_put_u64(writer, i);
        if (!call->begin_taken) {
            json_key(writer, "id");
            json_put_text(writer, call->id);
            json_key(writer, "type");
            json_put_text(writer, "function");
        }
        json_key(writer, "function");
        json_open_object(writer);
        if (!call->begin_taken) {
            json_key(writer, "name");
            json_put_text(writer, call->name);
        }
        json_key(writer, "arguments");
        json_put_string(writer, call->arguments.data + call->arguments_taken, fresh);
        json_close_object(writer);
        json_close_object(writer);
    }
    json_close_array(writer);
}

/* An answer that is all calls has no content. */
static void put_message(struct json_writer *writer, const struct openai_choice *choice)
{
    const struct tool_calls *calls = choice->calls;
    const struct buffer *content = calls ? &calls->content : &choice->answer->out;
    json_open_object(writer);
    json_key(writer, "role");
    json_put_text(writer, "assistant");
    json_key(writer, "content");
    if (content->size == 0 && calls && calls->count > 0)
        json_put_null(writer);
    else
        json_put_string(writer, content->data, content->size);
    if (calls && calls->count > 0)
        put_calls(writer, calls);
    json_close_object(writer);
}

static void put_whole_choice(struct json_writer *writer, const struct openai_head *head,
                             const struct openai_choice *choice, uint32_t index)
{
    const struct answer *answer = choice->answer;
    json_open_object(writer);
    json_key(writer, "index");
    json_put_u64(writer, index);
    if (head->endpoint == OPENAI_CHAT) {
        json_key(writer, "message");
        put_message(writer, choice);
    } else {
        json_key(writer, "text");
        json_put_string(writer, answer->out.data, answer->out.size);
    }
    put_logprobs(writer, head, choice->logprobs, choice->scores);
    if (answer->request->prompt_scores && head->endpoint == OPENAI_COMPLETIONS)
        put_prompt_logprobs(writer, choice->scores);
    put_choice_ids(writer, head, answer, choice->logprobs, true);
    put_end(writer, &choice->end);
    json_close_object(writer);
}

void openai_body_write(const struct openai_head *head, const struct openai_choice *choices,
                       uint32_t count, const struct openai_usage *usage,
                       const struct openai_timings *timings, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    put_head(&writer, head, "chat.completion");
    json_key(&writer, "choices");
    json_open_array(&writer);
    for (uint32_t i = 0; i < count; i++)
        put_whole_choice(&writer, head, &choices[i], i);
    json_close_array(&writer);
    if (choices[0].answer->request->prompt_scores && head->endpoint == OPENAI_CHAT)
        put_prompt_logprobs(&writer, choices[0].scores);
    put_chat_prompt(&writer, head, true);
    put_usage(&writer, usage);
    if (timings)
        put_timings(&writer, timings);
    json_close_object(&writer);
}

static void put_delta(struct json_writer *writer, const struct openai_chunk *chunk)
{
    static const struct buffer none;
    const struct tool_calls *calls = chunk->calls;
    const struct buffer *text = calls           ? &calls->content
                                : chunk->answer ? &chunk->answer->out
                                                : &none;
    json_open_object(writer);
    if (chunk->first) {
        json_key(writer, "role");
        json_put_text(writer, "assistant");
    }
    if (chunk->first || (calls ? text->size > 0 : chunk->answer != NULL)) {
        json_key(writer, "content");
        json_put_string(writer, text->size > 0 ? text->data : "", text->size);
    }
    if (calls && tool_calls_grown(calls))
        put_call_deltas(writer, calls);
    json_close_object(writer);
}

static void put_choice(struct json_writer *writer, const struct openai_head *head,
                       const struct openai_chunk *chunk)
{
    const struct answer *answer = chunk->answer;
    json_open_object(writer);
    json_key(writer, "index");
    json_put_u64(writer, chunk->index);
    if (head->endpoint == OPENAI_CHAT) {
        json_key(writer, "delta");
        put_delta(writer, chunk);
    } else {
        json_key(writer, "text");
        json_put_string(writer, answer ? answer->out.data : "", answer ? answer->out.size : 0);
    }
    put_logprobs(writer, head, chunk->logprobs, chunk->scores);
    put_choice_ids(writer, head, answer, chunk->logprobs, chunk->first);
    put_end(writer, &chunk->end);
    json_close_object(writer);
}

void openai_chunk_write(const struct openai_head *head, const struct openai_chunk *chunk,
                        struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    put_head(&writer, head, "chat.completion.chunk");
    json_key(&writer, "choices");
    json_open_array(&writer);
    if (!chunk->without_choices)
        put_choice(&writer, head, chunk);
    json_close_array(&writer);
    put_chat_prompt(&writer, head, chunk->first && chunk->index == 0);
    if (chunk->usage_mode == OPENAI_USAGE_GIVEN) {
        put_usage(&writer, &chunk->usage);
    } else if (chunk->usage_mode == OPENAI_USAGE_NULL) {
        json_key(&writer, "usage");
        json_put_null(&writer);
    }
    if (chunk->timings)
        put_timings(&writer, chunk->timings);
    json_close_object(&writer);
}
