#include "router/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void answer_init(struct answer *answer, const struct text *text,
                 const struct openai_request *request)
{
    *answer = (struct answer){.text = text,
                              .request = request,
                              .keeps_tokens = request->logprobs || request->return_token_ids};
    text_stream_init(&answer->stream, text, request->skip_special);
    stop_match_init(&answer->match, &request->stops, request->include_stop);
}

void answer_free(struct answer *answer)
{
    stop_match_free(&answer->match);
    buffer_free(&answer->fresh);
    buffer_free(&answer->out);
    free(answer->tokens);
    answer->tokens = NULL;
}

/* The echo is there with the first token only, for many answers wait for theirs. */
static void begin(struct answer *answer)
{
    const struct openai_request *request = answer->request;
    if (answer->begun)
        return;
    answer->begun = true;
    if (request->echo)
        buffer_add(&answer->out, request->echo_text.data, request->echo_text.size);
    answer->produced = answer->out.size;
}

/* start: of its text. */
static void add_token(struct answer *answer, int32_t id, size_t start, float logprob,
                      uint32_t top_count, const int32_t *top_ids, const float *top_logprobs)
{
    if (answer->pending_count == answer->capacity) {
        answer->capacity = answer->capacity ? answer->capacity * 2 : 8;
        answer->tokens = realloc(answer->tokens, answer->capacity * sizeof *answer->tokens);
        CHECK(answer->tokens != NULL);
    }
    struct answer_token *token = &answer->tokens[answer->pending_count++];
    *token = (struct answer_token){.id = id, .logprob = logprob, .start = start};
    token->top_count = top_count < OPENAI_TOP_LOGPROBS_MAX ? top_count : OPENAI_TOP_LOGPROBS_MAX;
    if (token->top_count > 0) {
        memcpy(token->top_ids, top_ids, token->top_count * sizeof *top_ids);
        memcpy(token->top_logprobs, top_logprobs, token->top_count * sizeof *top_logprobs);
    }
}

/* Tokens whose last byte has become text end at the text produced so far. held_bytes are those of
 * the latest tokens that still wait for the rest of a character. */
static void close_tokens(struct answer *answer, size_t latest_bytes)
{
    const size_t held = answer->stream.held_count;
    if (held > latest_bytes)
        return; /* earlier tokens wait too */
    const size_t count = answer->pending_count - (held > 0 ? 1 : 0);
    for (size_t i = count; i-- > 0 && !answer->tokens[i].closed;) {
        answer->tokens[i].closed = true;
        answer->tokens[i].end = answer->produced;
    }
}

static void find_ready(struct answer *answer)
{
    const size_t released = answer->out_offset + answer->out.size;
    while (answer->ready_count < answer->pending_count &&
           answer->tokens[answer->ready_count].closed &&
           answer->tokens[answer->ready_count].end <= released)
        answer->ready_count++;
}

/* The text is complete: what is left of the tokens belongs to it if it began inside. */
static void settle_tokens(struct answer *answer)
{
    const size_t released = answer->out_offset + answer->out.size;
    while (answer->ready_count < answer->pending_count) {
        const struct answer_token *token = &answer->tokens[answer->ready_count];
        const bool empty = token->closed && token->end == token->start;
        if (token->start > released || (token->start == released && !empty))
            break;
        answer->ready_count++;
    }
    answer->pending_count = answer->ready_count;
}

/* A special token gives no text, but for the marks around tool calls where they are looked for. */
static bool is_skipped(const struct answer *answer, int32_t id)
{
    const enum tool_style style = answer->request->tools.style;
    if (!answer->request->skip_special || !text_token_special(answer->text, id))
        return false;
    size_t bytes;
    const char *text = text_token_bytes(answer->text, id, &bytes);
    return style == TOOL_STYLE_NONE || !tool_syntax_is_mark(tool_syntax(style), text, bytes);
}

bool answer_push(struct answer *answer, int32_t id, float logprob, uint32_t top_count,
                 const int32_t *top_ids, const float *top_logprobs)
{
    begin(answer);
    const size_t start = answer->produced;
    buffer_clear(&answer->fresh);
    answer->stream.skip_special = is_skipped(answer, id);
    text_stream_push(&answer->stream, id, &answer->fresh);
    answer->produced += answer->fresh.size;
    answer->token_count++;
    if (answer->keeps_tokens) {
        add_token(answer, id, start, logprob, top_count, top_ids, top_logprobs);
        size_t token_bytes = 0;
        if (!answer->stream.skip_special)
            text_token_bytes(answer->text, id, &token_bytes);
        close_tokens(answer, token_bytes);
    }
    const bool stopped =
        stop_match_feed(&answer->match, answer->fresh.data, answer->fresh.size,
                        answer->token_count >= answer->request->min_tokens, &answer->out);
    if (stopped)
        settle_tokens(answer);
    else
        find_ready(answer);
    return stopped;
}

void answer_push_end(struct answer *answer, int32_t id, float logprob, uint32_t top_count,
                     const int32_t *top_ids, const float *top_logprobs)
{
    begin(answer);
    CHECK(!answer->ended);
    answer->ended = true;
    if (answer->keeps_tokens)
        add_token(answer, id, answer->produced, logprob, top_count, top_ids, top_logprobs);
}

bool answer_finish(struct answer *answer)
{
    begin(answer);
    buffer_clear(&answer->fresh);
    text_stream_finish(&answer->stream, &answer->fresh);
    answer->produced += answer->fresh.size;
    if (answer->ended && answer->keeps_tokens) {
        struct answer_token *last = &answer->tokens[answer->pending_count - 1];
        last->start = last->end = answer->produced;
        last->closed = true;
    }
    const bool stopped =
        stop_match_feed(&answer->match, answer->fresh.data, answer->fresh.size, true, &answer->out);
    if (!stopped) {
        stop_match_finish(&answer->match, &answer->out);
        answer->ready_count = answer->pending_count;
        return false;
    }
    settle_tokens(answer);
    return true;
}

void answer_take(struct answer *answer)
{
    answer->out_offset += answer->out.size;
    buffer_clear(&answer->out);
    answer_take_tokens(answer);
}

void answer_take_tokens(struct answer *answer)
{
    answer->pending_count -= answer->ready_count;
    if (answer->ready_count > 0)
        memmove(answer->tokens, answer->tokens + answer->ready_count,
                answer->pending_count * sizeof *answer->tokens);
    answer->ready_count = 0;
}
