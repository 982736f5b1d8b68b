/* `baton bench kernels`: every row of kernels.def that this machine can run. */
#include "ops/baton/bench_kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/bench_kernels_report.h"

enum { LIKE_ALL, TINY_ROTATE_BYTES = 1 << 18, SEED = 1 };

struct options {
    const char *filter, *isa;
    uint32_t like, threads, budget_ms, groups;
    bool json;
};

static const struct config_row option_rows[] = {
    {"filter", CONFIG_TEXT, offsetof(struct options, filter), NULL, "TEXT",
     "only kernels whose name holds this text", 0, 0},
    {"like", CONFIG_CHOICE, offsetof(struct options, like), "all", "all|135m|0.5b|tiny",
     "shapes: of SmolLM2-135M and Qwen2.5-0.5B, of one of them, or small ones", 0, 0},
    {"threads", CONFIG_U32, offsetof(struct options, threads), "0", "N", "0: all CPUs", 0, 1024},
    {"isa", CONFIG_TEXT, offsetof(struct options, isa), NULL, "NAME",
     "highest instruction set, for kernels and limits; the CPU's best when not given", 0, 0},
    {"groups", CONFIG_CHOICE, offsetof(struct options, groups), "32", "32|128|row",
     "inputs that share a scale; other than 32 only the int8 products, as --activations has them",
     0, 0},
    {"budget-ms", CONFIG_U32, offsetof(struct options, budget_ms), "25", "N", "time for one figure",
     1, 60000},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object a line", 0,
     0},
};

static const struct config_command description = {
    .program = "baton bench kernels",
    .summary = "Measures the CPU's kernels at model shapes beside the machine's limits.",
    .examples = "  baton bench kernels --filter matmul_i8 --like 135m\n"
                "  baton bench kernels --isa avx2 --json > kernels.jsonl\n",
    .operands = NULL,
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

/* In the order of --like without "all"; the last is for tests. */
static struct bench_shape shapes[] = {
    {"135m", 576, 1536, 9, 3, 64, 49152, 0},
    {"0.5b", 896, 4864, 14, 2, 64, 151936, 0},
    {"tiny", 128, 160, 4, 2, 32, 512, TINY_ROTATE_BYTES},
};
enum { MODEL_SHAPES = 2 };

struct operation {
    const char *name;
    bool (*run)(struct kernel_bench *bench);
};

static const struct operation operations[] = {
    {"matmul", bench_matmul},     {"embed", bench_embed},           {"quantize", bench_quantize},
    {"round", bench_round},       {"rms_norm", bench_rms_norm},     {"rope", bench_rope},
    {"swiglu", bench_swiglu},     {"kv_write", bench_kv_write},     {"attention", bench_attention},
    {"top", bench_top},           {"layer_norm", bench_layer_norm}, {"gelu", bench_gelu},
    {"soft_cap", bench_soft_cap}, {"scale", bench_scale},           {"rows_add", bench_rows_add},
    {"route", bench_route},
};

static const struct operation *operation_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(operations); i++) {
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    }
    return NULL;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The backend on which the row is what the table chose. */
static enum status backend_open(struct kernel_bench *bench, struct error *error)
{
    struct bench_product product = {.mode = ACTIVATION_NATIVE};
    const struct bench_shape *shape = bench->shape;
    if (strcmp(bench->row->operation, "matmul") == 0)
        bench_product(bench->row->dtype, &product);
    const struct backend_limits limits = {
        .rows = BENCH_ROWS_MAX,
        .width = max_u32(shape->embedding, shape->feed_forward),
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .context_tokens = BENCH_CONTEXT + BENCH_ROWS_MAX,
    };
    return backend_cpu_create(bench->team, kernel_isa_name(bench->row->isa),
                              bench->mode == ACTIVATION_NATIVE ? product.mode : bench->mode,
                              &limits, &bench->backend, error);
}

static enum status row_run(struct kernel_bench *bench, struct error *error)
{
    const struct operation *operation = operation_find(bench->row->operation);
    TRY(backend_open(bench, error));
    random_init(&bench->random, SEED);
    const bool known = operation != NULL && operation->run(bench);
    bench->backend->ops->destroy(bench->backend);
    return known ? STATUS_OK
                 : error_set(error, STATUS_UNSUPPORTED, "there is no bench for kernel %s",
                             bench->row->name);
}

/* A later row of the same slot and instruction set takes the slot. */
static bool row_chosen(const struct kernel_row *rows, uint32_t count, uint32_t index)
{
    for (uint32_t i = index + 1; i < count; i++) {
        if (rows[i].slot == rows[index].slot && rows[i].isa == rows[index].isa)
            return false;
    }
    return true;
}

/* With coarser groups every weight that has any becomes one of int8. */
static bool mode_meets(enum activation_mode mode, const struct kernel_row *row)
{
    return mode == ACTIVATION_NATIVE || row->slot == KERNEL_SLOT_matmul_i8_q8;
}

static enum status rows_run(struct kernel_bench *bench, const struct options *options,
                            enum kernel_isa isa, struct error *error)
{
    uint32_t count, matched = 0;
    const struct kernel_row *rows = kernel_rows(&count);
    const uint32_t first = options->like == LIKE_ALL ? 0 : options->like - 1;
    const uint32_t end = options->like == LIKE_ALL ? MODEL_SHAPES : first + 1;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].isa > isa || !kernel_isa_available(rows[i].isa) ||
            !row_chosen(rows, count, i) || !mode_meets(bench->mode, &rows[i]) ||
            (options->filter != NULL && strstr(rows[i].name, options->filter) == NULL))
            continue;
        matched++;
        bench->row = &rows[i];
        /* The references of what has faster variants are no figures to improve. */
        bench->brief = rows[i].isa == KERNEL_ISA_ref;
        for (uint32_t s = first; s < (bench->brief ? first + 1 : end); s++) {
            bench->shape = &shapes[s];
            TRY(row_run(bench, error));
        }
    }
    if (matched == 0)
        return error_set(error, STATUS_INVALID, "no kernel that runs here has '%s' in its name",
                         options->filter);
    return STATUS_OK;
}

static enum status run(const struct options *options, struct error *error)
{
    enum kernel_isa isa;
    bool header_printed = false;
    TRY(bench_isa(options->isa, &isa, error));
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        if (shapes[i].rotate_bytes == 0)
            shapes[i].rotate_bytes = 2 * bench_cache_bytes();
    }
    static const enum activation_mode modes[] = {ACTIVATION_NATIVE, ACTIVATION_INT8_128,
                                                 ACTIVATION_INT8_ROW};
    struct kernel_bench bench = {
        .mode = modes[options->groups],
        .team = team_create(options->threads),
        .budget_ms = options->budget_ms,
        .json = options->json,
        .header_printed = &header_printed,
    };
    bench.limits = bench_limits_create(bench.team, isa, options->budget_ms);
    bench_report_limits(bench.limits, team_count(bench.team), isa, options->json);
    enum status status = rows_run(&bench, options, isa, error);
    if (status == STATUS_OK && fflush(stdout) != 0)
        status = error_set_errno(error, STATUS_IO, "cannot write the figures");
    bench_limits_destroy(bench.limits);
    team_destroy(bench.team);
    return status;
}

int bench_kernels(int argc, char **argv)
{
    struct options options;
    int operand;
    const int code = config_begin(&description, argc, argv, &options, &operand);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error = {0};
    return config_end(&description, run(&options, &error), &error);
}
