#include "kernels/cpu_features.h"

#include <pthread.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static struct cpu_features features;

#if defined(__x86_64__)
enum { LEAF_FEATURES = 1, LEAF_EXTENDED = 7, LEAF_EXTENDED_BF16 = 1 /* subleaf */ };
enum { XCR0_SSE_AVX = 0x6, XCR0_AVX512 = 0xe6 };
static const uint32_t LEAF1_ECX_NEEDED = bit_FMA | bit_OSXSAVE | bit_AVX | bit_F16C;
static const uint32_t LEAF7_EBX_AVX512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;

static uint64_t read_xcr0(void)
{
    uint32_t low;
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static void detect(void)
{
    uint32_t eax;
    uint32_t ebx;
    uint32_t ecx;
    uint32_t edx;
    if (!__get_cpuid(LEAF_FEATURES, &eax, &ebx, &ecx, &edx))
        return;
    if ((ecx & LEAF1_ECX_NEEDED) != LEAF1_ECX_NEEDED)
        return;
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & XCR0_SSE_AVX) != XCR0_SSE_AVX)
        return;
    if (!__get_cpuid_count(LEAF_EXTENDED, 0, &eax, &ebx, &ecx, &edx))
        return;
    features.avx2_fma_f16c = (ebx & bit_AVX2) != 0;
    features.avx512_vnni = (ebx & LEAF7_EBX_AVX512) == LEAF7_EBX_AVX512 &&
                           (ecx & bit_AVX512VNNI) != 0 && (xcr0 & XCR0_AVX512) == XCR0_AVX512;
    if (eax >= LEAF_EXTENDED_BF16 &&
        __get_cpuid_count(LEAF_EXTENDED, LEAF_EXTENDED_BF16, &eax, &ebx, &ecx, &edx))
        features.avx512_bf16 = (eax & bit_AVX512BF16) != 0;
}
#else
static void detect(void)
{
}
#endif

const struct cpu_features *cpu_features(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
    return &features;
}
