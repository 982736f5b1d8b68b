/* The unigram model: every token has a score, a log-probability, and a piece of text is cut into
 * the tokens whose scores have the largest sum.
 *
 * One pass over the characters, best way to each of them (Viterbi), tokens found by a trie: work
 * grows with characters times the longest token. Sums are taken and compared in the order of the
 * reference, in double, because ways of equal score are common ("aa" "a" against "a" "aa") and
 * rounding decides between them. */
#ifndef BATON_MODEL_TEXT_UNIGRAM_H
#define BATON_MODEL_TEXT_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

struct unigram;

struct unigram *unigram_create(uint32_t token_count);
/* Of equal texts the last one counts. An empty text is never found. */
void unigram_add(struct unigram *unigram, const char *text, size_t bytes, int32_t id, double score);
/* Characters that no token begins with cost 10 more than the lowest score of all tokens. */
void unigram_set_lowest(struct unigram *unigram, double score);
void unigram_destroy(struct unigram *unigram); /* NULL is fine */

/* Working memory of a thread, kept between pieces. Zero-initialised is empty. */
struct unigram_scratch {
    struct unigram_end *ends; /* best way to every byte */
    uint32_t *path;           /* ends of the tokens of the best way, the last one first */
    size_t capacity;
    uint64_t step_count; /* of the trie, over all pieces */
};
void unigram_scratch_free(struct unigram_scratch *scratch);

/* on_token gets the parts in order: a token, or -1 and text that has none (neighbours fused). The
 * piece is well-formed UTF-8. */
typedef void (*unigram_token)(void *arg, int32_t id, const char *text, size_t bytes);
void unigram_encode(const struct unigram *unigram, struct unigram_scratch *scratch,
                    const char *piece, size_t bytes, unigram_token on_token, void *arg);

#endif
