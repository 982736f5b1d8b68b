#include "tests/worker/test_daemon.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_DEADLINE_MS = 100000, CHILD_NOTIFY_FD = 9, LOG_SHOWN_BYTES = 8192 };

/* ---- a folder ---- */

static char folder[TEST_PATH_BYTES];
static pid_t folder_owner;

static void remove_folder(void)
{
    if (getpid() != folder_owner)
        return;
    char command[TEST_PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", folder);
}

const char *test_folder(void)
{
    if (folder_owner == getpid())
        return folder;
    snprintf(folder, sizeof folder, "/tmp/baton-nodes-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    folder_owner = getpid();
    atexit(remove_folder);
    return folder;
}

/* ---- processes ---- */

/* Of this build, or another one's (a thread-sanitized build, which has no tests of its own). */
static void program_path(const char *program, char out[TEST_PATH_BYTES])
{
    const char *other = getenv("BATON_TEST_BIN_DIR");
    snprintf(out, TEST_PATH_BYTES, "%s/%s", other != NULL ? other : BATON_BIN_DIR, program);
}

/* Options come from the arguments alone: whoever runs the tests may have set BATON_MODEL. */
static void forget_settings(void)
{
    for (char **entry = environ; *entry != NULL;) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (strncmp(name, "BATON_", 6) == 0 && unsetenv(name) == 0)
            entry = environ; /* the list has moved */
        else
            entry++;
    }
}

/* In the child: fd 0 from nowhere, 1 to out (-1: nowhere), 2 to err, the notify pipe at its place.
 */
static _Noreturn void child_exec(const char *program, char **argv, int out, int err, int notify)
{
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, 0);
    dup2(out >= 0 ? out : nothing, 1);
    dup2(err >= 0 ? err : nothing, 2);
    if (notify >= 0)
        dup2(notify, CHILD_NOTIFY_FD);
    for (int fd = 3; fd < 64; fd++) {
        if (fd != CHILD_NOTIFY_FD)
            close(fd);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    forget_settings();
    execv(program, argv);
    _exit(127);
}

int test_command(char *out, size_t out_bytes, const char *program, const char *const *arguments)
{
    char path[TEST_PATH_BYTES];
    char *argv[DAEMON_ARGS_MAX + 2] = {path};
    program_path(program, path);
    for (int i = 0; arguments[i] != NULL; i++) {
        cr_assert(i < DAEMON_ARGS_MAX);
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    }
    int pipe_fds[2];
    cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    const pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0)
        child_exec(path, argv, pipe_fds[1], pipe_fds[1], -1);
    close(pipe_fds[1]);
    size_t used = 0;
    char scrap[256];
    for (;;) {
        const bool fits = used + 1 < out_bytes;
        const ssize_t got = read(pipe_fds[0], fits ? out + used : scrap,
                                 fits ? out_bytes - 1 - used : sizeof scrap);
        if (got <= 0)
            break;
        if (fits)
            used += (size_t)got;
    }
    out[used] = '\0';
    close(pipe_fds[0]);
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

const char *test_model(const char *name, const char *const *options)
{
    static char path[TEST_PATH_BYTES];
    const char *arguments[DAEMON_ARGS_MAX];
    char out[1024];
    int count = 0;
    snprintf(path, sizeof path, "%.200s/%.40s", test_folder(), name);
    arguments[count++] = "make-model";
    for (int i = 0; options != NULL && options[i] != NULL; i++)
        arguments[count++] = options[i];
    arguments[count++] = path;
    arguments[count] = NULL;
    cr_assert_eq(test_command(out, sizeof out, "baton", arguments), 0, "make-model: %s", out);
    return path;
}

void daemon_start(struct daemon *daemon, const char *program, const char *const *arguments)
{
    static int started;
    char path[TEST_PATH_BYTES], fd_text[8];
    char *argv[DAEMON_ARGS_MAX + 4] = {path, (char *)(uintptr_t) "--notify-fd", fd_text};
    snprintf(fd_text, sizeof fd_text, "%d", CHILD_NOTIFY_FD);
    program_path(program, path);
    memset(daemon, 0, sizeof *daemon);
    snprintf(daemon->program, sizeof daemon->program, "%s", program);
    snprintf(daemon->log_path, sizeof daemon->log_path, "%.200s/%s-%d.log", test_folder(), program,
             started++);
    for (int i = 0; arguments[i] != NULL; i++) {
        cr_assert(i < DAEMON_ARGS_MAX);
        argv[i + 3] = (char *)(uintptr_t)arguments[i];
    }
    int pipe_fds[2];
    cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    const int log = open(daemon->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    cr_assert_geq(log, 0);
    daemon->pid = fork();
    cr_assert_geq(daemon->pid, 0);
    if (daemon->pid == 0)
        child_exec(path, argv, -1, log, pipe_fds[1]);
    close(pipe_fds[1]);
    close(log);
    daemon->notify_fd = pipe_fds[0];
}

bool daemon_said(struct daemon *daemon, const char *line)
{
    for (;;) {
        const size_t room = sizeof daemon->notify - 1 - daemon->notify_bytes;
        const ssize_t got = read(daemon->notify_fd, daemon->notify + daemon->notify_bytes, room);
        if (got <= 0)
            break;
        daemon->notify_bytes += (size_t)got;
    }
    return strstr(daemon->notify, line) != NULL;
}

static void show_log(const struct daemon *daemon)
{
    static char text[LOG_SHOWN_BYTES + 1];
    FILE *file = fopen(daemon->log_path, "re");
    if (file == NULL)
        return;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    fseek(file, size > LOG_SHOWN_BYTES ? size - LOG_SHOWN_BYTES : 0, SEEK_SET);
    text[fread(text, 1, LOG_SHOWN_BYTES, file)] = '\0';
    fclose(file);
    fprintf(stderr, "---- %s ----\n%s", daemon->log_path, text);
}

int daemon_wait(struct daemon *daemon, uint32_t deadline_ms)
{
    const int process = (int)syscall(SYS_pidfd_open, daemon->pid, 0);
    cr_assert_geq(process, 0);
    struct pollfd wait = {.fd = process, .events = POLLIN};
    const int ended = poll(&wait, 1, (int)deadline_ms);
    close(process);
    if (ended != 1) {
        show_log(daemon);
        kill(daemon->pid, SIGKILL);
    }
    int state;
    cr_assert_eq(waitpid(daemon->pid, &state, 0), daemon->pid);
    daemon_said(daemon, "");
    close(daemon->notify_fd);
    daemon->pid = 0;
    cr_assert_eq(ended, 1, "%s did not end within %u ms", daemon->program, deadline_ms);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

void daemon_signal(const struct daemon *daemon, int number)
{
    cr_assert_eq(kill(daemon->pid, number), 0);
}

void daemon_stop(struct daemon *daemon)
{
    daemon_signal(daemon, SIGTERM);
    const int code = daemon_wait(daemon, STOP_DEADLINE_MS);
    if (code != 0)
        show_log(daemon);
    cr_assert_eq(code, 0, "%s ended with %d", daemon->program, code);
}

bool daemon_stopped(const struct daemon *daemon)
{
    siginfo_t info = {0};
    cr_assert_eq(waitid(P_PID, (id_t)daemon->pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT),
                 0);
    cr_assert(info.si_pid == 0 || info.si_code == CLD_STOPPED, "%s has ended", daemon->program);
    return info.si_pid != 0;
}

uint32_t daemon_logged(const struct daemon *daemon, const char *text)
{
    uint32_t count = 0;
    char line[1024];
    FILE *file = fopen(daemon->log_path, "re");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}
