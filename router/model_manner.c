/* What --chat-template and --tool-call-parser say of one model or of all. */
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "router/model_list.h"

static const char every[] = "";

/* An operand for the model at `index`: the value behind its name, or the operand itself where no
 * model is named; NULL where it is of another one. *named_out: which it was. A value may have a
 * "=" as well, so that what stands before one is a name only where a model has it. */
static const char *value_for(const struct model_list *list, uint32_t index, const char *operand,
                             bool *named_out)
{
    const char *value = NULL;
    size_t longest = 0;
    uint32_t owner = UINT32_MAX;
    for (uint32_t i = 0; i < list->count; i++) {
        const size_t bytes = strlen(list->items[i].name);
        if (bytes > longest && strncmp(operand, list->items[i].name, bytes) == 0 &&
            operand[bytes] == '=') {
            longest = bytes;
            value = operand + bytes + 1;
            owner = i;
        }
    }
    *named_out = value != NULL;
    if (value != NULL)
        return owner == index ? value : NULL;
    return operand;
}

/* "=" is behind a name by the rule of --model: a path begins with a slash or a dot, or is there. */
static enum status check_named(const struct model_list *list, const char *operand,
                               const char *option, struct error *error)
{
    bool named;
    (void)value_for(list, 0, operand, &named);
    if (named || !strchr(operand, '=') || operand[0] == '/' || operand[0] == '.' ||
        access(operand, F_OK) == 0)
        return STATUS_OK;
    struct buffer names = {0};
    for (uint32_t i = 0; i < list->count; i++)
        buffer_printf(&names, "%s\"%s\"", i > 0 ? ", " : "", list->items[i].name);
    error_set(error, STATUS_INVALID, "%s: \"%.64s\" names none of the models of --model: %s",
              option, operand, names.data);
    buffer_free(&names);
    return STATUS_INVALID;
}

typedef enum status taking(struct model_entry *entry, const char *value, struct error *error);

/* Each model takes the value that names it, else the one without a name. */
static enum status give(struct model_list *list, const struct config_texts *operands,
                        const char *option, taking *take, struct error *error)
{
    for (uint32_t i = 0; i < operands->count; i++)
        TRY(check_named(list, operands->items[i], option, error));
    for (uint32_t m = 0; m < list->count; m++) {
        const char *chosen[2] = {NULL, NULL}; /* for all, for this one */
        for (uint32_t i = 0; i < operands->count; i++) {
            bool named;
            const char *value = value_for(list, m, operands->items[i], &named);
            if (value == NULL)
                continue;
            if (chosen[named] != NULL)
                return error_set(error, STATUS_INVALID, "%s: \"%.64s\" and \"%.64s\" are both %s%s",
                                 option, chosen[named], value,
                                 named ? "of the model " : "for the models that none names",
                                 named ? list->items[m].name : every);
            chosen[named] = value;
        }
        const char *value = chosen[true] != NULL ? chosen[true] : chosen[false];
        if (value != NULL)
            TRY(take(&list->items[m], value, error));
    }
    return STATUS_OK;
}

static enum status take_template(struct model_entry *entry, const char *path, struct error *error)
{
    struct error cause;
    const enum status status = jinja_open(path, &entry->template, &cause);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(error, status, "--chat-template of the model \"%.64s\": %s", entry->name,
                     cause.text);
}

enum status model_list_templates(struct model_list *list, const struct config_texts *operands,
                                 struct error *error)
{
    return give(list, operands, "--chat-template", take_template, error);
}

static enum status take_style(struct model_entry *entry, const char *name, struct error *error)
{
    struct buffer known = {0};
    if (strcmp(name, "auto") == 0)
        return STATUS_OK;
    for (int style = 0; style < TOOL_STYLE_COUNT; style++) {
        const char *other = tool_syntax((enum tool_style)style)->name;
        if (strcmp(name, other) == 0) {
            entry->tool_style = (enum tool_style)style;
            buffer_free(&known);
            return STATUS_OK;
        }
        buffer_add_text(&known, other);
        buffer_add_text(&known, ", ");
    }
    error_set(error, STATUS_INVALID,
              "--tool-call-parser: \"%.64s\" of the model \"%.64s\" is no style (%sauto)", name,
              entry->name, known.data);
    buffer_free(&known);
    return STATUS_INVALID;
}

enum status model_list_tool_styles(struct model_list *list, const struct config_texts *operands,
                                   struct error *error)
{
    return give(list, operands, "--tool-call-parser", take_style, error);
}
