/* Any bytes as the body of a request: what is taken keeps every limit that workers of its model
 * rely on, what is refused has a sentence and a status. The first byte of an input chooses the
 * path, and whether the router serves one model or two. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "router/openai_request.h"
#include "router/openai_tokenize.h"
#include "tests/fuzz/fuzz.h"
#include "tests/router/tiny_text.h"
#include "worker/job.h"

const char *const fuzz_words[] = {
    "\"model\":\"tiny\"",
    "\"model\":\"Org/small-1.5\"",
    "\"model\":",
    "\"prompt\":",
    "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    "\"role\":\"assistant\"",
    "\"content\":",
    "\"max_tokens\":",
    "\"n\":",
    "\"best_of\":",
    "\"stop\":",
    "\"stop_token_ids\":[",
    "\"logit_bias\":{",
    "\"bad_words\":[",
    "\"allowed_token_ids\":[",
    "\"logprobs\":",
    "\"top_logprobs\":",
    "\"echo\":true",
    "\"cache_salt\":\"",
    "\"truncate_prompt_tokens\":",
    "\"truncation_side\":\"right\"",
    "\"continue_final_message\":true",
    "\"stream\":true",
    "\"tokens\":[",
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
    "\"parameters\":{\"type\":\"object\"}",
    "\"tool_choice\":\"required\"",
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
    "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\"}",
    "\"seed\":9223372036854775807",
    "-1",
    "1e308",
    "null",
    "\\u0000",
    "},{",
    NULL};

enum { CONTEXT = 1024, SMALL_CONTEXT = 256, PAGE_TOKENS = 64, PAGES = 64, EOS = 262 };

static struct openai_rules one, two[2];

/* What the router takes the workers take: the job is built as session.c does. */
static void taken_check(const struct openai_request *request)
{
    static const int32_t eos = EOS;
    const uint32_t context = request->rules->context_tokens;
    const struct job_limits limits = {.vocab_count = text_info(request->rules->text)->vocab_count,
                                      .context_tokens = context,
                                      .page_tokens = PAGE_TOKENS,
                                      .pages_total = PAGES,
                                      .eos_ids = &eos,
                                      .eos_count = 1};
    struct msg_job job = {
        .request = 1,
        .attempt = 1,
        .remaining_ms = 1,
        .prompt_count = (uint32_t)request->prompt.count,
        .tokens = {request->prompt.ids, (uint32_t)request->prompt.count},
        .max_tokens = request->max_tokens,
        .min_tokens = request->min_tokens,
        .ignore_eos = request->ignore_eos,
        .choices = request->choices,
        .stop_ids = {request->stop_ids.ids, (uint32_t)request->stop_ids.count},
        .cache_salt = request->cache_salt,
    };
    openai_sampling_tell(&request->sampling, &job.sampling);
    job.sampling.logprobs = request->logprobs;
    job.sampling.top_logprobs = request->top_logprobs;
    struct error error = {0};
    if (job_check(&job, &limits, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"the router takes what a worker refuses");
    }
    CHECK(request->prompt.count + request->max_tokens <= context);
    CHECK(!(request->echo && request->logprobs && request->endpoint == OPENAI_COMPLETIONS));
}

static void refused_check(const struct openai_error *error)
{
    CHECK(error->http_status == 400 || error->http_status == 404);
    const size_t bytes = strnlen(error->message, sizeof error->message);
    CHECK(bytes > 0 && bytes < sizeof error->message);
}

static void tokenizer_check(bool there, const char *body, size_t bytes,
                            const struct openai_rules *rules)
{
    struct buffer out = {0};
    struct openai_error error;
    const enum status status = there ? openai_tokenize(body, bytes, rules, &out, &error)
                                     : openai_detokenize(body, bytes, rules, &out, &error);
    if (status == STATUS_OK) {
        struct json *root;
        struct error cause;
        CHECK(json_parse(out.data, out.size, &root, &cause) == STATUS_OK);
        json_free(root);
    } else {
        refused_check(&error);
    }
    buffer_free(&out);
}

static void models_open(void)
{
    static const char *const special[] = {"[TOOL_CALLS]", "[/TOOL_CALLS]"};
    one = (struct openai_rules){.text = tiny_text_open(),
                                .model_name = "tiny",
                                .context_tokens = CONTEXT,
                                .tools = {.style = TOOL_STYLE_HERMES}};
    two[0] = one;
    two[0].next = &two[1];
    two[1] = (struct openai_rules){.text = tiny_text_open_with(special, ARRAY_COUNT(special)),
                                   .model_name = "Org/small-1.5",
                                   .model = 1,
                                   .context_tokens = SMALL_CONTEXT,
                                   .default_max_tokens = 16,
                                   .tools = {.style = TOOL_STYLE_MISTRAL}};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!one.text)
        models_open();
    if (bytes == 0)
        return 0;
    const char *body = (const char *)data + 1;
    const unsigned path = data[0] % 4;
    const struct openai_rules *rules = data[0] / 4 % 2 == 0 ? &one : two;
    if (path >= 2) {
        tokenizer_check(path == 2, body, bytes - 1, rules);
        return 0;
    }
    struct openai_request request;
    struct openai_error error;
    if (openai_request_parse(path == 0 ? OPENAI_CHAT : OPENAI_COMPLETIONS, body, bytes - 1, rules,
                             &request, &error) == STATUS_OK) {
        CHECK(request.rules == &one || request.rules == &two[0] || request.rules == &two[1]);
        taken_check(&request);
        openai_request_free(&request);
    } else {
        refused_check(&error);
    }
    return 0;
}
