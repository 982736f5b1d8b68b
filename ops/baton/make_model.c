/* `baton make-model`: a model file of a known model's shapes with random weights, the food of most
 * tests and of measurements where the real weights do not matter.
 *
 * The spread of every matrix is chosen so that signals keep their size from layer to layer and
 * logits have a standard deviation of about 2, like a trained model's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/random.h"
#include "model/format/gguf.h"
#include "model/format/gguf_writer.h"
#include "ops/baton/commands.h"
#include "ops/baton/make_vocabulary.h"

enum { ARCH_LLAMA, ARCH_QWEN2 };

static const char *const arch_names[] = {[ARCH_LLAMA] = "llama", [ARCH_QWEN2] = "qwen2"};
static const char *const pre_names[] = {[ARCH_LLAMA] = "smollm", [ARCH_QWEN2] = "qwen2"};

struct shape {
    const char *name;
    uint32_t layers, embedding, feed_forward, heads, kv_heads, head_dim, context;
    float rope_base, epsilon;
};

/* In the order of the choices of --like. */
static const struct shape shapes[] = {
    {"135m", 30, 576, 1536, 9, 3, 64, 8192, 1e5f, 1e-5f},   // SmolLM2-135M
    {"0.5b", 24, 896, 4864, 14, 2, 64, 32768, 1e6f, 1e-6f}, // Qwen2.5-0.5B
    {"tiny", 3, 128, 160, 4, 2, 32, 2048, 1e4f, 1e-5f},
};

struct type_choice {
    const char *name;
    uint32_t file_type; /* general.file_type */
};

/* In the order of the choices of --type. */
static const struct type_choice types[] = {
    {"F32", 0}, {"F16", 1}, {"BF16", 32}, {"Q8_0", 7}, {"Q4_1", 3}, {"Q4_0", 2},
};

struct options {
    uint32_t arch, like, type;
    uint64_t seed;
    uint32_t context, layers, vocab;
    bool untied;
};

static const struct config_row option_rows[] = {
    {"arch", CONFIG_CHOICE, offsetof(struct options, arch), "llama", "llama|qwen2", "architecture",
     0, 0},
    {"like", CONFIG_CHOICE, offsetof(struct options, like), "tiny", "135m|0.5b|tiny",
     "shapes: of SmolLM2-135M, of Qwen2.5-0.5B, or about 1 MB in all", 0, 0},
    {"type", CONFIG_CHOICE, offsetof(struct options, type), "f32", "f32|f16|bf16|q8_0|q4_1|q4_0",
     "type of the matrices; norms and biases are f32", 0, 0},
    {"seed", CONFIG_U64, offsetof(struct options, seed), "1", "N",
     "the same seed gives the same file", 0, 0},
    {"context", CONFIG_U32, offsetof(struct options, context), "0", "TOKENS",
     "context length in the metadata, 0: the model's own", 0, 1 << 20},
    {"layers", CONFIG_U32, offsetof(struct options, layers), "0", "N",
     "so many layers, 0: the model's own", 0, 1024},
    {"vocab", CONFIG_U32, offsetof(struct options, vocab), "0", "ROWS",
     "pad the vocabulary to this many rows, 0: no padding", 0, 1 << 20},
    {"untied", CONFIG_FLAG, offsetof(struct options, untied), NULL, NULL,
     "a separate output matrix instead of the embedding", 0, 0},
};

static const struct config_command description = {
    .program = "baton make-model",
    .summary = "Writes a GGUF model with random weights and a small byte-level vocabulary.",
    .examples = "  baton make-model tiny.gguf\n"
                "  baton make-model --arch qwen2 --like 0.5b --type q8_0 half.gguf\n",
    .operands = "OUT",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

/* One tensor: value = mean + spread * normal. */
struct spec {
    char name[GGUF_NAME_BYTES_MAX];
    const struct quant_type *type;
    uint64_t width, rows; /* rows 0: a vector */
    float mean, spread;
};

struct plan {
    struct options options;
    struct shape shape;
    const char *arch, *path;
    const struct quant_type *matrix_type;
    struct spec *specs;
    size_t spec_count, spec_capacity;
};

static void spec_add(struct plan *plan, const char *name, uint64_t width, uint64_t rows, float mean,
                     float spread)
{
    CHECK(plan->spec_count < plan->spec_capacity);
    struct spec *spec = &plan->specs[plan->spec_count++];
    snprintf(spec->name, sizeof spec->name, "%s", name);
    spec->type = rows != 0 ? plan->matrix_type : quant_type_by_name("F32");
    spec->width = width;
    spec->rows = rows;
    spec->mean = mean;
    spec->spread = spread;
}

static void layer_add(struct plan *plan, uint32_t layer, const char *part, uint64_t width,
                      uint64_t rows, float mean, float spread)
{
    char name[GGUF_NAME_BYTES_MAX];
    snprintf(name, sizeof name, "blk.%u.%s", layer, part);
    spec_add(plan, name, width, rows, mean, spread);
}

/* A normed input has unit variance, so that spread s / sqrt(K) gives outputs of deviation s.
 * Queries and keys get 1.5 each: scores of deviation 2 let attention choose. */
static void layers_plan(struct plan *plan)
{
    const struct shape *s = &plan->shape;
    const uint32_t q_width = s->heads * s->head_dim;
    const uint32_t kv_width = s->kv_heads * s->head_dim;
    const float unit = 1.0f / sqrtf((float)s->embedding);
    const float out_unit = 1.0f / sqrtf((float)q_width);
    const float down_unit = 1.0f / sqrtf((float)s->feed_forward);
    for (uint32_t i = 0; i < s->layers; i++) {
        layer_add(plan, i, "attn_norm.weight", s->embedding, 0, 1.0f, 0.1f);
        layer_add(plan, i, "attn_q.weight", s->embedding, q_width, 0.0f, 1.5f * unit);
        layer_add(plan, i, "attn_k.weight", s->embedding, kv_width, 0.0f, 1.5f * unit);
        layer_add(plan, i, "attn_v.weight", s->embedding, kv_width, 0.0f, unit);
        if (plan->options.arch == ARCH_QWEN2) {
            layer_add(plan, i, "attn_q.bias", q_width, 0, 0.0f, 0.3f);
            layer_add(plan, i, "attn_k.bias", kv_width, 0, 0.0f, 0.3f);
            layer_add(plan, i, "attn_v.bias", kv_width, 0, 0.0f, 0.3f);
        }
        layer_add(plan, i, "attn_output.weight", q_width, s->embedding, 0.0f, out_unit);
        layer_add(plan, i, "ffn_norm.weight", s->embedding, 0, 1.0f, 0.1f);
        layer_add(plan, i, "ffn_gate.weight", s->embedding, s->feed_forward, 0.0f, unit);
        layer_add(plan, i, "ffn_up.weight", s->embedding, s->feed_forward, 0.0f, unit);
        layer_add(plan, i, "ffn_down.weight", s->feed_forward, s->embedding, 0.0f, down_unit);
    }
}

/* The head is tied to the embedding as a rule. A last norm with gains of either sign keeps a
 * token's own embedding, which is still in the residual, from making that token the likeliest next
 * one. */
static void tensors_plan(struct plan *plan)
{
    const struct shape *s = &plan->shape;
    const float embedding_spread = 2.0f / sqrtf((float)s->embedding);
    plan->spec_capacity = 16u * s->layers + 8;
    plan->specs = calloc(plan->spec_capacity, sizeof *plan->specs);
    CHECK(plan->specs != NULL);
    spec_add(plan, "token_embd.weight", s->embedding, plan->options.vocab, 0.0f, embedding_spread);
    layers_plan(plan);
    spec_add(plan, "output_norm.weight", s->embedding, 0, 0.0f, 1.0f);
    if (plan->options.untied)
        spec_add(plan, "output.weight", s->embedding, plan->options.vocab, 0.0f, embedding_spread);
}

static void put_u32(struct gguf_writer *writer, const struct plan *plan, const char *name,
                    uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", plan->arch, name);
    gguf_writer_put_u32(writer, key, value);
}

static void put_f32(struct gguf_writer *writer, const struct plan *plan, const char *name,
                    float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", plan->arch, name);
    gguf_writer_put_f32(writer, key, value);
}

static void keys_write(struct gguf_writer *writer, const struct plan *plan)
{
    const struct shape *s = &plan->shape;
    char name[64];
    snprintf(name, sizeof name, "random-%s-%s", plan->arch, s->name);
    gguf_writer_put_string(writer, "general.architecture", plan->arch, strlen(plan->arch));
    gguf_writer_put_string(writer, "general.name", name, strlen(name));
    gguf_writer_put_u32(writer, "general.alignment", 32);
    gguf_writer_put_u32(writer, "general.file_type", types[plan->options.type].file_type);
    gguf_writer_put_u32(writer, "general.quantization_version", 2);
    put_u32(writer, plan, "block_count", s->layers);
    put_u32(writer, plan, "context_length", s->context);
    put_u32(writer, plan, "embedding_length", s->embedding);
    put_u32(writer, plan, "feed_forward_length", s->feed_forward);
    put_u32(writer, plan, "attention.head_count", s->heads);
    put_u32(writer, plan, "attention.head_count_kv", s->kv_heads);
    put_f32(writer, plan, "attention.layer_norm_rms_epsilon", s->epsilon);
    put_f32(writer, plan, "rope.freq_base", s->rope_base);
    put_u32(writer, plan, "rope.dimension_count", s->head_dim);
    put_u32(writer, plan, "vocab_size", plan->options.vocab);
    make_vocabulary_write(writer, pre_names[plan->options.arch], plan->options.vocab);
}

/* Normal(0, 1) to the eye: the sum of four uniform 16-bit numbers, from one draw. */
static float normal_at(uint64_t key, uint64_t counter)
{
    const uint64_t bits = random_at(key, counter, 0);
    const uint32_t sum =
        (uint32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    const float deviation = 37837.0f; // sqrt(4 * 65536^2 / 12)
    return ((float)sum - 131070.0f) / deviation;
}

/* Control and padding rows of embedding and head are small: as logits they stay near zero, so that
 * a greedy text does not end by chance. */
static float row_factor(const struct plan *plan, const struct spec *spec, uint64_t row)
{
    const bool by_token = spec->rows == plan->options.vocab &&
                          (spec == plan->specs || spec == &plan->specs[plan->spec_count - 1]);
    const bool text = row >= MAKE_CONTROL_COUNT && row < make_vocabulary_count();
    return by_token && !text ? 0.1f : 1.0f;
}

static enum status tensor_write(struct gguf_writer *writer, const struct plan *plan,
                                const struct spec *spec, float *values, void *blocks,
                                struct error *error)
{
    const uint64_t key = hash64(spec->name, strlen(spec->name), plan->options.seed);
    const uint64_t rows = spec->rows != 0 ? spec->rows : 1;
    for (uint64_t row = 0; row < rows; row++) {
        const float spread = spec->spread * row_factor(plan, spec, row);
        for (uint64_t i = 0; i < spec->width; i++)
            values[i] = spec->mean + spread * normal_at(key, row * spec->width + i);
        const size_t count = (size_t)(spec->width / spec->type->block_values);
        spec->type->quantize(values, blocks, count);
        TRY(gguf_writer_add_data(writer, blocks, count * spec->type->block_bytes, error));
    }
    return STATUS_OK;
}

static enum status tensors_write(struct gguf_writer *writer, const struct plan *plan,
                                 struct error *error)
{
    uint64_t width_max = 0;
    for (size_t i = 0; i < plan->spec_count; i++) {
        const struct spec *spec = &plan->specs[i];
        const uint64_t dimensions[2] = {spec->width, spec->rows};
        gguf_writer_add_tensor(writer, spec->name, spec->type, spec->rows != 0 ? 2 : 1, dimensions);
        width_max = spec->width > width_max ? spec->width : width_max;
    }
    CHECK(width_max > 0);
    float *values = calloc(width_max, sizeof *values);
    void *blocks = calloc(width_max, sizeof *values); // no type takes more than a float a value
    CHECK(values != NULL && blocks != NULL);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < plan->spec_count && status == STATUS_OK; i++)
        status = tensor_write(writer, plan, &plan->specs[i], values, blocks, error);
    free(values);
    free(blocks);
    return status;
}

static enum status model_write(const struct plan *plan, struct error *error)
{
    struct gguf_writer *writer;
    TRY(gguf_writer_open(plan->path, &writer, error));
    keys_write(writer, plan);
    const enum status status = tensors_write(writer, plan, error);
    if (status != STATUS_OK) {
        gguf_writer_abort(writer);
        return status;
    }
    return gguf_writer_finish(writer, error);
}

/* Fills what the options leave open; false after a sentence about what does not fit. */
static bool plan_create(struct plan *plan)
{
    plan->shape = shapes[plan->options.like];
    plan->arch = arch_names[plan->options.arch];
    plan->matrix_type = quant_type_by_name(types[plan->options.type].name);
    if (plan->options.context != 0)
        plan->shape.context = plan->options.context;
    if (plan->options.layers != 0)
        plan->shape.layers = plan->options.layers;
    if (plan->options.vocab == 0)
        plan->options.vocab = make_vocabulary_count();
    if (plan->options.vocab < make_vocabulary_count()) {
        fprintf(stderr, "baton make-model: --vocab is %u, the vocabulary alone has %u tokens\n",
                plan->options.vocab, make_vocabulary_count());
        return false;
    }
    tensors_plan(plan);
    return true;
}

int command_make_model(int argc, char **argv)
{
    struct plan plan = {0};
    int first_operand;
    const int code = config_begin(&description, argc, argv, &plan.options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    if (argc - first_operand != 1)
        return config_misused(&description, "one output file is needed, %d are named",
                              argc - first_operand);
    plan.path = argv[first_operand];
    if (!plan_create(&plan))
        return 2;
    struct error error;
    const enum status status = model_write(&plan, &error);
    free(plan.specs);
    return config_end(&description, status, &error);
}
