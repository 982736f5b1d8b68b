/* Cutting text into the pieces that byte-pair encoding may not cross.
 *
 * Each vocabulary was trained with one set of rules and gives other ids under any other, so rules
 * are known by name and never guessed. */
#ifndef BATON_MODEL_TEXT_PRETOKENIZE_H
#define BATON_MODEL_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct pretokenizer;

/* By its name in tokenizer.ggml.pre; UNSUPPORTED with the names there are. Immutable, any thread.
 */
enum status pretokenizer_create(const char *name, size_t name_bytes, struct pretokenizer **out,
                                struct error *error);
void pretokenizer_destroy(struct pretokenizer *pretokenizer); /* NULL is fine */
/* The canonical name: that of the rules, whatever alias the file uses. */
const char *pretokenizer_name(const struct pretokenizer *pretokenizer);
bool pretokenizer_normalizes(const struct pretokenizer *pretokenizer); /* NFC before cutting */
bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer);
bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer); /* unless the file says */

/* The pieces of well-formed UTF-8, in order; together they are the text. A status from on_piece
 * ends the run and is returned. LIMIT when the match limit is reached. */
typedef enum status (*pretokenize_piece)(void *arg, const char *piece, size_t bytes);
enum status pretokenize(const struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                        pretokenize_piece on_piece, void *arg, struct error *error);

#endif
