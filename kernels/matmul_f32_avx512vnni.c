/* float32 weights and activations: one chain of fused multiply-adds per output, ascending K. */
#include <immintrin.h>

#define MULTIPLY_ADD(sum, w, x) __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#include "kernels/matmul_tiles_avx512.h"

void matmul_f32__avx512vnni_12x32(const struct matmul_task *task)
{
    matmul_panels(task, panel_bytes(WEIGHT_F32, false, task->k), task->k);
}
