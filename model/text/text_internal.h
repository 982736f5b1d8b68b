/* The inside of `struct text`, shared by the files of this folder. Built once by text_open and only
 * read afterwards, but for the marks of `whole`, which are a cache with atomic access. */
#ifndef BATON_MODEL_TEXT_TEXT_INTERNAL_H
#define BATON_MODEL_TEXT_TEXT_INTERNAL_H

#include "model/text/bpe.h"
#include "model/text/decoder.h"
#include "model/text/normalizer.h"
#include "model/text/pretokenize.h"
#include "model/text/text.h"
#include "model/text/unigram.h"

enum {
    VOCABULARY_MAX = 1 << 21,  /* tokens */
    TOKEN_BYTES_MAX = 1 << 16, /* of one token's text */
};

/* As in tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* only where special tokens are asked for */
    TOKEN_USER_DEFINED = 4, /* found in any text, before everything else */
    TOKEN_UNUSED = 5,       /* padding rows */
    TOKEN_BYTE = 6,
};

/* How a special token is found. */
enum special_flag {
    SPECIAL_STRIP_LEFT = 1,  /* white space before it belongs to it */
    SPECIAL_STRIP_RIGHT = 2, /* and behind it */
    SPECIAL_WORD = 4,        /* only where no letter, digit or underscore touches it */
    SPECIAL_NORMALIZED = 8,  /* looked for in normalised text */
};

/* One token as a file has it. */
struct token_entry {
    const char *text; /* not terminated */
    size_t bytes;
    uint8_t type;  /* enum token_type; 0: no such id, which becomes an unused one */
    uint8_t flags; /* enum special_flag */
};

/* A trie over the bytes of the special tokens. */
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

/* What the smallest tokens of a model stand for. */
enum text_level { LEVEL_BYTES, LEVEL_CHARACTERS };

struct vocabulary {
    const char *path; /* for messages; valid while opening */
    uint32_t count;
    struct buffer texts;   /* what the model matches: byte alphabet undone at LEVEL_BYTES */
    uint32_t *text_starts; /* [count + 1] into texts */
    struct buffer bytes;   /* what the tokens stand for */
    uint32_t *starts;      /* [count + 1] into bytes */
    uint8_t *types;        /* enum token_type */
    uint8_t *flags;        /* enum special_flag */
    int32_t byte_ids[256]; /* the token of a byte, -1 */
    uint32_t longest;      /* bytes of the longest text of an ordinary token */
    uint32_t *slots;       /* id + 1 by the keyed hash of the token's text; 0: empty */
    size_t slot_mask;
    uint64_t key;
    struct special_tokens special;    /* looked for in the text as it is */
    struct special_tokens normalized; /* in normalised text; filled by who has a normalizer */
};

enum text_model {
    MODEL_MERGES,  /* pairs in a list merge, in its order */
    MODEL_SCORES,  /* pairs that make a token merge, best score first */
    MODEL_UNIGRAM, /* the likeliest way to cut a piece */
};

/* The templates of a model. */
struct chat_format {
    struct jinja *plain, *with_tools; /* NULL: there is none */
    char fault[ERROR_TEXT_BYTES];     /* why one does not compile; empty: they do */
};

struct text {
    struct text_info info;
    struct vocabulary vocabulary;
    enum text_level level;
    enum text_model model;
    struct bpe *bpe;         /* MODEL_MERGES, MODEL_SCORES */
    uint32_t *ranks;         /* [vocab_count] MODEL_SCORES: 0 is the best score */
    struct unigram *unigram; /* MODEL_UNIGRAM */
    struct normalizer *normalizer;
    struct pretokenizer *pretokenizer;
    struct decoder *decoder;
    bool ignore_merges;     /* a piece that is a token is that token */
    bool byte_fallback;     /* characters without a token become the tokens of their bytes */
    bool fuse_unknown;      /* neighbours without a token share one `unknown` */
    int32_t unknown;        /* -1: what has no token is left out */
    struct buffer rules;    /* all that is not in the vocabulary, for the digest */
    _Atomic uint8_t *whole; /* [vocab_count] 1: the model makes this token of its text */
    struct chat_format chat;
};

/* Fills everything from count tokens, which are not needed afterwards. On failure vocabulary_free
 * still has to run. Tokens that steer a chat under every vocabulary become control tokens, whatever
 * the file calls them. path: for messages. */
enum status vocabulary_fill(struct vocabulary *vocabulary, struct token_entry *tokens,
                            uint64_t count, enum text_level level, const struct decoder *decoder,
                            const char *path, struct error *error);
void vocabulary_free(struct vocabulary *vocabulary);
/* Id of an ordinary or special token with this text, -1. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t bytes);
/* The same, -1 also for tokens that no text may become. */
int32_t vocabulary_find_ordinary(const struct vocabulary *vocabulary, const char *text,
                                 size_t bytes);
const char *vocabulary_text(const struct vocabulary *vocabulary, int32_t id, size_t *bytes_out);
const char *vocabulary_bytes(const struct vocabulary *vocabulary, int32_t id, size_t *count_out);
/* Whether id is in the vocabulary, with a message that names what `what` says. */
enum status vocabulary_check_id(const struct vocabulary *vocabulary, const char *what, int64_t id,
                                struct error *error);

void special_tokens_init(struct special_tokens *special);
void special_tokens_add(struct special_tokens *special, const char *text, size_t bytes, int32_t id);
void special_tokens_free(struct special_tokens *special);
/* The longest special token at the start of text: control tokens only if `control`. -1 for none. */
int32_t special_tokens_match(const struct special_tokens *special, const uint8_t *types,
                             bool control, const char *text, size_t bytes, size_t *bytes_out);

/* A merge by the texts of both sides, as the file writes them: CORRUPT when they or their
 * concatenation are no tokens. rank is for the message. Merges to a control token are dropped. */
enum status merge_add(struct text *text, const char *left, size_t left_bytes, const char *right,
                      size_t right_bytes, uint64_t rank, struct error *error);
/* Where no token reaches from one word into the next one, words become pieces of their own: short
 * pieces are looked up at once. For models whose spaces are U+2581. */
enum status words_cut(struct text *text, struct error *error);

enum status text_read_gguf(struct text *text, const struct gguf *file, struct error *error);
/* path: a folder. */
enum status text_read_folder(struct text *text, const char *path, struct error *error);
/* The ids that end a generation: adds one that is not there yet. LIMIT beyond TEXT_EOS_MAX. */
enum status text_end_add(struct text *text, int32_t id, struct error *error);
/* Adds the control tokens that end a turn or a text under every vocabulary that has them. */
void text_ends_by_name(struct text *text);
/* As much of a string as fits, in whole characters, terminated. */
void text_copy(char *out, size_t room, const char *data, size_t bytes);

/* Compiles the model's templates; one that does not compile is told once, and kept as the fault.
 * Each may be empty. path: for messages. */
void chat_format_read(struct chat_format *chat, const struct vocabulary *vocabulary,
                      struct buffer plain, struct buffer with_tools, const char *path);
void chat_format_free(struct chat_format *chat);

/* text_encode that finds control tokens only where no byte of them is marked. marks: a byte for
 * each of bytes, 1: no part of a control token. */
enum status text_encode_marked(const struct text *text, const char *bytes, const uint8_t *marks,
                               size_t count, size_t max_tokens, struct token_list *ids,
                               struct error *error);

#endif
