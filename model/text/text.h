/* The text half of a model: vocabulary, tokenizer, chat format. Needs no weights.
 *
 * The noun is `struct text`, opened from the model file's metadata and immutable afterwards: any
 * thread may use it. Ids are int32, text is bytes (NUL included). Special tokens in a user's text
 * stay text unless asked for. */
#ifndef BATON_MODEL_TEXT_TEXT_H
#define BATON_MODEL_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"

struct text;
struct gguf;

enum { TEXT_EOS_MAX = 8 };

struct text_info {
    uint32_t vocab_count;          /* ids are below this */
    uint32_t picked_count;         /* from here on only padding follows, which is never picked */
    int32_t bos, eos;              /* -1 when there is none */
    int32_t eos_ids[TEXT_EOS_MAX]; /* every id that ends a generation (eos, eot, <|im_end|>) */
    uint32_t eos_count;
    bool add_bos;            /* the tokenizer puts bos first */
    uint32_t context_tokens; /* the model's training context */
    struct digest128 digest; /* of the vocabulary, merges and rules */
    char name[64];           /* general.name, or the file's stem */
    char architecture[32];
};

/* Ids that grow; zero-initialised is empty. */
struct token_list {
    int32_t *ids;
    size_t count, capacity;
};
void token_list_add(struct token_list *list, int32_t id);
void token_list_clear(struct token_list *list);
void token_list_free(struct token_list *list);

enum status text_open(const char *path, struct text **text_out, struct error *error);
enum status text_open_gguf(const struct gguf *file, struct text **text_out, struct error *error);
void text_close(struct text *text);
const struct text_info *text_info(const struct text *text);

/* Appends the ids of `bytes` bytes. special: special tokens written in the text become their ids.
 * No bos is added. Work is O(n log n); invalid UTF-8 is tokenised byte by byte. LIMIT when more
 * than max_tokens ids would be held (the list then holds what fitted). Any thread. */
enum status text_encode(const struct text *text, const char *bytes, size_t count, bool special,
                        size_t max_tokens, struct token_list *ids, struct error *error);

/* The bytes a token stands for (byte-level alphabet undone); special tokens give their text. Empty
 * for an id outside the vocabulary. Owned by text. */
const char *text_token_bytes(const struct text *text, int32_t id, size_t *bytes_out);
bool text_token_special(const struct text *text, int32_t id);
/* -1 when no token has exactly this text. */
int32_t text_token_find(const struct text *text, const char *bytes, size_t count);

/* Incremental detokenising: appends whole characters only; bytes of an unfinished one are held
 * back. Special tokens add nothing when skip_special. The pieces concatenate to the whole. */
struct text_stream {
    const struct text *text;
    bool skip_special;
    bool raw;             /* bytes go out as they are, characters or not */
    bool at_start;        /* nothing has come out of a whole text yet */
    uint32_t strip_count; /* marks that still go where a whole text begins */
    uint8_t held[4];
    uint8_t held_count;
};
/* For what follows a prompt. */
void text_stream_init(struct text_stream *stream, const struct text *text, bool skip_special);
/* For a text from its beginning: a space that the tokenizer put in front of it goes again. */
void text_stream_init_whole(struct text_stream *stream, const struct text *text, bool skip_special);
void text_stream_push(struct text_stream *stream, int32_t id, struct buffer *out);
/* What is still held comes out as U+FFFD. */
void text_stream_finish(struct text_stream *stream, struct buffer *out);
/* Appends the bytes of a whole text, also those that are no characters. */
void text_decode(const struct text *text, const int32_t *ids, size_t count, struct buffer *out);

/* A conversation as a client sends it. What is NULL is not there. All of it stays the caller's. */
struct json;
struct jinja;
struct chat_input {
    /* An array of objects with a role. Parts of a content that are not text go to the template as
     * they are; arguments of tool calls may be objects or their text. */
    const struct json *messages;
    const struct json *tools, *documents; /* arrays */
    const struct json *reasoning_effort;
    const struct json *variables; /* an object: more variables of the template */
    const struct jinja *template; /* instead of the model's own (model/text/jinja/jinja.h) */
    bool add_generation_prompt;   /* opens the assistant's turn */
    bool continue_final_message;  /* the prompt ends within the last message */
    int64_t now_s;                /* what the template takes for now, seconds since 1970 */
};
/* The text of the template that conversations with tools go through; empty when there is none.
 * template: instead of the model's own, or NULL. Owned by text or template. */
const char *text_chat_source(const struct text *text, const struct jinja *template,
                             size_t *bytes_out);
/* The model's template rendered and tokenised, as transformers does it, but that nothing in a
 * message can become a control token: they are looked for in the template's own text only.
 * UNSUPPORTED when the model has no template that works, INVALID when it refuses the conversation,
 * LIMIT when it is too long or takes too long. Any thread. */
enum status text_encode_chat(const struct text *text, const struct chat_input *input,
                             size_t max_tokens, struct token_list *ids, struct error *error);
/* The same as text, for people. */
enum status text_render_chat(const struct text *text, const struct chat_input *input,
                             struct buffer *out, struct error *error);

#endif
