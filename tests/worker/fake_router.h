/* A router made of a listener and a notebook: it welcomes workers, places requests where the test
 * says, and writes down what each worker answers. */
#ifndef BATON_TESTS_WORKER_FAKE_ROUTER_H
#define BATON_TESTS_WORKER_FAKE_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/worker/test_daemon.h"
#include "transfer/link.h"

enum { FAKE_WORKERS_MAX = 8, FAKE_ANSWERS_MAX = 256, FAKE_TOKENS_MAX = 4200, WAIT_MS = 100000 };

struct fake_worker {
    struct fake_router *router;
    struct link *link; /* NULL: gone */
    bool welcomed, said_goodbye;
    enum worker_role role;
    char node[65];
    char data_address[129];
    uint8_t boot_id[16];
    uint32_t context_tokens, vocab_count, pages_total, max_batch;
    struct msg_heartbeat heartbeat; /* the last one; sequence 0: none yet */
    uint64_t asked_sequence;        /* of the last one when something was asked of it */
};

/* What to ask for. Zero members mean: greedy, nothing special. */
struct ask {
    const int32_t *prompt;
    uint32_t prompt_count, emitted_count; /* prompt holds both */
    uint32_t max_tokens, min_tokens;
    bool ignore_eos;
    const int32_t *stop_ids;
    uint32_t stop_count;
    float temperature;
    uint64_t seed;
    uint32_t top_logprobs; /* above 0: log-probabilities as well */
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t remaining_ms, lease_ms;
    uint32_t local_tokens; /* the decode node reads so few itself */
    /* Above 1: the further ones are the answers behind the one that is returned. */
    uint32_t choices;
    uint32_t choice;       /* set by fake_router_begin */
    uint32_t grammar_kind; /* enum grammar_kind, or 0 */
    const char *grammar;   /* its source, terminated; NULL: none */
};

struct fake_answer {
    uint64_t request;
    uint32_t attempt;
    struct fake_worker *decode, *prefill;
    bool local;
    struct ask ask;
    bool reserved;
    enum status refused;
    uint64_t handoff, ticket;
    uint32_t cached_tokens;          /* as RESERVED says */
    int32_t tokens[FAKE_TOKENS_MAX]; /* new ones, by position behind the prompt */
    bool seen[FAKE_TOKENS_MAX];
    float logprobs[FAKE_TOKENS_MAX];
    uint32_t top_counts[FAKE_TOKENS_MAX];
    uint32_t token_count;
    uint32_t end; /* how many there are to be, once finish is known */
    enum finish_code finish;
    int32_t stop_id;
    enum status failed;
    uint32_t failures;
    bool blamed;                  /* one of them said that the client asked for what cannot be */
    char text[513];               /* of the refusal or the failure */
    struct msg_report reports[3]; /* by role; role 0: none */
    bool hold_prefill;            /* RESERVED does not lead to PREFILL by itself */
    bool hold_cancel;             /* nor FAILED to a CANCEL for the other worker */
};

struct fake_router {
    struct loop *loop;
    struct link_listener *listener;
    char address[32];
    struct fake_worker workers[FAKE_WORKERS_MAX];
    uint32_t worker_count;
    struct fake_answer *answers; /* [FAKE_ANSWERS_MAX] */
    uint32_t answer_count;
    uint32_t tokens_messages, tokens_steps;
    bool deaf; /* closes links instead of accepting them */
};

void fake_router_open(struct fake_router *router);
void fake_router_close(struct fake_router *router);
/* Takes what has come to the routers that are open, without waiting. Whatever computes for long
 * calls it now and then: a router that is silent for seconds counts as lost. */
void fake_routers_turn(void);

/* Starts a daemon that works for this router and waits until both sides say so. options: further
 * ones, ended by NULL, or NULL. */
struct fake_worker *fake_router_worker(struct fake_router *router, struct daemon *daemon,
                                       const char *program, const char *model,
                                       const char *const *options);
/* Runs the loop until done(arg) says so; fails the test at the deadline, naming `what`. */
void fake_router_wait(struct fake_router *router, const char *what, bool (*done)(const void *arg),
                      const void *arg);

/* Waits until a fault has stopped the daemon and lets it go on: to it, whatever was sent since then
 * has come at once. */
void fake_router_continue(struct fake_router *router, struct daemon *daemon);

/* RESERVE to decode (NULL: none, PREFILL at once without a hand-off), then PREFILL to prefill
 * (NULL: the decode node reads the prompt itself). */
struct fake_answer *fake_router_ask(struct fake_router *router, struct fake_worker *decode,
                                    struct fake_worker *prefill, const struct ask *ask);
/* The same with another id, and what is not to follow by itself. */
struct fake_answer *fake_router_begin(struct fake_router *router, struct fake_worker *decode,
                                      struct fake_worker *prefill, const struct ask *ask);
void fake_router_send_reserve(const struct fake_answer *answer);
void fake_router_send_prefill(const struct fake_answer *answer);
void fake_router_cancel(const struct fake_answer *answer);

/* Finished with every token there, failed or refused. */
bool answer_over(const void *answer);
bool answer_reserved(const void *answer);
/* Finished with a report of each worker that took part (as far as it can give one). */
bool answer_reported(const void *answer);
/* The last heartbeat shows a worker with nothing to do and all pages free, and it was sent after
 * the worker had taken what it was last asked. */
bool worker_idle(const void *worker);
bool worker_gone(const void *worker);

/* Waits for the end; fails the test unless it is `finish`, every token came once and in its place.
 */
void fake_router_expect(struct fake_router *router, struct fake_answer *answer,
                        enum finish_code finish);

#endif
