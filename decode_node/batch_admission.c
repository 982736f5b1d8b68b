#include "decode_node/batch_admission.h"

#include <stdbool.h>

#include "base/check.h"

static uint32_t member_rows(uint32_t left, uint32_t chunk_tokens, bool *chunk_taken)
{
    DCHECK(left >= 1);
    if (left == 1)
        return 1;
    if (*chunk_taken)
        return 0;
    *chunk_taken = true;
    return left < chunk_tokens ? left : chunk_tokens;
}

uint32_t batch_admission_plan(const struct batch_snapshot *snapshot, uint32_t *rows_out)
{
    CHECK(snapshot->running_count <= snapshot->batch_max);
    const uint32_t places = snapshot->batch_max - snapshot->running_count;
    const uint32_t joining = snapshot->waiting_count < places ? snapshot->waiting_count : places;
    bool chunk_taken = false;
    for (uint32_t i = 0; i < snapshot->running_count; i++)
        rows_out[i] = member_rows(snapshot->running_rows[i], snapshot->chunk_tokens, &chunk_taken);
    for (uint32_t i = 0; i < joining; i++)
        rows_out[snapshot->running_count + i] =
            member_rows(snapshot->waiting_rows[i], snapshot->chunk_tokens, &chunk_taken);
    return joining;
}
