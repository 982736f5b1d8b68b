/* What this CPU can run and the operating system saves. */
#ifndef BATON_KERNELS_CPU_FEATURES_H
#define BATON_KERNELS_CPU_FEATURES_H

#include <stdbool.h>

struct cpu_features {
    bool avx2_fma_f16c; /* with the YMM state enabled by the system */
    bool avx512_bf16;   /* the instructions; ask for avx512_vnni too */
    bool avx512_vnni;   /* F, BW, DQ, VL and VNNI, with the ZMM and mask state enabled */
};

/* Asked once, then remembered. Any thread. */
const struct cpu_features *cpu_features(void);

#endif
