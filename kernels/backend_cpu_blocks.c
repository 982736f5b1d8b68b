/* Operations of some architectures only: layer norm, GELU, the router of experts, weighted sums of
 * rows, a factor. All go by rows. */
#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

struct layer_norm_job {
    layer_norm_kernel *kernel;
    struct layer_norm_task task;
};

static void layer_norm_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct layer_norm_job *job = arg;
    struct layer_norm_task task = job->task;
    task.x += first * task.width;
    task.out += first * task.width;
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

void cpu_layer_norm(struct backend *backend, const struct layer_norm_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(args->width > 0);
    struct layer_norm_job job = {
        .kernel = cpu->kernels.layer_norm_f32,
        .task = {.x = device_floats(args->x),
                 .gain = device_floats(args->gain),
                 .bias = device_floats(args->bias),
                 .epsilon = args->epsilon,
                 .width = args->width,
                 .out = device_floats(args->out)},
    };
    backend_cpu_run_rows(cpu, args->rows, (size_t)args->rows * args->width, layer_norm_rows, &job);
}

struct gelu_job {
    gelu_kernel *kernel;
    struct gelu_task task; /* count: of one row */
};

static void gelu_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct gelu_job *job = arg;
    struct gelu_task task = job->task;
    const size_t width = task.count;
    task.x += first * width;
    task.up = task.up ? task.up + first * width : NULL;
    task.out += first * width;
    task.count = (end - first) * width;
    job->kernel(&task);
}

void cpu_gelu(struct backend *backend, device_ptr x, device_ptr up, uint32_t rows, uint32_t width,
              device_ptr out)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    struct gelu_job job = {
        .kernel = cpu->kernels.gelu_f32,
        .task = {.x = device_floats(x),
                 .up = device_floats(up),
                 .count = width,
                 .out = device_floats(out)},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * width, gelu_rows, &job);
}

struct route_job {
    route_kernel *kernel;
    struct route_task task;
};

static void route_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct route_job *job = arg;
    struct route_task task = job->task;
    task.logits += first * task.experts;
    task.ids += first * task.used;
    task.weights += first * task.used;
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

void cpu_route(struct backend *backend, const struct route_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(args->used >= 1 && args->used <= args->experts);
    struct route_job job = {
        .kernel = cpu->kernels.route_f32,
        .task = {.logits = device_floats(args->logits),
                 .experts = args->experts,
                 .used = args->used,
                 .normalise = args->normalise,
                 .ids = args->ids,
                 .weights = args->weights},
    };
    backend_cpu_run_rows(cpu, args->rows, (size_t)args->rows * args->experts, route_rows, &job);
}

struct rows_add_job {
    rows_add_kernel *kernel;
    struct rows_add_task task;
};

static void rows_add_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct rows_add_job *job = arg;
    struct rows_add_task task = job->task;
    task.y += first * task.width;
    if (task.indices)
        task.indices += first;
    else
        task.out += first * task.width;
    task.weights = task.weights ? task.weights + first : NULL;
    task.gates = task.gates ? task.gates + first : NULL;
    task.rows = (uint32_t)(end - first);
    job->kernel(&task);
}

void cpu_rows_add(struct backend *backend, const struct rows_add_args *args)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    CHECK(!args->weights || device_null(args->gates));
    struct rows_add_job job = {
        .kernel = cpu->kernels.rows_add_f32,
        .task = {.y = device_floats(args->y),
                 .indices = args->indices,
                 .weights = args->weights,
                 .gates = device_floats(args->gates),
                 .width = args->width,
                 .out = device_floats(args->out)},
    };
    backend_cpu_run_rows(cpu, args->rows, (size_t)args->rows * args->width, rows_add_rows, &job);
}

struct scale_job {
    scale_kernel *kernel;
    struct scale_task task; /* count: of one row */
};

static void scale_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct scale_job *job = arg;
    const size_t width = job->task.count;
    job->kernel(&(struct scale_task){.x = job->task.x + first * width,
                                     .factor = job->task.factor,
                                     .count = (end - first) * width});
}

void cpu_scale(struct backend *backend, device_ptr x, float factor, uint32_t rows, uint32_t width)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    struct scale_job job = {
        .kernel = cpu->kernels.scale_f32,
        .task = {.x = device_floats(x), .factor = factor, .count = width},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * width, scale_rows, &job);
}

struct soft_cap_job {
    soft_cap_kernel *kernel;
    struct soft_cap_task task; /* count: of one row */
};

static void soft_cap_rows(void *arg, uint32_t member, size_t first, size_t end)
{
    const struct soft_cap_job *job = arg;
    const size_t width = job->task.count;
    job->kernel(&(struct soft_cap_task){
        .x = job->task.x + first * width, .cap = job->task.cap, .count = (end - first) * width});
}

void cpu_soft_cap(struct backend *backend, device_ptr x, float cap, uint32_t rows, uint32_t width)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    struct soft_cap_job job = {
        .kernel = cpu->kernels.soft_cap_f32,
        .task = {.x = device_floats(x), .cap = cap, .count = width},
    };
    backend_cpu_run_rows(cpu, rows, (size_t)rows * width, soft_cap_rows, &job);
}
