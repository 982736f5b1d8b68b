/* The feed-forward part of a layer. Between its products nothing is written but the activations of
 * the second, in the form its weights want: a piece is 32 outputs of gate and up for a block of
 * rows, in buffers that stay in the first-level cache through SwiGLU and conversion. */
#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

enum { PIECES_PER_MEMBER = 32, PAIR_PANELS = 2, PAIR_OUTPUTS = PAIR_PANELS * PANEL_ROWS };

struct gated_job {
    struct backend_cpu *cpu;
    const struct weight *gate, *up;
    const void *gate_activations, *up_activations;
    size_t gate_row_bytes, up_row_bytes;
    enum activation_form form; /* of the result */
    uint8_t *out;
    size_t out_row_bytes;
    uint32_t rows, block_rows;
    uint32_t piece_pairs;
};

/* One factor for some rows and a pair of panels, into buffer [rows][32]; `next` is the pair whose
 * panels will be read then. */
static void run_factor(const struct gated_job *job, const struct weight *weight, const void *x,
                       uint32_t pair, uint32_t next, uint32_t rows, float *buffer)
{
    struct matmul_task task = product_task(weight, x, rows);
    task.out = buffer;
    task.out_stride = PAIR_OUTPUTS;
    task.panel_first = task.out_panel = pair * PAIR_PANELS;
    if (task.panel_end - task.panel_first > PAIR_PANELS)
        task.panel_end = task.panel_first + PAIR_PANELS;
    if (next * PAIR_PANELS < panel_count(weight->n))
        task.next = weight_panel_address(weight, next * PAIR_PANELS);
    product_kernel(job->cpu, weight)(&task);
}

static size_t column_bytes(enum activation_form form, uint32_t column)
{
    return activation_row_bytes(form, column);
}

static void gated_block(const struct gated_job *job, uint32_t member, uint32_t pair, uint32_t next,
                        uint32_t row, uint32_t rows)
{
    struct backend_cpu *cpu = job->cpu;
    float *gate = cpu->gated_buffers + (size_t)member * 2 * GATED_BLOCK_ROWS * PAIR_OUTPUTS;
    float *up = gate + (size_t)GATED_BLOCK_ROWS * PAIR_OUTPUTS;
    run_factor(job, job->gate, (const uint8_t *)job->gate_activations + row * job->gate_row_bytes,
               pair, next, rows, gate);
    run_factor(job, job->up, (const uint8_t *)job->up_activations + row * job->up_row_bytes, pair,
               next, rows, up);
    cpu->kernels.swiglu_f32(&(struct swiglu_task){
        .gate = gate, .up = up, .count = (size_t)rows * PAIR_OUTPUTS, .out = gate});
    const uint32_t column = pair * PAIR_OUTPUTS;
    const uint32_t left = job->gate->n - column;
    activations_convert(
        cpu, &(struct activation_block){.form = job->form,
                                        .x = gate,
                                        .x_stride = PAIR_OUTPUTS,
                                        .rows = rows,
                                        .columns = left < PAIR_OUTPUTS ? left : PAIR_OUTPUTS,
                                        .out = job->out + row * job->out_row_bytes +
                                               column_bytes(job->form, column),
                                        .out_row_bytes = job->out_row_bytes});
}

static void gated_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct gated_job *job = arg;
    const uint32_t pairs = (panel_count(job->gate->n) + PAIR_PANELS - 1) / PAIR_PANELS;
    const uint32_t first = piece * job->piece_pairs;
    const uint32_t end = pairs - first < job->piece_pairs ? pairs : first + job->piece_pairs;
    /* Members that are equally fast take turns. */
    const uint32_t after = (piece + team_count(job->cpu->team)) * job->piece_pairs;
    for (uint32_t row = 0; row < job->rows; row += job->block_rows) {
        const uint32_t left = job->rows - row;
        for (uint32_t pair = first; pair < end; pair++)
            gated_block(job, member, pair, pair + 1 < end ? pair + 1 : after, row,
                        left < job->block_rows ? left : job->block_rows);
    }
}

/* silu(gate(x)) * up(x) as activations of `down`. */
static void run_gated(struct gated_job *job)
{
    struct backend_cpu *cpu = job->cpu;
    const uint32_t members = team_count(cpu->team);
    const uint32_t pairs = (panel_count(job->gate->n) + PAIR_PANELS - 1) / PAIR_PANELS;
    job->piece_pairs = pairs / (members * PIECES_PER_MEMBER);
    job->piece_pairs += job->piece_pairs == 0;
    const uint32_t pieces = (pairs + job->piece_pairs - 1) / job->piece_pairs;
    const enum activation_form form = activation_form_for(cpu, job->gate->kind);
    const size_t products = 2 * (size_t)job->rows * job->gate->k * job->gate->n;
    if (!products_worth_team(form, products)) {
        for (uint32_t piece = 0; piece < pieces; piece++)
            gated_piece(job, 0, piece);
        return;
    }
    team_share(cpu->team, gated_piece, job, pieces);
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
    const enum activation_form gate_form = activation_form_for(cpu, gate->kind);
    const enum activation_form up_form = activation_form_for(cpu, up->kind);
    struct gated_job job = {.cpu = cpu,
                            .gate = gate,
                            .up = up,
                            .form = activation_form_for(cpu, args->down->kind),
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
    job.block_rows = product_block_rows(job.gate_row_bytes);
    if (job.block_rows > GATED_BLOCK_ROWS)
        job.block_rows = GATED_BLOCK_ROWS;
    run_gated(&job);
    const struct project_output output = {args->down, args->x, {0}};
    products_run(cpu, &output, 1, job.out, args->rows, true);
}
