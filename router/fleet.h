/* The workers: who is there, whether they fit, what they carry.
 *
 * A worker dials the control address and says HELLO. One that fits none of this router's
 * models is refused with a sentence; two workers that compute different things are never paired. A
 * worker is UP from WELCOME until its link closes or says nothing for silent_ms, or the same
 * process dials again; each such life has its own handle. A name belongs to one process at a time.
 * Loop thread only. */
#ifndef BATON_ROUTER_FLEET_H
#define BATON_ROUTER_FLEET_H

#include "base/config.h"
#include "base/loop.h"
#include "model/text/text.h"
#include "router/backlog.h"
#include "router/fleet_decode.h"
#include "router/fleet_handoff.h"
#include "router/fleet_prefix.h"
#include "router/fleet_reading.h"
#include "router/placement.h"
#include "router/request.h"
#include "transfer/link.h"

enum {
    FLEET_NODE_BYTES = 65,
    FLEET_ADDRESS_BYTES = 64,
    FLEET_VERSION_BYTES = 33,
    FLEET_TEXT_BYTES = 400,
    FLEET_MODELS_MAX = CONFIG_TEXTS_MAX,
};

enum fleet_state {
    FLEET_FREE,     /* nobody */
    FLEET_GREETING, /* connected, HELLO is awaited */
    FLEET_UP,       /* takes requests */
    FLEET_DRAINING, /* said GOAWAY: finishes what it has */
    FLEET_LOST,     /* gone; the slot remembers it until it is needed */
    FLEET_LEFT,     /* likewise, but it had said so, and nothing of ours was open there */
    FLEET_REFUSED,  /* turned away, remembered likewise */
    FLEET_STATE_COUNT,
};
const char *fleet_state_name(enum fleet_state state);
const char *fleet_role_name(enum worker_role role);

/* msg_identity with its own bytes. */
struct fleet_identity {
    char model[129];
    uint8_t weights_digest[16], tokenizer_digest[16];
    uint64_t profile_id, probe_digest;
    struct msg_layout layout;
    uint32_t head_first, head_count, rank, rank_count;
    char mover[17];
    char revision[65];
    uint32_t scale_layout, rope_pairing, rope_rotary;
    float rope_base;
};
void fleet_identity_copy(const struct msg_identity *message, struct fleet_identity *out);
/* For people. */
void fleet_digest_text(const uint8_t bytes[16], char out[DIGEST_TEXT_BYTES]);
/* OK when the two may work on one request, else MISMATCH naming the first field that differs and
 * both values. */
enum status fleet_identity_compare(const struct fleet_identity *a, const struct fleet_identity *b,
                                   struct error *error);

/* What a router knows of a model without its weights. */
struct fleet_model {
    const char *name; /* as clients say it */
    const struct text_info *text;
};

struct fleet_rules {
    struct fleet_model models[FLEET_MODELS_MAX];
    uint32_t model_count;
    uint8_t boot_id[16]; /* of this router */
    uint32_t heartbeat_ms, silent_ms;
    struct placement_policy policy;
    uint32_t prefix_index_pages; /* known of all workers' caches; 0: nothing is */
    struct gate_self *gate;      /* outlives the fleet; NULL: without a secret */
};
/* OK when a worker that says this can serve one of the router's models, else why not. */
enum status fleet_hello_check(const struct fleet_rules *rules, const struct msg_hello *hello,
                              uint32_t *model_out, struct error *error);
/* The index of the model that such a worker serves, or MISMATCH: it is none of them, or more than
 * one. model_name: what the worker was told, or empty. */
enum status fleet_model_find(const struct fleet_rules *rules, struct wire_str model_name,
                             const struct fleet_identity *identity, uint32_t *model_out,
                             struct error *error);

struct fleet_worker {
    worker_handle handle;
    enum fleet_state state;
    enum worker_role role;
    char node[FLEET_NODE_BYTES], address[FLEET_ADDRESS_BYTES], version[FLEET_VERSION_BYTES];
    uint8_t boot_id[16];
    struct fleet_identity identity;
    uint32_t model; /* index of the one it serves */
    uint32_t kind;  /* equal for equal identities */
    uint32_t context_tokens, vocab_count, pages_total, pages_free, pages_handoff, max_batch;
    uint32_t grammars;  /* bit k: takes jobs with a grammar of kind k */
    uint32_t abilities; /* enum worker_ability */
    uint32_t running, waiting;
    bool full; /* refused a reservation, until it says or does something new */
    struct fleet_handoff handoff;
    struct fleet_decode decode;
    struct fleet_reading reading;
    struct fleet_prefix prefix;
    uint64_t foreign_tokens, tokens_done;
    struct backlog backlog;  /* of what this router sent */
    uint32_t sent_requests;  /* since its last heartbeat, */
    uint64_t sent_tokens;    /* and what they were charged */
    double step_ms;          /* of a decode node's steps in the last heartbeats that told of any */
    uint64_t links_unproven; /* connections it turned away */
    double tokens_per_s, loaded_tokens_per_s; /* by its last heartbeat that had one, by HELLO */
    uint64_t worked_ns;                       /* when it last was given work, or told of some */
    uint64_t since_ns, heard_ns;
    char text[FLEET_TEXT_BYTES]; /* why it is in this state */
};

/* OK when the weights are those of a worker of the same model that is here already, else MISMATCH
 * with both digests: behind one name that clients see, one answer must stand. */
enum status fleet_weights_check(const struct msg_hello *hello, const struct fleet_worker *here,
                                struct error *error);

struct fleet;

struct fleet_events {
    /* RESERVED, TOKENS, FAILED, REPORT of a worker; valid during the call. */
    void (*on_message)(void *arg, worker_handle worker, enum message_id id, const void *message);
    /* It is UP. */
    void (*on_up)(void *arg, const struct fleet_worker *worker);
    /* It is LOST or DRAINING; worker->text says why. */
    void (*on_down)(void *arg, const struct fleet_worker *worker);
    /* It has sent a heartbeat: there may be room now. */
    void (*on_heartbeat)(void *arg, const struct fleet_worker *worker);
};

enum status fleet_create(struct loop *loop, const char *address, const struct fleet_rules *rules,
                         const struct fleet_events *events, void *arg, struct fleet **out,
                         struct error *error);
void fleet_destroy(struct fleet *fleet); /* GOAWAY to all; no events */
uint16_t fleet_port(const struct fleet *fleet);

/* NULL once that life is over. */
const struct fleet_worker *fleet_find(const struct fleet *fleet, worker_handle handle);
/* CLOSED when it is not there any more, LIMIT when it does not take what is sent. */
enum status fleet_send(struct fleet *fleet, worker_handle handle, enum message_id id,
                       const void *message);
/* Connections turned away because the proof of the secret was missing or wrong, here and at all
 * workers, those that are gone included. */
uint64_t fleet_links_unproven(const struct fleet *fleet);
/* Books a request's tokens, and that it comes beside what the worker last reported. */
void fleet_charge(struct fleet *fleet, worker_handle handle, uint64_t tokens);
/* The worker has no room now: placement passes it over until a heartbeat or a release. */
void fleet_mark_full(struct fleet *fleet, worker_handle handle);
/* Of a life that is over: nothing happens. */
void fleet_release(struct fleet *fleet, worker_handle handle, uint64_t tokens);

/* Books, besides, that of a prompt the worker reads the last `tokens` itself, until its first
 * token; and gives them back, those that were booked. Of a life that is over: nothing happens. */
void fleet_charge_reading(struct fleet *fleet, worker_handle handle, uint32_t prompt_tokens,
                          uint64_t tokens);
void fleet_release_reading(struct fleet *fleet, worker_handle handle, uint32_t prompt_tokens,
                           uint64_t tokens);

/* The full pages of a prompt, as prefix_hashes has them. */
struct fleet_pages {
    uint64_t *hashes; /* [count]; NULL when count is 0 */
    uint32_t count;
    uint32_t page_tokens; /* of each; 0: nobody knew */
};
/* What a request is to the fleet. */
struct fleet_request {
    uint32_t model; /* only its workers are looked at */
    uint32_t prompt_tokens, max_tokens, local_tokens;
    struct fleet_pages pages;
    worker_handle stay_prefill, stay_decode; /* that serve its session, or are to keep it; or 0 */
    const worker_handle *barred;             /* [barred_count]: have failed it already */
    uint32_t barred_count;
    /* Workers of an earlier version would not keep to the grammar (0: none), and pass over what
     * takes an ability. */
    uint32_t grammar_kind, abilities;
    bool reads_all; /* whatever is cached of it */
};
/* Who it is for, 0 where there is none, and how many pages each is thought to hold of it. */
struct fleet_choice {
    worker_handle prefill, decode;
    uint32_t prefill_pages, decode_pages;
};
/* Chooses; each call moves the turn of ties on. */
struct placement fleet_place(struct fleet *fleet, const struct fleet_request *request,
                             struct fleet_choice *choice_out);
/* From its page number `from` on the worker will hold the prompt soon; or will not after all, but
 * for pages that it has told of. */
void fleet_expect(struct fleet *fleet, worker_handle handle, const struct fleet_pages *pages,
                  uint32_t from);
void fleet_expect_not(struct fleet *fleet, worker_handle handle, const struct fleet_pages *pages,
                      uint32_t from);
/* Of these pages, the most that a worker of this model and role which is UP is thought to hold, as
 * tokens. */
uint32_t fleet_cached_tokens(const struct fleet *fleet, uint32_t model, enum worker_role role,
                             const struct fleet_pages *pages);
/* How long the workers of a model have with what they were sent and so much more, in milliseconds.
 */
double fleet_drain_ms(const struct fleet *fleet, uint32_t model, uint64_t prompt_tokens,
                      uint64_t answer_tokens);
/* Tokens a second that the prefill nodes of a model read together. */
double fleet_prefill_tokens_per_s(const struct fleet *fleet, uint32_t model);
/* Likewise its decode nodes, as far as they tell. */
double fleet_decode_read_tokens_per_s(const struct fleet *fleet, uint32_t model);
/* Size of a page of the model's workers that are up, of the first one where they differ; 0 for
 * none. */
uint32_t fleet_page_tokens(const struct fleet *fleet, uint32_t model);
/* The longest sequence a request may have now: of the model's decode nodes that are up, no more
 * than the model's own; the model's own when none is. */
uint32_t fleet_context_tokens(const struct fleet *fleet, uint32_t model);

/* All slots but free ones, for listing: index from 0 until NULL. */
const struct fleet_worker *fleet_at(const struct fleet *fleet, uint32_t index);
/* True for a worker that is UP beside workers of the other role of which none computes the same;
 * says which field differs from one of them. */
bool fleet_unpaired(const struct fleet *fleet, const struct fleet_worker *worker,
                    struct error *error);
uint32_t fleet_count(const struct fleet *fleet, enum worker_role role, enum fleet_state state);
/* As clients say it. */
const char *fleet_model_name(const struct fleet *fleet, uint32_t model);
/* Of them, those that serve a model and are UP. */
uint32_t fleet_serving(const struct fleet *fleet, uint32_t model, enum worker_role role);

#endif
