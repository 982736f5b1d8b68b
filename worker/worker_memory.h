/* How large the page pool is when nobody says. */
#ifndef BATON_WORKER_WORKER_MEMORY_H
#define BATON_WORKER_WORKER_MEMORY_H

#include <stdint.h>

#include "model/format/gguf.h"
#include "model/text/text.h"
#include "worker/worker_options.h"

/* Capacity in tokens: `contexts` whole contexts, less if that is over a quarter of the memory that
 * is available now, but never less than one context. 0 when --kv-memory decides. */
uint64_t worker_kv_tokens(const struct gguf *file, const struct text *text,
                          const struct worker_options *options, uint32_t contexts);

#endif
