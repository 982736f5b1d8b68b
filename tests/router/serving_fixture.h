/* One router, one prefill and one decode node made up by the test, and requests brought to a stage.
 */
#ifndef BATON_TESTS_ROUTER_SERVING_FIXTURE_H
#define BATON_TESTS_ROUTER_SERVING_FIXTURE_H

#include "tests/router/fake_worker.h"

#define CHAT_PATH "/v1/chat/completions"
#define TEXT_PATH "/v1/completions"

extern struct router_process router;
extern struct fake_worker prefill, decode;

/* Starts the router and prepares the workers. extra: as router_process_start. */
void serving_start(const char *const *extra);
void serving_connect(bool automatic);
/* Nothing is in flight, nothing is charged. */
void serving_expect_idle(void);

enum stage { STAGE_RESERVING, STAGE_PREFILLING, STAGE_DECODING, STAGE_COUNT };
/* A chat request, streamed or not, up to that stage: decoding has given "ab". */
void serving_reach(struct client *client, bool stream, enum stage stage);

#endif
