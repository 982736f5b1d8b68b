/* A model file with a vocabulary and no weights: ids 0-255 are the bytes, then some joined tokens
 * and the ChatML markers. Enough for everything the router does with text. */
#ifndef BATON_TESTS_ROUTER_TINY_TEXT_H
#define BATON_TESTS_ROUTER_TINY_TEXT_H

#include "model/text/text.h"

enum {
    TINY_HE = 256,  /* "he" */
    TINY_LL,        /* "ll" */
    TINY_HELL,      /* "hell" */
    TINY_HELLO,     /* "hello" */
    TINY_BYTES_END, /* <|endoftext|> */
    TINY_START,     /* <|im_start|> */
    TINY_END,       /* <|im_end|>, ends a generation */
    TINY_VOCAB,
    TINY_MORE_MAX = 8,
    TINY_CONTEXT = 16384,
};

/* Writes the file into the scratch folder of this process; the path (static). */
const char *tiny_model_path(void);
/* The same vocabulary in a file that is called "twin". */
const char *tiny_twin_path(void);
/* Another tokenizer, called "other": "hello" is four tokens, "he" and three bytes. */
const char *tiny_other_path(void);
/* Opened from the first file; aborts on failure. */
struct text *tiny_text_open(void);
/* The same with further special tokens, [count] from the id TINY_VOCAB on. */
struct text *tiny_text_open_with(const char *const *special, size_t count);

#endif
