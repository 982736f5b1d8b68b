#include "tests/ops/command_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

enum { ARGUMENTS_MAX = 40 };

static struct buffer read_back(const char *name)
{
    struct buffer bytes = {0};
    char piece[4096];
    size_t got;
    FILE *file = fopen(name, "rb");
    CHECK(file != NULL);
    buffer_add(&bytes, "", 0);
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        buffer_add(&bytes, piece, got);
    fclose(file);
    unlink(name);
    return bytes;
}

struct outcome command_call(int (*command)(int, char **), const char *const *arguments)
{
    char out_name[] = "/tmp/baton-out-XXXXXX", error_name[] = "/tmp/baton-err-XXXXXX";
    char *argv[ARGUMENTS_MAX + 2] = {(char *)"baton"};
    int argc = 1;
    for (; arguments[argc - 1] != NULL; argc++) {
        CHECK(argc <= ARGUMENTS_MAX);
        argv[argc] = (char *)arguments[argc - 1];
    }
    close(mkstemp(out_name));
    close(mkstemp(error_name));
    CHECK(freopen(out_name, "w", stdout) != NULL && freopen(error_name, "w", stderr) != NULL);
    struct outcome outcome = {.exit_code = command(argc, argv)};
    fflush(stdout);
    fflush(stderr);
    outcome.out = read_back(out_name);
    outcome.error = read_back(error_name);
    return outcome;
}

void outcome_free(struct outcome *outcome)
{
    buffer_free(&outcome->out);
    buffer_free(&outcome->error);
}
