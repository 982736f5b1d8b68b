/* Rows of the embedding out of the packed weight that a tied output head also uses. */
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"
#include "kernels/weight_panel.h"

REF_INLINE void embed_rows(const struct embed_task *task, enum weight_kind kind)
{
    for (size_t row = 0; row < task->rows; row++) {
        const uint32_t id = (uint32_t)task->ids[row];
        const uint32_t lane = id % PANEL_ROWS;
        const uint8_t *panel =
            task->panels + id / PANEL_ROWS * panel_bytes(kind, task->half_scales, task->k);
        float *out = task->out + row * task->k;
        float scales[2 * PANEL_ROWS];
        for (uint32_t i = 0; i < task->k; i++) {
            if (!weight_kind_grouped(kind)) {
                out[i] = panel_value(kind, panel, i, lane);
                continue;
            }
            const uint32_t g = i / WEIGHT_GROUP;
            if (i % WEIGHT_GROUP == 0)
                panel_scales_load(kind, task->half_scales, panel, task->k, g, scales);
            const uint8_t *group = panel + g * panel_group_bytes(kind);
            out[i] = panel_scaled(kind, scales, lane,
                                  panel_group_value(kind, group, i % WEIGHT_GROUP, lane));
        }
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
