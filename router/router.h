/* The front door: HTTP in, two workers per request, tokens back out.
 *
 * The noun is `struct router`; it ties HTTP, fleet, text pool and journal together on one loop. The
 * decisions are elsewhere: what a request does next in request.c, who serves it in placement.c.
 * Loop thread only. */
#ifndef BATON_ROUTER_ROUTER_H
#define BATON_ROUTER_ROUTER_H

#include <stdbool.h>

#include "base/config.h"
#include "base/loop.h"
#include "router/model_list.h"

struct router;

/* Whose request bodies and answers are logged. */
enum router_log_text { ROUTER_LOG_TEXT_NONE, ROUTER_LOG_TEXT_ERRORS, ROUTER_LOG_TEXT_ALL };

struct router_options {
    const char *http, *control, *state_directory;
    uint32_t requests_max, text_threads, default_max_tokens;
    uint64_t body_bytes, stream_bytes;
    uint64_t read_bytes, text_bytes; /* bodies being read; bodies waiting for tokenising */
    uint32_t request_timeout_ms, reserve_timeout_ms, idle_timeout_ms, read_timeout_ms;
    uint32_t report_wait_ms;
    uint32_t sse_keep_alive_ms; /* 0: streams may be silent */
    uint32_t local_prefill_tokens, slow_start_ms, speed_stale_ms, priority_wait_ms;
    uint32_t prefix_index_pages;
    uint32_t ttft_target_ms, tpot_target_ms; /* 0: none */
    uint32_t queue_requests;                 /* limits of what waits for a place; 0: none */
    uint64_t queue_tokens, queue_bytes;
    uint32_t heartbeat_ms, worker_timeout_ms, lease_ms, drain_ms;
    uint64_t journal_bytes, journal_requests;
    uint32_t log_text;                /* enum router_log_text */
    bool trust_template;              /* requests may bring one */
    bool no_vllm_metrics;             /* only our own names in /metrics */
    const char *http_cert, *http_key; /* PEM files; NULL: no TLS for clients */
    struct config_texts cors_origins;
    const char *api_keys;    /* file; NULL: everybody may use the API */
    const char *secret_file; /* NULL: workers need not prove anything */
    bool insecure;           /* fine without a secret, wherever workers connect */
};

/* Listens on both addresses. models and the options' strings outlive the router. */
enum status router_create(struct loop *loop, const struct model_list *models,
                          const struct router_options *options, struct router **out,
                          struct error *error);
void router_destroy(struct router *router);
uint16_t router_http_port(const struct router *router);
uint16_t router_control_port(const struct router *router);

/* Takes no new requests; lets running ones finish for drain_ms, ends the others with an error, then
 * stops the loop. A second call stops it at once. */
void router_drain(struct router *router);

#endif
