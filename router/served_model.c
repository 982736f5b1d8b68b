/* The models of this router: what is known of each when a request comes, what waits for it, what is
 * counted of it. */
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "router/router_internal.h"

/* Whether the template refuses a system message, which it would take without one. */
static bool refuses_system(const struct text *text, const struct jinja *template)
{
    static const char both[] = "[{\"role\":\"system\",\"content\":\"a\"},"
                               "{\"role\":\"user\",\"content\":\"b\"}]";
    static const char alone[] = "[{\"role\":\"user\",\"content\":\"b\"}]";
    bool taken[2];
    for (int i = 0; i < 2; i++) {
        struct chat_input input = {.template = template, .add_generation_prompt = true};
        struct buffer prompt = {0};
        struct json *messages;
        struct error error;
        const char *source = i == 0 ? both : alone;
        CHECK(json_parse(source, strlen(source), &messages, &error) == STATUS_OK);
        input.messages = messages;
        taken[i] = text_render_chat(text, &input, &prompt, &error) == STATUS_OK;
        buffer_free(&prompt);
        json_free(messages);
    }
    return !taken[0] && taken[1];
}

/* A model whose template shows tools is told of them there, in the style that it shows. */
static struct tool_manner choose_manner(const struct model_entry *entry)
{
    size_t bytes;
    const char *source = text_chat_source(entry->text, entry->template, &bytes);
    const enum tool_style shown = tool_style_of_template(source, bytes);
    const bool told = entry->tool_style < TOOL_STYLE_COUNT;
    return (struct tool_manner){.style = told                       ? entry->tool_style
                                         : shown != TOOL_STYLE_NONE ? shown
                                                                    : TOOL_STYLE_HERMES,
                                .in_template = tool_template_takes_tools(source, bytes) &&
                                               (told || shown != TOOL_STYLE_NONE),
                                .no_system = refuses_system(entry->text, entry->template)};
}

void served_models_init(struct router *router, const struct model_list *list)
{
    router->model_count = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        struct served_model *model = &router->models[i];
        model->index = i;
        model->name = list->items[i].name;
        model->text = list->items[i].text;
        model->template = list->items[i].template;
        model->tools = choose_manner(&list->items[i]);
        TAILQ_INIT(&model->queue);
        if (list->count > 1)
            model->metrics = router_metrics_create();
    }
}

void served_models_log(const struct router *router)
{
    for (uint32_t i = 0; i < router->model_count; i++) {
        const struct tool_manner *manner = &router->models[i].tools;
        LOG_INFO("model %s: tool calls in the style %s, %s", router->models[i].name,
                 tool_syntax(manner->style)->name,
                 manner->in_template ? "which its chat template shows"
                 : manner->no_system ? "told of in the first message"
                                     : "told of in the system message");
    }
}

void served_models_free(struct router *router)
{
    for (uint32_t i = 0; i < router->model_count; i++)
        metrics_destroy(router->models[i].metrics);
}

void served_models_rules(const struct router *router, struct openai_rules *rules)
{
    for (uint32_t i = 0; i < router->model_count; i++) {
        const struct served_model *model = &router->models[i];
        rules[i] = (struct openai_rules){
            .next = i + 1 < router->model_count ? &rules[i + 1] : NULL,
            .text = model->text,
            .model_name = model->name,
            .model = i,
            .context_tokens = model->context_tokens,
            .page_tokens = model->page_tokens,
            .default_max_tokens = router->options.default_max_tokens,
            .tools = model->tools,
            .template = model->template,
            .trust_template = router->options.trust_template,
            .grammars = router->grammars,
        };
    }
}

void served_model_look(struct router *router, uint32_t index)
{
    struct served_model *model = &router->models[index];
    model->context_tokens = fleet_context_tokens(router->fleet, index);
    model->page_tokens = fleet_page_tokens(router->fleet, index);
}

uint32_t served_models_queued(const struct router *router)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < router->model_count; i++)
        count += router->models[i].queue_count;
    return count;
}

bool served_model_ready(const struct router *router, const struct served_model *model)
{
    return fleet_serving(router->fleet, model->index, WORKER_DECODE) > 0 && !router->draining;
}

void session_add(const struct session *session, enum router_metric metric, double amount)
{
    metrics_add(session->router->metrics, metric, amount);
    if (session->model && session->model->metrics)
        metrics_add(session->model->metrics, metric, amount);
}

void session_observe(const struct session *session, enum router_metric metric, double value)
{
    metrics_observe(session->router->metrics, metric, value);
    if (session->model && session->model->metrics)
        metrics_observe(session->model->metrics, metric, value);
}
