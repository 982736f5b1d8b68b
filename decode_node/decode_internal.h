/* The parts of the decode node that its files share. */
#ifndef BATON_DECODE_NODE_DECODE_INTERNAL_H
#define BATON_DECODE_NODE_DECODE_INTERNAL_H

#include "decode_node/batch_admission.h"
#include "decode_node/decode_node.h"
#include "worker/engine_port.h"
#include "worker/handoff_report.h"
#include "worker/rate.h"
#include "worker/token_batch.h"

/* Where a request is, as control sees it, and who owns its pages then. */
enum decode_state {
    DECODE_FREE,
    DECODE_RESERVED, /* the prompt's pages: the hand-off; those of the answer: set aside, unnamed */
    DECODE_ACTIVE,   /* all pages: the engine, where it waits for a place or runs */
    DECODE_LEAVING,  /* given up; all pages still the engine's, until its last word */
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
    bool local;            /* the prompt is read here */
    uint32_t page_count;   /* for prompt and answer */
    uint32_t prompt_pages; /* of these, what the hand-off brings */
    uint32_t *slots;       /* [pages of a context] complete when the engine gets the request */

    struct {
        enum decode_state state;
        uint64_t handoff;
        uint32_t written;     /* new tokens known here, those that came with the job included */
        uint64_t deadline_ns; /* 0: none */
        uint64_t ready_ns;    /* landed, or arrived to be read here */
    } control;

    /* Handed to the engine with ADMIT, back to control with the last word. */
    struct {
        uint32_t computed;    /* tokens whose KV is in the pages */
        uint32_t token_count; /* tokens known, above computed */
        bool has_pages;
        uint64_t first_step_ns, first_step_us, last_token_ns;
    } engine;
};

enum decode_command_kind { COMMAND_ADMIT, COMMAND_DROP };
struct decode_command {
    enum decode_command_kind kind;
    uint32_t place;
};

enum decode_event_kind {
    EVENT_TOKEN,   /* one more token; with a finish code the engine's last word */
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
            enum finish_code finish;
            struct sampled sampled;
        } token;
        struct {
            uint32_t rows, running;
            uint64_t busy_ns;
        } step;
        struct error failed;
    };
};

struct decode_engine {
    struct worker *worker;
    struct engine_port *port;
    struct decode_request *requests;
    struct sampler *sampler;
    uint32_t batch_max;
    uint32_t *waiting; /* [max_requests] places in order of arrival */
    uint32_t waiting_count;
    uint32_t *running; /* [batch_max] places in the order they joined */
    uint32_t running_count;
    uint32_t *rows;                     /* [batch_max] of each running one in this step */
    uint32_t *running_rows;             /* [batch_max] of the snapshot */
    uint32_t *waiting_rows;             /* [max_requests] of the snapshot */
    struct forward_sequence *sequences; /* [batch_max] */
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
    struct handoff_report report; /* of the last heartbeat */
    struct engine_port *port;
    struct decode_engine engine;
    struct token_batch *tokens;
    struct loop_timer *deadlines;
    struct rate rate;
    uint64_t tokens_done;
    uint32_t engine_running; /* after the last step */
    bool closing;
};

/* Most events between two looks at the room: a step, and a drop of every request. */
size_t decode_engine_events(const struct worker *worker, uint32_t batch_max);
/* The engine thread's main function; arg is a struct decode_engine. */
void decode_engine_run(void *arg);

/* ---- requests, control thread ---- */

/* A RESERVE message: answers RESERVED, taken or refused with the reason. */
void decode_request_reserve(struct decode_node *node, struct router_ref router,
                            const struct msg_reserve *message);
void decode_request_event(struct decode_node *node, const struct decode_event *event);
/* Gives a request up, in whatever state. tell: FAILED to the router. */
void decode_request_drop(struct decode_node *node, uint32_t place, enum status status,
                         const char *text, bool tell);

/* ---- the hand-off's end, control thread ---- */

enum status decode_handoff_create(struct decode_node *node, struct error *error);
/* Sets a request's pages aside: those of the prompt with the hand-off, the others with the pool. */
enum status decode_handoff_reserve(struct decode_node *node, struct decode_request *request,
                                   uint32_t lease_ms, uint64_t *ticket_out, struct error *error);
/* Sends the request to the engine; slots and tokens are complete. */
void decode_request_admit(struct decode_node *node, struct decode_request *request);
const struct request_key *decode_request_key(const struct decode_node *node,
                                             const struct decode_request *request);
/* Frees the place of a request that is RESERVED or whose last word the engine has said. */
void decode_request_release(struct decode_node *node, struct decode_request *request);

#endif
