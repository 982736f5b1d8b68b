#include "tests/model/grammar/json_vocabulary.h"

#include "base/check.h"
#include "tests/model/text/small_vocabulary.h"

#define BLANK "\xc4\xa0" /* a space, as byte-level vocabularies write it */

struct text *json_vocabulary_open(void)
{
    static const struct small_vocabulary vocabulary = {
        .tokens = {{"<end>", SMALL_CONTROL},
                   {JSON_VOCABULARY_SPECIAL, SMALL_CONTROL},
                   {"{\"", SMALL_NORMAL},
                   {"\":", SMALL_NORMAL},
                   {"\":" BLANK "\"", SMALL_NORMAL},
                   {"\"," BLANK "\"", SMALL_NORMAL},
                   {"\"}", SMALL_NORMAL},
                   {"}}", SMALL_NORMAL},
                   {"[[", SMALL_NORMAL},
                   {"]]", SMALL_NORMAL},
                   {"," BLANK, SMALL_NORMAL},
                   {"12", SMALL_NORMAL},
                   {"true", SMALL_NORMAL},
                   {"\\u", SMALL_NORMAL},
                   {"\xc3\x83\xc2\xa9", SMALL_NORMAL}, // é
                   {"0.5", SMALL_NORMAL}},
    };
    return small_vocabulary_open(&vocabulary);
}

int32_t json_vocabulary_end(const struct text *text)
{
    const int32_t end = text_token_find(text, "<end>", 5);
    CHECK(end >= 0);
    return end;
}
