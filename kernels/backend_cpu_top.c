/* The largest outputs of a product (the head's, as a rule) without storing the product: a member
 * computes a piece of it for a block of rows into a buffer that stays in its cache, offers that to
 * lists of its own, and the lists are merged when all is done. The order of entries is total, so it
 * does not matter who drew which piece. */
#include <string.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"
#include "kernels/top_list.h"

enum { PIECE_PANELS = 8, PIECE_OUTPUTS = PIECE_PANELS * PANEL_ROWS };

struct top_job {
    struct backend_cpu *cpu;
    const struct weight *weight;
    const uint8_t *activations;
    size_t row_bytes;
    uint32_t rows, id_count, count, pieces;
    struct reading after;
};

size_t top_buffer_bytes(void)
{
    return (size_t)TOP_BLOCK_ROWS * PIECE_OUTPUTS * sizeof(float);
}

static void top_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct top_job *job = arg;
    struct backend_cpu *cpu = job->cpu;
    const uint32_t first_id = piece * PIECE_OUTPUTS;
    const uint32_t left = job->id_count - first_id;
    const uint32_t next = piece + team_count(cpu->team);
    const size_t first_list = (size_t)member * cpu->limits.rows;
    struct matmul_task product = product_task(job->weight, NULL, 0);
    product.out = cpu->top_buffers + (size_t)member * TOP_BLOCK_ROWS * PIECE_OUTPUTS;
    product.out_stride = PIECE_OUTPUTS;
    product.panel_first = product.out_panel = piece * PIECE_PANELS;
    if (product.panel_end - product.panel_first > PIECE_PANELS)
        product.panel_end = product.panel_first + PIECE_PANELS;
    product.next = next < job->pieces ? weight_panel_address(job->weight, next * PIECE_PANELS)
                                      : reading_piece(&job->after, next - job->pieces);
    for (uint32_t row = 0; row < job->rows; row += product.rows) {
        product.rows = job->rows - row < TOP_BLOCK_ROWS ? job->rows - row : TOP_BLOCK_ROWS;
        product.x = job->activations + row * job->row_bytes;
        product_kernel(cpu, job->weight)(&product);
        cpu->kernels.top_f32(
            &(struct top_task){.values = product.out,
                               .stride = PIECE_OUTPUTS,
                               .rows = product.rows,
                               .columns = left < PIECE_OUTPUTS ? left : PIECE_OUTPUTS,
                               .first_id = (int32_t)first_id,
                               .lists = cpu->top_lists + (first_list + row) * PROJECT_TOP_MAX,
                               .list_stride = PROJECT_TOP_MAX,
                               .held = cpu->top_held + first_list + row,
                               .count = job->count});
    }
}

/* The members' lists of one row into out [count]. */
static void merge_row(const struct top_job *job, uint32_t row, struct top_entry *out)
{
    const struct backend_cpu *cpu = job->cpu;
    uint32_t held = 0;
    for (uint32_t member = 0; member < team_count(cpu->team); member++) {
        const size_t list = (size_t)member * cpu->limits.rows + row;
        for (uint32_t i = 0; i < cpu->top_held[list]; i++)
            top_offer(out, &held, job->count, cpu->top_lists[list * PROJECT_TOP_MAX + i]);
    }
    CHECK(held == job->count);
}

void cpu_project_top(struct backend *backend, const struct project_top_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    const struct weight *weight = args->weight;
    const uint32_t members = team_count(cpu->team);
    CHECK(args->id_count >= 1 && args->id_count <= weight->n && args->rows <= cpu->limits.rows);
    CHECK(args->count >= 1 && args->count <= PROJECT_TOP_MAX && args->count <= args->id_count);
    if (args->rows == 0)
        return;
    const enum activation_form form = activation_form_for(cpu, weight);
    struct top_job job = {.cpu = cpu,
                          .weight = weight,
                          .row_bytes = activation_row_bytes(form, weight->k),
                          .rows = args->rows,
                          .id_count = args->id_count,
                          .count = args->count};
    job.activations =
        activations_prepare(cpu, form, device_floats(args->x), device_floats(args->gain),
                            args->epsilon, args->rows, weight->k, cpu->activations);
    for (uint32_t member = 0; member < members; member++)
        memset(cpu->top_held + (size_t)member * cpu->limits.rows, 0,
               args->rows * sizeof(*cpu->top_held));
    job.pieces = (args->id_count + PIECE_OUTPUTS - 1) / PIECE_OUTPUTS;
    job.after = reading_begin(cpu, weight, PIECE_PANELS);
    if (products_worth_team(form, (size_t)args->rows * weight->k * args->id_count))
        team_share(cpu->team, top_piece, &job, job.pieces);
    else
        for (uint32_t piece = 0; piece < job.pieces; piece++)
            top_piece(&job, 0, piece);
    for (uint32_t row = 0; row < args->rows; row++)
        merge_row(&job, row, args->out + (size_t)row * args->count);
}
