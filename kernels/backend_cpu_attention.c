/* Attention, cut in items of up to ATTENTION_TILE_ROWS
 * query rows of one key/value head; members take the next item when they are done, the expensive
 * ones (late positions) of a sequence first. Where long sequences make too few items for the team,
 * an item is cut in ranges of segments, and whoever finishes its last range merges them. Who
 * computes what changes nothing in it. */
#include <stdatomic.h>

#include "base/check.h"
#include "kernels/attention_rows.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/kv_layout.h"

enum { RANGES_PER_MEMBER = 8 };

struct attention_job {
    struct backend_cpu *cpu;
    const struct attention_args *args;
    uint32_t range_segments; /* of one piece; 0: items are not cut */
    uint32_t piece_count;
};

static uint32_t tile_count(const struct attention_args *args, uint32_t sequence)
{
    const uint32_t group = args->heads / args->kv.kv_heads;
    const uint32_t rows = args->sequences[sequence].row_count * group;
    return (rows + ATTENTION_TILE_ROWS - 1) / ATTENTION_TILE_ROWS;
}

/* The segments that a sequence's rows see. */
static uint32_t first_segment(const struct attention_args *args, uint32_t sequence)
{
    return attention_start(args->sequences[sequence].position, args->window) / ATTENTION_SEGMENT;
}

static uint32_t segment_count(const struct attention_args *args, uint32_t sequence)
{
    const struct batch_sequence *s = &args->sequences[sequence];
    const uint32_t longest = s->position + s->row_count;
    return (longest + ATTENTION_SEGMENT - 1) / ATTENTION_SEGMENT - first_segment(args, sequence);
}

/* Pieces of each of a sequence's items. */
static uint32_t range_count(const struct attention_job *job, uint32_t sequence)
{
    if (job->range_segments == 0)
        return 1;
    const uint32_t segments = segment_count(job->args, sequence);
    return (segments + job->range_segments - 1) / job->range_segments;
}

/* item: index inside the sequence, kv_heads items for each tile, last tile first. */
static struct attention_task item_task(const struct attention_args *args, uint32_t sequence_index,
                                       uint32_t item)
{
    const struct batch_sequence *sequence = &args->sequences[sequence_index];
    const uint32_t rows = sequence->row_count * (args->heads / args->kv.kv_heads);
    const uint32_t tile = tile_count(args, sequence_index) - 1 - item / args->kv.kv_heads;
    const uint32_t row_first = tile * ATTENTION_TILE_ROWS;
    const size_t at = (size_t)sequence->first_row * args->heads * args->kv.head_dim;
    return (struct attention_task){
        .q = device_floats(args->q) + at,
        .out = device_floats(args->out) + at,
        .heads = args->heads,
        .kv_head = item % args->kv.kv_heads,
        .head_dim = args->kv.head_dim,
        .scale = args->scale,
        .soft_cap = args->soft_cap,
        .window = args->window,
        .kv = &args->kv,
        .slots = sequence->slots,
        .position = sequence->position,
        .row_first = row_first,
        .row_count =
            rows - row_first < ATTENTION_TILE_ROWS ? rows - row_first : ATTENTION_TILE_ROWS,
        .segment_end = ATTENTION_ALL_SEGMENTS,
    };
}

static attention_kernel *kernel_for(const struct backend_cpu *cpu, enum kv_dtype dtype)
{
    return dtype == KV_F32    ? cpu->kernels.attention_f32
           : dtype == KV_BF16 ? cpu->kernels.attention_bf16
                              : cpu->kernels.attention_i8;
}

/* One range of an item that has several, from segment `first` of the item's on; all_index counts
 * items from the job's first. */
static void attend_range(const struct attention_job *job, struct attention_task *task,
                         uint32_t all_index, uint32_t first)
{
    struct backend_cpu *cpu = job->cpu;
    const size_t stride =
        (size_t)cpu->attention_segments * attention_partial_bytes(cpu->limits.head_dim);
    task->partials = (float *)(void *)(cpu->attention_partials + all_index * stride);
    task->segment_first = first;
    task->segment_end = first + job->range_segments;
    kernel_for(cpu, task->kv->dtype)(task);
    if (atomic_fetch_sub_explicit(&cpu->attention_left[all_index], 1, memory_order_acq_rel) == 1)
        attention_merge(task);
}

/* The sequence whose pieces `piece` is among. */
static uint32_t find_sequence(const struct attention_start *starts, uint32_t count, uint32_t piece)
{
    uint32_t first = 0;
    while (count > 1) {
        const uint32_t half = count / 2;
        if (starts[first + half].piece <= piece) {
            first += half;
            count -= half;
        } else {
            count = half;
        }
    }
    return first;
}

/* A piece of the job. */
struct piece_place {
    uint32_t sequence;
    uint32_t item;          /* inside the sequence */
    uint32_t segment_first; /* of its range */
    bool range;             /* one of several of its item */
};

static struct piece_place find_piece(const struct attention_job *job, uint32_t piece)
{
    const struct attention_start *starts = job->cpu->attention_starts;
    const uint32_t sequence = find_sequence(starts, job->args->sequence_count, piece);
    const uint32_t ranges = range_count(job, sequence);
    piece -= starts[sequence].piece;
    return (struct piece_place){
        .sequence = sequence,
        .item = piece / ranges,
        .segment_first = first_segment(job->args, sequence) + piece % ranges * job->range_segments,
        .range = ranges > 1,
    };
}

/* Where the member that computes this piece will probably go on: those that are equally fast take
 * turns. */
static struct attention_next piece_after(const struct attention_job *job, uint32_t piece)
{
    const uint32_t next = piece + team_count(job->cpu->team);
    if (next >= job->piece_count)
        return (struct attention_next){0};
    const struct piece_place place = find_piece(job, next);
    const struct attention_task task = item_task(job->args, place.sequence, place.item);
    const uint32_t group = task.heads / task.kv->kv_heads;
    const uint32_t start = attention_start(task.position + task.row_first / group, task.window);
    const uint32_t first = place.segment_first * ATTENTION_SEGMENT;
    const uint32_t end = task.position + (task.row_first + task.row_count - 1) / group + 1;
    if (end <= first) /* early rows see nothing of a late range */
        return (struct attention_next){0};
    return (struct attention_next){.slots = task.slots,
                                   .kv_head = task.kv_head,
                                   .first = start > first ? start : first,
                                   .end = end};
}

static void attention_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct attention_job *job = arg;
    const struct piece_place place = find_piece(job, piece);
    struct attention_task task = item_task(job->args, place.sequence, place.item);
    task.scratch = job->cpu->attention_scratch + member * job->cpu->attention_scratch_bytes;
    task.next = piece_after(job, piece);
    if (place.range)
        attend_range(job, &task, job->cpu->attention_starts[place.sequence].item + place.item,
                     place.segment_first);
    else
        kernel_for(job->cpu, task.kv->dtype)(&task);
}

/* Chooses the ranges when there are too few items, and counts the pieces. */
static void cut_items(struct attention_job *job)
{
    const struct attention_args *args = job->args;
    struct backend_cpu *cpu = job->cpu;
    uint32_t item_count = 0;
    uint32_t segments = 0; /* of all items */
    for (uint32_t s = 0; s < args->sequence_count; s++) {
        const uint32_t items = tile_count(args, s) * args->kv.kv_heads;
        item_count += items;
        segments += items * segment_count(args, s);
    }
    const uint32_t members = team_count(cpu->team);
    if (item_count <= cpu->attention_split_items && members > 1 && args->kv.dtype != KV_F32) {
        job->range_segments = segments / (members * RANGES_PER_MEMBER);
        job->range_segments += job->range_segments == 0;
    }
    uint32_t item = 0;
    for (uint32_t s = 0; s < args->sequence_count; s++) {
        const uint32_t items = tile_count(args, s) * args->kv.kv_heads;
        const uint32_t ranges = range_count(job, s);
        cpu->attention_starts[s] =
            (struct attention_start){.item = item, .piece = job->piece_count};
        for (uint32_t i = 0; ranges > 1 && i < items; i++)
            atomic_store_explicit(&cpu->attention_left[item + i], ranges, memory_order_relaxed);
        job->piece_count += items * ranges;
        item += items;
    }
}

void cpu_attention(struct backend *backend, const struct attention_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    kv_view_check(cpu, &args->kv);
    CHECK(args->heads % args->kv.kv_heads == 0);
    CHECK(args->sequence_count <= cpu->limits.rows);
    struct attention_job job = {.cpu = cpu, .args = args};
    size_t products = 0;
    for (uint32_t s = 0; s < args->sequence_count; s++) {
        const struct batch_sequence *sequence = &args->sequences[s];
        const size_t last = (size_t)sequence->position + sequence->row_count;
        CHECK(last <= cpu->limits.context_tokens);
        const size_t seen = last - attention_start(sequence->position, args->window);
        products += seen * sequence->row_count * args->heads * args->kv.head_dim;
    }
    cut_items(&job);
    if (products < TEAM_PRODUCTS_FLOAT) {
        for (uint32_t piece = 0; piece < job.piece_count; piece++)
            attention_piece(&job, 0, piece);
        return;
    }
    team_share(cpu->team, attention_piece, &job, job.piece_count);
}
