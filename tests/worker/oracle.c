#include "tests/worker/oracle.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/random.h"
#include "model/text/grammar/grammar.h"
#include "worker/answer_masks.h"

enum { CONTEXT_MAX = 8192 };

void oracle_open_as(struct oracle *oracle, const char *path, enum kv_dtype dtype)
{
    const struct model_options options = {
        .path = path, .kv_dtype = dtype, .threads = 1, .page_tokens = 64, .max_rows = 64};
    struct error error;
    cr_assert_eq(model_open(&options, &oracle->model, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(text_open(path, &oracle->text, &error), STATUS_OK, "%s", error.text);
    oracle->sampler = sampler_create(model_info(oracle->model)->token_count);
    oracle->tokens = NULL;
}

void oracle_open(struct oracle *oracle, const char *path)
{
    oracle_open_as(oracle, path, KV_BF16);
}

void oracle_close(struct oracle *oracle)
{
    sampler_destroy(oracle->sampler);
    grammar_tokens_destroy(oracle->tokens);
    text_close(oracle->text);
    model_close(oracle->model);
}

/* What the answer has to be, followed from its beginning. */
struct bound {
    struct job job;
    struct answer_masks *masks;
};

static void bound_open(struct oracle *oracle, const struct ask *ask, int32_t *tokens,
                       struct bound *bound)
{
    const struct text_info *info = text_info(oracle->text);
    const uint32_t context = model_info(oracle->model)->context_tokens;
    struct error error;
    struct grammar *grammar;
    *bound = (struct bound){.job = {.prompt_count = ask->prompt_count,
                                    .end = ask->prompt_count + ask->max_tokens,
                                    .ignore_eos = ask->ignore_eos,
                                    .eos_ids = info->eos_ids,
                                    .eos_count = info->eos_count,
                                    .stop_count = ask->stop_count,
                                    .tokens = tokens}};
    if (ask->grammar_kind == 0)
        return;
    bound->job.end = bound->job.end < context ? bound->job.end : context;
    if (ask->stop_count > 0)
        memcpy(bound->job.stop_ids, ask->stop_ids, ask->stop_count * sizeof *ask->stop_ids);
    if (oracle->tokens == NULL)
        oracle->tokens = grammar_tokens_create(oracle->text);
    const char *source = ask->grammar == NULL ? "" : ask->grammar;
    cr_assert_eq(grammar_compile((enum grammar_kind)ask->grammar_kind, source, strlen(source),
                                 &grammar, &error),
                 STATUS_OK, "%s", error.text);
    cr_assert_eq(
        grammar_program_create(grammar, oracle->tokens, 1 << 20, &bound->job.grammar, &error),
        STATUS_OK, "%s", error.text);
    bound->masks = answer_masks_create(1, oracle->text);
}

static struct answer_mask bound_mask(const struct bound *bound, uint32_t position)
{
    const struct answer_mask free_mask = {0};
    if (bound->masks == NULL)
        return free_mask;
    return answer_masks_fill(bound->masks, 0, 0, &bound->job, position);
}

static void bound_close(struct bound *bound)
{
    answer_masks_destroy(bound->masks);
    grammar_program_destroy(bound->job.grammar);
}

void oracle_generate(struct oracle *oracle, const struct ask *ask, uint32_t count, int32_t *out)
{
    static int32_t tokens[CONTEXT_MAX];
    static uint32_t slots[CONTEXT_MAX / 64];
    struct page_pool *pages = model_pages(oracle->model);
    const uint32_t given = ask->prompt_count + ask->emitted_count;
    const uint32_t end = given + count;
    const uint32_t page_count = (end + 63) / 64;
    const struct text_info *info = text_info(oracle->text);
    const struct sampling sampling = {
        .temperature = ask->temperature,
        .top_p = 1,
        .seed = ask->seed,
        .repetition_penalty = ask->repetition_penalty,
        .presence_penalty = ask->presence_penalty,
        .frequency_penalty = ask->frequency_penalty,
        .min_tokens = ask->min_tokens,
        .ends = {{info->eos_ids, ask->ignore_eos ? 0 : info->eos_count},
                 {ask->stop_ids, ask->stop_count}},
    };
    struct error error;
    cr_assert(end <= model_info(oracle->model)->context_tokens);
    memcpy(tokens, ask->prompt, given * sizeof *tokens);
    cr_assert_eq(page_pool_reserve(pages, page_count), STATUS_OK);
    page_pool_take(pages, page_count, slots);
    uint32_t position = 0;
    static struct bound bound;
    bound_open(oracle, ask, tokens, &bound);
    for (uint32_t known = given; known < end; known++) {
        const float *logits = NULL;
        while (position < known) {
            const uint32_t rows = known - position < 64 ? known - position : 64;
            const struct forward_sequence sequence = {.tokens = tokens + position,
                                                      .count = rows,
                                                      .position = position,
                                                      .slots = slots,
                                                      .logit_rows = 1};
            fake_routers_turn();
            cr_assert_eq(model_forward(oracle->model, &sequence, 1, NULL, &logits, &error),
                         STATUS_OK, "%s", error.text);
            position += rows;
        }
        struct sampled sampled;
        const struct answer_mask mask = bound_mask(&bound, known);
        cr_assert_eq(mask.status, STATUS_OK);
        const struct sampler_at at = {.choice = ask->choice,
                                      .position = known,
                                      .prompt_count = ask->prompt_count,
                                      .tokens = tokens,
                                      .mask = mask.bits,
                                      .must_end = mask.must_end};
        cr_assert_eq(sampler_pick(oracle->sampler, &sampling, logits, &at, &sampled), STATUS_OK);
        tokens[known] = sampled.id;
    }
    bound_close(&bound);
    page_pool_free(pages, slots, page_count);
    memcpy(out, tokens + given, count * sizeof *out);
}

void oracle_compare(struct oracle *oracle, const struct fake_answer *answer, uint32_t count)
{
    static int32_t expected[CONTEXT_MAX];
    cr_assert_eq(answer->token_count, count, "%u tokens and not %u", answer->token_count, count);
    oracle_generate(oracle, &answer->ask, count, expected);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t got = answer->tokens[answer->ask.emitted_count + i];
        cr_assert_eq(got, expected[i], "token %u is %d and not %d (prompt of %u)", i, got,
                     expected[i], answer->ask.prompt_count);
    }
}

void oracle_compare_ended(struct oracle *oracle, const struct fake_answer *answer)
{
    static int32_t expected[CONTEXT_MAX];
    const uint32_t count = answer->token_count;
    cr_assert_eq(answer->finish, FINISH_STOP);
    oracle_generate(oracle, &answer->ask, count + 1, expected);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t got = answer->tokens[answer->ask.emitted_count + i];
        cr_assert_eq(got, expected[i], "token %u is %d and not %d (prompt of %u)", i, got,
                     expected[i], answer->ask.prompt_count);
    }
    cr_assert_eq(answer->stop_id, expected[count]);
}

void oracle_prompt(uint64_t seed, uint32_t vocab_count, uint32_t count, int32_t *out)
{
    struct random random;
    random_init(&random, seed);
    for (uint32_t i = 0; i < count; i++)
        out[i] = (int32_t)random_below(&random, vocab_count);
}
