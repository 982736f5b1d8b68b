/* Real nodes, the router that asks them and the same model in this process, for tests of what they
 * answer. */
#ifndef BATON_TESTS_WORKER_NODES_FIXTURE_H
#define BATON_TESTS_WORKER_NODES_FIXTURE_H

#include <stdbool.h>

#include "tests/worker/oracle.h"

extern struct fake_router router;
extern struct daemon prefill_process, decode_process;
extern struct fake_worker *prefill, *decode; /* prefill: NULL where the decode node reads prompts */
extern int32_t prompt[4096];
extern struct oracle oracle;

/* options: of the decode node. Without `apart` it reads prompts itself. */
void nodes_open(bool apart, const char *const *options);
void nodes_wait_idle(void);
/* Waits until they are idle. */
void nodes_close(void);

#endif
