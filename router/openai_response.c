#include "router/openai_response.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* JSON has no infinity; this is what others send for "impossible". */
static const double LOGPROB_MIN = -9999.0;

void openai_head_init(struct openai_head *head, enum openai_endpoint endpoint, uint64_t request,
                      int64_t created_s, const char *model, const struct text *text)
{
    *head = (struct openai_head){
        .endpoint = endpoint, .created_s = created_s, .model = model, .text = text};
    snprintf(head->id, sizeof head->id, "%s-%016" PRIx64,
             endpoint == OPENAI_CHAT ? "chatcmpl" : "cmpl", request);
}

static void put_logprob(struct json_writer *writer, float logprob)
{
    json_put_number(writer, logprob < LOGPROB_MIN ? LOGPROB_MIN : logprob, 9);
}

static void put_bytes(struct json_writer *writer, const char *data, size_t bytes)
{
    json_open_array(writer);
    for (size_t i = 0; i < bytes; i++)
        json_put_int(writer, (unsigned char)data[i]);
    json_close_array(writer);
}

static void put_ids(struct json_writer *writer, const char *key, const struct token_list *ids)
{
    json_key(writer, key);
    json_open_array(writer);
    for (size_t i = 0; i < ids->count; i++)
        json_put_int(writer, ids->ids[i]);
    json_close_array(writer);
}

static void put_token_name(struct json_writer *writer, int32_t id)
{
    char name[32];
    snprintf(name, sizeof name, "token_id:%" PRId32, id);
    json_put_text(writer, name);
}

static void put_chat_token(struct json_writer *writer, const struct openai_head *head, int32_t id,
                           float logprob)
{
    size_t bytes;
    const char *data = text_token_bytes(head->text, id, &bytes);
    json_key(writer, "token");
    if (head->request->token_ids_as_text)
        put_token_name(writer, id);
    else
        json_put_string(writer, data, bytes);
    json_key(writer, "logprob");
    put_logprob(writer, logprob);
    json_key(writer, "bytes");
    put_bytes(writer, data, bytes);
}

static void put_chat_logprobs(struct json_writer *writer, const struct openai_head *head,
                              const struct answer *answer)
{
    json_open_object(writer);
    json_key(writer, "content");
    json_open_array(writer);
    for (size_t i = 0; i < answer->ready_count; i++) {
        const struct answer_token *token = &answer->tokens[i];
        json_open_object(writer);
        put_chat_token(writer, head, token->id, token->logprob);
        json_key(writer, "top_logprobs");
        json_open_array(writer);
        for (uint32_t k = 0; k < token->top_count; k++) {
            json_open_object(writer);
            put_chat_token(writer, head, token->top_ids[k], token->top_logprobs[k]);
            json_close_object(writer);
        }
        json_close_array(writer);
        json_close_object(writer);
    }
    json_close_array(writer);
    json_close_object(writer);
}

void openai_token_text(const struct text *text, int32_t id, struct buffer *out)
{
    size_t bytes;
    const char *data = text_token_bytes(text, id, &bytes);
    buffer_clear(out);
    if (utf8_valid(data, bytes) && !(bytes > 0 && memchr(data, 0, bytes))) {
        buffer_add(out, data, bytes);
        return;
    }
    buffer_add_text(out, "bytes:");
    for (size_t i = 0; i < bytes; i++)
        buffer_printf(out, "\\x%02X", (unsigned char)data[i]);
}

/* The name of a token in the older shape. */
static void name_token(const struct openai_head *head, int32_t id, struct buffer *out)
{
    if (!head->request->token_ids_as_text) {
        openai_token_text(head->text, id, out);
        return;
    }
    buffer_clear(out);
    buffer_printf(out, "token_id:%" PRId32, id);
}

static void put_top_map(struct json_writer *writer, const struct openai_head *head,
                        const struct answer_token *token, struct buffer *scratch)
{
    bool chosen_listed = false;
    json_open_object(writer);
    for (uint32_t k = 0; k < token->top_count; k++) {
        name_token(head, token->top_ids[k], scratch);
        json_key(writer, scratch->data);
        put_logprob(writer, token->top_logprobs[k]);
        chosen_listed = chosen_listed || token->top_ids[k] == token->id;
    }
    if (!chosen_listed) {
        name_token(head, token->id, scratch);
        json_key(writer, scratch->data);
        put_logprob(writer, token->logprob);
    }
    json_close_object(writer);
}

static void put_completion_logprobs(struct json_writer *writer, const struct openai_head *head,
                                    const struct answer *answer)
{
    struct buffer scratch = {0};
    json_open_object(writer);
    json_key(writer, "tokens");
    json_open_array(writer);
    for (size_t i = 0; i < answer->ready_count; i++) {
        name_token(head, answer->tokens[i].id, &scratch);
        json_put_string(writer, scratch.data, scratch.size);
    }
    json_close_array(writer);
    json_key(writer, "token_logprobs");
    json_open_array(writer);
    for (size_t i = 0; i < answer->ready_count; i++) {
        if (answer->tokens[i].unscored)
            json_put_null(writer);
        else
            put_logprob(writer, answer->tokens[i].logprob);
    }
    json_close_array(writer);
    json_key(writer, "top_logprobs");
    json_open_array(writer);
    for (size_t i = 0; i < answer->ready_count; i++) {
        if (answer->tokens[i].unscored)
            json_put_null(writer);
        else
            put_top_map(writer, head, &answer->tokens[i], &scratch);
    }
    json_close_array(writer);
    json_key(writer, "text_offset");
    json_open_array(writer);
    for (size_t i = 0; i < answer->ready_count; i++)
        json_put_u64(writer, answer->tokens[i].start);
    json_close_array(writer);
    json_close_object(writer);
    buffer_free(&scratch);
}

static void put_logprobs(struct json_writer *writer, const struct openai_head *head,
                         const struct answer *answer)
{
    json_key(writer, "logprobs");
    if (!answer || !answer->request->logprobs)
        json_put_null(writer);
    else if (head->endpoint == OPENAI_CHAT)
        put_chat_logprobs(writer, head, answer);
    else
        put_completion_logprobs(writer, head, answer);
}

/* The ids of what a chunk or a choice holds, and with the first one those of the prompt. A chat has
 * the latter beside its choices. */
static void put_choice_ids(struct json_writer *writer, const struct openai_head *head,
                           const struct answer *answer, bool first)
{
    if (!head->request->return_token_ids)
        return;
    if (first && head->endpoint == OPENAI_COMPLETIONS)
        put_ids(writer, "prompt_token_ids",
                answer ? &answer->request->prompt : &head->request->prompt);
    json_key(writer, "token_ids");
    json_open_array(writer);
    for (size_t i = 0; answer && i < answer->ready_count; i++) {
        if (!answer->tokens[i].echoed)
            json_put_int(writer, answer->tokens[i].id);
    }
    json_close_array(writer);
}

static void put_chat_prompt(struct json_writer *writer, const struct openai_head *head, bool first)
{
    if (first && head->request->return_token_ids && head->endpoint == OPENAI_CHAT)
        put_ids(writer, "prompt_token_ids", &head->request->prompt);
}

static void put_score(struct json_writer *writer, const struct openai_head *head, int32_t id,
                      float logprob, uint32_t rank, struct buffer *scratch)
{
    char key[16];
    snprintf(key, sizeof key, "%" PRId32, id);
    json_key(writer, key);
    json_open_object(writer);
    json_key(writer, "logprob");
    put_logprob(writer, logprob);
    json_key(writer, "rank");
    json_put_u64(writer, rank);
    json_key(writer, "decoded_token");
    openai_token_text(head->text, id, scratch);
    json_put_string(writer, scratch->data, scratch->size);
    json_close_object(writer);
}

/* How likely each token of a prompt was, in vLLM's shape: by ids, its own first. */
static void put_prompt_logprobs(struct json_writer *writer, const struct openai_head *head,
                                const struct openai_request *request,
                                const struct answer_score *scores)
{
    struct buffer scratch = {0};
    json_key(writer, "prompt_logprobs");
    json_open_array(writer);
    json_put_null(writer);
    for (size_t i = 1; i < request->prompt.count; i++) {
        const struct answer_score *score = &scores[i];
        const int32_t own = request->prompt.ids[i];
        json_open_object(writer);
        put_score(writer, head, own, score->logprob, score->rank, &scratch);
        for (uint32_t k = 0; k < score->top_count && k < request->prompt_logprobs; k++) {
            if (score->top_ids[k] != own)
                put_score(writer, head, score->top_ids[k], score->top_logprobs[k], k + 1, &scratch);
        }
        json_close_object(writer);
    }
    json_close_array(writer);
    buffer_free(&scratch);
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
    put_logprobs(writer, head, answer);
    if (choice->scores && head->endpoint == OPENAI_COMPLETIONS)
        put_prompt_logprobs(writer, head, answer->request, choice->scores);
    put_choice_ids(writer, head, answer, true);
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
    if (choices[0].scores && head->endpoint == OPENAI_CHAT)
        put_prompt_logprobs(&writer, head, choices[0].answer->request, choices[0].scores);
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
    put_logprobs(writer, head, answer);
    put_choice_ids(writer, head, answer, chunk->first);
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
