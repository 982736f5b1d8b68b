/* The models that one router serves, as clients name them: the text half of each.
 *
 * An operand of --model is NAME=PATH, or PATH alone, which is named after the file. The list is
 * made at start and does not change; the first model is that of requests which name none. */
#ifndef BATON_ROUTER_MODEL_LIST_H
#define BATON_ROUTER_MODEL_LIST_H

#include "base/config.h"
#include "model/text/jinja/jinja.h"
#include "model/text/text.h"
#include "router/tool_style.h"

enum { MODEL_LIST_MAX = CONFIG_TEXTS_MAX, MODEL_LIST_NAME_MAX = 128 /* bytes */ };

struct model_entry {
    char *name;
    struct text *text;
    struct jinja *template;     /* of chats, instead of the model's own; or NULL */
    enum tool_style tool_style; /* TOOL_STYLE_COUNT: as the template says */
};

struct model_list {
    struct model_entry items[MODEL_LIST_MAX];
    uint32_t count;
};

/* The path in an operand, within it. *name_out, which the caller frees: the name it says, or that
 * of its path; it may be one that model_list_open refuses. */
const char *model_list_operand(const char *operand, char **name_out);
/* name: of the only model, instead of its own; NULL for none. INVALID with a sentence for a
 * name that two of them have or that is no name, or `name` for several; or why a file
 * can not be used. *out is closed by the caller after success only. */
enum status model_list_open(const struct config_texts *operands, const char *name,
                            struct model_list *out, struct error *error);
/* Operands of --chat-template, [NAME=]FILE, and of --tool-call-parser, [NAME=]STYLE: for the model
 * of that name, or for all that none names. INVALID with a sentence for a name that no model has,
 * for what is said twice, and for a file or a style that is none; what was taken stays in the list,
 * which is the caller's to close either way. */
enum status model_list_templates(struct model_list *list, const struct config_texts *operands,
                                 struct error *error);
enum status model_list_tool_styles(struct model_list *list, const struct config_texts *operands,
                                   struct error *error);
void model_list_close(struct model_list *list);

#endif
