/* Any bytes as a JSON schema, a structure or a choice; the first byte chooses which. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_masks.h"

const char *const fuzz_words[] = {"{\"type\":\"object\",\"properties\":{\"a\":",
                                  "\"required\":[\"a\"]",
                                  "\"additionalProperties\":",
                                  "\"patternProperties\":{\"^x\":",
                                  "{\"type\":\"array\",\"items\":",
                                  "\"prefixItems\":[",
                                  "\"minItems\":2",
                                  "\"maxItems\":3",
                                  "{\"type\":\"string\"",
                                  "\"pattern\":\"^[a-c]+$\"",
                                  "\"format\":\"date-time\"",
                                  "\"minLength\":3",
                                  "\"maxLength\":70",
                                  "{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":1e3}",
                                  "{\"type\":\"integer\",\"maximum\":99}",
                                  "\"enum\":[1,\"a\",null]",
                                  "\"const\":{\"a\":[]}",
                                  "\"anyOf\":[",
                                  "\"oneOf\":[",
                                  "\"allOf\":[",
                                  "{\"$ref\":\"#\"}",
                                  "{\"$ref\":\"#/$defs/a\"}",
                                  "\"$defs\":{\"a\":",
                                  "{\"parts\":[{\"text\":\"a\"},{\"schema\":",
                                  "{\"special\":\"[CALL]\"}",
                                  "\"repeat\":[0,3],\"separator\":\", \"",
                                  "{\"any\":[{\"parts\":[",
                                  "]}",
                                  "}",
                                  ",",
                                  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const enum grammar_kind kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_STRUCTURE,
                                              GRAMMAR_CHOICE, GRAMMAR_JSON_SCHEMA};
    if (bytes > 0)
        fuzz_source(kinds[data[0] & 3], (const char *)data + 1, bytes - 1);
    return 0;
}
