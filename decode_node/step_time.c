#include "decode_node/step_time.h"

#include <math.h>
#include <string.h>

/* A step's weight halves about every 700 steps: seconds of full load. */
#define KEEP 0.999
/* Steps that take longer than this many times what was expected are cut to it, ... */
#define OUTLIER 4.0
/* ... but so many in a row are no accident. */
enum { OUTLIERS_MAX = 16, WARM_STEPS = 8 };
/* A pivot below this share of its diagonal says nothing that the others did not. */
#define SINGULAR 1e-9

/* Terms are brought to about 1, so that sums of squares can be compared. */
static const double scales[STEP_TIME_TERMS] = {1.0, 1.0 / 4096, 1.0 / 16};

void step_time_init(struct step_time *model)
{
    memset(model, 0, sizeof *model);
}

/* Solves for the terms in `set` alone (a bit a term); false when they cannot be told apart. */
static bool solve(const struct step_time *model, unsigned set, double out[STEP_TIME_TERMS])
{
    double rows[STEP_TIME_TERMS][STEP_TIME_TERMS + 1];
    unsigned terms[STEP_TIME_TERMS], count = 0;
    for (unsigned i = 0; i < STEP_TIME_TERMS; i++) {
        out[i] = 0;
        if (set >> i & 1)
            terms[count++] = i;
    }
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < count; k++)
            rows[i][k] = model->squares[terms[i]][terms[k]];
        rows[i][count] = model->products[terms[i]];
    }
    /* The matrix is symmetric and not negative: elimination in order is stable. */
    for (unsigned i = 0; i < count; i++) {
        if (rows[i][i] <= SINGULAR * model->squares[terms[i]][terms[i]])
            return false;
        for (unsigned k = i + 1; k < count; k++) {
            const double factor = rows[k][i] / rows[i][i];
            for (unsigned j = i; j <= count; j++)
                rows[k][j] -= factor * rows[i][j];
        }
    }
    for (unsigned i = count; i-- > 0;) {
        double sum = rows[i][count];
        for (unsigned k = i + 1; k < count; k++)
            sum -= rows[i][k] * out[terms[k]];
        out[terms[i]] = sum / rows[i][i];
    }
    return true;
}

/* The squared error that coefficients leave. */
static double error_of(const struct step_time *model, const double x[STEP_TIME_TERMS])
{
    double sum = model->time_squares;
    for (unsigned i = 0; i < STEP_TIME_TERMS; i++) {
        sum -= 2 * x[i] * model->products[i];
        for (unsigned k = 0; k < STEP_TIME_TERMS; k++)
            sum += x[i] * x[k] * model->squares[i][k];
    }
    return sum;
}

struct step_cost step_time_cost(const struct step_time *model)
{
    double best[STEP_TIME_TERMS] = {0}, best_error = INFINITY;
    if (model->weight <= 0)
        return (struct step_cost){0};
    /* Three terms have seven sets: the best one without a negative coefficient is found by trying.
     * Single terms first, so that more of them have to explain more. */
    static const unsigned sets[] = {1, 2, 4, 3, 5, 6, 7};
    const double worth = 1e-6 * model->time_squares;
    for (unsigned i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        double x[STEP_TIME_TERMS];
        if (!solve(model, sets[i], x) || x[0] < 0 || x[1] < 0 || x[2] < 0)
            continue;
        const double error = error_of(model, x);
        if (error < best_error - worth) {
            best_error = error;
            memcpy(best, x, sizeof best);
        }
    }
    return (struct step_cost){.base_us = best[0] * scales[0],
                              .token_us = best[1] * scales[1],
                              .row_us = best[2] * scales[2]};
}

double step_cost_us(const struct step_cost *cost, uint64_t context, uint32_t rows)
{
    return cost->base_us + cost->token_us * (double)context + cost->row_us * (double)rows;
}

void step_time_add(struct step_time *model, uint64_t context, uint32_t rows, double elapsed_us)
{
    if (!isfinite(elapsed_us) || elapsed_us <= 0 || rows == 0)
        return;
    if (model->weight >= WARM_STEPS / 2.0) {
        const struct step_cost cost = step_time_cost(model);
        const double most = OUTLIER * step_cost_us(&cost, context, rows);
        const bool outlier = most > 0 && elapsed_us > most;
        if (outlier && model->outliers >= OUTLIERS_MAX)
            step_time_init(model); /* the machine has changed: what was learned is of another */
        else if (outlier)
            elapsed_us = most;
        model->outliers = outlier ? model->outliers + 1 : 0;
    }
    const double terms[STEP_TIME_TERMS] = {scales[0], scales[1] * (double)context,
                                           scales[2] * (double)rows};
    for (unsigned i = 0; i < STEP_TIME_TERMS; i++) {
        for (unsigned k = 0; k < STEP_TIME_TERMS; k++)
            model->squares[i][k] = model->squares[i][k] * KEEP + terms[i] * terms[k];
        model->products[i] = model->products[i] * KEEP + terms[i] * elapsed_us;
    }
    model->weight = model->weight * KEEP + 1;
    model->time_squares = model->time_squares * KEEP + elapsed_us * elapsed_us;
}
