/* One request as a state machine: (event, now) -> actions. No I/O, no clock, no memory but its own.
 *
 * The router's loop thread feeds events (a message of a worker, the end of tokenising, the client's
 * leaving, a deadline) and carries out the actions in their order. Every request reaches ENDED
 * exactly once, by exactly one FINISH, FAIL or DROP; whatever was dispatched is cancelled and
 * whatever was charged is released on the way there. Late messages of an ended request or of an
 * older attempt change nothing. A hand-off whose pages were damaged is made once more, from the
 * prompt; tokens that are out already are not delivered again. Where a prefill node fails before
 * the first token another one takes its place, with the same decode node. */
#ifndef BATON_ROUTER_REQUEST_H
#define BATON_ROUTER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "router/placement.h"
#include "transfer/wire.h"

enum request_state {
    REQUEST_TOKENISING, /* the text pool has it; no worker knows of it */
    REQUEST_QUEUED,     /* ids are there; waits for a place on a decode node */
    REQUEST_RESERVING,  /* the decode node is asked; charged to both workers */
    REQUEST_PREFILLING, /* the prompt is being read; no token yet */
    REQUEST_DECODING,   /* the first token is out; the prefill node's part is released */
    REQUEST_REPORTING,  /* all tokens are out; waits shortly for the workers' timings */
    REQUEST_ENDED,      /* nothing is held, charged or expected any more */
    REQUEST_STATE_COUNT,
};

enum request_event_kind {
    EVENT_ENCODED,     /* prompt_tokens, max_tokens are set */
    EVENT_PLACED,      /* .placement, .prefill and .decode handles */
    EVENT_WAIT,        /* no place now, somebody else is before it */
    EVENT_RESERVED,    /* the decode node has set pages aside */
    EVENT_REFUSED,     /* it has not, for now: back to the queue */
    EVENT_TOKENS,      /* .step from .worker */
    EVENT_REPORT,      /* .report */
    EVENT_FAILED,      /* .worker or this process gave up: .failure */
    EVENT_WORKER_LOST, /* .worker is gone: .failure says how to put it */
    EVENT_CLIENT_GONE, /* the connection is closed: nobody is there to answer */
    EVENT_SLOW_READER, /* the client takes too little: drop it */
    EVENT_STOPPED,     /* the answer met a stop string */
    EVENT_DEADLINE,    /* the time of request_deadline_ns has come */
    EVENT_SHUTDOWN,    /* this process ends */
    REQUEST_EVENT_COUNT,
};

/* What a client is told when it does not get its answer. */
struct request_failure {
    int http_status;
    const char *code; /* static; of the error object */
    bool again;       /* another attempt may well succeed */
    uint32_t retry_s; /* when the client may come again; 0: nobody knows */
    char text[ERROR_TEXT_BYTES];
};
void request_failure_set(struct request_failure *failure, int http_status, const char *code,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Names one life of one worker, as fleet.h issues it; 0 is none. */
typedef uint64_t worker_handle;

struct request_event {
    enum request_event_kind kind;
    worker_handle worker;
    const struct placement *placement;
    worker_handle prefill, decode;
    const struct msg_step *step;
    const struct msg_report *report;
    uint32_t choice;        /* STOPPED: which one */
    bool local;             /* RESERVED: the decode node reads what it lacks of the prompt itself */
    uint32_t cached_tokens; /* RESERVED: what it does not lack */
    const struct request_failure *failure;
};

enum request_action_kind {
    ACTION_PLACE,           /* choose workers, or say WAIT or FAILED */
    ACTION_RESERVE,         /* send RESERVE to request->decode; local when there is no prefill */
    ACTION_PREFILL,         /* send PREFILL to request->prefill; no hand-off without a decode */
    ACTION_CANCEL,          /* send CANCEL of .choice to .worker */
    ACTION_RELEASE_PREFILL, /* give back request->placement.prefill_charge at .worker */
    ACTION_RELEASE_DECODE,
    ACTION_SCORE,      /* .step says how likely the prompt's token at its position was */
    ACTION_DELIVER,    /* .step holds the next tokens of a choice, in order, each once */
    ACTION_CHOICE_END, /* .choice is complete and others are not */
    ACTION_FINISH,     /* every choice is complete */
    ACTION_FAIL,       /* tell the client request->failure */
    ACTION_DROP,       /* close the client's connection without a word */
};

struct request_action {
    enum request_action_kind kind;
    worker_handle worker;
    uint32_t attempt; /* CANCEL: which one */
    uint32_t choice;  /* CANCEL, CHOICE_END; REQUEST_ALL_CHOICES */
    struct msg_step step;
};

enum {
    REQUEST_ACTIONS_MAX = 12,
    REQUEST_CHOICES_MAX = 16,
    REQUEST_BARRED_MAX = 2, /* prefill nodes that may fail one request; it fails with the next */
    REQUEST_MOVES_MAX = 2,  /* decode nodes that may go away while they are asked, likewise */
};
#define REQUEST_ALL_CHOICES UINT32_MAX
struct request_actions {
    struct request_action items[REQUEST_ACTIONS_MAX];
    uint32_t count;
};

struct request_limits {
    uint32_t total_ms;   /* from acceptance to the end */
    uint32_t reserve_ms; /* for a decode node's answer to RESERVE */
    uint32_t report_ms;  /* for REPORTs after the last token */
};

enum request_finish {
    REQUEST_FINISH_NONE,
    REQUEST_FINISH_STOP,
    REQUEST_FINISH_LENGTH,
    REQUEST_FINISH_STOP_STRING
};

/* Tokens that came before their turn, one run without gaps. */
struct request_held;

/* One answer of several to the same prompt. */
struct request_choice {
    uint32_t next_position; /* of the next token to deliver */
    struct request_held *held;
    enum request_finish finish; /* NONE: it goes on */
    int32_t stop_id;            /* the id that ended it, -1 for none */
    uint32_t ended_attempt;     /* in which it ended, or was cancelled since */
};

/* Times of the walk, 0 where it did not get to. */
struct request_times {
    uint64_t accepted_ns, encoded_ns, placed_ns, reserved_ns, first_ns, last_ns, ended_ns;
};

struct request {
    uint64_t id;
    const struct request_limits *limits;
    enum request_state state;
    uint32_t attempt;
    uint32_t prompt_tokens, max_tokens;
    uint32_t choice_count; /* set before ENCODED; 1 until then */
    bool reports_wanted;
    bool scores_wanted;  /* of the prompt's tokens, all before the first of the answer */
    uint32_t next_score; /* position of the next one; the first token of a prompt has none */

    struct placement placement;
    worker_handle prefill, decode; /* 0: none, or no longer concerned */
    bool prefill_charged, decode_charged;
    bool prefill_dispatched, decode_dispatched; /* it has the job and must be told to cancel */

    bool placed_again; /* once, after pages were damaged on their way */
    /* Prefill nodes that failed before the first token, `failure` says how the last one did, and
     * the decode node to stay with. */
    worker_handle barred[REQUEST_BARRED_MAX];
    uint32_t barred_count;
    worker_handle kept_decode;
    uint32_t move_count;    /* decode nodes that went away before they had promised anything */
    uint32_t cached_tokens; /* of the prompt: in the pages of the node that reads it already */
    struct request_choice choices[REQUEST_CHOICES_MAX]; /* [choice_count] */
    uint32_t open_count;                                /* of them, those that go on */
    uint32_t duplicates, overtaken; /* tokens dropped as known already; tokens held for a while */

    struct request_failure failure;
    struct msg_report reports[2]; /* prefill's, decode's */
    bool report_seen[2], report_due[2];

    uint64_t total_deadline_ns, state_deadline_ns; /* 0: none */
    struct request_times times;
};

void request_init(struct request *request, uint64_t id, const struct request_limits *limits,
                  uint64_t now_ns);
/* Less time than the limit, right after request_init; more than that changes nothing. */
void request_limit(struct request *request, uint32_t total_ms);
void request_free(struct request *request); /* only once ENDED, or never fed */
/* actions_out is overwritten; DELIVER steps point into the event or the request and are valid until
 * the next call. */
void request_handle(struct request *request, const struct request_event *event, uint64_t now_ns,
                    struct request_actions *actions_out);
/* When EVENT_DEADLINE is due; 0 for never. */
uint64_t request_deadline_ns(const struct request *request);

const char *request_state_name(enum request_state state);
const char *request_event_name(enum request_event_kind kind);
const char *request_finish_name(enum request_finish finish); /* "stop", "length" */

#endif
