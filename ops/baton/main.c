/* `baton`: picks the subcommand. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "ops/baton/commands.h"

enum { EXIT_DONE = 0, EXIT_WRONG_USAGE = 2, SUGGESTION_DISTANCE_MAX = 3, NAME_BYTES_MAX = 32 };

struct subcommand {
    const char *name;
    const char *program; /* argv[0] of the subcommand */
    const char *summary;
    int (*run)(int argc, char **argv);
};

/* A row a file; the build says which files are there. */
static const struct subcommand subcommands[] = {
#ifdef BATON_HAS_UP
    {"up", "baton up", "start a router and its nodes on this machine", command_up},
#endif
#ifdef BATON_HAS_ASK
    {"ask", "baton ask", "send one chat request to a router and stream the answer", command_ask},
#endif
#ifdef BATON_HAS_RUN
    {"run", "baton run", "continue a prompt in this process, without a cluster", command_run},
#endif
#ifdef BATON_HAS_EVAL
    {"eval", "baton eval", "print the logits of token sequences", command_eval},
#endif
#ifdef BATON_HAS_BENCH
    {"bench", "baton bench", "measure kernels or a model beside this machine's limits",
     command_bench},
#endif
#ifdef BATON_HAS_TOKENIZE
    {"tokenize", "baton tokenize", "text on standard input to token ids", command_tokenize},
#endif
#ifdef BATON_HAS_DETOKENIZE
    {"detokenize", "baton detokenize", "token ids on standard input to text", command_detokenize},
#endif
#ifdef BATON_HAS_RENDER
    {"render", "baton render", "a conversation in JSON to the prompt of a chat template",
     command_render},
#endif
#ifdef BATON_HAS_CONVERT
    {"convert", "baton convert", "write a model as one GGUF file", command_convert},
#endif
#ifdef BATON_HAS_MAKE_MODEL
    {"make-model", "baton make-model", "write a model file with random weights",
     command_make_model},
#endif
};

static void help_print(FILE *to)
{
    fputs("baton " BATON_VERSION " serves language models with prefill and decode on separate "
          "workers.\n\nUsage: baton COMMAND [OPTION...]\n\nCommands:\n",
          to);
    for (size_t i = 0; i < ARRAY_COUNT(subcommands); i++)
        fprintf(to, "  %-12s %s\n", subcommands[i].name, subcommands[i].summary);
    fputs("\n`baton COMMAND --help` shows a command's options, `baton --version` the version.\n",
          to);
}

/* Letters to insert, drop or replace to turn one name into the other. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES_MAX + 1];
    const size_t b_bytes = strlen(b);
    CHECK(b_bytes <= NAME_BYTES_MAX);
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= b_bytes; j++) {
            const size_t replaced = diagonal + (a[i] != b[j - 1]);
            const size_t moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < moved ? replaced : moved;
        }
    }
    return row[b_bytes];
}

static int unknown_report(const char *name)
{
    const char *nearest = NULL;
    size_t nearest_distance = SUGGESTION_DISTANCE_MAX + 1;
    for (size_t i = 0; i < ARRAY_COUNT(subcommands); i++) {
        const size_t distance = edit_distance(name, subcommands[i].name);
        if (distance < nearest_distance && distance < strlen(subcommands[i].name)) {
            nearest = subcommands[i].name;
            nearest_distance = distance;
        }
    }
    if (nearest != NULL)
        fprintf(stderr, "baton: there is no command '%s', did you mean '%s'?\n", name, nearest);
    else
        fprintf(stderr, "baton: there is no command '%s', `baton --help` lists them\n", name);
    return EXIT_WRONG_USAGE;
}

int main(int argc, char **argv)
{
    log_init("baton", LOG_LEVEL_INFO);
    if (argc < 2) {
        help_print(stderr);
        return EXIT_WRONG_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help_print(stdout);
        return EXIT_DONE;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("baton " BATON_VERSION);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < ARRAY_COUNT(subcommands); i++) {
        if (strcmp(name, subcommands[i].name) != 0)
            continue;
        char program[NAME_BYTES_MAX + 8];
        snprintf(program, sizeof program, "%s", subcommands[i].program);
        argv[1] = program;
        return subcommands[i].run(argc - 1, argv + 1);
    }
    return unknown_report(name);
}
