#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/config_internal.h"

/* The row that is needed and not set, or NULL. */
static const struct config_row *lacking(const struct config_command *command, const void *options)
{
    for (size_t i = 0; command->needed && i < command->row_count; i++) {
        const struct config_row *row = &command->rows[i];
        if (strcmp(row->name, command->needed) != 0)
            continue;
        const char *text;
        CHECK(row->kind == CONFIG_TEXT);
        memcpy(&text, (const char *)options + row->offset, sizeof text);
        return text ? NULL : row;
    }
    CHECK(!command->needed);
    return NULL;
}

int config_begin(const struct config_command *command, int argc, char **argv, void *options,
                 int *first_operand_out)
{
    switch (config_parse(command, argc, argv, options, first_operand_out)) {
    case CONFIG_EXIT_OK:
        return 0;
    case CONFIG_EXIT_USAGE:
        return CONFIG_EXIT_CODE_USAGE;
    case CONFIG_RUN:
        break;
    }
    const struct config_row *row = lacking(command, options);
    if (!row)
        return CONFIG_GO_ON;
    struct buffer usage = {0};
    config_row_usage(row, &usage);
    const int code = config_misused(command, "%s is needed", usage.data);
    buffer_free(&usage);
    return code;
}

int config_misused(const struct config_command *command, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", command->program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ", see `%s --help`\n", command->program);
    return CONFIG_EXIT_CODE_USAGE;
}

int config_end(const struct config_command *command, enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", command->program, error->text);
    return CONFIG_EXIT_CODE_FAILED;
}

int config_do(const struct config_command *command, int argc, char **argv, void *options,
              config_action *action)
{
    const int code = config_begin(command, argc, argv, options, NULL);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error;
    return config_end(command, action(options, &error), &error);
}
