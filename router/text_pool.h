/* Threads for work on text that would hold up the event loop: JSON, templates, tokenising.
 *
 * Bounded in jobs and in bytes. A job is handed in on the loop thread, runs on a text thread, and
 * comes back on the loop thread. */
#ifndef BATON_ROUTER_TEXT_POOL_H
#define BATON_ROUTER_TEXT_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"

struct text_pool;

struct text_job {
    void (*run)(struct text_job *job);  /* on a text thread */
    void (*done)(struct text_job *job); /* on the loop thread, after run; may free the job */
    size_t bytes;                       /* what it holds while it waits */
    struct text_job *next;              /* the pool's own */
};

/* Aborts when threads cannot be made (start-up only). */
struct text_pool *text_pool_create(struct loop *loop, uint32_t thread_count, uint32_t jobs_max,
                                   size_t bytes_max);
/* BUSY when the pool holds jobs_max jobs or bytes_max bytes already; the job stays the caller's. */
enum status text_pool_submit(struct text_pool *pool, struct text_job *job);
/* Finishes what was handed in, calls its done, joins the threads. Loop thread. */
void text_pool_destroy(struct text_pool *pool);

#endif
