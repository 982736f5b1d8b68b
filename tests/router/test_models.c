/* A real router that serves three models: two of one tokenizer and one of another. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "router/prefix_index.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

/* Of the second model and the third; those of the fixture are of the first. */
static struct fake_worker twin_prefill, twin, other;

static void start(const char *const *extra)
{
    static char operands[2][600];
    snprintf(operands[0], sizeof operands[0], "twin=%s", tiny_twin_path());
    snprintf(operands[1], sizeof operands[1], "org/other=%s", tiny_other_path());
    const char *all[16] = {"--model", operands[0], "--model", operands[1]};
    for (size_t count = 4; extra && *extra; extra++)
        all[count++] = *extra;
    serving_start(all);
    prefill.answer = decode.answer = "of tiny";
    fake_worker_init(&twin_prefill, &router, WORKER_PREFILL, "p1");
    fake_worker_init(&twin, &router, WORKER_DECODE, "d1");
    fake_worker_init(&other, &router, WORKER_DECODE, "d2");
    fake_worker_serve(&twin_prefill, tiny_twin_path(), 43);
    fake_worker_serve(&twin, tiny_twin_path(), 43);
    fake_worker_serve(&other, tiny_other_path(), 44);
    twin_prefill.automatic = twin.automatic = other.automatic = true;
    twin_prefill.partner = &twin;
    twin_prefill.answer = twin.answer = "of twin";
    other.answer = "of other";
}

static void join(struct fake_worker *worker)
{
    fake_worker_connect(worker);
    cr_assert(worker->welcomed, "%s", worker->close_text);
}

static void stop(void)
{
    serving_expect_idle();
    router_process_stop(&router);
}

/* A completion for that model; NULL: the field is not there. */
static void post(struct client *client, const char *model, const char *prompt)
{
    char body[512];
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":8%s%s}", prompt,
             model ? ",\"model\":" : "", model ? model : "");
    client_open(client, &router);
    client_post(client, TEXT_PATH, body);
}

static void expect_end(struct client *client, int status, const char *a, const char *b)
{
    struct buffer body = {0};
    WAIT_FOR(&router, client_complete(client));
    client_body(client, &body);
    cr_expect_eq(client_status(client), status, "%s", body.data);
    cr_expect(strstr(body.data, a) && strstr(body.data, b), "%s", body.data);
    char after[32] = "";
    cr_expect_eq(client_header(client, "Retry-After", after, sizeof after), status == 503);
    client_close(client);
    buffer_free(&body);
}

static void ask(const char *model, int status, const char *a, const char *b)
{
    struct client client;
    post(&client, model, "hello");
    expect_end(&client, status, a, b);
}

static void expect_get(const char *path, int status, const char *part)
{
    struct buffer body = {0};
    cr_expect_eq(client_fetch(&router, path, &body), status, "%s", path);
    cr_expect(strstr(body.data, part), "%s: %s", path, body.data);
    buffer_free(&body);
}

Test(models, a_request_goes_to_the_workers_of_its_model)
{
    start(NULL);
    serving_connect(true);
    join(&twin_prefill);
    join(&twin);
    join(&other);
    for (uint32_t round = 1; round <= 3; round++) {
        ask("\"tiny\"", 200, "\"model\":\"tiny\"", "\"of tiny\"");
        ask("\"twin\"", 200, "\"model\":\"twin\"", "\"of twin\"");
        ask("\"org/other\"", 200, "\"model\":\"org/other\"", "\"of other\"");
        cr_expect_eq(prefill.job_count, round);
        cr_expect_eq(twin_prefill.job_count, round);
    }
    /* One that names none is for the first. */
    ask(NULL, 200, "\"model\":\"tiny\"", "\"of tiny\"");
    ask("null", 200, "\"model\":\"tiny\"", "\"of tiny\"");
    ask("\"Tiny\"", 404, "model_not_found", "has \\\"tiny\\\", \\\"twin\\\", \\\"org/other\\\".");
    ask("7", 400, "`model`", "a string");
    cr_expect_eq(decode.job_count, 5);
    cr_expect_eq(twin.job_count, 3);
    cr_expect_eq(other.job_count, 3);
    /* Each prompt by its own tokenizer. */
    cr_expect_eq(decode.jobs[0].prompt_count, 1);
    cr_expect_eq(other.jobs[0].prompt_count, 4);
    stop();
}

/* Where one request of each model comes after the other, every second one is still for each of two
 * workers that cost the same. */
Test(models, whose_turn_it_is_is_each_models_own)
{
    static const char *const extra[] = {"--slow-start-ms", "0", NULL};
    struct fake_worker second;
    start(extra);
    serving_connect(true);
    join(&twin);
    fake_worker_init(&second, &router, WORKER_DECODE, "d3");
    fake_worker_serve(&second, tiny_twin_path(), 43);
    second.automatic = true;
    second.answer = "of twin";
    join(&second);
    for (int round = 0; round < 4; round++) {
        ask("\"tiny\"", 200, "\"model\":\"tiny\"", "\"of tiny\"");
        ask("\"twin\"", 200, "\"model\":\"twin\"", "\"of twin\"");
    }
    cr_expect_eq(twin.job_count, 2);
    cr_expect_eq(second.job_count, 2);
    stop();
}

/* Several prompts are several requests, all of them of the model that the body names. */
Test(models, each_prompt_of_a_body_goes_there)
{
    start(NULL);
    serving_connect(true);
    join(&other);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH,
                "{\"model\":\"org/other\",\"prompt\":[\"hello\",\"hell\"],\"max_tokens\":8}");
    expect_end(&client, 200, "\"index\":1,\"text\":\"of other\"", "\"model\":\"org/other\"");
    cr_expect_eq(other.job_count, 2);
    cr_expect_eq(decode.job_count, 0);
    WAIT_FOR(&router,
             client_metric(&router, "baton_model_requests_inflight{model=\"org/other\"}") == 0);
    cr_expect_eq(client_metric(&router, "baton_model_requests_total{model=\"org/other\"}"), 2);
    cr_expect_eq(client_metric(&router, "baton_model_requests_total{model=\"tiny\"}"), 0);
    stop();
}

Test(models, text_calls_take_the_tokenizer_of_the_model)
{
    static const struct {
        const char *path, *body, *part;
        int status;
    } rows[] = {
        {"/tokenize", "{\"prompt\":\"hello\"}", "\"tokens\":[259]", 200},
        {"/tokenize", "{\"model\":\"twin\",\"prompt\":\"hello\"}", "\"tokens\":[259]", 200},
        {"/tokenize", "{\"model\":\"org/other\",\"prompt\":\"hello\"}",
         "\"tokens\":[256,108,108,111]", 200},
        {"/tokenize", "{\"model\":\"third\",\"prompt\":\"hello\"}", "model_not_found", 404},
        {"/detokenize", "{\"model\":\"org/other\",\"tokens\":[256,108]}", "\"hel\"", 200},
        {"/detokenize", "{\"model\":\"third\",\"tokens\":[256]}", "model_not_found", 404},
    };
    start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer body = {0};
        cr_expect_eq(client_ask(&router, rows[i].path, rows[i].body, &body), rows[i].status, "%s",
                     rows[i].body);
        cr_expect(strstr(body.data, rows[i].part), "%s: %s", rows[i].body, body.data);
        buffer_free(&body);
    }
    stop();
}

/* A model without workers is not listed, says so, and takes nothing from the others. */
Test(models, one_without_workers_is_away_by_itself)
{
    start(NULL);
    expect_get("/v1/models", 200, "\"data\":[]");
    expect_get("/health", 503, "\"status\":\"waiting\"");
    join(&other);
    expect_get("/health", 200, "but not for all models");
    expect_get("/ready", 200, "{\"id\":\"twin\",\"ready\":false,\"prefill\":0,\"decode\":0,");
    expect_get("/ready", 200, "{\"id\":\"org/other\",\"ready\":true,\"prefill\":0,\"decode\":1,");
    expect_get("/v1/models", 200, "\"data\":[{\"id\":\"org/other\",");
    expect_get("/v1/models/twin", 200, "{\"id\":\"twin\",");
    expect_get("/v1/models/third", 404, "\\\"org/other\\\".");
    ask("\"twin\"", 503, "no_workers", "No decode node of the model \\\"twin\\\"");
    ask("\"org/other\"", 200, "\"of other\"", "");
    join(&twin); /* without a prefill node it reads the prompts itself, not the others' */
    ask("\"twin\"", 200, "\"of twin\"", "");
    cr_expect(twin.jobs[0].local);
    fake_worker_close(&other);
    WAIT_FOR(&router, client_fetch(&router, "/v1/models/x", NULL) == 404 &&
                          client_metric(&router, "baton_model_decode_workers{model=\"org/"
                                                 "other\"}") == 0);
    ask("\"org/other\"", 503, "no_workers", "\\\"org/other\\\"");
    ask("\"twin\"", 200, "\"of twin\"", "");
    expect_get("/health", 200, "\"status\":\"ok\"");
    stop();
}

Test(models, a_worker_that_is_lost_ends_requests_of_its_model_only)
{
    start(NULL);
    join(&twin);
    join(&other);
    other.automatic = twin.automatic = false;
    struct client lost, kept;
    post(&lost, "\"twin\"", "hello");
    post(&kept, "\"org/other\"", "hello");
    WAIT_FOR(&router, twin.job_count == 1 && other.job_count == 1);
    fake_reserved(&twin, &twin.jobs[0], STATUS_OK);
    fake_reserved(&other, &other.jobs[0], STATUS_OK);
    fake_worker_close(&twin);
    expect_end(&lost, 503, "worker_lost", "decode");
    fake_tokens(&other, &other.jobs[0], 0, "kept", FINISH_STOP);
    expect_end(&kept, 200, "\"kept\"", "org/other");
    stop();
}

/* The head of a queue that finds no room holds up nobody of another model, and fills no queue but
 * its own: by the limit that is given, or by its share of all requests. */
static void expect_queues_apart(const char *const *extra)
{
    start(extra);
    join(&twin);
    join(&other);
    twin.automatic = false;
    struct client waiting;
    post(&waiting, "\"twin\"", "hello");
    WAIT_FOR(&router, twin.job_count == 1);
    fake_reserved(&twin, &twin.jobs[0], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_model_requests_queued{model=\"twin\"}") == 1);
    ask("\"org/other\"", 200, "\"of other\"", "");
    ask("\"twin\"", 503, "overloaded", "wait for a place");
    ask("\"org/other\"", 200, "\"of other\"", "");
    cr_expect_eq(client_metric(&router, "baton_model_requests_queued{model=\"org/other\"}"), 0);
    cr_expect_eq(client_metric(&router, "baton_requests_queued"), 1);
    twin.automatic = true;
    fake_worker_heartbeat(&twin, 0, 100);
    expect_end(&waiting, 200, "\"of twin\"", "\"model\":\"twin\"");
    stop();
}

Test(models, queues_are_apart)
{
    static const char *const extra[] = {"--queue-requests", "1", NULL};
    expect_queues_apart(extra);
}

Test(models, a_queue_leaves_room_for_the_other_models)
{
    static const char *const extra[] = {"--max-requests", "3", NULL};
    expect_queues_apart(extra);
}

/* The pages of one prompt have the same hashes for both models of one tokenizer; what is in them is
 * not the same at all. */
Test(models, what_is_cached_of_another_model_is_not_counted_on)
{
    enum { PAGES = 3, PAGE = 64 };
    int32_t ids[PAGES * PAGE];
    char prompt[PAGES * PAGE + 2];
    uint64_t hashes[PAGES];
    for (int i = 0; i < PAGES * PAGE; i++) {
        prompt[i] = (char)('i' + i % 7); /* no letter that is joined with another */
        ids[i] = prompt[i];
    }
    snprintf(prompt + PAGES * PAGE, 2, "z");
    cr_assert_eq(prefix_hashes(ids, PAGES * PAGE, PAGE, 0, hashes), PAGES);
    start(NULL);
    serving_connect(true);
    join(&twin_prefill);
    join(&twin);
    fake_worker_news(&prefill, true, 0, NULL, 0);
    fake_worker_news(&twin_prefill, true, 0, hashes, PAGES);
    struct client client;
    post(&client, "\"tiny\"", prompt);
    expect_end(&client, 200, "of tiny", "");
    cr_expect_eq(prefill.job_count, 1);
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), 0);
    post(&client, "\"twin\"", prompt);
    expect_end(&client, 200, "of twin", "");
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), PAGES * PAGE);
    stop();
}

Test(models, each_has_its_own_weights_and_none_is_guessed)
{
    start(NULL);
    join(&twin);
    struct fake_worker late;
    /* Other weights under the name, and the same under another name. */
    fake_worker_init(&late, &router, WORKER_PREFILL, "late");
    fake_worker_serve(&late, tiny_twin_path(), 99);
    fake_worker_connect(&late);
    cr_expect(late.closed && strstr(late.close_text, "weights_digest"), "%s", late.close_text);
    fake_worker_init(&late, &router, WORKER_PREFILL, "late");
    snprintf(late.model, sizeof late.model, "renamed");
    fake_worker_connect(&late);
    cr_expect(late.closed && strstr(late.close_text, "\"tiny\", \"twin\"") &&
                  strstr(late.close_text, "--model-name"),
              "%s", late.close_text);
    expect_get("/workers", 200, "\"state\":\"refused\"");
    fake_worker_init(&late, &router, WORKER_PREFILL, "late");
    snprintf(late.model, sizeof late.model, "renamed");
    late.model_name = "twin";
    late.weights_digest[0] = 43;
    join(&late);
    expect_get("/workers", 200, "\"model\":\"twin\",\"pairs_as\"");
    stop();
}

Test(models, counts_and_records_name_the_model)
{
    start(NULL);
    join(&twin);
    join(&other);
    ask("\"twin\"", 200, "\"of twin\"", "");
    ask("\"twin\"", 200, "\"of twin\"", "");
    ask("\"org/other\"", 200, "\"of other\"", "");
    ask("\"tiny\"", 503, "no_workers", "");
    static const struct {
        const char *series;
        double value;
    } rows[] = {
        {"vllm:request_success_total{model_name=\"twin\",engine=\"0\",finished_reason=\"stop\"}",
         2},
        {"vllm:request_success_total{model_name=\"org/"
         "other\",engine=\"0\",finished_reason=\"stop\"}",
         1},
        {"vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"error\"}",
         1},
        {"vllm:time_to_first_token_seconds_count{model_name=\"twin\",engine=\"0\"}", 2},
        {"vllm:time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\"}", 0},
        {"vllm:prompt_tokens_total{model_name=\"org/other\",engine=\"0\"}", 4},
        {"baton_model_output_tokens_total{model=\"twin\"}", 14},
        {"baton_model_requests_total{model=\"tiny\"}", 1},
        {"baton_model_requests_failed_total{model=\"tiny\"}", 1},
        {"baton_model_requests_failed_total{model=\"twin\"}", 0},
        {"baton_model_requests_inflight{model=\"twin\"}", 0},
        {"baton_request_finish_total{reason=\"stop\"}", 3},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_eq(client_metric(&router, rows[i].series), rows[i].value, "%s", rows[i].series);
    struct buffer body = {0};
    WAIT_FOR(&router, (buffer_clear(&body), client_fetch(&router, "/requests", &body) == 200) &&
                          text_count(body.data, "\"state\":\"ended\",") == 4);
    cr_expect_eq(text_count(body.data, "\"model\":\"twin\""), 2, "%s", body.data);
    cr_expect_eq(text_count(body.data, "\"model\":\"org/other\""), 1, "%s", body.data);
    cr_expect_eq(text_count(body.data, "\"model\":\"tiny\""), 1, "%s", body.data);
    buffer_free(&body);
    expect_get("/status", 200, "\"models\":[{\"id\":\"tiny\",\"ready\":false,");
    stop();
}
