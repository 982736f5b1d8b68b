/* The accounting of a forward call: time of each part through the model's hook, work by formula.
 *
 * Bytes are those that cannot be kept in a cache from one call to the next: weights once a call,
 * keys and values once a sequence and layer. Activations count only where nothing else moves. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ops/baton/bench_model.h"

/* As in kernels/README.md, of one element. */
enum { NORM_OPERATIONS = 4, ROPE_OPERATIONS = 3 };

const char *model_part_name(enum forward_part part)
{
    static const char *const names[FORWARD_PART_COUNT] = {
        [FORWARD_EMBEDDING] = "embedding", [FORWARD_ROWS] = "norm, rope, KV write",
        [FORWARD_QKV] = "QKV projections", [FORWARD_ATTENTION] = "attention",
        [FORWARD_OUTPUT] = "O projection", [FORWARD_MLP] = "MLP",
        [FORWARD_HEAD] = "head",
    };
    return names[part];
}

static void on_part_done(void *arg, enum forward_part part)
{
    struct model_profile *profile = arg;
    const uint64_t now_ns = clock_now_ns(clock_monotonic());
    profile->part_ns[part] += (double)(now_ns - profile->last_ns);
    profile->last_ns = now_ns;
}

void model_profile_init(struct model_profile *profile, const struct model *model,
                        enum kv_dtype kv_dtype)
{
    *profile = (struct model_profile){.model = model, .kv_dtype = kv_dtype};
    profile->hooks = (struct forward_hooks){.part_done = on_part_done, .arg = profile};
}

/* Sums over the sequences of a call. The last layer carries only the rows with logits beyond its
 * keys and values. */
struct call_sums {
    double rows, tail_rows;           /* all, and with logits */
    double seen, tail_seen;           /* keys that they attend to, one head */
    double cached, tail_cached;       /* tokens whose keys and values are read */
    double layers, tail_layers, kept; /* kept: layers that do all of it, 0 or 1 for the last */
};

static struct call_sums sums_of(const struct model_info *info,
                                const struct forward_sequence *sequences, uint32_t count)
{
    struct call_sums sums = {.layers = info->layers - 1};
    for (uint32_t i = 0; i < count; i++) {
        const struct forward_sequence *s = &sequences[i];
        const double end = s->position + s->count, rows = s->count, tail = s->logit_rows;
        sums.rows += rows;
        sums.seen += rows * (end - rows) + rows * (rows + 1) / 2;
        sums.cached += end;
        if (s->logit_rows == 0)
            continue;
        sums.tail_rows += tail;
        sums.tail_seen += tail * (end - tail) + tail * (tail + 1) / 2;
        sums.tail_cached += end;
        sums.tail_layers = 1;
    }
    return sums;
}

static void add(struct model_profile *profile, enum forward_part part, double operations,
                double bytes)
{
    profile->work[part].operations += operations;
    profile->work[part].bytes += bytes;
}

/* K and V of one token in one layer. */
static double kv_token_bytes(const struct model_profile *profile, const struct model_info *info)
{
    return (double)kv_page_bytes(profile->kv_dtype, KV_BLOCK_TOKENS, info->kv_heads,
                                 info->head_dim) /
           KV_BLOCK_TOKENS;
}

static void add_rows(struct model_profile *profile, const struct model_info *info,
                     const struct call_sums *sums)
{
    const double in_out = 2 * sizeof(float), kv_width = info->kv_heads * info->head_dim;
    const double turned = (info->heads + info->kv_heads) * info->head_dim;
    const double kv_bytes = kv_token_bytes(profile, info);
    const double layer_rows = info->layers * sums->rows;
    const double normed =
        (layer_rows + sums->layers * sums->rows + 2 * sums->tail_rows) * info->embedding;
    add(profile, FORWARD_ROWS, NORM_OPERATIONS * normed + ROPE_OPERATIONS * layer_rows * turned,
        in_out * normed + in_out * layer_rows * turned +
            layer_rows * (2 * kv_width * sizeof(float) + kv_bytes));
}

void model_profile_begin(struct model_profile *profile, const struct forward_sequence *sequences,
                         uint32_t count)
{
    const struct model_info *info = model_info(profile->model);
    const struct call_sums sums = sums_of(info, sequences, count);
    const double width = info->heads * info->head_dim, kv_width = info->kv_heads * info->head_dim;
    const double kv_bytes = kv_token_bytes(profile, info);
    const double e = info->embedding, late_rows = sums.layers * sums.rows + sums.tail_rows;
    const double late_layers = (sums.layers + sums.tail_layers) / info->layers;
    double part_bytes[FORWARD_PART_COUNT];
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++)
        part_bytes[part] = (double)model_part_bytes(profile->model, part);
    add(profile, FORWARD_EMBEDDING, 0,
        sums.rows * (part_bytes[FORWARD_EMBEDDING] / info->vocab_count + e * sizeof(float)));
    add_rows(profile, info, &sums);
    add(profile, FORWARD_QKV, 2 * sums.rows * info->layers * e * (width + 2 * kv_width),
        part_bytes[FORWARD_QKV]);
    add(profile, FORWARD_ATTENTION, 4 * width * (sums.layers * sums.seen + sums.tail_seen),
        kv_bytes * (sums.layers * sums.cached + sums.tail_cached));
    add(profile, FORWARD_OUTPUT, 2 * late_rows * e * width,
        late_layers * part_bytes[FORWARD_OUTPUT]);
    add(profile, FORWARD_MLP, 6 * late_rows * e * info->feed_forward,
        late_layers * part_bytes[FORWARD_MLP]);
    add(profile, FORWARD_HEAD, 2 * sums.tail_rows * e * info->vocab_count,
        sums.tail_rows > 0 ? part_bytes[FORWARD_HEAD] : 0);
    if (sums.rows > profile->row_count)
        profile->row_count = (uint32_t)sums.rows;
    profile->last_ns = clock_now_ns(clock_monotonic());
}

/* Packed weights take four bytes a value in f32, two in bf16, and less where products are of
 * integers. */
static enum peak_arithmetic product_arithmetic(const struct model_profile *profile,
                                               enum forward_part part)
{
    const struct model_info *info = model_info(profile->model);
    const double e = info->embedding, l = info->layers;
    const double width = info->heads * info->head_dim, kv_width = info->kv_heads * info->head_dim;
    const double values = part == FORWARD_QKV      ? l * e * (width + 2 * kv_width)
                          : part == FORWARD_OUTPUT ? l * e * width
                          : part == FORWARD_MLP    ? 3 * l * e * info->feed_forward
                                                   : e * info->vocab_count;
    const double bytes = (double)model_part_bytes(profile->model, part) / values;
    if (bytes > 3 || strstr(model_backend_text(profile->model), "act=f32") != NULL)
        return PEAK_F32;
    return bytes > 1.75 ? PEAK_BF16 : PEAK_INT8;
}

struct part_roof model_part_roof(const struct model_profile *profile, struct bench_limits *limits,
                                 enum forward_part part)
{
    const struct part_work *work = &profile->work[part];
    const struct model_info *info = model_info(profile->model);
    struct part_roof out = {.arithmetic = PEAK_F32};
    size_t footprint = info->weight_bytes; /* a pass goes through all of it */
    if (part == FORWARD_ROWS)
        footprint = (size_t)profile->row_count * info->embedding * 2 * sizeof(float);
    else if (part == FORWARD_ATTENTION)
        out.arithmetic = profile->kv_dtype == KV_F32 ? PEAK_F32 : PEAK_BF16;
    else if (part != FORWARD_EMBEDDING)
        out.arithmetic = product_arithmetic(profile, part);
    out.roof = bench_limits_roof(limits, out.arithmetic, work->operations, work->bytes, footprint);
    return out;
}
