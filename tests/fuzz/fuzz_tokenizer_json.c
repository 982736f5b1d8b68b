/* Any bytes as a folder's tokenizer.json: opened or refused with a sentence, and what opened is
 * used. */
#include "base/check.h"
#include "model/text/text.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

const char *const fuzz_words[] = {
    "\"type\":\"Sequence\"",
    "\"normalizers\":[",
    "\"pretokenizers\":[",
    "\"decoders\":[",
    "\"type\":\"ByteLevel\"",
    "\"type\":\"Metaspace\"",
    "\"type\":\"Split\"",
    "\"type\":\"Replace\"",
    "\"type\":\"Unigram\"",
    "\"type\":\"BPE\"",
    "\"Regex\":\"",
    "\"String\":\"",
    "\\\\s+(?!\\\\S)",
    "(a*)*",
    "\\u0000",
    "\xe2\x96\x81",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "-1",
    "4294967296",
    "1e308",
    NULL,
};

enum { IDS_MAX = 4096 };

static void use(const struct text *text)
{
    static const char sample[] = "a ab\xc3\xa9 <s> 123 x\xff\n\n  hello";
    struct token_list ids = {0};
    struct buffer out = {0};
    struct error error;
    (void)text_encode(text, sample, sizeof sample - 1, true, IDS_MAX, &ids, &error);
    for (size_t i = 0; i < ids.count; i++)
        CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < text_info(text)->vocab_count);
    text_decode(text, ids.ids, ids.count, &out);
    token_list_free(&ids);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const name = "tokenizer.json";
    const char *folder = fuzz_folder(&name, 1);
    fuzz_file_fill(0, data, bytes);
    struct text *text = NULL;
    struct error error = {0};
    if (text_open(folder, &text, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    use(text);
    text_close(text);
    return 0;
}
