/* The key file line by line, and the buckets on a clock of the test's own. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/clock.h"
#include "router/api_keys.h"
#include "tests/router/scratch_folder.h"

#define KEY "sk-0123456789abcdef"

static const char *write_file(const char *text)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/keys", scratch_folder());
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
    cr_assert_eq(chmod(path, 0600), 0);
    return path;
}

static struct api_keys *load(const char *text)
{
    struct api_keys *keys = NULL;
    struct error error = {.text = ""};
    cr_assert_eq(api_keys_load(write_file(text), &keys, &error), STATUS_OK, "%s", error.text);
    return keys;
}

Test(api_keys, files_that_are_refused)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "has no key: nobody could use the API"},
        {"# nothing\n\n  \n", "has no key"},
        {"short acme\n", "a key of 5 bytes; it must have 16 to 256"},
        {"# one\n" KEY "\n", "line 2 of the key file"},
        {KEY "\n", "has no tenant name"},
        {KEY " ac/me\n", "has a tenant name with something else"},
        {KEY " acme requests=0\n", "has the limit requests=0; it goes from 1 to 1000000000"},
        {KEY " acme tokens=1000000001\n", "it goes from 1"},
        {KEY " acme tokens=99999999999999999999999\n", "it goes from 1"},
        {KEY " acme tokens=\n", "has the limit tokens="},
        {KEY " acme tokens=-5\n", "has the limit tokens=-5"},
        {KEY " acme tokens=1e3\n", "has the limit tokens=1e3"},
        {KEY " acme bytes=5\n", "none of operator, requests=N and tokens=N"},
        {KEY " acme tokens=5 tokens=6\n", "has one limit twice"},
        {KEY " acme operator tokens=5 requests=6 tokens=7\n",
         "more than a key, a name, operator and two limits"},
        {KEY " acme\n" KEY " other\n", "line 2"},
        {"sk-\xc3\xa9-0123456789abcdef acme\n", "not printable ASCII"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct api_keys *keys = NULL;
        struct error error = {.text = ""};
        cr_expect_eq(api_keys_load(write_file(rows[i].text), &keys, &error), STATUS_INVALID,
                     "%s was taken", rows[i].text);
        cr_expect(strstr(error.text, rows[i].words), "%s: %s", rows[i].text, error.text);
        cr_expect_null(strstr(error.text, KEY), "a key is shown: %s", error.text);
    }
}

Test(api_keys, what_is_no_file_is_refused)
{
    struct api_keys *keys = NULL;
    struct error error;
    cr_expect_eq(api_keys_load("/nowhere/keys", &keys, &error), STATUS_IO);
    cr_expect(strstr(error.text, "/nowhere/keys"));
    cr_expect_eq(api_keys_load(scratch_folder(), &keys, &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "no ordinary file"), "%s", error.text);
}

Test(api_keys, a_line_longer_than_all_is_refused)
{
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    struct api_keys *keys = NULL;
    struct error error;
    cr_expect_eq(api_keys_load(write_file(text), &keys, &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "more than 1022 bytes"), "%s", error.text);
}

Test(api_keys, more_keys_than_the_limit_are_refused)
{
    static char text[API_KEYS_MAX * 40 + 100];
    size_t used = 0;
    for (int i = 0; i < API_KEYS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, KEY "-%04d t%d\n", i, i);
    struct api_keys *keys = load(text);
    cr_expect_eq(api_keys_count(keys), API_KEYS_MAX);
    cr_expect_str_eq(api_key_tenant(api_keys_find(keys, KEY "-1023")), "t1023");
    api_keys_destroy(keys);
    snprintf(text + used, sizeof text - used, KEY "-more t\n");
    struct error error;
    cr_expect_eq(api_keys_load(write_file(text), &keys, &error), STATUS_LIMIT);
    cr_expect(strstr(error.text, "more than 1024 keys"), "%s", error.text);
}

Test(api_keys, are_found_whole_or_not_at_all)
{
    struct api_keys *keys =
        load("# tenants\n" KEY " acme requests=60\n\n" KEY "2\tdeli operator\r\n");
    cr_expect_eq(api_keys_count(keys), 2);
    cr_expect_str_eq(api_key_tenant(api_keys_find(keys, KEY)), "acme");
    cr_expect_str_eq(api_key_tenant(api_keys_find(keys, KEY "2")), "deli");
    cr_expect(!api_key_is_operator(api_keys_find(keys, KEY)));
    cr_expect(api_key_is_operator(api_keys_find(keys, KEY "2")));
    static const char *const others[] = {"", "sk", KEY "3", KEY " ", "SK-0123456789ABCDEF", "acme"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        cr_expect_null(api_keys_find(keys, others[i]), "\"%s\" was found", others[i]);
    api_keys_destroy(keys);
}

static const uint64_t begin_ns = 5 * (uint64_t)NS_PER_S;

Test(api_keys, requests_fill_evenly)
{
    struct api_keys *keys = load(KEY " acme requests=6\n");
    struct api_key *key = api_keys_find(keys, KEY);
    uint32_t retry_s = 0;
    for (int i = 0; i < 6; i++)
        cr_expect_eq(api_key_admit(key, begin_ns, &retry_s), API_WITHIN);
    cr_expect_eq(api_key_admit(key, begin_ns, &retry_s), API_OVER_REQUESTS);
    cr_expect_eq(retry_s, 10, "%u s", retry_s);
    cr_expect_eq(api_key_limit(key, API_OVER_REQUESTS), 6);
    /* What was refused took nothing; after the time told there is one. */
    const uint64_t then_ns = begin_ns + 10 * (uint64_t)NS_PER_S;
    cr_expect_eq(api_key_admit(key, then_ns - NS_PER_S, &retry_s), API_OVER_REQUESTS);
    cr_expect_eq(retry_s, 1);
    cr_expect_eq(api_key_admit(key, then_ns, &retry_s), API_WITHIN);
    cr_expect_eq(api_key_admit(key, then_ns, &retry_s), API_OVER_REQUESTS);
    /* It never holds more than a minute's worth. */
    const uint64_t late_ns = begin_ns + 3600 * (uint64_t)NS_PER_S;
    for (int i = 0; i < 6; i++)
        cr_expect_eq(api_key_admit(key, late_ns, &retry_s), API_WITHIN);
    cr_expect_eq(api_key_admit(key, late_ns, &retry_s), API_OVER_REQUESTS);
    api_keys_destroy(keys);
}

Test(api_keys, tokens_may_be_owed)
{
    struct api_keys *keys = load(KEY " acme tokens=60\n");
    struct api_key *key = api_keys_find(keys, KEY);
    uint32_t retry_s = 0;
    cr_expect_eq(api_key_admit(key, begin_ns, &retry_s), API_WITHIN);
    api_key_charge(key, 100, begin_ns);
    cr_expect_eq(api_key_admit(key, begin_ns, &retry_s), API_OVER_TOKENS);
    cr_expect_eq(retry_s, 41, "40 are owed and one is needed: %u s", retry_s);
    cr_expect_eq(api_key_admit(key, begin_ns + 41 * (uint64_t)NS_PER_S, &retry_s), API_WITHIN);
    api_keys_destroy(keys);
}

Test(api_keys, without_limits_all_is_within)
{
    struct api_keys *keys = load(KEY " acme\n");
    struct api_key *key = api_keys_find(keys, KEY);
    uint32_t retry_s = 0;
    for (int i = 0; i < 10000; i++) {
        api_key_charge(key, 1000000, begin_ns);
        cr_assert_eq(api_key_admit(key, begin_ns, &retry_s), API_WITHIN);
    }
    api_keys_destroy(keys);
}
