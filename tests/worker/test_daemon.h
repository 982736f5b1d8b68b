/* A real daemon under test: started from the build's bin folder, or that of BATON_TEST_BIN_DIR;
 * watched by its notify pipe. */
#ifndef BATON_TESTS_WORKER_TEST_DAEMON_H
#define BATON_TESTS_WORKER_TEST_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { DAEMON_ARGS_MAX = 40, DAEMON_NOTIFY_BYTES = 4096, TEST_PATH_BYTES = 256 };

struct daemon {
    char program[32]; /* "baton-prefill" */
    char log_path[TEST_PATH_BYTES];
    pid_t pid;
    int notify_fd;
    char notify[DAEMON_NOTIFY_BYTES]; /* every line so far */
    size_t notify_bytes;
};

/* A folder of this test's own under /tmp; removed at exit. */
const char *test_folder(void);
/* The tiny model, written by `baton make-model` with these further options (NULL: none). */
const char *test_model(const char *name, const char *const *options);
/* Output of a program of the build, its exit code returned. */
int test_command(char *out, size_t out_bytes, const char *program, const char *const *arguments);

/* arguments: after --notify-fd, ended by NULL. */
void daemon_start(struct daemon *daemon, const char *program, const char *const *arguments);
/* Takes what the notify pipe holds; true when `line` is among the lines. */
bool daemon_said(struct daemon *daemon, const char *line);
/* Waits for the end, at most deadline_ms: the exit code, or minus the signal. */
int daemon_wait(struct daemon *daemon, uint32_t deadline_ms);
void daemon_signal(const struct daemon *daemon, int number);
/* SIGTERM, and the exit code is to be 0; shows the log when it is not. */
void daemon_stop(struct daemon *daemon);
/* True once it stands still, stopped by a signal or a fault of its own. */
bool daemon_stopped(const struct daemon *daemon);
/* How often the log holds `text`. */
uint32_t daemon_logged(const struct daemon *daemon, const char *text);

#endif
