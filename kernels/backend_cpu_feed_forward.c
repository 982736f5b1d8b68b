/* The feed-forward part of a layer. Between its products nothing is written but the activations of
 * the second, in the form its weights want: a step is a strip of gate and up (32 outputs, or 64 of
 * few rows) for a block of rows, in buffers that stay in the first-level cache through SwiGLU and
 * conversion. */
#include "base/check.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/piece_cut.h"

enum {
    STRIP_PANELS = 2,
    FEW_ROWS_STRIP_PANELS = 4, /* longer reads between what is no read; the buffers hold it for */
    FEW_ROWS = GATED_BLOCK_ROWS / 2,
};

struct gated_job {
    struct backend_cpu *cpu;
    const struct weight *gate, *up;
    const void *gate_activations, *up_activations;
    size_t gate_row_bytes, up_row_bytes;
    enum activation_form form; /* of the result */
    uint8_t *out;
    size_t out_row_bytes;
    uint32_t rows, block_rows;
    uint32_t strip_panels;
    struct piece_cut cut; /* of strips */
    struct reading after;
};

/* A strip's columns of some rows. */
struct gated_step {
    uint32_t row, rows;
    uint32_t panel, panels;
    const uint8_t *next; /* where this member will probably go on */
};

/* One factor of a step, into buffer [rows][columns]; `next` is read then. */
static void run_factor(const struct gated_job *job, const struct gated_step *step,
                       const struct weight *weight, const void *x, const uint8_t *next,
                       uint32_t columns, float *buffer)
{
    struct matmul_task task = product_task(weight, x, step->rows);
    task.out = buffer;
    task.out_stride = columns;
    task.panel_first = task.out_panel = step->panel;
    task.panel_end = step->panel + step->panels;
    task.next = next;
    product_kernel(job->cpu, weight)(&task);
}

static void gated_step(const struct gated_job *job, uint32_t member, const struct gated_step *step)
{
    struct backend_cpu *cpu = job->cpu;
    const uint32_t column = step->panel * PANEL_ROWS;
    const uint32_t left = job->gate->n - column;
    const uint32_t columns = left < step->panels * PANEL_ROWS ? left : step->panels * PANEL_ROWS;
    float *gate = cpu->gated_buffers + (size_t)member * 2 * GATED_BUFFER_FLOATS;
    float *up = gate + GATED_BUFFER_FLOATS;
    run_factor(job, step, job->gate,
               (const uint8_t *)job->gate_activations + step->row * job->gate_row_bytes,
               weight_panel_address(job->up, step->panel), columns, gate);
    run_factor(job, step, job->up,
               (const uint8_t *)job->up_activations + step->row * job->up_row_bytes, step->next,
               columns, up);
    cpu->kernels.swiglu_f32(&(struct swiglu_task){
        .gate = gate, .up = up, .count = (size_t)step->rows * columns, .out = gate});
    activations_convert(
        cpu, &(struct activation_block){.form = job->form,
                                        .x = gate,
                                        .x_stride = columns,
                                        .rows = step->rows,
                                        .columns = columns,
                                        .out = job->out + step->row * job->out_row_bytes +
                                               activation_row_bytes(job->form, column),
                                        .out_row_bytes = job->out_row_bytes});
}

/* The strip of gate that the member which computes this piece will probably go on with, or what
 * comes after all: those that are equally fast take turns. */
static const uint8_t *piece_after(const struct gated_job *job, uint32_t piece)
{
    struct piece_range range;
    const uint32_t next = piece + job->cut.members;
    return piece_cut_find(&job->cut, next, &range)
               ? weight_panel_address(job->gate, range.first * job->strip_panels)
               : reading_piece(&job->after, next - job->cut.pieces);
}

static void gated_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct gated_job *job = arg;
    const uint32_t panels = panel_count(job->gate->n);
    struct piece_range range;
    CHECK(piece_cut_find(&job->cut, piece, &range));
    for (uint32_t block = range.block_first; block < range.block_end; block++) {
        struct gated_step step = {.row = block * job->block_rows};
        const uint32_t rows = job->rows - step.row;
        step.rows = rows < job->block_rows ? rows : job->block_rows;
        const bool last = block + 1 == range.block_end;
        for (uint32_t strip = range.first; strip < range.end; strip++) {
            const uint32_t next = strip + 1 < range.end ? strip + 1 : range.first;
            step.panel = strip * job->strip_panels;
            step.panels = panels - step.panel;
            if (step.panels > job->strip_panels)
                step.panels = job->strip_panels;
            step.next = last && strip + 1 == range.end
                            ? piece_after(job, piece)
                            : weight_panel_address(job->gate, next * job->strip_panels);
            gated_step(job, member, &step);
        }
    }
}

/* silu(gate(x)) * up(x) as activations of `down`. */
static void run_gated(struct gated_job *job)
{
    struct backend_cpu *cpu = job->cpu;
    job->strip_panels = job->rows <= FEW_ROWS ? FEW_ROWS_STRIP_PANELS : STRIP_PANELS;
    piece_cut_begin(&job->cut,
                    (panel_count(job->gate->n) + job->strip_panels - 1) / job->strip_panels,
                    (job->rows + job->block_rows - 1) / job->block_rows, team_count(cpu->team));
    job->after = reading_begin(cpu, job->gate, piece_cut_stride(&job->cut) * job->strip_panels);
    const enum activation_form form = activation_form_for(cpu, job->gate);
    const size_t products = 2 * (size_t)job->rows * job->gate->k * job->gate->n;
    if (!products_worth_team(form, products)) {
        for (uint32_t piece = 0; piece < job->cut.pieces; piece++)
            gated_piece(job, 0, piece);
        return;
    }
    team_share(cpu->team, gated_piece, job, job->cut.pieces);
}

void cpu_feed_forward(struct backend *backend, const struct feed_forward_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    const struct weight *gate = args->gate;
    const struct weight *up = args->up;
    CHECK(gate->n == up->n && gate->k == up->k);
    CHECK(args->down->k == gate->n && args->down->n == gate->k);
    CHECK((size_t)args->rows * gate->n <= cpu->activation_values);
    if (args->rows == 0)
        return;
    const float *x = device_floats(args->x);
    const enum activation_form gate_form = activation_form_for(cpu, gate);
    const enum activation_form up_form = activation_form_for(cpu, up);
    struct gated_job job = {.cpu = cpu,
                            .gate = gate,
                            .up = up,
                            .form = activation_form_for(cpu, args->down),
                            .out = cpu->inner_activations,
                            .rows = args->rows};
    job.gate_activations =
        activations_prepare(cpu, gate_form, x, device_floats(args->gain), args->epsilon, args->rows,
                            gate->k, cpu->activations);
    job.up_activations = job.gate_activations;
    if (up_form != gate_form) /* no file known mixes them */
        job.up_activations =
            activations_prepare(cpu, up_form, x, device_floats(args->gain), args->epsilon,
                                args->rows, up->k, cpu->other_activations);
    job.gate_row_bytes = activation_row_bytes(gate_form, gate->k);
    job.up_row_bytes = activation_row_bytes(up_form, up->k);
    job.out_row_bytes = activation_row_bytes(job.form, gate->n);
    job.block_rows = product_block_rows(job.gate_row_bytes, args->rows, GATED_BLOCK_ROWS);
    /* A group that is wider than a strip is converted when the row is there; `up` is done with the
     * buffer then. */
    const bool later = job.form == FORM_I8 && args->down->span > 1;
    if (later) {
        job.form = FORM_F32;
        job.out_row_bytes = activation_row_bytes(job.form, gate->n);
    }
    run_gated(&job);
    const void *inner =
        later ? activations_prepare(cpu, FORM_I8, (const float *)(const void *)job.out, NULL, 0,
                                    args->rows, gate->n, cpu->other_activations)
              : job.out;
    const struct project_output output = {args->down, args->x, {0}};
    products_run(cpu, &output, 1, inner, args->rows, true);
}
