/* K and V on their way to the pages. The rows of a call are counted along its sequences; what a
 * member writes at a time is a run of rows of one sequence. */
#include <string.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/kv_layout.h"

void kv_view_check(const struct backend_cpu *cpu, const struct kv_view *kv)
{
    CHECK(kv->dtype < KV_DTYPE_COUNT);
    CHECK(kv->page_tokens > 0 && kv->page_tokens % KV_BLOCK_TOKENS == 0);
    CHECK(kv->page_bytes >= kv_page_bytes(kv->dtype, kv->page_tokens, kv->kv_heads, kv->head_dim));
    CHECK(kv->kv_heads > 0 && kv->head_dim > 0 && kv->head_dim <= cpu->limits.head_dim);
}

static kv_write_kernel *writer_for(const struct backend_cpu *cpu, enum kv_dtype dtype)
{
    return dtype == KV_F32    ? cpu->kernels.kv_write_f32
           : dtype == KV_BF16 ? cpu->kernels.kv_write_bf16
                              : cpu->kernels.kv_write_i8;
}

/* Without `rope`, K is written as it is. */
struct kv_job {
    struct backend_cpu *cpu;
    kv_write_kernel *write;
    const float *k, *v;
    const struct kv_view *kv;
    const struct batch_sequence *sequences;
    uint32_t sequence_count;
    rope_kernel *rope;
    struct rope_task queries; /* of all rows */
};

static void write_run(const struct kv_job *job, const struct batch_sequence *sequence, size_t row,
                      const float *k, uint32_t rows)
{
    const size_t width = (size_t)job->kv->kv_heads * job->kv->head_dim;
    job->write(&(struct kv_write_task){
        .k = k,
        .v = job->v + row * width,
        .kv = job->kv,
        .slots = sequence->slots,
        .position = sequence->position + (uint32_t)(row - sequence->first_row),
        .rows = rows,
    });
}

/* Queries turn in place, keys in the member's buffer. */
static void turn_and_write(const struct kv_job *job, const struct batch_sequence *sequence,
                           size_t row, size_t end, uint32_t member)
{
    const size_t width = (size_t)job->kv->kv_heads * job->kv->head_dim;
    float *keys = job->cpu->key_buffers + member * job->cpu->key_buffer_floats;
    for (uint32_t count = 0; row < end; row += count) {
        count = end - row < KEY_BUFFER_ROWS ? (uint32_t)(end - row) : KEY_BUFFER_ROWS;
        struct rope_task task = job->queries;
        task.x += row * task.heads * task.head_dim;
        task.cos += row * (task.rotary / 2);
        task.sin += row * (task.rotary / 2);
        task.rows = count;
        job->rope(&task);
        memcpy(keys, job->k + row * width, count * width * sizeof(float));
        task.x = keys;
        task.heads = job->kv->kv_heads;
        job->rope(&task);
        write_run(job, sequence, row, keys, count);
    }
}

/* Counts rows along the sequences and takes those in [first, end). */
static void kv_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct kv_job *job = arg;
    const size_t width = (size_t)job->kv->kv_heads * job->kv->head_dim;
    size_t seen = 0;
    for (uint32_t s = 0; s < job->sequence_count && seen < end; s++) {
        const struct batch_sequence *sequence = &job->sequences[s];
        const size_t from = first > seen ? first - seen : 0;
        const size_t to = end - seen < sequence->row_count ? end - seen : sequence->row_count;
        const size_t row = sequence->first_row + from;
        if (from < to && job->rope)
            turn_and_write(job, sequence, row, sequence->first_row + to, member);
        else if (from < to)
            write_run(job, sequence, row, job->k + row * width, (uint32_t)(to - from));
        seen += sequence->row_count;
    }
}

static size_t row_count(const struct batch_sequence *sequences, uint32_t count)
{
    size_t rows = 0;
    for (uint32_t s = 0; s < count; s++)
        rows += sequences[s].row_count;
    return rows;
}

void cpu_kv_write(struct backend *backend, device_ptr k, device_ptr v, const struct kv_view *kv,
                  const struct batch_sequence *sequences, uint32_t sequence_count)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    kv_view_check(cpu, kv);
    struct kv_job job = {
        .cpu = cpu,
        .write = writer_for(cpu, kv->dtype),
        .k = device_floats(k),
        .v = device_floats(v),
        .kv = kv,
        .sequences = sequences,
        .sequence_count = sequence_count,
    };
    const size_t rows = row_count(sequences, sequence_count);
    backend_cpu_run_rows(cpu, rows, 2 * rows * kv->kv_heads * kv->head_dim, kv_rows, &job);
}

void cpu_rope_kv_write(struct backend *backend, const struct rope_kv_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    const struct kv_view *kv = &args->kv;
    const size_t width = (size_t)kv->kv_heads * kv->head_dim;
    kv_view_check(cpu, kv);
    CHECK(args->rotary % 2 == 0 && args->rotary <= kv->head_dim);
    CHECK(KEY_BUFFER_ROWS * width <= cpu->key_buffer_floats);
    struct kv_job job = {
        .cpu = cpu,
        .write = writer_for(cpu, kv->dtype),
        .k = device_floats(args->k),
        .v = device_floats(args->v),
        .kv = kv,
        .sequences = args->sequences,
        .sequence_count = args->sequence_count,
        .rope = args->pairing == ROPE_NEIGHBOURS ? cpu->kernels.rope_neighbours
                                                 : cpu->kernels.rope_halves,
        .queries = {.x = device_floats(args->q),
                    .cos = device_floats(args->cos),
                    .sin = device_floats(args->sin),
                    .heads = args->heads,
                    .head_dim = kv->head_dim,
                    .rotary = args->rotary},
    };
    const size_t rows = row_count(args->sequences, args->sequence_count);
    const size_t turned = (size_t)args->heads * kv->head_dim;
    backend_cpu_run_rows(cpu, rows, rows * (turned + 2 * width), kv_rows, &job);
}
