#include "base/config_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { SCREEN_COLUMNS = 79, TEXT_COLUMN_MAX = 28, INDENT = 2 };

void config_environment_name(const struct config_row *row, char out[CONFIG_NAME_BYTES])
{
    int at = snprintf(out, CONFIG_NAME_BYTES, "BATON_");
    for (const char *c = row->name; *c && at < CONFIG_NAME_BYTES - 1; c++)
        out[at++] = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
    out[at] = '\0';
}

static const char *argument_name(const struct config_row *row)
{
    if (row->choices)
        return row->choices;
    switch (row->kind) {
    case CONFIG_FLAG:
        return "";
    case CONFIG_TEXT:
    case CONFIG_TEXTS:
        return "TEXT";
    case CONFIG_BYTES:
        return "SIZE";
    case CONFIG_AMOUNT:
        return "SIZE|SHARE%";
    case CONFIG_MS:
        return "TIME";
    case CONFIG_U32:
    case CONFIG_U64:
    case CONFIG_F64:
    case CONFIG_CHOICE:
        break;
    }
    return "N";
}

void config_row_usage(const struct config_row *row, struct buffer *out)
{
    buffer_printf(out, "--%s", row->name);
    if (row->kind != CONFIG_FLAG)
        buffer_printf(out, " %s", argument_name(row));
}

/* Columns the text takes; close enough for the Latin texts of a help page. */
static size_t column_count(const char *text, size_t bytes)
{
    size_t columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

/* Fills lines up to the edge of the screen, each beginning at `column`; the first one is begun. */
static void put_wrapped(struct buffer *out, const char *text, size_t column)
{
    size_t used = column;
    for (const char *word = text + strspn(text, " "); *word;) {
        const size_t bytes = strcspn(word, " ");
        const size_t columns = column_count(word, bytes);
        if (used > column && used + 1 + columns > SCREEN_COLUMNS) {
            buffer_printf(out, "\n%*s", (int)column, "");
            used = column;
        }
        if (used > column) {
            buffer_add_char(out, ' ');
            used++;
        }
        buffer_add(out, word, bytes);
        used += columns;
        word += bytes;
        word += strspn(word, " ");
    }
    buffer_add_char(out, '\n');
}

/* Help, default, limits and environment name of one row as running text. */
static void put_facts(const struct config_row *row, struct buffer *text)
{
    buffer_add_text(text, row->help);
    if (text->size > 0 && !strchr(".!?", text->data[text->size - 1]))
        buffer_add_char(text, '.');
    if (row->kind == CONFIG_TEXTS)
        buffer_printf(text,
                      " May be given up to %u times; the variable takes commas or spaces between "
                      "values, and a \\ before those of a value.",
                      config_texts_max(row));
    buffer_add_text(text, " [");
    if (row->fallback && row->kind != CONFIG_FLAG)
        buffer_printf(text, "default %s, ", *row->fallback ? row->fallback : "empty");
    if (row->max > row->min && row->kind != CONFIG_TEXT && row->kind != CONFIG_TEXTS) {
        config_show_number(row, row->min, text);
        buffer_add_text(text, " to ");
        config_show_number(row, row->max, text);
        buffer_add_text(text, ", ");
    }
    char name[CONFIG_NAME_BYTES];
    config_environment_name(row, name);
    buffer_printf(text, "%s]", name);
}

static size_t text_column(const struct config_command *command)
{
    size_t widest = strlen("--version");
    for (size_t i = 0; i < command->row_count; i++) {
        struct buffer usage = {0};
        config_row_usage(&command->rows[i], &usage);
        if (usage.size > widest && usage.size + INDENT + 2 <= TEXT_COLUMN_MAX)
            widest = usage.size;
        buffer_free(&usage);
    }
    return widest + INDENT + 2;
}

static void put_option(struct buffer *out, const char *usage, const char *text, size_t column)
{
    buffer_printf(out, "%*s%s", INDENT, "", usage);
    const size_t used = INDENT + strlen(usage);
    if (used + 2 > column)
        buffer_printf(out, "\n%*s", (int)column, "");
    else
        buffer_printf(out, "%*s", (int)(column - used), "");
    put_wrapped(out, text, column);
}

static void put_examples(struct buffer *out, const char *examples)
{
    buffer_add_text(out, "\nExamples:\n");
    for (const char *line = examples; *line;) {
        const size_t bytes = strcspn(line, "\n");
        const size_t blanks = strspn(line, " ");
        if (blanks < bytes)
            buffer_printf(out, "%*s%.*s", INDENT, "", (int)(bytes - blanks), line + blanks);
        buffer_add_char(out, '\n');
        line += bytes + (line[bytes] == '\n');
    }
}

void config_print_help(const struct config_command *command)
{
    struct buffer out = {0};
    buffer_printf(&out, "%s: ", command->program);
    put_wrapped(&out, command->summary, 0);
    buffer_printf(&out, "\nUsage: %s [OPTION]...%s%s\n", command->program,
                  command->operands ? " " : "", command->operands ? command->operands : "");
    if (command->examples)
        put_examples(&out, command->examples);
    buffer_add_text(&out, "\nOptions (the environment variable named in brackets sets the same; "
                          "an option on\nthe command line wins over it):\n");
    const size_t column = text_column(command);
    for (size_t i = 0; i < command->row_count; i++) {
        struct buffer usage = {0}, text = {0};
        config_row_usage(&command->rows[i], &usage);
        put_facts(&command->rows[i], &text);
        put_option(&out, usage.data, text.data, column);
        buffer_free(&usage);
        buffer_free(&text);
    }
    put_option(&out, "-h, --help", "Print this help and exit.", column);
    put_option(&out, "--version", "Print the version and exit.", column);
    fwrite(out.data, 1, out.size, stdout);
    fflush(stdout);
    buffer_free(&out);
}
