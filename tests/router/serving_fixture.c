#include "tests/router/serving_fixture.h"

#include <string.h>

struct router_process router;
struct fake_worker prefill, decode;

void serving_start(const char *const *extra)
{
    router_process_start(&router, extra);
    fake_worker_init(&prefill, &router, WORKER_PREFILL, "p0");
    fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
    prefill.partner = &decode;
}

void serving_connect(bool automatic)
{
    prefill.automatic = decode.automatic = automatic;
    fake_worker_connect(&prefill);
    fake_worker_connect(&decode);
    cr_assert(prefill.welcomed && decode.welcomed, "%s%s", prefill.close_text, decode.close_text);
}

void serving_expect_idle(void)
{
    cr_expect_eq(client_metric(&router, "baton_requests_inflight"), 0);
    struct buffer body = {0};
    client_fetch(&router, "/workers", &body);
    cr_expect_eq(text_count(body.data, "\"inflight_tokens\":0"), text_count(body.data, "\"name\""),
                 "something is still charged: %s", body.data);
    buffer_free(&body);
}

void serving_reach(struct client *client, bool stream, enum stage stage)
{
    const uint32_t number = decode.job_count;
    client_open(client, &router);
    client_post(client, CHAT_PATH,
                stream ? "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}"
                       : "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    WAIT_FOR(&router, decode.job_count == number + 1);
    if (stage == STAGE_RESERVING)
        return;
    const uint32_t prefills = prefill.job_count;
    fake_reserved(&decode, &decode.jobs[number], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == prefills + 1);
    if (stage == STAGE_PREFILLING)
        return;
    fake_tokens(&prefill, &prefill.jobs[prefills], 0, "a", FINISH_NONE);
    fake_tokens(&decode, &decode.jobs[number], 1, "b", FINISH_NONE);
    if (stream)
        WAIT_FOR(&router, client->in.data && strstr(client->in.data, "\"content\":\"b\""));
    else
        fake_worker_heartbeat(&decode, 0, 100);
}
