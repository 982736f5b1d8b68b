/* bf16 times bf16 with vdpbf16ps, which flushes denormals whatever the modes say; the epilogue
 * needs the modes. */
#include <immintrin.h>

#define MULTIPLY_ADD(sum, w, x) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#include "kernels/matmul_tiles_avx512.h"

__attribute__((noinline)) static void matmul_flushed(const struct matmul_task *task)
{
    matmul_panels(task, panel_bytes(WEIGHT_BF16, false, task->k), ((size_t)task->k + 1) / 2);
}

void matmul_bf16__avx512bf16_12x32(const struct matmul_task *task)
{
    const uint64_t saved = float_flush_begin();
    matmul_flushed(task);
    float_flush_end(saved);
}
