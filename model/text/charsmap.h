/* The character map that SentencePiece compiles into a model: which characters, alone or with the
 * marks behind them, become which text.
 *
 * The file has it as base64 of: u32 bytes of a trie, the trie, and the replacements, UTF-8, each
 * ended by a NUL. The trie is a double array of u32 units (Darts-clone): bit 31 marks a value, the
 * place of a replacement; else the low 8 bits are the byte that leads here, bit 8 says that a value
 * hangs here, and the rest is the distance to the children, in units of 256 with bit 9. */
#ifndef BATON_MODEL_TEXT_CHARSMAP_H
#define BATON_MODEL_TEXT_CHARSMAP_H

#include "base/bytes.h"
#include "base/status.h"

struct charsmap;

enum { CHARSMAP_BYTES_MAX = 1 << 24 };

/* CORRUPT or LIMIT with what is wrong. Immutable, any thread. */
enum status charsmap_create(const char *base64, size_t bytes, struct charsmap **out,
                            struct error *error);
void charsmap_destroy(struct charsmap *charsmap); /* NULL is fine */

/* Appends the text with its characters replaced. As in the reference, a grapheme cluster of less
 * than 6 bytes is replaced as a whole by what its shortest known beginning becomes, and of longer
 * ones every character by itself. The text is well-formed UTF-8. False, with the rest left out,
 * once out has more than bytes_max bytes. */
bool charsmap_run(const struct charsmap *charsmap, const char *text, size_t bytes, size_t bytes_max,
                  struct buffer *out);

#endif
