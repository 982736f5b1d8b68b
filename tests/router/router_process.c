#include "tests/router/router_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/router/tiny_text.h"

enum { NOTIFY_FD = 9, ARGUMENTS_MAX = 48 };

/* A test that is kept from its CPU for seconds is not a worker that was lost, nor one that does not
 * answer, nor a report that never comes. Tests of a deadline order another one behind these. */
static const char *const patience[] = {
    "--worker-timeout-ms", "600s", "--reserve-timeout-ms", "600s", "--report-wait-ms", "10s"};

/* Options come from the arguments alone: whoever runs the tests may have set BATON_MODEL. */
static void forget_settings(void)
{
    for (char **entry = environ; *entry;) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (strncmp(name, "BATON_", 6) == 0 && unsetenv(name) == 0)
            entry = environ; /* the list has moved */
        else
            entry++;
    }
}

static pid_t spawn(const char *const *arguments, int notify_fd, int output_fd)
{
    const pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    forget_settings();
    if (notify_fd >= 0)
        dup2(notify_fd, NOTIFY_FD);
    if (output_fd >= 0) {
        dup2(output_fd, 1);
        dup2(output_fd, 2);
    }
    execv(arguments[0], (char *const *)(const void *)arguments);
    _exit(127);
}

/* The daemon lies beside the tests' own executables. */
static const char *daemon_path(void)
{
    static char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 32);
    cr_assert(bytes > 0);
    path[bytes] = '\0';
    snprintf(strrchr(path, '/'), 32, "/baton-router");
    return path;
}

static void read_notice(struct router_process *router, char *line)
{
    cr_assert(strncmp(line, "FAILED=", 7) != 0, "%s", line);
    if (strncmp(line, "HTTP=", 5) == 0)
        snprintf(router->http, sizeof router->http, "%.60s", line + 5);
    if (strncmp(line, "CONTROL=", 8) == 0)
        snprintf(router->control, sizeof router->control, "%.60s", line + 8);
}

static void wait_ready(struct router_process *router, int fd)
{
    FILE *notices = fdopen(fd, "r");
    cr_assert(notices);
    char line[512];
    bool ready = false;
    while (!ready && fgets(line, sizeof line, notices)) {
        line[strcspn(line, "\n")] = '\0';
        read_notice(router, line);
        ready = strcmp(line, "READY=1") == 0;
    }
    fclose(notices);
    cr_assert(ready, "the router did not become ready");
}

void router_process_start(struct router_process *router, const char *const *extra)
{
    *router = (struct router_process){.loop = loop_create()};
    signal(SIGPIPE, SIG_IGN);
    snprintf(router->folder, sizeof router->folder, "%s.state", tiny_model_path());
    char notify[8], model[512];
    snprintf(notify, sizeof notify, "%d", NOTIFY_FD);
    snprintf(model, sizeof model, "tiny=%s", tiny_model_path());
    const char *arguments[ARGUMENTS_MAX] = {
        daemon_path(), "--model",     model,          "--http",      "127.0.0.1:0", "--control",
        "127.0.0.1:0", "--state-dir", router->folder, "--notify-fd", notify};
    size_t count = 11;
    for (size_t i = 0; i < ARRAY_COUNT(patience); i++)
        arguments[count++] = patience[i];
    for (; extra && *extra; extra++)
        arguments[count++] = *extra;
    int pipe_fds[2];
    cr_assert(pipe2(pipe_fds, O_CLOEXEC) == 0);
    router->pid = spawn(arguments, pipe_fds[1], -1);
    close(pipe_fds[1]);
    wait_ready(router, pipe_fds[0]);
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int router_process_wait(struct router_process *router)
{
    int status = 0;
    WAIT_FOR(router, waitpid(router->pid, &status, WNOHANG) == router->pid);
    return exit_code(status);
}

int router_process_stop(struct router_process *router)
{
    kill(router->pid, SIGTERM);
    const int code = router_process_wait(router);
    cr_expect_eq(code, 0, "the router ended with %d", code); /* sanitizers speak this way too */
    return code;
}

int router_process_run(const char *const *arguments, struct buffer *output)
{
    const char *all[ARGUMENTS_MAX] = {daemon_path()};
    for (size_t i = 0; arguments[i]; i++)
        all[i + 1] = arguments[i];
    int pipe_fds[2];
    cr_assert(pipe2(pipe_fds, O_CLOEXEC) == 0);
    const pid_t pid = spawn(all, -1, pipe_fds[1]);
    close(pipe_fds[1]);
    char chunk[512];
    ssize_t bytes;
    while ((bytes = read(pipe_fds[0], chunk, sizeof chunk)) > 0)
        buffer_add(output, chunk, (size_t)bytes);
    close(pipe_fds[0]);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return exit_code(status);
}
