/* The daemon baton-router: options, signals, and telling whoever started it how it went. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/config.h"
#include "base/log.h"
#include "router/model_list.h"
#include "router/router.h"
#include "transfer/fault.h"

struct options {
    struct config_texts models, chat_templates, tool_call_parsers;
    const char *model_name;
    uint32_t notify_fd;
    const char *fault;
    bool enable_fault_injection;
    struct router_options router;
};

#define AT(field)        offsetof(struct options, field)
#define ROUTER_AT(field) offsetof(struct options, router.field)

/* clang-format off */
static const struct config_row rows[] = {
    {"model", CONFIG_TEXTS, AT(models), NULL, "[NAME=]PATH",
     "GGUF file or Hugging Face folder of a model and the id clients see; only its tokenizer is "
     "read", 0, 0},
    {"model-name", CONFIG_TEXT, AT(model_name), NULL, "NAME",
     "id of the only model (default: the file's name without .gguf)", 0, 0},
    {"http", CONFIG_TEXT, ROUTER_AT(http), "127.0.0.1:8000", "ADDR:PORT",
     "where clients connect; port 0 picks one", 0, 0},
    {"control", CONFIG_TEXT, ROUTER_AT(control), "127.0.0.1:7700", "ADDR:PORT",
     "where workers connect; port 0 picks one", 0, 0},
    {"secret-file", CONFIG_TEXT, ROUTER_AT(secret_file), NULL, "FILE",
     "the cluster's secret, the same on all nodes: workers have to prove that they know it", 0, 0},
    {"insecure", CONFIG_FLAG, ROUTER_AT(insecure), NULL, NULL,
     "without a secret, let workers connect from other hosts all the same", 0, 0},
    {"http-cert", CONFIG_TEXT, ROUTER_AT(http_cert), NULL, "FILE",
     "PEM certificate, with its chain, for TLS with clients; needs --http-key", 0, 0},
    {"http-key", CONFIG_TEXT, ROUTER_AT(http_key), NULL, "FILE",
     "PEM key of --http-cert", 0, 0},
    {"cors-origin", CONFIG_TEXTS, ROUTER_AT(cors_origins), NULL, "ORIGIN",
     "pages of this origin may use the API in a browser, such as https://chat.example.org; *: all",
     0, 0},
    {"api-keys", CONFIG_TEXT, ROUTER_AT(api_keys), NULL, "FILE",
     "who may use the API: a line a key, its tenant's name, requests=N tokens=N a minute", 0, 0},
    {"state-dir", CONFIG_TEXT, ROUTER_AT(state_directory), NULL, "DIR",
     "where the journal is kept (default: $STATE_DIRECTORY, else ./baton-state)", 0, 0},
    {"max-requests", CONFIG_U32, ROUTER_AT(requests_max), "1024", "N",
     "requests at once, the queued ones included", 1, 65536},
    {"text-threads", CONFIG_U32, ROUTER_AT(text_threads), "1", "N",
     "threads for JSON, chat templates and tokenising", 1, 64},
    {"chat-template", CONFIG_TEXTS, AT(chat_templates), NULL, "[MODEL=]FILE",
     "Jinja template of chats, instead of the one in the model; without MODEL= it is for all "
     "models that have none here", 0, 0},
    {"trust-request-chat-template", CONFIG_FLAG, ROUTER_AT(trust_template), NULL, NULL,
     "use the chat_template of a request that has one", 0, 0},
    {"default-max-tokens", CONFIG_U32, ROUTER_AT(default_max_tokens), "0", "N",
     "length of a chat answer when the client sets none; 0: all the room there is", 0, 1e9},
    {"max-body", CONFIG_BYTES, ROUTER_AT(body_bytes), "8M", "BYTES",
     "largest request body", 1024, 1u << 30},
    {"stream-buffer", CONFIG_BYTES, ROUTER_AT(stream_bytes), "1M", "BYTES",
     "unsent bytes of a stream before its slow reader is dropped", 4096, 1u << 30},
    {"sse-keep-alive-ms", CONFIG_MS, ROUTER_AT(sse_keep_alive_ms), "0", "TIME",
     "a stream that has had nothing to say for so long, since its prompt is being read, says a "
     "comment, which proxies want and a few clients do not bear; 0: never",
     0, 3600000},
    {"read-buffer", CONFIG_BYTES, ROUTER_AT(read_bytes), "256M", "BYTES",
     "request bodies that may be on their way in, together; one alone may be larger", 1024, 0x1p36},
    {"text-buffer", CONFIG_BYTES, ROUTER_AT(text_bytes), "64M", "BYTES",
     "request bodies that may wait to be tokenised, together", 1 << 20, 0x1p36},
    {"request-timeout-ms", CONFIG_MS, ROUTER_AT(request_timeout_ms), "600s", "TIME",
     "from a request's acceptance to the end of its answer", 1, 86400000},
    {"reserve-timeout-ms", CONFIG_MS, ROUTER_AT(reserve_timeout_ms), "5s", "TIME",
     "for a decode node's answer to a reservation", 1, 600000},
    {"idle-timeout-ms", CONFIG_MS, ROUTER_AT(idle_timeout_ms), "60s", "TIME",
     "a client connection without a byte read or written is closed", 100, 3600000},
    {"read-timeout-ms", CONFIG_MS, ROUTER_AT(read_timeout_ms), "30s", "TIME",
     "from the first byte of a request to its last", 100, 3600000},
    {"report-wait-ms", CONFIG_MS, ROUTER_AT(report_wait_ms), "50", "TIME",
     "for the workers' timings after the last token, when asked for", 0, 10000},
    {"heartbeat-ms", CONFIG_MS, ROUTER_AT(heartbeat_ms), "500", "TIME",
     "how often workers are asked to report; a third of --worker-timeout-ms at most", 10, 60000},
    {"worker-timeout-ms", CONFIG_MS, ROUTER_AT(worker_timeout_ms), "3s", "TIME",
     "a silent worker counts as lost", 50, 600000},
    {"lease-ms", CONFIG_MS, ROUTER_AT(lease_ms), "30s", "TIME",
     "a decode node keeps reserved pages this long for the prefill node to come", 100, 600000},
    {"local-prefill-tokens", CONFIG_U32, ROUTER_AT(local_prefill_tokens), "32", "N",
     "a decode node reads a prompt itself when it lacks no more of it than so many tokens", 0,
     65536},
    {"ttft-target-ms", CONFIG_MS, ROUTER_AT(ttft_target_ms), "0", "TIME",
     "refuse requests whose first token is predicted to come later; 0: none", 0, 86400000},
    {"tpot-target-ms", CONFIG_MS, ROUTER_AT(tpot_target_ms), "0", "TIME",
     "refuse requests whose tokens are predicted to come further apart; 0: none", 0, 86400000},
    {"speed-stale-ms", CONFIG_MS, ROUTER_AT(speed_stale_ms), "30s", "TIME",
     "a prefill node without work for so long gets one request, however late; 0: never", 0,
     86400000},
    {"queue-requests", CONFIG_U32, ROUTER_AT(queue_requests), "1024", "N",
     "requests that may wait for room on a decode node; 0: any number", 0, 65536},
    {"queue-tokens", CONFIG_U64, ROUTER_AT(queue_tokens), "4194304", "N",
     "tokens of the prompts that wait, together; 0: any number", 0, 1e12},
    {"queue-bytes", CONFIG_BYTES, ROUTER_AT(queue_bytes), "64M", "BYTES",
     "bodies of the requests that wait, together; 0: any size", 0, 0x1p40},
    {"priority-wait-ms", CONFIG_MS, ROUTER_AT(priority_wait_ms), "60s", "TIME",
     "the most waiting that a request's priority saves or costs it; 0: they all wait in turn", 0,
     3600000},
    {"prefix-index-pages", CONFIG_U32, ROUTER_AT(prefix_index_pages), "262144", "N",
     "KV pages in the workers' prefix caches that placement knows of, 96 bytes each; 0: none", 0,
     16777216},
    {"slow-start-ms", CONFIG_MS, ROUTER_AT(slow_start_ms), "10s", "TIME",
     "a worker that has just joined is given less than it says it can do for so long", 0, 600000},
    {"drain-ms", CONFIG_MS, ROUTER_AT(drain_ms), "5s", "TIME",
     "on SIGTERM, time for running requests before they end with an error", 0, 3600000},
    {"journal-bytes", CONFIG_BYTES, ROUTER_AT(journal_bytes), "1G", "BYTES",
     "largest size of the journal file", 1 << 16, 0x1p43},
    {"journal-requests", CONFIG_U64, ROUTER_AT(journal_requests), "200000", "N",
     "requests kept in the journal", 1, 1e12},
    {"log-text", CONFIG_CHOICE, ROUTER_AT(log_text), "none", "none|errors|all",
     "log the first 1,500 bytes of request bodies and of answers, of those that failed or of all",
     0, 0},
    {"tool-call-parser", CONFIG_TEXTS, AT(tool_call_parsers), NULL, "[MODEL=]STYLE",
     "how the model, or each that has no style here, writes tool calls: none, hermes, llama3, "
     "mistral, granite, or (the default) auto, as its chat template says", 0, 0},
    {"no-vllm-metrics", CONFIG_FLAG, ROUTER_AT(no_vllm_metrics), NULL, NULL,
     "leave vLLM's names for the same numbers out of /metrics", 0, 0},
    {"fault", CONFIG_TEXT, AT(fault), NULL, "POINT[:N[+]]:ACTION,...",
     "faults to inject, for tests; a wrong one lists those there are", 0, 0},
    {"enable-fault-injection", CONFIG_FLAG, AT(enable_fault_injection), NULL, NULL,
     "inject the faults of --fault", 0, 0},
    {"notify-fd", CONFIG_U32, AT(notify_fd), "0", "FD",
     "descriptor that is told HTTP=, CONTROL=, READY=1 or FAILED=; 0: none", 0, 65535},
};
/* clang-format on */

static const struct config_command command = {
    .program = "baton-router",
    .summary = "Speaks the OpenAI HTTP API and sends requests to prefill and decode nodes.",
    .examples = "  baton-router --model model.gguf\n"
                "  baton-router --model model.gguf --http 0.0.0.0:8000 --control 10.0.0.1:7700\n"
                "  baton-router --model small=small.gguf --model large=/models/large\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

/* Whole lines; a reader that is gone does not matter. */
static void notify(const struct options *options, const char *text)
{
    if (options->notify_fd == 0)
        return;
    size_t left = strlen(text);
    while (left > 0) {
        const ssize_t written = write((int)options->notify_fd, text, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        text += written;
        left -= (size_t)written;
    }
}

static int fail(const struct options *options, const struct error *error)
{
    char line[ERROR_TEXT_BYTES + 16];
    snprintf(line, sizeof line, "FAILED=%s\n", error->text);
    notify(options, line);
    fprintf(stderr, "baton-router: %s\n", error->text);
    return 1;
}

/* host of "host:port" with the port that was taken. */
static void tell_address(const struct options *options, const char *key, const char *address,
                         uint16_t port)
{
    char line[512];
    const int host_bytes = (int)(strrchr(address, ':') - address);
    snprintf(line, sizeof line, "%s=%.*s:%u\n", key, host_bytes, address, port);
    notify(options, line);
}

/* Every client and worker is a descriptor: take as many as the system allows. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        LOG_WARN("the limit on open files stays at its default: %s", strerror(errno));
}

static void on_stop_signal(void *arg)
{
    router_drain(arg);
}

static int serve(const struct options *options, const struct model_list *models)
{
    struct error error;
    struct loop *loop = loop_create();
    struct router *router;
    if (router_create(loop, models, &options->router, &router, &error) != STATUS_OK) {
        loop_destroy(loop);
        return fail(options, &error);
    }
    struct loop_signal *terminate = loop_signal_create(loop, SIGTERM, on_stop_signal, router);
    struct loop_signal *interrupt = loop_signal_create(loop, SIGINT, on_stop_signal, router);
    tell_address(options, "HTTP", options->router.http, router_http_port(router));
    tell_address(options, "CONTROL", options->router.control, router_control_port(router));
    notify(options, "READY=1\n");
    for (uint32_t i = 1; i < models->count; i++)
        LOG_INFO("model %s", models->items[i].name);
    LOG_INFO("model %s, HTTP on port %u, workers on port %u", models->items[0].name,
             router_http_port(router), router_control_port(router));
    loop_run(loop);
    /* What is left takes no time, and one signal more must not spoil the exit code. */
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    loop_signal_destroy(terminate);
    loop_signal_destroy(interrupt);
    router_destroy(router);
    loop_destroy(loop);
    return 0;
}

int main(int argc, char **argv)
{
    struct options options;
    int first_operand;
    const int parsed = config_begin(&command, argc, argv, &options, &first_operand);
    if (parsed != CONFIG_GO_ON)
        return parsed;
    log_init("router", LOG_LEVEL_INFO);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    if (!options.router.state_directory)
        options.router.state_directory =
            getenv("STATE_DIRECTORY") ? getenv("STATE_DIRECTORY") : "baton-state";
    struct error error;
    if (options.models.count == 0) {
        error_set(&error, STATUS_INVALID, "--model FILE is missing");
        fail(&options, &error);
        return 2;
    }
    if (fault_arm(options.fault, options.enable_fault_injection, &error) != STATUS_OK)
        return fail(&options, &error);
    struct model_list models;
    if (model_list_open(&options.models, options.model_name, &models, &error) != STATUS_OK)
        return fail(&options, &error);
    const bool told =
        model_list_templates(&models, &options.chat_templates, &error) == STATUS_OK &&
        model_list_tool_styles(&models, &options.tool_call_parsers, &error) == STATUS_OK;
    const int code = told ? serve(&options, &models) : fail(&options, &error);
    model_list_close(&models);
    return code;
}
