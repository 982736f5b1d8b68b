/* The client's side of a session: tokens to text, text to SSE or to one body. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "router/router_internal.h"
#include "router/sse.h"

void session_choice_init(struct session *session, uint32_t index)
{
    struct session_choice *choice = &session->choices[index];
    const struct openai_tools *tools = &session->parsed.tools;
    answer_init(&choice->answer, session->model->text, &session->parsed);
    tool_calls_init(&choice->calls, tools->style, &tools->names,
                    tools->parallel ? TOOL_CALLS_MAX : 1,
                    random_at(session->router->instance, session->request.id, index));
}

void session_choice_free(struct session_choice *choice)
{
    answer_free(&choice->answer);
    tool_calls_free(&choice->calls);
    buffer_free(&choice->said);
    openai_logprobs_free(&choice->logprobs);
}

void session_scores_init(struct session *session)
{
    if (session->parsed.scores == 0)
        return;
    session->scores = malloc(sizeof *session->scores);
    CHECK(session->scores != NULL);
    openai_scores_init(session->scores, session->model->text, &session->parsed);
}

void session_scores_free(struct session *session)
{
    if (session->scores)
        openai_scores_free(session->scores);
    free(session->scores);
}

void session_score(struct session *session, const struct msg_step *step)
{
    openai_scores_add(session->scores, step->first_position, step->logprobs.items[0], step->rank,
                      step->top_count, step->top_ids.items, step->top_logprobs.items);
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns < from_ns ? -1.0 : (double)(to_ns - from_ns) / NS_PER_MS;
}

uint32_t session_token_count(const struct session *session)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < session->choice_count; i++)
        count += session->choices[i].answer.token_count;
    return count;
}

/* An id ended the choice. It may have come together with the token that met a stop string. */
static bool ended_by_id(const struct session *session, uint32_t index)
{
    return session->request.choices[index].finish == REQUEST_FINISH_STOP &&
           session->choices[index].answer.match.matched < 0 && !session->parsed.prompt_only;
}

/* Such an id is no token of its text, but it was computed like the others. */
static uint32_t end_tokens(const struct session *session)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < session->choice_count; i++)
        count += ended_by_id(session, i);
    return count;
}

/* The number that the client knows a choice by. */
static uint32_t choice_number(const struct session *session, uint32_t index)
{
    return session->prompt_index * session->choice_count + index;
}

static struct openai_usage usage_of(const struct session *session)
{
    const struct request *request = &session->request;
    struct openai_usage usage = {
        .prompt_tokens = request->prompt_tokens,
        .completion_tokens = session_token_count(session) + end_tokens(session),
    };
    usage.cached_tokens = request->cached_tokens;
    if (usage.cached_tokens > usage.prompt_tokens)
        usage.cached_tokens = usage.prompt_tokens;
    return usage;
}

static struct openai_timings timings_of(const struct session *session)
{
    const struct request *request = &session->request;
    const struct request_times *times = &request->times;
    const struct msg_report *prefill = request->report_seen[0] ? &request->reports[0] : NULL;
    const struct msg_report *decode = request->report_seen[1] ? &request->reports[1] : NULL;
    const struct openai_usage usage = usage_of(session);
    struct openai_timings timings = {
        .queue_ms = ms_between(times->accepted_ns, times->placed_ns),
        .prefill_ms = prefill ? (double)prefill->compute_us / 1e3 : -1,
        .cached_tokens = usage.cached_tokens,
        .handoff_ms = prefill ? (double)prefill->handoff_us / 1e3 : -1,
        .handoff_bytes = prefill ? prefill->handoff_bytes : 0,
        .handoff_wait_ms = prefill ? (double)prefill->handoff_wait_us / 1e3 : -1,
        .decode_queue_ms = decode ? (double)decode->queue_us / 1e3 : -1,
        .first_step_ms = decode ? (double)decode->first_step_us / 1e3 : -1,
        .decode_ms = decode ? (double)decode->compute_us / 1e3 : -1,
        .ttft_ms = ms_between(times->accepted_ns, times->first_ns),
        .tokens_per_s = -1,
    };
    const double answer_ms = ms_between(times->first_ns, times->last_ns);
    if (answer_ms > 0 && usage.completion_tokens > 1)
        timings.tokens_per_s = (usage.completion_tokens - 1) / answer_ms * 1e3;
    return timings;
}

/* What the choice's text is told as: NULL where no calls are looked for. */
static struct tool_calls *calls_of(struct session *session, uint32_t index)
{
    return session->parsed.tools.style == TOOL_STYLE_NONE ? NULL : &session->choices[index].calls;
}

/* Text that is free to go goes through the calls; over: it was the last. */
static void feed_calls(struct session_choice *choice, struct tool_calls *calls, bool over)
{
    if (!calls)
        return;
    const struct buffer *text = &choice->answer.out;
    tool_calls_feed(calls, text->data + choice->calls_fed, text->size - choice->calls_fed);
    choice->calls_fed = text->size;
    if (over)
        tool_calls_finish(calls);
}

/* A call that was asked for by its name ends an answer as it would have ended anyway. */
static bool ends_with_calls(const struct session *session, uint32_t index, bool cut)
{
    return session->parsed.tools.style != TOOL_STYLE_NONE &&
           session->parsed.tools.choice != OPENAI_TOOL_CHOICE_NAMED &&
           tool_calls_end(&session->choices[index].calls, cut);
}

static struct openai_end end_of(const struct session *session, uint32_t index)
{
    const struct request_choice *choice = &session->request.choices[index];
    struct openai_end end = {.finish_reason = request_finish_name(choice->finish), .stop_id = -1};
    const int matched = session->choices[index].answer.match.matched;
    if (session->parsed.prompt_only) {
        end.finish_reason = request_finish_name(REQUEST_FINISH_LENGTH);
    } else if (matched >= 0) {
        end.finish_reason = request_finish_name(REQUEST_FINISH_STOP_STRING);
        end.stop_string = session->parsed.stops.strings[matched];
        end.stop_bytes = session->parsed.stops.bytes[matched];
    } else if (choice->finish == REQUEST_FINISH_STOP) {
        /* An end-of-text id is no reason worth telling; an id the client chose is. */
        for (size_t i = 0; i < session->parsed.stop_ids.count; i++) {
            if (session->parsed.stop_ids.ids[i] == choice->stop_id)
                end.stop_id = choice->stop_id;
        }
    }
    if (ends_with_calls(session, index, matched < 0 && choice->finish == REQUEST_FINISH_LENGTH))
        end.finish_reason = "tool_calls";
    return end;
}

static void add_chunk(struct session *session, const struct openai_chunk *chunk, struct buffer *out)
{
    sse_open(out);
    openai_chunk_write(&session->head, chunk, out);
    sse_close(out);
}

static struct openai_chunk chunk_of(const struct session *session, uint32_t index)
{
    struct openai_chunk chunk = {.index = choice_number(session, index), .end = {.stop_id = -1}};
    if (session->parsed.continuous_usage) {
        chunk.usage_mode = OPENAI_USAGE_GIVEN;
        chunk.usage = usage_of(session);
    } else if (session->parsed.include_usage) {
        chunk.usage_mode = OPENAI_USAGE_NULL;
    }
    return chunk;
}

/* Gives a chunk what the choice has ready of text and tokens, which it was not told before. */
static void fill_chunk(const struct session *session, struct session_choice *choice,
                       struct openai_chunk *chunk)
{
    chunk->first = !choice->begun;
    chunk->answer = &choice->answer;
    chunk->logprobs = &choice->logprobs;
    chunk->scores = choice->scores_told ? NULL : session->scores;
    choice->begun = choice->scores_told = true;
}

/* What the answer has ready, as one chunk; over: no more comes. */
static void add_text_chunk(struct session *session, uint32_t index, bool over, struct buffer *out)
{
    struct session_choice *choice = &session->choices[index];
    struct tool_calls *calls = calls_of(session, index);
    if (session->endpoint == OPENAI_CHAT && !choice->begun) {
        struct openai_chunk role = chunk_of(session, index);
        role.first = true;
        add_chunk(session, &role, out);
        choice->begun = true;
    }
    feed_calls(choice, calls, over);
    if (calls ? !tool_calls_ready(calls) : choice->answer.out.size == 0)
        return;
    struct openai_chunk chunk = chunk_of(session, index);
    fill_chunk(session, choice, &chunk);
    chunk.calls = calls;
    add_chunk(session, &chunk, out);
    answer_take(&choice->answer);
    openai_logprobs_clear(&choice->logprobs);
    choice->calls_fed = 0;
    if (calls)
        tool_calls_take(calls);
}

/* Before any of it is taken. */
static void note_ready(const struct session *session, struct session_choice *choice)
{
    session_keep_answer(session, choice);
    openai_logprobs_take(&choice->logprobs, &choice->answer);
}

static void begin_stream(struct session *session)
{
    session->reply->http_status = 200;
    if (session->reply->stream_begun)
        return;
    session->reply->stream_begun = true;
    session->reply->said_ns = loop_now_ns(session->router->loop);
    http_stream_begin(session->reply->exchange, "text/event-stream; charset=utf-8");
}

/* One token of a step, wherever its log-probabilities lie. */
static bool push_token(struct session_choice *choice, const struct msg_step *step, uint32_t index)
{
    const bool logprobs = step->logprobs.count > 0;
    const size_t top = (size_t)index * step->top_count;
    return answer_push(&choice->answer, step->tokens.items[index],
                       logprobs ? step->logprobs.items[index] : 0, logprobs ? step->top_count : 0,
                       logprobs ? step->top_ids.items + top : NULL,
                       logprobs ? step->top_logprobs.items + top : NULL);
}

/* The choice's next piece begins with the prompt, as text, scores or ids. */
static bool has_prompt(const struct session *session, uint32_t index)
{
    return (session->parsed.echo || session->parsed.return_token_ids) &&
           !session->choices[index].begun;
}

/* Sends a piece of a stream; true when the client takes too little of what went before. prompt: it
 * holds that, which is there at once, and may be more than a client has to keep up with. What
 * is left of such pieces is no more than what waits, for they leave in their order. */
static bool send_piece(struct session *session, const struct buffer *piece, bool prompt)
{
    struct session_reply *reply = session->reply;
    const size_t waiting = http_stream_send(reply->exchange, piece->data, piece->size);
    reply->said_ns = loop_now_ns(session->router->loop);
    if (reply->prompt_bytes > waiting)
        reply->prompt_bytes = waiting;
    const bool slow = waiting - reply->prompt_bytes > session->router->options.stream_bytes;
    if (prompt)
        reply->prompt_bytes += piece->size;
    return slow;
}

/* The id that ended the choice, if the step tells how likely it was and that is wanted. */
static void push_end(const struct session *session, struct session_choice *choice,
                     const struct msg_step *step)
{
    const uint32_t at = step->tokens.count;
    const size_t top = (size_t)at * step->top_count;
    if (session->parsed.logprobs && step->logprobs.count > at)
        answer_push_end(&choice->answer, step->stop_id, step->logprobs.items[at], step->top_count,
                        step->top_ids.items + top, step->top_logprobs.items + top);
}

bool session_deliver(struct session *session, const struct msg_step *step, bool *slow_out)
{
    struct session_choice *choice = &session->choices[step->choice];
    const bool prompt = has_prompt(session, step->choice);
    *slow_out = false;
    if (choice->answer.match.matched >= 0)
        return true;
    struct buffer *out = &session->router->scratch;
    buffer_clear(out);
    bool stopped = false;
    for (uint32_t i = 0; i < step->tokens.count && !stopped; i++) {
        session_measure_token(session, choice, i == 0);
        stopped = !session->parsed.prompt_only && push_token(choice, step, i);
        note_ready(session, choice);
        if (session->parsed.stream)
            add_text_chunk(session, step->choice, false, out);
    }
    if (!stopped && !session->parsed.prompt_only)
        push_end(session, choice, step);
    if (!session->parsed.stream)
        return stopped;
    begin_stream(session);
    if (out->size > 0)
        *slow_out = send_piece(session, out, prompt);
    return stopped;
}

/* No more tokens come; a stop string has ended it already. */
static void finish_answer(const struct session *session, uint32_t index)
{
    struct session_choice *choice = &session->choices[index];
    struct answer *answer = &choice->answer;
    /* Where log-probabilities are wanted the id that ended it has come with its own. */
    if (ended_by_id(session, index) && !session->parsed.logprobs)
        answer_push_end(answer, session->request.choices[index].stop_id, 0, 0, NULL, NULL);
    if (answer->match.matched < 0)
        answer_finish(answer);
    note_ready(session, choice);
}

/* The rest of a choice's text and the chunk that says why it ends. */
static void close_choice(struct session *session, uint32_t index,
                         const struct openai_timings *timings, struct buffer *out)
{
    struct session_choice *choice = &session->choices[index];
    if (choice->closed)
        return;
    choice->closed = true;
    finish_answer(session, index);
    add_text_chunk(session, index, true, out);
    struct openai_chunk last = chunk_of(session, index);
    /* Log-probabilities of tokens that gave no text of their own. */
    if (choice->logprobs.count > 0 || (session->parsed.echo_scores && !choice->scores_told))
        fill_chunk(session, choice, &last);
    else
        last.first = !choice->begun;
    last.calls = calls_of(session, index);
    last.end = end_of(session, index);
    last.timings = timings;
    add_chunk(session, &last, out);
}

void session_say_alive(struct session *session)
{
    struct buffer *out = &session->router->scratch;
    buffer_clear(out);
    buffer_add_text(out, ": keep-alive\n\n");
    begin_stream(session);
    /* Of comments a client that does not read gathers little until its deadline. */
    send_piece(session, out, false);
}

void session_end_choice(struct session *session, uint32_t index)
{
    struct buffer *out = &session->router->scratch;
    if (!session->parsed.stream)
        return;
    buffer_clear(out);
    begin_stream(session);
    const bool prompt = has_prompt(session, index);
    close_choice(session, index, NULL, out);
    send_piece(session, out, prompt);
}

/* Of all prompts together. */
static struct openai_usage usage_of_all(const struct session_reply *reply)
{
    struct openai_usage sum = {0};
    for (uint32_t i = 0; i < reply->member_count; i++) {
        const struct openai_usage usage = usage_of(reply->members[i]);
        sum.prompt_tokens += usage.prompt_tokens;
        sum.completion_tokens += usage.completion_tokens;
        sum.cached_tokens += usage.cached_tokens;
    }
    return sum;
}

/* last: no other prompt is open. */
static void finish_stream(struct session *session, bool last, const struct openai_timings *timings)
{
    struct buffer *out = &session->router->scratch;
    const bool usage = session->parsed.include_usage;
    buffer_clear(out);
    begin_stream(session);
    bool prompt = false;
    for (uint32_t i = 0; i < session->choice_count; i++) {
        prompt = prompt || has_prompt(session, i);
        close_choice(session, i, usage ? NULL : timings, out);
    }
    if (last && usage) {
        const struct openai_chunk closing = {.without_choices = true,
                                             .usage_mode = OPENAI_USAGE_GIVEN,
                                             .usage = usage_of_all(session->reply),
                                             .timings = timings};
        add_chunk(session, &closing, out);
    }
    if (last)
        sse_done(out);
    send_piece(session, out, prompt);
    if (last)
        http_stream_end(session->reply->exchange, false);
}

static struct openai_choice whole_choice(struct session *session, uint32_t index)
{
    struct answer *answer = &session->choices[index].answer;
    finish_answer(session, index);
    struct tool_calls *calls = calls_of(session, index);
    feed_calls(&session->choices[index], calls, true);
    return (struct openai_choice){.answer = answer,
                                  .calls = calls,
                                  .end = end_of(session, index),
                                  .logprobs = &session->choices[index].logprobs,
                                  .scores = session->scores};
}

static void finish_body(struct session_reply *reply, const struct openai_timings *timings)
{
    struct openai_choice choices[OPENAI_ANSWERS_MAX];
    struct session *first = reply->members[0];
    struct buffer *out = &first->router->scratch;
    uint32_t count = 0;
    buffer_clear(out);
    for (uint32_t m = 0; m < reply->member_count; m++) {
        struct session *session = reply->members[m];
        for (uint32_t i = 0; i < session->choice_count; i++) {
            CHECK(count < OPENAI_ANSWERS_MAX);
            choices[count++] = whole_choice(session, i);
        }
    }
    const struct openai_usage usage = usage_of_all(reply);
    openai_body_write(&first->head, choices, count, &usage, timings, out);
    reply->http_status = 200;
    http_reply_json(reply->exchange, 200, out->data, out->size);
}

void session_finish(struct session *session)
{
    struct session_reply *reply = session->reply;
    const struct openai_timings timings = timings_of(session);
    const struct openai_timings *wanted = session->parsed.timings ? &timings : NULL;
    CHECK(reply->open_count > 0);
    const bool last = --reply->open_count == 0;
    if (session->parsed.stream)
        finish_stream(session, last, wanted);
    else if (last)
        finish_body(reply, wanted);
    if (last)
        reply->exchange = NULL;
}

void session_drop(struct session *session)
{
    struct session_reply *reply = session->reply;
    if (reply->exchange)
        http_exchange_abort(reply->exchange);
    reply->exchange = NULL;
    session_reply_abandon(reply);
}

/* The exception to "an answer begins with its status": once a stream runs, the error is its last
 * event, with no [DONE] and no finish_reason, and the connection closes. */
static void fail_stream(struct session *session, const struct openai_error *error)
{
    struct buffer *out = &session->router->scratch;
    buffer_clear(out);
    sse_open(out);
    openai_error_write(error, out);
    sse_close(out);
    http_stream_send(session->reply->exchange, out->data, out->size);
    http_stream_end(session->reply->exchange, true);
}

void session_fail(struct session *session)
{
    const struct request_failure *failure = &session->request.failure;
    struct openai_error error;
    if (session->parse_status == STATUS_INVALID) {
        error = session->parse_error;
    } else {
        openai_error_set(&error, failure->http_status, NULL, failure->code, "%s", failure->text);
        openai_error_hide_places(&error);
    }
    error.retry_after_s = failure->retry_s;
    if (session->reply->stream_begun) {
        router_metrics_count_error(session->router->metrics, error.code, error.http_status);
        fail_stream(session, &error);
    } else {
        session->reply->http_status = error.http_status;
        http_reply_error(session->reply->exchange, &error);
    }
    session->reply->exchange = NULL;
    session->reply->failed = session;
    session_reply_abandon(session->reply);
}
