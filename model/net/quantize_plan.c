#include <stdlib.h>

#include "base/check.h"
#include "model/net/quantize_internal.h"
#include "model/net/tensor_table_internal.h"

static size_t row_count(void)
{
    size_t count;
    (void)tensor_rows(&count);
    return count;
}

enum status quantize_plan_init(struct quantize_plan *plan, enum model_quantize scheme,
                               uint32_t layers, struct error *error)
{
    *plan = (struct quantize_plan){.scheme = scheme, .layers = layers};
    if (scheme != QUANTIZE_INT4)
        return STATUS_OK;
    plan->narrow = calloc(layers * row_count(), sizeof *plan->narrow);
    if (plan->narrow == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory to choose widths in %u layers",
                         layers);
    return STATUS_OK;
}

void quantize_plan_release(struct quantize_plan *plan)
{
    free(plan->narrow);
    plan->narrow = NULL;
}

bool *quantize_plan_at(const struct quantize_plan *plan, uint32_t layer, size_t row)
{
    CHECK(plan->narrow != NULL && layer < plan->layers && row < row_count());
    return &plan->narrow[layer * row_count() + row];
}

bool quantize_plan_narrow(const struct quantize_plan *plan, uint32_t layer, size_t row)
{
    return plan->narrow != NULL && *quantize_plan_at(plan, layer, row);
}

bool quantize_plan_any(const struct quantize_plan *plan)
{
    for (size_t i = 0; plan->narrow != NULL && i < plan->layers * row_count(); i++)
        if (plan->narrow[i])
            return true;
    return false;
}

void quantize_plan_describe(const struct quantize_plan *plan, struct buffer *out)
{
    static const char *const schemes[] = {
        [QUANTIZE_NONE] = "", [QUANTIZE_INT8] = "int8g32 2", [QUANTIZE_INT4] = "int4g32 int8g32 2"};
    buffer_add_text(out, schemes[plan->scheme]);
    if (plan->narrow != NULL)
        buffer_add(out, plan->narrow, plan->layers * row_count() * sizeof *plan->narrow);
}

/* Nats a value, the cheaper first; equal ones by row, so that every machine has one order. */
static int compare_roles(const void *a, const void *b)
{
    const struct quantize_role *x = a, *y = b;
    const double left = x->cost * (double)y->total, right = y->cost * (double)x->total;
    if (left != right)
        return left < right ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

uint64_t quantize_plan_spend(struct quantize_plan *plan, struct quantize_role *roles,
                             size_t role_count, double budget)
{
    uint64_t narrow = 0;
    qsort(roles, role_count, sizeof *roles, compare_roles);
    for (size_t i = 0; i < role_count; i++) {
        const double share = roles[i].cost <= budget ? 1 : budget / roles[i].cost;
        const uint32_t taken = (uint32_t)(share * plan->layers);
        budget = share < 1 ? 0 : budget - roles[i].cost;
        for (uint32_t layer = 0; layer < plan->layers; layer++) {
            /* The layers left out are half at the front, half at the back. */
            const uint32_t front = (plan->layers - taken) / 2;
            const bool takes = layer >= front && layer < front + taken;
            *quantize_plan_at(plan, layer, roles[i].row) = takes && roles[i].values[layer] != 0;
            narrow += takes ? roles[i].values[layer] : 0;
        }
    }
    return narrow;
}
