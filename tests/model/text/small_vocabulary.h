/* Vocabularies for tests: 256 byte tokens (ids 0 … 255 are the bytes), a few merges, and what a
 * test adds. */
#ifndef BATON_TESTS_MODEL_SMALL_VOCABULARY_H
#define BATON_TESTS_MODEL_SMALL_VOCABULARY_H

#include <stdint.h>

#include "model/format/gguf_writer.h"
#include "model/text/text.h"

/* tokenizer.ggml.token_type */
enum {
    SMALL_NORMAL = 1,
    SMALL_CONTROL = 3,
    SMALL_USER_DEFINED = 4,
    SMALL_UNUSED = 5,
    SMALL_BYTE = 6
};

struct small_token {
    const char *text;
    int32_t type;
};

enum { SMALL_TOKENS_MAX = 16 };

/* Zero members take the usual value. */
struct small_vocabulary {
    const char *model; /* "gpt2" */
    const char *pre;   /* "gpt-2"; "-": no such key */
    const char *merge; /* one more merge, as in the file */
    const char *chat_template;
    bool without_types;
    struct small_token
        tokens[SMALL_TOKENS_MAX]; /* ids from SMALL_FIRST_ADDED on; ends at text NULL */
    void (*more_keys)(struct gguf_writer *writer);
};

/* Merged tokens follow the bytes: "he" "ll" "hell" "hello" " w" "aa" "aaaa" "\n\n". */
enum {
    SMALL_HE = 256,
    SMALL_LL,
    SMALL_HELL,
    SMALL_HELLO,
    SMALL_SPACE_W,
    SMALL_AA,
    SMALL_AAAA,
    SMALL_NEWLINES,
    SMALL_FIRST_ADDED,
};

enum status small_vocabulary_try(const struct small_vocabulary *vocabulary, struct text **out,
                                 struct error *error);
/* The same, failing the test when it does not open. */
struct text *small_vocabulary_open(const struct small_vocabulary *vocabulary);

/* The file's bytes, for tests that damage them; and opening what became of them. */
void small_vocabulary_bytes(const struct small_vocabulary *vocabulary, struct buffer *out);
enum status small_bytes_open(const struct buffer *bytes, struct text **out, struct error *error);

/* Ids of a text, up to 4096 of them; valid until the next call. */
const struct token_list *small_encode(const struct text *text, const char *bytes, size_t count,
                                      bool special);
bool small_ids_are(const struct token_list *list, const int32_t *ids, size_t count);

/* Folder of reference data, and the real model's path or NULL. */
const char *small_shared(void);
const char *small_real_model(void);
/* A whole file; false when it is not there. */
bool small_file_read(const char *path, struct buffer *out);

#endif
