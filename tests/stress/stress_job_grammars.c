/* Requests come, wait for their grammars, hold them, let go of them and are cancelled, while a
 * thread compiles: each comes in again once, unless it was cancelled, and what it holds is what it
 * asked for. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "tests/router/tiny_text.h"
#include "tests/stress/rounds.h"
#include "worker/job_grammars.h"

enum { OPEN_MAX = 32, SOURCES = 150, PATIENCE_MS = 3600000 };

struct state {
    struct job_grammars *grammars;
    struct random random;
    uint64_t asked, again, cancelled, failed;
    struct {
        struct grammar_program *program;
        uint32_t source;
    } held[OPEN_MAX];
    uint32_t held_count;
};

static const struct router_ref router = {.generation = 1};

static bool is_wrong(uint32_t source)
{
    return source % 7 == 0;
}

static void ask(struct state *state, const struct msg_prefill *message, bool again)
{
    struct grammar_program *program = NULL;
    struct error error;
    const uint32_t source = message->job.choice;
    const enum status status = job_grammars_hold(state->grammars, router, MESSAGE_ID_PREFILL,
                                                 message, &message->job, 1, &program, &error);
    CHECK(!again || (status != STATUS_PENDING && status != STATUS_BUSY));
    if (status == STATUS_PENDING)
        return;
    CHECK(is_wrong(source) ? status == STATUS_INVALID
                           : status == STATUS_OK && state->held_count < OPEN_MAX);
    state->again += again;
    state->failed += status != STATUS_OK;
    if (status != STATUS_OK)
        return;
    for (uint32_t i = 0; i < state->held_count; i++)
        CHECK((state->held[i].program == program) == (state->held[i].source == source));
    state->held[state->held_count].program = program;
    state->held[state->held_count++].source = source;
}

static void on_again(void *node, struct router_ref from, enum message_id id, const void *message)
{
    CHECK(from.generation == router.generation && id == MESSAGE_ID_PREFILL);
    ask(node, message, true);
}

static void come(struct state *state)
{
    static const int32_t token = 1;
    char source[64];
    const uint32_t number = (uint32_t)random_below(&state->random, SOURCES);
    snprintf(source, sizeof source, is_wrong(number) ? "[\"%u\"" : "[\"%u\",\"%ux\"]", number,
             number);
    const struct msg_prefill message = {
        .job = {.request = state->asked++,
                .choice = number,
                .prompt_count = 1,
                .tokens = {&token, 1},
                .max_tokens = 1,
                .grammar_kind = GRAMMAR_CHOICE,
                .grammar = {(const uint8_t *)source, (uint32_t)strlen(source)}}};
    ask(state, &message, false);
}

static void let_go(struct state *state, uint32_t index)
{
    job_grammars_release(state->grammars, state->held[index].program);
    state->held[index] = state->held[--state->held_count];
}

/* The last one that came, if it waits. */
static void cancel(struct state *state)
{
    const uint32_t before = job_grammars_waiting(state->grammars);
    for (uint32_t source = 0; source < SOURCES; source++) {
        const struct msg_cancel message = {.request = state->asked - 1, .choice = source};
        job_grammars_forget(state->grammars, router, &message);
    }
    state->cancelled += before - job_grammars_waiting(state->grammars);
}

int main(void)
{
    struct state state = {0};
    struct text *text = tiny_text_open();
    struct loop *loop = loop_create();
    const uint64_t steps = stress_rounds(60000);
    random_init(&state.random, 3);
    state.grammars = job_grammars_create(loop, text, OPEN_MAX, on_again, &state);
    for (uint64_t i = 0; i < steps; i++) {
        const uint32_t open = state.held_count + job_grammars_waiting(state.grammars);
        const uint64_t what = random_below(&state.random, 8);
        if (what < 4 && open < OPEN_MAX)
            come(&state);
        else if (what < 6 && state.held_count > 0)
            let_go(&state, (uint32_t)random_below(&state.random, state.held_count));
        else if (what == 6 && state.asked > 0)
            cancel(&state);
        else
            loop_run_once(loop, 0);
    }
    while (job_grammars_waiting(state.grammars) > 0)
        loop_run_once(loop, PATIENCE_MS);
    while (state.held_count > 0)
        let_go(&state, 0);
    CHECK(state.again > 0 && state.cancelled > 0 && state.failed > 0);
    printf("%lu asked, %lu came again, %lu were cancelled, %lu compiled\n",
           (unsigned long)state.asked, (unsigned long)state.again, (unsigned long)state.cancelled,
           (unsigned long)job_grammars_totals(state.grammars).compiled);
    job_grammars_destroy(state.grammars);
    loop_destroy(loop);
    text_close(text);
    return 0;
}
