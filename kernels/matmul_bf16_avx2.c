/* bf16 times bf16 as two fused multiply-adds a pair, odd input first, denormals flushed: 4 rows by
 * a panel of 16 outputs. */
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

enum { TILE_ROWS = 4 };

AVX2_INLINE void matmul_tile(const struct matmul_task *task, const uint32_t rows, uint32_t panel,
                             uint32_t row)
{
    const size_t pairs = ((size_t)task->k + 1) / 2;
    const uint8_t *w = task->panels + panel * panel_bytes(WEIGHT_BF16, false, task->k);
    const uint16_t *x = (const uint16_t *)task->x + row * pairs * 2;
    __m256 sums[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (size_t pair = 0; pair < pairs; pair++, x += 2, w += PANEL_VECTOR_BYTES) {
        __m256 low = bf16_odd(load_bytes(w));
        __m256 high = bf16_odd(load_bytes(w + 32));
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m256 odd = bf16_odd(broadcast_quad(x + r * pairs * 2));
            sums[r][0] = _mm256_fmadd_ps(low, odd, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(high, odd, sums[r][1]);
        }
        low = bf16_even(load_bytes(w));
        high = bf16_even(load_bytes(w + 32));
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m256 even = bf16_even(broadcast_quad(x + r * pairs * 2));
            sums[r][0] = _mm256_fmadd_ps(low, even, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(high, even, sums[r][1]);
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
        matmul_store_avx2(task, row + r, panel, sums[r][0], sums[r][1]);
}

__attribute__((noinline)) static void matmul_panels(const struct matmul_task *task)
{
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++) {
        uint32_t row = 0;
        for (; row + TILE_ROWS <= task->rows; row += TILE_ROWS)
            matmul_tile(task, TILE_ROWS, panel, row);
        for (; row + 2 <= task->rows; row += 2)
            matmul_tile(task, 2, panel, row);
        if (row < task->rows)
            matmul_tile(task, 1, panel, row);
    }
}

void matmul_bf16__avx2_4x16(const struct matmul_task *task)
{
    const uint64_t saved = float_flush_begin();
    matmul_panels(task);
    float_flush_end(saved);
}
