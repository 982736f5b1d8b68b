/* Each router has a link in one of these states; one attempt is in flight at a time.
 *
 *   state       means                           leaves by
 *   WAITING     no link; the retry timer runs   timer -> DIALLING
 *   DIALLING    connecting                      open -> GREETING, close -> WAITING
 *   GREETING    HELLO sent                      WELCOME -> CONNECTED, close -> WAITING
 *   CONNECTED   heartbeats run                  close -> WAITING (on_lost)
 *
 * A router that refuses this worker with MISMATCH is asked again slowly: it may be restarted with
 * another model. */
#include "transfer/router_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/random.h"

const struct router_client_limits router_client_default_limits = {
    .retry_first_ms = 100,
    .retry_max_ms = 3000,
    .refused_retry_ms = 10000,
    .link = {.connect_ms = 3000,
             .silent_ms = 3000,
             .frame_bytes_max = WIRE_FRAME_BYTES_MAX,
             .output_bytes_max = 64 << 20},
};

enum { HEARTBEAT_DEFAULT_MS = 500, ADDRESS_BYTES = 128 };

enum router_state { ROUTER_WAITING, ROUTER_DIALLING, ROUTER_GREETING, ROUTER_CONNECTED };

struct router {
    struct router_client *client;
    uint32_t index;
    enum router_state state;
    uint32_t generation; /* counts connections; a ref of an older one is stale */
    uint32_t retry_ms;
    uint64_t heartbeat_sequence;
    struct link *link;
    struct loop_timer *retry, *heartbeat;
    bool refused; /* by MISMATCH, at the last attempt */
    bool loss_logged;
    bool leaving; /* it has said that it stops */
    char address[ADDRESS_BYTES];
    char refusal[513];
};

struct router_client {
    struct loop *loop;
    struct router_client_limits limits;
    struct router_client_events events;
    void *arg;
    struct random jitter;
    bool going_away;
    uint32_t count;
    struct router routers[ROUTER_LINKS_MAX];
};

static struct router_ref ref_of(const struct router *router)
{
    return (struct router_ref){router->index, router->generation};
}

/* Half of the wait is fixed and half is drawn, so that workers that lost a router together do not
 * come back together. */
static void retry_later(struct router *router)
{
    const struct router_client_limits *limits = &router->client->limits;
    uint32_t wait_ms = router->retry_ms;
    if (router->refused)
        wait_ms = limits->refused_retry_ms;
    else
        router->retry_ms = 2 * router->retry_ms < limits->retry_max_ms ? 2 * router->retry_ms
                                                                       : limits->retry_max_ms;
    const uint32_t drawn_ms = (uint32_t)random_below(&router->client->jitter, wait_ms / 2 + 1);
    router->state = ROUTER_WAITING;
    loop_timer_start(router->retry, wait_ms - wait_ms / 2 + drawn_ms, 0);
}

static void send_heartbeat(void *arg)
{
    struct router *router = arg;
    struct router_client *client = router->client;
    struct msg_heartbeat heartbeat = {0};
    client->events.on_heartbeat(client->arg, ref_of(router), &heartbeat);
    heartbeat.sequence = ++router->heartbeat_sequence;
    /* A link that is failing tells so by on_close. */
    if (link_send(router->link, MESSAGE_ID_HEARTBEAT, &heartbeat) != STATUS_OK)
        LOG_DEBUG("a heartbeat for router %s was not sent", router->address);
}

static void send_goaway(struct router *router)
{
    const struct msg_goaway goaway = {.text = wire_str("this worker is going away")};
    /* A router that cannot take it sees the link close instead. */
    if (router->state == ROUTER_CONNECTED &&
        link_send(router->link, MESSAGE_ID_GOAWAY, &goaway) != STATUS_OK)
        LOG_DEBUG("router %s was not told that this worker goes away", router->address);
}

static void router_welcomed(struct router *router, const struct msg_welcome *welcome)
{
    const uint32_t most_ms = router->client->limits.link.silent_ms / 3;
    uint32_t heartbeat_ms = welcome->heartbeat_ms ? welcome->heartbeat_ms : HEARTBEAT_DEFAULT_MS;
    if (heartbeat_ms > most_ms)
        heartbeat_ms = most_ms;
    if (heartbeat_ms == 0)
        heartbeat_ms = 1;
    router->state = ROUTER_CONNECTED;
    router->retry_ms = router->client->limits.retry_first_ms;
    router->refused = false;
    router->loss_logged = router->leaving = false;
    router->heartbeat_sequence = 0;
    char version[33];
    wire_str_copy(welcome->version, version, sizeof version);
    LOG_INFO("router %s (version %s) took this worker", router->address, version);
    loop_timer_start(router->heartbeat, heartbeat_ms, heartbeat_ms);
    send_heartbeat(router);
    if (router->client->going_away)
        send_goaway(router);
}

static void on_open(void *arg)
{
    struct router *router = arg;
    struct msg_hello hello = {0};
    router->state = ROUTER_GREETING;
    router->generation++;
    router->client->events.on_hello(router->client->arg, &hello);
    const enum status status = link_send(router->link, MESSAGE_ID_HELLO, &hello);
    if (status == STATUS_OK)
        return;
    /* The HELLO itself does not fit its limits: said by link_send; trying again costs little. */
    link_close(router->link, STATUS_INVALID, NULL);
    router->link = NULL;
    retry_later(router);
}

static void on_message(void *arg, enum message_id id, const void *message)
{
    struct router *router = arg;
    if (id == MESSAGE_ID_HEARTBEAT_ACK) {
        /* Its arrival is what counts most: the link is not silent. */
        if (router->state == ROUTER_CONNECTED && router->client->events.on_ack != NULL)
            router->client->events.on_ack(router->client->arg, ref_of(router), message);
        return;
    }
    if (router->state == ROUTER_GREETING && id == MESSAGE_ID_WELCOME) {
        router_welcomed(router, message);
        return;
    }
    if (router->state == ROUTER_CONNECTED && id == MESSAGE_ID_GOAWAY) {
        char reason[129];
        wire_str_copy(((const struct msg_goaway *)message)->text, reason, sizeof reason);
        LOG_INFO("router %s says goodbye: %s", router->address, reason);
        router->leaving = true;
        return;
    }
    if (router->state == ROUTER_CONNECTED && id != MESSAGE_ID_WELCOME) {
        router->client->events.on_message(router->client->arg, ref_of(router), id, message);
        return;
    }
    char text[128];
    snprintf(text, sizeof text, "%s came where %s", wire_message_name(id),
             router->state == ROUTER_GREETING ? "only a welcome may" : "none may");
    const bool was_connected = router->state == ROUTER_CONNECTED;
    LOG_WARN("router %s broke the protocol: %s", router->address, text);
    loop_timer_stop(router->heartbeat);
    link_close(router->link, STATUS_CORRUPT, text);
    router->link = NULL;
    const struct router_ref ref = ref_of(router);
    retry_later(router);
    if (was_connected)
        router->client->events.on_lost(router->client->arg, ref);
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct router *router = arg;
    const struct router_ref ref = ref_of(router);
    const bool was_connected = router->state == ROUTER_CONNECTED;
    router->link = NULL;
    loop_timer_stop(router->heartbeat);
    router->refused = status == STATUS_MISMATCH;
    if (router->refused)
        snprintf(router->refusal, sizeof router->refusal, "%s", text);
    /* A router that stays away is told once, not at every attempt, and one that said goodbye has
     * been told already. */
    if (was_connected && router->leaving)
        LOG_INFO("router %s is gone, will keep trying", router->address);
    else if (was_connected || router->refused || !router->loss_logged)
        LOG_WARN("router %s %s: %s", router->address,
                 was_connected     ? "is lost"
                 : router->refused ? "refused this worker"
                                   : "cannot be reached, will keep trying",
                 text);
    router->loss_logged = true;
    retry_later(router);
    if (was_connected)
        router->client->events.on_lost(router->client->arg, ref);
}

static const struct link_events link_events = {
    .on_open = on_open,
    .on_message = on_message,
    .on_close = on_close,
};

static void dial(void *arg)
{
    struct router *router = arg;
    struct error error = {0};
    router->state = ROUTER_DIALLING;
    const enum status status =
        link_dial(router->client->loop, router->address, &link_events, router,
                  &router->client->limits.link, &router->link, &error);
    if (status == STATUS_OK)
        return;
    if (!router->loss_logged)
        LOG_WARN("router %s cannot be dialled, will keep trying: %s", router->address, error.text);
    router->loss_logged = true;
    router->link = NULL;
    retry_later(router);
}

enum status router_client_create(struct loop *loop, const char *const *addresses, uint32_t count,
                                 const struct router_client_events *events, void *arg,
                                 struct router_client **out, struct error *error)
{
    if (count == 0 || count > ROUTER_LINKS_MAX)
        return error_set(error, STATUS_LIMIT, "%u routers are given, the limit is 1 to %d", count,
                         ROUTER_LINKS_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (strlen(addresses[i]) >= ADDRESS_BYTES || !strrchr(addresses[i], ':'))
            return error_set(error, STATUS_INVALID,
                             "\"%.128s\" is not a router's address: host:port in at most %d bytes",
                             addresses[i], ADDRESS_BYTES - 1);
    struct router_client *client = calloc(1, sizeof *client);
    CHECK(client != NULL);
    client->loop = loop;
    client->limits = router_client_default_limits;
    client->events = *events;
    client->arg = arg;
    client->count = count;
    random_init(&client->jitter, random_os_u64());
    for (uint32_t i = 0; i < count; i++) {
        struct router *router = &client->routers[i];
        router->client = client;
        router->index = i;
        router->retry_ms = client->limits.retry_first_ms;
        snprintf(router->address, sizeof router->address, "%s", addresses[i]);
        router->retry = loop_timer_create(loop, dial, router);
        router->heartbeat = loop_timer_create(loop, send_heartbeat, router);
        loop_timer_start(router->retry, 0, 0);
    }
    *out = client;
    return STATUS_OK;
}

void router_client_set_limits(struct router_client *client,
                              const struct router_client_limits *limits)
{
    client->limits = *limits;
    for (uint32_t i = 0; i < client->count; i++)
        client->routers[i].retry_ms = limits->retry_first_ms;
}

void router_client_goaway(struct router_client *client)
{
    client->going_away = true;
    for (uint32_t i = 0; i < client->count; i++)
        send_goaway(&client->routers[i]);
}

void router_client_destroy(struct router_client *client)
{
    if (!client)
        return;
    for (uint32_t i = 0; i < client->count; i++) {
        struct router *router = &client->routers[i];
        if (!client->going_away)
            send_goaway(router);
        link_close(router->link, STATUS_CLOSED, NULL);
        loop_timer_destroy(router->retry);
        loop_timer_destroy(router->heartbeat);
    }
    free(client);
}

enum status router_client_send(struct router_client *client, struct router_ref ref,
                               enum message_id id, const void *message)
{
    CHECK(ref.index < client->count);
    struct router *router = &client->routers[ref.index];
    if (router->state != ROUTER_CONNECTED || router->generation != ref.generation)
        return STATUS_CLOSED;
    return link_send(router->link, id, message);
}

uint32_t router_client_connected_count(const struct router_client *client)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < client->count; i++)
        count += client->routers[i].state == ROUTER_CONNECTED;
    return count;
}

bool router_client_refused(const struct router_client *client, const char **text_out)
{
    for (uint32_t i = 0; i < client->count; i++)
        if (!client->routers[i].refused)
            return false;
    *text_out = client->routers[0].refusal;
    return true;
}
