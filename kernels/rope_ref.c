/* Rotary position embedding: (a, b) becomes (a cos - b sin, b cos + a sin). */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/ref_clones.h"

REF_INLINE void rotate(float *a, float *b, float cos, float sin)
{
    const float x = *a;
    const float y = *b;
    *a = fmaf(x, cos, -(y * sin));
    *b = fmaf(y, cos, x * sin);
}

REF_CLONES void rope_neighbours__ref(const struct rope_task *task)
{
    const size_t pairs = task->rotary / 2;
    for (size_t row = 0; row < task->rows; row++) {
        const float *cos = task->cos + row * pairs;
        const float *sin = task->sin + row * pairs;
        for (size_t head = 0; head < task->heads; head++) {
            float *x = task->x + (row * task->heads + head) * task->head_dim;
            for (size_t i = 0; i < pairs; i++)
                rotate(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
        }
    }
}

REF_CLONES void rope_halves__ref(const struct rope_task *task)
{
    const size_t pairs = task->rotary / 2;
    for (size_t row = 0; row < task->rows; row++) {
        const float *cos = task->cos + row * pairs;
        const float *sin = task->sin + row * pairs;
        for (size_t head = 0; head < task->heads; head++) {
            float *x = task->x + (row * task->heads + head) * task->head_dim;
            for (size_t i = 0; i < pairs; i++)
                rotate(x + i, x + pairs + i, cos[i], sin[i]);
        }
    }
}
