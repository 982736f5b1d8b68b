/* Products: activations are brought into the form the weights want, then the members of the team
 * draw pieces of panels. Outputs are shared out, never inputs, so that neither the number of
 * threads nor who was faster changes a sum. */
#include <string.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/piece_cut.h"

enum {
    UNIT_PANELS = 2,             /* what a tile takes */
    FEW_ROWS_UNIT_PANELS = 4,    /* the widest tile, */
    FEW_ROWS = 6,                /* for so many rows, */
    FEW_ROWS_INPUTS = 2048,      /* unless panels are long: whole pieces end too unlike */
    ROW_BLOCK_BYTES = 512 << 10, /* activations that stay in the second-level cache */
    ROW_BLOCK_MULTIPLE = 12,     /* whole tiles */
    CONVERT_PIECES_PER_MEMBER = 4,
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

enum activation_form activation_form_for(const struct backend_cpu *cpu, const struct weight *weight)
{
    if (cpu->mode == ACTIVATION_F32 || weight->kind == WEIGHT_F32 || weight->float_rows)
        return FORM_F32;
    return weight->kind == WEIGHT_BF16 ? FORM_BF16 : FORM_I8;
}

size_t activation_row_bytes(enum activation_form form, uint32_t k)
{
    switch (form) {
    case FORM_F32:
        return k * sizeof(float);
    case FORM_BF16:
        return ((size_t)k + 1) / 2 * 2 * sizeof(uint16_t);
    case FORM_I8:
        return k / WEIGHT_GROUP * sizeof(struct quantized_group);
    }
    return 0;
}

void activations_convert(const struct backend_cpu *cpu, const struct activation_block *block)
{
    switch (block->form) {
    case FORM_F32:
        for (size_t row = 0; row < block->rows; row++)
            memcpy((uint8_t *)block->out + row * block->out_row_bytes,
                   block->x + row * block->x_stride, block->columns * sizeof(float));
        break;
    case FORM_BF16:
        cpu->kernels.round_bf16(
            &(struct round_task){.x = block->x,
                                 .x_stride = block->x_stride,
                                 .rows = block->rows,
                                 .k = block->columns,
                                 .out = block->out,
                                 .out_stride = block->out_row_bytes / sizeof(uint16_t)});
        break;
    case FORM_I8:
        cpu->kernels.quantize_i8(&(struct quantize_task){
            .x = block->x,
            .rows = block->rows,
            .k = block->columns,
            .span = backend_cpu_span(cpu, block->columns),
            .out = block->out,
            .out_stride = block->out_row_bytes / sizeof(struct quantized_group)});
        break;
    }
}

struct convert_job {
    struct backend_cpu *cpu;
    const float *x;    /* [rows][k] */
    const float *gain; /* NULL: no norm */
    float epsilon;
    uint32_t rows, k;
    uint32_t piece_rows;
    enum activation_form form;
    uint8_t *out;
};

static void convert_rows(const struct convert_job *job, uint32_t member, uint32_t first,
                         uint32_t end)
{
    const struct backend_cpu *cpu = job->cpu;
    const size_t row_bytes = activation_row_bytes(job->form, job->k);
    struct activation_block block = {.form = job->form,
                                     .x = job->x + (size_t)first * job->k,
                                     .x_stride = job->k,
                                     .rows = end - first,
                                     .columns = job->k,
                                     .out = job->out + first * row_bytes,
                                     .out_row_bytes = row_bytes};
    if (!job->gain) {
        activations_convert(cpu, &block);
        return;
    }
    float *normed = cpu->row_buffers + (size_t)member * cpu->row_buffer_floats;
    for (uint32_t row = first; row < end; row++) {
        const struct rms_norm_task norm = {.x = job->x + (size_t)row * job->k,
                                           .gain = job->gain,
                                           .epsilon = job->epsilon,
                                           .rows = 1,
                                           .width = job->k,
                                           .out = normed};
        cpu->kernels.rms_norm_f32(&norm);
        block.x = normed;
        block.rows = 1;
        block.out = job->out + row * row_bytes;
        activations_convert(cpu, &block);
    }
}

static void convert_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct convert_job *job = arg;
    const uint32_t first = piece * job->piece_rows;
    const uint32_t left = job->rows - first;
    convert_rows(job, member, first, first + (left < job->piece_rows ? left : job->piece_rows));
}

const void *activations_prepare(struct backend_cpu *cpu, enum activation_form form, const float *x,
                                const float *gain, float epsilon, uint32_t rows, uint32_t k,
                                uint8_t *out)
{
    const size_t values = (size_t)rows * k;
    if (form == FORM_F32 && !gain)
        return x;
    CHECK(values <= cpu->activation_values && (!gain || k <= cpu->row_buffer_floats));
    struct convert_job job = {.cpu = cpu,
                              .x = x,
                              .gain = gain,
                              .epsilon = epsilon,
                              .rows = rows,
                              .k = k,
                              .form = form,
                              .out = out};
    const uint32_t members = team_count(cpu->team);
    if (values < TEAM_ELEMENTS || rows == 1 || members == 1) {
        convert_rows(&job, 0, 0, rows);
        return out;
    }
    job.piece_rows =
        (rows + members * CONVERT_PIECES_PER_MEMBER - 1) / (members * CONVERT_PIECES_PER_MEMBER);
    team_share(cpu->team, convert_piece, &job, (rows + job.piece_rows - 1) / job.piece_rows);
    return out;
}

struct matmul_task product_task(const struct weight *weight, const void *activations, uint32_t rows)
{
    CHECK(weight->filled);
    return (struct matmul_task){
        .panels = weight->panels,
        .n = weight->n,
        .k = weight->k,
        .x = activations,
        .out_stride = weight->n,
        .rows = rows,
        .half_scales = weight->half_scales,
        .span = weight->span,
        .panel_end = panel_count(weight->n),
    };
}

matmul_kernel *product_kernel(const struct backend_cpu *cpu, const struct weight *weight)
{
    return activation_form_for(cpu, weight) == FORM_F32
               ? f32_kernel(&cpu->kernels, weight->kind)
               : native_kernel(&cpu->kernels, weight->kind);
}

uint32_t product_block_rows(size_t row_bytes, uint32_t rows, uint32_t most)
{
    const size_t fit = ROW_BLOCK_BYTES / row_bytes / ROW_BLOCK_MULTIPLE * ROW_BLOCK_MULTIPLE;
    const size_t least = fit < 4 * ROW_BLOCK_MULTIPLE ? 4 * ROW_BLOCK_MULTIPLE : fit;
    const uint32_t largest = least < most ? (uint32_t)least : most;
    const uint32_t blocks = (rows + largest - 1) / largest;
    const uint32_t even = (rows + blocks - 1) / blocks;
    return (even + ROW_BLOCK_MULTIPLE - 1) / ROW_BLOCK_MULTIPLE * ROW_BLOCK_MULTIPLE;
}

/* Products of the same activations: units of `unit_panels`, which do not go on from an output to
 * the next. */
struct products_job {
    struct backend_cpu *cpu;
    const struct project_output *outputs;
    const void *activations;
    size_t row_bytes;
    uint32_t rows, block_rows;
    bool accumulate;
    uint32_t unit_panels;
    struct piece_cut cut;
    struct reading after;
};

struct reading reading_begin(struct backend_cpu *cpu, const struct weight *weight,
                             uint32_t piece_panels)
{
    if (cpu->last_reading)
        *cpu->last_reading = (struct reading){
            weight->panels,
            piece_panels * panel_bytes(weight->kind, weight->half_scales, weight->k)};
    cpu->last_reading = weight->after;
    return *weight->after;
}

static uint32_t output_units(const struct products_job *job, const struct project_output *output)
{
    return (panel_count(output->weight->n) + job->unit_panels - 1) / job->unit_panels;
}

/* The output that a unit belongs to and its number there. */
static const struct project_output *unit_find(const struct products_job *job, uint32_t unit,
                                              uint32_t *unit_out)
{
    const struct project_output *output = job->outputs;
    for (uint32_t units; unit >= (units = output_units(job, output)); output++)
        unit -= units;
    *unit_out = unit;
    return output;
}

/* Where the member that computes this piece will probably go on: those that are equally fast take
 * turns. */
static const uint8_t *piece_after(const struct products_job *job, uint32_t piece)
{
    uint32_t unit;
    struct piece_range range;
    const uint32_t next = piece + job->cut.members;
    if (!piece_cut_find(&job->cut, next, &range))
        return reading_piece(&job->after, next - job->cut.pieces);
    const struct project_output *output = unit_find(job, range.first, &unit);
    return weight_panel_address(output->weight, unit * job->unit_panels);
}

/* Units of one output for the blocks of a range; `next` is read then. */
static void products_units(const struct products_job *job, const struct project_output *output,
                           const struct piece_range *range, const uint8_t *next)
{
    struct matmul_task task = product_task(output->weight, NULL, 0);
    matmul_kernel *kernel = product_kernel(job->cpu, output->weight);
    task.bias = device_floats(output->bias);
    task.accumulate = job->accumulate;
    task.panel_first = range->first * job->unit_panels;
    if (task.panel_end > range->end * job->unit_panels)
        task.panel_end = range->end * job->unit_panels;
    for (uint32_t block = range->block_first; block < range->block_end; block++) {
        const uint32_t row = block * job->block_rows;
        task.x = (const uint8_t *)job->activations + row * job->row_bytes;
        task.out = device_floats(output->out) + (size_t)row * task.out_stride;
        task.rows = job->rows - row < job->block_rows ? job->rows - row : job->block_rows;
        task.next = block + 1 < range->block_end
                        ? weight_panel_address(output->weight, task.panel_first)
                        : next;
        kernel(&task);
    }
}

static void products_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct products_job *job = arg;
    struct piece_range range;
    CHECK(piece_cut_find(&job->cut, piece, &range));
    for (uint32_t left = range.end - range.first, units; left > 0; left -= units) {
        struct piece_range part = range;
        const struct project_output *output = unit_find(job, range.end - left, &part.first);
        units = output_units(job, output) - part.first;
        units = units < left ? units : left;
        part.end = part.first + units;
        products_units(job, output, &part,
                       units == left ? piece_after(job, piece)
                                     : weight_panel_address(output[1].weight, 0));
    }
}

void products_run(struct backend_cpu *cpu, const struct project_output *outputs,
                  uint32_t output_count, const void *activations, uint32_t rows, bool accumulate)
{
    const uint32_t k = outputs[0].weight->k;
    const enum activation_form form = activation_form_for(cpu, outputs[0].weight);
    const size_t row_bytes = activation_row_bytes(form, k);
    const bool wide = rows <= FEW_ROWS && k <= FEW_ROWS_INPUTS;
    struct products_job job = {.cpu = cpu,
                               .outputs = outputs,
                               .activations = activations,
                               .row_bytes = row_bytes,
                               .rows = rows,
                               .block_rows = product_block_rows(row_bytes, rows, rows),
                               .accumulate = accumulate,
                               .unit_panels = wide ? FEW_ROWS_UNIT_PANELS : UNIT_PANELS};
    uint32_t units = 0;
    for (uint32_t i = 0; i < output_count; i++)
        units += output_units(&job, &outputs[i]);
    piece_cut_begin(&job.cut, units, (rows + job.block_rows - 1) / job.block_rows,
                    team_count(cpu->team));
    job.after = reading_begin(cpu, outputs[0].weight, piece_cut_stride(&job.cut) * job.unit_panels);
    const size_t products = (size_t)rows * k * units * job.unit_panels * PANEL_ROWS;
    if (!products_worth_team(form, products)) {
        for (uint32_t piece = 0; piece < job.cut.pieces; piece++)
            products_piece(&job, 0, piece);
        return;
    }
    team_share(cpu->team, products_piece, &job, job.cut.pieces);
}

void cpu_matmul(struct backend *backend, const struct matmul_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    if (args->rows == 0)
        return;
    const struct weight *weight = args->weight;
    const void *activations =
        activations_prepare(cpu, activation_form_for(cpu, weight), device_floats(args->x), NULL, 0,
                            args->rows, weight->k, cpu->activations);
    const struct project_output output = {weight, args->out, args->bias};
    products_run(cpu, &output, 1, activations, args->rows, args->accumulate);
}

/* Neighbours whose weights take the same form of activations go together. */
void cpu_project(struct backend *backend, const struct project_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(args->output_count >= 1 && args->output_count <= PROJECT_OUTPUTS_MAX);
    if (args->rows == 0)
        return;
    for (uint32_t first = 0, end; first < args->output_count; first = end) {
        const struct weight *weight = args->outputs[first].weight;
        const enum activation_form form = activation_form_for(cpu, weight);
        for (end = first + 1; end < args->output_count; end++) {
            const struct weight *other = args->outputs[end].weight;
            CHECK(other->k == weight->k);
            if (activation_form_for(cpu, other) != form)
                break;
        }
        const void *activations =
            activations_prepare(cpu, form, device_floats(args->x), device_floats(args->gain),
                                args->epsilon, args->rows, weight->k, cpu->activations);
        products_run(cpu, args->outputs + first, end - first, activations, args->rows, false);
    }
}
