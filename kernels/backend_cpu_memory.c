/* Memory and packed weights of the CPU backend. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "kernels/backend_cpu_internal.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

/* Weights and caches are read from end to end over and over: large pages save the TLB. */
static void advise_huge_pages(void *memory, size_t bytes)
{
    const uintptr_t first = ((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t end = ((uintptr_t)memory + bytes) / HUGE_PAGE * HUGE_PAGE;
    if (first < end)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* only advice */
}

void *memory_allocate(size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGNMENT)
        return NULL;
    /* calloc leaves untouched pages to the system; what it returned stands before the result. */
    void *raw = calloc(1, bytes + 2 * ALIGNMENT);
    if (!raw)
        return NULL;
    const uintptr_t address =
        ((uintptr_t)raw + sizeof(raw) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memcpy((void *)(address - sizeof(raw)), &raw, sizeof(raw));
    advise_huge_pages((void *)address, bytes);
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

enum status cpu_weight_create(struct backend *backend, enum weight_kind kind, uint32_t n,
                              uint32_t k, struct weight **out, struct error *error)
{
    if (n == 0 || k == 0)
        return error_set(error, STATUS_INVALID, "A weight of %u x %u has no elements", n, k);
    if (weight_kind_grouped(kind) && k % WEIGHT_GROUP != 0)
        return error_set(error, STATUS_INVALID,
                         "A quantised weight has %u inputs, which is no multiple of %d", k,
                         WEIGHT_GROUP);
    /* Room for scales as floats; untouched, the difference stays with the system. */
    const size_t bytes = panel_count(n) * panel_bytes(kind, false, k);
    struct weight *weight = calloc(1, sizeof(*weight));
    uint8_t *panels = memory_allocate(bytes);
    if (!weight || !panels) {
        free(weight);
        memory_release(panels);
        return error_set(error, STATUS_NO_MEMORY,
                         "There is no memory for a weight of %u x %u (%zu bytes)", n, k, bytes);
    }
    *weight = (struct weight){
        .kind = kind, .n = n, .k = k, .half_scales = weight_kind_grouped(kind), .panels = panels};
    *out = weight;
    return STATUS_OK;
}

void cpu_weight_fill(struct backend *backend, struct weight *weight, uint32_t first_row,
                     uint32_t row_count, const struct weight_rows *rows)
{
    enum { PIECE = 32 };
    CHECK(first_row <= weight->n && row_count <= weight->n - first_row);
    CHECK(first_row % PIECE == 0);
    CHECK(row_count % PIECE == 0 || first_row + row_count == weight->n);
    if (weight->half_scales &&
        !weight_scales_are_halves(weight->kind, weight->k, row_count, rows)) {
        weight_scales_widen(weight->kind, weight->k, weight->panels, panel_count(weight->n));
        weight->half_scales = false;
    }
    weight_pack(weight->kind, weight->half_scales, weight->k, weight->panels, first_row, row_count,
                rows);
    weight->rows_filled += row_count;
}

void cpu_weight_release(struct backend *backend, struct weight *weight)
{
    if (!weight)
        return;
    memory_release(weight->panels);
    free(weight);
}

size_t cpu_weight_bytes(const struct weight *weight)
{
    return panel_count(weight->n) * panel_bytes(weight->kind, weight->half_scales, weight->k);
}
