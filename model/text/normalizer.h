/* What is done to a text before it is cut into pieces: a list of steps, as the model's file has
 * them. */
#ifndef BATON_MODEL_TEXT_NORMALIZER_H
#define BATON_MODEL_TEXT_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/status.h"
#include "model/text/charsmap.h"
#include "model/text/pattern.h"
#include "model/text/unicode.h"

struct normalizer;

enum {
    NORMALIZER_STEPS_MAX = 64,
    /* A text may become this long: compatibility decomposition makes 11 bytes of one at most. */
    NORMALIZED_BYTES_BASE = 1 << 16,
    NORMALIZED_BYTES_PER_BYTE = 16,
    NORMALIZED_BYTES_MAX = 1 << 30,
};

enum normalizer_strip { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Without steps a text stays as it is. Built by one thread, then immutable, any thread. */
struct normalizer *normalizer_create(void);
void normalizer_destroy(struct normalizer *normalizer); /* NULL is fine */

/* The steps, in the order in which they are added: LIMIT beyond NORMALIZER_STEPS_MAX. */
enum status normalizer_add_form(struct normalizer *normalizer, enum unicode_form form,
                                struct error *error);
/* Takes the map over, also on failure. */
enum status normalizer_add_charsmap(struct normalizer *normalizer, struct charsmap *charsmap,
                                    struct error *error);
enum status normalizer_add_lowercase(struct normalizer *normalizer, struct error *error);
enum status normalizer_add_strip_marks(struct normalizer *normalizer, struct error *error);
/* White space at the ends goes; sides: enum normalizer_strip. */
enum status normalizer_add_strip(struct normalizer *normalizer, unsigned sides,
                                 struct error *error);
/* The text goes in front of one that is not empty. */
enum status normalizer_add_prepend(struct normalizer *normalizer, const char *text, size_t bytes,
                                   struct error *error);
/* Every match becomes the text. Takes the pattern over, also on failure. */
enum status normalizer_add_replace(struct normalizer *normalizer, struct pattern *pattern,
                                   const char *text, size_t bytes, struct error *error);

struct normalizer_scratch {
    struct buffer buffers[2];
    struct pattern_scratch *pattern; /* the caller's */
};
/* Leaves `pattern` alone. */
void normalizer_scratch_free(struct normalizer_scratch *scratch);

/* Well-formed UTF-8 in and out. *text_out is the input itself or memory in scratch, valid until its
 * next use. continues: something stands directly before the text, so that nothing is put in front
 * of it. LIMIT when a pattern takes too many steps or the text grows beyond
 * NORMALIZED_BYTES_BASE + NORMALIZED_BYTES_PER_BYTE a byte, or NORMALIZED_BYTES_MAX. */
enum status normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                           const char *text, size_t bytes, bool continues, const char **text_out,
                           size_t *bytes_out, struct error *error);

#endif
