/* The backend as an object: creation and its errors, memory, weights, the profile. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/kernels/kernel_fixture.h"

static const struct backend_limits LIMITS = {
    .rows = 8, .width = 64, .heads = 4, .kv_heads = 2, .head_dim = 64, .context_tokens = 256};

Test(backend_cpu, unknown_isa_names_what_exists)
{
    struct team *team = team_create(1);
    struct backend *backend = NULL;
    struct error error = {0};
    setenv("BATON_ISA", "bogus", 1);
    cr_assert_eq(backend_cpu_create(team, NULL, ACTIVATION_AUTO, &LIMITS, &backend, &error),
                 STATUS_UNSUPPORTED);
    cr_assert_null(backend);
    cr_assert(strstr(error.text, "BATON_ISA"), "%s", error.text);
    cr_assert(strstr(error.text, "\"bogus\""), "%s", error.text);
    for (const char *const *isa = fixture_isas(); *isa; isa++)
        cr_assert(strstr(error.text, *isa), "%s is not in: %s", *isa, error.text);

    /* An explicit name goes before the environment. */
    cr_assert_eq(backend_cpu_create(team, "ref", ACTIVATION_AUTO, &LIMITS, &backend, &error),
                 STATUS_OK);
    cr_assert_str_eq(backend->name, "cpu/ref");
    backend->ops->destroy(backend);
    cr_assert_eq(backend_cpu_create(team, "sse9", ACTIVATION_AUTO, &LIMITS, &backend, &error),
                 STATUS_UNSUPPORTED);
    cr_assert(strstr(error.text, "\"sse9\"") && !strstr(error.text, "BATON_ISA"), "%s", error.text);
    team_destroy(team);
}

Test(backend_cpu, environment_chooses_the_isa)
{
    struct team *team = team_create(1);
    struct error error;
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        struct backend *backend;
        setenv("BATON_ISA", *isa, 1);
        cr_assert_eq(backend_cpu_create(team, NULL, ACTIVATION_AUTO, &LIMITS, &backend, &error),
                     STATUS_OK);
        cr_assert(strstr(backend->name, *isa), "%s for %s", backend->name, *isa);
        backend->ops->destroy(backend);
    }
    struct backend *best;
    unsetenv("BATON_ISA");
    cr_assert_eq(backend_cpu_create(team, NULL, ACTIVATION_AUTO, &LIMITS, &best, &error),
                 STATUS_OK);
    cr_assert(strstr(best->name, kernel_isa_name(kernel_isa_best())), "%s", best->name);
    best->ops->destroy(best);
    team_destroy(team);
}

Test(backend_cpu, limits_of_zero_are_refused)
{
    struct team *team = team_create(1);
    struct backend *backend;
    struct error error;
    struct backend_limits limits = LIMITS;
    limits.rows = 0;
    cr_assert_eq(backend_cpu_create(team, "ref", ACTIVATION_AUTO, &limits, &backend, &error),
                 STATUS_INVALID);
    cr_assert(strstr(error.text, "0 rows"), "%s", error.text);
    team_destroy(team);
}

/* Equal ids promise equal bits: the instruction set must not show, the activations must. */
Test(backend_cpu, profile_names_the_arithmetic_only)
{
    struct fixture ref_f32 = fixture_open("ref", ACTIVATION_F32, 1);
    struct fixture ref_auto = fixture_open("ref", ACTIVATION_AUTO, 1);
    struct fixture ref_native = fixture_open("ref", ACTIVATION_NATIVE, 1);
    cr_assert_eq(ref_auto.backend->profile_id, ref_f32.backend->profile_id);
    cr_assert_neq(ref_native.backend->profile_id, ref_f32.backend->profile_id);
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        struct fixture native = fixture_open(*isa, ACTIVATION_NATIVE, 1);
        struct fixture f32 = fixture_open(*isa, ACTIVATION_F32, 1);
        cr_assert_eq(native.backend->profile_id, ref_native.backend->profile_id);
        cr_assert_str_eq(native.backend->profile, ref_native.backend->profile);
        cr_assert_eq(f32.backend->profile_id, ref_f32.backend->profile_id);
        fixture_close(&native);
        fixture_close(&f32);
    }
    struct fixture groups = fixture_open("ref", ACTIVATION_INT8_128, 1);
    struct fixture row = fixture_open("ref", ACTIVATION_INT8_ROW, 1);
    cr_assert_neq(groups.backend->profile_id, ref_native.backend->profile_id);
    cr_assert_neq(row.backend->profile_id, ref_native.backend->profile_id);
    cr_assert_neq(row.backend->profile_id, groups.backend->profile_id);
    fixture_close(&groups);
    fixture_close(&row);
    fixture_close(&ref_f32);
    fixture_close(&ref_auto);
    fixture_close(&ref_native);
}

/* What the pages hold decides bits too. */
Test(backend_cpu, profile_names_the_pages)
{
    static const char *const texts[] = {"kv=k32v32", "kv=k16v16", "kv=k8v8"};
    struct team *team = team_create(1);
    struct error error;
    for (enum kv_dtype dtype = KV_F32; dtype < KV_DTYPE_COUNT; dtype++) {
        struct backend_limits limits = LIMITS;
        struct backend *backend;
        limits.kv_dtype = dtype;
        cr_assert_eq(backend_cpu_create(team, "ref", ACTIVATION_NATIVE, &limits, &backend, &error),
                     STATUS_OK);
        cr_assert(strstr(backend->profile, texts[dtype]), "%s", backend->profile);
        backend->ops->destroy(backend);
    }
    team_destroy(team);
}

Test(backend_cpu, memory_is_aligned_and_zeroed)
{
    struct fixture fixture = fixture_open("ref", ACTIVATION_AUTO, 1);
    const struct backend_ops *ops = fixture.backend->ops;
    struct error error;
    static const size_t sizes[] = {1, 63, 64, 65, 4096, 5 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        device_ptr p;
        cr_assert_eq(ops->allocate(fixture.backend, sizes[i], &p, &error), STATUS_OK);
        cr_assert_eq(p.address % 64, 0);
        const uint8_t *bytes = ops->host_view(fixture.backend, p);
        for (size_t at = 0; at < sizes[i]; at++)
            cr_assert_eq(bytes[at], 0);
        uint8_t last = 7;
        ops->upload(fixture.backend, device_offset(p, sizes[i] - 1), &last, 1);
        last = 0;
        ops->download(fixture.backend, &last, device_offset(p, sizes[i] - 1), 1);
        cr_assert_eq(last, 7);
        ops->release(fixture.backend, p);
    }
    ops->release(fixture.backend, (device_ptr){0});
    device_ptr p = {0};
    cr_assert_eq(ops->allocate(fixture.backend, SIZE_MAX, &p, &error), STATUS_NO_MEMORY);
    cr_assert(strstr(error.text, "18446744073709551615"), "%s", error.text);
    cr_assert(device_null(p));
    fixture_close(&fixture);
}

Test(backend_cpu, weight_shapes_are_checked)
{
    struct fixture fixture = fixture_open("ref", ACTIVATION_AUTO, 1);
    const struct backend_ops *ops = fixture.backend->ops;
    struct weight *weight = NULL;
    struct error error;
    cr_assert_eq(ops->weight_create(fixture.backend, WEIGHT_Q4, 8, 48, &weight, &error),
                 STATUS_INVALID);
    cr_assert(strstr(error.text, "48") && strstr(error.text, "32"), "%s", error.text);
    cr_assert_eq(ops->weight_create(fixture.backend, WEIGHT_F32, 0, 48, &weight, &error),
                 STATUS_INVALID);
    cr_assert_null(weight);
    ops->weight_release(fixture.backend, NULL);
    /* Four bits stay four bits: 64 inputs of 16 rows, with two scales a row in halves. */
    cr_assert_eq(ops->weight_create(fixture.backend, WEIGHT_Q4, 16, 64, &weight, &error),
                 STATUS_OK);
    cr_assert_eq(ops->weight_bytes(weight), 16 * 64 / 2 + 16 * 2 * sizeof(uint16_t));
    ops->weight_release(fixture.backend, weight);
    fixture_close(&fixture);
}

/* Packing loses nothing: embed gives back what was filled in, for all kinds and odd sizes. */
Test(backend_cpu, embedding_is_the_canonical_row)
{
    enum { N = 83 };
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        struct fixture fixture = fixture_open(*isa, ACTIVATION_AUTO, 2);
        for (enum weight_kind kind = WEIGHT_F32; kind <= WEIGHT_Q4A; kind++) {
            const uint32_t k = kind == WEIGHT_F32 || kind == WEIGHT_BF16 ? 35 : 96;
            struct fixture_weight weight;
            fixture_weight_make(&fixture, &weight, kind, N, k, 5);
            int32_t ids[N];
            for (int32_t i = 0; i < N; i++)
                ids[i] = N - 1 - i;
            float *out = malloc((size_t)N * k * sizeof(float));
            fixture.backend->ops->embed(fixture.backend, weight.weight, ids, N, on_device(out));
            for (uint32_t row = 0; row < N; row++)
                for (uint32_t i = 0; i < k; i++)
                    cr_assert_eq(out[(size_t)row * k + i],
                                 fixture_weight_value(&weight, (uint32_t)ids[row], i));
            free(out);
            fixture_weight_free(&fixture, &weight);
        }
        fixture_close(&fixture);
    }
}

/* The largest magnitude among the inputs that share a scale with one. */
static float span_largest(const struct fixture_weight *weight, uint32_t row, uint32_t input,
                          uint32_t span)
{
    const uint32_t first = input / span * span;
    float largest = 0;
    for (uint32_t i = first; i < first + span && i < weight->k; i++)
        largest = fmaxf(largest, fabsf(fixture_weight_value(weight, row, i)));
    return largest;
}

/* A weight that becomes coarser is the nearest multiple of its new scale, which is a half; each
 * takes a byte, whatever the file had. */
Test(backend_cpu, a_coarser_weight_is_near_its_source)
{
    enum { N = 37, K = 320 };
    for (enum activation_mode mode = ACTIVATION_INT8_128; mode <= ACTIVATION_INT8_ROW; mode++) {
        const uint32_t span = mode == ACTIVATION_INT8_128 ? 128 : K;
        struct fixture fixture = fixture_open(NULL, mode, 2);
        for (enum weight_kind kind = WEIGHT_Q8; kind <= WEIGHT_Q4A; kind++) {
            struct fixture_weight weight;
            fixture_weight_make(&fixture, &weight, kind, N, K, 5);
            float out[K];
            double error = 0;
            for (int32_t row = 0; row < N; row++) {
                fixture.backend->ops->embed(fixture.backend, weight.weight, &row, 1,
                                            on_device(out));
                for (uint32_t i = 0; i < K; i++) {
                    const float source = fixture_weight_value(&weight, (uint32_t)row, i);
                    const float step = span_largest(&weight, (uint32_t)row, i, span) / 127;
                    cr_assert(fabsf(out[i] - source) <= 0.501f * step, "kind %d, (%d, %u)",
                              (int)kind, row, i);
                    error += fabsf(out[i] - source) / step;
                }
            }
            cr_assert_gt(error / (N * K), 0.15, "nothing was rounded");
            cr_assert_eq(fixture.backend->ops->weight_bytes(weight.weight),
                         48 * (K + K / WEIGHT_GROUP * sizeof(uint16_t)));
            fixture_weight_free(&fixture, &weight);
        }
        fixture_close(&fixture);
    }
}

static void expect_rows(struct fixture *fixture, const struct fixture_weight *weight)
{
    float *out = malloc(weight->k * sizeof(float));
    for (int32_t row = 0; row < (int32_t)weight->n; row++) {
        fixture->backend->ops->embed(fixture->backend, weight->weight, &row, 1, on_device(out));
        for (uint32_t i = 0; i < weight->k; i++)
            cr_assert_eq(out[i], fixture_weight_value(weight, (uint32_t)row, i));
    }
    free(out);
}

/* Scales are kept as halves if all of them are; the very last one can change that, when the rest
 * has been packed. Rows that do not exist are zero in either form. */
Test(backend_cpu, one_scale_that_is_no_half_makes_all_of_them_floats)
{
    enum { N = 83, K = 96, GROUPS = N * K / WEIGHT_GROUP };
    struct fixture fixture = fixture_open("ref", ACTIVATION_AUTO, 2);
    size_t bytes[2];
    for (uint32_t odd = 0; odd < 2; odd++) {
        struct fixture_weight weight = {.kind = WEIGHT_Q4A, .n = N, .k = K};
        int8_t *q = weight.owned[0] = malloc(N * K);
        float *scale = weight.owned[1] = malloc(GROUPS * sizeof(float));
        float *offset = weight.owned[2] = malloc(GROUPS * sizeof(float));
        for (uint32_t i = 0; i < N * K; i++)
            q[i] = (int8_t)(i * 7 % 16);
        for (uint32_t i = 0; i < GROUPS; i++) {
            scale[i] = (float)(i + 1) / 64;
            offset[i] = -(float)i / 16;
        }
        if (odd)
            offset[GROUPS - 1] = 0.1f;
        weight.rows = (struct weight_rows){.q = q, .scale = scale, .offset = offset};
        fixture_weight_fill(&fixture, &weight);
        expect_rows(&fixture, &weight);
        bytes[odd] = fixture.backend->ops->weight_bytes(weight.weight);
        fixture_weight_free(&fixture, &weight);
    }
    cr_assert_eq(bytes[0], 6 * (16 * K / 2 + 2 * 16 * K / WEIGHT_GROUP * sizeof(uint16_t)));
    cr_assert_eq(bytes[1], 6 * (16 * K / 2 + 2 * 16 * K / WEIGHT_GROUP * sizeof(float)));
    fixture_close(&fixture);
}

/* out[rows][n]; alone, or behind a product whose activations take another form. */
static void product(struct fixture *fixture, const struct fixture_weight *before,
                    const struct fixture_weight *weight, const float *x, uint32_t rows, float *out)
{
    float *other = malloc((size_t)rows * weight->n * sizeof(float));
    const struct project_output outputs[] = {{before->weight, on_device(other), {0}},
                                             {weight->weight, on_device(out), {0}}};
    fixture->backend->ops->project(fixture->backend, &(struct project_args){.x = on_device(x),
                                                                            .outputs = outputs,
                                                                            .output_count = 2,
                                                                            .rows = rows});
    free(other);
}

/* The bits are those of the profile with f32 activations, and they are others without; the largest
 * output is one of them. */
Test(backend_cpu, a_weight_that_takes_floats_computes_as_the_f32_profile)
{
    enum { N = 83, K = 96, ROWS = 5 };
    float *x = random_floats(2, ROWS * K);
    float expected[ROWS * N], rounded[ROWS * N], out[ROWS * N];
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        for (enum weight_kind kind = WEIGHT_BF16; kind <= WEIGHT_Q4A; kind++) {
            struct fixture f32 = fixture_open(*isa, ACTIVATION_F32, 2);
            struct fixture native = fixture_open(*isa, ACTIVATION_NATIVE, 2);
            struct fixture_weight reference, before, weight;
            struct top_entry top[ROWS];
            fixture_weight_make(&f32, &reference, kind, N, K, 5);
            fixture_weight_make(&native, &before, kind, N, K, 6);
            fixture_weight_make(&native, &weight, kind, N, K, 5);
            product(&f32, &reference, &reference, x, ROWS, expected);
            product(&native, &before, &weight, x, ROWS, rounded);
            native.backend->ops->weight_take_floats(native.backend, weight.weight);
            product(&native, &before, &weight, x, ROWS, out);
            cr_assert_arr_eq(out, expected, sizeof(out));
            cr_assert_neq(memcmp(rounded, expected, sizeof(out)), 0);
            native.backend->ops->project_top(native.backend,
                                             &(struct project_top_args){.x = on_device(x),
                                                                        .weight = weight.weight,
                                                                        .id_count = N,
                                                                        .count = 1,
                                                                        .rows = ROWS,
                                                                        .out = top});
            for (uint32_t row = 0; row < ROWS; row++)
                cr_assert_eq(top[row].value, expected[row * N + (uint32_t)top[row].id]);
            fixture_weight_free(&f32, &reference);
            fixture_weight_free(&native, &before);
            fixture_weight_free(&native, &weight);
            fixture_close(&f32);
            fixture_close(&native);
        }
    }
    free(x);
}

Test(backend_cpu, gather_takes_rows_in_any_order)
{
    struct fixture fixture = fixture_open("ref", ACTIVATION_AUTO, 1);
    float *x = random_floats(1, 5 * 7);
    const uint32_t indices[] = {4, 0, 4, 2};
    float out[4 * 7];
    fixture.backend->ops->gather_rows(fixture.backend, on_device(x), indices, 4, 7, on_device(out));
    for (size_t i = 0; i < 4; i++)
        cr_assert_arr_eq(out + i * 7, x + indices[i] * (size_t)7, 7 * sizeof(float));
    free(x);
    fixture_close(&fixture);
}

Test(backend_cpu, page_sizes)
{
    /* SmolLM2-135M: 30 layers, 3 key/value heads of 64: 23,040 bytes a token in bf16. */
    cr_assert_eq(30 * kv_page_bytes(KV_BF16, 64, 3, 64), 23040 * 64);
    cr_assert_eq(kv_page_bytes(KV_F32, 16, 1, 64), 2 * 16 * 64 * 4);
    /* int8: a float for every token of every head of K and of V besides. */
    cr_assert_eq(kv_page_bytes(KV_I8, 64, 3, 64), (size_t)2 * 3 * 64 * (64 + 4));
    cr_assert_neq(kv_layout_id(KV_F32), kv_layout_id(KV_BF16));
    cr_assert_neq(kv_layout_id(KV_I8), kv_layout_id(KV_BF16));
}
