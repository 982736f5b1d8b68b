/* Root-mean-square norm with the 16 lanes in two registers. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/lane_tree.h"
#include "kernels/lanes_avx2.h"

AVX2_INLINE float sum_of_squares(const float *x, uint32_t width)
{
    __m256 low = _mm256_setzero_ps();
    __m256 high = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + LANE_COUNT <= width; i += LANE_COUNT) {
        const __m256 a = _mm256_loadu_ps(x + i);
        const __m256 b = _mm256_loadu_ps(x + i + 8);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    float lanes[LANE_COUNT];
    _mm256_storeu_ps(lanes, low);
    _mm256_storeu_ps(lanes + 8, high);
    for (; i < width; i++)
        lanes[i % LANE_COUNT] = fmaf(x[i], x[i], lanes[i % LANE_COUNT]);
    return lane_tree_sum(lanes);
}

void rms_norm_f32__avx2(const struct rms_norm_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->width;
        float *out = task->out + row * task->width;
        const float mean = sum_of_squares(x, task->width) / (float)task->width;
        const float inverse = 1.0f / sqrtf(mean + task->epsilon);
        uint32_t i = 0;
        for (; i + 8 <= task->width; i += 8) {
            const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse));
            _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(task->gain + i)));
        }
        for (; i < task->width; i++)
            out[i] = x[i] * inverse * task->gain[i];
    }
}
