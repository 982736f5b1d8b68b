/* A worker as the router sees one: says HELLO, writes down what it is sent, and answers what the
 * test tells it to, or by itself when `automatic`. */
#ifndef BATON_TESTS_ROUTER_FAKE_WORKER_H
#define BATON_TESTS_ROUTER_FAKE_WORKER_H

#include "tests/router/router_process.h"
#include "transfer/link.h"

enum { FAKE_JOBS_MAX = 512 };

struct fake_job {
    uint64_t request, handoff, ticket;
    uint32_t attempt, choice, prompt_count, max_tokens, top_logprobs, scores;
    bool logprobs, local, cancelled;
    bool tells_end;   /* set by a test: logprobs are also those of the id that ends the answer */
    int32_t first_id; /* of the prompt */
    char traceparent[56];
    uint32_t grammar_kind;
    char grammar[64]; /* its source, cut to fit */
};

struct fake_worker {
    struct router_process *router;
    struct link *link;
    enum worker_role role;
    char node[32];
    uint8_t boot_id[16];
    bool welcomed, closed;
    char close_text[512];
    uint64_t heartbeats;
    uint32_t anew_asked; /* acknowledgements that asked for all news of the prefix cache */
    /* automatic: a decode node reserves at once and writes `answer` after its turn; a prefill node
     * gives the answer's first token. */
    bool automatic;
    bool reads_short;   /* automatic decode node: reads what it is allowed to read itself */
    const char *answer; /* one token a byte */
    struct fake_worker *partner; /* of a prefill node: the decode node that goes on */
    enum finish_code finish;     /* at the end of the answer */
    uint32_t cached_tokens;      /* told with the first token */
    uint32_t held_tokens;        /* told with a reservation */
    float tokens_per_s;          /* told with heartbeats; HELLO says 100 */
    float read_tokens_per_s; /* of a decode node, told by HELLO and heartbeats; 0: it does not */
    struct fake_job jobs[FAKE_JOBS_MAX];
    uint32_t job_count, cancel_count;
    /* What HELLO says, to be changed before connecting. */
    char model[64];         /* in its file */
    const char *model_name; /* NULL: it was told none */
    uint64_t profile_id;
    uint32_t context_tokens, vocab_count, pages_total, grammars, abilities;
    uint8_t tokenizer_digest[16], weights_digest[16];
};

/* Fills in what fits the tiny model, of which its name is "tiny". */
void fake_worker_init(struct fake_worker *worker, struct router_process *router,
                      enum worker_role role, const char *node);
/* Makes it a worker of the model in that file, with weights of its own. Before it connects. */
void fake_worker_serve(struct fake_worker *worker, const char *path, uint8_t weights);
/* Dials and says HELLO; returns when WELCOME is here or the link was closed. */
void fake_worker_connect(struct fake_worker *worker);
void fake_worker_heartbeat(struct fake_worker *worker, uint64_t queued_tokens, uint32_t pages_free);
/* A heartbeat with events of the prefix cache; hashes: [count], all of which came. */
void fake_worker_news(struct fake_worker *worker, bool anew, uint64_t sequence,
                      const uint64_t *hashes, uint32_t count);
/* The same with any bytes at all. */
void fake_worker_news_bytes(struct fake_worker *worker, bool anew, uint64_t sequence,
                            const void *bytes, uint32_t count);
void fake_worker_close(struct fake_worker *worker);

void fake_reserved(struct fake_worker *worker, const struct fake_job *job, enum status refusal);
/* letters: one token a byte, at offset behind the prompt. */
void fake_tokens(struct fake_worker *worker, const struct fake_job *job, uint32_t offset,
                 const char *letters, enum finish_code finish);
/* The same, each letter a step of its own, in one message. */
void fake_tokens_apart(struct fake_worker *worker, const struct fake_job *job, uint32_t offset,
                       const char *letters, enum finish_code finish);
/* The score of the prompt's token at `position`: -position, and of top alternatives from 'A' on. */
void fake_score(struct fake_worker *worker, const struct fake_job *job, uint32_t position);
void fake_failed(struct fake_worker *worker, const struct fake_job *job, enum status status,
                 const char *text);
void fake_report(struct fake_worker *worker, const struct fake_job *job);

#endif
