/* kv_write against an independent walk of the layout; attention against the reference and double,
 * with poison in every byte of the pages that no visible token owns. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"
#include "kernels/kv_layout.h"

enum { PAGE_TOKENS_LARGEST = 64 };

static enum kv_dtype dtype_of(const struct check *check)
{
    switch (check->row->slot) {
    case KERNEL_SLOT_kv_write_f32:
    case KERNEL_SLOT_attention_f32:
        return KV_F32;
    case KERNEL_SLOT_kv_write_bf16:
    case KERNEL_SLOT_attention_bf16:
        return KV_BF16;
    default:
        return KV_I8;
    }
}

static kv_write_kernel *writer_of(enum kv_dtype dtype)
{
    return dtype == KV_F32    ? kv_write_f32__ref
           : dtype == KV_BF16 ? kv_write_bf16__ref
                              : kv_write_i8__ref;
}

struct cache {
    enum kv_dtype dtype;
    struct kv_view view;
    uint32_t *slots; /* scattered block table */
    uint32_t tokens;
    float *k, *v; /* [tokens][kv_heads][head_dim], as given */
    uint8_t *pages;
    size_t pages_bytes;
};

static void scatter_slots(struct check *check, uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        slots[i] = i;
    for (uint32_t i = count - 1; i > 0; i--) {
        const uint32_t other = check_pick(check, 0, i);
        const uint32_t kept = slots[i];
        slots[i] = slots[other];
        slots[other] = kept;
    }
}

static void cache_make(struct check *check, struct cache *cache, enum kv_dtype dtype,
                       uint32_t tokens, uint32_t page_tokens, uint32_t kv_heads, uint32_t head_dim,
                       enum flavour flavour)
{
    const uint32_t page_count = (tokens + page_tokens - 1) / page_tokens;
    const size_t values = (size_t)tokens * kv_heads * head_dim;
    *cache = (struct cache){.dtype = dtype, .tokens = tokens};
    cache->slots = guard_allocate(page_count * sizeof(uint32_t));
    scatter_slots(check, cache->slots, page_count);
    cache->k = guard_allocate(values * sizeof(float));
    cache->v = guard_allocate(values * sizeof(float));
    fill_floats(check, flavour, cache->k, values);
    fill_floats(check, flavour, cache->v, values);
    /* Slots of a layer need not follow each other without a gap. */
    const size_t page_bytes = kv_page_bytes(dtype, page_tokens, kv_heads, head_dim) + 64;
    cache->pages_bytes = page_bytes * page_count;
    cache->pages = guard_allocate(cache->pages_bytes);
    memset(cache->pages, 0xff, cache->pages_bytes); /* NaN in floats, bf16 and scales */
    cache->view = (struct kv_view){
        .base = {(uint64_t)(uintptr_t)cache->pages},
        .page_bytes = page_bytes,
        .page_tokens = page_tokens,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .dtype = dtype,
    };
}

static void cache_write(const struct cache *cache, kv_write_kernel *kernel, uint32_t first,
                        uint32_t end)
{
    const size_t at = (size_t)first * cache->view.kv_heads * cache->view.head_dim;
    kernel(&(struct kv_write_task){.k = cache->k + at,
                                   .v = cache->v + at,
                                   .kv = &cache->view,
                                   .slots = cache->slots,
                                   .position = first,
                                   .rows = end - first});
}

/* A stored element, found without kv_layout.h: [K|V][kv_head]{[block], scales}, the order inside.
 */
static float stored(const struct cache *cache, uint32_t part, uint32_t token, uint32_t head,
                    uint32_t dim)
{
    const struct kv_view *view = &cache->view;
    const size_t padded = ((size_t)view->head_dim + 15) / 16 * 16;
    const size_t element = cache->dtype == KV_F32 ? 4 : cache->dtype == KV_BF16 ? 2 : 1;
    const size_t scale_bytes = cache->dtype == KV_I8 ? 4 : 0;
    const size_t in_page = token % view->page_tokens;
    const size_t t = in_page % 16;
    const uint8_t *strip = cache->pages +
                           cache->slots[token / view->page_tokens] * view->page_bytes +
                           ((size_t)part * view->kv_heads + head) * view->page_tokens *
                               (padded * element + scale_bytes);
    size_t index;
    if (cache->dtype == KV_F32)
        index = part == 0 ? dim * (size_t)16 + t : t * padded + dim;
    else
        index = part == 0 ? (dim / 2 * (size_t)16 + t) * 2 + dim % 2
                          : (t / 2 * padded + dim) * 2 + t % 2;
    const uint8_t *at = strip + (in_page / 16 * 16 * padded + index) * element;
    float value;
    uint16_t half;
    switch (cache->dtype) {
    case KV_F32:
        memcpy(&value, at, sizeof(value));
        return value;
    case KV_BF16:
        memcpy(&half, at, sizeof(half));
        return float_from_bf16(half);
    default:
        memcpy(&value, strip + view->page_tokens * padded + in_page * 4, sizeof(value));
        return float_from_bf16(bf16_from_float(value * (float)*(const int8_t *)at));
    }
}

static float rounded(const struct cache *cache, float value)
{
    return cache->dtype == KV_F32 ? value : float_from_bf16(bf16_from_float(value));
}

/* What should be stored of element `dim` of a head x of one token. */
static float storable(const struct cache *cache, const float *x, uint32_t dim)
{
    if (cache->dtype != KV_I8)
        return rounded(cache, x[dim]);
    float amax = 0;
    for (uint32_t i = 0; i < cache->view.head_dim; i++) {
        if (!isfinite(x[i]))
            return NAN;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (amax < 0x1p-100f)
        return 0;
    return rounded(cache, amax / 127 * (float)(int)rintf(x[dim] * (127 / amax)));
}

static void compare_stored(struct check *check, const struct cache *cache)
{
    const uint32_t heads = cache->view.kv_heads;
    const uint32_t head_dim = cache->view.head_dim;
    for (uint32_t token = 0; token < cache->tokens; token++) {
        for (uint32_t head = 0; head < heads; head++) {
            for (uint32_t dim = 0; dim < head_dim; dim++) {
                const size_t at = ((size_t)token * heads + head) * head_dim;
                const float k = storable(cache, cache->k + at, dim);
                const float v = storable(cache, cache->v + at, dim);
                const float got_k = stored(cache, 0, token, head, dim);
                const float got_v = stored(cache, 1, token, head, dim);
                if (!floats_equal(check, "k", &k, &got_k, 1, 1) ||
                    !floats_equal(check, "v", &v, &got_v, 1, 1)) {
                    check_fail(check, "at token %u head %u dim %u", token, head, dim);
                    return;
                }
            }
        }
    }
}

void check_kv_write(struct check *check)
{
    static const uint32_t page_sizes[] = {16, 32, 48, 64};
    const enum kv_dtype dtype = dtype_of(check);
    for (uint32_t round = 0; round < 30; round++) {
        const uint32_t page_tokens = page_sizes[round % 4];
        const uint32_t tokens = check_pick(check, 1, 150);
        const uint32_t kv_heads = check_pick(check, 1, 4);
        const uint32_t head_dim =
            round % 3 ? 16 * check_pick(check, 1, 8) : check_pick(check, 1, 70);
        check_case(check, "tokens=%u page=%u kv_heads=%u head_dim=%u", tokens, page_tokens,
                   kv_heads, head_dim);
        struct cache cache;
        cache_make(check, &cache, dtype, tokens, page_tokens, kv_heads, head_dim,
                   (enum flavour)(round % FLAVOUR_COUNT));
        const uint32_t cut = check_pick(check, 0, tokens);
        cache_write(&cache, (kv_write_kernel *)check->function, 0, cut);
        cache_write(&cache, (kv_write_kernel *)check->function, cut, tokens);
        compare_stored(check, &cache);
        uint8_t *pages = guard_allocate(cache.pages_bytes);
        memcpy(pages, cache.pages, cache.pages_bytes);
        memset(cache.pages, 0xff, cache.pages_bytes);
        cache_write(&cache, (kv_write_kernel *)check->reference, 0, tokens);
        bytes_equal(check, "the pages", cache.pages, pages, cache.pages_bytes);
        guards_check(check);
        guards_release();
    }
}

/* head_dim, group (query heads of a key/value head), rows: query tokens, the cache's last. */
struct attention_shape {
    uint32_t tokens, rows, kv_heads, group, head_dim;
    uint32_t window;
    float soft_cap;
    enum flavour flavour;
};

struct attention_case {
    struct attention_shape shape;
    struct cache cache;
    float *q; /* [rows][heads][head_dim] */
    void *scratch;
    float *partials; /* of every segment */
};

static uint32_t heads_of(const struct attention_case *attention)
{
    return attention->shape.kv_heads * attention->shape.group;
}

/* The first token that query token `row` sees. */
static uint32_t start_of(const struct attention_shape *shape, uint32_t row)
{
    const uint32_t end = shape->tokens - shape->rows + row + 1;
    return shape->window == 0 || shape->window > end ? 0 : end - shape->window;
}

/* Tokens before every row's window become NaN, pages of none but such no page at all. */
static void forget_unseen(const struct attention_case *attention)
{
    const struct cache *cache = &attention->cache;
    const uint32_t start = start_of(&attention->shape, 0);
    const size_t values = (size_t)start * cache->view.kv_heads * cache->view.head_dim;
    for (size_t i = 0; i < values; i++)
        cache->k[i] = cache->v[i] = NAN;
    if (start > 0)
        cache_write(cache, writer_of(cache->dtype), 0, start);
    for (uint32_t page = 0; (page + 1) * cache->view.page_tokens <= start; page++)
        cache->slots[page] = UINT32_MAX;
}

static void attention_make(struct check *check, struct attention_case *attention,
                           const struct attention_shape *shape)
{
    const uint32_t page_tokens = 16 * check_pick(check, 1, PAGE_TOKENS_LARGEST / 16);
    const enum kv_dtype dtype = dtype_of(check);
    check_case(
        check, "position=%u rows=%u kv_heads=%u group=%u head_dim=%u page=%u window=%u cap=%g %s",
        shape->tokens - shape->rows, shape->rows, shape->kv_heads, shape->group, shape->head_dim,
        page_tokens, shape->window, (double)shape->soft_cap, flavour_name(shape->flavour));
    attention->shape = *shape;
    cache_make(check, &attention->cache, dtype, shape->tokens, page_tokens, shape->kv_heads,
               shape->head_dim, shape->flavour);
    cache_write(&attention->cache, writer_of(dtype), 0, shape->tokens);
    forget_unseen(attention);
    const size_t values = (size_t)shape->rows * heads_of(attention) * shape->head_dim;
    attention->q = guard_allocate(values * sizeof(float));
    fill_floats(check, shape->flavour == FLAVOUR_NONFINITE ? FLAVOUR_NORMAL : shape->flavour,
                attention->q, values);
    attention->scratch = guard_allocate(attention_scratch_bytes(shape->head_dim));
    attention->partials = guard_allocate((shape->tokens / ATTENTION_SEGMENT + 1) *
                                         attention_partial_bytes(shape->head_dim));
}

/* Segment by segment, the last first, then merged: what a backend does with few long rows. */
static void attention_by_segment(attention_kernel *function, struct attention_task task,
                                 uint32_t start, float *partials)
{
    const uint32_t group = task.heads / task.kv->kv_heads;
    const uint32_t longest = task.position + (task.row_first + task.row_count - 1) / group + 1;
    const uint32_t segments = (longest + ATTENTION_SEGMENT - 1) / ATTENTION_SEGMENT;
    task.partials = partials;
    for (uint32_t segment = segments; segment-- > start / ATTENTION_SEGMENT;) {
        task.segment_first = segment;
        task.segment_end = segment + 1;
        function(&task);
    }
    attention_merge(&task);
}

/* All rows in tiles of `tile`, all key/value heads; tile 0: in one tile, by segments. */
static float *attention_run(const struct attention_case *attention, void (*function)(void),
                            uint32_t tile)
{
    const bool by_segment = tile == 0;
    tile = tile ? tile : ATTENTION_TILE_ROWS;
    const struct attention_shape *shape = &attention->shape;
    const uint32_t heads = heads_of(attention);
    const uint32_t rows = shape->rows * shape->group;
    float *out = guard_allocate((size_t)shape->rows * heads * shape->head_dim * sizeof(float));
    for (uint32_t kv_head = 0; kv_head < shape->kv_heads; kv_head++) {
        for (uint32_t row = 0; row < rows; row += tile) {
            const struct attention_task task = {
                .q = attention->q,
                .out = out,
                .heads = heads,
                .kv_head = kv_head,
                .head_dim = shape->head_dim,
                .scale = 1.0f / sqrtf((float)shape->head_dim),
                .soft_cap = shape->soft_cap,
                .window = shape->window,
                .kv = &attention->cache.view,
                .slots = attention->cache.slots,
                .position = shape->tokens - shape->rows,
                .row_first = row,
                .row_count = rows - row < tile ? rows - row : tile,
                .scratch = attention->scratch,
                .segment_end = ATTENTION_ALL_SEGMENTS,
            };
            if (by_segment)
                attention_by_segment((attention_kernel *)function, task, start_of(shape, 0),
                                     attention->partials);
            else
                ((attention_kernel *)function)(&task);
        }
    }
    return out;
}

static void attention_compare(struct check *check, struct attention_case *attention)
{
    const size_t width = (size_t)heads_of(attention) * attention->shape.head_dim;
    const uint32_t rows = attention->shape.rows;
    const float *expected = attention_run(attention, check->reference, ATTENTION_TILE_ROWS);
    const float *whole = attention_run(attention, check->function, ATTENTION_TILE_ROWS);
    if (floats_equal(check, "out", expected, whole, rows, width)) {
        const uint32_t tile = check_pick(check, 1, ATTENTION_TILE_ROWS - 1);
        const float *cut = attention_run(attention, check->function, tile);
        floats_equal(check, "out (other tiles)", expected, cut, rows, width);
        if (attention->cache.dtype != KV_F32) {
            const float *merged = attention_run(attention, check->function, 0);
            floats_equal(check, "out (by segments)", expected, merged, rows, width);
        }
    }
    guards_check(check);
    guards_release();
}

/* exact: everything in double. plain: float, the usual two passes; over bf16 and int8 pages queries
 * and weights are rounded to bf16 as anyone who multiplies in bf16 would. */
static void attend_plainly(const struct attention_case *attention, uint32_t row, uint32_t head,
                           double *exact, float *plain)
{
    enum { TOKENS_MAX = 1100 };
    static double weight[TOKENS_MAX];
    static float weight_plain[TOKENS_MAX];
    const struct cache *cache = &attention->cache;
    const struct attention_shape *shape = &attention->shape;
    const uint32_t head_dim = shape->head_dim;
    const uint32_t kv_head = head / shape->group;
    const uint32_t start = start_of(shape, row);
    const uint32_t end = shape->tokens - shape->rows + row + 1;
    const float *q = attention->q + ((size_t)row * heads_of(attention) + head) * head_dim;
    const float scale = 1.0f / sqrtf((float)head_dim);
    const float cap = shape->soft_cap;
    double largest = -INFINITY;
    float largest_plain = -INFINITY;
    CHECK(end <= TOKENS_MAX);
    for (uint32_t t = start; t < end; t++) {
        double dot = 0;
        float dot_plain = 0;
        for (uint32_t dim = 0; dim < head_dim; dim++) {
            const float k = stored(cache, 0, t, kv_head, dim);
            dot += (double)q[dim] * k;
            dot_plain += rounded(cache, q[dim] * scale) * k;
        }
        weight[t] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
        weight_plain[t] = cap > 0 ? cap * tanhf(dot_plain / cap) : dot_plain;
        largest = fmax(largest, weight[t]);
        largest_plain = fmaxf(largest_plain, weight_plain[t]);
    }
    double total = 0;
    float total_plain = 0;
    for (uint32_t t = start; t < end; t++) {
        total += weight[t] = exp(weight[t] - largest);
        total_plain += weight_plain[t] = expf(weight_plain[t] - largest_plain);
    }
    for (uint32_t dim = 0; dim < head_dim; dim++) {
        exact[dim] = 0;
        plain[dim] = 0;
        for (uint32_t t = start; t < end; t++) {
            exact[dim] += weight[t] / total * stored(cache, 1, t, kv_head, dim);
            plain[dim] += rounded(cache, weight_plain[t]) * stored(cache, 1, t, kv_head, dim);
        }
        plain[dim] /= total_plain;
    }
}

static void attention_precision(struct check *check, uint32_t window, float soft_cap)
{
    struct attention_case attention;
    attention_make(check, &attention,
                   &(struct attention_shape){.tokens = 1030,
                                             .rows = 6,
                                             .kv_heads = 2,
                                             .group = 3,
                                             .head_dim = 64,
                                             .window = window,
                                             .soft_cap = soft_cap});
    const uint32_t heads = heads_of(&attention);
    const size_t count = (size_t)attention.shape.rows * heads * 64;
    double *exact = guard_allocate(count * sizeof(double));
    float *plain = guard_allocate(count * sizeof(float));
    for (uint32_t row = 0; row < attention.shape.rows; row++)
        for (uint32_t head = 0; head < heads; head++)
            attend_plainly(&attention, row, head, exact + ((size_t)row * heads + head) * 64,
                           plain + ((size_t)row * heads + head) * 64);
    const float *actual = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    precision_check(check, exact, plain, actual, count);
    guards_release();
}

/* What lies past a row's position must not matter: finite rubbish instead of NaN, same bits. */
static void attention_poison(struct check *check)
{
    const uint32_t poisoned = 20;
    struct attention_case attention;
    attention_make(check, &attention,
                   &(struct attention_shape){
                       .tokens = 90, .rows = 40, .kv_heads = 2, .group = 3, .head_dim = 64});
    const uint32_t rows = attention.shape.rows;
    const size_t row_values = (size_t)2 * 3 * 64;
    const float *expected = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    for (size_t i = 0; i < rows * row_values; i++) {
        if (!isfinite(expected[i])) {
            check_fail(check, "NaN of an unwritten token reached out (%zu, %zu)", i / row_values,
                       i % row_values);
            break;
        }
    }
    /* The last 20 tokens become NaN: rows before them keep their bits, rows after are NaN. */
    const struct kv_view *view = &attention.cache.view;
    for (uint32_t t = 90 - poisoned; t < 90; t++)
        for (uint32_t i = 0; i < view->kv_heads * view->head_dim; i++) {
            attention.cache.k[(size_t)t * view->kv_heads * view->head_dim + i] = NAN;
            attention.cache.v[(size_t)t * view->kv_heads * view->head_dim + i] = INFINITY;
        }
    cache_write(&attention.cache, writer_of(attention.cache.dtype), 90 - poisoned, 90);
    const float *actual = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    floats_equal(check, "out (later tokens poisoned)", expected, actual, rows - poisoned,
                 row_values);
    for (size_t i = (rows - poisoned) * row_values; i < rows * row_values; i++)
        if (!isnan(actual[i])) {
            check_fail(check, "a NaN key gave %g at (%zu, %zu)", (double)actual[i], i / row_values,
                       i % row_values);
            break;
        }
    guards_release();
}

void check_attention(struct check *check)
{
    static const uint32_t groups[] = {1, 3, 4, 7, 8, 9};
    static const uint32_t head_dims[] = {64, 80, 96, 128, 256, 16, 18, 7, 1};
    static const uint32_t edges[] = {1,   15,  16,  17,  63,  64,   65,   127,
                                     128, 511, 512, 513, 575, 1023, 1024, 1026};
    static const uint32_t windows[] = {1, 2, 15, 17, 63, 64, 65, 100, 128, 129};
    static const uint32_t long_windows[] = {511, 512, 513, 700, 1024, 1200};
    struct attention_case attention;
    for (size_t i = 0; i < ARRAY_COUNT(edges); i++) {
        const struct attention_shape shape = {
            .tokens = edges[i],
            .rows = edges[i] < 9 ? edges[i] : check_pick(check, 1, 9),
            .kv_heads = 2,
            .group = groups[i % 6],
            .head_dim = 32,
        };
        attention_make(check, &attention, &shape);
        attention_compare(check, &attention);
    }
    for (size_t i = 0; i < ARRAY_COUNT(long_windows); i++) {
        const struct attention_shape shape = {
            .tokens = check_pick(check, 1000, 1600),
            .rows = check_pick(check, 1, 200),
            .kv_heads = 1,
            .group = groups[i % 6],
            .head_dim = 16,
            .window = long_windows[i],
        };
        attention_make(check, &attention, &shape);
        attention_compare(check, &attention);
    }
    for (uint32_t round = 0; round < 54; round++) {
        const uint32_t tokens = check_pick(check, 1, 300);
        const struct attention_shape shape = {
            .tokens = tokens,
            .rows = check_pick(check, 1, tokens < 60 ? tokens : 60),
            .kv_heads = check_pick(check, 1, 3),
            .group = groups[round % 6],
            .head_dim = head_dims[round % 9],
            .window = round % 3 == 1 ? windows[check_pick(check, 0, 9)] : 0,
            .soft_cap = round % 4 == 2   ? 3.0f
                        : round % 8 == 5 ? 50.0f
                                         : 0.0f,
            .flavour = (enum flavour)(round / 2 % FLAVOUR_COUNT),
        };
        attention_make(check, &attention, &shape);
        attention_compare(check, &attention);
    }
    attention_poison(check);
    attention_precision(check, 0, 0.0f);
    attention_precision(check, 300, 0.0f);
    attention_precision(check, 600, 2.0f);
    attention_precision(check, 0, 50.0f);
}
