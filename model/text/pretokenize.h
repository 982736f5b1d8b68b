/* Cutting text into the pieces that a model may not cross.
 *
 * A pre-tokenizer is a list of stages; each cuts the pieces of the one before. Each vocabulary was
 * trained with one list and gives other ids under any other, so lists come from the model's file or
 * are known by name, and never guessed. */
#ifndef BATON_MODEL_TEXT_PRETOKENIZE_H
#define BATON_MODEL_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/text/pattern.h"

struct pretokenizer;

enum { PRETOKENIZE_STAGES_MAX = 16 };

/* What becomes of the parts that a pattern matches and of those between them. */
enum pretokenize_cut {
    CUT_ISOLATED, /* each is a piece */
    CUT_REMOVED,  /* matches are dropped */
    CUT_MERGED_WITH_PREVIOUS,
    CUT_MERGED_WITH_NEXT,
    CUT_CONTIGUOUS, /* neighbouring matches are one piece */
};

/* Where a stage puts its mark in front of a piece that does not begin with it. */
enum pretokenize_prefix { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS };

/* Without stages a text is one piece. Built by one thread, then immutable, any thread. */
struct pretokenizer *pretokenizer_create(void);
void pretokenizer_destroy(struct pretokenizer *pretokenizer); /* NULL is fine */
/* Adds the stages of a name in tokenizer.ggml.pre; UNSUPPORTED with the names there are. */
enum status pretokenizer_add_named(struct pretokenizer *pretokenizer, const char *name,
                                   size_t bytes, struct error *error);
/* The stages below: LIMIT beyond PRETOKENIZE_STAGES_MAX. invert: what does not match counts as
 * matching. Takes the pattern over, also on failure. */
enum status pretokenizer_add_pattern(struct pretokenizer *pretokenizer, struct pattern *pattern,
                                     enum pretokenize_cut cut, bool invert, struct error *error);
/* Spaces become mark, a piece gets it in front by `prefix`, and with split each mark begins one. */
enum status pretokenizer_add_spaces(struct pretokenizer *pretokenizer, const char *mark,
                                    size_t bytes, enum pretokenize_prefix prefix, bool split,
                                    struct error *error);
/* A piece gets a space in front unless it begins with one. */
enum status pretokenizer_add_space_prefix(struct pretokenizer *pretokenizer, struct error *error);
/* A piece is cut in front of every mark that follows another byte than a mark's or one of joins. */
enum status pretokenizer_add_words(struct pretokenizer *pretokenizer, const char *mark,
                                   size_t bytes, const bool joins[256], struct error *error);

/* What a name in tokenizer.ggml.pre says besides; the name must have been added. */
struct pretokenize_rules {
    const char *names; /* canonical first, then aliases, each followed by a space */
    const char *patterns[6];
    bool normalizes; /* NFC before cutting */
    bool ignores_merges;
    bool adds_bos; /* unless the file says */
};
const struct pretokenize_rules *pretokenize_rules_find(const char *name, size_t bytes);

/* The pieces of well-formed UTF-8, in order, none empty. first: the text is the beginning of what
 * is encoded; continues: something stands directly before it, so that it gets no prefix. A status
 * from on_piece ends the run and is returned. LIMIT when the match limit is reached. Pieces are
 * valid during the call. */
typedef enum status (*pretokenize_piece)(void *arg, const char *piece, size_t bytes);
struct pretokenize_input {
    const char *text;
    size_t bytes;
    bool first, continues;
    struct pattern_scratch *scratch;
};
enum status pretokenize(const struct pretokenizer *pretokenizer,
                        const struct pretokenize_input *input, pretokenize_piece on_piece,
                        void *arg, struct error *error);

#endif
