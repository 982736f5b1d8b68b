/* What the daemons say to options and files that are wrong, before they serve anything. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/worker/test_daemon.h"
#include "transfer/link.h"

static const char *const programs[] = {"baton-prefill", "baton-decode"};

static void expect(const char *program, const char *const *arguments, int code, const char *words)
{
    static char out[16384];
    const int got = test_command(out, sizeof out, program, arguments);
    cr_assert_eq(got, code, "%s %s: %d, %s", program, arguments[0], got, out);
    cr_assert_not_null(strstr(out, words), "%s: \"%s\" without \"%s\"", program, out, words);
}

Test(options, help_names_every_option)
{
    static const char *const names[] = {"--model",        "--router",       "--name",
                                        "--threads",      "--kv-dtype",     "--kv-memory",
                                        "--page-tokens",  "--context",      "--activations",
                                        "--chunk-tokens", "--max-requests", "--notify-fd"};
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            expect(programs[p], (const char *[]){"--help", NULL}, 0, names[i]);
    }
    expect("baton-decode", (const char *[]){"--help", NULL}, 0, "--max-batch");
    expect("baton-decode", (const char *[]){"--help", NULL}, 0, "--lease-ms");
    expect("baton-decode", (const char *[]){"--help", NULL}, 0, "--data");
}

Test(options, wrong_values_exit_with_2_and_a_sentence)
{
    static const struct {
        const char *arguments[6], *words;
    } rows[] = {
        {{NULL}, "--model FILE is required"},
        {{"--model", "x", "--page-tokens", "40", NULL}, "40 is no multiple of 16"},
        {{"--model", "x", "--chunk-tokens", "32", NULL}, "32 is less than a page of 64"},
        {{"--model", "x", "--kv-dtype", "int3", NULL}, "int3"},
        {{"--model", "x", "--kv-memory", "0", NULL}, "no room at all"},
        {{"--model", "x", "--kv-memory", "101%", NULL}, "101% is not above 0% and at most 100%"},
        {{"--model", "x", "--kv-memory", "half", NULL}, "or a share such as 50%"},
        {{"--model", "x", "--max-requests", "0", NULL}, "0"},
        {{"--model", "x", "--max-requests", "999999", NULL}, "999999"},
        {{"--model", "x", "--modle", "y", NULL}, "did you mean --model?"},
        {{"--model", "x", "--router", "elsewhere", NULL}, "\"elsewhere\""},
        {{"--model", "x", "--router", "127.0.0.1:99999", NULL}, "over the limit of 65535"},
        {{"--model", "x", "--router", "127.0.0.1:0", NULL}, "the port"},
        {{"--model", "x", "--notify-fd", "777", NULL}, "descriptor 777 is not open"},
        {{"--model", "x", "--name",
          "a123456789a123456789a123456789a123456789a123456789a123456789abcd", NULL},
         "64 bytes"},
        {{"--model", "x", "--name", "rack 1", NULL}, "--name: byte 0x20 at 4"},
        {{"--model", "x", "--name", "a\"b", NULL}, "--name: byte 0x22 at 1"},
    };
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            expect(programs[p], rows[i].arguments, 2, rows[i].words);
        }
    }
}

Test(options, a_file_that_is_no_model_fails_with_1_and_tells_so)
{
    static const struct {
        const char *file, *words;
    } rows[] = {
        {"/nowhere/model.gguf", "/nowhere/model.gguf"},
        {"/dev/null", "/dev/null"},
    };
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < 2; i++) {
            struct daemon daemon;
            daemon_start(&daemon, programs[p], (const char *[]){"--model", rows[i].file, NULL});
            cr_assert_eq(daemon_wait(&daemon, 20000), 1);
            const char *failed = strstr(daemon.notify, "FAILED=");
            cr_assert_not_null(failed);
            cr_assert_not_null(strstr(failed, rows[i].words), "%s", failed);
        }
    }
}

struct refuser {
    struct link *link;
};

static void refuse_hello(void *arg, enum message_id id, const void *message)
{
    struct refuser *refuser = arg;
    (void)message;
    cr_assert_eq(id, MESSAGE_ID_HELLO);
    link_close(refuser->link, STATUS_MISMATCH, "the model is another one");
    refuser->link = NULL;
}

static void refuse_close(void *arg, enum status status, const char *text)
{
    (void)status;
    (void)text;
    ((struct refuser *)arg)->link = NULL;
}

static void refuse_accept(void *arg, struct link *link)
{
    static const struct link_events events = {.on_message = refuse_hello, .on_close = refuse_close};
    struct refuser *refuser = arg;
    refuser->link = link;
    link_attach(link, &events, refuser);
}

Test(options, a_worker_that_every_router_refuses_ends_with_1_and_the_reason)
{
    struct refuser refuser = {0};
    struct loop *loop = loop_create();
    struct link_listener *listener;
    struct error error;
    struct daemon daemon;
    char address[32];
    cr_assert_eq(link_listen(loop, "127.0.0.1:0", refuse_accept, &refuser, &link_default_limits,
                             &listener, &error),
                 STATUS_OK);
    snprintf(address, sizeof address, "127.0.0.1:%u", link_listener_port(listener));
    const char *model = test_model("tiny.gguf", NULL);
    daemon_start(&daemon, "baton-prefill",
                 (const char *[]){"--model", model, "--router", address, NULL});
    while (!daemon_said(&daemon, "FAILED="))
        loop_run_once(loop, 50);
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "the model is another one"), "%s", daemon.notify);
    cr_assert_null(strstr(daemon.notify, "READY"));
    link_close(refuser.link, STATUS_OK, NULL);
    link_listener_close(listener);
    loop_destroy(loop);
}

Test(options, a_pool_smaller_than_a_context_and_a_bad_address_fail)
{
    static char model[TEST_PATH_BYTES];
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    struct daemon daemon;
    daemon_start(&daemon, "baton-decode",
                 (const char *[]){"--model", model, "--kv-memory", "1K", NULL});
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "FAILED="));
    /* A share of next to nothing: both figures are told. */
    daemon_start(&daemon, "baton-decode",
                 (const char *[]){"--model", model, "--kv-memory-of", "100K", NULL});
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "FAILED=one context of 2048 tokens takes 1.5 MiB"),
                       "%s", daemon.notify);
    /* Memory that is to be taken at once has to be there. */
    daemon_start(&daemon, "baton-decode",
                 (const char *[]){"--model", model, "--kv-memory", "900T", "--kv-prefault", NULL});
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "FAILED=the KV pool is 943718400 MiB and"), "%s",
                       daemon.notify);
    daemon_start(&daemon, "baton-decode",
                 (const char *[]){"--model", model, "--data", "256.1.1.1:0", NULL});
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "256.1.1.1"), "%s", daemon.notify);
    daemon_start(&daemon, "baton-decode",
                 (const char *[]){"--model", model, "--context", "999999", NULL});
    cr_assert_eq(daemon_wait(&daemon, 20000), 1);
    cr_assert_not_null(strstr(daemon.notify, "999999"), "%s", daemon.notify);
}
