/* Statements: scopes, loops, macros; and a rendering from beginning to end. */
#include <stdlib.h>

#include "model/text/jinja/jinja_internal.h"

const struct jinja_limits jinja_limits_default = {
    .steps = 500000, .depth = 400, .memory_bytes = 64 << 20, .output_bytes = 64 << 20};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow body_run(struct jinja_run *run, const struct node_list *body);

static struct binding *binding_find(struct jinja_run *run, const struct scope *scope,
                                    int32_t symbol)
{
    for (struct binding *binding = scope->bindings; binding != NULL; binding = binding->next) {
        if (binding->symbol == symbol)
            return binding;
        jinja_charge(&run->heap, 1);
    }
    return NULL;
}

static void variable_set(struct jinja_run *run, int32_t symbol, struct value value)
{
    if (run->scope == NULL) {
        run->variables[symbol] = value;
        return;
    }
    struct binding *binding = binding_find(run, run->scope, symbol);
    if (binding == NULL) {
        binding = jinja_take(&run->heap, sizeof *binding);
        binding->symbol = symbol;
        binding->next = run->scope->bindings;
        run->scope->bindings = binding;
    }
    binding->value = value;
}

struct value variable_get(struct jinja_run *run, int32_t symbol, const struct string *name)
{
    for (const struct scope *scope = run->scope; scope != NULL; scope = scope->parent) {
        const struct binding *binding = binding_find(run, scope, symbol);
        if (binding != NULL)
            return binding->value;
    }
    if (run->variables[symbol].kind != KIND_ABSENT)
        return run->variables[symbol];
    if (run->globals[symbol].kind != KIND_ABSENT)
        return run->globals[symbol];
    return value_undefined(&run->heap, "'%.*s' is undefined",
                           (int)(name->bytes < 80 ? name->bytes : 80), name->data);
}

static struct scope *scope_push(struct jinja_run *run)
{
    struct scope *scope = jinja_take(&run->heap, sizeof *scope);
    scope->parent = run->scope;
    run->scope = scope;
    return scope;
}

static void target_set(struct jinja_run *run, const struct node *target, struct value value)
{
    struct jinja_heap *heap = &run->heap;
    if (target->kind == NODE_NAME) {
        variable_set(run, target->symbol, value);
        return;
    }
    heap->line = target->line;
    heap->column = target->column;
    if (target->kind == NODE_ATTRIBUTE_SET) {
        const struct value of = variable_get(run, target->symbol, &target->text);
        if (of.kind != KIND_NAMESPACE)
            jinja_fail(heap, STATUS_INVALID, "cannot assign attribute on non-namespace object");
        dict_set(heap, of.dict,
                 string_value(heap, target->text.data, target->text.bytes, FROM_TEMPLATE), value);
        return;
    }
    const struct list *items = value_items(heap, value);
    if (items->count != target->items.count)
        jinja_fail(heap, STATUS_INVALID, "%zu values are to be unpacked into %zu names",
                   items->count, target->items.count);
    for (size_t i = 0; i < items->count; i++)
        target_set(run, target->items.items[i], items->items[i]);
}

/* What the statements print, as a string. */
static struct value captured(struct jinja_run *run, const struct node_list *body)
{
    struct builder text = {.heap = &run->heap};
    struct builder *const out = run->out;
    run->out = &text;
    (void)body_run(run, body); // no loop goes on around it
    run->out = out;
    return builder_value(&text);
}

static struct value captured_in_scope(struct jinja_run *run, const struct node_list *body)
{
    struct scope *const around = run->scope;
    scope_push(run);
    const struct value value = captured(run, body);
    run->scope = around;
    return value;
}

static bool item_wanted(struct jinja_run *run, const struct node *node, struct value item)
{
    struct scope *const around = run->scope;
    scope_push(run);
    target_set(run, node->target, item);
    const bool wanted = value_true(&run->heap, evaluate(run, node->b));
    run->scope = around;
    return wanted;
}

static int32_t symbol_find(struct jinja_run *run, const char *name)
{
    const struct value *symbol =
        dict_find_text(&run->heap, &run->template->symbols, name, strlen(name));
    return symbol != NULL ? (int32_t)symbol->integer : -1;
}

static void loop_run(struct jinja_run *run, const struct node *node, struct value walked,
                     uint32_t depth)
{
    struct jinja_heap *heap = &run->heap;
    struct scope *const around = run->scope;
    const struct list *items = value_items(heap, walked);
    const int32_t loop_symbol = symbol_find(run, "loop");
    if (node->b != NULL) {
        struct value filtered = value_list(heap, KIND_LIST);
        for (size_t i = 0; i < items->count; i++)
            if (item_wanted(run, node, items->items[i]))
                list_add(heap, filtered.list, items->items[i]);
        items = filtered.list;
    }
    struct loop_state *loop = jinja_take(heap, sizeof *loop);
    *loop = (struct loop_state){.node = node,
                                .scope = around,
                                .items = items->items,
                                .count = items->count,
                                .depth = depth};
    for (; loop->at < loop->count; loop->at++) {
        jinja_charge(heap, 1);
        scope_push(run);
        if (loop_symbol >= 0)
            variable_set(run, loop_symbol, (struct value){.kind = KIND_LOOP, .loop = loop});
        target_set(run, node->target, loop->items[loop->at]);
        const enum flow flow = body_run(run, &node->body);
        run->scope = around;
        if (flow == FLOW_BREAK)
            return;
    }
    if (loop->count == 0) {
        scope_push(run);
        (void)body_run(run, &node->other);
        run->scope = around;
    }
}

struct value loop_call(struct jinja_run *run, struct loop_state *loop, struct value items)
{
    struct builder text = {.heap = &run->heap};
    struct builder *const out = run->out;
    struct scope *const scope = run->scope;
    if (loop->node->op == 0)
        jinja_fail(&run->heap, STATUS_INVALID, "only a loop marked 'recursive' can be called");
    jinja_enter(&run->heap);
    run->out = &text;
    run->scope = loop->scope;
    loop_run(run, loop->node, items, loop->depth + 1);
    run->out = out;
    run->scope = scope;
    jinja_leave(&run->heap);
    return builder_value(&text);
}

/* The value of an argument by its name, taken out of args. */
static struct value named_take(struct args *args, const struct string *name)
{
    for (size_t i = 0; i < args->named_count; i++) {
        const struct named named = args->named[i];
        if (named.name->bytes != name->bytes ||
            memcmp(named.name->data, name->data, name->bytes) != 0)
            continue;
        args->named[i] = args->named[--args->named_count];
        return named.value;
    }
    return (struct value){.kind = KIND_ABSENT};
}

static void extra_args_set(struct jinja_run *run, const struct node *node, struct args *args)
{
    struct jinja_heap *heap = &run->heap;
    const size_t params = node->items.count;
    const struct string caller_name = {.data = "caller", .bytes = 6};
    const struct value caller = (node->op & MACRO_CALLER) != 0
                                    ? named_take(args, &caller_name)
                                    : (struct value){.kind = KIND_ABSENT};
    if ((node->op & MACRO_CALLER) != 0)
        variable_set(run, symbol_find(run, "caller"),
                     caller.kind != KIND_ABSENT ? caller
                                                : value_undefined(heap, "no caller defined"));
    if ((node->op & MACRO_VARARGS) != 0) {
        struct value rest = value_list(heap, KIND_TUPLE);
        for (size_t i = params; i < args->count; i++)
            list_add(heap, rest.list, args->items[i]);
        variable_set(run, symbol_find(run, "varargs"), rest);
    } else if (args->count > params) {
        jinja_fail(heap, STATUS_INVALID, "the macro '%.*s' takes not more than %zu arguments",
                   (int)node->text.bytes, node->text.data, params);
    }
    if ((node->op & MACRO_KWARGS) != 0) {
        struct value rest = value_dict(heap);
        for (size_t i = 0; i < args->named_count; i++)
            dict_set(heap, rest.dict,
                     (struct value){.kind = KIND_STRING,
                                    .string = string_value(heap, args->named[i].name->data,
                                                           args->named[i].name->bytes,
                                                           args->named[i].name->origin)
                                                  .string},
                     args->named[i].value);
        variable_set(run, symbol_find(run, "kwargs"), rest);
    } else if (args->named_count > 0) {
        jinja_fail(heap, STATUS_INVALID, "the macro '%.*s' takes no keyword argument '%.*s'",
                   (int)node->text.bytes, node->text.data,
                   (int)(args->named[0].name->bytes < 40 ? args->named[0].name->bytes : 40),
                   args->named[0].name->data);
    }
}

struct value macro_call(struct jinja_run *run, struct macro *macro, const struct args *given)
{
    struct jinja_heap *heap = &run->heap;
    const struct node *node = macro->node;
    struct scope *const around = run->scope;
    struct args args = *given;
    jinja_enter(heap);
    run->scope = macro->scope;
    scope_push(run);
    args.named = jinja_take(heap, (given->named_count + 1) * sizeof *args.named);
    if (given->named_count > 0)
        memcpy(args.named, given->named, given->named_count * sizeof *args.named);
    for (size_t i = 0; i < node->items.count; i++) {
        const struct node *parameter = node->items.items[i];
        struct value value = named_take(&args, &parameter->text);
        if (i < args.count) {
            if (value.kind != KIND_ABSENT)
                jinja_fail(heap, STATUS_INVALID, "the macro '%.*s' got the argument '%.*s' twice",
                           (int)node->text.bytes, node->text.data, (int)parameter->text.bytes,
                           parameter->text.data);
            value = args.items[i];
        } else if (value.kind == KIND_ABSENT && parameter->a != NULL) {
            value = evaluate(run, parameter->a);
        } else if (value.kind == KIND_ABSENT) {
            value = value_undefined(heap, "parameter '%.*s' was not provided",
                                    (int)parameter->text.bytes, parameter->text.data);
        }
        variable_set(run, parameter->symbol, value);
    }
    extra_args_set(run, node, &args);
    const struct value text = captured(run, &node->body);
    run->scope = around;
    jinja_leave(heap);
    return text;
}

static struct value macro_value(struct jinja_run *run, const struct node *node)
{
    struct macro *macro = jinja_take(&run->heap, sizeof *macro);
    *macro = (struct macro){.node = node, .scope = run->scope};
    return (struct value){.kind = KIND_MACRO, .macro = macro};
}

static void call_block_run(struct jinja_run *run, const struct node *node)
{
    static const struct string caller = {.data = "caller", .bytes = 6};
    const struct value callee = evaluate(run, node->a->a);
    struct args args = evaluate_args(run, &node->a->items, 1);
    struct named *named = jinja_take(&run->heap, (args.named_count + 1) * sizeof *named);
    if (args.named_count > 0)
        memcpy(named, args.named, args.named_count * sizeof *named);
    args.named = named;
    args.named[args.named_count++] = (struct named){&caller, macro_value(run, node->b)};
    run->heap.line = node->line;
    run->heap.column = node->column;
    print_value(run->out, value_call(run, callee, &args));
}

static enum flow if_run(struct jinja_run *run, const struct node *node)
{
    for (size_t i = 0; i < node->items.count; i++) {
        const struct node *branch = node->items.items[i];
        if (branch->a == NULL || value_true(&run->heap, evaluate(run, branch->a)))
            return body_run(run, &branch->body);
    }
    return FLOW_ON;
}

static enum flow with_run(struct jinja_run *run, const struct node *node)
{
    struct scope *const around = run->scope;
    struct value *values = jinja_take(&run->heap, (node->items.count + 1) * sizeof *values);
    for (size_t i = 0; i < node->items.count; i += 2) // all in the scope around
        values[i] = evaluate(run, node->items.items[i + 1]);
    scope_push(run);
    for (size_t i = 0; i < node->items.count; i += 2)
        target_set(run, node->items.items[i], values[i]);
    const enum flow flow = body_run(run, &node->body);
    run->scope = around;
    return flow;
}

static enum flow scope_run(struct jinja_run *run, const struct node *node)
{
    struct scope *const around = run->scope;
    scope_push(run);
    const enum flow flow = body_run(run, &node->body);
    run->scope = around;
    return flow;
}

static enum flow statement_run(struct jinja_run *run, const struct node *node)
{
    struct value value;
    switch (node->kind) {
    case NODE_TEXT:
        builder_add_string(run->out, &node->text);
        return FLOW_ON;
    case NODE_PRINT:
        print_value(run->out, evaluate(run, node->a));
        return FLOW_ON;
    case NODE_IF:
        return if_run(run, node);
    case NODE_FOR:
        value = evaluate(run, node->a);
        run->heap.line = node->line;
        run->heap.column = node->column;
        loop_run(run, node, value, 1);
        return FLOW_ON;
    case NODE_SET:
        target_set(run, node->target, evaluate(run, node->a));
        return FLOW_ON;
    case NODE_SET_BLOCK:
        value = captured_in_scope(run, &node->body);
        target_set(run, node->target, node->a != NULL ? filter_apply(run, value, node->a) : value);
        return FLOW_ON;
    case NODE_MACRO:
        variable_set(run, node->symbol, macro_value(run, node));
        return FLOW_ON;
    case NODE_CALL_BLOCK:
        call_block_run(run, node);
        return FLOW_ON;
    case NODE_FILTER_BLOCK:
        value = captured_in_scope(run, &node->body);
        print_value(run->out, filter_apply(run, value, node->a));
        return FLOW_ON;
    case NODE_WITH:
        return with_run(run, node);
    case NODE_SCOPE:
        return scope_run(run, node);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        CHECK(!"no statement");
    }
    return FLOW_ON;
}

static enum flow body_run(struct jinja_run *run, const struct node_list *body)
{
    enum flow flow = FLOW_ON;
    jinja_enter(&run->heap);
    for (size_t i = 0; i < body->count && flow == FLOW_ON; i++) {
        const struct node *node = body->items[i];
        jinja_charge(&run->heap, 1);
        run->heap.line = node->line;
        run->heap.column = node->column;
        flow = statement_run(run, node);
    }
    jinja_leave(&run->heap);
    return flow;
}

void jinja_set_value(struct jinja_run *run, const char *name, struct value value)
{
    const int32_t symbol = symbol_find(run, name);
    if (symbol >= 0) // else nobody asks for it
        run->globals[symbol] = value;
}

void jinja_set_json(struct jinja_run *run, const char *name, const struct json *value)
{
    if (symbol_find(run, name) >= 0)
        jinja_set_value(run, name, value_from_json(&run->heap, value));
}

void jinja_set_text(struct jinja_run *run, const char *name, const char *text, size_t bytes)
{
    jinja_set_value(run, name, string_value(&run->heap, text, bytes, FROM_TEMPLATE));
}

void jinja_set_bool(struct jinja_run *run, const char *name, bool value)
{
    jinja_set_value(run, name, value_bool(value));
}

void jinja_set_none(struct jinja_run *run, const char *name)
{
    jinja_set_value(run, name, value_none());
}

void jinja_set_members(struct jinja_run *run, const struct json *object)
{
    void *cursor = NULL;
    const char *key;
    const struct json *member;
    while (json_next(object, &cursor, &key, &member))
        jinja_set_json(run, key, member);
}

void jinja_prompt_free(struct jinja_prompt *prompt)
{
    buffer_free(&prompt->text);
    buffer_free(&prompt->marks);
}

static void render(struct jinja_run *run, jinja_fill *fill, void *arg, uint64_t output_bytes,
                   struct jinja_prompt *out)
{
    const size_t symbols = run->template->symbols.count + 1;
    struct builder text = {.heap = &run->heap, .limit = (size_t)output_bytes};
    run->globals = jinja_take(&run->heap, symbols * sizeof *run->globals);
    run->variables = jinja_take(&run->heap, symbols * sizeof *run->variables);
    run->out = &text;
    globals_fill(run);
    fill(run, arg);
    (void)body_run(run, &run->template->body);
    if (text.bytes > 0) {
        buffer_add(&out->text, text.data, text.bytes);
        buffer_add(&out->marks, text.marks, text.bytes);
    }
}

enum status jinja_render(const struct jinja *template, const struct jinja_limits *limits,
                         size_t input_bytes, int64_t now_s, jinja_fill *fill, void *arg,
                         struct jinja_prompt *out, struct error *error)
{
    enum { INPUT_BYTES_PER_STEP = 4, MEMORY_PER_INPUT_BYTE = 8 };
    struct jinja_run *run = calloc(1, sizeof *run);
    CHECK(run != NULL);
    run->template = template;
    run->now_s = now_s;
    run->heap.limit = limits->memory_bytes + (uint64_t)input_bytes * MEMORY_PER_INPUT_BYTE;
    run->heap.steps_left = limits->steps + input_bytes / INPUT_BYTES_PER_STEP;
    run->heap.depth_max = limits->depth;
    run->heap.error = error;
    if (setjmp(run->heap.failed) == 0)
        render(run, fill, arg, limits->output_bytes, out);
    const enum status status = run->heap.status; // STATUS_OK unless it jumped
    jinja_roots_free(run);
    jinja_heap_free(&run->heap);
    free(run);
    return status;
}
