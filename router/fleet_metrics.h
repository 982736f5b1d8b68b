/* One series a worker that was ever up, by its name and role, as long as the fleet remembers it.
 * Loop thread. */
#ifndef BATON_ROUTER_FLEET_METRICS_H
#define BATON_ROUTER_FLEET_METRICS_H

#include "base/metrics.h"
#include "router/fleet.h"

void fleet_metrics_expose(const struct fleet *fleet, struct buffer *out);

#endif
