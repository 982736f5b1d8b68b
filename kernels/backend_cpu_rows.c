/* Operations that take rows one by one: embedding, norm, rotation, activation, gathering. */
#include <string.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

enum { PIECES_PER_MEMBER = 4 };

struct rows_job {
    size_t rows, piece_rows;
    rows_function *function;
    void *arg;
};

static void run_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct rows_job *job = arg;
    const size_t first = piece * job->piece_rows;
    const size_t left = job->rows - first;
    job->function(job->arg, member, first,
                  first + (left < job->piece_rows ? left : job->piece_rows));
}

void backend_cpu_run_rows(struct backend_cpu *cpu, size_t rows, size_t elements,
                          rows_function *function, void *arg)
{
    const size_t pieces = (size_t)team_count(cpu->team) * PIECES_PER_MEMBER;
    if (rows == 0)
        return;
    if (rows == 1 || elements < TEAM_ELEMENTS || team_count(cpu->team) == 1) {
        function(arg, 0, 0, rows);
        return;
    }
    struct rows_job job = {
        .rows = rows,
        .piece_rows = (rows + pieces - 1) / pieces,
        .function = function,
        .arg = arg,
    };
    team_share(cpu->team, run_piece, &job,
               (uint32_t)((rows + job.piece_rows - 1) / job.piece_rows));
}

struct embed_job {
    embed_kernel *kernel;
    struct embed_task task;
};

static void embed_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct embed_job *job = arg;
    struct embed_task task = job->task;
    task.ids += first;
    task.out += first * task.k;
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

static embed_kernel *embed_for(const struct kernel_table *kernels, enum weight_kind kind)
{
    switch (kind) {
    case WEIGHT_F32:
        return kernels->embed_f32;
    case WEIGHT_BF16:
        return kernels->embed_bf16;
    case WEIGHT_Q8:
        return kernels->embed_q8;
    case WEIGHT_Q8A:
        return kernels->embed_q8a;
    case WEIGHT_Q4:
        return kernels->embed_q4;
    case WEIGHT_Q4A:
        return kernels->embed_q4a;
    }
    return NULL;
}

void cpu_embed(struct backend *backend, const struct weight *weight, const int32_t *ids,
               uint32_t rows, device_ptr out)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(weight->filled);
    for (uint32_t i = 0; i < rows; i++)
        CHECK(ids[i] >= 0 && (uint32_t)ids[i] < weight->n);
    struct embed_job job = {
        .kernel = embed_for(&cpu->kernels, weight->kind),
        .task = {.panels = weight->panels,
                 .k = weight->k,
                 .half_scales = weight->half_scales,
                 .ids = ids,
                 .out = device_floats(out)},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * weight->k, embed_rows, &job);
}

struct rms_norm_job {
    rms_norm_kernel *kernel;
    struct rms_norm_task task;
};

static void rms_norm_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct rms_norm_job *job = arg;
    struct rms_norm_task task = job->task;
    task.x += first * task.width;
    task.out += first * task.width;
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

void cpu_rms_norm(struct backend *backend, device_ptr x, device_ptr gain, float epsilon,
                  uint32_t rows, uint32_t width, device_ptr out)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(width > 0);
    struct rms_norm_job job = {
        .kernel = cpu->kernels.rms_norm_f32,
        .task = {.x = device_floats(x),
                 .gain = device_floats(gain),
                 .epsilon = epsilon,
                 .width = width,
                 .out = device_floats(out)},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * width, rms_norm_rows, &job);
}

struct rope_job {
    rope_kernel *kernel;
    struct rope_task task;
};

static void rope_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct rope_job *job = arg;
    struct rope_task task = job->task;
    task.x += first * task.heads * task.head_dim;
    task.cos += first * (task.rotary / 2);
    task.sin += first * (task.rotary / 2);
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

void cpu_rope(struct backend *backend, const struct rope_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(args->rotary % 2 == 0 && args->rotary <= args->head_dim);
    struct rope_job job = {
        .kernel = args->pairing == ROPE_NEIGHBOURS ? cpu->kernels.rope_neighbours
                                                   : cpu->kernels.rope_halves,
        .task = {.x = device_floats(args->x),
                 .cos = device_floats(args->cos),
                 .sin = device_floats(args->sin),
                 .heads = args->heads,
                 .head_dim = args->head_dim,
                 .rotary = args->rotary},
    };
    backend_cpu_run_rows(cpu, args->rows, (size_t)args->rows * args->heads * args->rotary,
                         rope_rows, &job);
}

struct swiglu_job {
    swiglu_kernel *kernel;
    struct swiglu_task task; /* count: of one row */
};

static void swiglu_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct swiglu_job *job = arg;
    struct swiglu_task task = job->task;
    const size_t width = task.count;
    task.gate += first * width;
    task.up += first * width;
    task.out += first * width;
    task.count = (end - first) * width;
    job->kernel(&task);
}

void cpu_swiglu(struct backend *backend, device_ptr gate, device_ptr up, uint32_t rows,
                uint32_t width, device_ptr out)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    struct swiglu_job job = {
        .kernel = cpu->kernels.swiglu_f32,
        .task = {.gate = device_floats(gate),
                 .up = device_floats(up),
                 .count = width,
                 .out = device_floats(out)},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * width, swiglu_rows, &job);
}

void cpu_gather_rows(struct backend *backend, device_ptr x, const uint32_t *indices, uint32_t count,
                     uint32_t width, device_ptr out)
{
    for (size_t i = 0; i < count; i++)
        memcpy(device_floats(out) + i * width, device_floats(x) + (size_t)indices[i] * width,
               width * sizeof(float));
}
