/* Many requests at once, through a prefill node and a decode node with few pages, each one answered
 * as it is when it is alone: whatever was chunked, batched, shared, handed off, read by the decode
 * node, preempted and computed again or cancelled beside it. Freed pages are filled with NaN. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/worker/fake_router.h"
#include "tests/worker/oracle.h"

enum { REQUESTS = 200, PROMPT_MAX = 800, SHARED = 4, AT_ONCE = 24, PAGE = 16 };

struct request {
    int32_t prompt[PROMPT_MAX];
    struct ask ask;
    bool local;
    uint64_t refused_at; /* the heartbeat before the refusal; 0: none is to be answered */
    uint32_t cancel_at;  /* once so many tokens are there; UINT32_MAX: never */
    struct fake_answer *answer;
    bool cancelled;
};

struct trial {
    const char *model, *dtype_name, *context;
    enum kv_dtype dtype;
    size_t strip_bytes; /* one page of one layer */
    uint32_t layers, requests, answer_max;
    uint32_t beginnings; /* shared ones, of SHARED */
    uint32_t pages;      /* of the decode node */
    bool preempts;       /* so many that it cannot be otherwise */
    const char *more;    /* a further option of both, or NULL */
};

static struct fake_router router;
static struct daemon prefill_process, decode_process;
static struct fake_worker *prefill, *decode;
static struct request requests[REQUESTS];
static struct random dice;

/* Prompts share one of a few beginnings, or none. */
static void draw(struct request *request, const struct trial *trial)
{
    static const uint32_t shared_tokens[SHARED] = {0, 64, 200, 384};
    const uint32_t which = (uint32_t)random_below(&dice, trial->beginnings);
    const uint32_t shared = shared_tokens[which];
    const uint32_t own = 1 + (uint32_t)random_below(&dice, 130);
    oracle_prompt(1000 + which, decode->vocab_count, shared, request->prompt);
    oracle_prompt(random_next(&dice), decode->vocab_count, own, request->prompt + shared);
    request->ask = (struct ask){
        .prompt = request->prompt,
        .prompt_count = shared + own,
        .max_tokens = 1 + (uint32_t)random_below(&dice, trial->answer_max),
        .ignore_eos = true,
        .temperature = random_below(&dice, 2) == 0 ? 0 : 1.2f,
        .seed = random_next(&dice),
        .local_tokens = 32,
    };
    request->local = random_below(&dice, 4) == 0;
    request->refused_at = 0;
    request->cancel_at = random_below(&dice, 8) == 0
                             ? (uint32_t)random_below(&dice, request->ask.max_tokens)
                             : UINT32_MAX;
}

static void begin(struct request *request)
{
    request->answer =
        fake_router_ask(&router, decode, request->local ? NULL : prefill, &request->ask);
}

/* A decode node without room says so; a router asks again with the next heartbeat. */
static void ask_again(struct request *request)
{
    struct fake_answer *answer = request->answer;
    cr_assert_eq(answer->refused, STATUS_BUSY, "%s", answer->text);
    if (request->refused_at == 0)
        request->refused_at = decode->heartbeat.sequence;
    if (request->refused_at == decode->heartbeat.sequence)
        return;
    request->refused_at = 0;
    answer->refused = STATUS_OK;
    answer->attempt++;
    fake_router_send_reserve(answer);
}

/* Whether the request is over; sends what is due. */
static bool attend(struct request *request)
{
    struct fake_answer *answer = request->answer;
    if (request->cancelled)
        return true;
    if (answer->refused != STATUS_OK)
        ask_again(request);
    if (answer->token_count >= request->cancel_at && answer->finish == FINISH_NONE) {
        fake_router_cancel(answer);
        return request->cancelled = true;
    }
    cr_assert_eq(answer->failed, STATUS_OK, "%s", answer->text);
    return answer->refused == STATUS_OK && answer_over(answer);
}

static void run_all(const struct trial *trial)
{
    struct request *open[AT_ONCE];
    uint32_t begun = 0, count = 0;
    while (begun < trial->requests || count > 0) {
        if (begun < trial->requests && count < AT_ONCE && random_below(&dice, 3) != 0) {
            begin(&requests[begun]);
            open[count++] = &requests[begun++];
        }
        loop_run_once(router.loop, count == AT_ONCE ? 20 : 1);
        for (uint32_t i = 0; i < count;) {
            if (attend(open[i]))
                open[i] = open[--count];
            else
                i++;
        }
    }
}

static void compare_all(const struct trial *trial)
{
    struct oracle oracle;
    static int32_t alone[PROMPT_MAX];
    oracle_open_as(&oracle, trial->model, trial->dtype);
    for (uint32_t i = 0; i < trial->requests; i++) {
        const struct fake_answer *answer = requests[i].answer;
        if (!requests[i].cancelled)
            cr_assert_eq(answer->token_count, answer->ask.max_tokens);
        oracle_generate(&oracle, &answer->ask, answer->ask.max_tokens, alone);
        for (uint32_t k = 0; k < answer->ask.max_tokens; k++)
            cr_assert(!answer->seen[k] || answer->tokens[k] == alone[k],
                      "request %u (prompt %u, %s): token %u is %d and not %d", i,
                      answer->ask.prompt_count, requests[i].local ? "local" : "handed off", k,
                      answer->tokens[k], alone[k]);
    }
    oracle_close(&oracle);
}

static bool preempted(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.decode.preemptions > 0;
}

static void try_all(const struct trial *trial)
{
    char kv[32], more[32];
    const size_t page = trial->strip_bytes * trial->layers;
    snprintf(kv, sizeof kv, "%zu", page * trial->pages);
    snprintf(more, sizeof more, "%zu", page * 400);
    fake_router_open(&router);
    decode = fake_router_worker(&router, &decode_process, "baton-decode", trial->model,
                                (const char *[]){"--kv-memory", kv, "--kv-dtype", trial->dtype_name,
                                                 "--context", trial->context, "--chunk-tokens",
                                                 "96", "--page-tokens", "16",
                                                 "--enable-fault-injection", trial->more, NULL});
    prefill = fake_router_worker(&router, &prefill_process, "baton-prefill", trial->model,
                                 (const char *[]){"--kv-memory", more, "--kv-dtype",
                                                  trial->dtype_name, "--context", trial->context,
                                                  "--chunk-tokens", "128", "--page-tokens", "16",
                                                  "--enable-fault-injection", trial->more, NULL});
    cr_assert_eq(decode->pages_total, trial->pages);
    random_init(&dice, trial->requests + trial->dtype);
    for (uint32_t i = 0; i < trial->requests; i++)
        draw(&requests[i], trial);
    run_all(trial);
    fake_router_wait(&router, "idle decode node", worker_idle, decode);
    fake_router_wait(&router, "idle prefill node", worker_idle, prefill);
    if (trial->preempts)
        fake_router_wait(&router, "preemption", preempted, decode);
    daemon_stop(&prefill_process);
    daemon_stop(&decode_process);
    compare_all(trial);
    fake_router_close(&router);
}

/* 3 layers, 2 heads of 32. */
static void try_tiny(enum kv_dtype dtype, const char *name, const char *more)
{
    char path[TEST_PATH_BYTES];
    snprintf(path, sizeof path, "%s", test_model("tiny.gguf", NULL));
    const struct trial trial = {.model = path,
                                .dtype_name = name,
                                .dtype = dtype,
                                .strip_bytes = kv_page_bytes(dtype, PAGE, 2, 32),
                                .layers = 3,
                                .requests = REQUESTS,
                                .context = "896",
                                .answer_max = 180,
                                .beginnings = SHARED,
                                .pages = 60,
                                .preempts = true,
                                .more = more};
    try_all(&trial);
}

Test(decode_exact, two_hundred_at_once_are_answered_as_alone)
{
    try_tiny(KV_BF16, "bf16", NULL);
}

Test(decode_exact, and_with_keys_and_values_in_eight_bits)
{
    try_tiny(KV_I8, "int8", NULL);
}

/* Whoever is preempted is computed again from its first token. */
Test(decode_exact, and_without_an_index_of_what_is_known)
{
    try_tiny(KV_BF16, "bf16", "--no-prefix-cache");
}

/* 30 layers, 3 heads of 64. */
Test(decode_exact, sixteen_of_a_real_model)
{
    char path[TEST_PATH_BYTES];
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.cache/baton/SmolLM2-135M-Instruct.Q4_1.gguf",
             home == NULL ? "" : home);
    if (access(path, R_OK) != 0)
        cr_skip_test("%s is not there", path);
    const struct trial trial = {.model = path,
                                .dtype_name = "bf16",
                                .dtype = KV_BF16,
                                .strip_bytes = kv_page_bytes(KV_BF16, PAGE, 3, 64),
                                .layers = 30,
                                .requests = 16,
                                .context = "320",
                                .answer_max = 120,
                                .beginnings = 2,
                                .pages = 21};
    try_all(&trial);
}
