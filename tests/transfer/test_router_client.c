#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "transfer/router_client.h"
#include "tests/transfer/turn_loop.h"

/* A router that can be started, stopped and told to refuse. */
struct fake_router {
    struct loop *loop;
    struct link_listener *listener;
    struct link *link;
    uint32_t hellos, heartbeats, goaways, lost, others;
    bool refuse, rude;
    char address[32], node[64];
};

struct worker {
    struct router_client *client;
    uint32_t lost, messages, acks, acks_anew;
    struct router_ref last, last_lost, last_beat;
};

static void router_message(void *arg, enum message_id id, const void *message)
{
    struct fake_router *router = arg;
    if (id == MESSAGE_ID_HELLO) {
        router->hellos++;
        wire_str_copy(((const struct msg_hello *)message)->node, router->node, sizeof router->node);
        if (router->refuse) {
            struct link *link = router->link;
            router->link = NULL;
            link_close(link, STATUS_MISMATCH, "this router serves another model");
            return;
        }
        if (router->rude) {
            const struct msg_cancel cancel = {.request = 1};
            cr_assert_eq(link_send(router->link, MESSAGE_ID_CANCEL, &cancel), STATUS_OK);
            return;
        }
        const struct msg_welcome welcome = {.heartbeat_ms = 10, .version = wire_str("0.1")};
        cr_assert_eq(link_send(router->link, MESSAGE_ID_WELCOME, &welcome), STATUS_OK);
    } else if (id == MESSAGE_ID_HEARTBEAT) {
        const struct msg_heartbeat *heartbeat = message;
        router->heartbeats++;
        cr_assert_eq(heartbeat->running, 42u);
        const struct msg_heartbeat_ack ack = {.sequence = heartbeat->sequence,
                                              .prefix_anew = heartbeat->sequence == 2};
        cr_assert_eq(link_send(router->link, MESSAGE_ID_HEARTBEAT_ACK, &ack), STATUS_OK);
    } else if (id == MESSAGE_ID_GOAWAY) {
        router->goaways++;
    } else {
        router->others++;
    }
}

static void router_closed(void *arg, enum status status, const char *text)
{
    struct fake_router *router = arg;
    router->lost++;
    router->link = NULL;
}

static const struct link_events router_events = {NULL, router_message, router_closed};

static void router_accept(void *arg, struct link *link)
{
    struct fake_router *router = arg;
    router->link = link;
    link_attach(link, &router_events, router);
}

static void router_start(struct fake_router *router, struct loop *loop)
{
    struct error error;
    router->loop = loop;
    const char *address = router->address[0] ? router->address : "127.0.0.1:0";
    cr_assert_eq(link_listen(loop, address, router_accept, router, &link_default_limits,
                             &router->listener, &error),
                 STATUS_OK, "%s", error.text);
    snprintf(router->address, sizeof router->address, "127.0.0.1:%u",
             link_listener_port(router->listener));
}

static void router_stop(struct fake_router *router)
{
    link_listener_close(router->listener);
    link_close(router->link, STATUS_CLOSED, NULL);
    router->listener = NULL;
    router->link = NULL;
}

static void worker_message(void *arg, struct router_ref router, enum message_id id,
                           const void *message)
{
    struct worker *worker = arg;
    worker->messages++;
    worker->last = router;
}

static void worker_lost(void *arg, struct router_ref router)
{
    struct worker *worker = arg;
    worker->lost++;
    worker->last_lost = router;
}

static void worker_hello(void *arg, struct msg_hello *hello)
{
    hello->role = WORKER_DECODE;
    hello->node = wire_str("decode-7");
}

static void worker_heartbeat(void *arg, struct router_ref router, struct msg_heartbeat *heartbeat)
{
    struct worker *worker = arg;
    worker->last_beat = router;
    heartbeat->running = 42;
}

static void worker_ack(void *arg, struct router_ref router, const struct msg_heartbeat_ack *ack)
{
    struct worker *worker = arg;
    cr_assert_eq(router.generation, worker->last_beat.generation);
    worker->acks++;
    worker->acks_anew += ack->prefix_anew;
}

static const struct router_client_events worker_events = {worker_message, worker_lost, worker_hello,
                                                          worker_heartbeat, worker_ack};

static void worker_start(struct worker *worker, struct loop *loop,
                         const struct fake_router *routers, uint32_t count)
{
    const char *addresses[ROUTER_LINKS_MAX];
    struct error error;
    for (uint32_t i = 0; i < count; i++)
        addresses[i] = routers[i].address;
    cr_assert_eq(router_client_create(loop, addresses, count, &worker_events, worker,
                                      &worker->client, &error),
                 STATUS_OK, "%s", error.text);
    struct router_client_limits limits = router_client_default_limits;
    limits.retry_first_ms = 10;
    limits.retry_max_ms = 100;
    limits.refused_retry_ms = 200;
    router_client_set_limits(worker->client, &limits);
}

static void ask(struct fake_router *router)
{
    const struct msg_cancel cancel = {.request = 1};
    cr_assert_eq(link_send(router->link, MESSAGE_ID_CANCEL, &cancel), STATUS_OK);
}

Test(router_client, greets_beats_and_says_goodbye)
{
    struct loop *loop = loop_create();
    struct fake_router router = {0};
    struct worker worker = {0};
    router_start(&router, loop);
    worker_start(&worker, loop, &router, 1);
    TURN_UNTIL(loop, router.heartbeats >= 5);
    cr_assert_eq(router.hellos, 1u);
    cr_assert_str_eq(router.node, "decode-7");
    cr_assert_eq(router_client_connected_count(worker.client), 1u);
    TURN_UNTIL(loop, worker.acks >= 4);
    cr_assert_eq(worker.acks_anew, 1u, "what the router says with its second acknowledgement");
    router_client_destroy(worker.client);
    TURN_UNTIL(loop, router.lost == 1);
    cr_assert_eq(router.goaways, 1u);
    router_stop(&router);
    loop_destroy(loop);
}

/* It is no message for whoever computes, and the worker looks for the router's next life. */
Test(router_client, a_router_that_says_goodbye_is_looked_for_again)
{
    struct loop *loop = loop_create();
    struct fake_router router = {0};
    struct worker worker = {0};
    router_start(&router, loop);
    worker_start(&worker, loop, &router, 1);
    TURN_UNTIL(loop, router.heartbeats >= 1);
    const struct msg_goaway goaway = {.text = wire_str("the router stops")};
    cr_assert_eq(link_send(router.link, MESSAGE_ID_GOAWAY, &goaway), STATUS_OK);
    router_stop(&router);
    TURN_UNTIL(loop, worker.lost == 1);
    cr_expect_eq(worker.messages, 0u);
    router_start(&router, loop);
    TURN_UNTIL(loop, router_client_connected_count(worker.client) == 1);
    ask(&router);
    TURN_UNTIL(loop, worker.messages == 1);
    router_client_destroy(worker.client);
    router_stop(&router);
    loop_destroy(loop);
}

Test(router_client, comes_back_after_a_loss_and_an_old_ref_is_closed)
{
    struct loop *loop = loop_create();
    struct fake_router router = {0};
    struct worker worker = {0};
    router_start(&router, loop);
    worker_start(&worker, loop, &router, 1);
    TURN_UNTIL(loop, router.heartbeats >= 1);
    ask(&router);
    TURN_UNTIL(loop, worker.messages == 1);
    const struct router_ref old = worker.last;
    const struct msg_failed failed = {.request = 1};
    cr_assert_eq(router_client_send(worker.client, old, MESSAGE_ID_FAILED, &failed), STATUS_OK);
    TURN_UNTIL(loop, router.others == 1);

    router_stop(&router);
    TURN_UNTIL(loop, worker.lost == 1);
    cr_assert_eq(worker.last_lost.generation, old.generation);
    cr_assert_eq(router_client_send(worker.client, old, MESSAGE_ID_FAILED, &failed), STATUS_CLOSED);
    turn_for(loop, 100); /* several attempts fail */
    router_start(&router, loop);
    TURN_UNTIL(loop, router_client_connected_count(worker.client) == 1);
    cr_assert_eq(router_client_send(worker.client, old, MESSAGE_ID_FAILED, &failed), STATUS_CLOSED);
    ask(&router);
    TURN_UNTIL(loop, worker.messages == 2);
    cr_assert_neq(worker.last.generation, old.generation);
    router_client_destroy(worker.client);
    router_stop(&router);
    loop_destroy(loop);
}

Test(router_client, two_routers_are_independent)
{
    struct loop *loop = loop_create();
    struct fake_router routers[2] = {0};
    struct worker worker = {0};
    router_start(&routers[0], loop);
    router_start(&routers[1], loop);
    worker_start(&worker, loop, routers, 2);
    TURN_UNTIL(loop, router_client_connected_count(worker.client) == 2);
    ask(&routers[1]);
    TURN_UNTIL(loop, worker.messages == 1);
    cr_assert_eq(worker.last.index, 1u);
    router_stop(&routers[0]);
    TURN_UNTIL(loop, worker.lost == 1);
    cr_assert_eq(worker.last_lost.index, 0u);
    cr_assert_eq(router_client_connected_count(worker.client), 1u);
    const struct msg_failed failed = {.request = 1};
    cr_assert_eq(router_client_send(worker.client, worker.last, MESSAGE_ID_FAILED, &failed),
                 STATUS_OK);
    TURN_UNTIL(loop, routers[1].others == 1);
    router_client_destroy(worker.client);
    router_stop(&routers[1]);
    loop_destroy(loop);
}

Test(router_client, a_refusal_is_told_and_asked_again_slowly)
{
    struct loop *loop = loop_create();
    struct fake_router router = {.refuse = true};
    struct worker worker = {0};
    const char *text = NULL;
    router_start(&router, loop);
    worker_start(&worker, loop, &router, 1);
    TURN_UNTIL(loop, router_client_refused(worker.client, &text));
    cr_assert_str_eq(text, "this router serves another model");
    cr_assert_eq(worker.lost, 0u);
    TURN_UNTIL(loop, router.hellos == 3);
    cr_assert(router_client_refused(worker.client, &text));
    router.refuse = false; /* restarted with our model */
    TURN_UNTIL(loop, router_client_connected_count(worker.client) == 1);
    cr_assert_not(router_client_refused(worker.client, &text));
    router_client_destroy(worker.client);
    router_stop(&router);
    loop_destroy(loop);
}

Test(router_client, a_router_that_speaks_before_its_welcome_is_left)
{
    struct loop *loop = loop_create();
    struct fake_router router = {.rude = true};
    struct worker worker = {0};
    router_start(&router, loop);
    worker_start(&worker, loop, &router, 1);
    TURN_UNTIL(loop, router.lost == 2);
    cr_assert_eq(worker.messages, 0u);
    cr_assert_eq(worker.lost, 0u);
    router_client_destroy(worker.client);
    router_stop(&router);
    loop_destroy(loop);
}

Test(router_client, bad_addresses_are_refused_at_creation)
{
    struct loop *loop = loop_create();
    struct router_client *client = NULL;
    struct error error;
    const char *address = "no-port";
    cr_assert_eq(router_client_create(loop, &address, 1, &worker_events, NULL, &client, &error),
                 STATUS_INVALID);
    cr_assert(strstr(error.text, "no-port"), "%s", error.text);
    cr_assert_eq(router_client_create(loop, &address, 0, &worker_events, NULL, &client, &error),
                 STATUS_LIMIT);
    cr_assert_eq(router_client_create(loop, &address, 9, &worker_events, NULL, &client, &error),
                 STATUS_LIMIT);
    cr_assert_null(client);
    loop_destroy(loop);
}
