/* A whole request has the same bits however it was computed: its prompt in one chunk, in many or
 * token by token as a decode node would, alone or in a batch, by any number of threads and any
 * instruction set, once or again after a preemption. What is compared are digests of every KV page
 * and of the logits of every position.
 *
 * That the comparison can fail is shown too: with a product whose order of summation depends on the
 * number of rows, which comes into the table of kernels through the linker (--wrap=kernels_init).
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "kernels/matmul_epilogue.h"
#include "model/model.h"
#include "tests/model/format/model_folder.h"
#include "tests/model/net/tiny_model.h"
#include "tests/model/net/variant_folder.h"

/* The request ends with a page, beyond the first segment of attention. */
enum { PROMPT = 535, TOTAL = 576, PAGE_TOKENS = 64, PAGES = TOTAL / PAGE_TOKENS };
/* Who else is in a batch: each brings some rows to every call, over and over through its pages. */
enum { COMPANY = 3, COMPANY_TOKENS = 200, COMPANY_ROWS_MAX = 40 };
enum { ROWS = TOTAL + COMPANY * COMPANY_ROWS_MAX, LAYERS_MAX = 32 };
/* The reference folders have short contexts; their windows are shorter still. */
enum { SHORT_PROMPT = 230, SHORT_TOTAL = 256 };

/* ---- kernels that may be put in the place of a product ---- */

static enum replacement {
    KERNELS_OWN,
    SAME_ORDER,   /* ascending K, always */
    ORDER_BY_ROWS /* descending K in calls of fewer than 4 rows */
} replacement;

static void matmul_replaced(const struct matmul_task *task)
{
    const float *x = task->x;
    const bool descending = replacement == ORDER_BY_ROWS && task->rows < 4;
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++) {
        const uint8_t *packed = task->panels + panel * panel_bytes(WEIGHT_F32, false, task->k);
        for (uint32_t row = 0; row < task->rows; row++) {
            float sums[PANEL_ROWS] = {0};
            for (uint32_t i = 0; i < task->k; i++) {
                const uint32_t input = descending ? task->k - 1 - i : i;
                for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
                    sums[lane] += panel_value(WEIGHT_F32, packed, input, lane) *
                                  x[(size_t)row * task->k + input];
            }
            matmul_store(task, row, panel, sums);
        }
    }
}

void __real_kernels_init(struct kernel_table *table, enum kernel_isa isa);
void __wrap_kernels_init(struct kernel_table *table, enum kernel_isa isa);

void __wrap_kernels_init(struct kernel_table *table, enum kernel_isa isa)
{
    __real_kernels_init(table, isa);
    if (replacement != KERNELS_OWN)
        table->matmul_f32 = matmul_replaced;
}

/* ---- ways to compute a request ---- */

struct flavour {
    /* arch "real": the real model; type "folder", "variant": arch is a folder of reference data, a
     * case of variant_folder.h */
    char arch[16], type[8];
    enum kv_dtype kv_dtype;
    enum activation_mode activations;
};

struct way {
    const char *name;
    uint32_t chunk; /* prompt tokens of a call */
    uint32_t threads;
    bool company;
    bool every_logit; /* of the prompt too, so that the last layer carries every row */
    bool again;       /* the answer is known: it is part of the prompt */
    bool real;        /* for the real model too: what is different for large matrices */
    const char *isa;  /* NULL: the best */
};

static const struct way ways[] = {
    {.name = "whole prompt", .chunk = PROMPT, .threads = 2, .real = true},
    {.name = "whole prompt, all logits, 2 threads",
     .chunk = PROMPT,
     .threads = 2,
     .every_logit = 1},
    {.name = "chunks of 256, 3 threads", .chunk = 256, .threads = 3},
    {.name = "chunks of 100 in a batch", .chunk = 100, .threads = 1, .company = true, .real = true},
    {.name = "chunks of 17 in a batch, all logits, 2 threads",
     .chunk = 17,
     .threads = 2,
     .company = true,
     .every_logit = true},
    {.name = "token by token, all logits",
     .chunk = 1,
     .threads = 1,
     .every_logit = true,
     .real = true},
    {.name = "token by token in a batch, 3 threads", .chunk = 1, .threads = 3, .company = true},
    {.name = "answer prefilled again", .chunk = TOTAL, .threads = 2, .again = true},
    {.name = "answer prefilled again in chunks and a batch, all logits",
     .chunk = 77,
     .threads = 1,
     .company = true,
     .every_logit = true,
     .again = true},
};

/* What a request left behind. */
struct trace {
    int32_t tokens[TOTAL];
    uint64_t logits[TOTAL]; /* digest of each position, 0: nobody asked */
    uint64_t pages[LAYERS_MAX][PAGES];
    uint32_t layers, pages_count;
};

struct request {
    struct model *model;
    uint32_t prompt, total; /* tokens of it */
    const struct way *way;
    struct trace *trace;
    uint32_t done; /* tokens in the pages */
    uint32_t slots[PAGES];
    struct forward_sequence batch[1 + COMPANY]; /* the request comes first */
    int32_t company_tokens[COMPANY][COMPANY_TOKENS];
    uint32_t company_slots[COMPANY][COMPANY_TOKENS / PAGE_TOKENS + 1];
};

static void draw_tokens(uint64_t seed, const struct model *model, int32_t *tokens, uint32_t count)
{
    struct random random;
    random_init(&random, seed);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(&random, model_info(model)->vocab_count);
}

static void company_open(struct request *request)
{
    for (uint32_t i = 0; i < COMPANY; i++) {
        draw_tokens(100 + i, request->model, request->company_tokens[i], COMPANY_TOKENS);
        tiny_model_take(request->model, COMPANY_TOKENS, request->company_slots[i]);
        request->batch[1 + i] = (struct forward_sequence){.slots = request->company_slots[i]};
    }
}

/* 1, 14 and 27 rows, less at the end of their tokens. */
static void company_next(struct request *request)
{
    for (uint32_t i = 0; i < COMPANY; i++) {
        struct forward_sequence *s = &request->batch[1 + i];
        s->position = (s->position + s->count) % COMPANY_TOKENS;
        const uint32_t rest = COMPANY_TOKENS - s->position, rows = 1 + 13 * i;
        s->count = rows < rest ? rows : rest;
        s->tokens = request->company_tokens[i] + s->position;
        s->logit_rows = i % 2;
    }
}

/* The next `rows` tokens; returns the last one's logits, NULL if nobody wanted them. */
static const float *call(struct request *request, uint32_t rows, uint32_t logit_rows)
{
    struct trace *trace = request->trace;
    struct error error = {0};
    const float *logits = NULL;
    const size_t vocab = model_info(request->model)->vocab_count;
    if (request->way->company)
        company_next(request);
    request->batch[0] = (struct forward_sequence){.tokens = trace->tokens + request->done,
                                                  .count = rows,
                                                  .position = request->done,
                                                  .slots = request->slots,
                                                  .logit_rows = logit_rows};
    cr_assert_eq(model_forward(request->model, request->batch,
                               request->way->company ? 1 + COMPANY : 1, NULL, &logits, &error),
                 STATUS_OK, "%s: %s", request->way->name, error.text);
    request->done += rows;
    for (uint32_t i = 0; i < logit_rows; i++)
        trace->logits[request->done - logit_rows + i] =
            hash64(logits + i * vocab, vocab * sizeof *logits, 0);
    return logit_rows == 0 ? NULL : logits + (logit_rows - 1) * vocab;
}

static int32_t likeliest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

static void answer(struct request *request)
{
    const struct way *way = request->way;
    const uint32_t prompt = way->again ? request->total : request->prompt;
    const uint32_t vocab = model_info(request->model)->vocab_count;
    const float *logits = NULL;
    while (request->done < prompt) {
        const uint32_t rest = prompt - request->done, rows = way->chunk < rest ? way->chunk : rest;
        logits = call(request, rows, way->every_logit ? rows : rows == rest);
    }
    while (request->done < request->total) {
        request->trace->tokens[request->done] = likeliest(logits, vocab);
        logits = call(request, 1, 1);
    }
}

static void digest_pages(const struct request *request)
{
    const struct page_pool *pages = model_pages(request->model);
    const struct kv_layout *layout = page_pool_layout(pages);
    cr_assert_leq(layout->layers, LAYERS_MAX);
    request->trace->layers = layout->layers;
    request->trace->pages_count = request->total / PAGE_TOKENS;
    for (uint32_t layer = 0; layer < layout->layers; layer++)
        for (uint32_t page = 0; page < request->trace->pages_count; page++)
            request->trace->pages[layer][page] =
                hash64(page_pool_strip(pages, layer, request->slots[page]),
                       kv_layout_strip_bytes(layout), 0);
}

static bool flavour_is_folder(const struct flavour *flavour)
{
    return strcmp(flavour->type, "folder") == 0 || strcmp(flavour->type, "variant") == 0;
}

static struct model *flavour_open(const struct flavour *flavour, struct model_options options)
{
    struct model *model = NULL;
    struct error error = {0};
    char path[512];
    const bool variant = strcmp(flavour->type, "variant") == 0;
    if (variant) {
        options.path = variant_write(flavour->arch);
    } else if (flavour_is_folder(flavour)) {
        snprintf(path, sizeof path, "%s/golden/tiny/%s", shared_folder(), flavour->arch);
        options.path = path;
    } else if (strcmp(flavour->arch, "real") != 0) {
        return tiny_model_open(flavour->arch, flavour->type, options);
    } else {
        options.path = real_model_path();
    }
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    if (variant)
        model_folder_remove(); /* what is mapped stays */
    return model;
}

/* known: of the first way, for its answer; NULL for the first. */
static void request_run(const struct flavour *flavour, const struct way *way,
                        const struct trace *known, struct trace *out)
{
    *out = (struct trace){0};
    const bool folder = flavour_is_folder(flavour);
    struct request request = {.way = way,
                              .trace = out,
                              .prompt = folder ? SHORT_PROMPT : PROMPT,
                              .total = folder ? SHORT_TOTAL : TOTAL};
    request.model =
        flavour_open(flavour, (struct model_options){.isa = way->isa,
                                                     .activations = flavour->activations,
                                                     .kv_dtype = flavour->kv_dtype,
                                                     .threads = way->threads,
                                                     .page_tokens = PAGE_TOKENS,
                                                     .context_tokens = request.total,
                                                     .kv_tokens = 3 * TOTAL,
                                                     .max_rows = ROWS,
                                                     .max_sequences = 1 + COMPANY,
                                                     .max_logit_rows = ROWS});
    page_pool_poison(model_pages(request.model), true);
    company_open(&request);
    tiny_model_take(request.model, request.total, request.slots);
    draw_tokens(1, request.model, out->tokens, request.prompt);
    if (way->again)
        memcpy(out->tokens, known->tokens, sizeof out->tokens);
    answer(&request);
    digest_pages(&request);
    tiny_model_give(request.model, request.total, request.slots);
    for (uint32_t i = 0; i < COMPANY; i++)
        tiny_model_give(request.model, COMPANY_TOKENS, request.company_slots[i]);
    model_close(request.model);
}

enum { WORDS_BYTES = 160 };

/* True if what both know is the same; else words say what is not. name: of b's way. */
static bool traces_equal(const struct trace *a, const struct trace *b, const char *name,
                         char words[WORDS_BYTES])
{
    for (uint32_t i = 0; i < TOTAL; i++) {
        if (a->tokens[i] != b->tokens[i] ||
            (a->logits[i] != 0 && b->logits[i] != 0 && a->logits[i] != b->logits[i])) {
            snprintf(words, WORDS_BYTES, "%s: %s of position %u differ", name,
                     a->tokens[i] != b->tokens[i] ? "tokens" : "logits", i);
            return false;
        }
    }
    for (uint32_t layer = 0; layer < a->layers; layer++) {
        for (uint32_t page = 0; page < a->pages_count; page++) {
            if (a->pages[layer][page] == b->pages[layer][page])
                continue;
            snprintf(words, WORDS_BYTES, "%s: page %u of layer %u differs", name, page, layer);
            return false;
        }
    }
    return true;
}

/* The check: every way, or those of `real`, against the first. False with the way and the
 * difference. */
static bool request_is_exact(const struct flavour *flavour, char words[WORDS_BYTES])
{
    static struct trace first, other;
    request_run(flavour, &ways[0], NULL, &first);
    const bool all = strcmp(flavour->arch, "real") != 0 || getenv("BATON_TEST_LONG") != NULL;
    for (size_t i = 1; i < ARRAY_COUNT(ways); i++) {
        if (!all && !ways[i].real)
            continue;
        request_run(flavour, &ways[i], &first, &other);
        if (!traces_equal(&first, &other, ways[i].name, words))
            return false;
    }
    return true;
}

ParameterizedTestParameters(net_request, a_request_has_the_same_bits_in_every_way)
{
    static struct flavour flavours[] = {
        {"llama", "f32", KV_F32, ACTIVATION_F32},
        {"llama", "q4_0", KV_BF16, ACTIVATION_NATIVE},
        {"llama", "q4_1", KV_BF16, ACTIVATION_NATIVE},
        {"qwen2", "q8_0", KV_BF16, ACTIVATION_NATIVE},
        {"qwen2", "bf16", KV_BF16, ACTIVATION_NATIVE},
        {"qwen2", "q8_0", KV_F32, ACTIVATION_F32},
        {"llama", "q8_0", KV_I8, ACTIVATION_NATIVE},
        {"llama", "q4_1", KV_BF16, ACTIVATION_INT8_128},
        {"qwen2", "q8_0", KV_BF16, ACTIVATION_INT8_ROW},
    };
    return cr_make_param_array(struct flavour, flavours, ARRAY_COUNT(flavours));
}

ParameterizedTest(struct flavour *flavour, net_request, a_request_has_the_same_bits_in_every_way)
{
    char words[WORDS_BYTES] = "";
    cr_assert(request_is_exact(flavour, words), "%s %s: %s", flavour->arch, flavour->type, words);
}

/* Windows, experts, norms of heads, learned positions: every step that not all models have. */
ParameterizedTestParameters(net_request, every_architecture_has_the_same_bits_in_every_way)
{
    static struct flavour flavours[] = {
        {"mistral-window", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"llama-mha-yarn", "folder", KV_F32, ACTIVATION_F32},
        {"qwen2-gqa7", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"qwen3", "folder", KV_I8, ACTIVATION_NATIVE},
        {"gemma3", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"gpt2", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"mixtral", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"qwen2-moe", "folder", KV_BF16, ACTIVATION_NATIVE},
        {"qwen3-moe", "folder", KV_F32, ACTIVATION_F32},
        {"qwen3-moe-only", "variant", KV_BF16, ACTIVATION_NATIVE},
        {"llama-biases", "variant", KV_BF16, ACTIVATION_NATIVE},
        {"gemma2", "variant", KV_BF16, ACTIVATION_NATIVE},
    };
    return cr_make_param_array(struct flavour, flavours, ARRAY_COUNT(flavours));
}

ParameterizedTest(struct flavour *flavour, net_request,
                  every_architecture_has_the_same_bits_in_every_way)
{
    char words[WORDS_BYTES] = "";
    char path[512];
    snprintf(path, sizeof path, "%s/golden/tiny/%s/config.json", shared_folder(), flavour->arch);
    if (strcmp(flavour->type, "folder") == 0 && access(path, R_OK) != 0)
        cr_skip_test("no reference data in %s", path);
    cr_assert(request_is_exact(flavour, words), "%s: %s", flavour->arch, words);
}

Test(net_request, the_real_model_too)
{
    static const struct flavour real = {"real", "", KV_BF16, ACTIVATION_NATIVE};
    char words[WORDS_BYTES] = "";
    if (real_model_path() == NULL)
        cr_skip_test("the real model is not on this machine");
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the real model takes too long with sanitizers, the tiny ones have it all");
#endif
    cr_assert(request_is_exact(&real, words), "%s", words);
}

/* P on one instruction set, D on another. */
Test(net_request, a_request_has_the_same_bits_on_every_instruction_set)
{
    static const struct flavour flavours[] = {{"llama", "q4_1", KV_BF16, ACTIVATION_NATIVE},
                                              {"qwen2", "bf16", KV_BF16, ACTIVATION_NATIVE},
                                              {"llama", "q8_0", KV_BF16, ACTIVATION_INT8_128}};
    static struct trace first, other;
    char words[WORDS_BYTES];
    for (size_t f = 0; f < ARRAY_COUNT(flavours); f++) {
        request_run(&flavours[f], &ways[0], NULL, &first);
        for (enum kernel_isa isa = KERNEL_ISA_ref; isa < kernel_isa_best(); isa++) {
            struct way way = {
                .name = "another instruction set", .chunk = 100, .threads = 2, .every_logit = true};
            if (!kernel_isa_available(isa))
                continue;
            way.isa = kernel_isa_name(isa);
            request_run(&flavours[f], &way, &first, &other);
            cr_assert(traces_equal(&first, &other, way.isa, words), "%s %s", flavours[f].type,
                      words);
        }
    }
}

static const struct flavour plain = {"llama", "f32", KV_F32, ACTIVATION_F32};

/* The same check, with a product that breaks the promise and with one that keeps it. */
Test(net_request, the_check_catches_a_sum_whose_order_depends_on_rows)
{
    char words[WORDS_BYTES] = "";
    replacement = SAME_ORDER;
    cr_assert(request_is_exact(&plain, words), "%s", words);
    replacement = ORDER_BY_ROWS;
    cr_assert_not(request_is_exact(&plain, words));
    cr_assert_not_null(strstr(words, "differ"), "%s", words);
}
