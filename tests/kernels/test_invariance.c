/* A row's bits depend on that row's inputs only: not on the batch it is in, on how a prompt was cut
 * into calls, on the number of threads, on the instruction set, or on where the pages are. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/kernel_fixture.h"

static void assert_same_bits(const float *expected, const float *actual, size_t count,
                             const char *what, const char *isa, int detail)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(memcmp(expected + i, actual + i, sizeof(float)), 0,
                     "%s, %s, %d: element %zu is %.9g, not %.9g", what, isa, detail, i,
                     (double)actual[i], (double)expected[i]);
}

static float *matmul(struct fixture *fixture, const struct fixture_weight *weight, const float *x,
                     uint32_t rows)
{
    float *out = malloc((size_t)rows * weight->n * sizeof(float));
    fixture->backend->ops->matmul(fixture->backend, &(struct matmul_args){
                                                        .weight = weight->weight,
                                                        .x = on_device(x),
                                                        .out = on_device(out),
                                                        .rows = rows,
                                                    });
    return out;
}

/* Coarser groups make one kind of weight out of all that have groups: a few stand for them. */
static bool kind_worth(enum activation_mode mode, enum weight_kind kind)
{
    return mode <= ACTIVATION_NATIVE || kind == WEIGHT_Q8 || kind == WEIGHT_Q4A;
}

/* One row at a time against all at once, for every kind and activation mode. */
Test(invariance, products_by_batch)
{
    enum { N = 144, K = 576 };
    float *x = random_floats(1, (size_t)FIXTURE_ROWS * K);
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        for (enum activation_mode mode = ACTIVATION_F32; mode < ACTIVATION_MODE_COUNT; mode++) {
            struct fixture fixture = fixture_open(*isa, mode, 2);
            for (enum weight_kind kind = WEIGHT_F32; kind <= WEIGHT_Q4A; kind++) {
                if (!kind_worth(mode, kind))
                    continue;
                struct fixture_weight weight;
                fixture_weight_make(&fixture, &weight, kind, N, K, 3);
                float *batch = matmul(&fixture, &weight, x, FIXTURE_ROWS);
                for (uint32_t row = 0; row < FIXTURE_ROWS; row++) {
                    float *alone = matmul(&fixture, &weight, x + (size_t)row * K, 1);
                    assert_same_bits(alone, batch + (size_t)row * N, N, "row alone", *isa,
                                     (int)kind);
                    free(alone);
                }
                for (uint32_t rows = 2; rows < 26; rows++) {
                    float *some = matmul(&fixture, &weight, x, rows);
                    assert_same_bits(batch, some, (size_t)rows * N, "smaller batch", *isa,
                                     (int)kind);
                    free(some);
                }
                free(batch);
                fixture_weight_free(&fixture, &weight);
            }
            fixture_close(&fixture);
        }
    }
    free(x);
}

/* Every operation of a layer with teams of 1, 2 and 3 and on every instruction set. */
static float *layer(struct fixture *fixture)
{
    enum { ROWS = 48, WIDTH = 576, N = 192 };
    const struct backend_ops *ops = fixture->backend->ops;
    struct backend *backend = fixture->backend;
    float *x = random_floats(11, (size_t)ROWS * WIDTH);
    float *gain = random_floats(12, WIDTH);
    float *angle = random_floats(13, (size_t)ROWS * 32);
    float *out = malloc((size_t)ROWS * N * sizeof(float));
    struct fixture_weight weight;
    fixture_weight_make(fixture, &weight, WEIGHT_Q4A, N, WIDTH, 14);
    ops->rms_norm(backend, on_device(x), on_device(gain), 1e-5f, ROWS, WIDTH, on_device(x));
    ops->rope(backend, &(struct rope_args){.x = on_device(x),
                                           .cos = on_device(angle),
                                           .sin = on_device(angle),
                                           .rows = ROWS,
                                           .heads = 9,
                                           .head_dim = 64,
                                           .rotary = 64,
                                           .pairing = ROPE_HALVES});
    ops->swiglu(backend, on_device(x), on_device(x), ROWS, WIDTH, on_device(x));
    ops->matmul(backend, &(struct matmul_args){.weight = weight.weight,
                                               .x = on_device(x),
                                               .out = on_device(out),
                                               .rows = ROWS});
    fixture_weight_free(fixture, &weight);
    free(x);
    free(gain);
    free(angle);
    return out;
}

Test(invariance, threads_and_instruction_sets)
{
    for (enum activation_mode mode = ACTIVATION_NATIVE; mode < ACTIVATION_MODE_COUNT; mode++) {
        struct fixture one = fixture_open("ref", mode, 1);
        float *expected = layer(&one);
        for (const char *const *isa = fixture_isas(); *isa; isa++) {
            for (uint32_t threads = 1; threads <= 3; threads++) {
                struct fixture fixture = fixture_open(*isa, mode, threads);
                float *actual = layer(&fixture);
                assert_same_bits(expected, actual, 48 * 192, "layer", *isa, (int)threads);
                free(actual);
                fixture_close(&fixture);
            }
        }
        free(expected);
        fixture_close(&one);
    }
}

/* Two weights with biases, a feed-forward part; by steps or by the operations that join them. */
struct small_layer {
    struct fixture_weight query, key, gate, up, down;
    float *x, *gain, *bias;
};

enum { LAYER_ROWS = 50, LAYER_WIDTH = 192, LAYER_KEYS = 40, LAYER_INNER = 352 };

static void small_layer_make(struct fixture *fixture, struct small_layer *out,
                             enum weight_kind kind, enum weight_kind other)
{
    fixture_weight_make(fixture, &out->query, kind, LAYER_WIDTH, LAYER_WIDTH, 51);
    fixture_weight_make(fixture, &out->key, other, LAYER_KEYS, LAYER_WIDTH, 52);
    fixture_weight_make(fixture, &out->gate, kind, LAYER_INNER, LAYER_WIDTH, 53);
    fixture_weight_make(fixture, &out->up, other, LAYER_INNER, LAYER_WIDTH, 54);
    fixture_weight_make(fixture, &out->down, kind, LAYER_WIDTH, LAYER_INNER, 55);
    out->x = random_floats(56, (size_t)LAYER_ROWS * LAYER_WIDTH);
    out->gain = random_floats(57, LAYER_WIDTH);
    out->bias = random_floats(58, LAYER_WIDTH);
}

static void small_layer_free(struct fixture *fixture, struct small_layer *layer)
{
    fixture_weight_free(fixture, &layer->query);
    fixture_weight_free(fixture, &layer->key);
    fixture_weight_free(fixture, &layer->gate);
    fixture_weight_free(fixture, &layer->up);
    fixture_weight_free(fixture, &layer->down);
    free(layer->x);
    free(layer->gain);
    free(layer->bias);
}

static void multiply(struct fixture *fixture, const struct fixture_weight *weight, const float *x,
                     const float *bias, bool accumulate, uint32_t rows, float *out)
{
    fixture->backend->ops->matmul(fixture->backend, &(struct matmul_args){.weight = weight->weight,
                                                                          .x = on_device(x),
                                                                          .out = on_device(out),
                                                                          .bias = on_device(bias),
                                                                          .accumulate = accumulate,
                                                                          .rows = rows});
}

static void run_joined(struct fixture *fixture, const struct small_layer *layer, uint32_t rows,
                       float *query, float *key, float *x)
{
    const struct project_output outputs[] = {
        {layer->query.weight, on_device(query), on_device(layer->bias)},
        {layer->key.weight, on_device(key), {0}},
    };
    fixture->backend->ops->project(fixture->backend,
                                   &(struct project_args){.x = on_device(x),
                                                          .gain = on_device(layer->gain),
                                                          .epsilon = 1e-5f,
                                                          .outputs = outputs,
                                                          .output_count = 2,
                                                          .rows = rows});
    fixture->backend->ops->feed_forward(fixture->backend,
                                        &(struct feed_forward_args){.x = on_device(x),
                                                                    .gain = on_device(layer->gain),
                                                                    .epsilon = 1e-5f,
                                                                    .gate = layer->gate.weight,
                                                                    .up = layer->up.weight,
                                                                    .down = layer->down.weight,
                                                                    .rows = rows});
}

static void run_steps(struct fixture *fixture, const struct small_layer *layer, uint32_t rows,
                      float *query, float *key, float *x)
{
    const struct backend_ops *ops = fixture->backend->ops;
    float *normed = malloc((size_t)rows * LAYER_WIDTH * sizeof(float));
    float *gate = malloc((size_t)rows * LAYER_INNER * sizeof(float));
    float *up = malloc((size_t)rows * LAYER_INNER * sizeof(float));
    ops->rms_norm(fixture->backend, on_device(x), on_device(layer->gain), 1e-5f, rows, LAYER_WIDTH,
                  on_device(normed));
    multiply(fixture, &layer->query, normed, layer->bias, false, rows, query);
    multiply(fixture, &layer->key, normed, NULL, false, rows, key);
    multiply(fixture, &layer->gate, normed, NULL, false, rows, gate);
    multiply(fixture, &layer->up, normed, NULL, false, rows, up);
    ops->swiglu(fixture->backend, on_device(gate), on_device(up), rows, LAYER_INNER,
                on_device(gate));
    multiply(fixture, &layer->down, gate, NULL, true, rows, x);
    free(normed);
    free(gate);
    free(up);
}

/* What is joined gives the bits of its steps, also where weights want unlike activations. */
static void joined_operations(enum activation_mode mode)
{
    const size_t bytes = (size_t)LAYER_ROWS * LAYER_WIDTH * sizeof(float);
    float *query[2] = {malloc(bytes), malloc(bytes)};
    float *key[2] = {malloc(bytes), malloc(bytes)};
    float *x[2] = {malloc(bytes), malloc(bytes)};
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        for (enum weight_kind kind = WEIGHT_F32; kind <= WEIGHT_Q4A; kind++) {
            if (!kind_worth(mode, kind))
                continue;
            struct fixture fixture = fixture_open(*isa, mode, 2);
            struct small_layer layer;
            small_layer_make(&fixture, &layer, kind, kind % 2 ? WEIGHT_BF16 : kind);
            for (uint32_t rows = 1; rows <= LAYER_ROWS; rows += rows < 4 ? 1 : 23) {
                for (int i = 0; i < 2; i++)
                    memcpy(x[i], layer.x, bytes);
                run_steps(&fixture, &layer, rows, query[0], key[0], x[0]);
                run_joined(&fixture, &layer, rows, query[1], key[1], x[1]);
                assert_same_bits(query[0], query[1], (size_t)rows * LAYER_WIDTH, "query", *isa,
                                 (int)kind);
                assert_same_bits(key[0], key[1], (size_t)rows * LAYER_KEYS, "key", *isa, (int)kind);
                assert_same_bits(x[0], x[1], (size_t)LAYER_ROWS * LAYER_WIDTH, "x", *isa,
                                 (int)kind);
            }
            small_layer_free(&fixture, &layer);
            fixture_close(&fixture);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(query[i]);
        free(key[i]);
        free(x[i]);
    }
}

Test(invariance, joined_operations_are_their_steps)
{
    for (enum activation_mode mode = ACTIVATION_NATIVE; mode < ACTIVATION_MODE_COUNT; mode++)
        joined_operations(mode);
}

static const struct top_entry *largest(const float *row, const bool *taken, uint32_t count,
                                       struct top_entry *out)
{
    out->id = -1;
    for (uint32_t i = 0; i < count; i++)
        if (!taken[i] && (out->id < 0 || row[i] > out->value))
            *out = (struct top_entry){row[i], (int32_t)i};
    return out;
}

/* The largest outputs without the product are those of the product, ties to the lowest id, for any
 * number of rows and members. */
Test(invariance, the_largest_outputs_are_those_of_the_product)
{
    enum { N = 1100, K = 96, COUNT = 5, IDS = N - 7, ROWS = 40 };
    float *x = random_floats(71, (size_t)ROWS * K), *gain = random_floats(72, K);
    float *product = malloc((size_t)ROWS * N * sizeof(float));
    static const enum weight_kind kinds[] = {WEIGHT_F32, WEIGHT_BF16, WEIGHT_Q8, WEIGHT_Q4A};
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        for (uint32_t i = 0; i < 12; i++) {
            const enum weight_kind kind = kinds[i % 4];
            struct fixture fixture = fixture_open(*isa, ACTIVATION_NATIVE, 1 + i / 4);
            struct fixture_weight weight;
            fixture_weight_make(&fixture, &weight, kind, N, K, 73);
            const struct project_output output = {weight.weight, on_device(product), {0}};
            const struct project_args whole = {.x = on_device(x),
                                               .gain = on_device(gain),
                                               .epsilon = 1e-5f,
                                               .outputs = &output,
                                               .output_count = 1,
                                               .rows = ROWS};
            fixture.backend->ops->project(fixture.backend, &whole);
            for (uint32_t rows = 1; rows <= ROWS; rows += rows < 4 ? 1 : 18) {
                struct top_entry top[ROWS][COUNT];
                const struct project_top_args args = {.x = on_device(x),
                                                      .gain = on_device(gain),
                                                      .epsilon = 1e-5f,
                                                      .weight = weight.weight,
                                                      .id_count = IDS,
                                                      .count = COUNT,
                                                      .rows = rows,
                                                      .out = top[0]};
                fixture.backend->ops->project_top(fixture.backend, &args);
                for (uint32_t row = 0; row < rows; row++) {
                    bool taken[IDS] = {false};
                    for (uint32_t place = 0; place < COUNT; place++) {
                        struct top_entry best;
                        largest(product + (size_t)row * N, taken, IDS, &best);
                        taken[best.id] = true;
                        cr_assert_eq(top[row][place].id, best.id, "%s, kind %d, row %u, place %u",
                                     *isa, (int)kind, row, place);
                        assert_same_bits(&best.value, &top[row][place].value, 1, "top", *isa,
                                         (int)kind);
                    }
                }
            }
            fixture_weight_free(&fixture, &weight);
            fixture_close(&fixture);
        }
    }
    free(x);
    free(gain);
    free(product);
}

static size_t output_count(const struct fixture_sequence *sequence)
{
    return (size_t)sequence->tokens * sequence->heads * sequence->head_dim;
}

/* Head counts and what a row sees. */
struct attention_kind {
    uint32_t heads, kv_heads, head_dim, window;
    float soft_cap;
};

/* The sequence attended in chunks that end at the given tokens. */
static float *in_chunks(struct fixture *fixture, enum kv_dtype dtype,
                        const struct attention_kind *kind, uint32_t tokens, uint32_t stride,
                        const uint32_t *ends)
{
    struct fixture_sequence sequence;
    fixture_sequence_make(&sequence, dtype, tokens, kind->heads, kind->kv_heads, kind->head_dim,
                          stride, 21);
    sequence.window = kind->window;
    sequence.soft_cap = kind->soft_cap;
    float *out = malloc(output_count(&sequence) * sizeof(float));
    uint32_t first = 0;
    for (uint32_t i = 0; first < tokens; i++) {
        fixture_chunk(fixture, &sequence, first, ends[i], out);
        first = ends[i];
    }
    for (size_t i = 0; i < output_count(&sequence); i++)
        cr_assert(isfinite(out[i]), "poison of an unwritten token reached element %zu", i);
    fixture_sequence_free(&sequence);
    return out;
}

enum { CHUNKED_TOKENS = 600 };

/* With teams of 1 to `threads_most` members. */
static void attention_by_chunk_and_page(enum kv_dtype dtype, const struct attention_kind *kind,
                                        uint32_t threads_most)
{
    enum { TOKENS = CHUNKED_TOKENS };
    static const uint32_t whole[] = {TOKENS};
    static const uint32_t cuts[][6] = {
        {1, TOKENS},
        {63, 64, 65, 511, 512, TOKENS},
        {100, 300, 513, 514, 599, TOKENS},
        {16, 17, 33, 576, TOKENS},
    };
    struct fixture one = fixture_open("ref", ACTIVATION_AUTO, 1);
    float *expected = in_chunks(&one, dtype, kind, TOKENS, 1, whole);
    fixture_close(&one);
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        for (uint32_t threads = 1; threads <= threads_most; threads++) {
            struct fixture fixture = fixture_open(*isa, ACTIVATION_AUTO, threads);
            for (uint32_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
                /* Each cut with its own scatter of pages. */
                float *actual = in_chunks(&fixture, dtype, kind, TOKENS, 1 + 5 * i, cuts[i]);
                assert_same_bits(expected, actual, (size_t)TOKENS * kind->heads * kind->head_dim,
                                 "chunks", *isa, (int)i);
                free(actual);
            }
            fixture_close(&fixture);
        }
    }
    free(expected);
}

/* Groups of 1, 3, 4, 7 and 8, one key/value head for all, every fast head size; window and cap. */
Test(invariance, attention_by_chunk_and_page)
{
    static const struct attention_kind kinds[] = {
        {6, 2, 64, 0, 0},  {2, 2, 80, 0, 0},   {4, 1, 96, 100, 0}, {7, 1, 64, 0, 20},
        {8, 1, 128, 0, 0}, {6, 2, 64, 513, 4}, {3, 3, 18, 64, 0},
    };
    for (enum kv_dtype dtype = KV_F32; dtype < KV_DTYPE_COUNT; dtype++)
        for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            if (i % 3 == dtype || i == 0)
                attention_by_chunk_and_page(dtype, &kinds[i], i == 0 ? 3 : 1);
}

/* Three sequences of unlike length and phase in one call, against each alone. */
Test(invariance, attention_by_batch)
{
    enum { COUNT = 3, HEADS = 6, DIM = 64 };
    static const uint32_t tokens[COUNT] = {70, 9, 530};
    static const uint32_t last_rows[COUNT] = {1, 9, 40}; /* of the batched call */
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        struct fixture fixture = fixture_open(*isa, ACTIVATION_AUTO, 2);
        struct fixture_sequence sequences[COUNT];
        struct batch_sequence batch[COUNT];
        float *q = malloc((size_t)50 * HEADS * DIM * sizeof(float));
        float *out = malloc((size_t)50 * HEADS * DIM * sizeof(float));
        float *alone[COUNT];
        /* One pool for all: its slots are shared out, so the others' pages are foreign to each. */
        struct fixture_sequence pool;
        fixture_sequence_make(&pool, KV_BF16, 1000, HEADS, 2, DIM, 1, 40);
        uint32_t row = 0;
        uint32_t slot = 3;
        for (uint32_t s = 0; s < COUNT; s++) {
            fixture_sequence_make(&sequences[s], KV_BF16, tokens[s], HEADS, 2, DIM, 1, 41 + s);
            sequences[s].view = pool.view;
            for (uint32_t page = 0; page * 64 < tokens[s]; page++)
                sequences[s].slots[page] = slot++;
            alone[s] = malloc(output_count(&sequences[s]) * sizeof(float));
            fixture_chunk(&fixture, &sequences[s], 0, tokens[s], alone[s]);
            batch[s] = (struct batch_sequence){.first_row = row,
                                               .row_count = last_rows[s],
                                               .position = tokens[s] - last_rows[s],
                                               .slots = sequences[s].slots};
            memcpy(q + (size_t)row * HEADS * DIM,
                   sequences[s].q + (size_t)batch[s].position * HEADS * DIM,
                   (size_t)last_rows[s] * HEADS * DIM * sizeof(float));
            row += last_rows[s];
        }
        fixture.backend->ops->attention(fixture.backend,
                                        &(struct attention_args){.q = on_device(q),
                                                                 .out = on_device(out),
                                                                 .heads = HEADS,
                                                                 .scale = 0.125f,
                                                                 .kv = pool.view,
                                                                 .sequences = batch,
                                                                 .sequence_count = COUNT});
        for (uint32_t s = 0; s < COUNT; s++) {
            assert_same_bits(alone[s] + (size_t)batch[s].position * HEADS * DIM,
                             out + (size_t)batch[s].first_row * HEADS * DIM,
                             (size_t)last_rows[s] * HEADS * DIM, "sequence", *isa, (int)s);
            free(alone[s]);
            fixture_sequence_free(&sequences[s]);
        }
        fixture_sequence_free(&pool);
        free(q);
        free(out);
        fixture_close(&fixture);
    }
}

/* Rewriting pages with the same tokens gives the same bytes, written one by one or all at once, by
 * one thread or several; unwritten tokens keep theirs. */
Test(invariance, page_bytes)
{
    enum { TOKENS = 200 };
    for (enum kv_dtype dtype = KV_F32; dtype < KV_DTYPE_COUNT; dtype++) {
        struct fixture one = fixture_open("ref", ACTIVATION_AUTO, 1);
        struct fixture three = fixture_open(NULL, ACTIVATION_AUTO, 3);
        struct fixture_sequence a;
        struct fixture_sequence b;
        fixture_sequence_make(&a, dtype, TOKENS, 3, 3, 64, 4, 7);
        fixture_sequence_make(&b, dtype, TOKENS, 3, 3, 64, 4, 7);
        float *out = malloc(output_count(&a) * sizeof(float));
        for (uint32_t token = 0; token < TOKENS; token++)
            fixture_chunk(&one, &a, token, token + 1, out);
        fixture_chunk(&three, &b, 0, TOKENS, out);
        for (uint32_t page = 0; page < (TOKENS + 63) / 64; page++) {
            const size_t at = a.slots[page] * a.view.page_bytes;
            cr_assert_arr_eq(a.pages + at, b.pages + at, a.view.page_bytes);
        }
        free(out);
        fixture_sequence_free(&a);
        fixture_sequence_free(&b);
        fixture_close(&one);
        fixture_close(&three);
    }
}

enum { TURNED_ROWS = 50, TURNED_HEADS = 4, TURNED_KV_HEADS = 2, TURNED_DIM = 20 };

/* Rows of two sequences, q in place; by steps or in one pass. */
static void turn(struct fixture *fixture, bool joined, enum rope_pairing pairing,
                 const struct fixture_sequence *sequence, float *q)
{
    enum { ROTARY = 12 };
    const struct backend_ops *ops = fixture->backend->ops;
    float *k = malloc((size_t)TURNED_ROWS * TURNED_KV_HEADS * TURNED_DIM * sizeof(float));
    float *angles = random_floats(90, (size_t)TURNED_ROWS * ROTARY);
    memcpy(k, sequence->k, (size_t)TURNED_ROWS * TURNED_KV_HEADS * TURNED_DIM * sizeof(float));
    /* The second sequence's rows come first, and its pages follow the first one's. */
    const struct batch_sequence batch[] = {
        {.first_row = 13, .row_count = 37, .position = 5, .slots = sequence->slots},
        {.first_row = 0, .row_count = 13, .position = 64, .slots = sequence->slots + 1},
    };
    struct rope_args rope = {.x = on_device(q),
                             .cos = on_device(angles),
                             .sin = on_device(angles + TURNED_ROWS * ROTARY / 2),
                             .rows = TURNED_ROWS,
                             .heads = TURNED_HEADS,
                             .head_dim = TURNED_DIM,
                             .rotary = ROTARY,
                             .pairing = pairing};
    if (joined) {
        ops->rope_kv_write(fixture->backend, &(struct rope_kv_args){.q = rope.x,
                                                                    .k = on_device(k),
                                                                    .v = on_device(sequence->v),
                                                                    .cos = rope.cos,
                                                                    .sin = rope.sin,
                                                                    .heads = TURNED_HEADS,
                                                                    .rotary = ROTARY,
                                                                    .pairing = pairing,
                                                                    .kv = sequence->view,
                                                                    .sequences = batch,
                                                                    .sequence_count = 2});
    } else {
        ops->rope(fixture->backend, &rope);
        rope.x = on_device(k);
        rope.heads = TURNED_KV_HEADS;
        ops->rope(fixture->backend, &rope);
        ops->kv_write(fixture->backend, on_device(k), on_device(sequence->v), &sequence->view,
                      batch, 2);
    }
    free(k);
    free(angles);
}

/* Rotation and writing in one pass give the pages and queries of the three steps. */
Test(invariance, rotation_joined_with_writing)
{
    for (const char *const *isa = fixture_isas(); *isa; isa++) {
        struct fixture one = fixture_open("ref", ACTIVATION_AUTO, 1);
        struct fixture three = fixture_open(*isa, ACTIVATION_AUTO, 3);
        for (int i = 0; i < 2 * KV_DTYPE_COUNT; i++) {
            struct fixture_sequence steps;
            struct fixture_sequence joined;
            fixture_sequence_make(&steps, (enum kv_dtype)(i / 2), 200, TURNED_HEADS,
                                  TURNED_KV_HEADS, TURNED_DIM, 3, 91);
            fixture_sequence_make(&joined, (enum kv_dtype)(i / 2), 200, TURNED_HEADS,
                                  TURNED_KV_HEADS, TURNED_DIM, 3, 91);
            turn(&one, false, (enum rope_pairing)(i % 2), &steps, steps.q);
            turn(&three, true, (enum rope_pairing)(i % 2), &joined, joined.q);
            assert_same_bits(steps.q, joined.q, (size_t)TURNED_ROWS * TURNED_HEADS * TURNED_DIM,
                             "queries", *isa, i);
            for (uint32_t page = 0; page < 3; page++) {
                const size_t at = steps.slots[page] * steps.view.page_bytes;
                cr_assert_arr_eq(steps.pages + at, joined.pages + at, steps.view.page_bytes);
            }
            fixture_sequence_free(&steps);
            fixture_sequence_free(&joined);
        }
        fixture_close(&one);
        fixture_close(&three);
    }
}
