/* Reference kernels are plain C, yet the real model runs on them in tests: the hot ones are
 * compiled twice, once with a hardware fused multiply-add, chosen by the loader. fmaf() is exact
 * either way, so the bits are the same. ThreadSanitizer cannot start programs that have such
 * functions, and clang takes none that may not be inlined. */
#ifndef BATON_KERNELS_REF_CLONES_H
#define BATON_KERNELS_REF_CLONES_H

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define REF_CLONES __attribute__((target_clones("fma", "default")))
#else
#define REF_CLONES
#endif
#define REF_INLINE static inline __attribute__((always_inline))

#endif
