/* silu(gate) * up, sixteen at a time; the exponential is exp_approx.h, operation by operation. */
#include "kernels/exp_approx.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx512.h"

AVX512_INLINE __m512 exp_avx512(__m512 x)
{
    const __m512 shifted =
        _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_INVERSE_LN2), _mm512_set1_ps(EXP_ROUND));
    const __m512 n = _mm512_sub_ps(shifted, _mm512_set1_ps(EXP_ROUND));
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_P4), r, _mm512_set1_ps(EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P0));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    const __m512i power = _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23),
                                           _mm512_set1_epi32(0x3f800000));
    __m512 result = _mm512_mul_ps(p, _mm512_castsi512_ps(power));
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_HIGHEST), _CMP_GT_OQ);
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LOWEST), _CMP_LT_OQ);
    result = _mm512_mask_mov_ps(result, above, _mm512_set1_ps(INFINITY));
    return _mm512_mask_mov_ps(result, below, _mm512_setzero_ps());
}

void swiglu_f32__avx512vnni(const struct swiglu_task *task)
{
    for (size_t i = 0; i < task->count; i += 16) {
        const size_t left = task->count - i;
        const __mmask16 lanes = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
        const __m512 gate = _mm512_maskz_loadu_ps(lanes, task->gate + i);
        const __m512 up = _mm512_maskz_loadu_ps(lanes, task->up + i);
        const __m512 negated = _mm512_xor_ps(gate, _mm512_set1_ps(-0.0f));
        const __m512 divisor = _mm512_add_ps(_mm512_set1_ps(1.0f), exp_avx512(negated));
        _mm512_mask_storeu_ps(task->out + i, lanes,
                              _mm512_mul_ps(_mm512_div_ps(gate, divisor), up));
    }
}
