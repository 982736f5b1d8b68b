/* `baton ask`: one chat request over HTTP, the answer as it comes, then where the time went. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/json.h"
#include "model/text/jinja/jinja.h"
#include "ops/baton/ask_report.h"
#include "ops/baton/ask_stream.h"
#include "ops/baton/chat_messages.h"
#include "ops/baton/commands.h"
#include "ops/baton/text_input.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    PROMPT_BYTES_MAX = 16 << 20,
    ERROR_BODY_BYTES_MAX = 64 << 10,
    HTTP_OK = 200,
};

struct ask_options {
    const char *url, *api_key, *model, *system, *template;
    uint32_t max_tokens, timeout_ms;
    double temperature;
    bool json;
};

#define OPTION(field) offsetof(struct ask_options, field)
static const struct config_row ask_rows[] = {
    {"url", CONFIG_TEXT, OPTION(url), "http://127.0.0.1:8000", "URL", "the router", 0, 0},
    {"api-key", CONFIG_TEXT, OPTION(api_key), NULL, "KEY",
     "key of a router that asks for one; better given as $BATON_API_KEY, which ps does not show", 0,
     0},
    {"model-name", CONFIG_TEXT, OPTION(model), NULL, "NAME", "model (default: the served one)", 0,
     0},
    {"system", CONFIG_TEXT, OPTION(system), NULL, "TEXT", "system message", 0, 0},
    {"template", CONFIG_TEXT, OPTION(template), NULL, "FILE",
     "Jinja chat template of this request, for a router with --trust-request-chat-template", 0, 0},
    {"max-tokens", CONFIG_U32, OPTION(max_tokens), NULL, "N",
     "longest answer (default: what the context leaves)", 0, 0},
    {"temperature", CONFIG_F64, OPTION(temperature), "0", "T",
     "0 takes the likeliest token each time", 0, 2},
    {"timeout", CONFIG_MS, OPTION(timeout_ms), "600s", "TIME", "for the whole answer", 1, 86400000},
    {"json", CONFIG_FLAG, OPTION(json), NULL, NULL,
     "print one JSON object at the end instead of text and table", 0, 0},
};

static const struct config_command ask_command = {
    .program = "baton ask",
    .summary = "Sends one chat request, streams the answer and shows where its time went.",
    .examples = "  baton ask 'What is a relay race?'\n"
                "  baton ask --url http://127.0.0.1:8001 --max-tokens 64 - < question.txt\n",
    .operands = "PROMPT",
    .rows = ask_rows,
    .row_count = ARRAY_COUNT(ask_rows),
};

struct ask {
    const struct ask_options *options;
    CURL *curl;
    struct ask_stream stream;
    struct buffer error_body;
    uint64_t sent_ns;
    enum status status; /* why the body callback ended the transfer */
    struct error *error;
};

/* template: NULL for the server's. */
static void request_body(const struct ask_options *options, const struct buffer *prompt,
                         const struct buffer *template, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    if (options->model) {
        json_key(&writer, "model");
        json_put_text(&writer, options->model);
    }
    json_key(&writer, "messages");
    chat_messages_put(&writer, options->system, prompt);
    if (template) {
        json_key(&writer, "chat_template");
        json_put_string(&writer, template->size == 0 ? "" : template->data, template->size);
    }
    if (options->max_tokens) {
        json_key(&writer, "max_tokens");
        json_put_u64(&writer, options->max_tokens);
    }
    json_key(&writer, "temperature");
    json_put_number(&writer, options->temperature, 9);
    json_key(&writer, "stream");
    json_put_bool(&writer, true);
    json_key(&writer, "stream_options");
    json_open_object(&writer);
    json_key(&writer, "include_usage");
    json_put_bool(&writer, true);
    json_close_object(&writer);
    json_key(&writer, "timings");
    json_put_bool(&writer, true);
    json_close_object(&writer);
}

static enum status prompt_read(const char *operand, struct buffer *out, struct error *error)
{
    if (strcmp(operand, "-") != 0) {
        buffer_add_text(out, operand);
        return STATUS_OK;
    }
    char bytes[4096];
    ssize_t count;
    while ((count = read(STDIN_FILENO, bytes, sizeof bytes)) != 0) {
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return error_set_errno(error, STATUS_IO, "standard input cannot be read");
        if (out->size + (size_t)count > PROMPT_BYTES_MAX)
            return error_set(error, STATUS_LIMIT, "the prompt is longer than %d bytes",
                             PROMPT_BYTES_MAX);
        buffer_add(out, bytes, (size_t)count);
    }
    return STATUS_OK;
}

static void on_text(void *arg, const char *text, size_t bytes)
{
    (void)arg;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

/* Body bytes: events of the stream, or the error body of any other status. Taking fewer bytes than
 * offered makes curl end the transfer. */
static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct ask *ask = arg;
    const size_t bytes = size * count;
    long code = 0;
    curl_easy_getinfo(ask->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != HTTP_OK) {
        if (ask->error_body.size + bytes <= ERROR_BODY_BYTES_MAX)
            buffer_add(&ask->error_body, data, bytes);
        return bytes;
    }
    ask->status =
        ask_stream_add(&ask->stream, data, bytes, clock_now_ns(clock_monotonic()), ask->error);
    return ask->status == STATUS_OK ? bytes : 0;
}

/* What curl and the server together say about how it went. */
static enum status judge(struct ask *ask, CURLcode code, struct error *error)
{
    const char *url = ask->options->url;
    long http = 0;
    curl_easy_getinfo(ask->curl, CURLINFO_RESPONSE_CODE, &http);
    if (ask->status != STATUS_OK)
        return ask->status;
    if (code == CURLE_COULDNT_CONNECT)
        return error_set(error, STATUS_CLOSED,
                         "nobody listens at %s; `baton up --model FILE` starts a cluster", url);
    if (code == CURLE_OPERATION_TIMEDOUT && http == 0)
        return error_set(error, STATUS_TIMEOUT, "%s did not answer within %u ms", url,
                         ask->options->timeout_ms);
    if (http != 0 && http != HTTP_OK) {
        char sentence[224];
        ask_error_message(ask->error_body.data, ask->error_body.size, sentence, sizeof sentence);
        return error_set(error, STATUS_REFUSED, "%s answered %ld: %s", url, http, sentence);
    }
    const char *why = code == CURLE_OK ? "the stream ended" : curl_easy_strerror(code);
    if (!ask->stream.answer.done && http == HTTP_OK)
        return error_set(error, STATUS_CLOSED, "the answer broke off before [DONE]: %s", why);
    if (code != CURLE_OK && !ask->stream.answer.done)
        return error_set(error, STATUS_IO, "%s cannot be asked: %s", url, why);
    return STATUS_OK;
}

/* A key is one word: a line break in it would be a header of its own. */
static enum status add_key(const char *key, struct curl_slist **headers, struct error *error)
{
    enum { KEY_BYTES_MAX = 1024 };
    if (!key)
        return STATUS_OK;
    size_t bytes = strlen(key);
    for (size_t i = 0; i < bytes; i++) {
        if (key[i] <= ' ' || key[i] > '~')
            bytes = 0;
    }
    if (bytes == 0 || bytes > KEY_BYTES_MAX) {
        curl_slist_free_all(*headers);
        return error_set(error, STATUS_INVALID,
                         "--api-key is not one word of 1 to %d printable characters",
                         KEY_BYTES_MAX);
    }
    char line[KEY_BYTES_MAX + 32];
    snprintf(line, sizeof line, "Authorization: Bearer %s", key);
    *headers = curl_slist_append(*headers, line);
    CHECK(*headers != NULL);
    return STATUS_OK;
}

static enum status transfer(struct ask *ask, const struct buffer *body, struct error *error)
{
    char url[2048];
    size_t base_bytes = strlen(ask->options->url);
    while (base_bytes > 0 && ask->options->url[base_bytes - 1] == '/')
        base_bytes--;
    if (base_bytes + 32 > sizeof url)
        return error_set(error, STATUS_LIMIT, "--url is longer than %zu bytes", sizeof url - 32);
    snprintf(url, sizeof url, "%.*s/v1/chat/completions", (int)base_bytes, ask->options->url);

    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    /* Long prompts go at once, without waiting for a "100 Continue". */
    headers = curl_slist_append(headers, "Expect:");
    CHECK(headers != NULL);
    TRY(add_key(ask->options->api_key, &headers, error));
    CURL *curl = ask->curl;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ask->options->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, ask);
    ask->sent_ns = clock_now_ns(clock_monotonic());
    const CURLcode code = curl_easy_perform(curl);
    const enum status status = judge(ask, code, error);
    curl_slist_free_all(headers);
    return status;
}

/* From the question and the files that are named. */
static enum status body_make(const struct ask_options *options, const char *operand,
                             struct buffer *out, struct error *error)
{
    struct buffer prompt = {0}, template = {0};
    enum status status = prompt_read(operand, &prompt, error);
    if (status == STATUS_OK && prompt.size == 0)
        status = error_set(error, STATUS_INVALID, "the prompt is empty");
    if (status == STATUS_OK && options->template)
        status = text_file_read(options->template, JINJA_SOURCE_BYTES_MAX, &template, error);
    if (status == STATUS_OK)
        request_body(options, &prompt, options->template ? &template : NULL, out);
    buffer_free(&template);
    buffer_free(&prompt);
    return status;
}

static enum status ask_run(const struct ask_options *options, const char *operand,
                           struct error *error)
{
    struct buffer body = {0};
    TRY(body_make(options, operand, &body, error));
    struct ask ask = {.options = options, .error = error};
    ask_stream_init(&ask.stream, options->json ? NULL : on_text, NULL);
    ask.curl = curl_easy_init();
    CHECK(ask.curl != NULL);
    enum status status = transfer(&ask, &body, error);
    if (!options->json && ask.stream.answer.text.size > 0)
        putchar('\n');
    fflush(stdout);
    if (status == STATUS_OK && options->json)
        ask_json_print(&ask.stream.answer, ask.sent_ns, stdout);
    else if (status == STATUS_OK) {
        fputc('\n', stderr);
        ask_timeline_print(&ask.stream.answer, ask.sent_ns, stderr);
    }
    if (status == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = error_set(error, STATUS_IO, "standard output cannot be written");
    curl_easy_cleanup(ask.curl);
    ask_stream_free(&ask.stream);
    buffer_free(&ask.error_body);
    buffer_free(&body);
    return status;
}

int command_ask(int argc, char **argv)
{
    struct ask_options options;
    int first_operand;
    const int code = config_begin(&ask_command, argc, argv, &options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    if (argc - first_operand != 1)
        return config_misused(&ask_command,
                              "one PROMPT is needed, %d are given (quote it, or - for standard "
                              "input)",
                              argc - first_operand);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fprintf(stderr, "baton ask: libcurl cannot be initialised\n");
        return 1;
    }
    struct error error;
    const enum status status = ask_run(&options, argv[first_operand], &error);
    curl_global_cleanup();
    return config_end(&ask_command, status, &error);
}
