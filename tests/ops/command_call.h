/* A subcommand of `baton` called in the test's own process. */
#ifndef BATON_TESTS_OPS_COMMAND_CALL_H
#define BATON_TESTS_OPS_COMMAND_CALL_H

#include "base/bytes.h"

/* One call of a command: its exit code and what it wrote. */
struct outcome {
    int exit_code;
    struct buffer out, error;
};

/* arguments: [1] and up of argv, closed by NULL. Standard output and error are not what they were
 * afterwards. */
struct outcome command_call(int (*command)(int, char **), const char *const *arguments);
void outcome_free(struct outcome *outcome);

#define CALL(command, ...) command_call(command, (const char *const[]){__VA_ARGS__, NULL})

#endif
