/* The engine thread by itself, the test being control: prompts with common beginnings come and go
 * at random times over a pool that is too small for all of them. Every page and every first token
 * has the bits of the same prompt computed alone from nothing. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "prefill_node/prefill_internal.h"
#include "tests/worker/test_daemon.h"

enum {
    PAGE = 64,
    CONTEXT = 1024,
    PAGES_OF_CONTEXT = CONTEXT / PAGE,
    POOL_PAGES = 40,
    PLACES = 12,
    SEQUENCES = 4,
    CHUNK = 160,
    FAMILIES = 3,
    REQUESTS = 120,
    PROMPT_MAX = 700,
};

struct outcome {
    uint64_t pages; /* digest of all of them in all layers */
    int32_t token;
};

struct place {
    struct outcome alone; /* what is to come out */
    bool used, dropping;
    uint32_t rows, strips, cached;
};

static struct worker worker;
static struct worker_options options;
static struct engine_port *port;
static struct prefill_engine engine;
static struct prefill_request *requests; /* [PLACES] */
static struct place places[PLACES];
static int32_t families[FAMILIES][PROMPT_MAX];
static uint32_t finished, dropped, open_count;
static uint64_t rows_computed, rows_asked;

/* ---- alone ---- */

static uint64_t digest_pages(const uint32_t *slots, uint32_t count)
{
    const struct kv_layout *layout = page_pool_layout(worker.pages);
    uint64_t digest = 0;
    for (uint32_t layer = 0; layer < layout->layers; layer++) {
        for (uint32_t i = 0; i < count; i++)
            digest = hash64(page_pool_strip(worker.pages, layer, slots[i]),
                            kv_layout_strip_bytes(layout), digest);
    }
    return digest;
}

static struct outcome compute_alone(const int32_t *tokens, uint32_t count)
{
    uint32_t slots[PAGES_OF_CONTEXT];
    const uint32_t pages = job_pages(count, PAGE);
    const struct forward_best *best = NULL;
    struct error error;
    cr_assert_eq(page_pool_reserve(worker.pages, pages), STATUS_OK);
    page_pool_take(worker.pages, pages, slots);
    for (uint32_t position = 0; position < count;) {
        const uint32_t left = count - position, rows = left < CHUNK ? left : CHUNK;
        const struct forward_sequence sequence = {.tokens = tokens + position,
                                                  .count = rows,
                                                  .position = position,
                                                  .slots = slots,
                                                  .logit_rows = 1};
        cr_assert_eq(model_forward_best(worker.model, &sequence, 1, NULL, &best, &error), STATUS_OK,
                     "%s", error.text);
        position += rows;
    }
    const struct outcome outcome = {.pages = digest_pages(slots, pages), .token = best->id};
    page_pool_free(worker.pages, slots, pages);
    return outcome;
}

/* ---- control ---- */

static void on_last_word(uint32_t at, const struct prefill_event *event)
{
    struct prefill_request *request = &requests[at];
    struct place *place = &places[at];
    if (event->kind == EVENT_FIRST) {
        const uint32_t given = request->job.given_count;
        const uint32_t layers = model_info(worker.model)->layers;
        cr_assert_eq(event->first.sampled.id, place->alone.token);
        cr_assert_eq(digest_pages(request->slots, request->page_count), place->alone.pages,
                     "pages of %u tokens, %u of them cached, differ", given, place->cached);
        cr_assert_eq(place->cached + place->rows, given);
        cr_assert_eq(place->strips, layers * request->page_count, "every strip is told once");
        finished++;
    } else {
        cr_assert_eq(event->kind, EVENT_DROPPED);
        cr_assert(place->dropping);
        dropped++;
    }
    if (request->engine.has_pages)
        page_pool_free(worker.pages, request->slots, request->page_count);
    place->used = false;
    open_count--;
    engine_port_poke(port);
}

static void on_event(const struct prefill_event *event)
{
    if (event->kind == EVENT_CHUNK) {
        rows_computed += event->work.rows;
        cr_assert_leq(event->work.rows, CHUNK);
        return;
    }
    struct place *place = &places[event->place];
    cr_assert(place->used);
    switch (event->kind) {
    case EVENT_STARTED:
        place->cached = event->cached_tokens;
        place->strips = model_info(worker.model)->layers * (event->cached_tokens / PAGE);
        return;
    case EVENT_STRIPS:
        place->strips += event->strips.count;
        return;
    case EVENT_PROGRESS:
        place->rows += event->work.rows;
        return;
    case EVENT_WAITS:
        return;
    default:
        on_last_word(event->place, event);
    }
}

static void on_events(void *arg)
{
    struct prefill_event event;
    bool any = false;
    for (; engine_port_pop_event(port, &event); any = true)
        on_event(&event);
    if (any)
        engine_port_poke(port);
}

static uint32_t make_prompt(struct random *random, int32_t *tokens)
{
    const uint32_t vocab = worker.limits.vocab_count;
    uint32_t count = 1 + (uint32_t)random_below(random, PROMPT_MAX);
    if (random_below(random, 3) == 0) /* page edges are where it matters */
        count = (1 + count / PAGE) * PAGE - 1 + (uint32_t)random_below(random, 3);
    if (count > PROMPT_MAX)
        count = PROMPT_MAX;
    const uint32_t shared = (uint32_t)random_below(random, count + 1);
    memcpy(tokens, families[random_below(random, FAMILIES)], shared * sizeof *tokens);
    for (uint32_t i = shared; i < count; i++)
        tokens[i] =
            random_below(random, 2) == 0 ? families[0][i] : (int32_t)random_below(random, vocab);
    return count;
}

struct prompt {
    int32_t tokens[PROMPT_MAX];
    uint32_t count;
    struct outcome alone;
};

static void fill_request(uint32_t at, const struct prompt *prompt)
{
    struct prefill_request *request = &requests[at];
    int32_t *tokens = request->job.tokens;
    memcpy(tokens, prompt->tokens, prompt->count * sizeof *tokens);
    request->job = (struct job){.prompt_count = prompt->count,
                                .given_count = prompt->count,
                                .end = prompt->count + 1,
                                .choices = 1,
                                .ignore_eos = true,
                                .sampling = {.top_p = 1},
                                .tokens = tokens};
    request->page_count = job_pages(prompt->count, PAGE);
    request->delivers = true;
    request->arrival_ns = loop_now_ns(worker.loop);
    memset(&request->engine, 0, sizeof request->engine);
}

static void admit(uint32_t at, const struct prompt *prompt)
{
    fill_request(at, prompt);
    places[at] = (struct place){.alone = prompt->alone, .used = true};
    const struct prefill_command command = {.kind = COMMAND_ADMIT, .place = at};
    engine_port_command(port, &command);
    rows_asked += prompt->count;
    open_count++;
}

static void drop(uint32_t at)
{
    if (!places[at].used || places[at].dropping)
        return;
    places[at].dropping = true;
    const struct prefill_command command = {.kind = COMMAND_DROP, .place = at};
    engine_port_command(port, &command);
}

/* ---- set-up ---- */

static void open_model(enum kv_dtype dtype)
{
    const struct model_options how = {.path = test_model("tiny.gguf", NULL),
                                      .kv_dtype = dtype,
                                      .threads = 1,
                                      .page_tokens = PAGE,
                                      .context_tokens = CONTEXT,
                                      .kv_tokens = POOL_PAGES * PAGE,
                                      .max_rows = CHUNK,
                                      .max_sequences = SEQUENCES};
    struct error error;
    worker.clock = clock_monotonic();
    cr_assert_eq(model_open(&how, &worker.model, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(text_open(how.path, &worker.text, &error), STATUS_OK, "%s", error.text);
    worker.pages = model_pages(worker.model);
    cr_assert_eq(page_pool_slot_count(worker.pages), POOL_PAGES);
    cr_assert_eq(prefix_tree_create(worker.pages, NULL, &worker.prefixes, &error), STATUS_OK);
    worker.limits = (struct job_limits){.vocab_count = model_info(worker.model)->vocab_count,
                                        .context_tokens = CONTEXT,
                                        .page_tokens = PAGE,
                                        .pages_total = POOL_PAGES};
    worker.options = &options;
    worker.tokens_per_s = 10000;
    /* What was never written is the same in every page. */
    uint32_t slots[POOL_PAGES];
    page_pool_poison(worker.pages, true);
    cr_assert_eq(page_pool_reserve(worker.pages, POOL_PAGES), STATUS_OK);
    page_pool_take(worker.pages, POOL_PAGES, slots);
    page_pool_free(worker.pages, slots, POOL_PAGES);
}

static void open_engine(void)
{
    worker.loop = loop_create();
    requests = calloc(PLACES, sizeof *requests);
    for (uint32_t i = 0; i < PLACES; i++) {
        requests[i].job.tokens = calloc(CONTEXT, sizeof(int32_t));
        requests[i].slots = calloc(PAGES_OF_CONTEXT, sizeof(uint32_t));
    }
    const struct engine_port_sizes sizes = {
        .command_bytes = sizeof(struct prefill_command),
        .command_count = PLACES * 4,
        .event_bytes = sizeof(struct prefill_event),
        .event_count = prefill_engine_events(&worker, SEQUENCES) + PLACES,
    };
    port = engine_port_create(worker.loop, &sizes, on_events, NULL);
    prefill_engine_create(&engine, &worker, port, requests, SEQUENCES, 50);
}

static void close_all(void)
{
    prefill_engine_destroy(&engine);
    engine_port_destroy(port);
    for (uint32_t i = 0; i < PLACES; i++) {
        free(requests[i].job.tokens);
        free(requests[i].slots);
    }
    free(requests);
    loop_destroy(worker.loop);
    cr_assert_eq(prefix_tree_available(worker.prefixes), POOL_PAGES);
    prefix_tree_destroy(worker.prefixes);
    model_close(worker.model); /* every page is free */
    text_close(worker.text);
}

static void run_random(enum kv_dtype dtype, bool cache, uint64_t seed)
{
    static struct prompt prompts[REQUESTS];
    struct random random;
    random_init(&random, seed);
    options = (struct worker_options){
        .chunk_tokens = CHUNK, .max_requests = PLACES, .no_prefix_cache = !cache};
    open_model(dtype);
    for (uint32_t i = 0; i < FAMILIES * PROMPT_MAX; i++)
        families[i / PROMPT_MAX][i % PROMPT_MAX] =
            (int32_t)random_below(&random, worker.limits.vocab_count);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        prompts[i].count = make_prompt(&random, prompts[i].tokens);
        prompts[i].alone = compute_alone(prompts[i].tokens, prompts[i].count);
    }
    open_engine();
    engine_port_start(port, prefill_engine_run, &engine);
    for (uint32_t next = 0, turns = 0; next < REQUESTS || open_count > 0; turns++) {
        const uint32_t at = (uint32_t)random_below(&random, PLACES);
        if (!places[at].used && next < REQUESTS)
            admit(at, &prompts[next++]);
        else if (random_below(&random, 60) == 0)
            drop(at);
        if (next == REQUESTS || open_count == PLACES || random_below(&random, 2) == 0)
            loop_run_once(worker.loop, 1);
        cr_assert_lt(turns, 100000, "%u are open and nothing goes on", open_count);
    }
    cr_assert_eq(finished + dropped, REQUESTS);
    cr_assert(finished > REQUESTS / 2 && dropped > 0);
    struct prefix_tree_counts counts;
    prefix_tree_count(worker.prefixes, &counts);
    if (cache)
        cr_assert(counts.hits > 10 && counts.evicted > 10 && rows_computed < rows_asked);
    else
        cr_assert_eq(counts.inserted + counts.hits + counts.misses, 0);
    engine_port_join(port);
    close_all();
}

Test(prefill_engine, random_prompts_have_the_bits_of_each_alone)
{
    run_random(KV_BF16, true, 1);
}

Test(prefill_engine, random_prompts_with_int8_pages)
{
    run_random(KV_I8, true, 2);
}

Test(prefill_engine, random_prompts_without_a_cache)
{
    run_random(KV_BF16, false, 3);
}

/* On the engine's thread: two prompts as long as each other, the second once the engine is fast. */
static void plan_two(void *arg)
{
    uint32_t *firsts = arg; /* [2] places of the most urgent */
    const double paces[] = {100, 100000};
    for (uint32_t i = 0; i < 2; i++) {
        rate_init(&engine.rate, paces[i]);
        prefill_queue_push(&engine, i);
        prefill_queue_plan(&engine);
        firsts[i] = engine.part_count > 0 ? engine.queue[engine.parts[0].candidate] : PLACES;
    }
    for (uint32_t i = 0; i < 2; i++) {
        prefill_queue_drop(&engine, i);
        if (requests[i].engine.has_pages)
            page_pool_free(worker.pages, requests[i].slots, requests[i].page_count);
    }
}

/* The first was due by the pace of a slow engine when it started. */
Test(prefill_engine, one_that_has_started_stays_before_one_that_came_later)
{
    static struct prompt prompts[2];
    uint32_t firsts[2];
    options = (struct worker_options){.chunk_tokens = CHUNK, .max_requests = PLACES};
    open_model(KV_BF16);
    open_engine();
    for (uint32_t i = 0; i < 2; i++) {
        prompts[i].count = 10 * PAGE;
        for (uint32_t t = 0; t < prompts[i].count; t++)
            prompts[i].tokens[t] = (int32_t)(t + i + 1) % (int32_t)worker.limits.vocab_count;
        fill_request(i, &prompts[i]);
    }
    engine_port_start(port, plan_two, firsts);
    engine_port_join(port);
    cr_expect_eq(firsts[0], 0);
    cr_expect_eq(firsts[1], 0);
    cr_expect(requests[0].engine.has_pages);
    close_all();
}
