/* The table of kernels.def as data, and the choice of one variant for every slot. */
#include <string.h>

#include "base/check.h"
#include "kernels/cpu_features.h"
#include "kernels/kernels.h"

static const struct kernel_row ROWS[] = {
#define KERNEL(operation, dtype, isa, function, tile)                                              \
    {#operation,                                                                                   \
     #dtype,                                                                                       \
     #function,                                                                                    \
     KERNEL_SLOT_##operation##_##dtype,                                                            \
     KERNEL_ISA_##isa,                                                                             \
     (tile),                                                                                       \
     (void (*)(void))(function)},
#include "kernels/kernels.def"
#undef KERNEL
};

static const char *const ISA_NAMES[KERNEL_ISA_COUNT] = {
    [KERNEL_ISA_ref] = "ref",
    [KERNEL_ISA_avx2] = "avx2",
    [KERNEL_ISA_avx512vnni] = "avx512vnni",
    [KERNEL_ISA_avx512bf16] = "avx512bf16",
};

const struct kernel_row *kernel_rows(uint32_t *count_out)
{
    *count_out = ARRAY_COUNT(ROWS);
    return ROWS;
}

const char *kernel_isa_name(enum kernel_isa isa)
{
    return ISA_NAMES[isa];
}

bool kernel_isa_parse(const char *name, enum kernel_isa *isa_out)
{
    for (enum kernel_isa isa = KERNEL_ISA_ref; isa < KERNEL_ISA_COUNT; isa++) {
        if (strcmp(name, ISA_NAMES[isa]) == 0) {
            *isa_out = isa;
            return true;
        }
    }
    return false;
}

bool kernel_isa_available(enum kernel_isa isa)
{
    switch (isa) {
    case KERNEL_ISA_ref:
        return true;
    case KERNEL_ISA_avx2:
        return cpu_features()->avx2_fma_f16c;
    case KERNEL_ISA_avx512vnni:
        return cpu_features()->avx2_fma_f16c && cpu_features()->avx512_vnni;
    case KERNEL_ISA_avx512bf16:
        return kernel_isa_available(KERNEL_ISA_avx512vnni) && cpu_features()->avx512_bf16;
    case KERNEL_ISA_COUNT:
        break;
    }
    return false;
}

enum kernel_isa kernel_isa_best(void)
{
    enum kernel_isa best = KERNEL_ISA_ref;
    while (best + 1 < KERNEL_ISA_COUNT && kernel_isa_available(best + 1))
        best++;
    return best;
}

static void set_slot(struct kernel_table *table, const struct kernel_row *row)
{
    switch (row->slot) {
#define SLOT(operation, dtype)                                                                     \
    case KERNEL_SLOT_##operation##_##dtype:                                                        \
        table->operation##_##dtype = (operation##_kernel *)row->function;                          \
        break;
#include "kernels/kernels.def"
#undef SLOT
    case KERNEL_SLOT_COUNT:
        break;
    }
}

void kernels_init(struct kernel_table *table, enum kernel_isa isa)
{
    memset(table, 0, sizeof(*table));
    for (size_t i = 0; i < ARRAY_COUNT(ROWS); i++)
        if (ROWS[i].isa <= isa)
            set_slot(table, &ROWS[i]);
#define SLOT(operation, dtype) CHECK(table->operation##_##dtype != NULL);
#include "kernels/kernels.def"
#undef SLOT
}
