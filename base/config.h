/* Options as rows: one table gives the command line, the environment and --help. */
#ifndef BATON_BASE_CONFIG_H
#define BATON_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum config_kind {
    CONFIG_FLAG,   /* bool; no argument */
    CONFIG_TEXT,   /* const char * */
    CONFIG_TEXTS,  /* struct config_texts: may be given several times; as one text "a, b\,c d" */
    CONFIG_U32,    /* uint32_t within [min, max] */
    CONFIG_U64,    /* uint64_t within [min, max] */
    CONFIG_F64,    /* double */
    CONFIG_BYTES,  /* uint64_t: 4096, 64K, 16M, 2G, KiB/MiB/GiB */
    CONFIG_AMOUNT, /* struct config_amount: such a size, or a share such as 50% */
    CONFIG_MS,     /* uint32_t milliseconds: 250, 250ms, 3s, 1m */
    CONFIG_CHOICE, /* uint32_t index into "a|b|c" */
};

enum { CONFIG_TEXTS_MAX = 16 };
struct config_texts {
    const char *items[CONFIG_TEXTS_MAX];
    uint32_t count;
};

/* Zero is none: at most one member is above it. */
struct config_amount {
    uint64_t bytes;
    double share; /* (0, 1] */
};

struct config_row {
    const char *name; /* "kv-dtype": --kv-dtype and BATON_KV_DTYPE */
    enum config_kind kind;
    size_t offset;        /* into the options struct */
    const char *fallback; /* default as text, NULL for none (zero) */
    const char *choices;  /* CONFIG_CHOICE: "f32|bf16"; others: the argument's name in help */
    const char *help;     /* one line */
    double min, max;      /* U32, U64, F64, BYTES, MS: checked when max > min; TEXTS: max, how many
                             are taken, 0 for CONFIG_TEXTS_MAX */
};

struct config_command {
    const char *program;  /* "baton-prefill" */
    const char *summary;  /* one sentence */
    const char *examples; /* lines of the help, before the options; may be NULL */
    const char *operands; /* "[PROMPT]" or NULL when none are taken */
    const char *needed;   /* name of a row of kind TEXT that has to be set; NULL for none */
    const struct config_row *rows;
    size_t row_count;
};

enum config_result { CONFIG_RUN, CONFIG_EXIT_OK, CONFIG_EXIT_USAGE };

/* Defaults, then environment, then the command line into *options (zeroed first). --help and
 * --version print and give EXIT_OK; an unknown option (with the nearest known name), a bad value
 * (with the value and the limit) or a stray operand prints one line and gives EXIT_USAGE. Operands
 * are moved to the end; *first_operand_out is the index of the first in argv. */
enum config_result config_parse(const struct config_command *command, int argc, char **argv,
                                void *options, int *first_operand_out);
void config_print_help(const struct config_command *command);

/* ---- the frame of a program: from its options to its exit code ---- */

enum { CONFIG_GO_ON = -1, CONFIG_EXIT_CODE_FAILED = 1, CONFIG_EXIT_CODE_USAGE = 2 };

/* config_parse, and that what is needed is set; CONFIG_GO_ON, or the exit code when there is
 * nothing more to do. */
int config_begin(const struct config_command *command, int argc, char **argv, void *options,
                 int *first_operand_out);
/* Options that are right one by one and wrong together, or operands: one line to standard error,
 * with where to look. Returns the exit code. */
int config_misused(const struct config_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The exit code of what was done; a failure is told in one line. */
int config_end(const struct config_command *command, enum status status, const struct error *error);
/* All three of a command without operands that does one thing: the exit code. */
typedef enum status config_action(const void *options, struct error *error);
int config_do(const struct config_command *command, int argc, char **argv, void *options,
              config_action *action);

#endif
