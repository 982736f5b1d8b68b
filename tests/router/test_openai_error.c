/* What a client is told of a failure, and what not. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "router/openai_error.h"

Test(openai_error, places_are_hidden)
{
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"", ""},
        {"The server is shutting down.", "The server is shutting down."},
        {"the node at 10.0.0.2:7700 has gone", "the node at (address) has gone"},
        {"it was 10.0.0.2:7700.", "it was (address)."},
        {"[fe80::1%eth0]:80, node-3.lan:7700: no", "(address), (address): no"},
        {"\"127.0.0.1:1\" (and 127.0.0.1:2)", "\"(address)\" (and (address))"},
        {"writing /var/lib/baton/x.sqlite failed", "writing (path) failed"},
        {"20 tokens/s, 3 of 4: 17 / 2", "20 tokens/s, 3 of 4: 17 / 2"},
        {"`logit_bias[5]` is 7:123456", "`logit_bias[5]` is 7:123456"},
        {"A worker gave the request up: lost", "A worker gave the request up: lost"},
        {":80 ... :", ":80 ... :"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct openai_error error;
        openai_error_set(&error, 503, NULL, NULL, "%s", rows[i].from);
        openai_error_hide_places(&error);
        cr_expect_str_eq(error.message, rows[i].to, "%s became %s", rows[i].from, error.message);
    }
}

/* Hidden places may be longer than what they hide. */
Test(openai_error, long_messages_stay_in_their_room)
{
    struct openai_error error;
    char text[OPENAI_MESSAGE_BYTES];
    for (size_t bytes = OPENAI_MESSAGE_BYTES - 8; bytes < OPENAI_MESSAGE_BYTES; bytes++) {
        for (size_t i = 0; i < bytes; i++)
            text[i] = "a:1 "[i % 4];
        text[bytes] = '\0';
        openai_error_set(&error, 503, NULL, NULL, "%s", text);
        openai_error_hide_places(&error);
        cr_expect_lt(strlen(error.message), sizeof error.message);
        cr_expect(strncmp(error.message, "(address) (address) ", 20) == 0);
        memset(text, 'x', bytes);
        openai_error_set(&error, 503, NULL, NULL, "%s", text);
        openai_error_hide_places(&error);
        cr_expect_str_eq(error.message, text);
    }
}
