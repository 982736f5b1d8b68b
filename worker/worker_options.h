/* Options that both kinds of worker have: the rows, the struct they fill, the checks that go beyond
 * one row. A daemon's own options struct begins with struct worker_options, so that the offsets of
 * the rows hold for both. */
#ifndef BATON_WORKER_WORKER_OPTIONS_H
#define BATON_WORKER_WORKER_OPTIONS_H

#include <stdbool.h>

#include "base/config.h"
#include "kernels/backend.h"
#include "transfer/router_client.h"
#include "transfer/wire.h"

enum {
    WORKER_NODE_BYTES = 64,
    WORKER_MODEL_NAME_MAX = 128, /* as in HELLO */
    WORKER_REQUESTS_MAX = 1024,
    WORKER_CHUNK_TOKENS_MAX = 8192
};

struct worker_options {
    const char *model, *model_name, *name;
    struct config_texts routers;
    uint32_t threads;
    uint32_t kv_dtype;    /* enum kv_dtype */
    uint32_t activations; /* enum activation_mode */
    uint32_t quantize;    /* enum model_quantize */
    const char *calibrate;
    struct config_amount kv_memory;
    uint64_t kv_memory_of;
    bool kv_prefault;
    uint32_t page_tokens, context_tokens;
    uint32_t chunk_tokens, max_requests;
    bool no_prefix_cache;
    uint32_t notify_fd, drain_ms;
    const char *secret_file, *tls_cert, *tls_key, *tls_ca;
    const char *mover; /* NULL: mover_default_name */
    uint32_t checksum; /* enum handoff_checksum */
    bool insecure;
    const char *fault; /* see transfer/fault.h */
    bool enable_fault_injection;
};

/* The rows, with the defaults that differ between the two. */
#define WORKER_OPTION_ROWS(chunk_tokens_default, max_requests_default)                             \
    {.name = "model",                                                                              \
     .kind = CONFIG_TEXT,                                                                          \
     .offset = offsetof(struct worker_options, model),                                             \
     .choices = "FILE",                                                                            \
     .help = "the model, a GGUF file or a Hugging Face folder; required"},                         \
        {.name = "model-name",                                                                     \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, model_name),                                    \
         .choices = "NAME",                                                                        \
         .help = "the model's id at routers that serve several which share its tokenizer"},        \
        {.name = "router",                                                                         \
         .kind = CONFIG_TEXTS,                                                                     \
         .offset = offsetof(struct worker_options, routers),                                       \
         .fallback = "127.0.0.1:7700",                                                             \
         .choices = "HOST:PORT",                                                                   \
         .max = ROUTER_LINKS_MAX,                                                                  \
         .help = "a router to work for"},                                                          \
        {.name = "name",                                                                           \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, name),                                          \
         .choices = "NAME",                                                                        \
         .help = "what routers and logs call this node; else made of role, host and process"},     \
        {.name = "threads",                                                                        \
         .kind = CONFIG_U32,                                                                       \
         .offset = offsetof(struct worker_options, threads),                                       \
         .fallback = "0",                                                                          \
         .help = "threads that compute; 0 for one a CPU",                                          \
         .max = 1024},                                                                             \
        {.name = "kv-dtype",                                                                       \
         .kind = CONFIG_CHOICE,                                                                    \
         .offset = offsetof(struct worker_options, kv_dtype),                                      \
         .fallback = "bf16",                                                                       \
         .choices = "f32|bf16|int8",                                                               \
         .help = "how keys and values are kept; the same on all nodes"},                           \
        {.name = "kv-memory",                                                                      \
         .kind = CONFIG_AMOUNT,                                                                    \
         .offset = offsetof(struct worker_options, kv_memory),                                     \
         .help = "size of the page pool, or its share of the memory that is available after the "  \
                 "weights; without it half, but no more than --max-requests contexts"},            \
        {.name = "kv-memory-of",                                                                   \
         .kind = CONFIG_BYTES,                                                                     \
         .offset = offsetof(struct worker_options, kv_memory_of),                                  \
         .fallback = "0",                                                                          \
         .help = "what a share is taken of, where several nodes divide a host; 0 for what is "     \
                 "available now"},                                                                 \
        {.name = "kv-prefault",                                                                    \
         .kind = CONFIG_FLAG,                                                                      \
         .offset = offsetof(struct worker_options, kv_prefault),                                   \
         .help = "take all memory of the pool at the start, not when pages are first used"},       \
        {.name = "page-tokens",                                                                    \
         .kind = CONFIG_U32,                                                                       \
         .offset = offsetof(struct worker_options, page_tokens),                                   \
         .fallback = "64",                                                                         \
         .help = "tokens of a KV page, a multiple of 16; the same on all nodes",                   \
         .min = 16,                                                                                \
         .max = 1024},                                                                             \
        {.name = "context",                                                                        \
         .kind = CONFIG_U32,                                                                       \
         .offset = offsetof(struct worker_options, context_tokens),                                \
         .fallback = "0",                                                                          \
         .help = "longest prompt and answer together, in tokens; 0 for what the model has",        \
         .max = 4194304},                                                                          \
        {.name = "activations",                                                                    \
         .kind = CONFIG_CHOICE,                                                                    \
         .offset = offsetof(struct worker_options, activations),                                   \
         .fallback = "auto",                                                                       \
         .choices = ACTIVATION_CHOICES,                                                            \
         .help =                                                                                   \
             "how activations enter products with weights, the same on all nodes; with the "       \
             "last two weights of 4 and 8 bits become int8 with a scale for 128 or for a row: "    \
             "faster prompts, less exact"},                                                        \
        {.name = "quantize",                                                                       \
         .kind = CONFIG_CHOICE,                                                                    \
         .offset = offsetof(struct worker_options, quantize),                                      \
         .fallback = "none",                                                                       \
         .choices = "none|int8|int4",                                                              \
         .help = "quantise weights by groups of 32, the same on all nodes: floats to 8 bits; or "  \
                 "to 4 as far as that costs little"},                                              \
        {.name = "calibrate",                                                                      \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, calibrate),                                     \
         .choices = "FILE",                                                                        \
         .help = "with --quantize int4, text to measure the cost on, the same on all nodes; "      \
                 "without, a built-in one"},                                                       \
        {.name = "chunk-tokens",                                                                   \
         .kind = CONFIG_U32,                                                                       \
         .offset = offsetof(struct worker_options, chunk_tokens),                                  \
         .fallback = chunk_tokens_default,                                                         \
         .help = "most prompt tokens computed at once; not less than a page",                      \
         .min = 16,                                                                                \
         .max = WORKER_CHUNK_TOKENS_MAX},                                                          \
        {.name = "max-requests",                                                                   \
         .kind = CONFIG_U32,                                                                       \
         .offset = offsetof(struct worker_options, max_requests),                                  \
         .fallback = max_requests_default,                                                         \
         .help = "requests held at once, waiting ones included; more are refused",                 \
         .min = 1,                                                                                 \
         .max = WORKER_REQUESTS_MAX},                                                              \
        {.name = "no-prefix-cache",                                                                \
         .kind = CONFIG_FLAG,                                                                      \
         .offset = offsetof(struct worker_options, no_prefix_cache),                               \
         .help = "compute every prompt anew, also where its beginning is known"},                  \
        {.name = "secret-file",                                                                    \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, secret_file),                                   \
         .choices = "FILE",                                                                        \
         .help = "the cluster's secret, the same on all nodes; needed for addresses beyond this "  \
                 "host"},                                                                          \
        {.name = "insecure",                                                                       \
         .kind = CONFIG_FLAG,                                                                      \
         .offset = offsetof(struct worker_options, insecure),                                      \
         .help = "without a secret, use addresses beyond this host all the same"},                 \
        {.name = "drain-ms",                                                                       \
         .kind = CONFIG_MS,                                                                        \
         .offset = offsetof(struct worker_options, drain_ms),                                      \
         .fallback = "5s",                                                                         \
         .help = "on SIGTERM, time for open requests before they are cancelled",                   \
         .max = 3600000},                                                                          \
        {.name = "mover",                                                                          \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, mover),                                         \
         .choices = "ucx|tls",                                                                     \
         .help = "how pages travel, the same on all nodes; ucx where it is built in, else tls"},   \
        {.name = "checksum",                                                                       \
         .kind = CONFIG_CHOICE,                                                                    \
         .offset = offsetof(struct worker_options, checksum),                                      \
         .fallback = "crc32c",                                                                     \
         .choices = "none|crc32c",                                                                 \
         .help = "how pages are checked after they travelled; the same on all nodes"},             \
        {.name = "tls-cert",                                                                       \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, tls_cert),                                      \
         .choices = "FILE",                                                                        \
         .help =                                                                                   \
             "certificate chain of this node (PEM) for the mover tls, in place of the secret"},    \
        {.name = "tls-key",                                                                        \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, tls_key),                                       \
         .choices = "FILE",                                                                        \
         .help = "its private key"},                                                               \
        {.name = "tls-ca",                                                                         \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, tls_ca),                                        \
         .choices = "FILE",                                                                        \
         .help = "the authority of the cluster: whoever has a certificate of it is let in"},       \
        {.name = "fault",                                                                          \
         .kind = CONFIG_TEXT,                                                                      \
         .offset = offsetof(struct worker_options, fault),                                         \
         .choices = "POINT[:N[+]]:ACTION,...",                                                     \
         .help = "faults to inject, for tests; a wrong one lists those there are"},                \
        {.name = "enable-fault-injection",                                                         \
         .kind = CONFIG_FLAG,                                                                      \
         .offset = offsetof(struct worker_options, enable_fault_injection),                        \
         .help = "inject the faults of --fault; fill freed KV pages with NaN"},                    \
    {                                                                                              \
        .name = "notify-fd", .kind = CONFIG_U32,                                                   \
        .offset = offsetof(struct worker_options, notify_fd), .fallback = "0", .choices = "FD",    \
        .help = "an open descriptor that STATUS=, DATA=, READY=1 and FAILED= lines go to; "        \
                "0 for none",                                                                      \
        .max = 65535                                                                               \
    }

/* Rules beyond one row: a model is named, not too many routers, a chunk holds a page, the notify
 * descriptor can be written. */
enum status worker_options_check(const struct worker_options *options, struct error *error);
/* The name of the option, or one made of role, host and process id. */
void worker_node_name(const struct worker_options *options, enum worker_role role,
                      char out[WORKER_NODE_BYTES]);
/* What config_parse and worker_options_check say, as an exit code: -1 to go on, else 0 or 2. */
int worker_options_parse(const struct config_command *command, int argc, char **argv,
                         struct worker_options *options);

#endif
