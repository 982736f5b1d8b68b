#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/weight_panel.h"

enum { PAGE_TOKENS = 64, SLOT_COUNT = 37 };

struct fixture fixture_open(const char *isa, enum activation_mode mode, uint32_t threads)
{
    const struct backend_limits limits = {
        .rows = FIXTURE_ROWS,
        .width = FIXTURE_WIDTH,
        .heads = 16,
        .kv_heads = 8,
        .head_dim = FIXTURE_HEAD_DIM,
        .context_tokens = FIXTURE_CONTEXT,
    };
    struct fixture fixture = {.team = team_create(threads)};
    struct error error;
    CHECK(backend_cpu_create(fixture.team, isa, mode, &limits, &fixture.backend, &error) ==
          STATUS_OK);
    return fixture;
}

void fixture_close(struct fixture *fixture)
{
    fixture->backend->ops->destroy(fixture->backend);
    team_destroy(fixture->team);
}

const char *const *fixture_isas(void)
{
    static const char *names[KERNEL_ISA_COUNT + 1];
    uint32_t count = 0;
    for (enum kernel_isa isa = KERNEL_ISA_ref; isa < KERNEL_ISA_COUNT; isa++)
        if (kernel_isa_available(isa))
            names[count++] = kernel_isa_name(isa);
    names[count] = NULL;
    return names;
}

float *random_floats(uint64_t seed, size_t count)
{
    float *out = malloc(count * sizeof(float));
    CHECK(out);
    struct random random;
    random_init(&random, seed);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)random_normal(&random);
    return out;
}

static int8_t *random_values(enum weight_kind kind, uint64_t seed, size_t count)
{
    static const int lowest[] = {
        [WEIGHT_Q8] = -128, [WEIGHT_Q8A] = 0, [WEIGHT_Q4] = -8, [WEIGHT_Q4A] = 0};
    static const uint32_t range[] = {
        [WEIGHT_Q8] = 256, [WEIGHT_Q8A] = 128, [WEIGHT_Q4] = 16, [WEIGHT_Q4A] = 16};
    int8_t *q = malloc(count);
    CHECK(q);
    struct random random;
    random_init(&random, seed);
    for (size_t i = 0; i < count; i++)
        q[i] = (int8_t)(lowest[kind] + (int)random_below(&random, range[kind]));
    return q;
}

static void read_rows(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                      struct weight_rows *rows_out)
{
    const struct fixture_weight *weight = arg;
    CHECK(first_row < weight->n && row_count <= weight->n - first_row);
    *rows_out = weight_rows_from(&weight->rows, first_row, weight->k);
}

void fixture_weight_fill(struct fixture *fixture, struct fixture_weight *weight)
{
    const struct backend_ops *ops = fixture->backend->ops;
    struct error error;
    CHECK(ops->weight_create(fixture->backend, weight->kind, weight->n, weight->k, &weight->weight,
                             &error) == STATUS_OK);
    ops->weight_fill(fixture->backend, weight->weight, &(struct weight_source){read_rows, weight});
}

void fixture_weight_make(struct fixture *fixture, struct fixture_weight *out, enum weight_kind kind,
                         uint32_t n, uint32_t k, uint64_t seed)
{
    const size_t values = (size_t)n * k;
    *out = (struct fixture_weight){.kind = kind, .n = n, .k = k};
    if (kind == WEIGHT_F32 || kind == WEIGHT_BF16) {
        float *f32 = random_floats(seed, values);
        uint16_t *bf16 = malloc(values * sizeof(uint16_t));
        CHECK(bf16);
        for (size_t i = 0; i < values; i++)
            bf16[i] = bf16_from_float(f32[i]);
        out->rows.f32 = kind == WEIGHT_F32 ? f32 : NULL;
        out->rows.bf16 = kind == WEIGHT_BF16 ? bf16 : NULL;
        out->owned[0] = f32;
        out->owned[1] = bf16;
    } else {
        out->rows.q = out->owned[0] = random_values(kind, seed, values);
        out->rows.scale = out->owned[1] = random_floats(seed + 1, values / WEIGHT_GROUP);
        float *offset = out->owned[2] = random_floats(seed + 2, values / WEIGHT_GROUP);
        out->rows.offset = kind == WEIGHT_Q8A || kind == WEIGHT_Q4A ? offset : NULL;
    }
    fixture_weight_fill(fixture, out);
}

void fixture_weight_free(struct fixture *fixture, struct fixture_weight *weight)
{
    fixture->backend->ops->weight_release(fixture->backend, weight->weight);
    for (size_t i = 0; i < ARRAY_COUNT(weight->owned); i++)
        free(weight->owned[i]);
}

float fixture_weight_value(const struct fixture_weight *weight, uint32_t row, uint32_t input)
{
    const size_t at = (size_t)row * weight->k + input;
    if (weight->rows.f32)
        return weight->rows.f32[at];
    if (weight->rows.bf16)
        return float_from_bf16(weight->rows.bf16[at]);
    const float scale = weight->rows.scale[at / WEIGHT_GROUP];
    const float q = weight->rows.q[at];
    return weight->rows.offset ? fmaf(scale, q, weight->rows.offset[at / WEIGHT_GROUP]) : scale * q;
}

void fixture_sequence_make(struct fixture_sequence *out, enum kv_dtype dtype, uint32_t tokens,
                           uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t stride,
                           uint64_t seed)
{
    const uint32_t page_count = (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
    CHECK(page_count <= SLOT_COUNT && stride % SLOT_COUNT != 0);
    *out = (struct fixture_sequence){
        .tokens = tokens, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
    out->k = random_floats(seed, (size_t)tokens * kv_heads * head_dim);
    out->v = random_floats(seed + 1, (size_t)tokens * kv_heads * head_dim);
    out->q = random_floats(seed + 2, (size_t)tokens * heads * head_dim);
    out->slots = malloc(page_count * sizeof(uint32_t));
    CHECK(out->slots);
    for (uint32_t i = 0; i < page_count; i++)
        out->slots[i] = i * stride % SLOT_COUNT;
    const size_t page_bytes = kv_page_bytes(dtype, PAGE_TOKENS, kv_heads, head_dim);
    out->pages = aligned_alloc(64, page_bytes * SLOT_COUNT);
    CHECK(out->pages);
    memset(out->pages, 0xff, page_bytes * SLOT_COUNT);
    out->view = (struct kv_view){
        .base = on_device(out->pages),
        .page_bytes = page_bytes,
        .page_tokens = PAGE_TOKENS,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .dtype = dtype,
    };
}

void fixture_sequence_free(struct fixture_sequence *sequence)
{
    free(sequence->k);
    free(sequence->v);
    free(sequence->q);
    free(sequence->slots);
    free(sequence->pages);
}

void fixture_chunk(struct fixture *fixture, const struct fixture_sequence *sequence, uint32_t first,
                   uint32_t end, float *out)
{
    const struct backend_ops *ops = fixture->backend->ops;
    const size_t kv_at = (size_t)first * sequence->kv_heads * sequence->head_dim;
    const size_t q_at = (size_t)first * sequence->heads * sequence->head_dim;
    const struct batch_sequence rows = {
        .row_count = end - first, .position = first, .slots = sequence->slots};
    ops->kv_write(fixture->backend, on_device(sequence->k + kv_at), on_device(sequence->v + kv_at),
                  &sequence->view, &rows, 1);
    ops->attention(fixture->backend, &(struct attention_args){
                                         .q = on_device(sequence->q + q_at),
                                         .out = on_device(out + q_at),
                                         .heads = sequence->heads,
                                         .scale = 0.125f,
                                         .soft_cap = sequence->soft_cap,
                                         .window = sequence->window,
                                         .kv = sequence->view,
                                         .sequences = &rows,
                                         .sequence_count = 1,
                                     });
}
