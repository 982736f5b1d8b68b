/* Activations to bf16 with vcvtneps2bf16, which rounds and flushes as the profile says. */
#include "kernels/float_bits.h"
#include "kernels/lanes_avx512.h"

void round_bf16__avx512bf16(const struct round_task *task)
{
    const size_t padded = ((size_t)task->k + 1) / 2 * 2;
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->x_stride;
        uint16_t *out = task->out + row * task->out_stride;
        for (size_t i = 0; i < padded; i += 16) {
            /* The padding of an odd row is a zero that the mask lets in. */
            const size_t left = task->k - i;
            const __mmask16 in = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffffu);
            const __mmask16 to = (__mmask16)(padded - i < 16 ? (1u << (padded - i)) - 1 : 0xffffu);
            const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(in, x + i));
            _mm256_mask_storeu_epi16(out + i, to, (__m256i)rounded);
        }
    }
}
