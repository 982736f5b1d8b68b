#include "worker/answer_masks.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "model/text/grammar/grammar.h"

enum { NOBODY = UINT32_MAX };

struct standing {
    uint32_t place;    /* NOBODY: free */
    uint32_t position; /* tokens before it are in the matcher */
    struct grammar_matcher *matcher;
};

struct answer_masks {
    struct standing *standings; /* [count] */
    uint32_t count;
    size_t mask_words;
    uint32_t *bits; /* [count][mask_words] */
    struct answer_masks_totals totals;
};

struct answer_masks *answer_masks_create(uint32_t matchers, const struct text *text)
{
    struct answer_masks *masks = calloc(1, sizeof *masks);
    CHECK(masks != NULL && matchers > 0);
    const size_t mask_words = (text_info(text)->vocab_count + 31) / 32;
    *masks = (struct answer_masks){
        .standings = calloc(matchers, sizeof *masks->standings),
        .count = matchers,
        .mask_words = mask_words,
        .bits = calloc(matchers * mask_words, sizeof *masks->bits),
    };
    CHECK(masks->standings != NULL && masks->bits != NULL);
    for (uint32_t i = 0; i < matchers; i++)
        masks->standings[i] =
            (struct standing){.place = NOBODY, .matcher = grammar_matcher_create()};
    return masks;
}

void answer_masks_destroy(struct answer_masks *masks)
{
    if (masks == NULL)
        return;
    for (uint32_t i = 0; i < masks->count; i++)
        grammar_matcher_destroy(masks->standings[i].matcher);
    free(masks->standings);
    free(masks->bits);
    free(masks);
}

static struct standing *standing_of(struct answer_masks *masks, uint32_t place)
{
    for (uint32_t i = 0; i < masks->count; i++) {
        if (masks->standings[i].place == place)
            return &masks->standings[i];
    }
    return NULL;
}

/* The matcher of a request, with all that is written. *out is set also where it fails. */
static enum status catch_up(struct answer_masks *masks, uint32_t place, const struct job *job,
                            uint32_t position, struct standing **out)
{
    struct standing *standing = standing_of(masks, place);
    if (standing == NULL) {
        standing = standing_of(masks, NOBODY);
        CHECK(standing != NULL);
        standing->place = place;
        standing->position = job->prompt_count;
        grammar_matcher_init(standing->matcher, job->grammar);
    }
    *out = standing;
    CHECK(standing->position <= position);
    for (; standing->position < position; standing->position++) {
        if (!grammar_matcher_accept(standing->matcher, job->tokens[standing->position]))
            return grammar_matcher_limit(standing->matcher) ? STATUS_LIMIT : STATUS_CORRUPT;
    }
    return STATUS_OK;
}

enum { ENDS_MAX = TEXT_EOS_MAX + JOB_STOP_IDS_MAX };

/* The model's own ends first; they count also where the request ignores them. */
static uint32_t list_ends(const struct job *job, int32_t ends[ENDS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->eos_count; i++)
        ends[count++] = job->eos_ids[i];
    for (uint32_t i = 0; i < job->stop_count; i++)
        ends[count++] = job->stop_ids[i];
    return count;
}

static void clear_ids(uint32_t *mask, const int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mask[(uint32_t)ids[i] / 32] &= ~(1u << ((uint32_t)ids[i] % 32));
}

static void set_ids(uint32_t *mask, const int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mask[(uint32_t)ids[i] / 32] |= 1u << ((uint32_t)ids[i] % 32);
}

static bool is_empty(const uint32_t *mask, size_t words)
{
    uint32_t any = 0;
    for (size_t i = 0; i < words; i++)
        any |= mask[i];
    return any == 0;
}

/* An id that ends the answer does so where the grammar can end and stands nowhere else, whatever
 * its text is. Those that the request ignores stand where nothing else may. */
static enum status place_ends(const struct answer_masks *masks, const struct job *job,
                              const int32_t *ends, uint32_t end_count, bool can_end, uint32_t *mask,
                              bool *must_end_out)
{
    clear_ids(mask, ends, end_count);
    const bool nothing = is_empty(mask, masks->mask_words);
    *must_end_out = nothing && can_end;
    if (!can_end)
        return nothing ? STATUS_NOT_FOUND : STATUS_OK;
    const uint32_t ignored = job->ignore_eos && !nothing ? job->eos_count : 0;
    set_ids(mask, ends + ignored, end_count - ignored);
    return nothing && end_count == 0 ? STATUS_NOT_FOUND : STATUS_OK;
}

static enum status fill(struct answer_masks *masks, uint32_t row, uint32_t place,
                        const struct job *job, uint32_t position, struct answer_mask *out)
{
    uint32_t *mask = masks->bits + row * masks->mask_words;
    int32_t ends[ENDS_MAX];
    const uint32_t end_count = list_ends(job, ends);
    struct standing *standing;
    enum status status = catch_up(masks, place, job, position, &standing);
    if (status == STATUS_OK)
        status =
            grammar_matcher_mask(standing->matcher, job->end - position, ends, end_count, mask);
    out->limit = grammar_matcher_limit(standing->matcher);
    TRY(status);
    out->bits = mask;
    return place_ends(masks, job, ends, end_count, grammar_matcher_can_end(standing->matcher), mask,
                      &out->must_end);
}

struct answer_mask answer_masks_fill(struct answer_masks *masks, uint32_t row, uint32_t place,
                                     const struct job *job, uint32_t position)
{
    struct answer_mask mask = {0};
    CHECK(row < masks->count && position < job->end);
    if (job->grammar == NULL)
        return mask;
    const uint64_t start_ns = clock_now_ns(clock_monotonic());
    mask.status = fill(masks, row, place, job, position, &mask);
    masks->totals.masks++;
    masks->totals.ns += clock_now_ns(clock_monotonic()) - start_ns;
    return mask;
}

void answer_masks_forget(struct answer_masks *masks, uint32_t place)
{
    struct standing *standing = standing_of(masks, place);
    if (standing != NULL)
        standing->place = NOBODY;
}

struct answer_masks_totals answer_masks_totals(const struct answer_masks *masks)
{
    return masks->totals;
}
