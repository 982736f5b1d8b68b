/* Rows of the embedding out of the packed weight that a tied output head also uses. */
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"
#include "kernels/weight_panel.h"

REF_INLINE void embed_rows(const struct embed_task *task, enum weight_kind kind)
{
    for (size_t row = 0; row < task->rows; row++) {
        const uint32_t id = (uint32_t)task->ids[row];
        const uint8_t *panel = task->panels + id / PANEL_ROWS * panel_bytes(kind, task->k);
        float *out = task->out + row * task->k;
        for (uint32_t i = 0; i < task->k; i++)
            out[i] = panel_value(kind, panel, i, id % PANEL_ROWS);
    }
}

#define EMBED(name, kind)                                                                          \
    REF_CLONES void name(const struct embed_task *task)                                            \
    {                                                                                              \
        embed_rows(task, kind);                                                                    \
    }
EMBED(embed_f32__ref, WEIGHT_F32)
EMBED(embed_bf16__ref, WEIGHT_BF16)
EMBED(embed_q8__ref, WEIGHT_Q8)
EMBED(embed_q8a__ref, WEIGHT_Q8A)
EMBED(embed_q4__ref, WEIGHT_Q4)
EMBED(embed_q4a__ref, WEIGHT_Q4A)
