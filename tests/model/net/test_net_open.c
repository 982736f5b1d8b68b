/* model_open: what a file or an option may be, and the sentence when it may not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/model.h"
#include "tests/model/net/tiny_model.h"

static void expect_sentence(const struct error *error, enum status status, enum status expected,
                            const char *words)
{
    cr_assert_eq(status, expected, "%s instead of %s for '%s' (%s)", status_name(status),
                 status_name(expected), words, error->text);
    cr_assert_not_null(strstr(error->text, words), "'%s' says nothing of '%s'", error->text, words);
}

static void expect_refused(struct buffer *bytes, enum status expected, const char *words)
{
    struct error error;
    const enum status status = tiny_model_try(bytes, &error);
    expect_sentence(&error, status, expected, words);
    buffer_free(bytes);
}

Test(net_open, every_architecture_and_type_opens)
{
    static const char *const archs[] = {"llama", "qwen2"};
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"};
    for (size_t a = 0; a < 2; a++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (size_t untied = 0; untied < 2; untied++) {
                struct error error;
                struct buffer bytes =
                    tiny_model_bytes(archs[a], types[t], untied ? "--untied" : NULL);
                cr_assert_eq(tiny_model_try(&bytes, &error), STATUS_OK, "%s %s: %s", archs[a],
                             types[t], error.text);
                buffer_free(&bytes);
            }
        }
    }
}

/* One hyperparameter of a llama file. */
struct hostile {
    const char *key;
    uint32_t value;
    enum status status;
    const char *words;
};

Test(net_open, hostile_hyperparameters_are_refused_by_name)
{
    static const struct hostile cases[] = {
        {"llama.block_count", 0, STATUS_INVALID, "llama.block_count is 0"},
        {"llama.block_count", UINT32_MAX, STATUS_INVALID, "from 1 to 1024"},
        {"llama.block_count", 4, STATUS_NOT_FOUND, "blk.3.attn_norm.weight"},
        {"llama.block_count", 2, STATUS_UNSUPPORTED, "in a llama model of 2 layers"},
        {"llama.embedding_length", 0, STATUS_INVALID, "llama.embedding_length is 0"},
        {"llama.embedding_length", 64, STATUS_INVALID, "at most the head size 16"},
        {"llama.embedding_length", UINT32_MAX, STATUS_INVALID, "from 1 to 1048576"},
        {"llama.feed_forward_length", 0, STATUS_INVALID, "llama.feed_forward_length is 0"},
        {"llama.feed_forward_length", 161, STATUS_INVALID, "it must be [128, 161]"},
        {"llama.attention.head_count", 0, STATUS_INVALID, "head_count is 0"},
        {"llama.attention.head_count", 3, STATUS_INVALID, "3 attention heads cannot be shared out"},
        {"llama.attention.head_count", 2000, STATUS_INVALID, "from 1 to 1024"},
        {"llama.attention.head_count_kv", 0, STATUS_INVALID, "head_count_kv is 0"},
        {"llama.attention.head_count_kv", 3, STATUS_INVALID, "among 3 kv heads"},
        {"llama.attention.head_count_kv", 8, STATUS_INVALID, "head_count_kv is 8"},
        {"llama.context_length", 0, STATUS_INVALID, "llama.context_length is 0"},
        {"llama.context_length", UINT32_MAX, STATUS_INVALID, "from 1 to 67108864"},
        {"llama.context_length", 1 << 26, STATUS_NO_MEMORY, "67108864 tokens) do not fit"},
        {"llama.rope.dimension_count", 7, STATUS_INVALID, "dimension_count is 7"},
        {"llama.rope.dimension_count", 34, STATUS_INVALID, "at most the head size 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_set_u32(&bytes, cases[i].key, cases[i].value);
        expect_refused(&bytes, cases[i].status, cases[i].words);
    }
}

Test(net_open, hostile_numbers_are_refused_by_name)
{
    static const float wrong[] = {0.0f, -1.0f, 1e30f, __builtin_nanf(""), __builtin_inff()};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_set_f32(&bytes, "llama.rope.freq_base", wrong[i]);
        expect_refused(&bytes, STATUS_INVALID, "llama.rope.freq_base");
        bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_set_f32(&bytes, "llama.attention.layer_norm_rms_epsilon", wrong[i]);
        expect_refused(&bytes, STATUS_INVALID, "layer_norm_rms_epsilon");
    }
}

Test(net_open, a_missing_key_is_named)
{
    static const char *const keys[] = {
        "general.architecture",
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.context_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char other[64];
        struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
        snprintf(other, sizeof other, "%s", keys[i]);
        other[strlen(other) - 1] = '#';
        tiny_model_rename(&bytes, keys[i], other);
        expect_refused(&bytes, STATUS_NOT_FOUND, keys[i]);
    }
}

/* Keys that ask for arithmetic that is not computed. */
Test(net_open, unsupported_keys_are_refused_and_neutral_ones_are_not)
{
    static const struct hostile cases[] = {
        {"llama.expert_count", 8, STATUS_NOT_FOUND, "llama.expert_used_count"},
        {"llama.expert_gating_func", 2, STATUS_UNSUPPORTED, "llama.expert_gating_func is 2"},
        {"llama.attention.sliding_window", 512, STATUS_OK, NULL},
        {"llama.attention.key_length", 31, STATUS_INVALID, "head size is 31"},
        {"llama.attention.key_length", 64, STATUS_UNSUPPORTED, NULL},
        {"llama.attention.value_length", 16, STATUS_UNSUPPORTED, "values of size 16"},
        {"llama.expert_count", 0, STATUS_OK, NULL},
        {"llama.attention.sliding_window", 0, STATUS_OK, NULL},
        {"llama.attention.sliding_window", 2048, STATUS_OK, NULL},
        {"llama.attention.key_length", 32, STATUS_OK, NULL},
        {"llama.attention.causal", 1, STATUS_OK, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error;
        struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_add_u32(&bytes, cases[i].key, cases[i].value);
        const enum status status = tiny_model_try(&bytes, &error);
        if (cases[i].status == STATUS_OK)
            cr_assert_eq(status, STATUS_OK, "%s: %s", cases[i].key, error.text);
        else if (cases[i].words == NULL)
            cr_assert_neq(status, STATUS_OK);
        else
            expect_sentence(&error, status, cases[i].status, cases[i].words);
        buffer_free(&bytes);
    }
    static const char *const scalings[] = {"llama3", "longrope", "\n", ""};
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_add_text(&bytes, "llama.rope.scaling.type", scalings[i]);
        expect_refused(&bytes, STATUS_UNSUPPORTED, "llama.rope.scaling.type is '");
    }
    struct error error;
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    tiny_model_add_text(&bytes, "llama.rope.scaling.type", "none");
    cr_assert_eq(tiny_model_try(&bytes, &error), STATUS_OK, "%s", error.text);
    buffer_free(&bytes);
    static const char *const known[] = {"linear", "yarn"};
    for (size_t i = 0; i < 2; i++) {
        bytes = tiny_model_bytes("llama", "f32", NULL);
        tiny_model_add_text(&bytes, "llama.rope.scaling.type", known[i]);
        cr_assert_eq(tiny_model_try(&bytes, &error), STATUS_OK, "%s", error.text);
        buffer_free(&bytes);
    }
}

Test(net_open, an_unknown_architecture_lists_those_that_are_known)
{
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    char *value = memmem(bytes.data, bytes.size, "general.architecture", 20);
    memcpy(value + 20 + 4 + 8, "mamba", 5);
    expect_refused(
        &bytes, STATUS_UNSUPPORTED,
        ": architecture 'mamba' is not one Baton knows (llama, mistral, mixtral, qwen2, qwen2moe, "
        "qwen3, qwen3moe, gemma2, gemma3, gpt2)");
}

Test(net_open, a_tensor_is_missing_unknown_or_of_another_shape)
{
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    tiny_model_rename(&bytes, "blk.1.attn_q.weight", "blk.1.attn_z.weight");
    expect_refused(&bytes, STATUS_UNSUPPORTED, "'blk.1.attn_z.weight' has no place");

    bytes = tiny_model_bytes("qwen2", "f32", NULL);
    tiny_model_rename(&bytes, "blk.0.attn_q.bias", "blk.0.attn_z.bias");
    expect_refused(&bytes, STATUS_UNSUPPORTED, "'blk.0.attn_z.bias' has no place");

    bytes = tiny_model_bytes("llama", "f32", NULL);
    tiny_model_rename(&bytes, "blk.2.ffn_gate.weight", "blk.9.ffn_gate.weight");
    expect_refused(&bytes, STATUS_UNSUPPORTED, "'blk.9.ffn_gate.weight' has no place");

    bytes = tiny_model_bytes("llama", "f32", NULL);
    tiny_model_rename(&bytes, "token_embd.weight", "token_embd.wEight");
    expect_refused(&bytes, STATUS_NOT_FOUND, "no tensor 'token_embd.weight'");

    /* The gate and down matrices change names: their shapes are each other's transposes. */
    bytes = tiny_model_bytes("llama", "f32", NULL);
    tiny_model_rename(&bytes, "blk.0.ffn_gate.weight", "blk.0.ffn_xxxx.weight");
    tiny_model_rename(&bytes, "blk.0.ffn_down.weight", "blk.0.ffn_gate.weight");
    tiny_model_rename(&bytes, "blk.0.ffn_xxxx.weight", "blk.0.ffn_down.weight");
    expect_refused(&bytes, STATUS_INVALID,
                   "'blk.0.ffn_gate.weight' has shape [160, 128, 1, 1], it must be [128, 160]");
}

/* qwen2 without its biases would compute something else, llama takes them where they are. */
Test(net_open, required_biases_are_missed)
{
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    char *key = memmem(bytes.data, bytes.size, "general.architecture", 20);
    memcpy(key + 20 + 4 + 8, "qwen2", 5);
    static const char *const keys[] = {
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.context_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.rope.freq_base",
        "llama.rope.dimension_count",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char name[64];
        snprintf(name, sizeof name, "qwen2%s", keys[i] + 5);
        tiny_model_rename(&bytes, keys[i], name);
    }
    expect_refused(&bytes, STATUS_NOT_FOUND, "no tensor 'blk.0.attn_q.bias' of shape [128]");
}

Test(net_open, a_truncated_file_is_refused_at_every_length)
{
    struct error error;
    struct buffer whole = tiny_model_bytes("llama", "q4_0", NULL);
    const size_t step = whole.size / 97;
    for (size_t size = 0; size < whole.size; size += step) {
        struct buffer part = {.data = whole.data, .size = size};
        cr_assert_neq(tiny_model_try(&part, &error), STATUS_OK, "%zu of %zu bytes open", size,
                      whole.size);
    }
    buffer_free(&whole);
}

/* Flipped bytes in the metadata give an error or a model, never a crash. */
Test(net_open, damaged_metadata_never_crashes, .timeout = 120)
{
    enum { ROUNDS = 300 };
    struct buffer whole = tiny_model_bytes("qwen2", "q4_0", NULL);
    struct buffer damaged = {0};
    struct random random;
    random_init(&random, 11);
    const size_t header = whole.size / 8;
    uint32_t refused = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct error error;
        buffer_clear(&damaged);
        buffer_add(&damaged, whole.data, whole.size);
        for (uint64_t flips = 1 + random_below(&random, 3); flips > 0; flips--)
            damaged.data[random_below(&random, header)] ^= (char)(1 << random_below(&random, 8));
        refused += tiny_model_try(&damaged, &error) != STATUS_OK;
    }
    cr_assert(refused > 0);
    buffer_free(&damaged);
    buffer_free(&whole);
}

static enum status open_with(const struct model_options *options, struct error *error)
{
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    struct model_options with_path = *options;
    struct model *model = NULL;
    *error = (struct error){0};
    with_path.path = tiny_model_write(&bytes);
    const enum status status = model_open(&with_path, &model, error);
    model_close(model);
    tiny_model_unlink();
    buffer_free(&bytes);
    return status;
}

Test(net_open, options_over_a_limit_are_refused)
{
    struct error error;
    enum status status = open_with(&(struct model_options){.context_tokens = 2049}, &error);
    expect_sentence(&error, status, STATUS_LIMIT, "2049 tokens is more than the model's 2048");
    status = open_with(&(struct model_options){.page_tokens = 24}, &error);
    expect_sentence(&error, status, STATUS_INVALID, "page of 24 tokens");
    status = open_with(&(struct model_options){.kv_tokens = 1984}, &error);
    expect_sentence(&error, status, STATUS_LIMIT, "(1984 tokens)");
    status = open_with(&(struct model_options){.kv_bytes = 1 << 20}, &error);
    expect_sentence(&error, status, STATUS_LIMIT, "one context of 2048 tokens takes 3.0 MiB");
    status = open_with(&(struct model_options){.kv_bytes = UINT64_MAX}, &error);
    expect_sentence(&error, status, STATUS_NO_MEMORY, "do not fit the");
    status = open_with(&(struct model_options){.kv_tokens = UINT64_MAX}, &error);
    expect_sentence(&error, status, STATUS_NO_MEMORY, "do not fit the");
    status = open_with(&(struct model_options){.isa = "mmx"}, &error);
    expect_sentence(&error, status, STATUS_UNSUPPORTED, "mmx");
    status = open_with(&(struct model_options){.max_rows = 1, .context_tokens = 16}, &error);
    cr_assert_eq(status, STATUS_OK, "%s", error.text);
}

Test(net_open, a_file_that_is_not_there_is_named)
{
    struct error error = {0};
    struct model *model = NULL;
    const struct model_options options = {.path = "/nowhere/model.gguf"};
    const enum status status = model_open(&options, &model, &error);
    expect_sentence(&error, status, STATUS_NOT_FOUND, "/nowhere/model.gguf");
    cr_assert_null(model);
}

/* Rows of the head beyond the tokenizer's ids are counted apart. */
Test(net_open, padding_of_the_vocabulary_is_known)
{
    struct error error = {0};
    struct model *model = NULL;
    struct buffer bytes = tiny_model_bytes("llama", "f32", "--vocab=640");
    const struct model_options options = {.path = tiny_model_write(&bytes)};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(model_info(model)->vocab_count, 640);
    cr_assert(model_info(model)->token_count <= 640);
    model_close(model);
    tiny_model_unlink();
    buffer_free(&bytes);
}

struct progress_log {
    uint64_t done, total, calls;
};

static void on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress_log *log = arg;
    cr_assert(done_bytes > log->done && done_bytes <= total_bytes);
    *log = (struct progress_log){done_bytes, total_bytes, log->calls + 1};
}

Test(net_open, info_identity_and_progress_are_told)
{
    struct progress_log log = {0};
    const struct model_options options = {
        .kv_dtype = KV_BF16, .kv_tokens = 4096, .progress = on_progress, .progress_arg = &log};
    struct model *one = tiny_model_open("llama", "q8_0", options);
    cr_assert_eq(log.done, log.total);
    log = (struct progress_log){0};
    struct model *two = tiny_model_open("llama", "q8_0", options);
    struct model *other = tiny_model_open("llama", "q4_0", (struct model_options){0});
    const struct model_info *info = model_info(one);
    cr_assert(log.calls > 3);
    cr_assert_eq(info->layers, 3);
    cr_assert_eq(info->heads, 4);
    cr_assert_eq(info->kv_heads, 2);
    cr_assert_eq(info->head_dim, 32);
    cr_assert_eq(info->context_tokens, 2048);
    cr_assert_eq(info->kv_bytes, 4096 * 2 * 3 * 2 * 32 * 2);
    cr_assert_str_eq(info->architecture, "llama");
    cr_assert_eq(page_pool_slot_count(model_pages(one)), 64);
    cr_assert_eq(page_pool_free_count(model_pages(one)), 64);

    const struct model_identity *ours = model_identity(one), *same = model_identity(two);
    cr_assert(digest128_equal(ours->weights, same->weights));
    cr_assert(digest128_equal(ours->tokenizer, same->tokenizer));
    cr_assert_eq(ours->profile_id, same->profile_id);
    cr_assert_eq(ours->probe_digest, same->probe_digest);
    cr_assert_eq(memcmp(&ours->layout, &same->layout, sizeof ours->layout), 0);
    const struct model_identity *theirs = model_identity(other);
    cr_assert_not(digest128_equal(ours->weights, theirs->weights));
    cr_assert_neq(ours->probe_digest, theirs->probe_digest);
    model_close(one);
    model_close(two);
    model_close(other);
}
