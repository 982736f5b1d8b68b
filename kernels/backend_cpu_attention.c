/* Attention and the writing of K and V. Attention is cut in items of up to ATTENTION_TILE_ROWS
 * query rows of one key/value head; members take the next item when they are done, the expensive
 * ones (late positions) of a sequence first. Who computes an item changes nothing in it. */
#include <stdatomic.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/kv_layout.h"

struct attention_job {
    struct backend_cpu *cpu;
    const struct attention_args *args;
    atomic_uint next_item;
    uint32_t item_count;
};

static uint32_t tile_count(const struct attention_args *args, uint32_t sequence)
{
    const uint32_t group = args->heads / args->kv.kv_heads;
    const uint32_t rows = args->sequences[sequence].row_count * group;
    return (rows + ATTENTION_TILE_ROWS - 1) / ATTENTION_TILE_ROWS;
}

/* item: index inside the sequence, kv_heads items for each tile, last tile first. */
static void attend_item(const struct attention_job *job, uint32_t sequence_index, uint32_t item,
                        void *scratch)
{
    const struct attention_args *args = job->args;
    const struct batch_sequence *sequence = &args->sequences[sequence_index];
    const uint32_t rows = sequence->row_count * (args->heads / args->kv.kv_heads);
    const uint32_t tile = tile_count(args, sequence_index) - 1 - item / args->kv.kv_heads;
    const uint32_t row_first = tile * ATTENTION_TILE_ROWS;
    const size_t at = (size_t)sequence->first_row * args->heads * args->kv.head_dim;
    const struct attention_task task = {
        .q = device_floats(args->q) + at,
        .out = device_floats(args->out) + at,
        .heads = args->heads,
        .kv_head = item % args->kv.kv_heads,
        .head_dim = args->kv.head_dim,
        .scale = args->scale,
        .kv = &args->kv,
        .slots = sequence->slots,
        .position = sequence->position,
        .row_first = row_first,
        .row_count =
            rows - row_first < ATTENTION_TILE_ROWS ? rows - row_first : ATTENTION_TILE_ROWS,
        .scratch = scratch,
    };
    if (args->kv.dtype == KV_F32)
        job->cpu->kernels.attention_f32(&task);
    else
        job->cpu->kernels.attention_bf16(&task);
}

static void attention_member(void *arg, uint32_t index, uint32_t count)
{
    struct attention_job *job = arg;
    void *scratch = job->cpu->attention_scratch + index * job->cpu->attention_scratch_bytes;
    const uint32_t kv_heads = job->args->kv.kv_heads;
    uint32_t sequence = 0;
    uint32_t first = 0; /* item number of the sequence's first */
    for (;;) {
        const uint32_t item = atomic_fetch_add_explicit(&job->next_item, 1, memory_order_relaxed);
        if (item >= job->item_count)
            return;
        /* Item numbers a member draws only grow, so the walk goes forward. */
        while (item - first >= tile_count(job->args, sequence) * kv_heads) {
            first += tile_count(job->args, sequence) * kv_heads;
            sequence++;
        }
        attend_item(job, sequence, item - first, scratch);
    }
}

static void check_view(const struct backend_cpu *cpu, const struct kv_view *kv)
{
    CHECK(kv->page_tokens > 0 && kv->page_tokens % KV_BLOCK_TOKENS == 0);
    CHECK(kv->page_bytes >= kv_page_bytes(kv->dtype, kv->page_tokens, kv->kv_heads, kv->head_dim));
    CHECK(kv->kv_heads > 0 && kv->head_dim > 0 && kv->head_dim <= cpu->limits.head_dim);
}

void cpu_attention(struct backend *backend, const struct attention_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    check_view(cpu, &args->kv);
    CHECK(args->heads % args->kv.kv_heads == 0);
    struct attention_job job = {.cpu = cpu, .args = args};
    size_t products = 0;
    for (uint32_t s = 0; s < args->sequence_count; s++) {
        const struct batch_sequence *sequence = &args->sequences[s];
        const size_t last = (size_t)sequence->position + sequence->row_count;
        CHECK(last <= cpu->limits.context_tokens);
        products += last * sequence->row_count * args->heads * args->kv.head_dim;
        job.item_count += tile_count(args, s) * args->kv.kv_heads;
    }
    if (products < TEAM_PRODUCTS_FLOAT)
        attention_member(&job, 0, 1);
    else
        team_run(cpu->team, attention_member, &job);
}

struct kv_write_job {
    kv_write_kernel *kernel;
    const float *k, *v;
    const struct kv_view *kv;
    const struct batch_sequence *sequences;
    uint32_t sequence_count;
};

/* Counts rows along the sequences and writes those in [first, end). */
static void kv_write_rows(void *arg, size_t first, size_t end)
{
    const struct kv_write_job *job = arg;
    const size_t width = (size_t)job->kv->kv_heads * job->kv->head_dim;
    size_t seen = 0;
    for (uint32_t s = 0; s < job->sequence_count && seen < end; s++) {
        const struct batch_sequence *sequence = &job->sequences[s];
        const size_t from = first > seen ? first - seen : 0;
        const size_t to = end - seen < sequence->row_count ? end - seen : sequence->row_count;
        if (from < to) {
            const size_t row = sequence->first_row + from;
            job->kernel(&(struct kv_write_task){.k = job->k + row * width,
                                                .v = job->v + row * width,
                                                .kv = job->kv,
                                                .slots = sequence->slots,
                                                .position = sequence->position + (uint32_t)from,
                                                .rows = (uint32_t)(to - from)});
        }
        seen += sequence->row_count;
    }
}

void cpu_kv_write(struct backend *backend, device_ptr k, device_ptr v, const struct kv_view *kv,
                  const struct batch_sequence *sequences, uint32_t sequence_count)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    check_view(cpu, kv);
    struct kv_write_job job = {
        .kernel = kv->dtype == KV_F32 ? cpu->kernels.kv_write_f32 : cpu->kernels.kv_write_bf16,
        .k = device_floats(k),
        .v = device_floats(v),
        .kv = kv,
        .sequences = sequences,
        .sequence_count = sequence_count,
    };
    size_t rows = 0;
    for (uint32_t s = 0; s < sequence_count; s++)
        rows += sequences[s].row_count;
    backend_cpu_run_rows(cpu, rows, 2 * rows * kv->kv_heads * kv->head_dim, kv_write_rows, &job);
}
