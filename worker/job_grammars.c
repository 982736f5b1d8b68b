#include "worker/job_grammars.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/job.h"
#include "worker/request_table.h"

enum entry_state {
    ENTRY_FREE,
    ENTRY_COMPILING, /* the thread's: it fills program, status and error */
    ENTRY_READY      /* compiled, or known to be wrong: then program is NULL */
};

struct entry {
    enum entry_state state;
    struct digest128 digest;
    uint32_t kind;
    struct buffer source;
    struct grammar_program *program;
    struct error error; /* its status is OK where there is a program */
    size_t bytes;
    uint32_t holds;
    uint64_t used; /* a serial number: what was asked for last */
    uint64_t compile_us;
};

/* A message that waits for an entry, as the frame it came in. */
struct waiting {
    uint32_t entry;
    struct router_ref router;
    enum message_id id;
    uint64_t request;
    uint32_t attempt, choice, choices;
    struct buffer frame;
};

struct job_grammars {
    struct grammar_tokens *tokens;
    job_grammars_again *again;
    void *node;
    struct entry *entries; /* [capacity] */
    uint32_t capacity;
    size_t bytes; /* of all programs */
    uint64_t serial;
    struct waiting *waiting; /* [waiting_max] in order of arrival */
    uint32_t waiting_count, waiting_max;
    size_t waiting_bytes;
    struct wire_arena arena;
    void *message; /* [wire_message_bytes_max] */
    struct job_grammars_totals totals;

    struct loop_wake *wake;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows; held for a few instructions only */
    pthread_cond_t work;
    uint32_t *todo, *done; /* [capacity] entries, in the order in which they were asked for */
    uint32_t todo_count, done_count;
    bool stopping;
};

/* ---- the compiler's thread ---- */

static void compile(const struct grammar_tokens *tokens, struct entry *entry)
{
    struct grammar *grammar;
    const uint64_t start_ns = clock_now_ns(clock_monotonic());
    entry->error.status = grammar_compile((enum grammar_kind)entry->kind, entry->source.data,
                                          entry->source.size, &grammar, &entry->error);
    if (entry->error.status == STATUS_OK)
        entry->error.status = grammar_program_create(grammar, tokens, JOB_GRAMMAR_CACHE_BYTES,
                                                     &entry->program, &entry->error);
    entry->compile_us = (clock_now_ns(clock_monotonic()) - start_ns) / NS_PER_US;
}

/* Takes the number at `at` out of a list. */
static uint32_t list_take(uint32_t *list, uint32_t *count, uint32_t at)
{
    const uint32_t taken = list[at];
    memmove(list + at, list + at + 1, (--*count - at) * sizeof *list);
    return taken;
}

static void *thread_main(void *arg)
{
    struct job_grammars *grammars = arg;
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    while (!grammars->stopping) {
        if (grammars->todo_count == 0) {
            pthread_cond_wait(&grammars->work, &grammars->lock);
            continue;
        }
        const uint32_t index = list_take(grammars->todo, &grammars->todo_count, 0);
        pthread_mutex_unlock(&grammars->lock);
        compile(grammars->tokens, &grammars->entries[index]);
        CHECK(pthread_mutex_lock(&grammars->lock) == 0);
        grammars->done[grammars->done_count++] = index;
        loop_wake_signal(grammars->wake);
    }
    pthread_mutex_unlock(&grammars->lock);
    return NULL;
}

/* ---- entries ---- */

static void entry_clear(struct job_grammars *grammars, struct entry *entry)
{
    CHECK(entry->holds == 0 && entry->state != ENTRY_COMPILING);
    grammars->bytes -= entry->bytes;
    grammar_program_destroy(entry->program);
    buffer_free(&entry->source);
    *entry = (struct entry){0};
}

static struct entry *entry_find(struct job_grammars *grammars, const struct msg_job *job,
                                struct digest128 digest)
{
    for (uint32_t i = 0; i < grammars->capacity; i++) {
        struct entry *entry = &grammars->entries[i];
        if (entry->state != ENTRY_FREE && digest128_equal(entry->digest, digest) &&
            entry->kind == job->grammar_kind && entry->source.size == job->grammar.bytes &&
            (job->grammar.bytes == 0 ||
             memcmp(entry->source.data, job->grammar.data, job->grammar.bytes) == 0))
            return entry;
    }
    return NULL;
}

/* The first that waits for an entry; waiting_count: none does. */
static uint32_t first_waiting(const struct job_grammars *grammars, uint32_t entry)
{
    uint32_t i = 0;
    while (i < grammars->waiting_count && grammars->waiting[i].entry != entry)
        i++;
    return i;
}

static bool is_waited_for(const struct job_grammars *grammars, const struct entry *entry)
{
    const uint32_t place = (uint32_t)(entry - grammars->entries);
    return first_waiting(grammars, place) < grammars->waiting_count;
}

/* Of those that nobody needs, the one that was not asked for the longest; NULL: there is none. */
static struct entry *entry_idle(struct job_grammars *grammars)
{
    struct entry *oldest = NULL;
    for (uint32_t i = 0; i < grammars->capacity; i++) {
        struct entry *entry = &grammars->entries[i];
        if (entry->state == ENTRY_READY && entry->holds == 0 && !is_waited_for(grammars, entry) &&
            (oldest == NULL || entry->used < oldest->used))
            oldest = entry;
    }
    return oldest;
}

/* NULL when all are in use. */
static struct entry *entry_take(struct job_grammars *grammars)
{
    for (uint32_t i = 0; i < grammars->capacity; i++) {
        if (grammars->entries[i].state == ENTRY_FREE)
            return &grammars->entries[i];
    }
    struct entry *oldest = entry_idle(grammars);
    if (oldest != NULL)
        entry_clear(grammars, oldest);
    return oldest;
}

/* A host that has no thread left now may have one later. */
static enum status start_thread(struct job_grammars *grammars, struct error *error)
{
    if (grammars->started)
        return STATUS_OK;
    const int code = pthread_create(&grammars->thread, NULL, thread_main, grammars);
    grammars->started = code == 0;
    return code == 0
               ? STATUS_OK
               : error_set(error, STATUS_BUSY,
                           "no thread can be started that compiles grammars: %s", strerror(code));
}

static struct entry *entry_begin(struct job_grammars *grammars, const struct msg_job *job,
                                 struct digest128 digest)
{
    struct entry *entry = entry_take(grammars);
    if (entry == NULL)
        return NULL;
    *entry = (struct entry){.state = ENTRY_COMPILING, .digest = digest, .kind = job->grammar_kind};
    buffer_add(&entry->source, job->grammar.data, job->grammar.bytes);
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    grammars->todo[grammars->todo_count++] = (uint32_t)(entry - grammars->entries);
    pthread_cond_signal(&grammars->work);
    pthread_mutex_unlock(&grammars->lock);
    return entry;
}

/* ---- messages that wait ---- */

static enum status wait_for(struct job_grammars *grammars, const struct entry *entry,
                            struct router_ref router, enum message_id id, const void *message,
                            const struct msg_job *job, struct error *error)
{
    struct waiting waiting = {
        .entry = (uint32_t)(entry - grammars->entries),
        .router = router,
        .id = id,
        .request = job->request,
        .attempt = job->attempt,
        .choice = job->choice,
        .choices = job_choices(job),
    };
    TRY(wire_encode(id, message, &waiting.frame, error));
    grammars->waiting_bytes += waiting.frame.size;
    grammars->waiting[grammars->waiting_count++] = waiting;
    return STATUS_PENDING;
}

/* Takes the message at `index` out of the list; its frame is the caller's. */
static struct waiting waiting_take(struct job_grammars *grammars, uint32_t index)
{
    const struct waiting waiting = grammars->waiting[index];
    grammars->waiting_count--;
    memmove(grammars->waiting + index, grammars->waiting + index + 1,
            (grammars->waiting_count - index) * sizeof *grammars->waiting);
    grammars->waiting_bytes -= waiting.frame.size;
    return waiting;
}

static void come_again(struct job_grammars *grammars, uint32_t index)
{
    struct waiting waiting = waiting_take(grammars, index);
    const size_t bytes = waiting.frame.size - WIRE_PREFIX_BYTES;
    struct wire_prefix prefix;
    struct error error;
    enum message_id id;
    wire_arena_init(&grammars->arena, wire_arena_bytes(bytes));
    CHECK(wire_prefix_read(waiting.frame.data, waiting.frame.size, waiting.frame.size, &prefix,
                           &error) == STATUS_OK);
    CHECK(wire_decode(prefix.type, waiting.frame.data + WIRE_PREFIX_BYTES, bytes, &grammars->arena,
                      &id, grammars->message, wire_message_bytes_max(), &error) == STATUS_OK);
    grammars->again(grammars->node, waiting.router, id, grammars->message);
    wire_arena_free(&grammars->arena);
    buffer_free(&waiting.frame);
}

/* What was compiled is counted, what is too much goes, and those who wait for it come in again. */
static void settle(struct job_grammars *grammars, struct entry *entry)
{
    const uint32_t place = (uint32_t)(entry - grammars->entries);
    entry->state = ENTRY_READY;
    entry->used = ++grammars->serial;
    entry->bytes = entry->program == NULL ? 0 : grammar_program_bytes(entry->program);
    grammars->bytes += entry->bytes;
    grammars->totals.compiled++;
    grammars->totals.compile_us += entry->compile_us;
    LOG_DEBUG("a grammar of %zu bytes: %" PRIu64 " us, %zu KiB", entry->source.size,
              entry->compile_us, entry->bytes >> 10);
    struct entry *idle;
    entry->holds++; /* it is not one of those that may go */
    while (grammars->bytes > JOB_GRAMMARS_BYTES_MAX && (idle = entry_idle(grammars)) != NULL)
        entry_clear(grammars, idle);
    const bool too_much = grammars->bytes > JOB_GRAMMARS_BYTES_MAX;
    if (too_much)
        error_set(&entry->error, STATUS_BUSY,
                  "the grammars of open requests take %zu MiB, the most are %d MiB",
                  (grammars->bytes - entry->bytes) >> 20, JOB_GRAMMARS_BYTES_MAX >> 20);
    /* What comes in may end others that wait, for any entry: each time the list is a new one. */
    for (uint32_t next; (next = first_waiting(grammars, place)) < grammars->waiting_count;)
        come_again(grammars, next);
    entry->holds--;
    if (too_much)
        entry_clear(grammars, entry);
}

static void on_done(void *arg)
{
    struct job_grammars *grammars = arg;
    for (;;) {
        CHECK(pthread_mutex_lock(&grammars->lock) == 0);
        const bool any = grammars->done_count > 0;
        const uint32_t index = any ? list_take(grammars->done, &grammars->done_count, 0) : 0;
        pthread_mutex_unlock(&grammars->lock);
        if (!any)
            return;
        settle(grammars, &grammars->entries[index]);
    }
}

/* ---- what nodes ask ---- */

struct job_grammars *job_grammars_create(struct loop *loop, const struct text *text,
                                         uint32_t requests_max, job_grammars_again *again,
                                         void *node)
{
    struct job_grammars *grammars = calloc(1, sizeof *grammars);
    CHECK(grammars != NULL);
    const uint32_t capacity = requests_max + JOB_GRAMMARS_IDLE_MAX;
    *grammars = (struct job_grammars){
        .tokens = grammar_tokens_create(text),
        .again = again,
        .node = node,
        .entries = calloc(capacity, sizeof *grammars->entries),
        .capacity = capacity,
        .waiting = calloc(requests_max, sizeof *grammars->waiting),
        .waiting_max = requests_max,
        .message = malloc(wire_message_bytes_max()),
        .todo = calloc(capacity, sizeof *grammars->todo),
        .done = calloc(capacity, sizeof *grammars->done),
        .wake = loop_wake_create(loop, on_done, grammars),
    };
    CHECK(grammars->entries != NULL && grammars->waiting != NULL && grammars->message != NULL &&
          grammars->todo != NULL && grammars->done != NULL);
    CHECK(pthread_mutex_init(&grammars->lock, NULL) == 0 &&
          pthread_cond_init(&grammars->work, NULL) == 0);
    return grammars;
}

void job_grammars_destroy(struct job_grammars *grammars)
{
    if (grammars == NULL)
        return;
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    grammars->stopping = true;
    pthread_cond_signal(&grammars->work);
    pthread_mutex_unlock(&grammars->lock);
    if (grammars->started)
        CHECK(pthread_join(grammars->thread, NULL) == 0);
    loop_wake_destroy(grammars->wake);
    for (uint32_t i = 0; i < grammars->waiting_count; i++)
        buffer_free(&grammars->waiting[i].frame);
    for (uint32_t i = 0; i < grammars->capacity; i++) {
        grammar_program_destroy(grammars->entries[i].program);
        buffer_free(&grammars->entries[i].source);
    }
    pthread_mutex_destroy(&grammars->lock);
    pthread_cond_destroy(&grammars->work);
    grammar_tokens_destroy(grammars->tokens);
    free(grammars->entries);
    free(grammars->waiting);
    free(grammars->message);
    free(grammars->todo);
    free(grammars->done);
    free(grammars);
}

enum status job_grammars_hold(struct job_grammars *grammars, struct router_ref router,
                              enum message_id id, const void *message, const struct msg_job *job,
                              uint32_t count, struct grammar_program **out, struct error *error)
{
    if (job->grammar_kind == 0) {
        *out = NULL;
        return STATUS_OK;
    }
    const struct digest128 digest =
        hash128(job->grammar.data, job->grammar.bytes, hash_process_key() + job->grammar_kind);
    struct entry *entry = entry_find(grammars, job, digest);
    if (entry == NULL || entry->state == ENTRY_COMPILING) {
        if (grammars->waiting_count == grammars->waiting_max ||
            grammars->waiting_bytes > JOB_GRAMMARS_WAITING_BYTES_MAX)
            return error_set(error, STATUS_BUSY,
                             "%" PRIu32 " requests with %zu bytes wait for their grammars, the "
                             "most are %" PRIu32 " and %d bytes",
                             grammars->waiting_count, grammars->waiting_bytes,
                             grammars->waiting_max, JOB_GRAMMARS_WAITING_BYTES_MAX);
        TRY(start_thread(grammars, error));
        if (entry == NULL)
            entry = entry_begin(grammars, job, digest);
        if (entry == NULL)
            return error_set(error, STATUS_BUSY, "%" PRIu32 " grammars are in use, the most",
                             grammars->capacity);
        return wait_for(grammars, entry, router, id, message, job, error);
    }
    entry->used = ++grammars->serial;
    if (entry->error.status != STATUS_OK)
        return *error = entry->error, error->status;
    grammars->totals.found++;
    entry->holds += count;
    *out = entry->program;
    return STATUS_OK;
}

void job_grammars_release(struct job_grammars *grammars, struct grammar_program *program)
{
    if (program == NULL)
        return;
    for (uint32_t i = 0; i < grammars->capacity; i++) {
        struct entry *entry = &grammars->entries[i];
        if (entry->program != program || entry->state != ENTRY_READY)
            continue;
        CHECK(entry->holds > 0);
        entry->holds--;
        return;
    }
    CHECK(false);
}

static bool concerns(const struct waiting *waiting, struct router_ref router,
                     const struct msg_cancel *cancel)
{
    if (!router_ref_equal(waiting->router, router))
        return false;
    return cancel == NULL ||
           (waiting->request == cancel->request && waiting->attempt == cancel->attempt &&
            cancel->choice - waiting->choice < waiting->choices);
}

/* What nobody waits for any more and was not begun is not compiled. */
static void entry_withdraw(struct job_grammars *grammars, struct entry *entry)
{
    bool withdrawn = false;
    if (entry->state != ENTRY_COMPILING || is_waited_for(grammars, entry))
        return;
    CHECK(pthread_mutex_lock(&grammars->lock) == 0);
    for (uint32_t i = 0; i < grammars->todo_count && !withdrawn; i++) {
        withdrawn = &grammars->entries[grammars->todo[i]] == entry;
        if (withdrawn)
            list_take(grammars->todo, &grammars->todo_count, i);
    }
    pthread_mutex_unlock(&grammars->lock);
    if (!withdrawn)
        return;
    entry->state = ENTRY_READY;
    entry_clear(grammars, entry);
}

void job_grammars_forget(struct job_grammars *grammars, struct router_ref router,
                         const struct msg_cancel *cancel)
{
    for (uint32_t i = 0; i < grammars->waiting_count;) {
        if (!concerns(&grammars->waiting[i], router, cancel)) {
            i++;
            continue;
        }
        struct waiting waiting = waiting_take(grammars, i);
        buffer_free(&waiting.frame);
        entry_withdraw(grammars, &grammars->entries[waiting.entry]);
    }
}

uint32_t job_grammars_waiting(const struct job_grammars *grammars)
{
    return grammars->waiting_count;
}

struct job_grammars_totals job_grammars_totals(const struct job_grammars *grammars)
{
    return grammars->totals;
}
