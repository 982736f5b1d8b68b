/* The lists of patterns that tokenizer.ggml.pre names. Each pattern's matches become pieces, and so
 * does what lies between them. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/text/pretokenize.h"
#include "model/text/unicode_classes_internal.h"

#define LETTERS         "[" CLASS_LETTERS "]+"
#define NUMBER          "[" CLASS_NUMBERS "]"
#define SPACES          "[" CLASS_SPACES "]+"
#define SPACE           "[" CLASS_SPACES "]"
#define SPACES_BUT_LAST "[" CLASS_SPACES "]+(?![^" CLASS_SPACES "])" /* at the end of text: all */
#define SYMBOLS         " ?[^" CLASS_SPACES CLASS_LETTERS CLASS_NUMBERS "]+"

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?" LETTERS "| ?" NUMBER "+|" SYMBOLS "|" SPACES_BUT_LAST "|" SPACES
/* Llama 3 and Qwen2 differ in how many digits stand together. */
#define CL100K_PATTERN(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" CLASS_LETTERS CLASS_NUMBERS "]?" LETTERS "|" digits    \
    "|" SYMBOLS "[\\r\\n]*|[" CLASS_SPACES "]*[\\r\\n]+|" SPACES_BUT_LAST "|" SPACES

/* The letters of the DeepSeek LLM pattern: those of scripts with two cases. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{00b5}\\x{00c0}-\\x{00d6}\\x{00d8}-\\x{00f6}\\x{00f8}-\\x{01ba}"                     \
    "\\x{01bc}-\\x{01bf}\\x{01c4}-\\x{0293}\\x{0295}-\\x{02af}\\x{0370}-\\x{0373}\\x{0376}"        \
    "\\x{0377}\\x{037b}-\\x{037d}\\x{037f}\\x{0386}\\x{0388}-\\x{038a}\\x{038c}"                   \
    "\\x{038e}-\\x{03a1}\\x{03a3}-\\x{03f5}\\x{03f7}-\\x{0481}\\x{048a}-\\x{052f}"                 \
    "\\x{0531}-\\x{0556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"                 \
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                 \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"                 \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"         \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"        \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"                 \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"         \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"                   \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"         \
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                  \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"                 \
    "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                 \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"           \
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const struct pretokenize_rules all_rules[] = {
    {"smollm ", {"[" CLASS_NUMBERS CLASS_DIGITS_LATER "]", GPT2_PATTERN}, false, false, false},
    {"gpt-2 gpt2 ", {GPT2_PATTERN}, false, false, false},
    {"qwen2 deepseek-r1-qwen ", {CL100K_PATTERN(NUMBER)}, true, false, false},
    {"llama-bpe llama3 llama-v3 ", {CL100K_PATTERN(NUMBER "{1,3}")}, false, true, true},
    {"deepseek-llm ",
     {"[\\r\\n]", SPACE "?[" CASED_LETTERS "]+",
      SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
            "\\x{3000}-\\x{3002}]+",
      "(?<!" SPACE ")" SPACES "$", CJK, NUMBER},
     false,
     false,
     false},
    {"deepseek-coder ",
     {"[\\r\\n]", SPACE "?" LETTERS, SPACE "?[" CLASS_PUNCTUATION_UNICODE "]+", CJK, NUMBER},
     false,
     false,
     false},
    {"deepseek-v3 ",
     {NUMBER "{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\r\\n" CLASS_LETTERS CLASS_PUNCTUATION_UNICODE CLASS_SYMBOLS
      "]?[" CLASS_LETTERS CLASS_MARKS "]+|"
      " ?[" CLASS_PUNCTUATION_UNICODE CLASS_SYMBOLS "]+[\\r\\n]*|[" CLASS_SPACES
      "]*[\\r\\n]+|" SPACES_BUT_LAST "|" SPACES},
     false,
     false,
     false},
    /* What converters write for a vocabulary they do not know. */
    {"default ",
     {"[" CLASS_PUNCTUATION_UNICODE "\\$\\+<=>\\^~\\|]+", GPT2_PATTERN, NUMBER "+",
      "[0-9][0-9][0-9]"},
     false,
     false,
     false},
};

static bool name_is(const char *names, const char *name, size_t bytes)
{
    for (const char *at = names; *at != '\0'; at = strchr(at, ' ') + 1)
        if (strcspn(at, " ") == bytes && memcmp(at, name, bytes) == 0)
            return true;
    return false;
}

const struct pretokenize_rules *pretokenize_rules_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < ARRAY_COUNT(all_rules) && bytes > 0; i++)
        if (name_is(all_rules[i].names, name, bytes))
            return &all_rules[i];
    return NULL;
}

enum status pretokenizer_add_named(struct pretokenizer *pretokenizer, const char *name,
                                   size_t bytes, struct error *error)
{
    const struct pretokenize_rules *rules = pretokenize_rules_find(name, bytes);
    if (rules == NULL) {
        char known[160] = "";
        for (size_t i = 0; i < ARRAY_COUNT(all_rules); i++) {
            const size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s", all_rules[i].names);
        }
        return error_set(error, STATUS_UNSUPPORTED,
                         "the pre-tokenizer '%.*s' (tokenizer.ggml.pre) is not known, Baton has: "
                         "%s",
                         bytes < 40 ? (int)bytes : 40, name, known);
    }
    for (size_t i = 0; i < ARRAY_COUNT(rules->patterns) && rules->patterns[i] != NULL; i++)
        TRY(pretokenizer_add_pattern(pretokenizer, pattern_create_own(rules->patterns[i]),
                                     CUT_ISOLATED, false, error));
    return STATUS_OK;
}
