/* kv_write against an independent walk of the layout; attention against the reference and double,
 * with poison in every byte of the pages that no visible token owns. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"
#include "kernels/kv_layout.h"

enum { PAGE_TOKENS_LARGEST = 64 };

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
    memset(cache->pages, 0xff, cache->pages_bytes); /* NaN in both dtypes */
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

/* A stored element, found without kv_layout.h: [K|V][kv_head][block] and the order inside. */
static float stored(const struct cache *cache, uint32_t part, uint32_t token, uint32_t head,
                    uint32_t dim)
{
    const struct kv_view *view = &cache->view;
    const size_t padded = ((size_t)view->head_dim + 15) / 16 * 16;
    const size_t element = cache->dtype == KV_F32 ? 4 : 2;
    const size_t slot = cache->slots[token / view->page_tokens];
    const size_t in_page = token % view->page_tokens;
    const size_t t = in_page % 16;
    const size_t block =
        ((size_t)part * view->kv_heads + head) * (view->page_tokens / 16) + in_page / 16;
    size_t index;
    if (cache->dtype == KV_F32)
        index = part == 0 ? dim * (size_t)16 + t : t * padded + dim;
    else
        index = part == 0 ? (dim / 2 * (size_t)16 + t) * 2 + dim % 2
                          : (t / 2 * padded + dim) * 2 + t % 2;
    const uint8_t *at =
        cache->pages + slot * view->page_bytes + (block * 16 * padded + index) * element;
    if (cache->dtype == KV_F32) {
        float value;
        memcpy(&value, at, sizeof(value));
        return value;
    }
    uint16_t value;
    memcpy(&value, at, sizeof(value));
    return float_from_bf16(value);
}

static float rounded(const struct cache *cache, float value)
{
    return cache->dtype == KV_F32 ? value : float_from_bf16(bf16_from_float(value));
}

static void compare_stored(struct check *check, const struct cache *cache)
{
    const uint32_t heads = cache->view.kv_heads;
    const uint32_t head_dim = cache->view.head_dim;
    for (uint32_t token = 0; token < cache->tokens; token++) {
        for (uint32_t head = 0; head < heads; head++) {
            for (uint32_t dim = 0; dim < head_dim; dim++) {
                const size_t at = ((size_t)token * heads + head) * head_dim + dim;
                const float k = rounded(cache, cache->k[at]);
                const float v = rounded(cache, cache->v[at]);
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
    const enum kv_dtype dtype = check->row->slot == KERNEL_SLOT_kv_write_f32 ? KV_F32 : KV_BF16;
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

struct attention_case {
    struct cache cache;
    uint32_t group; /* query heads per key/value head */
    uint32_t rows;  /* query tokens, the last of the cache's */
    float *q;       /* [rows][heads][head_dim] */
    void *scratch;
    float *partials; /* of every segment */
};

static void attention_make(struct check *check, struct attention_case *attention,
                           enum kv_dtype dtype, uint32_t tokens, uint32_t rows, uint32_t kv_heads,
                           uint32_t group, uint32_t head_dim, enum flavour flavour)
{
    const uint32_t page_tokens = 16 * check_pick(check, 1, PAGE_TOKENS_LARGEST / 16);
    check_case(check, "position=%u rows=%u kv_heads=%u group=%u head_dim=%u page=%u %s",
               tokens - rows, rows, kv_heads, group, head_dim, page_tokens, flavour_name(flavour));
    cache_make(check, &attention->cache, dtype, tokens, page_tokens, kv_heads, head_dim, flavour);
    cache_write(&attention->cache, dtype == KV_F32 ? kv_write_f32__ref : kv_write_bf16__ref, 0,
                tokens);
    attention->group = group;
    attention->rows = rows;
    const size_t values = (size_t)rows * kv_heads * group * head_dim;
    attention->q = guard_allocate(values * sizeof(float));
    fill_floats(check, flavour == FLAVOUR_NONFINITE ? FLAVOUR_NORMAL : flavour, attention->q,
                values);
    attention->scratch = guard_allocate(attention_scratch_bytes(head_dim));
    attention->partials =
        guard_allocate((tokens / ATTENTION_SEGMENT + 1) * attention_partial_bytes(head_dim));
}

/* Segment by segment, the last first, then merged: what a backend does with few long rows. */
static void attention_by_segment(attention_kernel *function, struct attention_task task,
                                 float *partials)
{
    const uint32_t group = task.heads / task.kv->kv_heads;
    const uint32_t longest = task.position + (task.row_first + task.row_count - 1) / group + 1;
    const uint32_t segments = (longest + ATTENTION_SEGMENT - 1) / ATTENTION_SEGMENT;
    task.partials = partials;
    for (uint32_t segment = segments; segment-- > 0;) {
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
    const struct kv_view *view = &attention->cache.view;
    const uint32_t heads = view->kv_heads * attention->group;
    const uint32_t rows = attention->rows * attention->group;
    float *out = guard_allocate((size_t)attention->rows * heads * view->head_dim * sizeof(float));
    for (uint32_t kv_head = 0; kv_head < view->kv_heads; kv_head++) {
        for (uint32_t row = 0; row < rows; row += tile) {
            const struct attention_task task = {
                .q = attention->q,
                .out = out,
                .heads = heads,
                .kv_head = kv_head,
                .head_dim = view->head_dim,
                .scale = 1.0f / sqrtf((float)view->head_dim),
                .kv = view,
                .slots = attention->cache.slots,
                .position = attention->cache.tokens - attention->rows,
                .row_first = row,
                .row_count = rows - row < tile ? rows - row : tile,
                .scratch = attention->scratch,
                .segment_end = ATTENTION_ALL_SEGMENTS,
            };
            if (by_segment)
                attention_by_segment((attention_kernel *)function, task, attention->partials);
            else
                ((attention_kernel *)function)(&task);
        }
    }
    return out;
}

static void attention_compare(struct check *check, struct attention_case *attention)
{
    const size_t width =
        (size_t)attention->cache.view.kv_heads * attention->group * attention->cache.view.head_dim;
    const float *expected = attention_run(attention, check->reference, ATTENTION_TILE_ROWS);
    const float *whole = attention_run(attention, check->function, ATTENTION_TILE_ROWS);
    if (floats_equal(check, "out", expected, whole, attention->rows, width)) {
        const uint32_t tile = check_pick(check, 1, ATTENTION_TILE_ROWS - 1);
        const float *cut = attention_run(attention, check->function, tile);
        floats_equal(check, "out (other tiles)", expected, cut, attention->rows, width);
        if (attention->cache.dtype == KV_BF16) {
            const float *merged = attention_run(attention, check->function, 0);
            floats_equal(check, "out (by segments)", expected, merged, attention->rows, width);
        }
    }
    guards_check(check);
    guards_release();
}

/* exact: everything in double. plain: float, the usual two passes; over bf16 pages queries and
 * weights are rounded to bf16 as anyone who multiplies in bf16 would. */
static void attend_plainly(const struct attention_case *attention, uint32_t row, uint32_t head,
                           double *exact, float *plain)
{
    enum { TOKENS_MAX = 1100 };
    static double weight[TOKENS_MAX];
    static float weight_plain[TOKENS_MAX];
    const struct cache *cache = &attention->cache;
    const uint32_t head_dim = cache->view.head_dim;
    const uint32_t heads = cache->view.kv_heads * attention->group;
    const uint32_t kv_head = head / attention->group;
    const uint32_t visible = cache->tokens - attention->rows + row + 1;
    const float *q = attention->q + ((size_t)row * heads + head) * head_dim;
    const float scale = 1.0f / sqrtf((float)head_dim);
    double largest = -INFINITY;
    float largest_plain = -INFINITY;
    CHECK(visible <= TOKENS_MAX);
    for (uint32_t t = 0; t < visible; t++) {
        double dot = 0;
        float dot_plain = 0;
        for (uint32_t dim = 0; dim < head_dim; dim++) {
            const float k = stored(cache, 0, t, kv_head, dim);
            dot += (double)q[dim] * k;
            dot_plain += rounded(cache, q[dim] * scale) * k;
        }
        weight[t] = dot * scale;
        weight_plain[t] = dot_plain;
        largest = fmax(largest, weight[t]);
        largest_plain = fmaxf(largest_plain, weight_plain[t]);
    }
    double total = 0;
    float total_plain = 0;
    for (uint32_t t = 0; t < visible; t++) {
        total += weight[t] = exp(weight[t] - largest);
        total_plain += weight_plain[t] = expf(weight_plain[t] - largest_plain);
    }
    for (uint32_t dim = 0; dim < head_dim; dim++) {
        exact[dim] = 0;
        plain[dim] = 0;
        for (uint32_t t = 0; t < visible; t++) {
            exact[dim] += weight[t] / total * stored(cache, 1, t, kv_head, dim);
            plain[dim] += rounded(cache, weight_plain[t]) * stored(cache, 1, t, kv_head, dim);
        }
        plain[dim] /= total_plain;
    }
}

static void attention_precision(struct check *check, enum kv_dtype dtype)
{
    struct attention_case attention;
    attention_make(check, &attention, dtype, 1030, 6, 2, 3, 64, FLAVOUR_NORMAL);
    const uint32_t heads = 6;
    const size_t count = (size_t)attention.rows * heads * 64;
    double *exact = guard_allocate(count * sizeof(double));
    float *plain = guard_allocate(count * sizeof(float));
    for (uint32_t row = 0; row < attention.rows; row++)
        for (uint32_t head = 0; head < heads; head++)
            attend_plainly(&attention, row, head, exact + ((size_t)row * heads + head) * 64,
                           plain + ((size_t)row * heads + head) * 64);
    const float *actual = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    precision_check(check, exact, plain, actual, count);
    guards_release();
}

/* What lies past a row's position must not matter: finite rubbish instead of NaN, same bits. */
static void attention_poison(struct check *check, enum kv_dtype dtype)
{
    struct attention_case attention;
    attention_make(check, &attention, dtype, 90, 40, 2, 3, 64, FLAVOUR_NORMAL);
    const size_t row_values = (size_t)2 * 3 * 64;
    const float *expected = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    for (size_t i = 0; i < attention.rows * row_values; i++) {
        if (!isfinite(expected[i])) {
            check_fail(check, "NaN of an unwritten token reached out (%zu, %zu)", i / row_values,
                       i % row_values);
            break;
        }
    }
    /* The last 20 tokens become NaN: rows before them keep their bits, rows after are NaN. */
    const uint32_t poisoned = 20;
    const struct kv_view *view = &attention.cache.view;
    for (uint32_t t = 90 - poisoned; t < 90; t++)
        for (uint32_t i = 0; i < view->kv_heads * view->head_dim; i++) {
            attention.cache.k[(size_t)t * view->kv_heads * view->head_dim + i] = NAN;
            attention.cache.v[(size_t)t * view->kv_heads * view->head_dim + i] = INFINITY;
        }
    cache_write(&attention.cache, dtype == KV_F32 ? kv_write_f32__ref : kv_write_bf16__ref,
                90 - poisoned, 90);
    const float *actual = attention_run(&attention, check->function, ATTENTION_TILE_ROWS);
    floats_equal(check, "out (later tokens poisoned)", expected, actual, attention.rows - poisoned,
                 row_values);
    for (size_t i = (attention.rows - poisoned) * row_values; i < attention.rows * row_values; i++)
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
    const enum kv_dtype dtype = check->row->slot == KERNEL_SLOT_attention_f32 ? KV_F32 : KV_BF16;
    struct attention_case attention;
    for (size_t i = 0; i < ARRAY_COUNT(edges); i++) {
        const uint32_t rows = edges[i] < 9 ? edges[i] : check_pick(check, 1, 9);
        attention_make(check, &attention, dtype, edges[i], rows, 2, groups[i % 6], 32,
                       FLAVOUR_NORMAL);
        attention_compare(check, &attention);
    }
    for (uint32_t round = 0; round < 36; round++) {
        const uint32_t tokens = check_pick(check, 1, 300);
        const uint32_t rows = check_pick(check, 1, tokens < 60 ? tokens : 60);
        attention_make(check, &attention, dtype, tokens, rows, check_pick(check, 1, 3),
                       groups[round % 6], head_dims[round % 9],
                       (enum flavour)(round / 2 % FLAVOUR_COUNT));
        attention_compare(check, &attention);
    }
    attention_poison(check, dtype);
    attention_precision(check, dtype);
}
