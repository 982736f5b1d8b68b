/* How much memory this process may still take before somebody is killed for it: the host's, or less
 * where control groups (a container, a systemd unit) allow less. Any thread. */
#ifndef BATON_BASE_MEMORY_H
#define BATON_BASE_MEMORY_H

#include <stdint.h>

/* In bytes, page cache that can be dropped included; 0 when the system does not tell. */
uint64_t memory_available(void);
/* The same, reading /proc and /sys below another root: for tests. */
uint64_t memory_available_below(const char *root);

#endif
