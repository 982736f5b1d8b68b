/* Memory and packed weights of the CPU backend. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, SLAB_BYTES = 64 << 20 };

static size_t round_up(size_t bytes, size_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

/* What fills a large page stands on whole large pages: weights and caches are read from end to end
 * over and over, and small pages cost a tenth to a fifth of the bandwidth. */
void *memory_allocate(size_t bytes)
{
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (bytes > SIZE_MAX - 3 * alignment)
        return NULL;
    const size_t whole = round_up(bytes, alignment);
    /* calloc leaves untouched pages to the system; what it returned stands before the result. */
    void *raw = calloc(1, whole + alignment + ALIGNMENT);
    if (!raw)
        return NULL;
    const uintptr_t address = round_up((uintptr_t)raw + sizeof(raw), alignment);
    memcpy((void *)(address - sizeof(raw)), &raw, sizeof(raw));
    if (alignment == HUGE_PAGE)
        (void)madvise((void *)address, whole, MADV_HUGEPAGE); /* only advice */
    return (void *)address;
}

void memory_release(void *memory)
{
    if (!memory)
        return;
    void *raw;
    memcpy(&raw, (uint8_t *)memory - sizeof(raw), sizeof(raw));
    free(raw);
}

enum status cpu_allocate(struct backend *backend, size_t bytes, device_ptr *out,
                         struct error *error)
{
    void *memory = memory_allocate(bytes);
    if (!memory)
        return error_set(error, STATUS_NO_MEMORY, "There is no memory for a buffer of %zu bytes",
                         bytes);
    *out = (device_ptr){(uint64_t)(uintptr_t)memory};
    return STATUS_OK;
}

void cpu_release(struct backend *backend, device_ptr p)
{
    memory_release(device_address(p));
}

void cpu_upload(struct backend *backend, device_ptr to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(device_address(to), from, bytes);
}

void cpu_download(struct backend *backend, void *to, device_ptr from, size_t bytes)
{
    if (bytes)
        memcpy(to, device_address(from), bytes);
}

void *cpu_host_view(struct backend *backend, device_ptr p)
{
    return device_address(p);
}

void cpu_synchronize(struct backend *backend)
{
}

/* Memory of weights, which are many and often smaller than a large page: they follow each other in
 * slabs, and a slab goes with its last weight. */
struct slab {
    struct slab *next;
    uint8_t *memory;
    size_t bytes, used;
    uint32_t weight_count;
};

static void slab_release(struct slab *slab)
{
    memory_release(slab->memory);
    free(slab);
}

/* The newest slab, or a new one where that is full. */
static struct slab *slab_with_room(struct backend_cpu *cpu, size_t bytes)
{
    struct slab *slab = cpu->slabs;
    if (slab && slab->bytes - slab->used >= bytes)
        return slab;
    slab = calloc(1, sizeof(*slab));
    if (!slab)
        return NULL;
    slab->bytes = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    slab->memory = memory_allocate(slab->bytes);
    if (!slab->memory) {
        slab_release(slab);
        return NULL;
    }
    slab->next = cpu->slabs;
    cpu->slabs = slab;
    return slab;
}

struct weight_memory {
    struct weight weight;
    struct reading after;
};

enum status cpu_weight_create(struct backend *backend, enum weight_kind kind, uint32_t n,
                              uint32_t k, struct weight **out, struct error *error)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    if (n == 0 || k == 0)
        return error_set(error, STATUS_INVALID, "A weight of %u x %u has no elements", n, k);
    const bool coarser = weight_kind_grouped(kind) && backend_cpu_coarse(cpu);
    if (coarser && k > cpu->limits.width)
        return error_set(error, STATUS_LIMIT,
                         "A weight that becomes coarser has %u inputs, the most are %u", k,
                         cpu->limits.width);
    if (weight_kind_grouped(kind) && k % WEIGHT_GROUP != 0)
        return error_set(error, STATUS_INVALID,
                         "A quantised weight has %u inputs, which is no multiple of %d", k,
                         WEIGHT_GROUP);
    const enum weight_kind packed_kind = coarser ? WEIGHT_Q8 : kind;
    /* Room for scales as floats until it is known that halves will do. */
    const size_t bytes = panel_count(n) * panel_bytes(packed_kind, false, k);
    struct weight_memory *memory = calloc(1, sizeof(*memory));
    struct slab *slab = slab_with_room(cpu, bytes);
    if (!memory || !slab) {
        free(memory);
        return error_set(error, STATUS_NO_MEMORY,
                         "There is no memory for a weight of %u x %u (%zu bytes)", n, k, bytes);
    }
    struct weight *weight = &memory->weight;
    *weight = (struct weight){.kind = packed_kind,
                              .source_kind = kind,
                              .span = coarser ? backend_cpu_span(cpu, k) : 1,
                              .n = n,
                              .k = k,
                              .half_scales = weight_kind_grouped(kind),
                              .panels = slab->memory + slab->used,
                              .slab = slab,
                              .slab_end = slab->used + bytes,
                              .after = &memory->after};
    slab->used += bytes;
    slab->weight_count++;
    *out = weight;
    return STATUS_OK;
}

size_t cpu_weight_bytes(const struct weight *weight)
{
    return panel_count(weight->n) * panel_bytes(weight->kind, weight->half_scales, weight->k);
}

size_t requantize_buffer_bytes(const struct backend_cpu *cpu, uint32_t width)
{
    const size_t groups = width / WEIGHT_GROUP + 1;
    return backend_cpu_coarse(cpu) ? PANEL_ROWS * groups * (WEIGHT_GROUP + sizeof(float)) : 0;
}

/* Coarser profiles have their kernels and are not after exactness. */
void cpu_weight_take_floats(struct backend *backend, struct weight *weight)
{
    weight->float_rows = !backend_cpu_coarse(backend_cpu_of(backend));
}

/* A running fill. */
struct weight_fill {
    const struct backend_cpu *cpu;
    struct weight *weight;
    const struct weight_source *source;
    atomic_bool no_halves; /* a scale was found that is no half */
};

/* Rows of a file as the profile wants them, in the member's buffer. */
static void coarser_rows(const struct weight_fill *fill, uint32_t member, uint32_t count,
                         struct weight_rows *rows)
{
    const struct weight *weight = fill->weight;
    const uint32_t k = weight->k;
    if (!backend_cpu_coarse(fill->cpu) || !weight_kind_grouped(weight->kind))
        return;
    uint8_t *buffer = fill->cpu->requantize_buffers +
                      member * requantize_buffer_bytes(fill->cpu, fill->cpu->limits.width);
    float *scale = (float *)(void *)buffer;
    int8_t *q = (int8_t *)(scale + PANEL_ROWS * (k / WEIGHT_GROUP));
    weight_requantize(weight->source_kind, k, weight->span, count, rows, q, scale);
    *rows = (struct weight_rows){.q = q, .scale = scale};
}

static void fill_panel(void *arg, uint32_t member, uint32_t panel)
{
    struct weight_fill *fill = arg;
    const struct weight *weight = fill->weight;
    const uint32_t first = panel * PANEL_ROWS, rest = weight->n - first;
    const uint32_t count = rest < PANEL_ROWS ? rest : PANEL_ROWS;
    struct weight_rows rows = {0};
    if (weight->half_scales && atomic_load_explicit(&fill->no_halves, memory_order_relaxed))
        return;
    fill->source->read(fill->source->arg, member, first, count, &rows);
    coarser_rows(fill, member, count, &rows);
    uint8_t *to =
        weight->panels + panel * panel_bytes(weight->kind, weight->half_scales, weight->k);
    if (!weight_pack_panel(weight->kind, weight->half_scales, weight->k, to, count, &rows))
        atomic_store_explicit(&fill->no_halves, true, memory_order_relaxed);
}

void cpu_weight_fill(struct backend *backend, struct weight *weight,
                     const struct weight_source *source)
{
    const struct backend_cpu *cpu = backend_cpu_of(backend);
    struct weight_fill fill = {.cpu = cpu, .weight = weight, .source = source};
    CHECK(!weight->filled);
    team_share(cpu->team, fill_panel, &fill, panel_count(weight->n));
    if (fill.no_halves) { /* once more, with floats */
        weight->half_scales = false;
        team_share(cpu->team, fill_panel, &fill, panel_count(weight->n));
    }
    weight->filled = true;
    /* The next weight may begin where this one turned out to end. */
    if (weight->slab->used == weight->slab_end)
        weight->slab->used =
            (size_t)(weight->panels - weight->slab->memory) + cpu_weight_bytes(weight);
}

void cpu_weight_release(struct backend *backend, struct weight *weight)
{
    struct backend_cpu *cpu = backend_cpu_of(backend);
    if (!weight)
        return;
    struct slab *slab = weight->slab;
    if (cpu->last_reading == weight->after)
        cpu->last_reading = NULL;
    free(weight); /* first in its memory */
    if (--slab->weight_count > 0)
        return;
    struct slab **link = &cpu->slabs;
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    slab_release(slab);
}
