/* silu(gate) * up, eight at a time. */
#include "kernels/exp_avx2.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

void swiglu_f32__avx2(const struct swiglu_task *task)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    size_t i = 0;
    for (; i + 8 <= task->count; i += 8) {
        const __m256 gate = _mm256_loadu_ps(task->gate + i);
        const __m256 divisor = _mm256_add_ps(one, exp_avx2(_mm256_xor_ps(gate, sign)));
        const __m256 silu = _mm256_div_ps(gate, divisor);
        _mm256_storeu_ps(task->out + i, _mm256_mul_ps(silu, _mm256_loadu_ps(task->up + i)));
    }
    for (; i < task->count; i++)
        task->out[i] = silu_approx(task->gate[i]) * task->up[i];
}
