/* The engine without its node: commands in, events out, in this process. What a step allocates is
 * counted by wrapping the allocator at link time. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_node/decode_internal.h"
#include "model/text/grammar/grammar.h"
#include "tests/worker/oracle.h"

enum { REQUESTS = 300, PAGE = 16, CONTEXT = 256, LONG_CONTEXT = 704, LONGEST = 150 };

/* ---- the allocator, watched ---- */

static pthread_t control;
static atomic_uint allocations; /* by other threads than control */

static void note(void)
{
    if (!pthread_equal(pthread_self(), control))
        atomic_fetch_add(&allocations, 1);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    note();
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    note();
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    note();
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    note();
    return __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    note();
    return __real_posix_memalign(out, alignment, bytes);
}

/* ---- an engine ---- */

static char model[TEST_PATH_BYTES];
static struct worker worker;
static struct worker_options options;
static struct decode_engine engine;
static struct decode_request *requests;
static int32_t *token_memory;
static uint32_t *slot_memory;

/* What came of the requests. */
static struct {
    int32_t tokens[REQUESTS][LONGEST];
    uint32_t counts[REQUESTS]; /* the id that ended it included */
    uint32_t finished, failed, running_most, preempted;
    float scores[LONG_CONTEXT]; /* of the one prompt that is scored */
    uint32_t score_count;
} seen;

static void on_events(void *arg)
{
    struct decode_event event;
    while (engine_port_pop_event(engine.port, &event)) {
        if (event.kind == EVENT_STEP) {
            seen.preempted += event.step.preempted;
            if (event.step.running > seen.running_most)
                seen.running_most = event.step.running;
        } else if (event.kind == EVENT_SCORE) {
            cr_assert_eq(event.token.position, ++seen.score_count, "each once, in their order");
            seen.scores[event.token.position] = event.token.sampled.logprob;
        } else if (event.kind == EVENT_TOKEN) {
            seen.tokens[event.place][seen.counts[event.place]++] = event.token.sampled.id;
            seen.finished += event.token.finish != FINISH_NONE;
        } else {
            seen.failed++;
        }
    }
    engine_port_poke(engine.port);
}

static void open_engine(uint32_t batch_max, uint32_t pages, uint32_t context, uint32_t chunk)
{
    struct error error;
    control = pthread_self();
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    options = (struct worker_options){
        .model = model,
        .name = "engine",
        .threads = 2,
        .kv_dtype = KV_BF16,
        .kv_memory = {.bytes = pages * 3 * kv_page_bytes(KV_BF16, PAGE, 2, 32)},
        .page_tokens = PAGE,
        .context_tokens = context,
        .chunk_tokens = chunk,
        .max_requests = REQUESTS,
    };
    const struct worker_batch batch = {.rows = batch_max + options.chunk_tokens,
                                       .sequences = batch_max,
                                       .logit_rows = batch_max + PASS_SCORE_ROWS,
                                       .measured_rows = 1};
    cr_assert_eq(worker_open(&worker, WORKER_DECODE, &options, "127.0.0.1:0", &batch, &error),
                 STATUS_OK, "%s", error.text);
    page_pool_poison(worker.pages, true);
    requests = calloc(REQUESTS, sizeof *requests);
    token_memory = calloc(REQUESTS * LONG_CONTEXT, sizeof *token_memory);
    slot_memory = calloc(REQUESTS * LONG_CONTEXT / PAGE, sizeof *slot_memory);
    for (size_t i = 0; i < REQUESTS; i++) {
        requests[i].job.tokens = token_memory + i * LONG_CONTEXT;
        requests[i].slots = slot_memory + i * LONG_CONTEXT / PAGE;
    }
    memset(&seen, 0, sizeof seen);
    decode_engine_create(&engine, &worker, requests, batch_max, on_events, NULL);
}

static void close_engine(void)
{
    decode_engine_destroy(&engine);
    cr_assert_eq(prefix_tree_available(worker.prefixes), worker.limits.pages_total);
    worker_close(&worker);
    free(requests);
    free(token_memory);
    free(slot_memory);
}

/* A prompt that the engine reads, greedy; without pages of its own, like one that was preempted. */
static void fill(uint32_t place, const int32_t *prompt, uint32_t count, uint32_t max_tokens)
{
    const struct msg_job message = {.prompt_count = count,
                                    .tokens = {prompt, count},
                                    .max_tokens = max_tokens,
                                    .ignore_eos = 1,
                                    .sampling = {.top_p = 1}};
    struct decode_request *request = &requests[place];
    job_copy(&message, &worker.limits, request->job.tokens, &request->job);
    request->pages_end = job_pages_at_end(&request->job, PAGE);
    request->engine.token_count = count;
}

static void run_until_finished(uint32_t count)
{
    engine_port_start(engine.port, decode_engine_run, &engine);
    const uint64_t deadline_ns = loop_now_ns(worker.loop) + (uint64_t)WAIT_MS * NS_PER_MS;
    while (seen.finished < count) {
        cr_assert_eq(seen.failed, 0);
        cr_assert_lt(loop_now_ns(worker.loop), deadline_ns);
        loop_run_once(worker.loop, 50);
    }
    engine_port_join(engine.port);
}

static void compare(struct oracle *oracle, uint32_t place)
{
    static int32_t alone[LONGEST];
    const struct job *job = &requests[place].job;
    const struct ask ask = {.prompt = job->tokens,
                            .prompt_count = job->prompt_count,
                            .temperature = job->sampling.temperature,
                            .seed = job->sampling.seed};
    oracle_generate(oracle, &ask, seen.counts[place], alone);
    for (uint32_t i = 0; i < seen.counts[place]; i++)
        cr_assert_eq(seen.tokens[place][i], alone[i], "request %u, token %u", place, i);
}

static void try_batch(uint32_t batch_max, uint32_t pages, uint32_t count, uint32_t longest)
{
    struct oracle oracle;
    static int32_t prompt[100];
    open_engine(batch_max, pages, CONTEXT, 64);
    for (uint32_t i = 0; i < count; i++) {
        oracle_prompt(i / 3, worker.limits.vocab_count, 100, prompt);
        fill(i, prompt, 1 + i % 50, longest - i % 20);
        requests[i].job.sampling.temperature = i % 2 == 0 ? 0 : 1.1f;
        requests[i].job.sampling.seed = i;
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = i};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(count);
    cr_assert_eq(atomic_load(&allocations), 0, "%u allocations in steps",
                 atomic_load(&allocations));
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(seen.counts[i], longest - i % 20);
        compare(&oracle, i);
    }
    oracle_close(&oracle);
    close_engine();
}

Test(decode_engine, a_batch_of_256_is_one_step_and_nothing_is_allocated_in_it)
{
    try_batch(256, 2000, REQUESTS, 40);
    cr_assert_eq(seen.running_most, 256);
    cr_assert_eq(seen.preempted, 0);
}

Test(decode_engine, nor_where_pages_run_out)
{
    try_batch(64, 60, 60, LONGEST);
    cr_assert_gt(seen.preempted, 0);
}

/* Answers with grammars among others: nothing is allocated either, and one that was preempted goes
 * on as it was. */
Test(decode_engine, nor_for_answers_with_grammars)
{
    enum { COUNT = 48, SOURCES = 3 };
    static const char *const sources[SOURCES] = {"([a-z]{3}[0-9]{2} ){12,40}", "(yes|no|maybe){20}",
                                                 "[^\"\\\\]{60,140}"};
    static int32_t prompt[100];
    struct oracle oracle;
    open_engine(24, 60, CONTEXT, 64);
    struct grammar_tokens *tokens = grammar_tokens_create(worker.text);
    struct grammar_program *programs[SOURCES];
    for (uint32_t i = 0; i < SOURCES; i++) {
        struct grammar *grammar;
        struct error error;
        cr_assert_eq(
            grammar_compile(GRAMMAR_REGEX, sources[i], strlen(sources[i]), &grammar, &error),
            STATUS_OK, "%s", error.text);
        cr_assert_eq(grammar_program_create(grammar, tokens, 1 << 20, &programs[i], &error),
                     STATUS_OK, "%s", error.text);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        oracle_prompt(i / 3, worker.limits.vocab_count, 100, prompt);
        fill(i, prompt, 1 + i % 50, LONGEST);
        requests[i].job.ignore_eos = false;
        requests[i].job.sampling.temperature = i % 2 == 0 ? 0 : 1.1f;
        requests[i].job.sampling.seed = i;
        requests[i].job.grammar = i % 4 < SOURCES ? programs[i % 4] : NULL;
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = i};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(COUNT);
    cr_assert_eq(atomic_load(&allocations), 0, "%u allocations in steps",
                 atomic_load(&allocations));
    cr_assert_gt(seen.preempted, 0);
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        static int32_t alone[LONGEST];
        const struct job *job = &requests[i].job;
        const struct ask ask = {.prompt = job->tokens,
                                .prompt_count = job->prompt_count,
                                .max_tokens = LONGEST,
                                .temperature = job->sampling.temperature,
                                .seed = job->sampling.seed,
                                .grammar_kind = job->grammar == NULL ? 0 : GRAMMAR_REGEX,
                                .grammar = i % 4 < SOURCES ? sources[i % 4] : NULL};
        oracle_generate(&oracle, &ask, seen.counts[i], alone);
        for (uint32_t k = 0; k < seen.counts[i]; k++)
            cr_assert_eq(seen.tokens[i][k], alone[k], "request %u, token %u", i, k);
    }
    oracle_close(&oracle);
    close_engine();
    for (uint32_t i = 0; i < SOURCES; i++)
        grammar_program_destroy(programs[i]);
    grammar_tokens_destroy(tokens);
}

/* A target that nothing keeps: one runs at a time, and all come to their end. */
Test(decode_engine, the_target_lets_one_run)
{
    static int32_t prompt[4];
    open_engine(8, 100, CONTEXT, 64);
    engine.target_us = 1;
    for (int i = 0; i < 20; i++)
        step_time_add(&engine.step_time, 10, 1, 1000);
    oracle_prompt(1, worker.limits.vocab_count, 4, prompt);
    for (uint32_t i = 0; i < 6; i++) {
        fill(i, prompt, 2, 30);
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = i};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(6);
    cr_assert_eq(seen.running_most, 1);
    close_engine();
}

/* A prompt with two more choices behind it is preempted while it is read, by an older sequence that
 * grows: what is set aside for the choices goes and comes back with its pages. */
Test(decode_engine, choices_survive_the_preemption_of_their_prompt)
{
    enum { OLD, LEADER, SECOND, THIRD, COUNT, PROMPT = 640 };
    struct oracle oracle;
    static int32_t prompt[PROMPT];
    open_engine(8, 46, LONG_CONTEXT, PAGE);
    oracle_prompt(3, worker.limits.vocab_count, PROMPT, prompt);
    fill(OLD, prompt + 100, 16, 120);
    for (uint32_t place = LEADER; place < COUNT; place++)
        fill(place, prompt, PROMPT, 30);
    for (uint32_t place = SECOND; place < COUNT; place++) {
        struct decode_request *leader = &requests[LEADER];
        requests[place].pages_first =
            batch_admission_pages(PROMPT, PAGE, requests[place].pages_end);
        requests[place].pages_aside = requests[place].pages_first - PROMPT / PAGE;
        leader->engine.unborn[leader->engine.unborn_count++] = place;
    }
    for (uint32_t place = OLD; place <= LEADER; place++) {
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = place};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(COUNT);
    cr_assert_eq(seen.preempted, 1);
    oracle_open(&oracle, model);
    for (uint32_t place = OLD; place < COUNT; place++) {
        cr_assert_eq(seen.counts[place], place == OLD ? 120 : 30);
        compare(&oracle, place);
    }
    oracle_close(&oracle);
    close_engine();
}

/* A prompt that is scored while it is read, alone or beside a sequence that grows into its pages.
 */
static void score_prompt(uint32_t pages, uint32_t beside)
{
    enum { OLD, SCORED, PROMPT = 640 };
    static int32_t prompt[PROMPT];
    open_engine(8, pages, LONG_CONTEXT, PAGE);
    oracle_prompt(3, worker.limits.vocab_count, PROMPT, prompt);
    if (beside > 0)
        fill(OLD, prompt + 100, 16, beside);
    fill(SCORED, prompt, PROMPT, 5);
    requests[SCORED].local = true;
    requests[SCORED].job.scores = 1;
    for (uint32_t place = beside > 0 ? OLD : SCORED; place <= SCORED; place++) {
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = place};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(beside > 0 ? 2 : 1);
    cr_assert_eq(seen.score_count, PROMPT - 1);
    cr_assert_eq(atomic_load(&allocations), 0);
    close_engine();
}

Test(decode_engine, scores_survive_the_preemption_of_their_prompt)
{
    static float alone[LONG_CONTEXT];
    score_prompt(60, 0);
    cr_assert_eq(seen.preempted, 0);
    memcpy(alone, seen.scores, sizeof alone);
    score_prompt(44, 120);
    cr_assert_gt(seen.preempted, 0);
    cr_assert_arr_eq(seen.scores, alone, sizeof alone);
}

/* A prompt whose last chunk is one row, while another with the same first page is read behind it
 * and comes into the index first: the choices begin with pages as the index has them, or one of its
 * pages could never be had again, and the long answer wants them all. */
Test(decode_engine, choices_leave_no_page_of_the_index_stuck)
{
    enum { LEADER, SECOND, OTHER, COUNT, PROMPT = 3 * PAGE + 1, PAGES = 12 };
    static const uint32_t answers[COUNT] = {10, PAGES * PAGE - PROMPT, 3};
    struct oracle oracle;
    static int32_t prompts[2][PROMPT];
    open_engine(8, PAGES, PAGES * PAGE, PAGE);
    oracle_prompt(3, worker.limits.vocab_count, PROMPT, prompts[0]);
    oracle_prompt(4, worker.limits.vocab_count, PROMPT, prompts[1]);
    memcpy(prompts[1], prompts[0], PAGE * sizeof **prompts);
    fill(LEADER, prompts[0], PROMPT, answers[LEADER]);
    fill(SECOND, prompts[0], PROMPT, answers[SECOND]);
    fill(OTHER, prompts[1], PAGE + 2, answers[OTHER]);
    struct decode_request *leader = &requests[LEADER], *second = &requests[SECOND];
    second->pages_first = batch_admission_pages(PROMPT, PAGE, second->pages_end);
    second->pages_aside = second->pages_first - PROMPT / PAGE;
    leader->engine.unborn[leader->engine.unborn_count++] = SECOND;
    for (uint32_t place = LEADER; place < COUNT; place += 2) {
        const struct decode_command command = {.kind = COMMAND_ADMIT, .place = place};
        engine_port_command(engine.port, &command);
    }
    run_until_finished(COUNT);
    oracle_open(&oracle, model);
    for (uint32_t place = LEADER; place < COUNT; place++) {
        cr_assert_eq(seen.counts[place], answers[place]);
        compare(&oracle, place);
    }
    oracle_close(&oracle);
    close_engine();
}

/* ---- several rows of a sequence, and the tail taken back ---- */

/* Logits of the last `wanted` of the sequence's known tokens. */
static void forward(uint32_t place, uint32_t wanted, float *out)
{
    struct decode_request *request = &requests[place];
    const uint32_t computed = request->engine.computed;
    const uint32_t rows = request->engine.token_count - computed;
    const struct forward_sequence sequence = {.tokens = request->job.tokens + computed,
                                              .count = rows,
                                              .position = computed,
                                              .slots = request->slots,
                                              .logit_rows = wanted};
    struct pass_rows pass;
    struct error error;
    cr_assert_eq(worker_forward(&worker, &sequence, 1, false, NULL, &pass, &error), STATUS_OK, "%s",
                 error.text);
    memcpy(out, pass.logits, wanted * pass.vocab_count * sizeof *out);
    request->engine.computed += rows;
}

/* A draft of five tokens is computed in one step with logits for each; three are taken back with
 * their pages, others follow. */
Test(decode_engine, a_tail_that_is_taken_back_leaves_no_trace)
{
    static int32_t prompt[100];
    open_engine(8, 64, CONTEXT, 64);
    const size_t width = (size_t)model_info(worker.model)->vocab_count;
    float *drafted = calloc(5 * width, sizeof *drafted), *single = calloc(width, sizeof *single);
    float *after = calloc(width, sizeof *after);
    oracle_prompt(5, worker.limits.vocab_count, 100, prompt);
    fill(0, prompt, 30, 100);
    fill(1, prompt, 30, 100);
    decode_batch_add(&engine, 0);
    decode_batch_add(&engine, 1);
    cr_assert_gt(decode_batch_admit(&engine), 0);
    forward(0, 1, after);
    forward(1, 1, after);
    const uint32_t free_before = prefix_tree_available(worker.prefixes);

    /* Positions 30 to 34: into the third page. */
    cr_assert_eq(requests[0].engine.page_count, 3);
    for (uint32_t i = 0; i < 5; i++)
        requests[0].job.tokens[requests[0].engine.token_count++] = prompt[40 + i];
    forward(0, 5, drafted);
    for (uint32_t i = 0; i < 5; i++) {
        requests[1].job.tokens[requests[1].engine.token_count++] = prompt[40 + i];
        forward(1, 1, single);
        cr_assert_eq(memcmp(single, drafted + i * width, width * sizeof *single), 0,
                     "row %u of the draft", i);
    }

    /* As after a pick: whoever is in the batch has a token to come. */
    requests[1].engine.token_count++;
    decode_batch_truncate(&engine, 0, 32);
    requests[0].engine.token_count = 32;
    cr_assert_eq(requests[0].engine.page_count, 2);
    cr_assert_eq(prefix_tree_available(worker.prefixes), free_before + 1);
    for (uint32_t i = 0; i < 4; i++)
        requests[0].job.tokens[requests[0].engine.token_count++] = prompt[60 + i];
    cr_assert_gt(decode_batch_admit(&engine), 0);
    cr_assert_eq(requests[0].engine.page_count, 3, "the page is taken again");
    forward(0, 1, after);
    requests[0].engine.token_count++;

    /* The same sequence, never drafted. */
    memcpy(prompt + 30, requests[0].job.tokens + 30, 6 * sizeof *prompt);
    fill(2, prompt, 36, 100);
    decode_batch_add(&engine, 2);
    cr_assert_gt(decode_batch_admit(&engine), 0);
    forward(2, 1, single);
    cr_assert_eq(memcmp(single, after, width * sizeof *single), 0);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert(decode_batch_remove(&engine, i));
    free(drafted);
    free(single);
    free(after);
    close_engine();
}
