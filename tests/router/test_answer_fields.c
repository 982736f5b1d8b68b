/* Fields that shape what comes back: echo, token ids, names of tokens; whole and streamed. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

static const struct {
    const char *name, *path, *body;
    const char *parts[4];
} rows[] = {
    {"echo", TEXT_PATH, "{\"prompt\":\"hello \",\"echo\":true}", {"\"text\":\"hello answer\""}},
    {"echo of ids",
     TEXT_PATH,
     "{\"prompt\":[259,262,32],\"echo\":true}",
     {"\"text\":\"hello answer\""}},
    {"echo, streamed",
     TEXT_PATH,
     "{\"prompt\":\"hello \",\"echo\":true,\"stream\":true}",
     {"\"text\":\"hello a\"", "\"text\":\"n\"", "[DONE]"}},
    {"echo of a chat that goes on",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
     "\"content\":\"So \"}],\"continue_final_message\":true,\"echo\":true}",
     {"\"content\":\"So answer\""}},
    {"echo of a chat that does not",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"echo\":true}",
     {"\"content\":\"answer\""}},
    {"ids",
     TEXT_PATH,
     "{\"prompt\":\"hello\",\"return_token_ids\":true}",
     {"\"prompt_token_ids\":[259],\"token_ids\":[97,110,115,119,101,114,262],\"finish_reason\":"}},
    {"ids, streamed",
     TEXT_PATH,
     "{\"prompt\":\"hello\",\"return_token_ids\":true,\"stream\":true}",
     {"\"prompt_token_ids\":[259],\"token_ids\":[97],", "\"logprobs\":null,\"token_ids\":[110],",
      "\"token_ids\":[114],"}},
    {"ids of a chat",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"return_token_ids\":true}",
     {"\"token_ids\":[97,110,115,119,101,114,262],", "],\"prompt_token_ids\":[261,117,"}},
    {"ids of a chat, streamed",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"return_token_ids\":true,"
     "\"stream\":true}",
     {"\"role\":\"assistant\"", "],\"prompt_token_ids\":[261,117,", "\"token_ids\":[110],"}},
    {"names of tokens",
     TEXT_PATH,
     "{\"prompt\":\"x\",\"logprobs\":2,\"return_tokens_as_token_ids\":true}",
     {"\"tokens\":[\"token_id:97\",\"token_id:110\",", "{\"token_id:65\":-1,\"token_id:66\":-2,"}},
    {"names of tokens of a chat",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"top_logprobs\":1,"
     "\"return_tokens_as_token_ids\":true}",
     {"{\"token\":\"token_id:97\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[{\"token\":"
      "\"token_id:65\""}},
    {"no names without being asked",
     TEXT_PATH,
     "{\"prompt\":\"x\",\"logprobs\":0}",
     {"\"tokens\":[\"a\",\"n\","}},
};

Test(answer_fields, come_back)
{
    serving_start(NULL);
    serving_connect(true);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer body = {0};
        cr_expect_eq(client_ask(&router, rows[i].path, rows[i].body, &body), 200, "%s: %s",
                     rows[i].name, body.data);
        for (size_t k = 0; k < ARRAY_COUNT(rows[i].parts) && rows[i].parts[k]; k++)
            cr_expect(strstr(body.data, rows[i].parts[k]), "%s lacks %s: %s", rows[i].name,
                      rows[i].parts[k], body.data);
        cr_expect_leq(text_count(body.data, "\"prompt_token_ids\""), 1, "%s: %s", rows[i].name,
                      body.data);
        buffer_free(&body);
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}
