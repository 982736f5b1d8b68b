/* What router.c, session.c and routes.c share. */
#ifndef BATON_ROUTER_ROUTER_INTERNAL_H
#define BATON_ROUTER_ROUTER_INTERNAL_H

#include <sys/queue.h>

#include "router/answer.h"
#include "router/api_keys.h"
#include "router/fleet.h"
#include "router/http_server.h"
#include "router/journal.h"
#include "router/openai_response.h"
#include "router/request.h"
#include "router/router.h"
#include "router/router_metrics.h"
#include "router/session_affinity.h"
#include "router/text_pool.h"
#include "router/trace_context.h"

/* Who answers an exchange later: the context of it, first member of what it belongs to. */
struct exchange_owner {
    void (*on_gone)(struct exchange_owner *owner); /* the client left; the exchange is no more */
};

TAILQ_HEAD(session_queue, session);

/* One of the models that clients may name. Nothing of one waits for another. */
struct served_model {
    uint32_t index; /* in the router's list, and to the fleet */
    const char *name;
    const struct text *text;
    const struct jinja *template; /* of chats, instead of the text's own; or NULL */
    struct tool_manner tools;
    struct session_queue queue; /* QUEUED requests in their order */
    /* Of its workers that are up; read by each request, looked up when one comes or goes. */
    uint32_t context_tokens, page_tokens;
    uint32_t session_count; /* requests whose body has named it */
    uint32_t queue_count;
    uint64_t queue_tokens, queue_bytes; /* of the prompts in it, of the bodies they came in */
    uint64_t queue_answers;             /* tokens that will be charged for their answers */
    struct session *probe;              /* the one request from the queue that is being reserved */
    struct metrics *metrics; /* the router's rows of it alone; NULL where it is the only model */
};

/* One of the answers to it. */
struct session_choice {
    struct answer answer;
    struct tool_calls calls;         /* in its text, where the request has tools to look for */
    size_t calls_fed;                /* bytes of answer.out that they have seen */
    struct openai_logprobs logprobs; /* of its ready tokens that are not told yet */
    struct buffer said;              /* the beginning of its text, if it may have to be logged */
    bool begun, closed;              /* of a stream */
    bool scores_told;                /* likewise, those of the prompt */
    uint64_t last_token_ns;
};

enum { SESSION_AFFINITY_BYTES = 129 };

/* An exchange and the sessions that answer it together, one a prompt. Part of the first of them.
 * They are freed together, when all have ended. */
struct session_reply {
    struct exchange_owner owner;    /* first */
    struct http_exchange *exchange; /* NULL once answered or gone */
    struct session **members;       /* [member_count] in the order of the prompts */
    struct session *only;           /* what it points at while there is one */
    uint32_t member_count;
    uint32_t open_count; /* members that have not got all their tokens */
    uint32_t held;       /* by members that have not ended, and by who walks over them */
    int http_status;     /* said to the client, of all members; 0: none */
    bool stream_begun;
    bool abandoned;         /* no member goes on, */
    struct session *failed; /* because of this one; NULL: the client left */
    /* Unsent at most, of what was told at once however fast the client reads: it is not held
     * against it. */
    size_t prompt_bytes;
    uint64_t said_ns; /* when the stream said something last */
};

/* A client's request from its acceptance to its end. `request` decides, the session does. */
struct session {
    struct router *router;
    struct served_model *model; /* NULL until the body is read, and where that names none */
    uint32_t slot;
    struct request request;
    struct session_reply *reply;
    struct session_reply own_reply; /* of the first member, for all */
    uint32_t prompt_index;          /* which member it is */
    char client_id[HTTP_REQUEST_ID_BYTES];
    struct trace_context trace;
    char traceparent[TRACE_PARENT_BYTES]; /* for workers; empty: no trace */
    uint64_t affinity_key;                /* hash of: */
    uint64_t body_bytes;
    uint32_t deadline_ms;                  /* X-Deadline-Ms; 0: none */
    char affinity[SESSION_AFFINITY_BYTES]; /* X-Session-Affinity; empty: none */
    struct api_key *key;                   /* whose request it is; NULL without keys */
    enum openai_endpoint endpoint;

    /* On the text thread between submit and done; the loop thread's otherwise. */
    struct text_job job;
    struct buffer body;
    struct openai_request parsed;
    struct openai_error parse_error;
    enum status job_status;
    /* Its result once it is back: PENDING before. INVALID: parse_error is what the client gets. */
    enum status parse_status;
    bool job_out; /* the text thread has it: it must not be freed */
    /* [group_count] the first and a session for each further prompt, freed with it; else NULL. */
    struct session **group;
    uint32_t group_count;

    struct fleet_pages pages;             /* of the prompt */
    uint32_t prefill_pages, decode_pages; /* of them, what the nodes held before */
    worker_handle reader;    /* the decode node that reads the prompt, until the first token; 0 */
    uint64_t reading_charge; /* what is booked there for that */

    struct openai_scores *scores; /* of the prompt; NULL: none are wanted */

    struct openai_head head;
    struct session_choice *choices; /* [choice_count] */
    uint32_t choice_count;          /* 0: the request is not parsed yet */
    bool token_seen;
    bool prompt_counted, wait_counted; /* once, however often it is placed */
    bool measured;                     /* it is counted and logged */
    const char *outcome;

    struct loop_timer *timer;
    uint64_t timer_ns; /* deadline the timer is set for */
    bool queued;
    TAILQ_ENTRY(session) queue_link;
    struct openai_rules rules[]; /* [model_count]; the text thread's too, while it has the job */
};

/* What carrying out an action led to: at most one further event, fed when all are done. */
struct session_next {
    bool set;
    struct request_event event;
    struct request_failure failure;
    struct placement placement;
};

struct session_slot {
    struct session *session; /* NULL: free */
    uint64_t generation;
    uint32_t next_free;
};

struct router {
    struct loop *loop;
    struct served_model models[MODEL_LIST_MAX];
    uint32_t model_count;
    struct router_options options;
    struct request_limits limits;
    uint64_t instance; /* top bits of request ids, drawn at start */
    uint8_t boot_id[16];
    struct gate_self gate;

    struct http_server *http;
    struct api_keys *keys; /* NULL: none are needed */
    struct fleet *fleet;
    struct text_pool *pool;
    struct openai_grammars *grammars;
    struct text_pool *reader; /* one thread that looks things up in the journal */
    struct journal *journal;
    struct metrics *metrics;
    uint64_t started_s; /* seconds since 1970 */

    struct session_slot *slots;
    uint32_t slot_count, slot_bits, first_free, session_count;
    struct session_affinity *affinity;
    struct loop_task *pump;

    struct buffer scratch; /* for what is being written */
    bool draining, stopping;
    struct loop_timer *drain_timer;
    struct loop_timer *alive_timer; /* NULL without --sse-keep-alive-ms */
};

/* served_model.c */
void served_models_init(struct router *router, const struct model_list *list);
/* What was chosen for each; a router that cannot start says why and nothing else. */
void served_models_log(const struct router *router);
void served_models_free(struct router *router);
/* The list that a body is read with. rules: [model_count]. */
void served_models_rules(const struct router *router, struct openai_rules *rules);
/* What its workers have in common, after one of them came or went. */
void served_model_look(struct router *router, uint32_t index);
uint32_t served_models_queued(const struct router *router); /* requests, of all models */
/* Whether a request for it would find workers. */
bool served_model_ready(const struct router *router, const struct served_model *model);
/* Counts for the router and for the session's model. */
void session_add(const struct session *session, enum router_metric metric, double amount);
void session_observe(const struct session *session, enum router_metric metric, double value);

/* session.c */
void session_start(struct router *router, enum openai_endpoint endpoint, struct api_key *key,
                   struct http_exchange *exchange, const struct http_request *request);
/* Feeds one event and carries out what follows; the session may be gone afterwards. */
void session_feed(struct session *session, const struct request_event *event);
/* The same for EVENT_RESERVED, whose message goes on to the prefill node. */
void session_feed_reserved(struct session *session, const struct request_event *event,
                           const struct msg_reserved *reserved);
/* The deadline of the request, as a timer. */
void session_set_timer(struct session *session);
/* Gives a session its slot and its id, and begins it as one accepted at accepted_ns. */
void session_open(struct session *session, uint64_t accepted_ns);
/* Once its text is read: makes what holds its answers, and feeds it. */
void session_begin(struct session *session);
/* Of one that has ended, or never was opened. */
void session_free(struct session *session);

/* session_reply.c: several prompts, one answer. */
void session_reply_init(struct session *first, struct http_exchange *exchange);
/* A session for each further prompt that was read, not opened yet; text thread. */
void session_reply_split(struct session *first);
/* Opens them and begins all. BUSY: the router has no slots for so many. */
enum status session_reply_begin(struct session *first);
/* Ends the members that go on, without a word: the client left, or was told of a failure. */
void session_reply_abandon(struct session_reply *reply);
/* Whether it is known what the client is told of all members, or that it is told nothing. */
bool session_reply_is_settled(const struct session_reply *reply);
/* A member has ended, or a walk over them has; all may be freed. */
void session_reply_release(struct session_reply *reply);

/* session_place.c */
/* Each sets what is to follow, unless something is to already. */
void session_next_event(struct session_next *next, enum request_event_kind kind);
void session_next_stop(struct session_next *next, uint32_t choice);
void session_next_failure(struct session_next *next, worker_handle worker, int http_status,
                          const char *code, const char *text);
/* The most urgent ones first, in the order of arrival, also when it comes back. */
void session_enqueue(struct session *session);
void session_dequeue(struct session *session); /* fine when it is not there */
/* When the work that is there will be done, in seconds: where there is no room for a request. */
uint32_t session_retry_s(const struct router *router);
/* Tries to find workers; what is before this request in the queue goes first. */
void session_choose(struct session *session, struct session_next *next);
/* The prompt is read: gives back what is booked for that on a decode node. */
void session_release_reading(struct session *session);
/* Gives a worker's charge back. */
void session_release(struct session *session, worker_handle worker, enum worker_role role);
/* Fills session->pages; text thread while it has the job. */
void session_hash_pages(struct session *session, uint32_t page_tokens);

/* session.c again. */
/* Looks for workers again, for the first in the queue. */
void session_place(struct session *session);
struct session *session_find(const struct router *router, uint64_t id);

/* session_answer.c: what the client sees. */
void session_choice_init(struct session *session, uint32_t index);
void session_choice_free(struct session_choice *choice);
/* Streams or gathers; true when a stop string was met or the client takes too little (*slow_out).
 */
bool session_deliver(struct session *session, const struct msg_step *step, bool *slow_out);
/* Begins with the scores of the prompt, where they are wanted. */
void session_scores_init(struct session *session);
void session_scores_free(struct session *session);
/* How likely the prompt's token at its position was. */
void session_score(struct session *session, const struct msg_step *step);
/* One choice has all its tokens, others have not: a stream tells its end at once. */
void session_end_choice(struct session *session, uint32_t index);
/* Tokens of all choices together. */
uint32_t session_token_count(const struct session *session);
/* One prompt has all its tokens; with the last of them the answer ends. */
void session_finish(struct session *session);
void session_fail(struct session *session);
/* A comment into a stream that is open, or with its head begins here. */
void session_say_alive(struct session *session);
void session_drop(struct session *session); /* closes the connection without a word */

/* session_alive.c: from now on no stream is silent for long, where that is wanted. */
void session_alive_start(struct router *router);

/* router.c */
void router_pump_queue(struct router *router);
void router_session_ended(struct router *router);

/* session_log.c: one line where it ends; text as --log-text says. */
/* Whether body and answer may be wanted at the end. */
bool session_keeps_text(const struct session *session);
/* Once the text thread has read the body: only what would be logged of it stays. */
void session_cut_body(struct session *session);
/* What a choice's answer has ready, before any of it is taken. */
void session_keep_answer(const struct session *session, struct session_choice *choice);
void session_log_end(const struct session *session);

/* session_measure.c: what is written down of a session. */
void session_put_journal(struct session *session);
/* A token for the client; first_of_step: those that come together have one gap before them. */
void session_measure_token(struct session *session, struct session_choice *choice,
                           bool first_of_step);
/* How it ended; before session_measure_end. */
void session_measure_outcome(struct session *session, enum router_metric metric,
                             const char *outcome);
/* Counts, logs and journals one that has ended, once its reply is settled; once only. */
void session_measure_end(struct session *session);

/* metrics_report.c */
/* Reads the gauges. */
void metrics_report_refresh(struct router *router);
/* Appends the body of /metrics. */
void metrics_report_write(struct router *router, struct buffer *out);

/* routes.c */
void routes_handle(struct router *router, struct http_exchange *exchange,
                   const struct http_request *request);
/* A body as the answer; a 503 asks to be tried again. */
void routes_reply(struct http_exchange *exchange, int status, const char *content_type,
                  const struct buffer *body);
/* allow: of a 405, else NULL. */
void routes_reply_error(struct http_exchange *exchange, int status, const char *code,
                        const char *allow, const char *message);

/* key: shown with the request; NULL where none are needed. */
typedef void route_handler(struct router *router, struct http_exchange *exchange,
                           const struct http_request *request, struct api_key *key);
/* routes_state.c: small answers about this process. */
#define ROUTES_MODEL_PATH "/v1/models/" /* the model's id behind it */
/* All models with what serves them and waits, as a member of the object that is open. */
void routes_put_models(struct router *router, struct json_writer *writer);
route_handler routes_get_health, routes_get_live, routes_get_version, routes_get_load,
    routes_get_models, routes_get_model;

/* api_door.c: keys and their limits. Each answers the exchange where it says no. */
/* Whether the request shows a key of the file, of an operator where that is wanted; it is then in
 * *key_out. */
bool api_door_enter(struct router *router, struct http_exchange *exchange, bool as_operator,
                    struct api_key **key_out);
/* Whether the key, if there is one, has a request and tokens left for this minute. */
bool api_door_admit(struct router *router, struct http_exchange *exchange, struct api_key *key);

/* The workers as a member of the object that is open. */
void routes_put_workers(struct router *router, struct json_writer *writer);

/* status_report.c */
route_handler routes_get_status;

/* dashboard.c */
route_handler dashboard_get_page, dashboard_get_style, dashboard_get_script;

/* journal_call.c: what the journal knows of requests. */
#define ROUTES_REQUEST_PATH "/requests/" /* an id behind it */
route_handler journal_call_recent, journal_call_find;

/* text_call.c: /tokenize and /detokenize. */
route_handler text_call_tokenize, text_call_detokenize;

#endif
