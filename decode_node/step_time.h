/* How long a decode step takes, learned while steps run: base + per_token * context + per_row *
 * rows.
 *
 * A decode step reads all weights once (base), the keys and values of every token that a sequence
 * has so far (context), and does each row's share of the products (rows): the latency model of
 * DistServe (Zhong et al., OSDI 2024, appendix A), with the batch's own term kept apart. It is
 * fitted by least squares with exponential forgetting (Ljung, System Identification, 11.2), no
 * coefficient below zero, since no step gets shorter by more work. Where the steps seen do not tell
 * two of the three apart, the simplest set that explains them is taken. Pure: no clock, no thread.
 */
#ifndef BATON_DECODE_NODE_STEP_TIME_H
#define BATON_DECODE_NODE_STEP_TIME_H

#include <stdbool.h>
#include <stdint.h>

enum { STEP_TIME_TERMS = 3 };

struct step_time {
    double squares[STEP_TIME_TERMS][STEP_TIME_TERMS]; /* weighted sums of products of the terms */
    double products[STEP_TIME_TERMS];                 /* and of the terms with the time */
    double weight, time_squares;
    uint32_t outliers; /* in a row */
};

/* Coefficients in microseconds. All zero: nothing is known yet. */
struct step_cost {
    double base_us, token_us, row_us;
};

void step_time_init(struct step_time *model);
/* One step of `rows` sequences with `context` tokens together. A step that took a multiple of what
 * was expected, because something else had the CPU, counts as that multiple and no more. */
void step_time_add(struct step_time *model, uint64_t context, uint32_t rows, double elapsed_us);
/* What the steps so far say. */
struct step_cost step_time_cost(const struct step_time *model);
double step_cost_us(const struct step_cost *cost, uint64_t context, uint32_t rows);

#endif
