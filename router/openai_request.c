#include "router/openai_request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crypto.h"
#include "router/openai_fields.h"
#include "router/openai_prompt.h"

/* Fields that change the answer and are not served yet: refused unless they say "nothing". */
enum neutral { NEUTRAL_FALSE, NEUTRAL_EMPTY, NEUTRAL_NONE };

static const struct {
    const char *name;
    enum neutral neutral;
} unsupported_fields[] = {
    {"suffix", NEUTRAL_EMPTY},
    {"use_beam_search", NEUTRAL_FALSE},
    {"functions", NEUTRAL_EMPTY},
    {"function_call", NEUTRAL_NONE},
};

static bool is_empty(const struct json *value)
{
    size_t bytes = 1;
    switch (json_kind(value)) {
    case JSON_STRING:
        json_string(value, &bytes);
        return bytes == 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        return json_count(value) == 0;
    default:
        return false;
    }
}

static bool is_neutral(const struct json *value, enum neutral neutral)
{
    switch (neutral) {
    case NEUTRAL_FALSE:
        return json_kind(value) == JSON_BOOL && !json_bool(value);
    case NEUTRAL_EMPTY:
        return is_empty(value);
    case NEUTRAL_NONE:
        return field_is_text(value, "none") || field_is_text(value, "auto");
    }
    return false;
}

static enum status check_unsupported(const struct json *body, struct openai_error *error)
{
    for (size_t i = 0; i < ARRAY_COUNT(unsupported_fields); i++) {
        const char *name = unsupported_fields[i].name;
        const struct json *value = field_get(body, name);
        if (!value)
            continue;
        const enum neutral neutral = unsupported_fields[i].neutral;
        if (is_neutral(value, neutral))
            continue;
        char text[FIELD_VALUE_BYTES];
        return openai_error_set(error, 400, name, "unsupported_value",
                                "`%s` is %s, which is not supported yet.", name,
                                field_value_text(value, text));
    }
    return STATUS_OK;
}

enum status openai_model_unknown(const char *name, const struct openai_rules *rules,
                                 struct openai_error *error)
{
    struct buffer served = {0};
    for (const struct openai_rules *each = rules; each; each = each->next)
        buffer_printf(&served, "%s\"%s\"", each == rules ? "" : ", ", each->model_name);
    openai_error_set(error, 404, "model", "model_not_found",
                     "The model %s does not exist; this server has %s.", name, served.data);
    buffer_free(&served);
    return STATUS_INVALID;
}

enum status openai_model_find(const struct json *body, const struct openai_rules *rules,
                              const struct openai_rules **rules_out, struct openai_error *error)
{
    const struct json *model = field_get(body, "model");
    if (model && json_kind(model) != JSON_STRING)
        return field_wrong(model, "model", "a string", error);
    const struct openai_rules *found = rules;
    while (model && found && !field_is_text(model, found->model_name))
        found = found->next;
    if (!found) {
        char text[FIELD_VALUE_BYTES];
        return openai_model_unknown(field_value_text(model, text), rules, error);
    }
    *rules_out = found;
    return STATUS_OK;
}

static enum status add_stop(const struct json *value, struct openai_request *out,
                            struct openai_error *error)
{
    if (json_kind(value) != JSON_STRING)
        return field_wrong(value, "stop", "a string or an array of strings", error);
    size_t bytes;
    const char *text = json_string(value, &bytes);
    if (bytes == 0)
        return openai_error_set(error, 400, "stop", NULL, "`stop` holds an empty string.");
    if (bytes > STOP_STRING_BYTES_MAX)
        return openai_error_set(error, 400, "stop", NULL,
                                "`stop` holds a string of %zu bytes; the limit is %d.", bytes,
                                STOP_STRING_BYTES_MAX);
    stop_set_add(&out->stops, text, bytes);
    return STATUS_OK;
}

static enum status read_stops(const struct json *body, struct openai_request *out,
                              struct openai_error *error)
{
    TRY(field_bool(body, "include_stop_str_in_output", &out->include_stop, error));
    const struct json *stop = field_get(body, "stop");
    if (!stop)
        return STATUS_OK;
    if (json_kind(stop) != JSON_ARRAY)
        return add_stop(stop, out, error);
    if (json_count(stop) > STOP_STRINGS_MAX)
        return openai_error_set(error, 400, "stop", NULL,
                                "`stop` holds %zu strings; the limit is %d.", json_count(stop),
                                STOP_STRINGS_MAX);
    for (size_t i = 0; i < json_count(stop); i++)
        TRY(add_stop(json_at(stop, i), out, error));
    return STATUS_OK;
}

static enum status read_logprobs(const struct json *body, struct openai_request *out,
                                 struct openai_error *error)
{
    int64_t top = 0;
    if (out->endpoint == OPENAI_COMPLETIONS) {
        TRY(field_int(body, "logprobs", 0, OPENAI_TOP_LOGPROBS_MAX, &top, error));
        out->logprobs = field_get(body, "logprobs") != NULL;
    } else {
        TRY(field_bool(body, "logprobs", &out->logprobs, error));
        TRY(field_int(body, "top_logprobs", 0, OPENAI_TOP_LOGPROBS_MAX, &top, error));
        if (top > 0 && !out->logprobs)
            return openai_error_set(error, 400, "top_logprobs", NULL,
                                    "`top_logprobs` is %" PRId64 ", which needs `logprobs` to be "
                                    "true.",
                                    top);
    }
    out->top_logprobs = (uint32_t)top;
    return STATUS_OK;
}

static enum status read_stream(const struct json *body, struct openai_request *out,
                               struct openai_error *error)
{
    TRY(field_bool(body, "stream", &out->stream, error));
    TRY(field_bool(body, "timings", &out->timings, error));
    const struct json *options = field_get(body, "stream_options");
    if (!options)
        return STATUS_OK;
    if (json_kind(options) != JSON_OBJECT)
        return field_wrong(options, "stream_options", "an object", error);
    if (!out->stream)
        return openai_error_set(error, 400, "stream_options", NULL,
                                "`stream_options` is only allowed when `stream` is true.");
    TRY(field_bool(options, "include_usage", &out->include_usage, error));
    return field_bool(options, "continuous_usage_stats", &out->continuous_usage, error);
}

/* The answer's length where it is said; 0 where a completion's echo is all there is to tell. */
static enum status read_max_tokens(const struct json *body, const struct openai_request *request,
                                   int64_t *out, struct openai_error *error)
{
    const bool echoes = request->echo && request->endpoint == OPENAI_COMPLETIONS;
    TRY(field_int(body, "max_tokens", echoes ? 0 : 1, INT64_MAX, out, error));
    return field_int(body, "max_completion_tokens", 1, INT64_MAX, out, error);
}

/* The answer's length; what is over the room behind the prompt is clamped and ends with "length".
 */
static enum status read_lengths(const struct json *body, const struct openai_rules *rules,
                                struct openai_request *out, struct openai_error *error)
{
    const size_t prompt = out->prompt.count;
    const uint32_t context = rules->context_tokens;
    if (prompt >= context) {
        openai_error_set(error, 400, out->endpoint == OPENAI_CHAT ? "messages" : "prompt",
                         "context_length_exceeded",
                         "This model's maximum context length is %u tokens. However, your prompt "
                         "is too long: its %zu tokens leave no room for an answer.",
                         context, prompt);
        error->prompt_tokens = (uint32_t)prompt;
        error->context_tokens = context;
        return STATUS_INVALID;
    }
    const uint32_t room = context - (uint32_t)prompt;
    int64_t max_tokens = out->endpoint == OPENAI_COMPLETIONS ? OPENAI_COMPLETIONS_MAX_TOKENS
                         : rules->default_max_tokens != 0    ? rules->default_max_tokens
                                                             : room;
    TRY(read_max_tokens(body, out, &max_tokens, error));
    out->prompt_only = max_tokens == 0;
    if (out->prompt_only)
        max_tokens = 1;
    out->max_tokens = max_tokens > room ? room : (uint32_t)max_tokens;
    int64_t min_tokens = 0;
    TRY(field_int(body, "min_tokens", 0, INT64_MAX, &min_tokens, error));
    if (min_tokens > max_tokens)
        return openai_error_set(error, 400, "min_tokens", NULL,
                                "`min_tokens` is %" PRId64 ", more than the %" PRId64
                                " tokens the answer may have.",
                                min_tokens, max_tokens);
    out->min_tokens = min_tokens > out->max_tokens ? out->max_tokens : (uint32_t)min_tokens;
    TRY(field_bool(body, "ignore_eos", &out->ignore_eos, error));
    return field_bool(body, "skip_special_tokens", &out->skip_special, error);
}

static enum status read_choices(const struct json *body, struct openai_request *out,
                                struct openai_error *error)
{
    int64_t choices = 1;
    TRY(field_int(body, "n", 1, OPENAI_CHOICES_MAX, &choices, error));
    if (choices > 1 && out->sampling.temperature < OPENAI_GREEDY_BELOW)
        return openai_error_set(error, 400, "n", NULL,
                                "`n` is %" PRId64 ", but with a `temperature` of 0 all answers are "
                                "the same.",
                                choices);
    /* Picking the best of more answers than are told would need their scores. */
    int64_t best_of = choices;
    TRY(field_int(body, "best_of", 1, OPENAI_CHOICES_MAX, &best_of, error));
    if (best_of != 1 && best_of != choices)
        return openai_error_set(error, 400, "best_of", "unsupported_value",
                                "`best_of` is %" PRId64 ", which is not supported yet unless `n` "
                                "is the same.",
                                best_of);
    out->choices = (uint32_t)choices;
    return STATUS_OK;
}

/* Who knows the salt shares pages with the request; nothing is to be learnt of it from others. */
static enum status read_cache_salt(const struct json *body, struct openai_request *out,
                                   struct openai_error *error)
{
    const struct json *value = field_get(body, "cache_salt");
    if (!value)
        return STATUS_OK;
    size_t bytes = 0;
    const char *text = json_kind(value) == JSON_STRING ? json_string(value, &bytes) : NULL;
    size_t characters = 0;
    for (size_t i = 0; i < bytes; i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (!text || bytes == 0)
        return field_wrong(value, "cache_salt", "a string that is not empty", error);
    if (characters > OPENAI_CACHE_SALT_MAX)
        return openai_error_set(error, 400, "cache_salt", NULL,
                                "`cache_salt` has %zu characters; the limit is %d.", characters,
                                OPENAI_CACHE_SALT_MAX);
    if (memchr(text, '@', bytes) || memchr(text, '/', bytes) || memchr(text, '\\', bytes) ||
        memchr(text, '\0', bytes))
        return openai_error_set(error, 400, "cache_salt", NULL,
                                "`cache_salt` holds an @, a slash, a backslash or a NUL.");
    static const char use[] = "baton cache_salt";
    uint8_t mac[CRYPTO_MAC_BYTES];
    crypto_mac(use, sizeof use - 1, text, bytes, mac);
    out->cache_salt = load_le64(mac) | 1; /* never that of requests without one */
    return STATUS_OK;
}

/* What is to be told of how likely the prompt's tokens were. */
static enum status read_scores(const struct json *body, struct openai_request *out,
                               struct openai_error *error)
{
    int64_t alternatives = 0;
    TRY(field_int(body, "prompt_logprobs", 0, OPENAI_TOP_LOGPROBS_MAX, &alternatives, error));
    out->prompt_scores = field_get(body, "prompt_logprobs") != NULL;
    if (out->prompt_scores && out->stream)
        return openai_error_set(error, 400, "prompt_logprobs", NULL,
                                "`prompt_logprobs` are not streamed; `stream` must be false.");
    out->prompt_logprobs = (uint32_t)alternatives;
    out->echo_scores = out->echo && out->logprobs && out->endpoint == OPENAI_COMPLETIONS;
    if (out->prompt_scores)
        out->scores = out->prompt_logprobs + 1;
    if (out->echo_scores && out->top_logprobs + 1 > out->scores)
        out->scores = out->top_logprobs + 1;
    return STATUS_OK;
}

static enum status read_extras(const struct json *body, struct openai_request *out,
                               struct openai_error *error)
{
    int64_t priority = 0;
    TRY(field_int(body, "priority", -OPENAI_PRIORITY_MAX, OPENAI_PRIORITY_MAX, &priority, error));
    out->priority = (int32_t)priority;
    TRY(field_bool(body, "return_token_ids", &out->return_token_ids, error));
    TRY(field_bool(body, "return_tokens_as_token_ids", &out->token_ids_as_text, error));
    TRY(field_bool(body, "echo", &out->echo, error));
    TRY(read_scores(body, out, error));
    return read_cache_salt(body, out, error);
}

/* A prompt that is too long for its place: all but the last tokens of it go, or the first. */
static enum status truncate_prompt(const struct json *body, const struct openai_rules *rules,
                                   struct openai_request *out, struct openai_error *error)
{
    if (!field_get(body, "truncate_prompt_tokens"))
        return STATUS_OK;
    int64_t keep = -1, answer = 1;
    TRY(field_int(body, "truncate_prompt_tokens", -1, INT64_MAX, &keep, error));
    TRY(read_max_tokens(body, out, &answer, error));
    if (answer == 0)
        answer = 1;
    if (keep == 0)
        return openai_error_set(error, 400, "truncate_prompt_tokens", NULL,
                                "`truncate_prompt_tokens` is 0, which leaves nothing of the "
                                "prompt.");
    if (keep < 0) /* what leaves room for the answer */
        keep = answer < rules->context_tokens ? rules->context_tokens - answer : 1;
    const struct json *side = field_get(body, "truncation_side");
    const bool right = side && field_is_text(side, "right");
    if (side && !right && !field_is_text(side, "left"))
        return field_wrong(side, "truncation_side", "\"left\" or \"right\"", error);
    struct token_list *prompt = &out->prompt;
    if ((uint64_t)keep >= prompt->count)
        return STATUS_OK;
    if (!right)
        memmove(prompt->ids, prompt->ids + prompt->count - keep,
                (size_t)keep * sizeof *prompt->ids);
    prompt->count = (size_t)keep;
    return STATUS_OK;
}

/* The further prompts of a completion: what there may be of them is said before any is read. */
static enum status count_prompts(const struct json *body, struct openai_request *out,
                                 struct openai_error *error)
{
    uint32_t count;
    TRY(openai_prompt_count(body, &count, error));
    if (count * out->choices > OPENAI_ANSWERS_MAX)
        return openai_error_set(error, 400, "n", NULL,
                                "`n` is %u for each of %u prompts, which makes more than %d "
                                "answers.",
                                out->choices, count, OPENAI_ANSWERS_MAX);
    if (count > 1 && out->timings)
        return openai_error_set(error, 400, "timings", "unsupported_value",
                                "`timings` are those of one prompt, but `prompt` is a list of %u.",
                                count);
    out->more_count = count - 1;
    return STATUS_OK;
}

/* The prompt as text, in front of a completion. Of a chat only a final message that goes on. */
static void fill_echo(const struct openai_rules *rules, struct openai_request *out)
{
    if (!out->echo || out->endpoint != OPENAI_COMPLETIONS)
        return;
    struct text_stream stream;
    text_stream_init_whole(&stream, rules->text, out->skip_special);
    for (size_t i = 0; i < out->prompt.count; i++)
        text_stream_push(&stream, out->prompt.ids[i], &out->echo_text);
    text_stream_finish(&stream, &out->echo_text);
}

/* Calls that have to come have a grammar of their own. */
static enum status read_tools(const struct json *body, const struct openai_rules *rules,
                              struct openai_request *out, const struct json **tools_out,
                              struct openai_error *error)
{
    const bool bound = out->grammar.kind != 0;
    TRY(openai_tools_read(body, &rules->tools, rules->text, &out->tools, tools_out, &out->grammar,
                          error));
    return bound || out->grammar.kind == 0
               ? STATUS_OK
               : openai_grammar_check(&out->grammar, "tools", rules->grammars, error);
}

/* index: of the prompt. */
static enum status read_body(const struct json *body, const struct openai_rules *rules,
                             uint32_t index, struct openai_request *out, struct openai_error *error)
{
    if (json_kind(body) != JSON_OBJECT)
        return openai_error_set(error, 400, NULL, NULL,
                                "The request body must be a JSON object, but is %s.",
                                json_kind_name(json_kind(body)));
    /* Cheap checks first: tokenising is the work. */
    TRY(openai_model_find(body, rules, &rules, error));
    out->rules = rules;
    TRY(check_unsupported(body, error));
    TRY(openai_sampling_read(body, rules->text, &out->sampling, error));
    TRY(read_choices(body, out, error));
    TRY(read_stops(body, out, error));
    TRY(field_ids(body, "stop_token_ids", OPENAI_STOP_IDS_MAX, text_info(rules->text)->vocab_count,
                  &out->stop_ids, error));
    TRY(read_logprobs(body, out, error));
    TRY(read_stream(body, out, error));
    TRY(read_extras(body, out, error));
    TRY(openai_grammar_read(body, rules->grammars, &out->grammar, error));
    const struct json *tools = NULL;
    if (out->endpoint == OPENAI_COMPLETIONS && index == 0)
        TRY(count_prompts(body, out, error));
    if (out->endpoint == OPENAI_CHAT)
        TRY(read_tools(body, rules, out, &tools, error));
    else if (field_get(body, "tools"))
        return openai_error_set(error, 400, "tools", "unsupported_value",
                                "`tools` are of /v1/chat/completions only.");
    if (out->endpoint == OPENAI_CHAT)
        TRY(openai_messages_read(body, tools, rules, &out->prompt,
                                 out->echo ? &out->echo_text : NULL, error));
    else
        TRY(openai_prompt_read(body, rules, index, &out->prompt, error));
    TRY(truncate_prompt(body, rules, out, error));
    TRY(read_lengths(body, rules, out, error));
    fill_echo(rules, out);
    return STATUS_OK;
}

enum status openai_body_parse(const char *body, size_t bytes, struct json **root_out,
                              struct openai_error *error)
{
    if (bytes == 0)
        return openai_error_set(error, 400, NULL, NULL, "The request body is empty.");
    struct error cause;
    if (json_parse(body, bytes, root_out, &cause) != STATUS_OK)
        return openai_error_set(error, 400, NULL, NULL, "The request body is not valid JSON: %s.",
                                cause.text);
    return STATUS_OK;
}

/* What all prompts read so far add to the answer. */
struct repeated {
    uint64_t scores, echo_bytes;
};

static enum status check_repeated(const struct openai_request *request, struct repeated *sum,
                                  struct openai_error *error)
{
    const uint64_t tokens = request->prompt.count, choices = request->choices;
    const uint64_t beside = request->endpoint == OPENAI_CHAT ? 1 : choices;
    sum->echo_bytes += choices * request->echo_text.size;
    if (request->echo_scores)
        sum->scores += choices * tokens * (request->top_logprobs + 1);
    if (request->prompt_scores)
        sum->scores += beside * tokens * (request->prompt_logprobs + 1);
    if (request->return_token_ids)
        sum->scores += beside * tokens;
    if (sum->scores > OPENAI_SCORES_MAX)
        return openai_error_set(error, 400,
                                request->prompt_scores ? "prompt_logprobs"
                                : request->echo_scores ? "logprobs"
                                                       : "return_token_ids",
                                NULL,
                                "The scores and ids of prompts come to %" PRIu64 " or more "
                                "(choices x tokens x (alternatives + 1), and choices x tokens); "
                                "the limit is %d.",
                                sum->scores, OPENAI_SCORES_MAX);
    if (sum->echo_bytes > OPENAI_ECHO_BYTES_MAX)
        return openai_error_set(error, 400, "echo", NULL,
                                "`echo` repeats %" PRIu64 " bytes or more (choices x text); the "
                                "limit is %d.",
                                sum->echo_bytes, OPENAI_ECHO_BYTES_MAX);
    return STATUS_OK;
}

static enum status read_more(const struct json *body, const struct openai_rules *rules,
                             struct openai_request *out, struct openai_error *error)
{
    struct repeated repeated = {0};
    TRY(check_repeated(out, &repeated, error));
    if (out->more_count == 0)
        return STATUS_OK;
    out->more = calloc(out->more_count, sizeof *out->more);
    CHECK(out->more != NULL);
    for (uint32_t i = 0; i < out->more_count; i++) {
        out->more[i] = (struct openai_request){.endpoint = out->endpoint, .skip_special = true};
        TRY(read_body(body, rules, i + 1, &out->more[i], error));
        TRY(check_repeated(&out->more[i], &repeated, error));
    }
    return STATUS_OK;
}

enum status openai_request_parse(enum openai_endpoint endpoint, const char *body, size_t bytes,
                                 const struct openai_rules *rules, struct openai_request *out,
                                 struct openai_error *error)
{
    struct json *root;
    out->rules = NULL;
    TRY(openai_body_parse(body, bytes, &root, error));
    struct openai_request request = {.endpoint = endpoint, .skip_special = true};
    enum status status = read_body(root, rules, 0, &request, error);
    if (status == STATUS_OK)
        status = read_more(root, rules, &request, error);
    json_free(root);
    if (status != STATUS_OK) {
        const struct openai_rules *found = request.rules;
        openai_request_free(&request);
        *out = (struct openai_request){.rules = found};
        return status;
    }
    *out = request;
    return STATUS_OK;
}

static void free_one(struct openai_request *request)
{
    token_list_free(&request->prompt);
    token_list_free(&request->stop_ids);
    openai_sampling_free(&request->sampling);
    openai_tools_free(&request->tools);
    openai_grammar_free(&request->grammar);
    stop_set_free(&request->stops);
    buffer_free(&request->echo_text);
}

void openai_request_free(struct openai_request *request)
{
    for (uint32_t i = 0; request->more && i < request->more_count; i++)
        free_one(&request->more[i]);
    free(request->more);
    free_one(request);
}
