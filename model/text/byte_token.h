/* Tokens that stand for one byte, in vocabularies of characters: "<0x00>" to "<0xFF>". */
#ifndef BATON_MODEL_TEXT_BYTE_TOKEN_H
#define BATON_MODEL_TEXT_BYTE_TOKEN_H

#include <stddef.h>
#include <string.h>

static inline int byte_token_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte; -1 for any other text. */
static inline int byte_token_parse(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const int high = byte_token_digit(text[3]);
    const int low = byte_token_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

#endif
