/* The receiving end of hand-offs: pages from the pool on grant, and what comes of each. */
#include "decode_node/decode_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "worker/job_log.h"

/* ---- where slots come from ---- */

static enum status pages_reserve(void *arg, uint32_t count)
{
    struct decode_node *node = arg;
    return prefix_tree_reserve(node->worker->prefixes, count);
}

static void pages_unreserve(void *arg, uint32_t count)
{
    struct decode_node *node = arg;
    page_pool_unreserve(node->worker->pages, count);
    engine_port_poke(node->port); /* it may wait for pages */
}

static void pages_take(void *arg, uint32_t count, uint32_t *slots_out, uint32_t *generations_out)
{
    struct decode_node *node = arg;
    page_pool_take(node->worker->pages, count, slots_out);
    for (uint32_t i = 0; i < count; i++)
        generations_out[i] = page_pool_generation(node->worker->pages, slots_out[i]);
}

static void pages_give_back(void *arg, const uint32_t *slots, uint32_t count)
{
    struct decode_node *node = arg;
    page_pool_free(node->worker->pages, slots, count);
    engine_port_poke(node->port);
}

/* Between reservation and offer the same beginning may have come with another request. */
static uint32_t pages_held(void *arg, void *context, uint32_t first_page, uint32_t page_count)
{
    struct decode_node *node = arg;
    struct decode_request *request = context;
    struct worker *worker = node->worker;
    const uint32_t tokens = request->job.given_count - 1;
    struct prefix_match match;
    if (first_page != request->cached_pages)
        return HANDOFF_MISPLACED;
    if (worker->options->no_prefix_cache)
        return 0;
    prefix_tree_peek(worker->prefixes, request->job.cache_salt, request->job.tokens, tokens,
                     &match);
    if (match.page_count <= first_page)
        return 0;
    const uint32_t found = prefix_tree_lookup(worker->prefixes, request->job.cache_salt,
                                              request->job.tokens, tokens, request->slots);
    /* The first ones are held twice now; a page of the index stays while somebody holds it. */
    CHECK(found >= first_page && found - first_page < page_count);
    page_pool_free(worker->pages, request->slots, first_page);
    request->cached_pages = found;
    return found - first_page;
}

/* ---- what comes of a hand-off ---- */

/* The first token of a choice comes from another process. */
static enum status check_first(const struct decode_node *node, const struct decode_request *request,
                               const struct msg_step *first, struct error *error)
{
    const struct job *job = &request->job;
    const struct job_limits *limits = &node->worker->limits;
    const struct request_key *key = decode_request_key(node, request);
    if (first->request != key->request || first->attempt != key->attempt ||
        first->choice < key->choice || first->choice >= key->choice + request->member_count)
        return error_set(error, STATUS_MISMATCH,
                         "the hand-off is of request %" PRIx64 ", attempt %" PRIu32
                         ", choice %" PRIu32 " and not %" PRIx64 ", %d, %d and the next %" PRIu32,
                         first->request, first->attempt, first->choice, key->request, key->attempt,
                         key->choice, request->member_count - 1);
    if (first->tokens.count != 1 || first->first_position != job->given_count)
        return error_set(error, STATUS_MISMATCH,
                         "the hand-off brought %" PRIu32 " tokens at position %" PRIu32
                         ", wanted is one at %" PRIu32,
                         first->tokens.count, first->first_position, job->given_count);
    const int32_t id = first->tokens.items[0];
    if (id < 0 || (uint32_t)id >= limits->vocab_count)
        return error_set(error, STATUS_INVALID,
                         "the first token is %" PRId32 ", the vocabulary has %" PRIu32 " ids", id,
                         limits->vocab_count);
    if (first->finish != FINISH_NONE ||
        job_finish(job, limits, id, job->given_count) != FINISH_NONE)
        return error_set(error, STATUS_INVALID,
                         "the first token, %" PRId32 ", ends the answer: nothing is left to decode",
                         id);
    return STATUS_OK;
}

static enum status check_done(const struct decode_node *node, const struct decode_request *request,
                              const struct msg_done *done, uint32_t slot_count, struct error *error)
{
    if (slot_count != request->prompt_pages - request->cached_pages)
        return error_set(error, STATUS_MISMATCH,
                         "the hand-off brought %" PRIu32 " pages, the prompt has %" PRIu32
                         " and %" PRIu32 " of them were here",
                         slot_count, request->prompt_pages, request->cached_pages);
    uint32_t last = done->first.choice;
    TRY(check_first(node, request, &done->first, error));
    for (uint32_t i = 0; i < done->others.count; i++) {
        const struct msg_step *step = &done->others.items[i];
        TRY(check_first(node, request, step, error));
        if (step->choice <= last)
            return error_set(error, STATUS_MISMATCH,
                             "the hand-off brought choice %" PRIu32 " behind choice %" PRIu32,
                             step->choice, last);
        last = step->choice;
    }
    return STATUS_OK;
}

static void on_landed(void *arg, void *context, const uint32_t *slots, uint32_t slot_count,
                      const struct msg_done *done, const struct handoff_stats *stats)
{
    struct decode_node *node = arg;
    struct decode_request *request = context;
    struct error error;
    (void)stats;
    request->control.handoff = 0;
    if (node->closing || check_done(node, request, done, slot_count, &error) != STATUS_OK) {
        page_pool_free(node->worker->pages, slots, slot_count);
        if (node->closing)
            return;
        LOG_JOB(LOG_LEVEL_WARN, decode_request_key(node, request)->request, request->job.trace,
                "what was handed off cannot be used: %s", error.text);
        worker_send_handoff_failed(node->worker, decode_request_key(node, request), error.status,
                                   error.text);
        decode_choices_release(node, request);
        return;
    }
    memcpy(request->slots + request->cached_pages, slots, slot_count * sizeof *slots);
    /* Others may begin like it. */
    if (!node->worker->options->no_prefix_cache)
        prefix_tree_insert(node->worker->prefixes, request->job.cache_salt, request->job.tokens,
                           request->job.given_count, request->slots);
    decode_choices_land(node, request, done);
}

static void on_failed(void *arg, void *context, enum status status, const char *text)
{
    struct decode_node *node = arg;
    struct decode_request *request = context;
    /* The prompt's pages go back by themselves. */
    request->control.handoff = 0;
    if (node->closing)
        return;
    const struct request_key *key = decode_request_key(node, request);
    /* A prefill node that cancels does so because its router has the end already: the answer ended
     * with its first token, or the router gave it up. */
    if (status != STATUS_CANCELED) {
        LOG_JOB(LOG_LEVEL_WARN, key->request, request->job.trace, "the hand-off failed: %s", text);
        worker_send_handoff_failed(node->worker, key, status, text);
    }
    decode_choices_release(node, request);
}

enum status decode_handoff_reserve(struct decode_node *node, struct decode_request *request,
                                   uint32_t lease_ms, uint64_t *ticket_out, struct error *error)
{
    const struct request_key *key = decode_request_key(node, request);
    const uint32_t rest = request->pages_first - request->prompt_pages;
    if (prefix_tree_reserve(node->worker->prefixes, rest) != STATUS_OK)
        return error_set(error, STATUS_BUSY, "the last free KV pages were just taken");
    const enum status status = handoff_reserve(
        node->receiver, key->request, key->attempt, request->prompt_pages - request->cached_pages,
        lease_ms, request, &request->control.handoff, ticket_out, error);
    if (status != STATUS_OK)
        page_pool_unreserve(node->worker->pages, rest);
    /* Hand-offs of requests that are gone may still be in quarantine: that passes. */
    if (status == STATUS_LIMIT)
        return error->status = STATUS_BUSY;
    return status;
}

enum status decode_handoff_create(struct decode_node *node, struct error *error)
{
    static const struct handoff_receiver_events events = {
        .on_landed = on_landed,
        .on_failed = on_failed,
    };
    static const struct handoff_pages pages = {
        .held = pages_held,
        .reserve = pages_reserve,
        .unreserve = pages_unreserve,
        .take = pages_take,
        .give_back = pages_give_back,
    };
    struct worker *worker = node->worker;
    struct worker_handoff setup;
    TRY(worker_handoff_setup(worker, node->options->data_address, &setup, error));
    return handoff_receiver_create(worker->loop, setup.ops, &setup.options, &setup.region,
                                   &worker->self, &setup.limits, &pages, &events, node,
                                   &node->receiver, error);
}
