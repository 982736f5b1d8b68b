/* The parts of the prefill node that its files share. */
#ifndef BATON_PREFILL_NODE_PREFILL_INTERNAL_H
#define BATON_PREFILL_NODE_PREFILL_INTERNAL_H

#include "prefill_node/chunk_plan.h"
#include "prefill_node/prefill_node.h"
#include "worker/engine_port.h"
#include "worker/handoff_report.h"
#include "worker/job_grammars.h"
#include "worker/rate.h"
#include "worker/read_time.h"
#include "worker/token_batch.h"

/* Prompts in one forward call; more than that in one chunk are very short ones. */
enum { CHUNK_SEQUENCES_MAX = 64 };

/* Where a request is, as control sees it. The engine and the hand-off each hold the pages until
 * they say otherwise; the place is free again when both have. */
enum prefill_state {
    PREFILL_FREE,
    PREFILL_QUEUED,     /* with the engine, nothing answered; the hand-off may run already */
    PREFILL_DELIVERING, /* first token answered, pages still on their way to the decode node */
    PREFILL_LEAVING,    /* answered or given up; engine or hand-off have yet to let go */
    PREFILL_STATE_COUNT
};

enum prefill_step {
    STEP_ADMIT,   /* the job was taken */
    STEP_DELIVER, /* first token out, more to come from the decode node */
    STEP_LEAVE,   /* nothing more will be said about it */
    STEP_RELEASE, /* nobody holds it */
    PREFILL_STEP_COUNT
};

struct prefill_request {
    /* Fixed while the place is taken; both threads read. */
    struct job job;
    uint32_t first_page, page_count; /* of the prompt: to deliver from, and in all */
    bool delivers;                   /* there is a hand-off */
    uint32_t *slots; /* [pages of a context] filled by the engine when it takes them */
    uint64_t arrival_ns;

    struct {
        enum prefill_state state;
        bool engine_has; /* between ADMIT and the engine's last event about it */
        struct handoff_out *out;
        uint32_t computed;    /* tokens done, as far as events tell; the cached ones too */
        uint64_t deadline_ns; /* 0: none */
        uint64_t first_chunk_ns, first_token_ns;
    } control;
    struct sampled firsts[JOB_CHOICES_MAX]; /* [job.choices] control's, as they come */

    struct {
        uint32_t position;        /* tokens computed, or cached */
        uint32_t begun_at;        /* the position at which it has started */
        uint64_t due_us;          /* as it was last planned; see chunk_plan.h */
        bool has_pages;           /* it has started; read by control once engine_has is false */
        bool waited, waited_idle; /* for pages, and control was told so; see EVENT_WAITS */
    } engine;
};

enum prefill_command_kind { COMMAND_ADMIT, COMMAND_DROP };
struct prefill_command {
    enum prefill_command_kind kind;
    uint32_t place;
};

enum prefill_event_kind {
    EVENT_WAITS,    /* the next prompt in turn lacks pages */
    EVENT_STARTED,  /* it has its pages; those of the cached tokens are final in all layers */
    EVENT_STRIPS,   /* pages of one layer are final */
    EVENT_PROGRESS, /* rows of one request are done */
    EVENT_SCORE,    /* how likely a token of the prompt was; each once, in their order */
    EVENT_CHUNK,    /* a whole chunk is done */
    EVENT_FIRST,   /* the first token of a choice: that of the last one is the engine's last word */
    EVENT_FAILED,  /* likewise */
    EVENT_DROPPED, /* likewise */
};
struct prefill_event {
    enum prefill_event_kind kind;
    uint32_t place; /* not for EVENT_CHUNK */
    union {
        bool idle; /* WAITS: meanwhile nothing is read, so no other prompt holds them */
        uint32_t cached_tokens;
        struct {
            uint32_t layer, first_page, count;
        } strips;
        struct {
            uint32_t rows;
            uint64_t ns;      /* PROGRESS: begin of the chunk. CHUNK: its length */
            uint64_t context; /* CHUNK: read_context of its parts */
        } work;
        struct {
            uint32_t index; /* of the job's choices */
            struct sampled sampled;
        } first;
        struct {
            uint32_t position;
            struct sampled sampled;
        } score;
        struct error failed;
    };
};

struct prefill_engine {
    struct worker *worker;
    struct engine_port *port;
    struct prefill_request *requests;
    struct sampler *sampler;
    struct answer_masks *masks; /* of one prompt at a time */
    uint32_t ttft_target_ms;
    bool cache; /* look beginnings up in the prefix index */
    struct rate rate;
    uint32_t *queue; /* [max_requests] places in order of arrival */
    uint32_t queue_count;
    bool *over;         /* [max_requests] by index of the queue: its last word is said */
    uint32_t *index_of; /* [max_requests] index in the queue, by place */
    struct chunk_candidate *candidates; /* [max_requests] */
    uint32_t *scratch;                  /* [max_requests] of the plan */
    uint32_t sequences_max;
    struct chunk_part parts[CHUNK_SEQUENCES_MAX];
    struct forward_sequence sequences[CHUNK_SEQUENCES_MAX];
    uint32_t part_count;
    uint32_t lacking; /* index of the first prompt that the plan passed for want of pages, or
                         CHUNK_NOBODY */
};

struct prefill_node {
    struct worker *worker;
    const struct prefill_options *options;
    struct worker_node events;
    struct request_table table;
    struct prefill_request *requests; /* [max_requests] by place of the table */
    int32_t *token_memory;            /* [max_requests][context_tokens] */
    uint32_t *slot_memory;            /* [max_requests][pages of a context] */
    struct handoff_sender *sender;
    struct job_grammars *grammars;
    struct handoff_report report; /* of the last heartbeat */
    struct engine_port *port;
    struct prefill_engine engine;
    struct token_batch *tokens;
    struct loop_timer *deadlines;
    struct rate rate;
    struct read_time read_time;
    uint64_t tokens_done;
    uint64_t waits_handoffs, waits_prompts; /* prompts that waited for pages, by who held them */
    bool closing;
};

/* port: sized for prefill_engine_events and a drop of every request. requests: [max_requests]. */
void prefill_engine_create(struct prefill_engine *engine, struct worker *worker,
                           struct engine_port *port, struct prefill_request *requests,
                           uint32_t sequences_max, uint32_t ttft_target_ms);
/* After the engine has returned. */
void prefill_engine_destroy(struct prefill_engine *engine);
/* Most events of one chunk of `sequences` prompts. */
size_t prefill_engine_events(const struct worker *worker, uint32_t sequences);
/* The engine thread's main function; arg is a struct prefill_engine. */
void prefill_engine_run(void *arg);

/* ---- its queue, engine thread ---- */

void prefill_queue_push(struct prefill_engine *engine, uint32_t place);
/* False when it is not in the queue. Otherwise its pages may be freed. */
bool prefill_queue_drop(struct prefill_engine *engine, uint32_t place);
/* Takes those whose last word is said off the queue. */
void prefill_queue_compact(struct prefill_engine *engine);
/* Fills engine->parts, all of them started. */
void prefill_queue_plan(struct prefill_engine *engine);

/* ---- requests, control thread ---- */

/* Prompt tokens that wait to be computed. */
uint64_t prefill_request_queued_tokens(const struct prefill_node *node);
/* A PREFILL message: takes it, or answers FAILED with the reason. */
void prefill_request_accept(struct prefill_node *node, struct router_ref router,
                            const struct msg_prefill *message);
void prefill_request_event(struct prefill_node *node, const struct prefill_event *event);
/* Gives a request up, in whatever state. tell: FAILED to the router. */
void prefill_request_drop(struct prefill_node *node, uint32_t place, enum status status,
                          const char *text, bool tell);
/* The hand-off's last word; context is the request. */
void prefill_request_handoff_end(void *arg, void *context, enum status status, const char *text,
                                 const struct handoff_stats *stats);

#endif
