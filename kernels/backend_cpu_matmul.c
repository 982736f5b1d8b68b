/* Products: activations are brought into the form the weights want, then the members of the team
 * draw pieces of panels from a counter until none is left. Outputs are shared out, never inputs, so
 * that neither the number of threads nor who was faster changes a sum; and a member that lost its
 * CPU for a while holds up no more than one piece. */
#include <stdatomic.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

enum activation_form { FORM_F32, FORM_BF16, FORM_I8 };

enum {
    PIECES_PER_MEMBER = 8,
    PIECE_PANELS = 2, /* pieces are a multiple of it: what the widest tile takes at once */
};

struct matmul_job {
    struct backend_cpu *cpu;
    enum activation_form form;
    const float *x;
    matmul_kernel *kernel;
    struct matmul_task task;
    bool prepare; /* activations are still to be converted */
    uint32_t piece_panels;
    atomic_uint next_panel;
};

static matmul_kernel *native_kernel(const struct kernel_table *kernels, enum weight_kind kind)
{
    switch (kind) {
    case WEIGHT_F32:
        return kernels->matmul_f32;
    case WEIGHT_BF16:
        return kernels->matmul_bf16;
    case WEIGHT_Q8:
        return kernels->matmul_i8_q8;
    case WEIGHT_Q8A:
        return kernels->matmul_i8_q8a;
    case WEIGHT_Q4:
        return kernels->matmul_i8_q4;
    case WEIGHT_Q4A:
        return kernels->matmul_i8_q4a;
    }
    return NULL;
}

static matmul_kernel *f32_kernel(const struct kernel_table *kernels, enum weight_kind kind)
{
    switch (kind) {
    case WEIGHT_F32:
        return kernels->matmul_f32;
    case WEIGHT_BF16:
        return kernels->matmul_f32_bf16;
    case WEIGHT_Q8:
        return kernels->matmul_f32_q8;
    case WEIGHT_Q8A:
        return kernels->matmul_f32_q8a;
    case WEIGHT_Q4:
        return kernels->matmul_f32_q4;
    case WEIGHT_Q4A:
        return kernels->matmul_f32_q4a;
    }
    return NULL;
}

static enum activation_form form_for(enum activation_mode mode, enum weight_kind kind)
{
    if (mode == ACTIVATION_F32 || kind == WEIGHT_F32)
        return FORM_F32;
    return kind == WEIGHT_BF16 ? FORM_BF16 : FORM_I8;
}

static void prepare_rows(const struct matmul_job *job, size_t first, size_t end)
{
    const struct kernel_table *kernels = &job->cpu->kernels;
    const uint32_t k = job->task.k;
    const float *x = job->x + first * k;
    const uint32_t rows = (uint32_t)(end - first);
    if (job->form == FORM_BF16) {
        const size_t padded = ((size_t)k + 1) / 2 * 2;
        kernels->round_bf16(&(struct round_task){.x = x,
                                                 .rows = rows,
                                                 .k = k,
                                                 .out = (uint16_t *)(void *)job->cpu->activations +
                                                        first * padded});
        return;
    }
    kernels->quantize_i8(&(struct quantize_task){
        .x = x,
        .rows = rows,
        .k = k,
        .out = (struct quantized_group *)(void *)job->cpu->activations + first * (k / WEIGHT_GROUP),
    });
}

static void matmul_member(void *arg, uint32_t index, uint32_t count)
{
    struct matmul_job *job = arg;
    if (job->prepare) {
        size_t first;
        size_t end;
        team_split(job->task.rows, 1, index, count, &first, &end);
        if (first < end)
            prepare_rows(job, first, end);
        team_barrier(job->cpu->team);
    }
    const uint32_t panels = panel_count(job->task.n);
    struct matmul_task task = job->task;
    if (matmul_scratch_bytes(task.k) <= job->cpu->matmul_scratch_bytes)
        task.scratch = job->cpu->matmul_scratch + index * job->cpu->matmul_scratch_bytes;
    for (;;) {
        task.panel_first =
            atomic_fetch_add_explicit(&job->next_panel, job->piece_panels, memory_order_relaxed);
        if (task.panel_first >= panels)
            return;
        task.panel_end = panels - task.panel_first < job->piece_panels
                             ? panels
                             : task.panel_first + job->piece_panels;
        job->kernel(&task);
    }
}

/* How many panels a member draws at a time. */
static uint32_t piece_panels(uint32_t panels, uint32_t members)
{
    const uint32_t piece = panels / (members * PIECES_PER_MEMBER) / PIECE_PANELS * PIECE_PANELS;
    return piece > PIECE_PANELS ? piece : PIECE_PANELS;
}

void cpu_matmul(struct backend *backend, const struct matmul_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    const struct weight *weight = args->weight;
    CHECK(weight->rows_filled == weight->n);
    if (args->rows == 0)
        return;
    struct matmul_job job = {
        .cpu = cpu,
        .form = form_for(cpu->mode, weight->kind),
        .x = device_floats(args->x),
        .task = {.panels = weight->panels,
                 .n = weight->n,
                 .k = weight->k,
                 .x = device_floats(args->x),
                 .bias = device_floats(args->bias),
                 .out = device_floats(args->out),
                 .half_scales = weight->half_scales,
                 .rows = args->rows,
                 .accumulate = args->accumulate},
    };
    job.kernel = job.form == FORM_F32 ? f32_kernel(&cpu->kernels, weight->kind)
                                      : native_kernel(&cpu->kernels, weight->kind);
    job.piece_panels = piece_panels(panel_count(weight->n), team_count(cpu->team));
    const size_t values = (size_t)args->rows * weight->k;
    if (job.form != FORM_F32) {
        CHECK(values <= cpu->activation_values);
        job.task.x = cpu->activations;
        job.prepare = values >= TEAM_ELEMENTS && args->rows > 1;
        if (!job.prepare)
            prepare_rows(&job, 0, args->rows);
    }
    const size_t team_products = job.form == FORM_I8 ? TEAM_PRODUCTS_INT : TEAM_PRODUCTS_FLOAT;
    if (values * weight->n < team_products || team_count(cpu->team) == 1) {
        if (job.prepare)
            prepare_rows(&job, 0, args->rows);
        job.prepare = false;
        matmul_member(&job, 0, 1);
        return;
    }
    team_run(cpu->team, matmul_member, &job);
}
