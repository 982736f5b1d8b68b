/* The scan takes what the parser takes, and ends where the object ends. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "base/json_scan.h"
#include "base/random.h"

/* Bytes up to the end of the object; 0 where the scan says no or the text is over. */
static size_t scan_text(const char *text, size_t bytes)
{
    struct json_scan scan;
    json_scan_init(&scan);
    for (size_t i = 0; i < bytes; i++) {
        const enum json_scan_result result = json_scan_byte(&scan, text[i]);
        if (result == JSON_SCAN_DONE)
            return i + 1;
        if (result == JSON_SCAN_BAD)
            return 0;
    }
    return 0;
}

Test(json_scan, table)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"{}", true},
        {" \n{ \"a\" : [ ] , \"b\":{} }", true},
        {"{\"a\": [1, -0, 0.5, 1e5, 1E+5, -1.25e-3, 10]}", true},
        {"{\"a\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"}", true},
        {"{\"a\": [true, false, null, {\"b\": []}]}", true},
        {"[]", false},
        {"{\"a\": 01}", false},
        {"{\"a\": +1}", false},
        {"{\"a\": 1.}", false},
        {"{\"a\": .5}", false},
        {"{\"a\": 1e}", false},
        {"{\"a\": -}", false},
        {"{\"a\": tru}", false},
        {"{\"a\": nul}", false},
        {"{\"a\": \"\n\"}", false},
        {"{\"a\": \"\\x\"}", false},
        {"{\"a\": \"\\u12g4\"}", false},
        {"{\"a\" 1}", false},
        {"{\"a\": 1,}", false},
        {"{,}", false},
        {"{\"a\": [1,]}", false},
        {"{\"a\": [1}", false},
        {"{a: 1}", false},
        {"{'a': 1}", false},
        {"{\"a\": }", false},
        {"{\"a\": 1", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const size_t bytes = strlen(cases[i].text);
        cr_expect_eq(scan_text(cases[i].text, bytes), cases[i].good ? bytes : 0, "%s",
                     cases[i].text);
    }
}

Test(json_scan, depth_is_that_of_the_parser)
{
    for (size_t over = 0; over <= 1; over++) {
        char text[4 * JSON_DEPTH_MAX];
        const size_t arrays = JSON_DEPTH_MAX - 1 + over;
        memcpy(text, "{\"a\":", 5);
        memset(text + 5, '[', arrays);
        memset(text + 5 + arrays, ']', arrays);
        text[5 + 2 * arrays] = '}';
        const size_t bytes = 6 + 2 * arrays;
        cr_expect_eq(scan_text(text, bytes), over ? 0 : bytes);
        struct json *root;
        const enum status parsed = json_parse(text, bytes, &root, NULL);
        cr_expect_eq(parsed == STATUS_OK, over == 0);
        if (parsed == STATUS_OK)
            json_free(root);
    }
}

/* What is broken by one changed byte: both say no, or both say yes. The parser also refuses
 * repeated keys, bad UTF-8, half surrogates and numbers out of range: none can come about here. */
Test(json_scan, agrees_with_the_parser)
{
    static const char whole[] = "{\"k\": [1, -2.5e3, true, null, {\"x\": \"y\\n\"}], \"kk\": {}}";
    static const char bytes[] = "{}[],:\"\\ 019-+.etrufalsn\x01z";
    struct random random;
    random_init(&random, 7);
    uint32_t good = 0;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof whole];
        memcpy(text, whole, sizeof whole);
        for (uint32_t k = 0; k <= random_below(&random, 2); k++)
            text[random_below(&random, sizeof whole - 1)] =
                bytes[random_below(&random, sizeof bytes - 1)];
        struct json *root;
        const bool parsed = json_parse(text, sizeof whole - 1, &root, NULL) == STATUS_OK;
        const bool object = parsed && json_kind(root) == JSON_OBJECT;
        if (parsed)
            json_free(root);
        cr_assert_eq(scan_text(text, sizeof whole - 1) == sizeof whole - 1, object, "%s", text);
        good += object;
    }
    cr_expect_gt(good, 100);
}
