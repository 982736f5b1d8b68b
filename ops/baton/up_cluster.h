/* The local cluster of `baton up`: one router, some prefill and decode nodes, all children of this
 * process, supervised from one event loop.
 *
 * The router starts first; its control port is only known once it listens, then the workers start.
 * When all are ready the cluster announces itself. A worker that dies after that is started again,
 * with a growing pause; a router that dies, or any child that fails before the cluster was ready,
 * ends everything. Nothing outlives cluster_run. */
#ifndef BATON_OPS_BATON_UP_CLUSTER_H
#define BATON_OPS_BATON_UP_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { CLUSTER_WORKERS_MAX = 32 };

struct cluster_model {
    const char *operand; /* [NAME=]PATH, as the router takes it */
    const char *path;    /* in it */
    char *name;          /* that clients say; of the only model the router's business */
};

struct cluster_options {
    const struct cluster_model *models; /* [model_count], each with nodes of its own */
    uint32_t model_count;
    const char *model_name;            /* NULL: the router's default */
    const char *const *chat_templates; /* [chat_template_count] [NAME=]FILE */
    uint32_t chat_template_count;
    const char *http;
    const char *folder;     /* existing; logs and the router's journal */
    const char *bin_folder; /* where the daemons are */
    const char *secret_file;
    const char *mover;         /* NULL: the daemons' default */
    const char *const *faults; /* [fault_count] "prefill-0=data-send:drop": for its first process */
    uint32_t fault_count;
    const char *ready_file; /* NULL: none */
    uint32_t prefill_count; /* of each model; 0: decode nodes read prompts themselves */
    uint32_t decode_count;  /* likewise */
    uint32_t threads;       /* of each worker */
    const char *kv_dtype;
    const char *kv_memory; /* size or share; NULL, or 0 below: the daemon's default */
    uint64_t kv_memory_of; /* what each node takes its share of */
    bool kv_prefault;
    uint32_t context_tokens;
    uint32_t chunk_tokens;
    bool no_prefix_cache;
    uint32_t max_batch;
    uint32_t start_timeout_ms; /* for the whole cluster, later for each worker started again */
    uint32_t stop_timeout_ms;  /* from SIGTERM to SIGKILL */
};

/* Runs until SIGINT or SIGTERM, or until the cluster cannot go on. STATUS_OK when it was told to
 * stop; otherwise the sentence is in *error. No child is alive afterwards. */
enum status cluster_run(const struct cluster_options *options, struct error *error);

#endif
