/* The parts of the decode node that its files share. */
#ifndef BATON_DECODE_NODE_DECODE_INTERNAL_H
#define BATON_DECODE_NODE_DECODE_INTERNAL_H

#include <stdatomic.h>

#include "decode_node/batch_admission.h"
#include "decode_node/decode_node.h"
#include "worker/engine_port.h"
#include "worker/handoff_report.h"
#include "worker/job_grammars.h"
#include "worker/rate.h"
#include "worker/read_time.h"
#include "worker/token_batch.h"

/* Where a request is, as control sees it, and who owns its pages then. */
enum decode_state {
    DECODE_FREE,
    DECODE_RESERVED, /* cached: held; the prompt's others: the hand-off; one to grow into: set
                      * aside, unnamed */
    DECODE_ACTIVE,   /* the engine, where it waits for a place or runs, or has lost them */
    DECODE_LEAVING,  /* given up; still the engine's, until its last word */
    DECODE_STATE_COUNT
};

enum decode_step {
    STEP_RESERVE, /* pages are set aside for a hand-off */
    STEP_ADMIT,   /* landed, or to be read here: goes to the engine */
    STEP_LEAVE,   /* nothing more will be said about it, the engine has yet to let go */
    STEP_RELEASE, /* nobody holds it */
    DECODE_STEP_COUNT
};

struct decode_request {
    /* Fixed while the place is taken; both threads read. */
    struct job job;
    bool local;            /* what is not cached of the prompt is read here */
    uint32_t pages_end;    /* for prompt and whole answer */
    uint32_t pages_first;  /* what a reservation sets aside: batch_admission_pages */
    uint32_t prompt_pages; /* of these, for the prompt */
    uint32_t cached_pages; /* of these, from the index, the first ones: no hand-off brings them */
    uint32_t pages_aside;  /* of these, set aside without a name until the prompt is here */
    uint32_t *slots;       /* [pages of a context] cached ones at once, the rest in ACTIVE */
    uint32_t leader;       /* the place of the first choice, which has the prompt's pages */
    uint32_t member_count; /* of a leader: choices; 0 for the others */
    uint32_t members[JOB_CHOICES_MAX]; /* of a leader: their places, its own first */

    struct {
        enum decode_state state;
        bool given_up; /* RESERVED, and only kept because other choices are not */
        uint64_t handoff;
        uint32_t written;     /* new tokens known here, those that came with the job included */
        uint64_t deadline_ns; /* 0: none */
        uint64_t ready_ns;    /* landed, or arrived to be read here */
    } control;

    /* Handed to the engine with ADMIT, back to control with the last word. */
    struct {
        uint64_t arrival;      /* a serial number: what is older */
        uint32_t computed;     /* tokens whose KV is in the pages */
        uint32_t token_count;  /* tokens known, above computed */
        uint32_t page_count;   /* of slots, those it holds */
        uint32_t rows;         /* in this step */
        uint32_t logit_rows;   /* of these, the last ones */
        uint32_t scored;       /* last position of the prompt whose score was told; 0: none */
        uint32_t unborn_count; /* of a leader: choices that wait for it to read the prompt */
        uint32_t unborn_aside; /* pages set aside for them; none while it is preempted */
        uint32_t unborn[JOB_CHOICES_MAX]; /* their places */
        uint64_t first_step_ns, first_step_us, last_token_ns;
    } engine;
};

/* Whether it has yet to tell how likely tokens of its prompt were: who reads a prompt here tells
 * that as well, of all of it, so nothing of it may be found in the index. Either thread, as the
 * request.
 */
static inline bool decode_request_scores(const struct decode_request *request)
{
    return request->local && request->job.scores > 0 &&
           request->engine.scored + 1 < request->job.prompt_count;
}

enum decode_command_kind { COMMAND_ADMIT, COMMAND_DROP };
struct decode_command {
    enum decode_command_kind kind;
    uint32_t place;
};

enum decode_event_kind {
    EVENT_TOKEN,   /* one more token; with a finish code the engine's last word */
    EVENT_SCORE,   /* how likely a token of the prompt was; each once, in their order */
    EVENT_FAILED,  /* the engine's last word about the request */
    EVENT_DROPPED, /* likewise */
    EVENT_STEP,    /* a whole step is done, its tokens came before */
};
struct decode_event {
    enum decode_event_kind kind;
    uint32_t place; /* not for EVENT_STEP */
    union {
        struct {
            uint32_t position;
            enum finish_code finish; /* of a score: NONE */
            struct sampled sampled;
        } token;
        struct {
            uint32_t rows, running;
            uint32_t read_rows;    /* of rows, those of prompts, */
            uint64_t read_context; /* and read_context of them */
            uint64_t busy_ns, forward_ns;
            uint32_t preempted, lost_tokens; /* since the step before */
            uint64_t masks, mask_ns;         /* since the engine began */
            struct step_cost cost;
        } step;
        struct error failed;
    };
};

/* A token that is picked after a forward pass. */
struct decode_pick {
    uint32_t place, row; /* row of logits */
    struct answer_mask mask;
    enum status status;
    struct sampled sampled;
};

struct decode_engine {
    struct worker *worker;
    struct engine_port *port;
    struct decode_request *requests;
    struct sampler **samplers; /* [threads of the model] */
    struct answer_masks *masks;
    struct decode_pick *picks; /* [batch_max] of this step */
    uint32_t batch_max;
    double target_us;  /* of a step; 0: none */
    uint32_t *waiting; /* [max_requests] places in order of arrival */
    uint32_t waiting_count;
    uint32_t *running; /* [batch_max] places in order of arrival */
    uint32_t running_count;
    uint64_t arrivals;
    struct batch_member *members;       /* [batch_max + max_requests] of the snapshot */
    struct batch_turn *turns;           /* the same */
    uint32_t *planned;                  /* the same: places in the order of the snapshot */
    struct forward_sequence *sequences; /* [batch_max] */
    uint32_t *shared_slots;             /* [pages of a context] of a look-up */
    struct step_time step_time;
    uint32_t preempted, lost_tokens; /* since the last EVENT_STEP */
    /* Somebody here waits for pages: control reserves none meanwhile. */
    atomic_bool short_of_pages;
};

struct decode_node {
    struct worker *worker;
    const struct decode_options *options;
    struct worker_node events;
    struct request_table table;
    struct decode_request *requests; /* [max_requests] by place of the table */
    int32_t *token_memory;           /* [max_requests][context_tokens] */
    uint32_t *slot_memory;           /* [max_requests][pages of a context] */
    struct handoff_receiver *receiver;
    struct job_grammars *grammars;
    struct handoff_report report; /* of the last heartbeat */
    struct engine_port *port;
    struct decode_engine engine;
    struct token_batch *tokens;
    struct loop_timer *deadlines;
    struct rate rate;           /* of answers */
    struct rate read_rate;      /* of prompts, with what is written beside */
    struct read_time read_time; /* likewise */
    uint64_t tokens_done;
    uint32_t engine_running;     /* after the last step */
    struct step_cost cost;       /* likewise */
    struct msg_decode_load load; /* counters for heartbeats */
    bool closing;
};

/* Most events between two looks at the room: a step, and a drop of every request. */
size_t decode_engine_events(const struct worker *worker, uint32_t batch_max);
/* Allocates everything that steps need. requests: [max_requests], what commands and events speak
 * of. on_events, arg: as engine_port_create. The engine does not run yet. */
void decode_engine_create(struct decode_engine *engine, struct worker *worker,
                          struct decode_request *requests, uint32_t batch_max,
                          loop_callback on_events, void *arg);
/* The engine's thread has ended. */
void decode_engine_destroy(struct decode_engine *engine);
/* The engine thread's main function; arg is a struct decode_engine. */
void decode_engine_run(void *arg);

/* ---- the batch and its pages, engine thread ---- */

/* A sequence that came by command. */
void decode_batch_add(struct decode_engine *engine, uint32_t place);
/* Takes a sequence out with its pages; false when it is not there. */
bool decode_batch_remove(struct decode_engine *engine, uint32_t place);
/* Puts the full pages of what is computed into the index: they stay after the sequence, until they
 * are needed, and are not written any more. */
void decode_batch_keep(struct decode_engine *engine, uint32_t place);
/* Plans the next step and carries out what comes before it: pages are given back and taken, the
 * lists and engine.rows are set. Returns the rows of the step. */
uint32_t decode_batch_admit(struct decode_engine *engine);
/* Takes back the tail of what was computed: from now on `tokens` tokens are in the pages, at most
 * as many as before; the pages behind them are let go. Either 0, or not below what the index has
 * got: a page that is shared is never written. */
void decode_batch_truncate(struct decode_engine *engine, uint32_t place, uint32_t tokens);

/* ---- choices of one prompt (decode_choices.c) ---- */

/* The prompt is in the pages of `from`, which is where it was read or landed: `to` shares the full
 * ones, copies the one that is not full and takes what was set aside for it. Whoever owns both. */
void decode_choice_fork(struct page_pool *pages, uint32_t page_tokens,
                        const struct decode_request *from, struct decode_request *to);
/* Pages for the choices that wait for a leader. */
uint32_t decode_choices_aside(const struct decode_engine *engine,
                              const struct decode_request *leader);
/* Engine thread: a sequence that is not in the batch yet, because its leader still reads the
 * prompt, is given up. False when there is no such one. */
bool decode_choice_drop(struct decode_engine *engine, uint32_t place);
/* Engine thread: a leader ends before it has read the prompt, and those who wait for it with it. */
void decode_choices_fail(struct decode_engine *engine, uint32_t leader, enum status status,
                         const char *text);
/* Control thread: the leader's slots hold the whole prompt, the first tokens are in *done. Each
 * choice that goes on is sent to the engine, the others are released. */
void decode_choices_land(struct decode_node *node, struct decode_request *leader,
                         const struct msg_done *done);
/* Control thread: a hand-off has come to nothing: the members let go, and their places are free. */
void decode_choices_release(struct decode_node *node, const struct decode_request *leader);

/* ---- requests, control thread ---- */

/* Those in the batch: as the last step said, less those that have left since. */
uint32_t decode_node_running(const struct decode_node *node);

/* A RESERVE message: answers RESERVED, taken or refused with the reason. */
void decode_request_reserve(struct decode_node *node, struct router_ref router,
                            const struct msg_reserve *message);
void decode_request_event(struct decode_node *node, const struct decode_event *event);
/* Gives a request up, in whatever state. tell: FAILED to the router. */
void decode_request_drop(struct decode_node *node, uint32_t place, enum status status,
                         const char *text, bool tell);

/* ---- the hand-off's end, control thread ---- */

enum status decode_handoff_create(struct decode_node *node, struct error *error);
/* Sets a request's first pages aside: the prompt's with the hand-off, the others with the pool. */
enum status decode_handoff_reserve(struct decode_node *node, struct decode_request *request,
                                   uint32_t lease_ms, uint64_t *ticket_out, struct error *error);
/* Sends the request to the engine; slots and tokens are complete. */
/* Tokens of its prompt that it had from the index. */
uint32_t decode_request_cached(const struct decode_node *node,
                               const struct decode_request *request);
void decode_request_admit(struct decode_node *node, struct decode_request *request);
const struct request_key *decode_request_key(const struct decode_node *node,
                                             const struct decode_request *request);
/* Lets go of what a reservation holds beside the hand-off, when that comes to nothing, and wakes
 * the engine: it may wait for pages. */
void decode_request_let_go(struct decode_node *node, struct decode_request *request);
/* Frees the place of a request that is RESERVED or whose last word the engine has said. */
void decode_request_release(struct decode_node *node, struct decode_request *request);

#endif
