/* gelu(x), times `up` where there is one, eight at a time. */
#include "kernels/exp_avx2.h"
#include "kernels/gelu_approx.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

AVX2_INLINE __m256 gelu_avx2(__m256 x)
{
    const __m256 square = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(GELU_CUBE), x), x);
    const __m256 cubic = _mm256_fmadd_ps(square, x, x);
    const __m256 power = exp_avx2(_mm256_mul_ps(cubic, _mm256_set1_ps(GELU_SCALE)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), power));
}

void gelu_f32__avx2(const struct gelu_task *task)
{
    size_t i = 0;
    for (; i + 8 <= task->count; i += 8) {
        const __m256 value = gelu_avx2(_mm256_loadu_ps(task->x + i));
        _mm256_storeu_ps(task->out + i,
                         task->up ? _mm256_mul_ps(value, _mm256_loadu_ps(task->up + i)) : value);
    }
    for (; i < task->count; i++) {
        const float value = gelu_approx(task->x[i]);
        task->out[i] = task->up ? value * task->up[i] : value;
    }
}
