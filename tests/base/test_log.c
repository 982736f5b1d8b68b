#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/log.h"
#include "tests/base/capture.h"

static struct capture capture;

static bool matches(const char *text, const char *pattern)
{
    regex_t regex;
    CHECK(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) == 0);
    const bool found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

static void fresh_environment(void)
{
    unsetenv("BATON_LOG");
    unsetenv("BATON_LOG_FORMAT");
    unsetenv("JOURNAL_STREAM");
    log_set_journal_socket("/nonexistent/journal");
}

TestSuite(log, .init = fresh_environment);

Test(log, a_line_has_time_level_name_and_text)
{
    log_init("prefill-0", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    LOG_WARN("%d pages left", 3);
    const char *line = capture_end(&capture);
    cr_assert(matches(line, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                            "WARN  prefill-0: 3 pages left\n$"),
              "%s", line);
}

Test(log, less_than_the_threshold_is_not_written)
{
    log_init("x", LOG_LEVEL_WARN);
    capture_begin(&capture, STDERR_FILENO);
    LOG_INFO("no");
    LOG_DEBUG("no");
    LOG_ERROR("yes");
    const char *text = capture_end(&capture);
    cr_assert_null(strstr(text, "no"));
    cr_assert_not_null(strstr(text, "ERROR x: yes\n"));
}

Test(log, the_environment_sets_the_level)
{
    setenv("BATON_LOG", "debug", 1);
    log_init("x", LOG_LEVEL_ERROR);
    capture_begin(&capture, STDERR_FILENO);
    LOG_DEBUG("yes");
    cr_assert_not_null(strstr(capture_end(&capture), "debug x: yes\n"));
}

Test(log, an_unknown_level_in_the_environment_is_reported)
{
    setenv("BATON_LOG", "loud", 1);
    capture_begin(&capture, STDERR_FILENO);
    log_init("x", LOG_LEVEL_INFO);
    LOG_INFO("yes");
    const char *text = capture_end(&capture);
    cr_assert_not_null(strstr(text, "\"loud\""));
    cr_assert_not_null(strstr(text, "yes"));
}

static void pretend_journal(void)
{
    struct stat stat;
    CHECK(fstat(STDERR_FILENO, &stat) == 0);
    char stream[64];
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
}

Test(log, under_the_journal_lines_carry_a_priority)
{
    capture_begin(&capture, STDERR_FILENO);
    pretend_journal();
    log_init("x", LOG_LEVEL_DEBUG);
    LOG_ERROR("a");
    LOG_WARN("b");
    LOG_INFO("c");
    LOG_DEBUG("d");
    cr_assert_str_eq(capture_end(&capture), "<3>x: a\n<4>x: b\n<6>x: c\n<7>x: d\n");
}

Test(log, a_text_cannot_forge_a_second_line)
{
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    LOG_INFO("a\nERROR b\r\x1B[31mc\xC2\x9B"
             "1m");
    const char *text = capture_end(&capture);
    cr_assert_not_null(strstr(text, "x: a ERROR b  [31mc  1m\n"));
    cr_assert_eq(strchr(text, '\n')[1], '\0');
}

Test(log, a_long_text_is_cut_and_still_one_line)
{
    char text[5000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    LOG_INFO("%s", text);
    const char *line = capture_end(&capture);
    const size_t bytes = strlen(line);
    cr_assert(bytes > 1500 && bytes <= 2048, "%zu", bytes);
    cr_assert_str_eq(line + bytes - 5, "y...\n");
}

Test(log, errno_survives_and_can_be_shown)
{
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    errno = ENOENT;
    LOG_INFO("opening: %m");
    const int after = errno;
    cr_assert_not_null(strstr(capture_end(&capture), "opening: No such file or directory\n"));
    cr_assert_eq(after, ENOENT);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 200; i++)
        LOG_INFO("<%s>", (const char *)arg);
    return NULL;
}

Test(log, lines_of_several_threads_do_not_mix)
{
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    pthread_t threads[4];
    static char texts[][9] = {"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"};
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, write_lines, texts[i]) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    capture_end(&capture);
    size_t lines = 0;
    for (char *line = strtok(capture.text, "\n"); line; line = strtok(NULL, "\n"), lines++)
        cr_assert(matches(line, "^2.*Z info  x: <(a{8}|b{8}|c{8}|d{8})>$"), "%s", line);
    cr_assert_eq(lines, 800);
}

static const struct log_field about[] = {
    {"request", "00ff"}, {"client", "a\"b\nc"}, {"trace_id", NULL}};

Test(log, fields_stand_behind_the_text)
{
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    log_write_with(LOG_LEVEL_DEBUG, about, 3, "no");
    log_write_with(LOG_LEVEL_INFO, about, 3, "lost %d", 7);
    const char *text = capture_end(&capture);
    cr_assert(matches(text, "^[^ ]+ info  x: lost 7 request=00ff client=a\"b c\n$"), "%s", text);
}

Test(log, json_lines_have_fields_as_members)
{
    setenv("BATON_LOG_FORMAT", "json", 1);
    log_init("x", LOG_LEVEL_INFO);
    capture_begin(&capture, STDERR_FILENO);
    log_write_with(LOG_LEVEL_WARN, about, 3, "a \\ \xff \xc3\xa9");
    const char *text = capture_end(&capture);
    cr_assert(matches(text, "^\\{\"time\":\"[^\"]+Z\",\"level\":\"warn\",\"program\":\"x\","), "%s",
              text);
    cr_assert_not_null(strstr(text, ",\"message\":\"a \\\\ \xEF\xBF\xBD \xc3\xa9\","
                                    "\"request\":\"00ff\",\"client\":\"a\\\"b c\"}\n"));
}

/* The journal's own socket takes one datagram a message. */
Test(log, the_journal_gets_fields_of_its_own)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/baton-log-%d", (int)getpid());
    const int server = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(server >= 0 && bind(server, (const struct sockaddr *)&address, sizeof address) == 0);
    log_set_journal_socket(address.sun_path);
    capture_begin(&capture, STDERR_FILENO);
    pretend_journal();
    log_init("router", LOG_LEVEL_INFO);
    log_write_with(LOG_LEVEL_WARN, about, 3, "lost\nit");
    char datagram[512];
    const ssize_t bytes = recv(server, datagram, sizeof datagram - 1, MSG_DONTWAIT);
    CHECK(bytes > 0);
    datagram[bytes] = '\0';
    close(server);
    unlink(address.sun_path);
    LOG_ERROR("nobody listens");
    const char *text = capture_end(&capture);
    cr_expect_str_eq(datagram, "PRIORITY=4\nSYSLOG_IDENTIFIER=router\nMESSAGE=lost it\n"
                               "BATON_REQUEST=00ff\nBATON_CLIENT=a\"b c\n");
    cr_expect_str_eq(text, "<3>router: nobody listens\n");
}
