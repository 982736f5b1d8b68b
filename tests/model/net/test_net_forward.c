/* What model_forward promises: the bits of a row do not depend on chunks, batches, page order or
 * what else lies in the pool; limits are refused before anything is written. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "kernels/kernels.h"
#include "model/format/gguf.h"
#include "model/model.h"
#include "model/sampler.h"
#include "tests/model/net/tiny_model.h"

enum { TOKENS = 150, ROWS = 160, SEQUENCES = 8, CONTEXT = 256, PAGES_MAX = 64 };

struct flavour {
    char arch[8], type[8];
    enum kv_dtype kv_dtype;
    enum activation_mode activations;
};

static struct model_options options_of(const struct flavour *flavour)
{
    return (struct model_options){
        .activations = flavour->activations,
        .kv_dtype = flavour->kv_dtype,
        .threads = 2,
        .context_tokens = CONTEXT,
        .kv_tokens = 6 * CONTEXT,
        .max_rows = ROWS,
        .max_sequences = SEQUENCES,
        .max_logit_rows = ROWS,
    };
}

static void random_tokens(uint64_t seed, const struct model *model, int32_t *tokens, uint32_t count)
{
    struct random random;
    random_init(&random, seed);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(&random, model_info(model)->vocab_count);
}

static const float *forward(struct model *model, const struct forward_sequence *sequences,
                            uint32_t count, const struct forward_hooks *hooks)
{
    const float *logits = NULL;
    struct error error = {0};
    cr_assert_eq(model_forward(model, sequences, count, hooks, &logits, &error), STATUS_OK, "%s",
                 error.text);
    return logits;
}

/* Logits of all rows, computed in one call; the caller frees them. */
static float *whole_logits(struct model *model, const int32_t *tokens, uint32_t count)
{
    uint32_t slots[PAGES_MAX];
    const size_t bytes = (size_t)count * model_info(model)->vocab_count * sizeof(float);
    float *copy = malloc(bytes);
    tiny_model_take(model, count, slots);
    const struct forward_sequence sequence = {
        .tokens = tokens, .count = count, .slots = slots, .logit_rows = count};
    memcpy(copy, forward(model, &sequence, 1, NULL), bytes);
    tiny_model_give(model, count, slots);
    return copy;
}

/* The same rows through the given block table in pieces; compares every row. */
static void expect_same_in_pieces(struct model *model, const int32_t *tokens, uint32_t count,
                                  const uint32_t *slots, uint32_t piece, const float *expected)
{
    const size_t vocab = model_info(model)->vocab_count;
    for (uint32_t done = 0; done < count; done += piece) {
        const uint32_t rows = count - done < piece ? count - done : piece;
        const struct forward_sequence sequence = {.tokens = tokens + done,
                                                  .count = rows,
                                                  .position = done,
                                                  .slots = slots,
                                                  .logit_rows = rows};
        const float *logits = forward(model, &sequence, 1, NULL);
        cr_assert(memcmp(logits, expected + done * vocab, rows * vocab * sizeof(float)) == 0,
                  "pieces of %u: rows %u to %u differ", piece, done, done + rows - 1);
    }
}

static void chunk_case(struct model *model)
{
    static const uint32_t pieces[] = {1, 7, 16, 63, 64, 65, TOKENS};
    int32_t tokens[TOKENS];
    uint32_t slots[PAGES_MAX];
    random_tokens(1, model, tokens, TOKENS);
    float *expected = whole_logits(model, tokens, TOKENS);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        tiny_model_take(model, TOKENS, slots);
        expect_same_in_pieces(model, tokens, TOKENS, slots, pieces[i], expected);
        tiny_model_give(model, TOKENS, slots);
    }
    free(expected);
}

/* Five sequences of other lengths and positions share each call with the one that is compared. */
static void batch_case(struct model *model)
{
    static const uint32_t lengths[] = {1, 64, 30, 5, 17};
    enum { OTHERS = 5, STEPS = 12 };
    int32_t tokens[OTHERS][TOKENS];
    uint32_t slots[OTHERS][PAGES_MAX];
    float *expected[OTHERS];
    const size_t vocab = model_info(model)->vocab_count;
    for (uint32_t s = 0; s < OTHERS; s++) {
        random_tokens(10 + s, model, tokens[s], TOKENS);
        expected[s] = whole_logits(model, tokens[s], lengths[s] + STEPS);
        tiny_model_take(model, lengths[s] + STEPS, slots[s]);
    }
    /* The prompts in one call, then steps in which each brings one row. */
    for (uint32_t step = 0; step <= STEPS; step++) {
        struct forward_sequence sequences[OTHERS];
        for (uint32_t s = 0; s < OTHERS; s++) {
            const uint32_t done = step == 0 ? 0 : lengths[s] + step - 1;
            sequences[s] = (struct forward_sequence){.tokens = tokens[s] + done,
                                                     .count = step == 0 ? lengths[s] : 1,
                                                     .position = done,
                                                     .slots = slots[s],
                                                     .logit_rows = 1};
        }
        const float *logits = forward(model, sequences, OTHERS, NULL);
        for (uint32_t s = 0; s < OTHERS; s++)
            cr_assert(memcmp(logits + s * vocab, expected[s] + (lengths[s] + step - 1) * vocab,
                             vocab * sizeof(float)) == 0,
                      "step %u: sequence %u differs in the batch", step, s);
    }
    for (uint32_t s = 0; s < OTHERS; s++) {
        tiny_model_give(model, lengths[s] + STEPS, slots[s]);
        free(expected[s]);
    }
}

/* Block tables in any order over a pool in which every other page is NaN. */
static void scatter_case(struct model *model)
{
    int32_t tokens[TOKENS];
    uint32_t slots[PAGES_MAX], all[PAGES_MAX], scattered[PAGES_MAX];
    struct page_pool *pages = model_pages(model);
    const uint32_t slot_count = page_pool_slot_count(pages);
    const uint32_t needed = (TOKENS + 63) / 64;
    cr_assert(slot_count <= PAGES_MAX && slot_count > 2 * needed);
    random_tokens(2, model, tokens, TOKENS);
    float *expected = whole_logits(model, tokens, TOKENS);
    page_pool_poison(pages, true);
    tiny_model_take(model, slot_count * 64, all);
    tiny_model_give(model, slot_count * 64, all);
    tiny_model_take(model, slot_count * 64, slots);
    for (uint32_t i = 0; i < needed; i++)
        scattered[i] = slots[slot_count - 1 - 2 * i];
    expect_same_in_pieces(model, tokens, TOKENS, scattered, 50, expected);
    tiny_model_give(model, slot_count * 64, slots);
    free(expected);
}

static void check_flavour(const struct flavour *flavour)
{
    struct model *model = tiny_model_open(flavour->arch, flavour->type, options_of(flavour));
    chunk_case(model);
    batch_case(model);
    scatter_case(model);
    model_close(model);
}

ParameterizedTestParameters(net_forward, bits_do_not_depend_on_company)
{
    static struct flavour flavours[] = {
        {"llama", "f32", KV_F32, ACTIVATION_F32},     {"llama", "q4_0", KV_BF16, ACTIVATION_NATIVE},
        {"llama", "q4_1", KV_F32, ACTIVATION_NATIVE}, {"llama", "q8_0", KV_BF16, ACTIVATION_F32},
        {"qwen2", "f32", KV_BF16, ACTIVATION_NATIVE}, {"qwen2", "bf16", KV_BF16, ACTIVATION_NATIVE},
        {"qwen2", "q8_0", KV_F32, ACTIVATION_NATIVE}, {"llama", "q8_0", KV_I8, ACTIVATION_NATIVE},
    };
    return cr_make_param_array(struct flavour, flavours, sizeof flavours / sizeof *flavours);
}

ParameterizedTest(struct flavour *flavour, net_forward, bits_do_not_depend_on_company)
{
    check_flavour(flavour);
}

static struct model *plain_model(void)
{
    return tiny_model_open(
        "llama", "f32",
        options_of(&(struct flavour){.kv_dtype = KV_F32, .activations = ACTIVATION_F32}));
}

/* The likeliest token alone is the one that greedy sampling takes from whole rows of logits. */
Test(net_forward, best_tokens_are_those_of_greedy_sampling)
{
    int32_t tokens[TOKENS];
    uint32_t slots[PAGES_MAX];
    struct model *model =
        tiny_model_open("qwen2", "q8_0", options_of(&(struct flavour){.kv_dtype = KV_BF16}));
    const struct sampling greedy = {.top_p = 1.0f};
    struct sampler *sampler = sampler_create(model_info(model)->token_count);
    const size_t vocab = model_info(model)->vocab_count;
    random_tokens(9, model, tokens, TOKENS);
    float *logits = whole_logits(model, tokens, TOKENS);
    cr_assert(sampling_needs_best_only(&greedy, 0));
    tiny_model_take(model, TOKENS, slots);
    for (uint32_t wanted = 0; wanted <= TOKENS; wanted += wanted < 3 ? 1 : 49) {
        const struct forward_sequence sequence = {
            .tokens = tokens, .count = TOKENS, .slots = slots, .logit_rows = wanted};
        const struct forward_best *best;
        struct error error = {0};
        cr_assert_eq(model_forward_best(model, &sequence, 1, NULL, &best, &error), STATUS_OK, "%s",
                     error.text);
        cr_assert_eq(best == NULL, wanted == 0);
        for (uint32_t row = 0; row < wanted; row++) {
            struct sampled expected, actual;
            const float *whole = logits + (TOKENS - wanted + row) * vocab;
            const struct sampler_at at = {.position = row};
            cr_assert_eq(sampler_pick(sampler, &greedy, whole, &at, &expected), STATUS_OK);
            cr_assert_eq(sampler_pick_best(best[row].id, best[row].logit, &actual), STATUS_OK);
            cr_assert_eq(actual.id, expected.id, "row %u of %u", row, wanted);
            cr_assert_eq(best[row].logit, whole[expected.id]);
        }
    }
    tiny_model_give(model, TOKENS, slots);
    free(logits);
    sampler_destroy(sampler);
    model_close(model);
}

Test(net_forward, any_number_of_last_rows_has_logits)
{
    int32_t tokens[TOKENS];
    uint32_t slots[PAGES_MAX];
    struct model *model = plain_model();
    const size_t vocab = model_info(model)->vocab_count;
    random_tokens(3, model, tokens, TOKENS);
    float *expected = whole_logits(model, tokens, 40);
    tiny_model_take(model, 40, slots);
    for (uint32_t wanted = 0; wanted <= 40; wanted++) {
        const struct forward_sequence sequence = {
            .tokens = tokens, .count = 40, .slots = slots, .logit_rows = wanted};
        const float *logits = forward(model, &sequence, 1, NULL);
        cr_assert_eq(logits == NULL, wanted == 0);
        cr_assert(wanted == 0 || memcmp(logits, expected + (40 - wanted) * vocab,
                                        wanted * vocab * sizeof(float)) == 0,
                  "the last %u rows differ", wanted);
    }
    tiny_model_give(model, 40, slots);
    free(expected);
    model_close(model);
}

/* Without logits the last layer stops early, its pages must be whole all the same. */
Test(net_forward, a_prompt_without_logits_leaves_the_same_pages)
{
    int32_t tokens[TOKENS];
    uint32_t slots[PAGES_MAX];
    struct model *model = plain_model();
    random_tokens(4, model, tokens, 80);
    float *expected = whole_logits(model, tokens, 80);
    const size_t vocab = model_info(model)->vocab_count;
    page_pool_poison(model_pages(model), true);
    tiny_model_take(model, 80, slots);
    tiny_model_give(model, 80, slots);
    tiny_model_take(model, 80, slots);
    struct forward_sequence sequence = {.tokens = tokens, .count = 79, .slots = slots};
    cr_assert_null(forward(model, &sequence, 1, NULL));
    sequence = (struct forward_sequence){
        .tokens = tokens + 79, .count = 1, .position = 79, .slots = slots, .logit_rows = 1};
    cr_assert(memcmp(forward(model, &sequence, 1, NULL), expected + 79 * vocab,
                     vocab * sizeof(float)) == 0);
    tiny_model_give(model, 80, slots);
    free(expected);
    model_close(model);
}

/* What a hook saw. */
struct hook_log {
    struct model *model;
    uint32_t layers, slot;
    bool all_there;
};

static bool holds_nan(const struct hook_log *log, uint32_t layer)
{
    const struct page_pool *pages = model_pages(log->model);
    const float *strip = page_pool_strip(pages, layer, log->slot);
    const size_t count = kv_layout_strip_bytes(page_pool_layout(pages)) / sizeof *strip;
    for (size_t i = 0; i < count; i++) {
        if (isnan(strip[i]))
            return true;
    }
    return false;
}

/* The page is full (64 tokens), so no NaN may be left in this layer, and every value of the next
 * layer must still be one. */
static void on_layer_done(void *arg, uint32_t layer)
{
    struct hook_log *log = arg;
    const uint32_t layers = model_info(log->model)->layers;
    cr_assert_eq(layer, log->layers);
    log->layers++;
    log->all_there &= !holds_nan(log, layer);
    if (layer + 1 < layers)
        log->all_there &= holds_nan(log, layer + 1);
}

Test(net_forward, hooks_come_in_layer_order_when_the_pages_are_written)
{
    int32_t tokens[64];
    struct model *model = plain_model();
    struct hook_log log = {.model = model, .all_there = true};
    random_tokens(5, model, tokens, 64);
    page_pool_poison(model_pages(model), true);
    tiny_model_take(model, 64, &log.slot);
    tiny_model_give(model, 64, &log.slot);
    tiny_model_take(model, 64, &log.slot);
    const struct forward_sequence sequence = {.tokens = tokens, .count = 64, .slots = &log.slot};
    const struct forward_hooks hooks = {.layer_done = on_layer_done, .arg = &log};
    cr_assert_null(forward(model, &sequence, 1, &hooks));
    cr_assert_eq(log.layers, model_info(model)->layers);
    cr_assert(log.all_there);
    tiny_model_give(model, 64, &log.slot);
    model_close(model);
}

static void expect_refused(struct model *model, const struct forward_sequence *sequences,
                           uint32_t count, enum status expected, const char *words)
{
    const float *logits = NULL;
    struct error error = {0};
    const enum status status = model_forward(model, sequences, count, NULL, &logits, &error);
    cr_assert_eq(status, expected, "%s instead of %s (%s)", status_name(status),
                 status_name(expected), error.text);
    cr_assert_not_null(strstr(error.text, words), "'%s' says nothing of '%s'", error.text, words);
}

Test(net_forward, calls_over_a_limit_are_refused_and_write_nothing)
{
    int32_t tokens[CONTEXT + 1] = {0}, bad[2] = {1, -1};
    uint32_t slots[PAGES_MAX];
    struct model *model = plain_model();
    tiny_model_take(model, CONTEXT, slots);
    const struct forward_sequence good = {.tokens = tokens, .count = 1, .slots = slots};
    struct forward_sequence many[SEQUENCES + 1], s = good;
    for (uint32_t i = 0; i <= SEQUENCES; i++)
        many[i] = good;
    expect_refused(model, many, SEQUENCES + 1, STATUS_LIMIT, "9 sequences");
    expect_refused(model, many, 0, STATUS_LIMIT, "0 sequences");
    s.count = ROWS + 1;
    expect_refused(model, &s, 1, STATUS_LIMIT, "161 rows, the limit is 160");
    s = good, s.position = CONTEXT;
    expect_refused(model, &s, 1, STATUS_LIMIT, "257 tokens, the context is 256");
    s = good, s.position = UINT32_MAX;
    expect_refused(model, &s, 1, STATUS_LIMIT, "the context is 256");
    s = good, s.count = 0;
    expect_refused(model, &s, 1, STATUS_INVALID, "logits of 0 of its 0");
    s = good, s.logit_rows = 2;
    expect_refused(model, &s, 1, STATUS_INVALID, "logits of 2 of its 1");
    s = good, s.tokens = bad, s.count = 2;
    expect_refused(model, &s, 1, STATUS_INVALID, "token id -1");
    bad[1] = (int32_t)model_info(model)->vocab_count;
    expect_refused(model, &s, 1, STATUS_INVALID, "outside the vocabulary");
    const uint32_t kept = slots[1];
    slots[1] = page_pool_slot_count(model_pages(model));
    s = good, s.count = 65;
    expect_refused(model, &s, 1, STATUS_INVALID, "page slot");
    slots[1] = kept;
    forward(model, &good, 1, NULL);
    tiny_model_give(model, CONTEXT, slots);
    model_close(model);
}

/* The numerics profile: every instruction set gives the same bits. */
Test(net_forward, instruction_sets_agree)
{
    int32_t tokens[TOKENS];
    uint64_t probe[KV_DTYPE_COUNT] = {0};
    for (enum kv_dtype dtype = KV_F32; dtype < KV_DTYPE_COUNT; dtype++) {
        struct model_options options =
            options_of(&(struct flavour){.kv_dtype = dtype, .activations = ACTIVATION_NATIVE});
        float *expected = NULL;
        for (enum kernel_isa isa = KERNEL_ISA_ref; isa < KERNEL_ISA_COUNT; isa++) {
            if (!kernel_isa_available(isa))
                continue;
            options.isa = kernel_isa_name(isa);
            struct model *model = tiny_model_open("llama", "q4_1", options);
            random_tokens(6, model, tokens, TOKENS);
            float *logits = whole_logits(model, tokens, TOKENS);
            const size_t bytes = TOKENS * model_info(model)->vocab_count * sizeof(float);
            if (expected != NULL)
                cr_assert(memcmp(logits, expected, bytes) == 0, "%s differs from ref", options.isa);
            if (isa == KERNEL_ISA_ref)
                probe[dtype] = model_identity(model)->probe_digest;
            cr_assert_eq(model_identity(model)->probe_digest, probe[dtype]);
            free(expected);
            expected = logits;
            model_close(model);
        }
        free(expected);
    }
    cr_assert_neq(probe[KV_F32], probe[KV_BF16]);
    cr_assert_neq(probe[KV_I8], probe[KV_BF16]);
}

/* Rows of a head in the order (i, i + D/2) become rows in the order (2i, 2i + 1). */
static void permute_rows(char *data, uint32_t heads, uint32_t head_dim, size_t row_bytes)
{
    const size_t bytes = heads * head_dim * row_bytes;
    char *halves = malloc(bytes);
    memcpy(halves, data, bytes);
    for (uint32_t row = 0; row < heads * head_dim; row++) {
        const uint32_t head = row / head_dim, place = row % head_dim;
        const uint32_t from = head * head_dim + place % 2 * (head_dim / 2) + place / 2;
        memcpy(data + row * row_bytes, halves + from * row_bytes, row_bytes);
    }
    free(halves);
}

static void permute_tensor(struct buffer *bytes, const struct gguf *file, const char *name,
                           uint32_t heads, uint32_t head_dim)
{
    const struct tensor_view *tensor = gguf_tensor_find(file, name);
    cr_assert_not_null(tensor, "%s", name);
    char *data = memmem(bytes->data, bytes->size, tensor->data, tensor->bytes);
    cr_assert_not_null(data, "%s", name);
    permute_rows(data, heads, head_dim, tensor->bytes / (heads * head_dim));
}

/* A qwen2 file as a llama one: the names of its keys, and the pairing of queries and keys. */
static void turn_to_llama(struct buffer *bytes, const struct model_info *info)
{
    struct gguf *file;
    struct error error = {0};
    cr_assert_eq(gguf_open(tiny_model_write(bytes), &file, &error), STATUS_OK, "%s", error.text);
    for (uint32_t layer = 0; layer < info->layers; layer++) {
        static const char *const parts[] = {"attn_q.weight", "attn_q.bias", "attn_k.weight",
                                            "attn_k.bias"};
        for (uint32_t i = 0; i < 4; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", layer, parts[i]);
            permute_tensor(bytes, file, name, i < 2 ? info->heads : info->kv_heads, info->head_dim);
        }
    }
    gguf_close(file);
    tiny_model_unlink();
    char *at = memmem(bytes->data, bytes->size, "general.architecture", 20);
    memcpy(at + 20 + 4 + 8, "llama", 5);
    for (at = bytes->data;
         (at = memmem(at, (size_t)(bytes->data + bytes->size - at), "qwen2.", 6)) != NULL;)
        memcpy(at, "llama.", 6);
}

/* The real model shows that neighbours are right for llama; this shows that halves are the same
 * rotation for qwen2. The sums run in another order, so the bits differ a little. */
Test(net_forward, both_rope_pairings_turn_the_same_way)
{
    int32_t tokens[TOKENS];
    const struct model_options options =
        options_of(&(struct flavour){.kv_dtype = KV_F32, .activations = ACTIVATION_F32});
    struct model *halves = tiny_model_open("qwen2", "f32", options);
    struct buffer bytes = tiny_model_bytes("qwen2", "f32", NULL);
    turn_to_llama(&bytes, model_info(halves));
    struct model_options with_path = options;
    struct model *neighbours = NULL;
    struct error error = {0};
    with_path.path = tiny_model_write(&bytes);
    cr_assert_eq(model_open(&with_path, &neighbours, &error), STATUS_OK, "%s", error.text);
    cr_assert_str_eq(model_info(neighbours)->architecture, "llama");
    tiny_model_unlink();
    random_tokens(7, halves, tokens, TOKENS);
    float *expected = whole_logits(halves, tokens, TOKENS);
    float *logits = whole_logits(neighbours, tokens, TOKENS);
    for (size_t i = 0; i < (size_t)TOKENS * model_info(halves)->vocab_count; i++)
        cr_assert_float_eq(logits[i], expected[i], 1e-3, "logit %zu: %g and %g", i,
                           (double)logits[i], (double)expected[i]);
    free(expected);
    free(logits);
    buffer_free(&bytes);
    model_close(halves);
    model_close(neighbours);
}
