#include "ops/baton/up_child.h"

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

enum { NOTIFY_FD = 3, LOG_TAIL_BYTES = 4096 };

enum status child_init(struct child *child, struct loop *loop, const char *name,
                       const char *program, const char *folder, child_news_callback on_news,
                       void *arg, struct error *error)
{
    memset(child, 0, sizeof *child);
    child->loop = loop;
    child->on_news = on_news;
    child->arg = arg;
    child->notify_fd = -1;
    const int log_bytes =
        snprintf(child->log_path, sizeof child->log_path, "%s/%s.log", folder, name);
    const int program_bytes = snprintf(child->program, sizeof child->program, "%s", program);
    if (log_bytes >= PATH_MAX || program_bytes >= PATH_MAX)
        return error_set(error, STATUS_LIMIT, "the path of %s is longer than %d bytes", name,
                         PATH_MAX - 1);
    snprintf(child->name, sizeof child->name, "%s", name);
    child->arguments[child->argument_count++] = child->program;
    child_add_number(child, "--notify-fd", NOTIFY_FD);
    return STATUS_OK;
}

void child_add_option(struct child *child, const char *option, const char *value)
{
    CHECK(child->argument_count + 2 <= CHILD_ARGUMENTS_MAX);
    child->arguments[child->argument_count++] = option;
    if (value)
        child->arguments[child->argument_count++] = value;
}

void child_drop_words(struct child *child, uint32_t count)
{
    CHECK(count < child->argument_count);
    while (count-- > 0)
        child->arguments[--child->argument_count] = NULL;
}

void child_add_number(struct child *child, const char *option, uint64_t value)
{
    CHECK(child->value_count < CHILD_VALUES_MAX);
    char *text = child->values[child->value_count++];
    snprintf(text, CHILD_VALUE_BYTES, "%ju", (uintmax_t)value);
    child_add_option(child, option, text);
}

/* ---- the notify pipe ---- */

static void take_line(struct child *child, const char *line)
{
    const struct key_row {
        const char *key;
        char *field;
        size_t bytes;
    } rows[] = {
        {"STATUS=", child->status, sizeof child->status},
        {"FAILED=", child->failure, sizeof child->failure},
        {"HTTP=", child->http, sizeof child->http},
        {"CONTROL=", child->control, sizeof child->control},
        {"DATA=", child->data, sizeof child->data},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const size_t key_bytes = strlen(rows[i].key);
        if (strncmp(line, rows[i].key, key_bytes) == 0)
            snprintf(rows[i].field, rows[i].bytes, "%s", line + key_bytes);
    }
    if (strcmp(line, "READY=1") == 0)
        child->ready = true;
    /* Keys of a newer daemon are skipped, as sd_notify(3) readers do. */
}

static void take_bytes(struct child *child, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n') {
            child->line[child->line_bytes] = '\0';
            child->line_bytes = 0;
            take_line(child, child->line);
        } else if (child->line_bytes + 1 < sizeof child->line) {
            child->line[child->line_bytes++] = bytes[i];
        }
    }
}

static void notify_close(struct child *child)
{
    loop_io_destroy(child->notify_io);
    child->notify_io = NULL;
    if (child->notify_fd >= 0)
        close(child->notify_fd);
    child->notify_fd = -1;
    child->line_bytes = 0;
}

/* Reads what is there; the daemon may close its end and live on. */
static void notify_read(struct child *child)
{
    char bytes[1024];
    while (child->notify_fd >= 0) {
        const ssize_t count = read(child->notify_fd, bytes, sizeof bytes);
        if (count > 0)
            take_bytes(child, bytes, (size_t)count);
        else if (count == 0)
            notify_close(child);
        else if (errno != EINTR)
            break;
    }
}

static void on_notify(void *arg, unsigned events)
{
    (void)events;
    struct child *child = arg;
    notify_read(child);
    child->on_news(child->arg, child);
}

/* ---- the process ---- */

/* Says why on the log, which is standard error by now, and gives up. */
static _Noreturn void child_give_up(const char *what)
{
    dprintf(STDERR_FILENO, "%s: %s\n", what, strerror(errno));
    _exit(127);
}

/* Runs in the new process: only calls that are safe there. */
static _Noreturn void child_become(struct child *child, pid_t parent, int null_fd, int log_fd,
                                   int notify_fd)
{
    if (dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0)
        child_give_up("dup2");
    if (dup2(null_fd, STDIN_FILENO) < 0)
        child_give_up("dup2");
    /* dup2 onto itself would leave close-on-exec set; the flag is cleared either way. */
    if (notify_fd != NOTIFY_FD && dup2(notify_fd, NOTIFY_FD) < 0)
        child_give_up("dup2");
    if (fcntl(NOTIFY_FD, F_SETFD, 0) < 0)
        child_give_up("fcntl");
    close_range(NOTIFY_FD + 1, ~0u, 0);

    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (setpgid(0, 0) < 0)
        child_give_up("setpgid");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_give_up("prctl");
    if (getppid() != parent) /* it died before the line above */
        _exit(127);
    execv(child->program, (char *const *)child->arguments);
    child_give_up(child->program);
}

static void forget_last_words(struct child *child)
{
    child->ready = false;
    child->status[0] = '\0';
    child->failure[0] = '\0';
    child->http[0] = '\0';
    child->control[0] = '\0';
    child->data[0] = '\0';
}

enum status child_start(struct child *child, struct error *error)
{
    CHECK(child->pid == 0);
    const int log_fd = open(child->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0)
        return error_set_errno(error, STATUS_IO, "the log %s cannot be opened", child->log_path);
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int pipe_fds[2] = {-1, -1};
    pid_t pid = -1;
    const pid_t parent = getpid();
    if (null_fd >= 0 && pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) == 0) {
        fflush(NULL);
        pid = fork();
        if (pid == 0)
            child_become(child, parent, null_fd, log_fd, pipe_fds[1]);
    }
    const int saved_errno = errno;
    close(log_fd);
    if (null_fd >= 0)
        close(null_fd);
    if (pipe_fds[1] >= 0)
        close(pipe_fds[1]);
    errno = saved_errno;
    if (pid < 0) {
        error_set_errno(error, STATUS_IO, "%s cannot be started", child->name);
        if (pipe_fds[0] >= 0)
            close(pipe_fds[0]);
        return STATUS_IO;
    }
    forget_last_words(child);
    child->pid = pid;
    child->started_ns = loop_now_ns(child->loop);
    child->notify_fd = pipe_fds[0];
    child->notify_io = loop_io_create(child->loop, pipe_fds[0], LOOP_READ, on_notify, child);
    return STATUS_OK;
}

void child_signal(const struct child *child, int signal_number)
{
    if (child->pid > 0)
        kill(child->pid, signal_number);
}

bool child_reap(struct child *child, char *how_out, size_t how_bytes, bool *clean_out)
{
    int wait_status;
    if (child->pid <= 0 || waitpid(child->pid, &wait_status, WNOHANG) != child->pid)
        return false;
    child->pid = 0;
    /* SIGTERM before the daemon had its handler is an end as it was asked for. */
    *clean_out = (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) ||
                 (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM);
    notify_read(child);
    notify_close(child);
    if (WIFSIGNALED(wait_status))
        snprintf(how_out, how_bytes, "was killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(how_out, how_bytes, "exited with code %d", WEXITSTATUS(wait_status));
    return true;
}

void child_last_log_line(const struct child *child, char *out, size_t bytes)
{
    out[0] = '\0';
    FILE *file = fopen(child->log_path, "re");
    if (!file)
        return;
    char tail[LOG_TAIL_BYTES + 1];
    if (fseek(file, -LOG_TAIL_BYTES, SEEK_END) != 0)
        rewind(file); /* shorter than that */
    size_t count = fread(tail, 1, LOG_TAIL_BYTES, file);
    fclose(file);
    while (count > 0 && (tail[count - 1] == '\n' || tail[count - 1] == ' '))
        count--;
    tail[count] = '\0';
    const char *newline = memrchr(tail, '\n', count);
    snprintf(out, bytes, "%s", newline ? newline + 1 : tail);
}
