/* The journal: every request and every worker with their state changes, in SQLite.
 *
 * The loop thread hands in fixed-size records and never waits; one writer thread commits them in
 * batches. Whatever befalls the file, serving goes on: records that can not be written are dropped
 * and counted, a damaged file is moved aside and a new one begun. */
#ifndef BATON_ROUTER_JOURNAL_H
#define BATON_ROUTER_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct journal;

enum { JOURNAL_NAME_BYTES = 65, JOURNAL_REASON_BYTES = 160 };

struct journal_request {
    uint64_t id;
    char client_id[129];
    char tenant[JOURNAL_NAME_BYTES]; /* empty: nobody's */
    char trace_id[33];               /* empty: the client sent none */
    char model[129];                 /* empty: the body names none, or is not read yet */
    const char *endpoint;            /* static, like all const char * of records */
    const char *state;
    char prefill[JOURNAL_NAME_BYTES], decode[JOURNAL_NAME_BYTES];
    uint32_t prompt_tokens, max_tokens, output_tokens;
    uint64_t first_token_us, duration_us; /* 0: not (yet) */
    int http_status;                      /* 0 while it runs */
    /* "stop", "length", "failed", "cancelled", "sibling_failed": another prompt of the same body
     * failed; NULL: it has not ended. */
    const char *outcome;
    char reason[JOURNAL_REASON_BYTES];
};

struct journal_worker {
    uint8_t boot_id[16];
    char node[JOURNAL_NAME_BYTES], address[JOURNAL_NAME_BYTES], version[33];
    char model[129];
    const char *role, *state;
    char reason[JOURNAL_REASON_BYTES];
};

struct journal_options {
    const char *directory; /* made if absent; the file is baton.sqlite in it */
    char router[33];       /* boot id of this router, hexadecimal */
    uint32_t records_max;  /* in the queue */
    uint32_t busy_ms;      /* wait for a lock another process holds */
    uint32_t retry_ms;     /* between attempts while the file can not be written */
    uint64_t bytes_max;    /* of the file; at it the oldest gives way, as behind requests_max */
    uint64_t requests_max; /* kept; as many changes of workers are */
};

/* Starts the writer. IO with a sentence when the directory can not be made or another router holds
 * it; trouble with the file itself is no failure. */
enum status journal_open(const struct journal_options *options, struct journal **out,
                         struct error *error);
/* Writes what is in the queue (for at most busy_ms when the file does not take it), joins. */
void journal_close(struct journal *journal);

/* Loop thread: a new state of a request or worker. Copies; drops and counts when the queue is full.
 */
void journal_put_request(struct journal *journal, const struct journal_request *record);
void journal_put_worker(struct journal *journal, const struct journal_worker *record);

/* Of the file, for journal_read.h; NULL while the writer has it not open, for a reader in its way
 * would keep it from setting the file up. Any thread. */
const char *journal_path(const struct journal *journal);

struct journal_stats {
    uint64_t written, dropped;
    uint64_t damaged; /* files moved aside */
    uint64_t bytes;   /* of the file and its write-ahead log, as last seen */
    bool healthy;
};
/* Any thread. */
struct journal_stats journal_stats(const struct journal *journal);
/* Waits until every record handed in so far was written or dropped; false after timeout_ms. For
 * tests and for the end. */
bool journal_settle(struct journal *journal, uint32_t timeout_ms);

#endif
