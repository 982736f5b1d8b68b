#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/text/grammar/grammar.h"
#include "worker/job_log.h"

static const int32_t eos_ids[] = {2, 7};
static const struct job_limits limits = {.vocab_count = 100,
                                         .context_tokens = 128,
                                         .page_tokens = 16,
                                         .pages_total = 32,
                                         .eos_ids = eos_ids,
                                         .eos_count = 2};

static int32_t ids[256];

static struct msg_job good_job(uint32_t prompt, uint32_t emitted)
{
    return (struct msg_job){
        .prompt_count = prompt,
        .emitted_count = emitted,
        .tokens = {ids, prompt + emitted},
        .max_tokens = emitted + 10,
        .sampling = {.top_p = 1},
    };
}

static void expect(const struct msg_job *job, enum status status, const char *words)
{
    struct error error = {.text = ""};
    cr_assert_eq(job_check(job, &limits, &error), status, "%s", error.text);
    cr_assert_not_null(strstr(error.text, words), "\"%s\" without \"%s\"", error.text, words);
}

Test(job, a_good_one_passes)
{
    struct msg_job job = good_job(127, 0);
    expect(&job, STATUS_OK, "");
    job = good_job(100, 27);
    expect(&job, STATUS_OK, "");
    job.sampling = (struct msg_sampling){
        .temperature = 2, .top_p = 0.5f, .min_p = 1, .top_k = -1, .top_logprobs = 20};
    expect(&job, STATUS_OK, "");
}

Test(job, counts_are_checked)
{
    struct msg_job job = good_job(0, 0);
    expect(&job, STATUS_INVALID, "prompt is empty");
    job = good_job(128, 0);
    expect(&job, STATUS_LIMIT, "128 tokens and the context 128");
    job = good_job(120, 8);
    expect(&job, STATUS_LIMIT, "128 tokens");
    job = good_job(4, 0);
    job.prompt_count = 5;
    expect(&job, STATUS_INVALID, "5 prompt and 0 emitted tokens and brings 4");
    job = good_job(4, 0);
    job.prompt_count = UINT32_MAX;
    job.emitted_count = 5;
    expect(&job, STATUS_INVALID, "brings 4");
    job = good_job(4, 0);
    job.max_tokens = 0;
    expect(&job, STATUS_INVALID, "max_tokens is 0");
    job = good_job(4, 3);
    job.max_tokens = 3;
    expect(&job, STATUS_INVALID, "3 tokens are emitted already");
    job = good_job(4, 0);
    job.choices = JOB_CHOICES_MAX;
    expect(&job, STATUS_OK, "");
    job.choices++;
    expect(&job, STATUS_LIMIT, "17 choices, the most are 16");
    job = good_job(4, 1);
    job.choices = 2;
    expect(&job, STATUS_INVALID, "2 choices cannot share 1 emitted tokens");
    job = good_job(4, 0);
    job.attempt = 65536;
    expect(&job, STATUS_LIMIT, "65536");
}

Test(job, ids_are_checked)
{
    int32_t tokens[] = {1, 99, 100};
    struct msg_job job = good_job(3, 0);
    job.tokens.items = tokens;
    expect(&job, STATUS_INVALID, "token 2 is 100, the vocabulary has 100 ids");
    tokens[2] = -1;
    expect(&job, STATUS_INVALID, "token 2 is -1");
    tokens[2] = 0;
    expect(&job, STATUS_OK, "");
    const int32_t stop = 100;
    job.stop_ids = (struct wire_i32s){&stop, 1};
    expect(&job, STATUS_INVALID, "stop id 0 is 100");
}

Test(job, sampling_is_checked)
{
    static const float biases[] = {-100, 100.5f};
    static const int32_t wrong_ids[] = {99, 100};
    static const uint32_t lengths[] = {2, UINT32_MAX, 0};
    static const struct {
        struct msg_sampling sampling;
        const char *words;
    } rows[] = {
        {{.temperature = -1, .top_p = 1}, "temperature -1"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature inf"},
        {{.top_p = 0}, "top_p 0"},
        {{.top_p = 1.5f}, "top_p 1.5"},
        {{.top_p = NAN}, "top_p"},
        {{.top_p = 1, .min_p = -0.5f}, "min_p -0.5"},
        {{.top_p = 1, .min_p = 2}, "min_p 2"},
        {{.top_p = 1, .top_k = -2}, "top_k -2"},
        {{.top_p = 1, .repetition_penalty = -1}, "repetition_penalty -1"},
        {{.top_p = 1, .repetition_penalty = INFINITY}, "repetition_penalty inf"},
        {{.top_p = 1, .presence_penalty = 2.5f}, "presence_penalty 2.5"},
        {{.top_p = 1, .frequency_penalty = NAN}, "frequency_penalty"},
        {{.top_p = 1, .bias_ids = {ids, 2}}, "0 biases for 2 ids"},
        {{.top_p = 1, .biases = {biases, 1}}, "1 biases for 0 ids"},
        {{.top_p = 1, .bias_ids = {ids, 2}, .biases = {biases, 2}}, "bias 1 is 100.5"},
        {{.top_p = 1, .bias_ids = {wrong_ids, 2}, .biases = {biases, 2}}, "biased id 1 is 100"},
        {{.top_p = 1, .allowed_ids = {wrong_ids, 2}}, "allowed id 1 is 100"},
        {{.top_p = 1, .banned_ids = {wrong_ids, 2}, .banned_lengths = {lengths, 1}},
         "banned id 1 is 100"},
        {{.top_p = 1, .banned_ids = {ids, 2}}, "have 0 ids and 2 are there"},
        {{.top_p = 1, .banned_ids = {ids, 2}, .banned_lengths = {lengths, 2}},
         "have 4294967297 ids and 2 are there"},
        {{.top_p = 1, .banned_ids = {ids, 2}, .banned_lengths = {lengths, 3}},
         "banned sequence 2 is empty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct msg_job job = good_job(3, 0);
        job.sampling = rows[i].sampling;
        expect(&job, STATUS_INVALID, rows[i].words);
    }
}

/* As many as the room of a job, and one more. */
Test(job, lists_of_sampling_have_limits)
{
    static int32_t many[JOB_BANNED_IDS_MAX + 1];
    static float biases[JOB_BIASES_MAX + 1];
    static uint32_t lengths[JOB_BANNED_MAX + 1];
    for (uint32_t i = 0; i <= JOB_BANNED_MAX; i++)
        lengths[i] = 1;
    struct msg_job job = good_job(3, 0);
    for (uint32_t over = 0; over < 2; over++) {
        job.sampling = (struct msg_sampling){.top_p = 1,
                                             .bias_ids = {many, JOB_BIASES_MAX + over},
                                             .biases = {biases, JOB_BIASES_MAX + over}};
        expect(&job, over ? STATUS_LIMIT : STATUS_OK, over ? "1025 biased ids, the most" : "");
        job.sampling =
            (struct msg_sampling){.top_p = 1, .allowed_ids = {many, JOB_ALLOWED_IDS_MAX + over}};
        expect(&job, over ? STATUS_LIMIT : STATUS_OK, over ? "1025 allowed ids, the most" : "");
        job.sampling = (struct msg_sampling){.top_p = 1,
                                             .banned_ids = {many, JOB_BANNED_MAX + over},
                                             .banned_lengths = {lengths, JOB_BANNED_MAX + over}};
        expect(&job, over ? STATUS_LIMIT : STATUS_OK, over ? "257 banned sequences" : "");
    }
    lengths[0] = JOB_BANNED_IDS_MAX + 1;
    job.sampling = (struct msg_sampling){
        .top_p = 1, .banned_ids = {many, JOB_BANNED_IDS_MAX + 1}, .banned_lengths = {lengths, 1}};
    expect(&job, STATUS_LIMIT, "2049 banned ids");
}

Test(job, grammars_are_checked)
{
    static const uint8_t source[GRAMMAR_SOURCE_BYTES_MAX + 1];
    struct msg_job job = good_job(3, 0);
    job.grammar = (struct wire_bin){source, 1};
    expect(&job, STATUS_INVALID, "1 bytes of a grammar of no kind");
    job.grammar_kind = GRAMMAR_STRUCTURE;
    expect(&job, STATUS_OK, "");
    job.grammar_kind++;
    expect(&job, STATUS_INVALID, "the grammar is of kind 7, known are those up to 6");
    job.grammar_kind = GRAMMAR_REGEX;
    job.grammar.bytes = GRAMMAR_SOURCE_BYTES_MAX;
    expect(&job, STATUS_OK, "");
    job.grammar.bytes++;
    expect(&job, STATUS_LIMIT, "262145 bytes of a grammar, the most are 262144");
    job.grammar_kind = GRAMMAR_JSON_OBJECT;
    job.grammar.bytes = 0;
    expect(&job, STATUS_OK, "");
}

/* A grammar says where ids that end an answer may be: whichever of them is picked ends it. */
Test(job, what_ends_an_answer_with_a_grammar)
{
    static const int32_t stops[] = {50};
    static struct job copy;
    int32_t tokens[128];
    struct msg_job job = good_job(20, 0);
    job.ignore_eos = 1;
    job_copy(&job, &limits, tokens, &copy);
    cr_assert_null(copy.grammar);
    cr_assert(job_needs_best_only(&copy, 25));
    job.stop_ids = (struct wire_i32s){stops, 1};
    job_copy(&job, &limits, tokens, &copy);
    /* Never looked into: that it is there is all that counts here. */
    copy.grammar = (struct grammar_program *)(void *)tokens;
    cr_assert_not(job_needs_best_only(&copy, 25));
    copy.min_tokens = 8;
    cr_assert_eq(job_finish(&copy, &limits, 2, 21), FINISH_STOP);
    cr_assert_eq(job_finish(&copy, &limits, 50, 21), FINISH_STOP);
    cr_assert_eq(job_finish(&copy, &limits, 9, 21), FINISH_NONE);
    cr_assert_eq(job_finish(&copy, &limits, 9, 29), FINISH_LENGTH);
}

Test(job, the_copy_owns_its_lists)
{
    static const int32_t biased[] = {4, 5}, allowed[] = {6}, banned[] = {7, 8, 9}, stops[] = {3};
    static const float biases[] = {1, -2};
    static const uint32_t lengths[] = {1, 2};
    int32_t tokens[128];
    static struct job copy;
    struct msg_job job = good_job(20, 5);
    job.stop_ids = (struct wire_i32s){stops, 1};
    job.min_tokens = 8;
    job.sampling = (struct msg_sampling){.top_p = 1,
                                         .repetition_penalty = 1.5f,
                                         .presence_penalty = -1,
                                         .frequency_penalty = 2,
                                         .bias_ids = {biased, 2},
                                         .biases = {biases, 2},
                                         .allowed_ids = {allowed, 1},
                                         .banned_ids = {banned, 3},
                                         .banned_lengths = {lengths, 2}};
    job_copy(&job, &limits, tokens, &copy);
    const struct sampling *s = &copy.sampling;
    cr_assert_eq(s->repetition_penalty, 1.5f);
    cr_assert_eq(s->presence_penalty, -1);
    cr_assert_eq(s->frequency_penalty, 2);
    cr_assert(s->biased.count == 2 && s->biased.ids != biased && s->biased.ids[1] == 5);
    cr_assert(s->biases != biases && s->biases[1] == -2);
    cr_assert(s->allowed.count == 1 && s->allowed.ids != allowed && s->allowed.ids[0] == 6);
    cr_assert(s->banned.count == 3 && s->banned.ids != banned && s->banned.ids[2] == 9);
    cr_assert(s->banned_count == 2 && s->banned_lengths != lengths && s->banned_lengths[1] == 2);
    cr_assert(s->ends[0].count == 2 && s->ends[0].ids == eos_ids);
    cr_assert(s->ends[1].count == 1 && s->ends[1].ids != stops && s->ends[1].ids[0] == 3);
    cr_assert_eq(s->min_tokens, 8);
    cr_assert_not(job_needs_best_only(&copy, 25));
    job.sampling = (struct msg_sampling){.top_p = 1};
    job_copy(&job, &limits, tokens, &copy);
    cr_assert_not(job_needs_best_only(&copy, 27), "seven of eight are written");
    cr_assert(job_needs_best_only(&copy, 28));
    job.ignore_eos = 1;
    job.stop_ids.count = 0;
    job_copy(&job, &limits, tokens, &copy);
    cr_assert(job_needs_best_only(&copy, 25), "nothing can end it early");
}

Test(job, the_copy_is_bounded_by_the_context)
{
    int32_t tokens[128];
    static struct job copy;
    struct msg_job job = good_job(20, 5);
    job_copy(&job, &limits, tokens, &copy);
    cr_assert_eq(copy.given_count, 25);
    cr_assert_eq(copy.end, 35);
    cr_assert_eq(job_pages_at_end(&copy, 16), 3); /* 34 tokens are fed */
    job.max_tokens = UINT32_MAX;
    job_copy(&job, &limits, tokens, &copy);
    cr_assert_eq(copy.end, 128);
    cr_assert_eq(job_pages_at_end(&copy, 16), 8);
}

Test(job, pages_round_up)
{
    static const uint32_t rows[][2] = {{1, 1}, {15, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_assert_eq(job_pages(rows[i][0], 16), rows[i][1]);
    cr_assert_eq(job_pages(UINT32_MAX, 16), 1u << 28);
}

Test(job, what_ends_an_answer)
{
    static const int32_t stops[] = {50, 51};
    static const struct {
        int32_t id;
        uint32_t position, min_tokens;
        bool ignore_eos;
        enum finish_code finish;
    } rows[] = {
        {9, 20, 0, false, FINISH_NONE},    {2, 20, 0, false, FINISH_STOP},
        {7, 20, 0, false, FINISH_STOP},    {2, 20, 0, true, FINISH_NONE},
        {50, 20, 0, true, FINISH_STOP},    {51, 25, 0, false, FINISH_STOP},
        {2, 20, 1, false, FINISH_NONE},    {2, 21, 1, false, FINISH_STOP},
        {50, 24, 5, false, FINISH_NONE},   {50, 25, 5, false, FINISH_STOP},
        {9, 28, 0, false, FINISH_NONE},    {9, 29, 0, false, FINISH_LENGTH},
        {2, 29, 0, false, FINISH_STOP},    {2, 29, 0, true, FINISH_LENGTH},
        {2, 29, 10, false, FINISH_LENGTH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t tokens[128];
        static struct job copy;
        struct msg_job job = good_job(20, 0);
        job.min_tokens = rows[i].min_tokens;
        job.ignore_eos = rows[i].ignore_eos;
        job.stop_ids = (struct wire_i32s){stops, 2};
        job_copy(&job, &limits, tokens, &copy);
        cr_assert_eq(job_finish(&copy, &limits, rows[i].id, rows[i].position), rows[i].finish,
                     "row %zu", i);
    }
}

Test(job, tokens_emitted_before_count_as_written)
{
    int32_t tokens[128];
    static struct job copy;
    struct msg_job job = good_job(20, 6);
    job.min_tokens = 6;
    job.max_tokens = 8;
    job_copy(&job, &limits, tokens, &copy);
    cr_assert_eq(job_finish(&copy, &limits, 2, 26), FINISH_STOP);
    cr_assert_eq(job_finish(&copy, &limits, 9, 26), FINISH_NONE);
    cr_assert_eq(job_finish(&copy, &limits, 9, 27), FINISH_LENGTH);
}

/* ---- its trace ---- */

#define TRACE "0af7651916cd43dd8448eb211c80319c"

static const struct {
    const char *parent, *trace;
} traces[] = {
    {"00-" TRACE "-b7ad6b7169203331-01", TRACE},
    {"", ""},
    {"00-" TRACE "-b7ad6b7169203331-0", ""},
    {"00-" TRACE "-b7ad6b7169203331-011", ""},
    {"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
    {"00-0af7651916cd43dd8448eb211c80319\n-b7ad6b7169203331-01", ""},
    {"00_" TRACE "-b7ad6b7169203331-01", ""},
    {"00-" TRACE "0b7ad6b7169203331-01", ""},
};

Test(job, the_trace_is_taken_when_it_is_sound)
{
    static struct job job;
    static int32_t tokens[128];
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        struct msg_job message = good_job(4, 0);
        message.traceparent = wire_str(traces[i].parent);
        job_copy(&message, &limits, tokens, &job);
        cr_expect_str_eq(job.trace, traces[i].trace, "of \"%s\"", traces[i].parent);
    }
}

Test(job, lines_about_it_have_its_ids)
{
    struct job_subject subject;
    job_subject_init(&subject, 0xabc, TRACE);
    cr_assert_str_eq(subject.fields[0].value, "0000000000000abc");
    cr_assert_str_eq(subject.fields[1].value, TRACE);
    job_subject_init(&subject, 0xabc, "");
    cr_assert_null(subject.fields[1].value);
}
