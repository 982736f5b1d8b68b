/* Parsing is in three passes over the same rows: defaults, environment, command line; the value
 * readers are in config_value.c, the help page is in config_help.c. */
#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config_internal.h"

enum { SUGGESTION_DISTANCE_MAX = 3, LISTED_NAME_BYTES = 48 };

static size_t field_bytes(enum config_kind kind)
{
    switch (kind) {
    case CONFIG_FLAG:
        return sizeof(bool);
    case CONFIG_TEXT:
        return sizeof(const char *);
    case CONFIG_TEXTS:
        return sizeof(struct config_texts);
    case CONFIG_U32:
    case CONFIG_MS:
    case CONFIG_CHOICE:
        return sizeof(uint32_t);
    case CONFIG_U64:
    case CONFIG_BYTES:
        return sizeof(uint64_t);
    case CONFIG_AMOUNT:
        return sizeof(struct config_amount);
    case CONFIG_F64:
        return sizeof(double);
    }
    return 0;
}

/* The next piece of a list, ended where its separator was, its backslashes taken out; NULL at the
 * end. */
static char *list_next(char **rest)
{
    static const char separators[] = ", \t\n";
    char *piece = *rest + strspn(*rest, separators), *end = piece;
    if (*piece == '\0')
        return NULL;
    char *from = piece;
    for (; *from && !strchr(separators, *from); from++) {
        from += from[0] == '\\' && from[1] != '\0';
        *end++ = *from;
    }
    *rest = from + (*from != '\0');
    *end = '\0';
    return piece;
}

/* A list such as "a, b c" from the environment or a default; what follows a backslash separates
 * nothing. The pieces live as long as the process, as the strings of argv and environ do. */
static enum status set_list(const struct config_row *row, const char *text, void *options,
                            struct error *error)
{
    static struct kept {
        struct kept *next;
        char text[];
    } * all_kept;
    const size_t bytes = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + bytes);
    CHECK(kept != NULL);
    kept->next = all_kept;
    all_kept = kept;
    memcpy(kept->text, text, bytes);
    char *rest = kept->text;
    for (char *piece = list_next(&rest); piece; piece = list_next(&rest))
        TRY(config_value_set(row, piece, options, error));
    return STATUS_OK;
}

static enum status set_outside_argv(const struct config_row *row, const char *text, void *options,
                                    struct error *error)
{
    if (row->kind == CONFIG_TEXTS)
        return set_list(row, text, options, error);
    return config_value_set(row, text, options, error);
}

static void set_defaults(const struct config_command *command, void *options)
{
    for (size_t i = 0; i < command->row_count; i++) {
        const struct config_row *row = &command->rows[i];
        memset((char *)options + row->offset, 0, field_bytes(row->kind));
        struct error error;
        if (row->fallback && set_outside_argv(row, row->fallback, options, &error) != STATUS_OK) {
            fprintf(stderr, "%s: the default of --%s: %s\n", command->program, row->name,
                    error.text);
            CHECK(!"the default in a config row is not valid");
        }
    }
}

static bool set_from_environment(const struct config_command *command, void *options)
{
    for (size_t i = 0; i < command->row_count; i++) {
        const struct config_row *row = &command->rows[i];
        char name[CONFIG_NAME_BYTES];
        config_environment_name(row, name);
        const char *text = getenv(name);
        if (!text || !*text)
            continue;
        if (row->kind == CONFIG_TEXTS)
            memset((char *)options + row->offset, 0, sizeof(struct config_texts));
        struct error error;
        if (set_outside_argv(row, text, options, &error) != STATUS_OK) {
            fprintf(stderr, "%s: environment variable %s: %s\n", command->program, name,
                    error.text);
            return false;
        }
    }
    return true;
}

/* Levenshtein distance, one row at a time. */
static size_t edit_distance(const char *a, size_t a_bytes, const char *b)
{
    size_t row[LISTED_NAME_BYTES + 1];
    const size_t b_bytes = strlen(b);
    if (b_bytes > LISTED_NAME_BYTES || a_bytes > LISTED_NAME_BYTES)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            const size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[b_bytes];
}

static const char *nearest_name(const struct config_command *command, const char *name,
                                size_t bytes)
{
    const char *best = NULL;
    size_t best_distance = SUGGESTION_DISTANCE_MAX + 1;
    for (size_t i = 0; i < command->row_count; i++) {
        const char *candidate = command->rows[i].name;
        size_t distance = edit_distance(name, bytes, candidate);
        /* "--batch" for "--max-batch": a name that holds or begins the other is near as well. */
        if (bytes >= 3 && distance >= best_distance &&
            memmem(candidate, strlen(candidate), name, bytes))
            distance = SUGGESTION_DISTANCE_MAX;
        if (distance < best_distance && distance < bytes) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

static enum config_result unknown_option(const struct config_command *command, const char *argument,
                                         const char *name, size_t bytes)
{
    const int shown = (int)(name + bytes - argument);
    const char *nearest = nearest_name(command, name, bytes);
    if (nearest)
        fprintf(stderr, "%s: unknown option %.*s; did you mean --%s?\n", command->program, shown,
                argument, nearest);
    else
        fprintf(stderr, "%s: unknown option %.*s; %s --help lists all\n", command->program, shown,
                argument, command->program);
    return CONFIG_EXIT_USAGE;
}

static const struct config_row *find_row(const struct config_command *command, const char *name,
                                         size_t bytes)
{
    for (size_t i = 0; i < command->row_count; i++) {
        const struct config_row *row = &command->rows[i];
        if (strlen(row->name) == bytes && memcmp(row->name, name, bytes) == 0)
            return row;
    }
    return NULL;
}

/* One pass over argv. seen[i] is set once row i stood on the command line. */
struct walk {
    const struct config_command *command;
    int argc, index;
    char **argv;
    void *options;
    bool *seen;
};

static enum config_result take_option(struct walk *walk)
{
    const struct config_command *command = walk->command;
    const char *argument = walk->argv[walk->index];
    const char *name = argument + (argument[1] == '-' ? 2 : 1);
    const size_t bytes = strcspn(name, "=");
    const struct config_row *row = argument[1] == '-' ? find_row(command, name, bytes) : NULL;
    if (!row)
        return unknown_option(command, argument, name, bytes);

    const char *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
    if (!value && row->kind == CONFIG_FLAG)
        value = "yes";
    else if (!value && walk->index + 1 < walk->argc)
        value = walk->argv[++walk->index];
    if (!value) {
        struct buffer usage = {0};
        config_row_usage(row, &usage);
        fprintf(stderr, "%s: --%s needs a value: %s\n", command->program, row->name, usage.data);
        buffer_free(&usage);
        return CONFIG_EXIT_USAGE;
    }
    if (row->kind == CONFIG_TEXTS && !walk->seen[row - command->rows])
        memset((char *)walk->options + row->offset, 0, sizeof(struct config_texts));
    walk->seen[row - command->rows] = true;
    struct error error;
    if (config_value_set(row, value, walk->options, &error) != STATUS_OK) {
        fprintf(stderr, "%s: --%s: %s\n", command->program, row->name, error.text);
        return CONFIG_EXIT_USAGE;
    }
    return CONFIG_RUN;
}

static enum config_result take_argument(struct walk *walk, char **operands, int *operand_count)
{
    const struct config_command *command = walk->command;
    char *argument = walk->argv[walk->index];
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        config_print_help(command);
        return CONFIG_EXIT_OK;
    }
    if (strcmp(argument, "--version") == 0) {
        printf("%s %s\n", command->program, BATON_VERSION);
        return CONFIG_EXIT_OK;
    }
    if (argument[0] == '-' && argument[1] != '\0')
        return take_option(walk);
    if (!command->operands) {
        fprintf(stderr, "%s: unexpected argument \"%s\"; %s --help lists the options\n",
                command->program, argument, command->program);
        return CONFIG_EXIT_USAGE;
    }
    operands[(*operand_count)++] = argument;
    return CONFIG_RUN;
}

/* Walks argv and moves the operands to its end, in their order. */
static enum config_result walk_argv(struct walk *walk, int *first_operand_out)
{
    char **operands = calloc((size_t)walk->argc + 1, sizeof *operands);
    CHECK(operands != NULL);
    int operand_count = 0, option_count = 0;
    enum config_result result = CONFIG_RUN;
    bool only_operands = false;
    for (walk->index = 1; walk->index < walk->argc && result == CONFIG_RUN; walk->index++) {
        const int begin = walk->index;
        if (!only_operands && strcmp(walk->argv[begin], "--") == 0) {
            only_operands = walk->command->operands != NULL;
            result = only_operands ? CONFIG_RUN : take_argument(walk, operands, &operand_count);
        } else if (only_operands) {
            operands[operand_count++] = walk->argv[begin];
            continue;
        } else {
            const int operands_before = operand_count;
            result = take_argument(walk, operands, &operand_count);
            if (operand_count > operands_before)
                continue;
        }
        for (int i = begin; i <= walk->index && i < walk->argc; i++)
            walk->argv[1 + option_count++] = walk->argv[i];
    }
    if (result == CONFIG_RUN) {
        for (int i = 0; i < operand_count; i++)
            walk->argv[1 + option_count + i] = operands[i];
        *first_operand_out = 1 + option_count;
    }
    free(operands);
    return result;
}

enum config_result config_parse(const struct config_command *command, int argc, char **argv,
                                void *options, int *first_operand_out)
{
    set_defaults(command, options);
    /* The environment is read even when --help follows, but its errors wait for a real run. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            config_print_help(command);
            return CONFIG_EXIT_OK;
        }
    }
    if (!set_from_environment(command, options))
        return CONFIG_EXIT_USAGE;
    bool *seen = calloc(command->row_count + 1, sizeof *seen);
    CHECK(seen != NULL);
    struct walk walk = {
        .command = command, .argc = argc, .argv = argv, .options = options, .seen = seen};
    int first_operand = argc;
    const enum config_result result = walk_argv(&walk, &first_operand);
    free(seen);
    if (result == CONFIG_RUN && first_operand_out)
        *first_operand_out = first_operand;
    return result;
}
