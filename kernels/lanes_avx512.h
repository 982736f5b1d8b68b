/* One ZMM register stands for the 16 lanes of a panel. For files compiled with AVX-512 only. */
#ifndef BATON_KERNELS_LANES_AVX512_H
#define BATON_KERNELS_LANES_AVX512_H

#include <immintrin.h>

#include "kernels/matmul_epilogue.h"

#define AVX512_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 32")

/* vpdpbusd, of which the user's file must be sure. What the compiler would spill with many
 * accumulators, it keeps for an assembly operand. */
#define DOT_BYTES(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

/* Panels that a tile takes together: two streams read faster than four. */
enum { TILE_PANELS = 2 };

/* Asking for what is read next while a strip of panels is gone through, in even shares over its
 * loads: any shorter distance ends in the neighbour, which is being read already. A load asks for a
 * line or less, in every pass over the strip, so that nothing has to be decided; many lines at
 * once would wait for each other, and the loads behind them too. They are asked into the
 * first-level cache, though most have left it for the second when they are read: the other way they
 * come slower. Addresses may lie past the weight: a prefetch of nothing is no fault. */
struct asking {
    uintptr_t next;
    size_t advance; /* bytes from an ask to the next, at most a line */
};
enum { ASK_STRIP_BYTES = 256 << 10, ASK_LINE_BYTES = 64 };

/* asks: how many there will be, for `bytes` from next on. */
AVX512_INLINE struct asking asking_begin(const uint8_t *next, size_t bytes, size_t asks)
{
    return (struct asking){(uintptr_t)next, (bytes + asks - 1) / asks};
}

AVX512_INLINE void asking_go_on(struct asking *asking, const uint32_t asks)
{
    UNROLL for (uint32_t i = 0; i < asks; i++, asking->next += asking->advance)
        _mm_prefetch((const char *)asking->next, _MM_HINT_T0);
}

/* Sixteen scales, halves or floats. */
AVX512_INLINE __m512 load_scales_avx512(const bool half_scales, const uint8_t *scales)
{
    return half_scales ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)scales))
                       : _mm512_loadu_ps(scales);
}

/* A line that will be written, so that it comes without a copy in another cache. There is no
 * intrinsic for it that AVX-512 implies; a CPU without it takes it for nothing. */
#define ASK_TO_WRITE(line) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(line)))

/* What a tile will add to, asked for before it begins: a load that misses would hold up the next.
 */
AVX512_INLINE void matmul_ask_out(const struct matmul_task *task, uint32_t row, const uint32_t rows,
                                  uint32_t panel, const uint32_t panels)
{
    if (!task->accumulate)
        return;
    const float *out = matmul_out(task, row, panel);
    UNROLL for (uint32_t r = 0; r < rows; r++, out += task->out_stride)
        UNROLL for (uint32_t p = 0; p < panels; p++) ASK_TO_WRITE(out + p * PANEL_ROWS);
}

/* The lanes of a panel that are outputs. */
AVX512_INLINE __mmask16 panel_lanes(const struct matmul_task *task, uint32_t panel)
{
    const uint32_t first = panel * PANEL_ROWS;
    const uint32_t lanes = task->n - first < PANEL_ROWS ? task->n - first : PANEL_ROWS;
    return (__mmask16)((1u << lanes) - 1);
}

/* matmul_store for the sums of a tile in registers. All is decided once a tile: a decision for
 * every sum costs short tiles a twentieth of their time. */
AVX512_INLINE void matmul_store_avx512(const struct matmul_task *task, uint32_t row,
                                       const uint32_t rows, uint32_t panel, const uint32_t panels,
                                       __m512 sums[][TILE_PANELS])
{
    const bool whole = (panel + panels) * PANEL_ROWS <= task->n;
    float *out = matmul_out(task, row, panel);
    if (task->bias)
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const __m512 bias = _mm512_maskz_loadu_ps(panel_lanes(task, panel + p),
                                                      task->bias + (panel + p) * PANEL_ROWS);
            UNROLL for (uint32_t r = 0; r < rows; r++) sums[r][p] = _mm512_add_ps(sums[r][p], bias);
        }
    if (whole && !task->accumulate) {
        UNROLL for (uint32_t r = 0; r < rows; r++, out += task->out_stride)
            UNROLL for (uint32_t p = 0; p < panels; p++)
                _mm512_storeu_ps(out + p * PANEL_ROWS, sums[r][p]);
        return;
    }
    if (whole) {
        UNROLL for (uint32_t r = 0; r < rows; r++, out += task->out_stride)
            UNROLL for (uint32_t p = 0; p < panels; p++)
                _mm512_storeu_ps(out + p * PANEL_ROWS,
                                 _mm512_add_ps(_mm512_loadu_ps(out + p * PANEL_ROWS), sums[r][p]));
        return;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++, out += task->out_stride)
        UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        const __mmask16 mask = panel_lanes(task, panel + p);
        __m512 sum = sums[r][p];
        if (task->accumulate)
            sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out + p * PANEL_ROWS), sum);
        _mm512_mask_storeu_ps(out + p * PANEL_ROWS, mask, sum);
    }
}

#endif
