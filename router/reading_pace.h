/* How long a worker takes to read prompts: each token so much by itself, and so much more for each
 * token before it, since attention looks at all of those. Of 3,000 tokens the last may take three
 * times as long as the first. Pure. */
#ifndef BATON_ROUTER_READING_PACE_H
#define BATON_ROUTER_READING_PACE_H

#include <stdint.h>

/* In milliseconds; token_ms 0: not known. */
struct reading_pace {
    double token_ms, context_ms;
};

/* As a message has it. What is no number, or not above 0, is not known: with anything else what a
 * worker tells leads to times. */
struct reading_pace reading_pace_told(float token_us, float context_us);
/* The same for every token. */
struct reading_pace reading_pace_flat(double tokens_per_ms);
/* `tokens` of them, the first of which is behind `known` others. */
double reading_pace_ms(const struct reading_pace *pace, double known, double tokens);
/* How many are read in so many milliseconds, behind `known` others; at most 1e9. */
double reading_pace_tokens(const struct reading_pace *pace, double known, double ms);

/* Prompts that wait to be read, of which only the sums are known. */
struct reading_depth {
    uint64_t tokens, contexts; /* and twice the sum of the tokens before each */
};
/* The last `tokens` of a prompt of `prompt_tokens`. */
void reading_depth_add(struct reading_depth *depth, uint64_t prompt_tokens, uint64_t tokens);
/* Those that were added. */
void reading_depth_remove(struct reading_depth *depth, uint64_t prompt_tokens, uint64_t tokens);
/* Tokens before each, on average. */
double reading_depth_mean(const struct reading_depth *depth);

#endif
