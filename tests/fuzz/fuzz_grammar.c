/* Any bytes as a regular expression or as rules; the first byte chooses which. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_masks.h"

const char *const fuzz_words[] = {
    "root ::= ", "\nroot ::= ", "a ::= ", "\na ::= ", "(a|b)", "[^\\w\\d]", "[a-z0-9_]", "{2,5}",
    "{3}",       "{2,}",        "*",      "+?",       "(?:",   "(?P<n>",    ")",         "|",
    "\\u00e9",   "\\x41",       "\\\\",   "^",        "$",     ".",         "\"text\"",  "\"\\\"\"",
    "\xc3\xa9",  "# note\n",    "\\S",    "(a*)*",    "a a",   "root",      "{1000}",    NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0)
        fuzz_source((data[0] & 1) != 0 ? GRAMMAR_EBNF : GRAMMAR_REGEX, (const char *)data + 1,
                    bytes - 1);
    return 0;
}
