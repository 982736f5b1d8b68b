/* Two languages at once: states in pairs. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/grammar/grammar_regex_internal.h"

/* Pairs of states, numbered as they are found. */
struct pairs {
    uint32_t *of; /* [AUTOMATON_STATES_MAX] a << 16 | b */
    uint32_t *slots, count;
};
enum { PAIR_SLOTS = 1 << 17 };

static uint16_t pair_state(struct grammar_build *build, struct pairs *pairs, uint16_t a, uint16_t b)
{
    const uint32_t pair = (uint32_t)a << 16 | b;
    uint32_t slot = (uint32_t)hash_u64_keyed(pair, hash_process_key()) % PAIR_SLOTS;
    for (; pairs->slots[slot] != 0; slot = (slot + 1) % PAIR_SLOTS)
        if (pairs->of[pairs->slots[slot] - 1] == pair)
            return (uint16_t)(pairs->slots[slot] - 1);
    if (pairs->count == AUTOMATON_STATES_MAX) {
        build_fail(build, STATUS_LIMIT, "%s: the conditions together need more than %d states",
                   build->place, AUTOMATON_STATES_MAX);
        return 0;
    }
    pairs->of[pairs->count] = pair;
    pairs->slots[slot] = pairs->count + 1;
    return (uint16_t)pairs->count++;
}

static void classes_join(const struct language *a, const struct language *b, struct language *out,
                         uint8_t *sample)
{
    int16_t known[256][256];
    memset(known, 0xff, sizeof known);
    for (uint32_t byte = 0; byte < 256; byte++) {
        int16_t *class = &known[a->class_of[byte]][b->class_of[byte]];
        if (*class < 0) {
            sample[out->class_count] = (uint8_t)byte;
            *class = (int16_t)out->class_count++;
        }
        out->class_of[byte] = (uint16_t) * class;
    }
}

/* Texts of a that are in b, or with `without` that are not: then b may have no state any more. */
static bool pairs_make(struct grammar_build *build, const struct language *a,
                       const struct language *b, bool without, struct language *out)
{
    uint8_t sample[256];
    *out = (struct language){.start = AUTOMATON_NONE};
    classes_join(a, b, out, sample);
    struct pairs pairs = {.of = calloc(AUTOMATON_STATES_MAX, sizeof *pairs.of),
                          .slots = calloc(PAIR_SLOTS, sizeof *pairs.slots)};
    CHECK(pairs.of != NULL && pairs.slots != NULL);
    if (a->start != AUTOMATON_NONE && (without || b->start != AUTOMATON_NONE))
        out->start = pair_state(build, &pairs, a->start, b->start);
    size_t capacity = 0;
    uint32_t state = 0;
    for (; state < pairs.count && build->status == STATUS_OK; state++) {
        if ((size_t)(state + 1) * out->class_count > AUTOMATON_CELLS_MAX) {
            build_fail(build, STATUS_LIMIT, "%s: the conditions together need more than %d cells",
                       build->place, AUTOMATON_CELLS_MAX);
            break;
        }
        if (state == capacity) {
            capacity = capacity > 0 ? capacity * 2 : 64;
            out->next = realloc(out->next, capacity * out->class_count * sizeof *out->next);
            out->final = realloc(out->final, capacity * sizeof *out->final);
            CHECK(out->next != NULL && out->final != NULL);
        }
        const uint16_t at_a = (uint16_t)(pairs.of[state] >> 16);
        const uint16_t at_b = (uint16_t)pairs.of[state];
        const bool in_b = at_b != AUTOMATON_NONE && b->final[at_b];
        out->final[state] = a->final[at_a] && in_b != without;
        for (uint32_t class = 0; class < out->class_count; class ++) {
            const uint16_t to_a =
                a->next[(size_t)at_a * a->class_count + a->class_of[sample[class]]];
            const uint16_t to_b =
                at_b == AUTOMATON_NONE
                    ? (uint16_t)AUTOMATON_NONE
                    : b->next[(size_t)at_b * b->class_count + b->class_of[sample[class]]];
            out->next[(size_t)state * out->class_count + class] =
                to_a == AUTOMATON_NONE || (to_b == AUTOMATON_NONE && !without)
                    ? (uint16_t)AUTOMATON_NONE
                    : pair_state(build, &pairs, to_a, to_b);
        }
    }
    out->state_count = state;
    free(pairs.of);
    free(pairs.slots);
    return build->status == STATUS_OK;
}

bool language_both(struct grammar_build *build, const struct language *a, const struct language *b,
                   struct language *out)
{
    return pairs_make(build, a, b, false, out);
}

bool language_subtract(struct grammar_build *build, struct language *a, const struct language *b)
{
    struct language left;
    const bool fine = pairs_make(build, a, b, true, &left);
    language_free(a);
    *a = left;
    return fine;
}
