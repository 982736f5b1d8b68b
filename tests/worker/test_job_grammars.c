/* Grammars of jobs: compiled once, held by requests, kept within bounds; messages wait for them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/worker/test_daemon.h"
#include "worker/answer_masks.h"
#include "worker/job_grammars.h"
#include "worker/request_table.h"

enum { REQUESTS = 4, TICK_MS = 20, WAIT_TICKS = 5000 };

static struct loop *loop;
static struct text *text;
static struct job_grammars *grammars;

/* What came in again, and what was held for it then. */
static struct {
    uint64_t requests[128];
    uint32_t count, wanted, ticks;
    struct grammar_program *program;
    enum status status;
    struct error error;
    uint64_t first, ended; /* when `first` comes, `ended` is forgotten; 0: nobody */
} again;

static const struct router_ref router = {.index = 1, .generation = 7};

static enum status hold(const struct msg_prefill *message, struct grammar_program **out,
                        struct error *error)
{
    return job_grammars_hold(grammars, router, MESSAGE_ID_PREFILL, message, &message->job, 1, out,
                             error);
}

static void on_again(void *node, struct router_ref from, enum message_id id, const void *message)
{
    const struct msg_prefill *prefill = message;
    cr_assert_eq(node, &again);
    cr_assert(router_ref_equal(from, router));
    cr_assert_eq(id, MESSAGE_ID_PREFILL);
    cr_assert(prefill->job.tokens.count == 3 && prefill->job.tokens.items[2] == 5);
    cr_assert_eq(prefill->ticket, 99);
    cr_assert_lt(again.count, ARRAY_COUNT(again.requests));
    again.requests[again.count++] = prefill->job.request;
    again.status = hold(prefill, &again.program, &again.error);
    cr_assert_neq(again.status, STATUS_PENDING, "what was compiled is there");
    if (again.first != 0 && prefill->job.request == again.first) {
        const struct msg_cancel cancel = {.request = again.ended, .attempt = 2, .choice = 3};
        job_grammars_forget(grammars, router, &cancel);
    }
    if (again.count >= again.wanted)
        loop_stop(loop);
}

static void on_tick(void *arg)
{
    if (++again.ticks == WAIT_TICKS)
        cr_assert_fail("%u of %u messages have come again", again.count, again.wanted);
}

static void set_up(void)
{
    struct error error;
    memset(&again, 0, sizeof again);
    loop = loop_create();
    cr_assert_eq(text_open(test_model("tiny.gguf", NULL), &text, &error), STATUS_OK, "%s",
                 error.text);
    grammars = job_grammars_create(loop, text, REQUESTS, on_again, &again);
}

static void tear_down(void)
{
    job_grammars_destroy(grammars);
    text_close(text);
    loop_destroy(loop);
}

TestSuite(job_grammars, .init = set_up, .fini = tear_down);

static struct msg_prefill asking(uint64_t request, enum grammar_kind kind, const char *source)
{
    static const int32_t tokens[] = {3, 4, 5};
    return (struct msg_prefill){
        .job = {.request = request,
                .attempt = 2,
                .choice = 3,
                .prompt_count = 3,
                .tokens = {tokens, 3},
                .max_tokens = 10,
                .sampling = {.top_p = 1},
                .grammar_kind = (uint32_t)kind,
                .grammar = {(const uint8_t *)source, (uint32_t)strlen(source)}},
        .ticket = 99,
    };
}

static void wait_for(uint32_t count)
{
    struct loop_timer *timer = loop_timer_create(loop, on_tick, NULL);
    again.wanted = count;
    loop_timer_start(timer, TICK_MS, TICK_MS);
    if (again.count < count)
        loop_run(loop);
    loop_timer_destroy(timer);
}

/* Compiled if need be; held once. */
static struct grammar_program *held(const char *choice)
{
    static uint64_t request = 1000;
    const struct msg_prefill message = asking(request++, GRAMMAR_CHOICE, choice);
    struct grammar_program *program = NULL;
    struct error error = {.text = ""};
    const enum status status = hold(&message, &program, &error);
    if (status == STATUS_OK)
        return program;
    cr_assert_eq(status, STATUS_PENDING, "%s", error.text);
    wait_for(again.count + 1);
    cr_assert_eq(again.status, STATUS_OK, "%s", again.error.text);
    return again.program;
}

Test(job_grammars, a_free_answer_needs_none)
{
    const struct msg_prefill message = asking(1, (enum grammar_kind)0, "");
    struct grammar_program *program = (struct grammar_program *)(void *)&again;
    struct error error;
    cr_assert_eq(hold(&message, &program, &error), STATUS_OK);
    cr_assert_null(program);
    job_grammars_release(grammars, program);
}

Test(job_grammars, one_source_is_compiled_once)
{
    const struct msg_prefill first = asking(1, GRAMMAR_CHOICE, "[\"yes\",\"no\"]");
    const struct msg_prefill second = asking(2, GRAMMAR_CHOICE, "[\"yes\",\"no\"]");
    struct grammar_program *program = NULL;
    struct error error;
    cr_assert_eq(hold(&first, &program, &error), STATUS_PENDING);
    cr_assert_eq(hold(&second, &program, &error), STATUS_PENDING);
    cr_assert_eq(job_grammars_waiting(grammars), 2);
    wait_for(2);
    cr_assert(again.requests[0] == 1 && again.requests[1] == 2, "in order of arrival");
    cr_assert_eq(job_grammars_waiting(grammars), 0);
    cr_assert_eq(again.status, STATUS_OK, "%s", again.error.text);
    cr_assert_eq(hold(&first, &program, &error), STATUS_OK);
    cr_assert(program != NULL && program == again.program);
    const struct job_grammars_totals totals = job_grammars_totals(grammars);
    cr_assert(totals.compiled == 1 && totals.found == 3);
    for (int i = 0; i < 3; i++)
        job_grammars_release(grammars, program);
    /* The same words as another kind are another grammar. */
    const struct msg_prefill other = asking(3, GRAMMAR_REGEX, "[\"yes\",\"no\"]");
    cr_assert_eq(hold(&other, &program, &error), STATUS_PENDING);
    wait_for(3);
    cr_assert_neq(again.program, program);
    job_grammars_release(grammars, again.program);
}

Test(job_grammars, a_wrong_source_is_told_to_all_who_wait)
{
    const struct msg_prefill message = asking(1, GRAMMAR_CHOICE, "[\"yes\"");
    struct grammar_program *program;
    struct error error = {.text = ""};
    cr_assert_eq(hold(&message, &program, &error), STATUS_PENDING);
    wait_for(1);
    cr_assert_eq(again.status, STATUS_INVALID, "%s", again.error.text);
    cr_assert_neq(again.error.text[0], '\0');
    cr_assert_eq(hold(&message, &program, &error), STATUS_INVALID);
    cr_assert_str_eq(error.text, again.error.text);
}

Test(job_grammars, who_left_is_not_waited_for)
{
    const struct msg_prefill messages[] = {asking(1, GRAMMAR_CHOICE, "[\"a\"]"),
                                           asking(2, GRAMMAR_CHOICE, "[\"a\"]"),
                                           asking(3, GRAMMAR_CHOICE, "[\"a\"]")};
    struct grammar_program *program;
    struct error error;
    for (size_t i = 0; i < ARRAY_COUNT(messages); i++)
        cr_assert_eq(hold(&messages[i], &program, &error), STATUS_PENDING);
    struct msg_cancel cancel = {.request = 2, .attempt = 1, .choice = 3};
    job_grammars_forget(grammars, router, &cancel);
    cr_assert_eq(job_grammars_waiting(grammars), 3, "another attempt");
    cancel.attempt = 2;
    job_grammars_forget(grammars, (struct router_ref){.index = 1, .generation = 8}, &cancel);
    cr_assert_eq(job_grammars_waiting(grammars), 3, "another router");
    job_grammars_forget(grammars, router, &cancel);
    cr_assert_eq(job_grammars_waiting(grammars), 2);
    wait_for(2);
    cr_assert(again.requests[0] == 1 && again.requests[1] == 3);
    job_grammars_release(grammars, again.program);
    job_grammars_release(grammars, again.program);
    const struct msg_prefill last = asking(4, GRAMMAR_CHOICE, "[\"b\"]");
    cr_assert_eq(hold(&last, &program, &error), STATUS_PENDING);
    job_grammars_forget(grammars, router, NULL);
    cr_assert_eq(job_grammars_waiting(grammars), 0);
}

/* One that comes in again may be the end of others, also of such that stand before it. */
Test(job_grammars, who_comes_again_may_end_others)
{
    static const char *const sources[] = {"[\"a\"]", "[\"b\"]", "[\"a\"]", "[\"a\"]"};
    struct grammar_program *program;
    struct error error;
    for (uint64_t i = 0; i < ARRAY_COUNT(sources); i++) {
        const struct msg_prefill message = asking(i + 1, GRAMMAR_CHOICE, sources[i]);
        cr_assert_eq(hold(&message, &program, &error), STATUS_PENDING);
    }
    again.first = 3;
    again.ended = 2;
    wait_for(3);
    cr_assert_eq(job_grammars_waiting(grammars), 0);
    cr_assert(again.requests[0] == 1 && again.requests[1] == 3 && again.requests[2] == 4);
    for (int i = 0; i < 3; i++)
        job_grammars_release(grammars, again.program);
}

Test(job_grammars, no_more_wait_than_there_may)
{
    struct grammar_program *program;
    struct error error;
    for (uint64_t i = 0; i < REQUESTS; i++) {
        const struct msg_prefill message = asking(i, GRAMMAR_CHOICE, "[\"a\"]");
        cr_assert_eq(hold(&message, &program, &error), STATUS_PENDING);
    }
    const struct msg_prefill message = asking(9, GRAMMAR_CHOICE, "[\"a\"]");
    cr_assert_eq(hold(&message, &program, &error), STATUS_BUSY);
    cr_assert_not_null(strstr(error.text, "4 requests"), "%s", error.text);
    wait_for(REQUESTS);
}

/* What is in use stays; of the others those go that were not asked for the longest. */
Test(job_grammars, the_oldest_that_nobody_needs_goes)
{
    char source[32];
    struct grammar_program *kept = held("[\"kept\"]");
    const uint32_t room = REQUESTS + JOB_GRAMMARS_IDLE_MAX;
    job_grammars_release(grammars, held("[\"early\"]"));
    for (uint32_t i = 0; i + 2 < room; i++) {
        snprintf(source, sizeof source, "[\"%u\"]", i);
        job_grammars_release(grammars, held(source));
        job_grammars_release(grammars, held("[\"early\"]"));
    }
    cr_assert_eq(job_grammars_totals(grammars).compiled, room);
    job_grammars_release(grammars, held("[\"one more\"]"));
    cr_assert_eq(job_grammars_totals(grammars).compiled, room + 1);
    cr_assert_eq(held("[\"kept\"]"), kept);
    job_grammars_release(grammars, held("[\"early\"]"));
    cr_assert_eq(job_grammars_totals(grammars).compiled, room + 1, "they are still here");
    job_grammars_release(grammars, held("[\"0\"]"));
    cr_assert_eq(job_grammars_totals(grammars).compiled, room + 2, "it had gone");
    job_grammars_release(grammars, kept);
    job_grammars_release(grammars, kept);
}

/* ---- masks ---- */

static bool allows(const struct answer_mask *mask, int32_t id)
{
    return mask->bits[id / 32] >> (id % 32) & 1;
}

static uint32_t allowed(const struct answer_mask *mask)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < (text_info(text)->vocab_count + 31) / 32; i++)
        count += (uint32_t)__builtin_popcount(mask->bits[i]);
    return count;
}

static int32_t tokens[64];
static struct job job;

/* A job with this answer so far, of `end` tokens with its prompt of two. */
static void fill_job(const char *choice, const char *answer, uint32_t end)
{
    struct token_list ids = {0};
    struct error error;
    const struct text_info *info = text_info(text);
    cr_assert_eq(text_encode(text, answer, strlen(answer), false, 32, &ids, &error), STATUS_OK);
    if (ids.count > 0)
        memcpy(tokens + 2, ids.ids, ids.count * sizeof *tokens);
    const uint32_t position = 2 + (uint32_t)ids.count;
    token_list_free(&ids);
    job = (struct job){.prompt_count = 2,
                       .given_count = position,
                       .end = end,
                       .eos_ids = info->eos_ids,
                       .eos_count = info->eos_count,
                       .tokens = tokens,
                       .grammar = held(choice)};
}

Test(job_grammars, masks_follow_the_tokens)
{
    struct answer_masks *masks = answer_masks_create(2, text);
    const int32_t eos = text_info(text)->eos_ids[0];
    fill_job("[\"yes\",\"no\"]", "", 20);
    struct answer_mask mask = answer_masks_fill(masks, 0, 11, &job, job.given_count);
    cr_assert_eq(mask.status, STATUS_OK);
    cr_assert(!mask.must_end && !allows(&mask, eos) && allowed(&mask) >= 2);
    /* Further tokens of the same answer, and another answer beside it. */
    fill_job("[\"yes\",\"no\"]", "no", 20);
    mask = answer_masks_fill(masks, 0, 11, &job, job.given_count);
    cr_assert(mask.status == STATUS_OK && mask.must_end && allows(&mask, eos));
    cr_assert_eq(allowed(&mask), text_info(text)->eos_count);
    fill_job("[\"yes\",\"no\"]", "y", 20);
    const struct answer_mask other = answer_masks_fill(masks, 1, 12, &job, job.given_count);
    cr_assert(other.status == STATUS_OK && !other.must_end && !allows(&other, eos));
    cr_assert(mask.must_end && allows(&mask, eos), "a row of its own");
    /* Places are used again. */
    answer_masks_forget(masks, 11);
    fill_job("[\"yes\",\"no\"]", "yes", 20);
    mask = answer_masks_fill(masks, 0, 13, &job, job.given_count);
    cr_assert(mask.status == STATUS_OK && mask.must_end);
    answer_masks_forget(masks, 13);
    fill_job("[\"yes\",\"no\"]", "maybe", 20);
    mask = answer_masks_fill(masks, 0, 13, &job, job.given_count);
    cr_assert_eq(mask.status, STATUS_CORRUPT);
    job.grammar = NULL;
    mask = answer_masks_fill(masks, 0, 14, &job, job.given_count);
    cr_assert(mask.status == STATUS_OK && mask.bits == NULL);
    cr_assert_eq(answer_masks_totals(masks).masks, 5);
    answer_masks_destroy(masks);
}

Test(job_grammars, ends_stand_where_the_grammar_ends)
{
    struct answer_masks *masks = answer_masks_create(1, text);
    const int32_t eos = text_info(text)->eos_ids[0];
    fill_job("[\"a\",\"ab\"]", "a", 20);
    struct answer_mask mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert(allows(&mask, eos) && !mask.must_end && allowed(&mask) == job.eos_count + 1);
    job.ignore_eos = true;
    mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert(!allows(&mask, eos) && !mask.must_end && allowed(&mask) == 1);
    /* An id of the request's own is an end there as well, and nowhere else. */
    int32_t b = 0;
    while (!allows(&mask, b))
        b++;
    job.stop_count = 1;
    job.stop_ids[0] = b;
    mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert(mask.must_end && allows(&mask, eos) && allows(&mask, b));
    answer_masks_forget(masks, 1);
    fill_job("[\"ba\"]", "", 20);
    job.stop_count = 1;
    job.stop_ids[0] = b;
    mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert(mask.status == STATUS_NOT_FOUND || !allows(&mask, b));
    /* Of the last token nothing is left but the end. */
    answer_masks_forget(masks, 1);
    fill_job("[\"a\",\"ab\"]", "a", 4);
    mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert(mask.status == STATUS_OK && allows(&mask, eos));
    answer_masks_forget(masks, 1);
    fill_job("[\"ab\"]", "ab", 20);
    job.eos_count = 0;
    mask = answer_masks_fill(masks, 0, 1, &job, job.given_count);
    cr_assert_eq(mask.status, STATUS_NOT_FOUND, "no id can say that it is at its end");
    answer_masks_destroy(masks);
}
