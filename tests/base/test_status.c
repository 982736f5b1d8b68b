#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

Test(status, names_sentences_and_scopes_come_from_the_table)
{
    cr_assert_str_eq(status_name(STATUS_OK), "OK");
    cr_assert_str_eq(status_name(STATUS_NO_MEMORY), "NO_MEMORY");
    cr_assert_str_eq(status_sentence(STATUS_TIMEOUT), "a deadline passed");
    cr_assert_eq(status_scope(STATUS_TIMEOUT), SCOPE_CONNECTION);
    cr_assert_eq(status_scope(STATUS_AGAIN), SCOPE_NONE);
    cr_assert_str_eq(status_name((enum status)4711), "UNKNOWN");
}

Test(status, failures_are_negative_and_progress_is_positive)
{
#define X(name, value, scope, sentence)                                                            \
    cr_assert((value) == 0 || ((value) > 0) == (SCOPE_##scope == SCOPE_NONE), #name);
#include "base/status.def"
#undef X
}

Test(status, error_set_fills_and_returns)
{
    struct error error;
    cr_assert_eq(error_set(&error, STATUS_LIMIT, "%d is over %s", 7, "five"), STATUS_LIMIT);
    cr_assert_eq(error.status, STATUS_LIMIT);
    cr_assert_str_eq(error.text, "7 is over five");
    cr_assert_eq(error_set(NULL, STATUS_BUSY, "nobody reads this"), STATUS_BUSY);
}

Test(status, error_set_errno_appends_the_cause_and_keeps_it)
{
    struct error error;
    errno = ENOENT;
    cr_assert_eq(error_set_errno(&error, STATUS_IO, "opening %s", "x"), STATUS_IO);
    cr_assert_str_eq(error.text, "opening x: No such file or directory");
    cr_assert_eq(errno, ENOENT);
    cr_assert_eq(error_set_errno(NULL, STATUS_IO, "x"), STATUS_IO);
}

Test(status, a_long_text_is_cut_on_a_character)
{
    char text[2 * ERROR_TEXT_BYTES];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 4);
        struct error error;
        error_set(&error, STATUS_INVALID, "%s", text);
        const size_t bytes = strlen(error.text);
        cr_assert(bytes >= ERROR_TEXT_BYTES - 3 && bytes < ERROR_TEXT_BYTES);
        cr_assert(utf8_valid(error.text, bytes));
        errno = EIO; /* no room is left for the cause; the text stays terminated */
        error_set_errno(&error, STATUS_INVALID, "%s", text);
        cr_assert_lt(strlen(error.text), (size_t)ERROR_TEXT_BYTES);
    }
}

static enum status half(int value, int *out)
{
    if (value % 2)
        return STATUS_INVALID;
    *out = value / 2;
    return STATUS_OK;
}

static enum status quarter(int value, int *out)
{
    int once = 0;
    TRY(half(value, &once));
    TRY(half(once, out));
    return STATUS_OK;
}

Test(status, try_passes_failures_on)
{
    int out = -1;
    cr_assert_eq(quarter(6, &out), STATUS_INVALID);
    cr_assert_eq(out, -1);
    cr_assert_eq(quarter(8, &out), STATUS_OK);
    cr_assert_eq(out, 2);
}

Test(status, what_is_quoted_does_nothing_to_a_terminal)
{
    struct error error;
    error_set(&error, STATUS_CORRUPT, "'%s'",
              "a\x1b[2J\nb\x7f\xc2\x9b\xff\xe2\x82 \xc3\xa9\xe2\x82\xac");
    cr_assert_str_eq(error.text, "'a?[2J?b??????\x20\xc3\xa9\xe2\x82\xac'");
    error_set(&error, STATUS_CORRUPT, "'%.4s'", "abc\xc3\xa9");
    cr_assert_str_eq(error.text, "'abc?'");
}
