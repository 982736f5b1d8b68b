#include <stdarg.h>
#include <stdio.h>

#include "base/config.h"

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
    return CONFIG_GO_ON;
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
