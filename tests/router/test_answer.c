/* Tokens to text: stop strings, half characters, log-probabilities. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "router/answer.h"
#include "tests/router/tiny_text.h"

static struct text *text;
static struct openai_request request;

static void set_up(void)
{
    text = tiny_text_open();
    request = (struct openai_request){.skip_special = true};
}

static void tear_down(void)
{
    stop_set_free(&request.stops);
    text_close(text);
}

TestSuite(answer, .init = set_up, .fini = tear_down);

static void stop_at(const char *stop)
{
    cr_assert(stop_set_add(&request.stops, stop, strlen(stop)));
}

/* Feeds ids; streamed: takes after every token. The whole text in *out. */
static bool play(const int32_t *ids, size_t count, bool streamed, struct buffer *out)
{
    struct answer answer;
    answer_init(&answer, text, &request);
    bool stopped = false;
    for (size_t i = 0; i < count && !stopped; i++) {
        stopped = answer_push(&answer, ids[i], -1, 0, NULL, NULL);
        if (streamed) {
            buffer_add(out, answer.out.data, answer.out.size);
            answer_take(&answer);
        }
    }
    if (!stopped)
        stopped = answer_finish(&answer);
    buffer_add(out, answer.out.data, answer.out.size);
    answer_free(&answer);
    return stopped;
}

/* One token a byte. */
static size_t bytes_of(const char *string, int32_t *ids)
{
    const size_t count = strlen(string);
    for (size_t i = 0; i < count; i++)
        ids[i] = (unsigned char)string[i];
    return count;
}

static void expect_text(const char *given, const char *wanted, bool stopped)
{
    int32_t ids[256];
    const size_t count = bytes_of(given, ids);
    for (int streamed = 0; streamed < 2; streamed++) {
        struct buffer out = {0};
        cr_expect_eq(play(ids, count, streamed, &out), stopped, "%s", given);
        cr_expect_str_eq(out.data ? out.data : "", wanted, "%s", given);
        buffer_free(&out);
    }
}

Test(answer, stop_is_cut_exactly)
{
    stop_at("DUE");
    expect_text("UNO DUE TRE", "UNO ", true);
}

Test(answer, held_tail_is_flushed)
{
    stop_at("TRE\nAAAA");
    expect_text("UNO DUE TRE", "UNO DUE TRE", false);
}

Test(answer, text_before_a_newline_stop_is_sent)
{
    stop_at("\n");
    expect_text("what?\nmore", "what?", true);
}

Test(answer, partial_match_resets)
{
    stop_at("aab");
    expect_text("aaaaab!", "aaa", true);
    expect_text("aaxaay", "aaxaay", false);
}

Test(answer, first_end_wins_then_list_order)
{
    stop_at("abc");
    stop_at("b");
    expect_text("xabc", "xa", true);
    stop_set_free(&request.stops);
    stop_at("bc");
    stop_at("abc");
    expect_text("xabc", "xa", true);
    stop_set_free(&request.stops);
    stop_at("abc");
    stop_at("bc");
    expect_text("xabc", "x", true);
}

Test(answer, include_keeps_the_stop_string)
{
    request.include_stop = true;
    stop_at("DUE");
    expect_text("UNO DUE TRE", "UNO DUE", true);
}

Test(answer, min_tokens_holds_off_the_stop)
{
    request.min_tokens = 8;
    stop_at("a");
    expect_text("banana bread a", "banana bre", true);
    request.min_tokens = 100;
    expect_text("banana", "banana", false);
}

Test(answer, characters_are_never_cut)
{
    const char whole[] = "a\xf0\x9f\x98\x80\xed\x95\x9c b";
    int32_t ids[32];
    const size_t count = bytes_of(whole, ids);
    struct answer answer;
    answer_init(&answer, text, &request);
    struct buffer out = {0};
    for (size_t i = 0; i < count; i++) {
        answer_push(&answer, ids[i], 0, 0, NULL, NULL);
        cr_expect(answer.out.size == 0 || answer.out.size == 1 || answer.out.size >= 3);
        buffer_add(&out, answer.out.data, answer.out.size);
        answer_take(&answer);
    }
    cr_expect(!answer_finish(&answer));
    cr_expect_str_eq(out.data, whole);
    buffer_free(&out);
    answer_free(&answer);
}

Test(answer, unfinished_character_becomes_a_replacement_at_the_end)
{
    expect_text("a\xf0\x9f", "a\xef\xbf\xbd", false);
}

Test(answer, special_tokens_are_silent)
{
    const int32_t ids[] = {'a', TINY_START, 'b', TINY_END};
    struct buffer out = {0};
    play(ids, ARRAY_COUNT(ids), true, &out);
    cr_expect_str_eq(out.data, "ab");
    buffer_free(&out);
}

/* All ways to cut "hello" and its neighbours into tokens of the vocabulary: the text is one. */
Test(answer, result_does_not_depend_on_the_tokens)
{
    static const int32_t ways[][6] = {
        {'h', 'e', 'l', 'l', 'o', '!'},       {TINY_HE, 'l', 'l', 'o', '!', -1},
        {TINY_HE, TINY_LL, 'o', '!', -1, -1}, {'h', 'e', TINY_LL, 'o', '!', -1},
        {TINY_HELL, 'o', '!', -1, -1, -1},    {TINY_HELLO, '!', -1, -1, -1, -1}};
    static const struct {
        const char *stop, *wanted;
    } stops[] = {{"zz", "hello!"}, {"o!", "hell"},   {"ell", "h"}, {"h", ""},
                 {"lo", "hel"},    {"!x", "hello!"}, {"l", "he"},  {"hello!", ""}};
    for (size_t s = 0; s < ARRAY_COUNT(stops); s++) {
        stop_set_free(&request.stops);
        stop_at(stops[s].stop);
        for (size_t w = 0; w < ARRAY_COUNT(ways); w++) {
            size_t count = 0;
            while (count < 6 && ways[w][count] >= 0)
                count++;
            for (int streamed = 0; streamed < 2; streamed++) {
                struct buffer out = {0};
                play(ways[w], count, streamed, &out);
                cr_expect_str_eq(out.data ? out.data : "", stops[s].wanted, "stop %s, way %zu",
                                 stops[s].stop, w);
                buffer_free(&out);
            }
        }
    }
}

/* Every cut of a text into two or three pieces through the matcher itself. */
Test(answer, stop_match_is_blind_to_cuts)
{
    static const char given[] = "one two three one";
    stop_at("two t");
    stop_at("e o");
    for (size_t a = 0; a <= strlen(given); a++) {
        for (size_t b = a; b <= strlen(given); b++) {
            struct stop_match match;
            stop_match_init(&match, &request.stops, false);
            struct buffer out = {0};
            bool stopped = stop_match_feed(&match, given, a, true, &out);
            if (!stopped)
                stopped = stop_match_feed(&match, given + a, b - a, true, &out);
            if (!stopped)
                stopped = stop_match_feed(&match, given + b, strlen(given) - b, true, &out);
            cr_expect(stopped);
            cr_expect_str_eq(out.data, "one ");
            buffer_free(&out);
            stop_match_free(&match);
        }
    }
}

Test(answer, logprobs_travel_with_their_text)
{
    request.logprobs = true;
    request.top_logprobs = 1;
    stop_at("bX");
    struct answer answer;
    answer_init(&answer, text, &request);
    const int32_t top_id = 'q';
    const float top_logprob = -2;
    answer_push(&answer, 'a', -0.5f, 1, &top_id, &top_logprob);
    cr_expect_eq(answer.ready_count, 1);
    cr_expect_eq(answer.tokens[0].top_ids[0], 'q');
    answer_take(&answer);
    answer_push(&answer, 'b', -0.6f, 1, &top_id, &top_logprob);
    cr_expect_eq(answer.ready_count, 0, "b may begin the stop string: both wait");
    cr_expect_eq(answer.out.size, 0);
    answer_push(&answer, 'c', -0.7f, 1, &top_id, &top_logprob);
    cr_expect_eq(answer.ready_count, 2);
    cr_expect_str_eq(answer.out.data, "bc");
    cr_expect_eq(answer.tokens[0].start, 1);
    cr_expect_eq(answer.tokens[1].start, 2);
    answer_take(&answer);
    answer_push(&answer, 'b', -0.6f, 1, &top_id, &top_logprob);
    cr_expect(answer_push(&answer, 'X', -0.7f, 1, &top_id, &top_logprob));
    cr_expect_eq(answer.ready_count, 0, "tokens of the stop string itself are not told");
    cr_expect_eq(answer.pending_count, 0);
    answer_free(&answer);
}

Test(answer, logprobs_of_half_characters_wait_for_the_whole)
{
    request.logprobs = true;
    struct answer answer;
    answer_init(&answer, text, &request);
    answer_push(&answer, 0xc3, -1, 0, NULL, NULL);
    cr_expect_eq(answer.ready_count, 0);
    answer_push(&answer, 0xa9, -1, 0, NULL, NULL);
    cr_expect_eq(answer.ready_count, 2);
    cr_expect_eq(answer.out.size, 2);
    answer_take(&answer);
    static const uint8_t face[] = {0xf0, 0x9f, 0x98, 0x80};
    for (size_t i = 0; i < sizeof face; i++) {
        cr_expect_eq(answer.ready_count, 0, "all four bytes go together");
        answer_push(&answer, face[i], -1, 0, NULL, NULL);
    }
    cr_expect_eq(answer.ready_count, 4);
    cr_expect_eq(answer.tokens[3].end, 6);
    answer_free(&answer);
}

/* The marks around calls are special tokens of some vocabularies: what looks for calls sees them,
 * other special tokens stay out of the text. */
Test(answer, marks_around_tool_calls_are_text_where_calls_are_looked_for)
{
    static const char *const special[] = {"<tool_call>", "</tool_call>", "<tool_response>"};
    struct text *marked = tiny_text_open_with(special, ARRAY_COUNT(special));
    const int32_t ids[] = {'a', TINY_VOCAB, 'b', TINY_START, TINY_VOCAB + 1, TINY_VOCAB + 2};
    static const struct {
        enum tool_style style;
        bool skip_special;
        const char *wanted;
    } cases[] = {
        {TOOL_STYLE_NONE, true, "ab"},
        {TOOL_STYLE_HERMES, true, "a<tool_call>b</tool_call>"},
        {TOOL_STYLE_MISTRAL, true, "ab"},
        {TOOL_STYLE_HERMES, false, "a<tool_call>b<|im_start|></tool_call><tool_response>"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct answer answer;
        request.tools.style = cases[i].style;
        request.skip_special = cases[i].skip_special;
        request.return_token_ids = true;
        answer_init(&answer, marked, &request);
        for (size_t k = 0; k < ARRAY_COUNT(ids); k++)
            answer_push(&answer, ids[k], 0, 0, NULL, NULL);
        answer_finish(&answer);
        cr_expect_str_eq(answer.out.data, cases[i].wanted);
        cr_expect_eq(answer.ready_count, ARRAY_COUNT(ids));
        answer_free(&answer);
    }
    text_close(marked);
}
