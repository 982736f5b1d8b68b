/* Every field of a request body: what is taken, and what is refused with which words. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "router/openai_request.h"
#include "tests/router/tiny_text.h"

static struct text *text;
static struct openai_rules rules;

static void set_up(void)
{
    text = tiny_text_open();
    rules = (struct openai_rules){.text = text, .model_name = "tiny", .context_tokens = 64};
}

static void tear_down(void)
{
    text_close(text);
}

TestSuite(openai_request, .init = set_up, .fini = tear_down);

static const char prompt_of_64[] =
    "0123456789012345678901234567890123456789012345678901234567890123";

#define TEN_PROMPTS "[0],[1],[2],[3],[4],[5],[6],[7],[8],[9],"

struct bad {
    enum openai_endpoint endpoint;
    const char *body;
    const char *param;   /* "" for none */
    const char *message; /* a part of it */
};

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," fields "}"
#define TEXT(fields) "{\"prompt\":\"x\"," fields "}"

static const struct bad bads[] = {
    {OPENAI_CHAT, "", "", "empty"},
    {OPENAI_CHAT, "{:", "", "not valid JSON"},
    {OPENAI_CHAT, "{} x", "", "not valid JSON"},
    {OPENAI_CHAT, "[]", "", "an array"},
    {OPENAI_CHAT, "\"x\"", "", "a string"},
    {OPENAI_COMPLETIONS, "{\"prompt\":\"a\",\"prompt\":\"b\"}", "", "not valid JSON"},
    {OPENAI_COMPLETIONS, "{\"prompt\":\"\xff\"}", "", "not valid JSON"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[99999999999999999999]}", "", "not valid JSON"},
    {OPENAI_CHAT, "{}", "messages", "missing"},
    {OPENAI_CHAT, "{\"messages\":null}", "messages", "missing"},
    {OPENAI_CHAT, "{\"messages\":\"x\"}", "messages", "an array"},
    {OPENAI_CHAT, "{\"messages\":[]}", "messages", "holds 0"},
    {OPENAI_CHAT, "{\"messages\":[3]}", "messages", "`messages[0]` must be an object, but is 3"},
    {OPENAI_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages", "`messages[0].role`"},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"root\",\"content\":\"x\"}]}", "messages", "\"root\""},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages", "`messages[0].content`"},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages", "is 7"},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
     "messages", "\"image_url\"; only \"text\""},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
     "messages", "`messages[0].content[0].text`"},
    {OPENAI_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000s\","
     "\"text\":\"x\"}]}]}",
     "messages", "is \"text?s\"; only"},
    {OPENAI_CHAT, CHAT("\"response_format\":{\"type\":\"text\\u0000\"}"), "response_format",
     "is \"text?\"; \"text\", \"json_object\""},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", "messages",
     "object with a `type`"},
    {OPENAI_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\"}]}]}",
     "messages", "tool_calls"},
    {OPENAI_COMPLETIONS, "{}", "prompt", "missing"},
    {OPENAI_COMPLETIONS, "{\"prompt\":\"\"}", "prompt", "empty"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[]}", "prompt", "empty"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[\"\"]}", "prompt", "empty"},
    {OPENAI_COMPLETIONS, "{\"prompt\":{}}", "prompt", "a string or an array"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[true]}", "prompt", "is true"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[1,\"x\"]}", "prompt", "`prompt[1]`"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[-1]}", "prompt", "`prompt[0]` is -1"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[[-1]]}", "prompt", "is -1"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[263]}", "prompt", "from 0 to 262"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[5279552648203111001]}", "prompt", "5279552648203111001"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[1.5]}", "prompt", "1.5"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[\"a\",\"\"]}", "prompt", "`prompt[1]` is empty"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[[1],[]]}", "prompt", "`prompt[1]` is empty"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[[1],[2,-1]]}", "prompt", "`prompt[1][1]` is -1"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[\"a\",3]}", "prompt", "is 3"},
    {OPENAI_COMPLETIONS,
     "{\"prompt\":[" TEN_PROMPTS TEN_PROMPTS TEN_PROMPTS TEN_PROMPTS TEN_PROMPTS TEN_PROMPTS
     "[1],[2],[3],[4],[5]]}",
     "prompt", "list of 65 prompts; the limit is 64"},
    {OPENAI_COMPLETIONS,
     "{\"prompt\":[" TEN_PROMPTS "[1],[2],[3],[4],[5],[6],[7]],\"n\":16,\"temperature\":1}", "n",
     "16 for each of 17 prompts, which makes more than 256 answers"},
    {OPENAI_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"timings\":true}", "timings", "a list of 2"},
    {OPENAI_CHAT, CHAT("\"model\":\"gpt-4\""), "model", "\"gpt-4\" does not exist"},
    {OPENAI_CHAT, CHAT("\"model\":3"), "model", "a string"},
    {OPENAI_CHAT, CHAT("\"temperature\":-1"), "temperature", "is -1"},
    {OPENAI_CHAT, CHAT("\"temperature\":2.1"), "temperature", "is 2.1"},
    {OPENAI_CHAT, CHAT("\"temperature\":\"hot\""), "temperature", "\"hot\""},
    {OPENAI_CHAT, CHAT("\"top_p\":-0.1"), "top_p", "-0.1"},
    {OPENAI_CHAT, CHAT("\"top_p\":0"), "top_p", "above 0"},
    {OPENAI_CHAT, CHAT("\"top_p\":1.1"), "top_p", "1.1"},
    {OPENAI_CHAT, CHAT("\"top_k\":-2"), "top_k", "-2"},
    {OPENAI_CHAT, CHAT("\"top_k\":1.5"), "top_k", "1.5"},
    {OPENAI_CHAT, CHAT("\"min_p\":2"), "min_p", "is 2"},
    {OPENAI_CHAT, CHAT("\"seed\":\"x\""), "seed", "\"x\""},
    {OPENAI_CHAT, CHAT("\"max_tokens\":0"), "max_tokens", "is 0"},
    {OPENAI_CHAT, CHAT("\"max_tokens\":-5"), "max_tokens", "is -5"},
    {OPENAI_CHAT, CHAT("\"max_completion_tokens\":0"), "max_completion_tokens", "is 0"},
    {OPENAI_CHAT, CHAT("\"max_tokens\":3,\"min_tokens\":4"), "min_tokens", "4, more than the 3"},
    {OPENAI_CHAT, CHAT("\"ignore_eos\":1"), "ignore_eos", "a boolean"},
    {OPENAI_CHAT, CHAT("\"stop\":\"\""), "stop", "empty string"},
    {OPENAI_CHAT, CHAT("\"stop\":[\"a\",2]"), "stop", "is 2"},
    {OPENAI_CHAT,
     CHAT("\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
          "\"13\",\"14\",\"15\",\"16\",\"17\"]"),
     "stop", "17 strings; the limit is 16"},
    {OPENAI_CHAT, CHAT("\"stop_token_ids\":7"), "stop_token_ids", "is 7"},
    {OPENAI_CHAT, CHAT("\"stop_token_ids\":[263]"), "stop_token_ids", "263"},
    {OPENAI_CHAT, CHAT("\"stop_token_ids\":[151645]"), "stop_token_ids", "from 0 to 262"},
    {OPENAI_CHAT, CHAT("\"stop_token_ids\":[1,-1]"), "stop_token_ids", "[1]` is -1"},
    {OPENAI_CHAT, CHAT("\"stop_token_ids\":[1.5]"), "stop_token_ids", "is 1.5"},
    {OPENAI_CHAT, CHAT("\"logprobs\":3"), "logprobs", "a boolean"},
    {OPENAI_CHAT, CHAT("\"top_logprobs\":3"), "top_logprobs", "needs `logprobs`"},
    {OPENAI_CHAT, CHAT("\"logprobs\":true,\"top_logprobs\":25"), "top_logprobs", "25"},
    {OPENAI_COMPLETIONS, TEXT("\"logprobs\":25"), "logprobs", "25"},
    {OPENAI_COMPLETIONS, TEXT("\"logprobs\":true"), "logprobs", "true"},
    {OPENAI_CHAT, CHAT("\"stream\":\"yes\""), "stream", "\"yes\""},
    {OPENAI_CHAT, CHAT("\"stream_options\":{\"include_usage\":true}"), "stream_options",
     "only allowed when `stream`"},
    {OPENAI_CHAT, CHAT("\"stream\":true,\"stream_options\":3"), "stream_options", "is 3"},
    {OPENAI_CHAT, CHAT("\"n\":17"), "n", "from 1 to 16, but is 17"},
    {OPENAI_CHAT, CHAT("\"n\":1.5"), "n", "1.5"},
    {OPENAI_CHAT, CHAT("\"n\":2,\"temperature\":0"), "n", "all answers are the same"},
    {OPENAI_CHAT, CHAT("\"n\":0"), "n", "is 0"},
    {OPENAI_COMPLETIONS, TEXT("\"best_of\":3"), "best_of", "not supported yet"},
    {OPENAI_COMPLETIONS, TEXT("\"n\":2,\"best_of\":3"), "best_of", "`best_of` is 3"},
    {OPENAI_COMPLETIONS, TEXT("\"best_of\":0"), "best_of", "is 0"},
    {OPENAI_COMPLETIONS, TEXT("\"max_tokens\":0"), "max_tokens", "from 1 to"},
    {OPENAI_CHAT, CHAT("\"max_tokens\":0,\"echo\":true"), "max_tokens", "from 1 to"},
    {OPENAI_COMPLETIONS, TEXT("\"max_tokens\":-1,\"echo\":true"), "max_tokens", "from 0 to"},
    {OPENAI_COMPLETIONS, TEXT("\"echo\":1"), "echo", "a boolean"},
    {OPENAI_COMPLETIONS, TEXT("\"prompt_logprobs\":21"), "prompt_logprobs", "from 0 to 20"},
    {OPENAI_COMPLETIONS, TEXT("\"prompt_logprobs\":-1"), "prompt_logprobs", "is -1"},
    {OPENAI_CHAT, CHAT("\"prompt_logprobs\":0,\"stream\":true"), "prompt_logprobs",
     "`stream` must be false"},
    {OPENAI_COMPLETIONS, TEXT("\"use_beam_search\":true"), "use_beam_search", "not supported yet"},
    {OPENAI_COMPLETIONS, TEXT("\"return_token_ids\":1"), "return_token_ids", "a boolean"},
    {OPENAI_COMPLETIONS, TEXT("\"return_tokens_as_token_ids\":1"), "return_tokens_as_token_ids",
     "a boolean"},
    {OPENAI_COMPLETIONS, TEXT("\"truncate_prompt_tokens\":-2"), "truncate_prompt_tokens", "is -2"},
    {OPENAI_COMPLETIONS, TEXT("\"truncate_prompt_tokens\":0"), "truncate_prompt_tokens",
     "leaves nothing"},
    {OPENAI_COMPLETIONS, TEXT("\"truncate_prompt_tokens\":1,\"truncation_side\":\"up\""),
     "truncation_side", "\"left\" or \"right\", but is \"up\""},
    {OPENAI_COMPLETIONS, TEXT("\"add_special_tokens\":3"), "add_special_tokens", "is 3"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":\"\""), "cache_salt", "not empty"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":7"), "cache_salt", "is 7"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":\"a@b\""), "cache_salt", "holds an @"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":\"a/b\""), "cache_salt", "a slash"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":\"a\\\\b\""), "cache_salt", "a backslash"},
    {OPENAI_CHAT, CHAT("\"cache_salt\":\"a\\u0000b\""), "cache_salt", "a NUL"},
    {OPENAI_CHAT, CHAT("\"priority\":1.5"), "priority", "1.5"},
    {OPENAI_CHAT, CHAT("\"priority\":1000001"), "priority", "from -1000000 to 1000000"},
    {OPENAI_CHAT, CHAT("\"continue_final_message\":true"), "continue_final_message",
     "a final message of the assistant"},
    {OPENAI_CHAT, CHAT("\"continue_final_message\":true,\"add_generation_prompt\":true"),
     "continue_final_message", "can not both be true"},
    {OPENAI_CHAT,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],"
     "\"continue_final_message\":true}",
     "continue_final_message", "one before it"},
    {OPENAI_COMPLETIONS, TEXT("\"suffix\":\"y\""), "suffix", "not supported yet"},
    {OPENAI_CHAT, CHAT("\"presence_penalty\":2.01"), "presence_penalty",
     "from -2 to 2, but is 2.01"},
    {OPENAI_CHAT, CHAT("\"presence_penalty\":\"x\""), "presence_penalty", "\"x\""},
    {OPENAI_CHAT, CHAT("\"frequency_penalty\":-2.5"), "frequency_penalty", "is -2.5"},
    {OPENAI_CHAT, CHAT("\"repetition_penalty\":0"), "repetition_penalty", "is 0"},
    {OPENAI_CHAT, CHAT("\"repetition_penalty\":-1"), "repetition_penalty", "is -1"},
    {OPENAI_CHAT, CHAT("\"repetition_penalty\":1e7"), "repetition_penalty", "from 1e-06 to 1e+06"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":[5]"), "logit_bias", "an object of token ids"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"263\":1}"), "logit_bias", "\"263\""},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"191222\":-100}"), "logit_bias", "from 0 to 262"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"99999999999999999999\":1}"), "logit_bias", "from 0 to"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"abc\":1}"), "logit_bias", "\"abc\""},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"\":1}"), "logit_bias", "the key \"\""},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"-1\":1}"), "logit_bias", "\"-1\""},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"5\":1,\"05\":2}"), "logit_bias", "\"05\""},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"5\":1e9}"), "logit_bias", "`logit_bias[5]`"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"5\":-100.5}"), "logit_bias", "is -100.5"},
    {OPENAI_CHAT, CHAT("\"logit_bias\":{\"5\":null}"), "logit_bias", "from -100 to 100"},
    {OPENAI_CHAT, CHAT("\"allowed_token_ids\":[]"), "allowed_token_ids", "is empty"},
    {OPENAI_CHAT, CHAT("\"allowed_token_ids\":5"), "allowed_token_ids", "an array of token ids"},
    {OPENAI_CHAT, CHAT("\"allowed_token_ids\":[5,263]"), "allowed_token_ids", "[1]` is 263"},
    {OPENAI_CHAT, CHAT("\"allowed_token_ids\":[-1]"), "allowed_token_ids", "is -1"},
    {OPENAI_CHAT, CHAT("\"bad_words\":\"x\""), "bad_words", "an array of strings"},
    {OPENAI_CHAT, CHAT("\"bad_words\":[\"a\",3]"), "bad_words", "is 3"},
    {OPENAI_CHAT, CHAT("\"bad_words\":[\"a\",\"\"]"), "bad_words", "empty string"},
    {OPENAI_CHAT, CHAT("\"bad_words\":[\"  \"]"), "bad_words", "empty string"},
    {OPENAI_COMPLETIONS, TEXT("\"tools\":[{}]"), "tools", "chat/completions only"},
    {OPENAI_CHAT, CHAT("\"response_format\":\"json\""), "response_format", "an object"},
    {OPENAI_CHAT, CHAT("\"response_format\":{\"type\":\"json_schema\"}"), "response_format",
     "json_schema"},
    {OPENAI_COMPLETIONS, TEXT("\"guided_choice\":[]"), "guided_choice", "not empty"},
};

Test(openai_request, refuses)
{
    for (size_t i = 0; i < ARRAY_COUNT(bads); i++) {
        const struct bad *bad = &bads[i];
        struct openai_request request;
        struct openai_error error;
        cr_assert(openai_request_parse(bad->endpoint, bad->body, strlen(bad->body), &rules,
                                       &request, &error) == STATUS_INVALID,
                  "accepted: %s", bad->body);
        const int status =
            strcmp(bad->param, "model") == 0 && strstr(bad->message, "exist") ? 404 : 400;
        cr_expect_eq(error.http_status, status, "%s gave %d", bad->body, error.http_status);
        cr_expect_str_eq(error.param, bad->param, "%s named %s", bad->body, error.param);
        cr_expect(strstr(error.message, bad->message), "%s: %s", bad->body, error.message);
    }
}

Test(openai_request, model_not_found_has_its_code)
{
    struct openai_request request;
    struct openai_error error;
    const char body[] = TEXT("\"model\":\"other\"");
    openai_request_parse(OPENAI_COMPLETIONS, body, strlen(body), &rules, &request, &error);
    cr_assert_str_eq(error.code, "model_not_found");
}

/* Parses or fails the test. */
static struct openai_request parse(enum openai_endpoint endpoint, const char *body)
{
    struct openai_request request;
    struct openai_error error = {.message = ""};
    cr_assert(openai_request_parse(endpoint, body, strlen(body), &rules, &request, &error) ==
                  STATUS_OK,
              "%s: %s", body, error.message);
    return request;
}

Test(openai_request, a_top_p_above_nothing_stays_so)
{
    struct openai_request request = parse(OPENAI_CHAT, CHAT("\"top_p\":1e-300"));
    cr_expect(request.sampling.top_p > 0);
    openai_request_free(&request);
}

Test(openai_request, defaults)
{
    struct openai_request request = parse(OPENAI_COMPLETIONS, "{\"prompt\":\"hello\"}");
    cr_expect_eq(request.prompt.count, 1);
    cr_expect_eq(request.prompt.ids[0], TINY_HELLO);
    cr_expect_eq(request.max_tokens, 16);
    cr_expect_eq(request.choices, 1);
    cr_expect_float_eq(request.sampling.temperature, 1, 0);
    cr_expect_float_eq(request.sampling.top_p, 1, 0);
    cr_expect_eq(request.sampling.top_k, 0);
    cr_expect(!request.stream && !request.logprobs && !request.ignore_eos && request.skip_special);
    openai_request_free(&request);
    request = parse(OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    cr_expect_eq(request.max_tokens, 64 - request.prompt.count, "chat takes the room there is");
    openai_request_free(&request);
}

Test(openai_request, prompts_of_a_list_are_requests_of_their_own)
{
    struct openai_request request =
        parse(OPENAI_COMPLETIONS, "{\"prompt\":[\"hello\",[1,2,3],\"x\"],\"max_tokens\":62,"
                                  "\"stop\":\"y\",\"echo\":true,\"seed\":5}");
    cr_assert_eq(request.more_count, 2);
    cr_expect_eq(request.prompt.ids[0], TINY_HELLO);
    cr_expect_eq(request.max_tokens, 62);
    cr_expect_eq(request.more[0].prompt.count, 3);
    cr_expect_eq(request.more[0].prompt.ids[2], 3);
    cr_expect_eq(request.more[0].max_tokens, 61, "each has the room behind its own prompt");
    cr_expect_eq(request.more[1].prompt.ids[0], 'x');
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(request.more[i].stops.count, 1);
        cr_expect_eq(request.more[i].sampling.seed, 5);
        cr_expect_eq(request.more[i].more_count, 0);
    }
    cr_expect_eq(request.more[1].echo_text.size, 1);
    openai_request_free(&request);
    request = parse(OPENAI_COMPLETIONS, "{\"prompt\":[\"a\"]}");
    cr_expect_eq(request.more_count, 0);
    openai_request_free(&request);
}

Test(openai_request, accepts)
{
    static const char *const chats[] = {
        CHAT("\"model\":null,\"temperature\":null,\"stop\":null,\"max_tokens\":null,\"n\":null,"
             "\"logprobs\":null,\"stream_options\":null,\"response_format\":null,\"tools\":null"),
        CHAT("\"unknown\":{\"a\":[1]},\"user\":\"u\",\"store\":false,\"metadata\":{}"),
        CHAT("\"n\":16"),
        CHAT("\"user\":\"u\",\"store\":true,\"metadata\":{\"a\":\"b\"},\"service_tier\":\"auto\","
             "\"verbosity\":\"low\",\"prompt_cache_key\":\"k\",\"safety_identifier\":\"s\","
             "\"modalities\":[\"text\"],\"parallel_tool_calls\":true,\"reasoning_effort\":\"low\","
             "\"stream_interval\":4,\"request_id\":\"r\",\"session_id\":\"t\","
             "\"kv_transfer_params\":{},\"guided_json\":null"),
        CHAT("\"best_of\":1,\"echo\":false,\"suffix\":\"\",\"prompt_logprobs\":0"),
        CHAT("\"n\":3,\"best_of\":3"),
        CHAT("\"n\":1,\"presence_penalty\":0,\"frequency_penalty\":0.0,\"logit_bias\":{},"
             "\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},"
             "\"repetition_penalty\":1.0"),
        CHAT("\"temperature\":0,\"top_p\":1,\"top_k\":-1,\"min_p\":0.05,\"seed\":-1"),
        CHAT("\"max_tokens\":16.0,\"model\":\"tiny\""),
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"assistant\","
        "\"content\":null},{\"role\":\"user\",\"name\":\"n\",\"id\":4,\"content\":\"b\"}]}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(chats); i++) {
        struct openai_request request = parse(OPENAI_CHAT, chats[i]);
        openai_request_free(&request);
    }
}

Test(openai_request, fields_arrive)
{
    struct openai_request request = parse(
        OPENAI_CHAT,
        CHAT("\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.125,\"seed\":42,"
             "\"max_tokens\":9,\"max_completion_tokens\":5,\"min_tokens\":2,\"ignore_eos\":true,"
             "\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[1,2],\"logprobs\":true,"
             "\"top_logprobs\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
             "\"timings\":true,\"include_stop_str_in_output\":true"));
    cr_expect_float_eq(request.sampling.temperature, 0.5, 0);
    cr_expect_float_eq(request.sampling.top_p, 0.25, 0);
    cr_expect_float_eq(request.sampling.min_p, 0.125, 0);
    cr_expect_eq(request.sampling.top_k, 7);
    cr_expect_eq(request.sampling.seed, 42);
    cr_expect_eq(request.max_tokens, 5, "max_completion_tokens goes before max_tokens");
    cr_expect_eq(request.min_tokens, 2);
    cr_expect(request.ignore_eos && request.logprobs && request.stream && request.include_usage);
    cr_expect(request.timings && request.include_stop);
    cr_expect_eq(request.top_logprobs, 3);
    cr_expect_eq(request.stops.count, 2);
    cr_expect_eq(request.stop_ids.count, 2);
    openai_request_free(&request);
}

Test(openai_request, what_moves_logits_arrives)
{
    struct openai_request request =
        parse(OPENAI_CHAT, CHAT("\"repetition_penalty\":1.25,\"presence_penalty\":-2,"
                                "\"frequency_penalty\":2,\"logit_bias\":{\"0\":-100,\"262\":100,"
                                "\"7\":0.5},\"allowed_token_ids\":[0,262,7],"
                                "\"bad_words\":[\"hello\",\" xy\"]"));
    struct msg_sampling told;
    openai_sampling_tell(&request.sampling, &told);
    cr_expect_float_eq(told.repetition_penalty, 1.25, 0);
    cr_expect_float_eq(told.presence_penalty, -2, 0);
    cr_expect_float_eq(told.frequency_penalty, 2, 0);
    const int32_t biased[] = {0, 262, 7}, allowed[] = {0, 262, 7};
    const float biases[] = {-100, 100, 0.5f};
    cr_assert_eq(told.bias_ids.count, 3);
    cr_assert_eq(told.biases.count, 3);
    cr_expect_arr_eq(told.bias_ids.items, biased, sizeof biased);
    cr_expect_arr_eq(told.biases.items, biases, sizeof biases);
    cr_assert_eq(told.allowed_ids.count, 3);
    cr_expect_arr_eq(told.allowed_ids.items, allowed, sizeof allowed);
    /* Each word bare, and with the space that stands before it inside a line. */
    const int32_t banned[] = {TINY_HELLO, ' ', TINY_HELLO, 'x', 'y', ' ', 'x', 'y'};
    const uint32_t lengths[] = {1, 2, 2, 3};
    cr_assert_eq(told.banned_ids.count, ARRAY_COUNT(banned));
    cr_expect_arr_eq(told.banned_ids.items, banned, sizeof banned);
    cr_assert_eq(told.banned_lengths.count, ARRAY_COUNT(lengths));
    cr_expect_arr_eq(told.banned_lengths.items, lengths, sizeof lengths);
    openai_request_free(&request);
}

/* A body whose list holds `item` so many times. */
static const char *listing(const char *name, const char *item, size_t count)
{
    static struct buffer body;
    buffer_clear(&body);
    buffer_printf(&body, "{\"prompt\":\"x\",\"%s\":[%s", name, item);
    for (size_t i = 1; i < count; i++)
        buffer_printf(&body, ",%s", item);
    buffer_add_text(&body, "]}");
    return body.data;
}

/* Biases of the ids from 0 on. */
static const char *bias_listing(unsigned count)
{
    static struct buffer body;
    buffer_clear(&body);
    buffer_add_text(&body, "{\"prompt\":\"x\",\"logit_bias\":{\"0\":1");
    for (unsigned i = 1; i < count; i++)
        buffer_printf(&body, ",\"%u\":1", i);
    buffer_add_text(&body, "}}");
    return body.data;
}

Test(openai_request, lists_have_limits)
{
    static const struct {
        const char *name, *item, *message;
        size_t most;
    } rows[] = {
        {"stop_token_ids", "7", "holds 129 ids; the limit is 128", OPENAI_STOP_IDS_MAX},
        {"allowed_token_ids", "7", "holds 1025 ids; the limit is 1024", OPENAI_ALLOWED_IDS_MAX},
        {"bad_words", "\"w\"", "holds 129 words; the limit is 128", OPENAI_BAD_WORDS_MAX},
        /* 83 ids each in the two spellings. */
        {"bad_words", "\"01234567890123456789012345678901234567890\"", "more than 2048 tokens",
         OPENAI_BANNED_IDS_MAX / 83},
    };
    struct openai_request request;
    struct openai_error error;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        request = parse(OPENAI_COMPLETIONS, listing(rows[i].name, rows[i].item, rows[i].most));
        openai_request_free(&request);
        const char *body = listing(rows[i].name, rows[i].item, rows[i].most + 1);
        cr_assert_eq(
            openai_request_parse(OPENAI_COMPLETIONS, body, strlen(body), &rules, &request, &error),
            STATUS_INVALID, "row %zu", i);
        cr_expect_str_eq(error.param, rows[i].name);
        cr_expect(strstr(error.message, rows[i].message), "%s", error.message);
    }
    const char *body = bias_listing(OPENAI_BIASES_MAX + 1);
    cr_assert_eq(
        openai_request_parse(OPENAI_COMPLETIONS, body, strlen(body), &rules, &request, &error),
        STATUS_INVALID);
    cr_expect(strstr(error.message, "holds 1025 ids; the limit is 1024"), "%s", error.message);
    request = parse(OPENAI_COMPLETIONS, bias_listing(TINY_VOCAB));
    cr_expect_eq(request.sampling.biased.count, TINY_VOCAB, "every id of the model");
    openai_request_free(&request);
}

Test(openai_request, seed_zero_is_a_seed)
{
    struct openai_request zero = parse(OPENAI_COMPLETIONS, TEXT("\"seed\":0"));
    struct openai_request unset = parse(OPENAI_COMPLETIONS, "{\"prompt\":\"x\"}");
    struct openai_request again = parse(OPENAI_COMPLETIONS, "{\"prompt\":\"x\"}");
    cr_expect_eq(zero.sampling.seed, 0);
    cr_expect_neq(unset.sampling.seed, again.sampling.seed);
    openai_request_free(&zero);
    openai_request_free(&unset);
    openai_request_free(&again);
}

Test(openai_request, content_parts_are_joined)
{
    struct openai_request whole =
        parse(OPENAI_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"ab\"},"
                           "{\"role\":\"user\",\"content\":\"hello\"}]}");
    struct openai_request parts = parse(
        OPENAI_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"hel\"},{\"type\":\"text\",\"text\":\"lo\"}]}]}");
    cr_assert_eq(whole.prompt.count, parts.prompt.count);
    cr_assert_arr_eq(whole.prompt.ids, parts.prompt.ids, whole.prompt.count * sizeof(int32_t));
    openai_request_free(&whole);
    openai_request_free(&parts);
}

Test(openai_request, special_tokens_in_text_stay_text)
{
    struct openai_request request = parse(OPENAI_COMPLETIONS, "{\"prompt\":\"<|im_end|>\"}");
    cr_expect_eq(request.prompt.count, 10);
    for (size_t i = 0; i < request.prompt.count; i++)
        cr_expect_lt(request.prompt.ids[i], 256);
    openai_request_free(&request);
}

Test(openai_request, prompt_forms)
{
    static const char *const bodies[] = {"{\"prompt\":\"he\"}", "{\"prompt\":[\"he\"]}",
                                         "{\"prompt\":[256]}", "{\"prompt\":[[256]]}"};
    for (size_t i = 0; i < ARRAY_COUNT(bodies); i++) {
        struct openai_request request = parse(OPENAI_COMPLETIONS, bodies[i]);
        cr_expect_eq(request.prompt.count, 1, "%s", bodies[i]);
        cr_expect_eq(request.prompt.ids[0], TINY_HE, "%s", bodies[i]);
        openai_request_free(&request);
    }
}

Test(openai_request, context_is_a_limit_with_both_counts)
{
    struct openai_request request;
    struct openai_error error;
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":5}", prompt_of_64);
    cr_assert(openai_request_parse(OPENAI_COMPLETIONS, body, strlen(body), &rules, &request,
                                   &error) == STATUS_INVALID);
    cr_expect_str_eq(error.code, "context_length_exceeded");
    cr_expect(strncmp(error.message,
                      "This model's maximum context length is 64 tokens. However, "
                      "your prompt is too long: its 64 tokens",
                      97) == 0,
              "%s", error.message);
    cr_expect_eq(error.prompt_tokens, 64);
    cr_expect_eq(error.context_tokens, 64);
    /* One less: one token of answer, whatever was asked. */
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":1000}", prompt_of_64 + 1);
    request = parse(OPENAI_COMPLETIONS, body);
    cr_expect_eq(request.max_tokens, 1);
    openai_request_free(&request);
}

static void expect_prompt(const struct openai_request *request, const char *letters)
{
    cr_assert_eq(request->prompt.count, strlen(letters), "%zu ids", request->prompt.count);
    for (size_t i = 0; i < request->prompt.count; i++)
        cr_expect_eq(request->prompt.ids[i], letters[i], "id %zu of %s", i, letters);
}

Test(openai_request, prompts_are_truncated_when_asked)
{
    static const struct {
        const char *fields, *left;
    } rows[] = {
        {"\"truncate_prompt_tokens\":3", "345"},
        {"\"truncate_prompt_tokens\":3,\"truncation_side\":\"left\"", "345"},
        {"\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"", "012"},
        {"\"truncate_prompt_tokens\":6", "012345"},
        {"\"truncate_prompt_tokens\":100", "012345"},
        {"\"truncate_prompt_tokens\":-1", "012345"},
        {"\"truncate_prompt_tokens\":-1,\"max_tokens\":60", "2345"},
        {"\"truncate_prompt_tokens\":-1,\"max_tokens\":1000", "5"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"012345\",%s}", rows[i].fields);
        struct openai_request request = parse(OPENAI_COMPLETIONS, body);
        expect_prompt(&request, rows[i].left);
        openai_request_free(&request);
    }
    /* What would be too long fits then. */
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"truncate_prompt_tokens\":-1}", prompt_of_64);
    struct openai_request request = parse(OPENAI_COMPLETIONS, body);
    expect_prompt(&request, prompt_of_64 + 1);
    openai_request_free(&request);
}

Test(openai_request, a_final_message_goes_on)
{
    static const char messages[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}%s]%s}";
    char body[512];
    snprintf(body, sizeof body, messages, "", "");
    struct openai_request opened = parse(OPENAI_CHAT, body);
    snprintf(body, sizeof body, messages, ",{\"role\":\"assistant\",\"content\":\"hello y\"}",
             ",\"continue_final_message\":true,\"add_generation_prompt\":false,\"echo\":true");
    struct openai_request going_on = parse(OPENAI_CHAT, body);
    const size_t before = opened.prompt.count;
    cr_assert_eq(going_on.prompt.count, before + 3);
    cr_expect_arr_eq(going_on.prompt.ids, opened.prompt.ids, before * sizeof(int32_t));
    cr_expect_eq(going_on.prompt.ids[before], TINY_HELLO);
    cr_expect_str_eq(going_on.echo_text.data, "hello y");
    openai_request_free(&opened);
    openai_request_free(&going_on);
}

Test(openai_request, echo_is_the_prompt_as_text)
{
    struct openai_request request =
        parse(OPENAI_COMPLETIONS, "{\"prompt\":\"hello <|im_end|>\",\"echo\":true}");
    cr_expect_str_eq(request.echo_text.data, "hello <|im_end|>");
    openai_request_free(&request);
    request = parse(OPENAI_COMPLETIONS, "{\"prompt\":[259,262,33],\"echo\":true}");
    cr_expect_str_eq(request.echo_text.data, "hello!", "special tokens are skipped");
    openai_request_free(&request);
}

/* So many prompts of so many tokens each, and what they ask for. */
static void put_prompts(struct buffer *body, uint32_t prompts, uint32_t tokens, const char *fields)
{
    buffer_clear(body);
    buffer_printf(body, "{%s,\"prompt\":[", fields);
    for (uint32_t i = 0; i < prompts; i++) {
        buffer_add_text(body, i > 0 ? ",[" : "[");
        for (uint32_t k = 0; k < tokens; k++)
            buffer_add_text(body, k > 0 ? ",259" : "259"); /* hello */
        buffer_add_text(body, "]");
    }
    buffer_add_text(body, "]}");
}

/* Of all prompts and choices together; where one token more each is too many it is refused with
 * both numbers. */
Test(openai_request, what_an_answer_repeats_has_a_limit)
{
    static const struct {
        const char *fields;
        uint32_t prompts, tokens; /* that fit */
        const char *param, *message;
    } rows[] = {
        {"\"echo\":true,\"logprobs\":0", 1, 262144, "logprobs", "come to 262145 or more"},
        {"\"echo\":true,\"logprobs\":1,\"max_tokens\":0", 64, 2048, "logprobs",
         "the limit is 262144"},
        {"\"echo\":true,\"logprobs\":20,\"n\":4", 1, 3120, "logprobs", "come to 262164 "},
        {"\"prompt_logprobs\":20,\"n\":16", 1, 780, "prompt_logprobs", "come to 262416 "},
        {"\"prompt_logprobs\":1,\"echo\":true,\"logprobs\":1", 2, 32768, "prompt_logprobs",
         "come to 262152 "},
        {"\"return_token_ids\":true,\"n\":4", 64, 1024, "return_token_ids", "come to 262400 "},
        {"\"echo\":true,\"n\":16", 1, 209715, "echo",
         "repeats 16777280 bytes or more (choices x text); the limit is 16777216."},
    };
    struct buffer body = {0};
    rules.context_tokens = 1u << 20;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        put_prompts(&body, rows[i].prompts, rows[i].tokens, rows[i].fields);
        struct openai_request request = parse(OPENAI_COMPLETIONS, body.data);
        openai_request_free(&request);
        put_prompts(&body, rows[i].prompts, rows[i].tokens + 1, rows[i].fields);
        struct openai_error error;
        cr_assert_eq(openai_request_parse(OPENAI_COMPLETIONS, body.data, body.size, &rules,
                                          &request, &error),
                     STATUS_INVALID, "%s", rows[i].fields);
        cr_expect_eq(error.http_status, 400);
        cr_expect_str_eq(error.param, rows[i].param);
        cr_expect(strstr(error.message, rows[i].message), "%s: %s", rows[i].fields, error.message);
    }
    buffer_free(&body);
}

Test(openai_request, salts_part_caches)
{
    struct openai_request none = parse(OPENAI_CHAT, CHAT("\"cache_salt\":null"));
    struct openai_request one = parse(OPENAI_CHAT, CHAT("\"cache_salt\":\"one\",\"priority\":-3"));
    struct openai_request same = parse(OPENAI_CHAT, CHAT("\"cache_salt\":\"one\""));
    struct openai_request two = parse(OPENAI_CHAT, CHAT("\"cache_salt\":\"two\""));
    cr_expect_eq(none.cache_salt, 0);
    cr_expect_neq(one.cache_salt, 0);
    cr_expect_eq(one.cache_salt, same.cache_salt);
    cr_expect_neq(one.cache_salt, two.cache_salt);
    cr_expect_eq(one.priority, -3);
    openai_request_free(&none);
    openai_request_free(&one);
    openai_request_free(&same);
    openai_request_free(&two);
    /* Characters are counted, not bytes. */
    struct buffer body = {0};
    for (int count = OPENAI_CACHE_SALT_MAX; count <= OPENAI_CACHE_SALT_MAX + 1; count++) {
        struct openai_request request;
        struct openai_error error;
        buffer_clear(&body);
        buffer_add_text(&body, "{\"prompt\":\"x\",\"cache_salt\":\"");
        for (int i = 0; i < count; i++)
            buffer_add_text(&body, "\xc3\xa9");
        buffer_add_text(&body, "\"}");
        const enum status status = openai_request_parse(OPENAI_COMPLETIONS, body.data, body.size,
                                                        &rules, &request, &error);
        if (count == OPENAI_CACHE_SALT_MAX) {
            cr_assert_eq(status, STATUS_OK);
            openai_request_free(&request);
        } else {
            cr_assert_eq(status, STATUS_INVALID);
            cr_expect(strstr(error.message, "129 characters; the limit is 128"));
        }
    }
    buffer_free(&body);
}

Test(openai_request, bos_when_the_tokenizer_says_so)
{
    /* The tiny one does not: the first id is the text's. */
    cr_expect(!text_info(text)->add_bos);
    struct openai_request request = parse(OPENAI_COMPLETIONS, "{\"prompt\":\"a\"}");
    cr_expect_eq(request.prompt.ids[0], 'a');
    openai_request_free(&request);
}
