/* The list of peaks. bf16 products without an instruction of their own are float multiply-adds. */
#include "kernels/peak.h"

#include "base/check.h"
#include "kernels/peak_internal.h"

enum { F32_YMM = 8, F32_ZMM = 16, BF16_ZMM = 32, INT8_YMM = 32, INT8_ZMM = 64 };

static const struct peak_row ROWS[] = {
    {"f32 plain C", PEAK_F32, KERNEL_ISA_ref, 2 * PEAK_REF_LANES, peak_f32__ref},
    {"bf16 as f32 plain C", PEAK_BF16, KERNEL_ISA_ref, 2 * PEAK_REF_LANES, peak_f32__ref},
    {"int8 plain C", PEAK_INT8, KERNEL_ISA_ref, 2 * PEAK_REF_LANES, peak_int8__ref},
#if defined(__x86_64__)
    {"f32 vfmadd ymm", PEAK_F32, KERNEL_ISA_avx2, 2 * F32_YMM *PEAK_CHAINS, peak_f32__avx2},
    {"bf16 as f32 vfmadd ymm", PEAK_BF16, KERNEL_ISA_avx2, 2 * F32_YMM *PEAK_CHAINS,
     peak_f32__avx2},
    {"int8 vpmaddubsw vpmaddwd ymm", PEAK_INT8, KERNEL_ISA_avx2, 2 * INT8_YMM *PEAK_CHAINS,
     peak_int8__avx2},
    {"f32 vfmadd zmm", PEAK_F32, KERNEL_ISA_avx512vnni, 2 * F32_ZMM *PEAK_CHAINS, peak_f32__avx512},
    {"bf16 as f32 vfmadd zmm", PEAK_BF16, KERNEL_ISA_avx512vnni, 2 * F32_ZMM *PEAK_CHAINS,
     peak_f32__avx512},
    {"int8 vpdpbusd zmm", PEAK_INT8, KERNEL_ISA_avx512vnni, 2 * INT8_ZMM *PEAK_CHAINS,
     peak_int8__avx512vnni},
    {"int8 vpdpbusd zmm, scales of groups of 32", PEAK_INT8_GROUPS, KERNEL_ISA_avx512vnni,
     2 * INT8_ZMM *PEAK_GROUP_STEPS *PEAK_CHAINS, peak_int8_groups__avx512vnni},
    {"int8 vpdpbusd zmm, scales and offsets of groups of 32", PEAK_INT8_OFFSETS,
     KERNEL_ISA_avx512vnni, 2 * INT8_ZMM *PEAK_GROUP_STEPS *PEAK_CHAINS,
     peak_int8_offsets__avx512vnni},
    {"bf16 vdpbf16ps zmm", PEAK_BF16, KERNEL_ISA_avx512bf16, 2 * BF16_ZMM *PEAK_CHAINS,
     peak_bf16__avx512bf16},
#endif
};

static const struct stream_row STREAMS[] = {
    {"read plain C", KERNEL_ISA_ref, stream_read__ref},
#if defined(__x86_64__)
    {"read ymm", KERNEL_ISA_avx2, stream_read__avx2},
    {"read zmm", KERNEL_ISA_avx512vnni, stream_read__avx512},
#endif
};

const struct peak_row *peak_rows(uint32_t *count_out)
{
    *count_out = ARRAY_COUNT(ROWS);
    return ROWS;
}

const struct stream_row *stream_rows(uint32_t *count_out)
{
    *count_out = ARRAY_COUNT(STREAMS);
    return STREAMS;
}

bool peak_available(const struct peak_row *row)
{
    return kernel_isa_available(row->isa);
}

const char *peak_arithmetic_name(enum peak_arithmetic arithmetic)
{
    static const char *const names[PEAK_ARITHMETIC_COUNT] = {[PEAK_F32] = "f32",
                                                             [PEAK_BF16] = "bf16",
                                                             [PEAK_INT8] = "int8",
                                                             [PEAK_INT8_GROUPS] = "int8 groups",
                                                             [PEAK_INT8_OFFSETS] = "int8 offsets"};
    return names[arithmetic];
}
