/* What the text of a token stands for: a list of steps, as the model's file has them, applied to
 * every token by itself when a vocabulary is opened; and what happens where a text begins. */
#ifndef BATON_MODEL_TEXT_DECODER_H
#define BATON_MODEL_TEXT_DECODER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/status.h"
#include "model/text/pattern.h"

struct decoder;

enum {
    DECODER_STEPS_MAX = 16,
    DECODER_MARK_BYTES_MAX = 16,
    DECODED_BYTES_MAX = 1 << 20, /* that one token may stand for */
};

/* Without steps a token stands for its text. Built by one thread, then immutable, any thread. */
struct decoder *decoder_create(void);
void decoder_destroy(struct decoder *decoder); /* NULL is fine */

/* The steps: LIMIT beyond DECODER_STEPS_MAX. The byte alphabet is undone, where the whole token is
 * in it. */
enum status decoder_add_byte_level(struct decoder *decoder, struct error *error);
/* "<0x0A>" is a byte; for the last step only. */
enum status decoder_add_byte_fallback(struct decoder *decoder, struct error *error);
/* Takes the pattern over, also on failure. */
enum status decoder_add_replace(struct decoder *decoder, struct pattern *pattern, const char *text,
                                size_t bytes, struct error *error);
/* A character goes from the ends of each token, as often as it stands there up to the counts. */
enum status decoder_add_strip(struct decoder *decoder, const char *character, size_t bytes,
                              size_t left, size_t right, struct error *error);

/* What happens at the beginning of a whole text, and between tokens. */
struct decoder_start {
    char mark[DECODER_MARK_BYTES_MAX];
    size_t mark_bytes;
    size_t strip_count;    /* so many marks at the beginning of the text go */
    bool first_token_bare; /* all marks in the text of the first token go instead */
    bool joined;           /* a space between tokens */
};
void decoder_set_start(struct decoder *decoder, const struct decoder_start *start);
const struct decoder_start *decoder_start(const struct decoder *decoder);

/* Appends what a token stands for by itself. A replacement that makes more than DECODED_BYTES_MAX
 * of it ends there, and it is for the caller to refuse the token. */
void decoder_token(const struct decoder *decoder, const char *text, size_t bytes,
                   struct buffer *out);

#endif
