/* The inside of `struct text`, shared by the files of this folder. Built once by text_open_gguf and
 * only read afterwards, but for the marks of `whole`, which are a cache with atomic access. */
#ifndef BATON_MODEL_TEXT_TEXT_INTERNAL_H
#define BATON_MODEL_TEXT_TEXT_INTERNAL_H

#include "model/format/gguf.h"
#include "model/text/bpe.h"
#include "model/text/pretokenize.h"
#include "model/text/text.h"

enum {
    VOCABULARY_MAX = 1 << 21,  /* tokens */
    TOKEN_BYTES_MAX = 1 << 16, /* of one token's text */
};

/* tokenizer.ggml.token_type */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* only where special tokens are asked for */
    TOKEN_USER_DEFINED = 4, /* found in any text, before everything else */
    TOKEN_UNUSED = 5,       /* padding rows */
    TOKEN_BYTE = 6,
};

/* A text that became one token, in the order of its bytes: a trie for the special tokens. */
struct special_node {
    int32_t child, sibling; /* -1: none */
    int32_t id;             /* token that ends here, -1: none */
    uint8_t byte;
};

struct special_tokens {
    struct special_node *nodes;
    size_t count, capacity;
    int32_t root[256]; /* first nodes by first byte, -1: none */
};

struct vocabulary {
    uint32_t count;
    struct buffer bytes; /* of all tokens, one after another */
    uint32_t *starts;    /* [count + 1] into bytes */
    uint8_t *types;      /* enum token_type */
    int32_t byte_ids[256];
    uint32_t *slots; /* id + 1 by the hash of the token's bytes; 0: empty */
    size_t slot_mask;
    struct special_tokens special;
};

enum chat_kind { CHAT_NONE, CHAT_CHATML };

struct chat_format {
    enum chat_kind kind;
    int32_t turn_start, turn_end;
    bool bos_first;    /* the template begins with the bos token */
    bool tool_as_user; /* tool answers come as <tool_response> in a user turn */
    bool has_default_system;
    struct buffer default_system; /* content of the system turn that the template adds */
};

struct text {
    struct text_info info;
    struct vocabulary vocabulary;
    struct bpe *bpe;
    struct pretokenizer *pretokenizer;
    bool normalize;         /* NFC first */
    bool ignore_merges;     /* a piece that is a token is that token */
    _Atomic uint8_t *whole; /* [vocab_count] 1: BPE makes this token of its bytes */
    struct chat_format chat;
};

/* Fills everything but info and chat; on failure vocabulary_free still has to run. */
enum status vocabulary_read(struct vocabulary *vocabulary, const struct gguf *file,
                            struct error *error);
void vocabulary_free(struct vocabulary *vocabulary);
/* Id of an ordinary or special token with these bytes, -1. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count);
const char *vocabulary_bytes(const struct vocabulary *vocabulary, int32_t id, size_t *count_out);

void special_tokens_init(struct special_tokens *special);
void special_tokens_add(struct special_tokens *special, const char *text, size_t bytes, int32_t id);
void special_tokens_free(struct special_tokens *special);
/* The longest special token at the start of text: control tokens only if `control`. -1 for none. */
int32_t special_tokens_match(const struct special_tokens *special, const uint8_t *types,
                             bool control, const char *text, size_t bytes, size_t *bytes_out);

enum status chat_format_read(struct chat_format *chat, const struct vocabulary *vocabulary,
                             const struct gguf *file, struct error *error);

#endif
