/* `baton bench`: figures beside the limits they are held against. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/commands.h"

enum { EXIT_WRONG_USAGE = 2, PROGRAM_BYTES_MAX = 32 };

struct bench {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};

static const struct bench benches[] = {
    {"grammar", "structured output: what a token mask costs", bench_grammar},
    {"kernels", "every kernel at model shapes, beside the machine's limits", bench_kernels},
    {"model", "tokens per second of prefill and decode, and where the time goes", bench_model},
    {"placement", "the choice of workers, by pages known and length of prompts", bench_placement},
    {"text", "the tokenizer: prose, ids, a megabyte of one character", bench_text},
    {"transfer", "hand-offs of pages between two processes, beside raw messages", bench_transfer},
};

static void help_print(FILE *to)
{
    fputs("Measures this machine: each figure stands beside its limit, measured in the same run.\n"
          "\nUsage: baton bench WHAT [OPTION...]\n\nWhat:\n",
          to);
    for (size_t i = 0; i < ARRAY_COUNT(benches); i++)
        fprintf(to, "  %-12s %s\n", benches[i].name, benches[i].summary);
    fputs("\n`baton bench WHAT --help` shows the options.\n", to);
}

int command_bench(int argc, char **argv)
{
    if (argc < 2) {
        help_print(stderr);
        return EXIT_WRONG_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_print(stdout);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_COUNT(benches); i++) {
        if (strcmp(argv[1], benches[i].name) != 0)
            continue;
        char program[PROGRAM_BYTES_MAX];
        snprintf(program, sizeof program, "baton bench %s", benches[i].name);
        argv[1] = program;
        return benches[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "baton bench: there is no bench '%s', there are:", argv[1]);
    for (size_t i = 0; i < ARRAY_COUNT(benches); i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : "", benches[i].name);
    fputc('\n', stderr);
    return EXIT_WRONG_USAGE;
}
