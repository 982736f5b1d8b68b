/* What answers have to be: the grammars of jobs, compiled once and kept.
 *
 * Nouns: `struct job_grammars`, the sources that this worker has seen lately, and `struct
 * grammar_program`, one of them compiled for its vocabulary, which all requests that hold it share.
 * The central verb is job_grammars_hold. A source that is new is compiled on a thread of its own,
 * for that may take a while: neither the loop nor the engine stands still, and the message that
 * brought it comes in again afterwards. Control thread. */
#ifndef BATON_WORKER_JOB_GRAMMARS_H
#define BATON_WORKER_JOB_GRAMMARS_H

#include "base/loop.h"
#include "model/text/grammar/grammar.h"
#include "model/text/text.h"
#include "transfer/router_client.h"
#include "transfer/wire.h"

enum {
    JOB_GRAMMARS_IDLE_MAX = 64,               /* kept beside those that requests may hold */
    JOB_GRAMMARS_BYTES_MAX = 512 << 20,       /* of all programs, their masks included */
    JOB_GRAMMAR_CACHE_BYTES = 4 << 20,        /* masks that one program keeps */
    JOB_GRAMMARS_WAITING_BYTES_MAX = 64 << 20 /* messages that wait for their grammar */
};

/* A message that waited: the same as when it came. May make others be forgotten. */
typedef void job_grammars_again(void *node, struct router_ref router, enum message_id id,
                                const void *message);

struct job_grammars;
/* requests_max: that may hold a program at once, and messages that may wait. The thread starts with
 * the first source. Aborts without memory: start-up only. */
struct job_grammars *job_grammars_create(struct loop *loop, const struct text *text,
                                         uint32_t requests_max, job_grammars_again *again,
                                         void *node);
/* Nobody reads a program any more. Messages that wait are forgotten. */
void job_grammars_destroy(struct job_grammars *grammars);

/* The program of a checked job, held `count` times; NULL for one whose answer is free. message:
 * what brought the job. PENDING: it will come in again. BUSY when more wait, or more memory is in
 * use, than there may be; INVALID, UNSUPPORTED and LIMIT as the compiler says. */
enum status job_grammars_hold(struct job_grammars *grammars, struct router_ref router,
                              enum message_id id, const void *message, const struct msg_job *job,
                              uint32_t count, struct grammar_program **out, struct error *error);
/* One time less; NULL is fine. */
void job_grammars_release(struct job_grammars *grammars, struct grammar_program *program);
/* A message that waits does not come in again: it was cancelled, or (cancel: NULL) its router is
 * gone. */
void job_grammars_forget(struct job_grammars *grammars, struct router_ref router,
                         const struct msg_cancel *cancel);
uint32_t job_grammars_waiting(const struct job_grammars *grammars);

/* Since it was created. */
struct job_grammars_totals {
    uint64_t compiled, compile_us, found;
};
struct job_grammars_totals job_grammars_totals(const struct job_grammars *grammars);

#endif
