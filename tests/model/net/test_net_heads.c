/* Layers with fewer kv heads than others compute what they would with each head several times. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "model/format/gguf.h"
#include "model/format/gguf_writer.h"
#include "model/model.h"
#include "model/model_convert.h"
#include "tests/model/net/tiny_model.h"

enum {
    E = 32,
    D = 8,
    HEADS = 4,
    KV = 2,
    F = 64,
    V = 16,
    LAYERS = 2,
    TOKENS = 20,
    TENSORS_MAX = 32
};

struct tensor {
    char name[48];
    uint32_t rows, columns, copies; /* copies: rows come in heads, each so often */
};

static struct tensor tensors[TENSORS_MAX];
static uint32_t tensor_count;

static void add(const char *format, int layer, uint32_t rows, uint32_t columns, uint32_t copies)
{
    struct tensor *t = &tensors[tensor_count++];
    char text[32];
    snprintf(text, sizeof text, "%s", format);
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", text);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, text);
    t->rows = rows;
    t->columns = columns;
    t->copies = copies;
}

/* The last layer has one kv head: there once, or as often as the first layer has heads. */
static void list_tensors(bool once)
{
    tensor_count = 0;
    add("token_embd.weight", -1, V, E, 1);
    add("output_norm.weight", -1, 1, E, 1);
    for (int l = 0; l < LAYERS; l++) {
        const uint32_t heads = l == 0 ? KV : 1, copies = l == 0 || once ? 1 : KV;
        add("attn_norm.weight", l, 1, E, 1);
        add("attn_q.weight", l, HEADS * D, E, 1);
        add("attn_k.weight", l, heads * D, E, copies);
        add("attn_v.weight", l, heads * D, E, copies);
        add("attn_output.weight", l, E, HEADS * D, 1);
        add("ffn_norm.weight", l, 1, E, 1);
        add("ffn_gate.weight", l, F, E, 1);
        add("ffn_up.weight", l, F, E, 1);
        add("ffn_down.weight", l, E, F, 1);
    }
}

static void write_keys(struct gguf_writer *writer, bool once)
{
    const int32_t kv_heads[LAYERS] = {KV, once ? 1 : KV};
    gguf_writer_put_string(writer, "general.architecture", "llama", 5);
    gguf_writer_put_string(writer, "tokenizer.ggml.model", "no_vocab", 8);
    gguf_writer_put_u32(writer, "llama.block_count", LAYERS);
    gguf_writer_put_u32(writer, "llama.context_length", 64);
    gguf_writer_put_u32(writer, "llama.embedding_length", E);
    gguf_writer_put_u32(writer, "llama.feed_forward_length", F);
    gguf_writer_put_u32(writer, "llama.attention.head_count", HEADS);
    gguf_writer_put_i32s(writer, "llama.attention.head_count_kv", kv_heads, LAYERS);
    gguf_writer_put_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static void write_file(const char *path, bool once)
{
    struct gguf_writer *writer;
    struct random random;
    struct error error = {0};
    static float values[HEADS * D * F];
    list_tensors(once);
    random_init(&random, 8);
    cr_assert_eq(gguf_writer_open(path, &writer, &error), STATUS_OK, "%s", error.text);
    write_keys(writer, once);
    for (uint32_t i = 0; i < tensor_count; i++) {
        const uint64_t shape[2] = {tensors[i].columns, tensors[i].rows * tensors[i].copies};
        gguf_writer_add_tensor(writer, tensors[i].name, quant_type_by_name("F32"),
                               tensors[i].rows == 1 ? 1 : 2, shape);
    }
    for (uint32_t i = 0; i < tensor_count; i++) {
        const size_t count = (size_t)tensors[i].rows * tensors[i].columns;
        for (size_t k = 0; k < count; k++)
            values[k] = (float)random_normal(&random) * 0.3f;
        for (uint32_t copy = 0; copy < tensors[i].copies; copy++)
            cr_assert_eq(gguf_writer_add_data(writer, values, count * sizeof(float), &error),
                         STATUS_OK);
    }
    cr_assert_eq(gguf_writer_finish(writer, &error), STATUS_OK, "%s", error.text);
}

static void logits_of(const char *path, float out[V])
{
    struct model *model = NULL;
    struct error error = {0};
    const float *logits = NULL;
    int32_t ids[TOKENS];
    uint32_t slots[1];
    const struct model_options options = {.path = path};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(model_info(model)->kv_heads, KV);
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 5 % V;
    tiny_model_take(model, TOKENS, slots);
    const struct forward_sequence sequence = {
        .tokens = ids, .count = TOKENS, .slots = slots, .logit_rows = 1};
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    memcpy(out, logits, V * sizeof *out);
    tiny_model_give(model, TOKENS, slots);
    model_close(model);
}

/* The same model in another file. */
static void convert_file(const char *path, char *other, float out[V])
{
    struct error error = {0};
    bool text;
    const int fd = mkstemp(other);
    CHECK(fd >= 0);
    close(fd);
    const struct model_conversion conversion = {
        .in = path, .out = other, .type = quant_type_by_name("F32")};
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_OK, "%s", error.text);
    logits_of(other, out);
    unlink(other);
}

Test(net_heads, a_head_once_is_the_same_as_twice)
{
    char path[] = "/tmp/baton-heads-XXXXXX", converted[] = "/tmp/baton-heads-XXXXXX";
    float once[V], twice[V];
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    write_file(path, false);
    logits_of(path, twice);
    write_file(path, true);
    logits_of(path, once);
    cr_assert_eq(memcmp(once, twice, sizeof once), 0);
    cr_assert(once[0] != once[1]);
    convert_file(path, converted, twice);
    unlink(path);
    cr_assert_eq(memcmp(once, twice, sizeof once), 0);
}
