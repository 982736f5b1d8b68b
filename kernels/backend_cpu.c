/* The CPU as a device: creation, the operation table, the profile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "kernels/backend_cpu_internal.h"

static void cpu_destroy(struct backend *backend)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    memory_release(cpu->activations);
    memory_release(cpu->inner_activations);
    memory_release(cpu->other_activations);
    memory_release(cpu->row_buffers);
    memory_release(cpu->gated_buffers);
    memory_release(cpu->requantize_buffers);
    memory_release(cpu->top_buffers);
    memory_release(cpu->top_lists);
    memory_release(cpu->top_held);
    memory_release(cpu->key_buffers);
    memory_release(cpu->attention_scratch);
    memory_release(cpu->attention_partials);
    free(cpu->attention_left);
    free(cpu->attention_starts);
    free(cpu);
}

static const struct backend_ops CPU_OPS = {
    .allocate = cpu_allocate,
    .release = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .host_view = cpu_host_view,
    .synchronize = cpu_synchronize,
    .weight_create = cpu_weight_create,
    .weight_fill = cpu_weight_fill,
    .weight_release = cpu_weight_release,
    .weight_bytes = cpu_weight_bytes,
    .weight_take_floats = cpu_weight_take_floats,
    .embed = cpu_embed,
    .rms_norm = cpu_rms_norm,
    .matmul = cpu_matmul,
    .project = cpu_project,
    .project_top = cpu_project_top,
    .feed_forward = cpu_feed_forward,
    .rope = cpu_rope,
    .kv_write = cpu_kv_write,
    .rope_kv_write = cpu_rope_kv_write,
    .attention = cpu_attention,
    .swiglu = cpu_swiglu,
    .layer_norm = cpu_layer_norm,
    .gelu = cpu_gelu,
    .route = cpu_route,
    .rows_add = cpu_rows_add,
    .scale = cpu_scale,
    .soft_cap = cpu_soft_cap,
    .gather_rows = cpu_gather_rows,
    .destroy = cpu_destroy,
};

static void list_available(char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (enum kernel_isa isa = KERNEL_ISA_ref; isa < KERNEL_ISA_COUNT; isa++) {
        if (!kernel_isa_available(isa) || used >= bytes)
            continue;
        const int written =
            snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", kernel_isa_name(isa));
        used += written > 0 ? (size_t)written : 0;
    }
}

static enum status choose_isa(const char *name, enum kernel_isa *isa_out, struct error *error)
{
    const char *source = "The instruction set";
    if (!name || !*name) {
        name = getenv("BATON_ISA");
        source = "BATON_ISA:";
    }
    if (!name || !*name) {
        *isa_out = kernel_isa_best();
        return STATUS_OK;
    }
    char available[64];
    list_available(available, sizeof(available));
    enum kernel_isa isa;
    if (!kernel_isa_parse(name, &isa))
        return error_set(error, STATUS_UNSUPPORTED, "%s \"%.40s\" is not known; there are: %s",
                         source, name, available);
    if (!kernel_isa_available(isa))
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s \"%s\" is not supported by this CPU; there are: %s", source, name,
                         available);
    *isa_out = isa;
    return STATUS_OK;
}

/* The version changes with any order of summation or constant of README.md. */
static void name_profile(struct backend_cpu *cpu)
{
    static const char *const pages[] = {
        [KV_F32] = "k32v32", [KV_BF16] = "k16v16", [KV_I8] = "k8v8"};
    static const char *const activations[ACTIVATION_MODE_COUNT] = {
        [ACTIVATION_F32] = "f32",
        [ACTIVATION_NATIVE] = "int8g32,bf16",
        [ACTIVATION_INT8_128] = "int8g128,bf16",
        [ACTIVATION_INT8_ROW] = "int8row,bf16"};
    snprintf(cpu->base.profile, sizeof(cpu->base.profile), "v2 act=%s attn=%d/%d kv=%s",
             activations[cpu->mode], ATTENTION_BLOCK, ATTENTION_SEGMENT,
             pages[cpu->limits.kv_dtype]);
    cpu->base.profile_id = hash64(cpu->base.profile, strlen(cpu->base.profile), 0);
    snprintf(cpu->name, sizeof(cpu->name), "cpu/%s", kernel_isa_name(cpu->isa));
    cpu->base.name = cpu->name;
    cpu->base.ops = &CPU_OPS;
    cpu->base.members = team_count(cpu->team);
    cpu->base.activations = cpu->mode;
}

enum { SPLIT_ITEMS_PER_MEMBER = 4 };

static bool allocate_products(struct backend_cpu *cpu, size_t *bytes)
{
    const struct backend_limits *limits = &cpu->limits;
    const size_t members = team_count(cpu->team);
    cpu->activation_values = (size_t)limits->rows * limits->width;
    /* float is the largest form; pages that a smaller one leaves alone stay with the system. */
    const size_t activation_bytes = cpu->activation_values * sizeof(float);
    cpu->row_buffer_floats = ((size_t)limits->width + 15) / 16 * 16;
    const size_t gated_bytes = members * 2 * GATED_BUFFER_FLOATS * sizeof(float);
    const size_t requantize_bytes = members * requantize_buffer_bytes(cpu, limits->width);
    cpu->activations = memory_allocate(activation_bytes);
    cpu->inner_activations = memory_allocate(activation_bytes);
    cpu->other_activations = memory_allocate(activation_bytes);
    cpu->row_buffers = memory_allocate(members * cpu->row_buffer_floats * sizeof(float));
    cpu->gated_buffers = memory_allocate(gated_bytes);
    cpu->requantize_buffers = memory_allocate(requantize_bytes);
    *bytes += 3 * activation_bytes + gated_bytes + requantize_bytes +
              members * cpu->row_buffer_floats * sizeof(float);
    return cpu->activations && cpu->inner_activations && cpu->other_activations &&
           cpu->row_buffers && cpu->gated_buffers && cpu->requantize_buffers;
}

static bool allocate_top(struct backend_cpu *cpu, size_t *bytes)
{
    const size_t members = team_count(cpu->team), rows = members * cpu->limits.rows;
    const size_t list_bytes = rows * PROJECT_TOP_MAX * sizeof(*cpu->top_lists);
    cpu->top_buffers = memory_allocate(members * top_buffer_bytes());
    cpu->top_lists = memory_allocate(list_bytes);
    cpu->top_held = memory_allocate(rows * sizeof(*cpu->top_held));
    *bytes += members * top_buffer_bytes() + list_bytes + rows * sizeof(*cpu->top_held);
    return cpu->top_buffers && cpu->top_lists && cpu->top_held;
}

static bool allocate_attention(struct backend_cpu *cpu, size_t *bytes)
{
    const struct backend_limits *limits = &cpu->limits;
    const uint32_t members = team_count(cpu->team);
    cpu->attention_scratch_bytes = (attention_scratch_bytes(limits->head_dim) + 63) / 64 * 64;
    cpu->attention_segments = (limits->context_tokens + ATTENTION_SEGMENT - 1) / ATTENTION_SEGMENT;
    cpu->attention_split_items = SPLIT_ITEMS_PER_MEMBER * members;
    const size_t partial_bytes = (size_t)cpu->attention_split_items * cpu->attention_segments *
                                 attention_partial_bytes(limits->head_dim);
    cpu->key_buffer_floats = (size_t)KEY_BUFFER_ROWS * limits->kv_heads * limits->head_dim;
    cpu->key_buffers = memory_allocate(members * cpu->key_buffer_floats * sizeof(float));
    cpu->attention_scratch = memory_allocate(cpu->attention_scratch_bytes * members);
    cpu->attention_partials = memory_allocate(partial_bytes);
    cpu->attention_left = calloc(cpu->attention_split_items, sizeof(*cpu->attention_left));
    cpu->attention_starts = calloc(limits->rows, sizeof(*cpu->attention_starts));
    *bytes += cpu->attention_scratch_bytes * members + partial_bytes +
              members * cpu->key_buffer_floats * sizeof(float);
    return cpu->key_buffers && cpu->attention_scratch && cpu->attention_partials &&
           cpu->attention_left && cpu->attention_starts;
}

static enum status allocate_scratch(struct backend_cpu *cpu, struct error *error)
{
    size_t bytes = 0;
    const bool products = allocate_products(cpu, &bytes);
    const bool top = allocate_top(cpu, &bytes);
    if (!allocate_attention(cpu, &bytes) || !products || !top)
        return error_set(error, STATUS_NO_MEMORY,
                         "There is no memory for the scratch of %u rows by %u (%zu bytes)",
                         cpu->limits.rows, cpu->limits.width, bytes);
    return STATUS_OK;
}

enum status backend_cpu_create(struct team *team, const char *isa, enum activation_mode mode,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *error)
{
    enum kernel_isa chosen = KERNEL_ISA_ref;
    TRY(choose_isa(isa, &chosen, error));
    if (limits->rows == 0 || limits->width == 0 || limits->head_dim == 0)
        return error_set(error, STATUS_INVALID,
                         "A backend needs limits above zero, not %u rows, width %u, head size %u",
                         limits->rows, limits->width, limits->head_dim);
    CHECK(limits->kv_dtype < KV_DTYPE_COUNT);
    struct backend_cpu *cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return error_set(error, STATUS_NO_MEMORY, "There is no memory for a backend");
    cpu->team = team;
    cpu->isa = chosen;
    cpu->limits = *limits;
    cpu->mode = mode != ACTIVATION_AUTO    ? mode
                : chosen == KERNEL_ISA_ref ? ACTIVATION_F32
                                           : ACTIVATION_NATIVE;
    kernels_init(&cpu->kernels, chosen);
    name_profile(cpu);
    const enum status status = allocate_scratch(cpu, error);
    if (status != STATUS_OK) {
        cpu_destroy(&cpu->base);
        return status;
    }
    *out = &cpu->base;
    return STATUS_OK;
}
