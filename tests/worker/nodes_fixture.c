#include "tests/worker/nodes_fixture.h"

#include <stdio.h>

struct fake_router router;
struct daemon prefill_process, decode_process;
struct fake_worker *prefill, *decode;
int32_t prompt[4096];
struct oracle oracle;

void nodes_open(bool apart, const char *const *options)
{
    static char model[TEST_PATH_BYTES];
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    fake_router_open(&router);
    decode = fake_router_worker(&router, &decode_process, "baton-decode", model, options);
    prefill =
        apart ? fake_router_worker(&router, &prefill_process, "baton-prefill", model, NULL) : NULL;
    oracle_prompt(1, decode->vocab_count, 4096, prompt);
    oracle_open(&oracle, model);
}

void nodes_wait_idle(void)
{
    if (prefill != NULL)
        fake_router_wait(&router, "idle prefill node", worker_idle, prefill);
    fake_router_wait(&router, "idle decode node", worker_idle, decode);
}

void nodes_close(void)
{
    nodes_wait_idle();
    if (prefill != NULL)
        daemon_stop(&prefill_process);
    daemon_stop(&decode_process);
    fake_router_close(&router);
    oracle_close(&oracle);
}
