/* bf16 times bf16: pairs of inputs ascending, the odd one first, each a fused multiply-add in
 * float32 with denormals flushed: what the instruction vdpbf16ps computes. */
#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/matmul_epilogue.h"
#include "kernels/ref_clones.h"

enum { TILE_ROWS = 8 };

REF_INLINE void matmul_tile(const struct matmul_task *task, uint32_t panel, uint32_t row_first,
                            uint32_t rows)
{
    const uint32_t pairs = (task->k + 1) / 2;
    const uint16_t *w =
        (const uint16_t *)(const void *)(task->panels +
                                         panel * panel_bytes(WEIGHT_BF16, false, task->k));
    const uint32_t *x = (const uint32_t *)task->x + (size_t)row_first * pairs;
    float sums[TILE_ROWS][PANEL_ROWS] = {{0}};
    for (size_t pair = 0; pair < pairs; pair++, w += PANEL_ROWS * 2) {
        for (uint32_t row = 0; row < rows; row++) {
            /* Both of a pair in one load: gcc 12 reads past the rows when it makes vectors of the
             * two (its bug 107451). */
            const uint32_t both = x[row * (size_t)pairs + pair];
            const float even = float_from_bits(both << 16);
            const float odd = float_from_bits(both & 0xffff0000u);
            for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
                sums[row][lane] =
                    fmaf(float_from_bf16(w[lane * 2]), even,
                         fmaf(float_from_bf16(w[lane * 2 + 1]), odd, sums[row][lane]));
        }
    }
    for (uint32_t row = 0; row < rows; row++)
        matmul_store(task, row_first + row, panel, sums[row]);
}

REF_CLONES __attribute__((noinline)) static void matmul_panels(const struct matmul_task *task)
{
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++)
        for (uint32_t row = 0; row < task->rows; row += TILE_ROWS)
            matmul_tile(task, panel, row,
                        task->rows - row < TILE_ROWS ? task->rows - row : TILE_ROWS);
}

void matmul_bf16__ref(const struct matmul_task *task)
{
    const uint64_t saved = float_flush_begin();
    matmul_panels(task);
    float_flush_end(saved);
}
