/* Structured output: which tokens may come next so that an answer fits a grammar.
 *
 * A source (JSON schema, regular expression, choice, grammar rules, or a structure of these) is
 * compiled to a `struct grammar`: automata over bytes that call one another. A program joins it to
 * a vocabulary and keeps the masks of the positions that were met; a matcher is where one answer
 * stands. The central verb is grammar_matcher_mask. Whatever is written through the masks fits the
 * source, and where the number of tokens allows it at all, is complete when they run out.
 *
 * What JSON looks like: members in the schema's order, those it does not require may be left out;
 * after `{`, `[`, `,` and before `}`, `]` nothing, one blank, or a line break and at most 16 blanks
 * or tabs; after `:` nothing or one blank; numbers of at most 18 digits before and 17 after the
 * point and two of an exponent. An object whose schema names properties has no others unless
 * additionalProperties says so. What a schema asks for is never left out: a keyword that cannot be
 * kept is refused by its name and path. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct text;

/* The numbers travel in jobs, where 0 is none. */
enum grammar_kind {
    GRAMMAR_JSON_SCHEMA = 1, /* a JSON schema (2020-12, and what older drafts write the same way) */
    GRAMMAR_JSON_OBJECT,     /* any JSON object; the source is not looked at */
    GRAMMAR_REGEX,  /* the whole answer matches; Python's syntax without what looks around */
    GRAMMAR_CHOICE, /* a JSON array of strings, one of which is the answer */
    GRAMMAR_EBNF,   /* rules as llama.cpp writes them (GBNF); the first or `root` begins */
    /* {"parts":[PART...],"repeat":[MIN,MAX],"separator":"…"}: the parts one after the other, the
     * whole MIN to MAX times with the separator between (both default to once). PART is one of
     * {"text":"…"}, {"special":"…"} (exactly this special token of the vocabulary),
     * {"schema":SCHEMA}, {"regex":"…"} and {"any":[STRUCTURE...]} (one of them). */
    GRAMMAR_STRUCTURE,
};

enum {
    GRAMMAR_SOURCE_BYTES_MAX = 256 << 10,
    GRAMMAR_DEPTH_MAX = 256, /* calls of rules within one another: nested arrays, brackets */
    GRAMMAR_REPEAT_MAX = 4096,
    GRAMMAR_SPECIALS_MAX = 32,             /* different special tokens of a structure */
    GRAMMAR_COMPILE_BYTES_MAX = 128 << 20, /* that compiling may hold for a moment */
};

struct grammar;
/* Pure, any thread, in bounded time (some hundred milliseconds for the worst source) and memory.
 * INVALID for a source that is malformed or that nothing fits, UNSUPPORTED for what cannot be kept,
 * LIMIT for one that grows too large; the sentence begins with the place: `#/properties/a: …` in a
 * schema, `column 7: …` in a regular expression, `line 2, column 7: …` in rules. *out is set on
 * STATUS_OK only, and immutable. */
enum status grammar_compile(enum grammar_kind kind, const char *source, size_t bytes,
                            struct grammar **out, struct error *error);
void grammar_free(struct grammar *grammar); /* NULL is fine */

/* A vocabulary laid out for walking; immutable, any thread. Keeps nothing of `text`'s but its
 * address, which must outlive it. Aborts without memory: start-up only. */
struct grammar_tokens;
struct grammar_tokens *grammar_tokens_create(const struct text *text);
void grammar_tokens_destroy(struct grammar_tokens *tokens); /* NULL is fine */
/* uint32 words of a mask: one bit for each id of the vocabulary. */
size_t grammar_mask_words(const struct grammar_tokens *tokens);

/* A grammar over a vocabulary, shared by every answer with the same source. Create it on any
 * thread; its masks are kept while answers are written, so that its matchers belong to one thread.
 * Takes the grammar, also when it fails. cache_bytes: what kept masks may take, at least 64 KiB and
 * three masks; when it is full they are worked out anew. The first mask of an answer is worked out
 * at once. UNSUPPORTED when the vocabulary lacks a special token of the grammar, or bytes without
 * which no answer ends; LIMIT when the first mask meets one. */
struct grammar_program;
enum status grammar_program_create(struct grammar *grammar, const struct grammar_tokens *tokens,
                                   size_t cache_bytes, struct grammar_program **out,
                                   struct error *error);
void grammar_program_destroy(struct grammar_program *program);       /* NULL is fine */
size_t grammar_program_bytes(const struct grammar_program *program); /* memory held, cache full */

/* Where one answer stands: about 50 KiB of a fixed size, from a pool or of its own. The thread of
 * its program. A matcher does not own its program. */
struct grammar_matcher;
struct grammar_matcher *grammar_matcher_create(void); /* aborts without memory: start-up only */
void grammar_matcher_destroy(struct grammar_matcher *matcher); /* NULL is fine */
/* To the beginning of an answer. */
void grammar_matcher_init(struct grammar_matcher *matcher, struct grammar_program *program);
void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from);

/* Goes on by one token. False, and nothing changed, when it does not fit or (see
 * grammar_matcher_limit) a limit was met. Never for an id that ends an answer. */
bool grammar_matcher_accept(struct grammar_matcher *matcher, int32_t id);
/* The limit that was met (ambiguities open at once, or the work for all of them and for masks that
 * were not met before, some ten milliseconds), as a sentence with its value; NULL: none was. Masks
 * give LIMIT from then on. */
const char *grammar_matcher_limit(const struct grammar_matcher *matcher);
/* Writes mask[grammar_mask_words]: exactly the ids that grammar_matcher_accept takes, less those
 * after which the shortest end would not fit into tokens_left - 1 more tokens (one is kept for an
 * id of `ends`, if there are any and there is room), and the ids of `ends` where the answer may
 * end. tokens_left: what the answer may still have, this one included; when even the shortest end
 * does not fit, it is not looked at. LIMIT as above; NOT_FOUND when there is nothing to allow,
 * which is so only where the answer may end, nothing more fits, and there are no ends. */
enum status grammar_matcher_mask(struct grammar_matcher *matcher, uint32_t tokens_left,
                                 const int32_t *ends, uint32_t end_count, uint32_t *mask);
bool grammar_matcher_can_end(const struct grammar_matcher *matcher);
/* Nothing else can follow. */
bool grammar_matcher_must_end(const struct grammar_matcher *matcher);
/* Tokens of the shortest end from here, none for an id that ends; UINT32_MAX: over 2^31. */
uint32_t grammar_matcher_rest(const struct grammar_matcher *matcher);

#endif
