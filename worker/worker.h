/* What a prefill node and a decode node have in common around their engines: start-up (model,
 * vocabulary, identity, sizes), the control thread's frame (loop, signals, router links, readiness)
 * and the end.
 *
 * The noun is `struct worker`: filled by worker_open, run by worker_run, torn down by worker_close.
 * Control thread (the main thread), except where a member says otherwise. */
#ifndef BATON_WORKER_WORKER_H
#define BATON_WORKER_WORKER_H

#include "base/clock.h"
#include "base/crypto_tls.h"
#include "base/loop.h"
#include "model/kv/prefix_tree.h"
#include "model/model.h"
#include "model/text/text.h"
#include "transfer/handoff.h"
#include "transfer/router_client.h"
#include "worker/job.h"
#include "worker/notify.h"
#include "worker/pass.h"
#include "worker/read_time.h"
#include "worker/request_table.h"
#include "worker/worker_identity.h"
#include "worker/worker_options.h"

struct worker {
    enum worker_role role;
    const struct worker_options *options;
    const struct clock *clock; /* any thread */
    struct notify notify;
    struct text *text;            /* any thread: immutable */
    struct model *model;          /* the engine thread's, once that runs */
    struct page_pool *pages;      /* of the model; any thread */
    struct prefix_tree *prefixes; /* over them; any thread */
    struct job_limits limits;     /* any thread: fixed at start */
    struct worker_digests digests;
    struct handoff_self self; /* node name, boot id, identity, gate */
    struct gate_self gate;
    struct tls_identity tls;       /* for the mover tls */
    const struct mover_ops *mover; /* the one that was chosen */
    double tokens_per_s;           /* measured at load */
    double read_tokens_per_s;      /* likewise, for prompts; 0: not measured */
    struct read_cost read_cost;    /* likewise, of both kinds of workers */
    struct loop *loop;
    struct router_client *routers; /* while worker_run runs */
    bool draining;                 /* a signal came: nothing new is taken */
};

/* How many rows, sequences and rows with logits the engine puts in one forward call. */
struct worker_batch {
    uint32_t rows, sequences, logit_rows;
    uint32_t measured_rows; /* of one call, when the speed is measured at load */
    uint32_t read_rows;     /* likewise, where prompts are not all it computes; 0: they are */
};

/* Names the log, opens --notify-fd, reads the secret, loads the model with progress lines, measures
 * it, makes the loop. listen: where a decode node will listen, else NULL. On failure nothing is
 * left behind but the notify descriptor: pass *error to worker_fail. */
enum status worker_open(struct worker *worker, enum worker_role role,
                        const struct worker_options *options, const char *listen,
                        const struct worker_batch *batch, struct error *error);
/* All pages must be free. */
void worker_close(struct worker *worker);
/* Logs the sentence, tells it by --notify-fd, gives the exit code 1. */
int worker_fail(struct worker *worker, const struct error *error);

struct worker_node {
    void (*on_message)(void *node, struct router_ref router, enum message_id id,
                       const void *message);
    void (*on_lost)(void *node, struct router_ref router);
    void (*on_heartbeat)(void *node, struct msg_heartbeat *heartbeat);
    uint32_t (*open_count)(const void *node); /* requests that are not over */
    const char *data_address;                 /* of a decode node, else NULL */
    uint32_t max_batch;                       /* told in HELLO */
};

/* Dials the routers and runs the loop until SIGTERM or SIGINT (0), or until every router has
 * refused this worker before one took it (1). At the signal routers are told to send nothing new,
 * and what is open may finish for --drain-ms; a second signal ends the process at once. Router
 * links are closed when it returns. */
int worker_run(struct worker *worker, const struct worker_node *node, void *arg);

/* To the router that asked; a lost link is no error, anything else is logged. */
void worker_send(struct worker *worker, struct router_ref router, enum message_id id,
                 const void *message);
/* FAILED for a request that was not taken: INVALID and LIMIT blame what the client asked for. */
void worker_send_refused(struct worker *worker, const struct request_key *key, enum status status,
                         const char *text);
/* FAILED for one that was taken, so checked: whatever went wrong later is no fault of the client,
 * and INVALID and LIMIT go out as INTERNAL. */
void worker_send_failed(struct worker *worker, const struct request_key *key, enum status status,
                        const char *text);
/* The same for a hand-off, where the two are the peer's fault and go out as REFUSED; when its pages
 * were damaged on their way the router may try again. */
void worker_send_handoff_failed(struct worker *worker, const struct request_key *key,
                                enum status status, const char *text);

/* Engine thread: model_forward of the worker's model, the one place where its steps begin.
 * best_only: job_needs_best_only holds for every sequence with a logit row. */
enum status worker_forward(const struct worker *worker, const struct forward_sequence *sequences,
                           uint32_t count, bool best_only, const struct forward_hooks *hooks,
                           struct pass_rows *rows_out, struct error *error);

/* What a node makes its end of the hand-off from. */
struct worker_handoff {
    const struct mover_ops *ops;
    struct mover_options options;
    struct handoff_region region; /* the page pool */
    struct handoff_limits limits; /* as many as requests, of prompts up to the context */
};
/* listen: where prefill nodes dial a decode node, kept by reference; NULL for a prefill node.
 * UNSUPPORTED when the mover is not built in or the host does not see the device's pages. */
enum status worker_handoff_setup(const struct worker *worker, const char *listen,
                                 struct worker_handoff *out, struct error *error);

#endif
