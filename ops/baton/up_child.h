/* One daemon that `baton up` runs: a process with its log file and its notify pipe.
 *
 * The daemon writes lines to the pipe: STATUS=words, HTTP=, CONTROL= and DATA=host:port, READY=1,
 * FAILED=sentence. What they say is kept in the struct; the owner is told through on_news. Nothing
 * here decides what a death means: the owner calls child_reap after SIGCHLD. Loop thread only. */
#ifndef BATON_OPS_BATON_UP_CHILD_H
#define BATON_OPS_BATON_UP_CHILD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"
#include "base/status.h"

enum {
    CHILD_NAME_BYTES = 24,
    CHILD_ADDRESS_BYTES = 128,
    CHILD_WORDS_BYTES = 320,
    CHILD_ARGUMENTS_MAX = 96,
    CHILD_VALUE_BYTES = 32, /* a number as an argument */
    CHILD_VALUES_MAX = 8,
};

struct child;
typedef void (*child_news_callback)(void *arg, struct child *child);

struct child {
    char name[CHILD_NAME_BYTES];
    char log_path[PATH_MAX];
    char program[PATH_MAX];
    const char *label; /* stands beside it in the table; NULL: nothing */

    /* argv; the texts are the caller's and outlive the child, numbers are kept in values. */
    const char *arguments[CHILD_ARGUMENTS_MAX + 1];
    uint32_t argument_count;
    char values[CHILD_VALUES_MAX][CHILD_VALUE_BYTES];
    uint32_t value_count;

    pid_t pid; /* 0: no process */
    uint64_t started_ns;
    /* What this process has said so far; cleared at its start. */
    bool ready;
    char status[CHILD_WORDS_BYTES];
    char failure[CHILD_WORDS_BYTES];
    char http[CHILD_ADDRESS_BYTES];
    char control[CHILD_ADDRESS_BYTES];
    char data[CHILD_ADDRESS_BYTES];

    struct loop *loop;
    child_news_callback on_news;
    void *arg;
    struct loop_io *notify_io;
    int notify_fd;
    char line[CHILD_WORDS_BYTES + 16]; /* an unfinished line; what is longer is cut */
    uint32_t line_bytes;
};

/* name: "prefill-0"; program: path of the binary; the log goes to FOLDER/NAME.log. The child has no
 * process yet. STATUS_LIMIT when the paths are too long. */
enum status child_init(struct child *child, struct loop *loop, const char *name,
                       const char *program, const char *folder, child_news_callback on_news,
                       void *arg, struct error *error);
/* Adds "--option", "value" to argv; value NULL adds the flag alone. */
void child_add_option(struct child *child, const char *option, const char *value);
/* Takes the last `count` words of argv off again. */
void child_drop_words(struct child *child, uint32_t count);
void child_add_number(struct child *child, const char *option, uint64_t value);

/* Starts the process in a process group of its own, so that a Ctrl-C on the terminal reaches `baton
 * up` alone; the kernel kills it if `baton up` dies. STATUS_IO with a sentence. */
enum status child_start(struct child *child, struct error *error);
/* No process: nothing happens. */
void child_signal(const struct child *child, int signal_number);
/* True when the process has ended: its last words are read, pid is 0, how_out tells the end as in
 * "was killed by signal 9 (Killed)", and *clean_out whether it was what SIGTERM asks for. */
bool child_reap(struct child *child, char *how_out, size_t how_bytes, bool *clean_out);
/* The last line of the log that is not empty, cut to bytes; "" when there is none. */
void child_last_log_line(const struct child *child, char *out, size_t bytes);

#endif
