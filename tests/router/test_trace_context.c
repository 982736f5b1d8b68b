#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "router/trace_context.h"

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

Test(trace_context, the_trace_goes_on_under_a_span_of_our_own)
{
    struct trace_context trace;
    char out[TRACE_PARENT_BYTES];
    cr_assert(trace_context_read("00-" TRACE "-" PARENT "-01", &trace));
    cr_expect_str_eq(trace.id, TRACE);
    trace_context_write(&trace, out);
    cr_expect_eq(strlen(out), 55);
    cr_expect_eq(strncmp(out, "00-" TRACE "-", 36), 0, "%s", out);
    cr_expect_str_eq(out + 52, "-01");
    cr_expect_eq(strstr(out, PARENT), NULL, "the client's span is the parent, not ours");
    struct trace_context again;
    cr_assert(trace_context_read(out, &again), "what is written can be read");
    cr_expect_str_neq(again.span, trace.span);
}

Test(trace_context, a_later_version_is_read_as_far_as_it_is_known)
{
    struct trace_context trace;
    cr_expect(trace_context_read("cc-" TRACE "-" PARENT "-00-what-the-future-brings", &trace));
    cr_expect(trace_context_read("01-" TRACE "-" PARENT "-00", &trace));
    cr_expect(!trace_context_read("cc-" TRACE "-" PARENT "-00.what", &trace));
}

Test(trace_context, what_the_standard_does_not_allow_is_no_trace)
{
    static const char *const bad[] = {
        NULL,
        "",
        "00",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-more",
        "00-" TRACE "-" PARENT "-0g",
        "ff-" TRACE "-" PARENT "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "0 -" TRACE "-" PARENT "-01",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct trace_context trace;
        char out[TRACE_PARENT_BYTES];
        cr_expect(!trace_context_read(bad[i], &trace), "%s", bad[i]);
        trace_context_write(&trace, out);
        cr_expect_str_eq(out, "");
    }
}
