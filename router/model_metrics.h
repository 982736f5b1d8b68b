/* Native series of each model, beside the totals of all: how it is served, what was asked of it.
 * The label is one of the router's few models. */
#ifndef BATON_ROUTER_MODEL_METRICS_H
#define BATON_ROUTER_MODEL_METRICS_H

#include "base/bytes.h"

struct router;

void model_metrics_expose(const struct router *router, struct buffer *out);

#endif
