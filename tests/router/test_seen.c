/* What operators see of a router between made-up workers: metrics by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"

#define VLLM "{model_name=\"tiny\",engine=\"0\""

static void ask_chat(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(client_ask(&router, CHAT_PATH,
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", NULL),
                     200);
}

static double sum_of_stages(const char *suffix)
{
    static const char *const stages[] = {"tokenise", "queue", "reserve", "prefill"};
    double sum = 0;
    for (size_t i = 0; i < ARRAY_COUNT(stages); i++) {
        char series[128];
        snprintf(series, sizeof series, "baton_time_to_first_token_stage_seconds_%s{stage=\"%s\"}",
                 suffix, stages[i]);
        sum += client_metric(&router, series);
    }
    return sum;
}

Test(seen, the_time_to_the_first_token_is_the_sum_of_its_stages)
{
    serving_start(NULL);
    serving_connect(true);
    ask_chat(3);
    cr_expect_eq(client_metric(&router, "baton_time_to_first_token_seconds_count"), 3);
    cr_expect_eq(sum_of_stages("count"), 12);
    const double whole = client_metric(&router, "baton_time_to_first_token_seconds_sum");
    cr_expect_gt(whole, 0);
    cr_expect_float_eq(sum_of_stages("sum"), whole, 1e-6);
    router_process_stop(&router);
}

Test(seen, the_names_of_vllm_tell_the_same_numbers)
{
    static const struct {
        const char *theirs, *ours;
    } pairs[] = {
        {"vllm:prompt_tokens_total" VLLM "}", "baton_prompt_tokens_total"},
        {"vllm:generation_tokens_total" VLLM "}", "baton_output_tokens_total"},
        {"vllm:prompt_tokens_cached_total" VLLM "}", "baton_prompt_tokens_cached_total"},
        {"vllm:request_success_total" VLLM ",finished_reason=\"stop\"}",
         "baton_request_finish_total{reason=\"stop\"}"},
        {"vllm:time_to_first_token_seconds_count" VLLM "}",
         "baton_time_to_first_token_seconds_count"},
        {"vllm:e2e_request_latency_seconds_sum" VLLM "}", "baton_request_duration_seconds_sum"},
        {"vllm:request_generation_tokens_sum" VLLM "}", "baton_request_output_tokens_sum"},
    };
    serving_start(NULL);
    serving_connect(true);
    prefill.cached_tokens = 2;
    ask_chat(2);
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        const double value = client_metric(&router, pairs[i].ours);
        cr_expect_gt(value, 0, "%s", pairs[i].ours);
        cr_expect_eq(client_metric(&router, pairs[i].theirs), value, "%s", pairs[i].theirs);
    }
    fake_worker_heartbeat(&decode, 0, decode.pages_total / 4);
    cr_expect_eq(client_metric(&router, "vllm:kv_cache_usage_perc" VLLM "}"), 0.75);
    char series[128];
    snprintf(series, sizeof series,
             "vllm:cache_config_info" VLLM ",block_size=\"64\",num_gpu_blocks=\"%u\"}",
             decode.pages_total);
    cr_expect_eq(client_metric(&router, series), 1);
    router_process_stop(&router);
}

Test(seen, requests_are_counted_in_their_states)
{
    serving_start(NULL);
    serving_connect(false);
    struct client first, second;
    serving_reach(&first, false, STAGE_PREFILLING);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"prefilling\"}"), 1);
    cr_expect_eq(client_metric(&router, "vllm:num_requests_running" VLLM "}"), 1);
    serving_reach(&second, false, STAGE_RESERVING);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"reserving\"}"), 1);
    cr_expect_eq(client_metric(&router, "vllm:num_requests_waiting" VLLM "}"), 1);
    client_close(&first);
    client_close(&second);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"prefilling\"}"), 0);
    router_process_stop(&router);
}

Test(seen, errors_are_counted_by_code)
{
    serving_start(NULL);
    cr_assert_eq(client_ask(&router, CHAT_PATH, "{}", NULL), 400);
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\",\"model\":\"other\"}", NULL),
                 404);
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 503);
    cr_assert_eq(client_fetch(&router, "/nothing", NULL), 404);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"invalid_request\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"model_not_found\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"no_workers\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"not_found\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"other\"}"), 0);
    router_process_stop(&router);
}

Test(seen, other_names_can_be_left_out)
{
    static const char *const options[] = {"--no-vllm-metrics", NULL};
    serving_start(options);
    struct buffer text = {0};
    cr_assert_eq(client_fetch(&router, "/metrics", &text), 200);
    cr_expect_eq(text_count(text.data, "vllm:"), 0);
    cr_expect_gt(text_count(text.data, "# HELP baton_"), 50);
    buffer_free(&text);
    router_process_stop(&router);
}

Test(seen, promtool_finds_no_fault)
{
    if (system("command -v promtool >/dev/null") != 0)
        cr_skip_test("promtool (Debian package prometheus) is not installed");
    static const char *const options[] = {"--no-vllm-metrics", NULL};
    serving_start(options);
    snprintf(decode.node, sizeof decode.node, "d{0},<=>");
    serving_connect(true);
    ask_chat(1);
    struct buffer text = {0};
    cr_assert_eq(client_fetch(&router, "/metrics", &text), 200);
    cr_expect(strstr(text.data, "baton_worker_state{node=\"d{0},<=>\",role=\"decode\","
                                "state=\"up\"} 1\n"));
    FILE *promtool = popen("promtool check metrics", "w");
    cr_assert(promtool);
    cr_assert_eq(fwrite(text.data, 1, text.size, promtool), text.size);
    cr_expect_eq(pclose(promtool), 0, "promtool has something to say");
    buffer_free(&text);
    router_process_stop(&router);
}
