/* Expressions, and calls. */
#include "model/text/jinja/jinja_internal.h"

static struct value list_evaluate(struct jinja_run *run, const struct node *node, enum kind kind)
{
    struct value list = value_list(&run->heap, kind);
    for (size_t i = 0; i < node->items.count; i++)
        list_add(&run->heap, list.list, evaluate(run, node->items.items[i]));
    return list;
}

static struct value dict_evaluate(struct jinja_run *run, const struct node *node)
{
    struct value dict = value_dict(&run->heap);
    for (size_t i = 0; i < node->items.count; i += 2) {
        const struct value key = evaluate(run, node->items.items[i]);
        dict_set(&run->heap, dict.dict, key, evaluate(run, node->items.items[i + 1]));
    }
    return dict;
}

static struct value concat_evaluate(struct jinja_run *run, const struct node *node)
{
    struct builder text = {.heap = &run->heap};
    for (size_t i = 0; i < node->items.count; i++)
        print_value(&text, evaluate(run, node->items.items[i]));
    return builder_value(&text);
}

static bool compare(struct jinja_run *run, enum compare op, struct value a, struct value b)
{
    struct jinja_heap *heap = &run->heap;
    switch (op) {
    case CMP_EQ:
        return value_equal(heap, a, b);
    case CMP_NE:
        return !value_equal(heap, a, b);
    case CMP_LT:
        return value_compare(heap, a, b, "<") < 0;
    case CMP_LE:
        return value_compare(heap, a, b, "<=") <= 0;
    case CMP_GT:
        return value_compare(heap, a, b, ">") > 0;
    case CMP_GE:
        return value_compare(heap, a, b, ">=") >= 0;
    case CMP_IN:
        return value_contains(heap, b, a);
    case CMP_NOT_IN:
        return !value_contains(heap, b, a);
    }
    return false;
}

/* a < b < c: each value once, and the first false one decides. */
static struct value compare_evaluate(struct jinja_run *run, const struct node *node)
{
    struct value left = evaluate(run, node->a);
    for (size_t i = 0; i < node->items.count; i++) {
        const struct node *operand = node->items.items[i];
        const struct value right = evaluate(run, operand->a);
        run->heap.line = node->line;
        run->heap.column = node->column;
        if (!compare(run, (enum compare)operand->op, left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value item_evaluate(struct jinja_run *run, const struct node *node)
{
    const struct value of = evaluate(run, node->a);
    if (node->b->kind != NODE_SLICE)
        return item_get(run, of, evaluate(run, node->b));
    const struct node *const parts[] = {node->b->a, node->b->b, node->b->c};
    struct value values[3];
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        values[i] = parts[i] != NULL ? evaluate(run, parts[i]) : value_none();
    return slice_get(run, of, values[0], values[1], values[2]);
}

static void spread(struct jinja_run *run, const struct node *node, struct args *args, size_t room)
{
    struct jinja_heap *heap = &run->heap;
    const struct value value = evaluate(run, node->a);
    if (node->op == 1) {
        const struct list *items = value_items(heap, value);
        struct value *grown = jinja_take(heap, (room + items->count) * sizeof *grown);
        memcpy(grown, args->items, args->count * sizeof *grown);
        memcpy(grown + args->count, items->items, items->count * sizeof *grown);
        args->items = grown;
        args->count += items->count;
        return;
    }
    if (value.kind != KIND_DICT)
        jinja_fail(heap, STATUS_INVALID, "what stands behind ** must be a dict, not '%s'",
                   value_type(value));
    struct named *grown = jinja_take(heap, (room + value.dict->count) * sizeof *grown);
    memcpy(grown, args->named, args->named_count * sizeof *grown);
    args->named = grown;
    for (size_t i = 0; i < value.dict->count; i++)
        args->named[args->named_count++] = (struct named){
            value_as_string(heap, value.dict->entries[i].key, "the name of an argument"),
            value.dict->entries[i].value};
}

struct args evaluate_args(struct jinja_run *run, const struct node_list *items, size_t more)
{
    const size_t room = items->count + more;
    struct args args = {.items = jinja_take(&run->heap, (room + 1) * sizeof *args.items),
                        .named = jinja_take(&run->heap, (room + 1) * sizeof *args.named)};
    for (size_t i = 0; i < items->count; i++) {
        const struct node *item = items->items[i];
        if (item->kind == NODE_SPREAD)
            spread(run, item, &args, room + args.count + args.named_count);
        else if (item->kind == NODE_KEYWORD)
            args.named[args.named_count++] = (struct named){&item->text, evaluate(run, item->a)};
        else
            args.items[args.count++] = evaluate(run, item);
    }
    return args;
}

/* Where a parameter of this name is in "first second third", PARAMS_MAX: nowhere. */
static size_t param_index(const char *params, const struct string *name)
{
    for (size_t i = 0; *params != '\0'; i++) {
        const size_t bytes = strcspn(params, " ");
        if (bytes == name->bytes && memcmp(params, name->data, bytes) == 0)
            return i;
        params += bytes + (params[bytes] == ' ');
    }
    return PARAMS_MAX;
}

static size_t params_count(const char *params)
{
    size_t count = *params != '\0';
    for (; *params != '\0'; params++)
        count += *params == ' ';
    return count;
}

struct value builtin_call(struct jinja_run *run, const struct builtin *builtin, struct value self,
                          const struct args *args, const char *what)
{
    struct value values[PARAMS_MAX] = {{0}};
    jinja_charge(&run->heap, 1);
    if (strcmp(builtin->params, "*") == 0)
        return builtin->call(run, self, NULL, args);
    const size_t count = params_count(builtin->params);
    if (args->count > count)
        jinja_fail(&run->heap, STATUS_INVALID, "the %s '%s' takes at most %zu arguments, not %zu",
                   what, builtin->name, count, args->count);
    if (args->count > 0)
        memcpy(values, args->items, args->count * sizeof *values);
    for (size_t i = 0; i < args->named_count; i++) {
        const struct string *name = args->named[i].name;
        const size_t at = param_index(builtin->params, name);
        if (at == PARAMS_MAX || values[at].kind != KIND_ABSENT)
            jinja_fail(&run->heap, STATUS_INVALID, "the %s '%s' takes no argument '%.*s'%s", what,
                       builtin->name, (int)(name->bytes < 40 ? name->bytes : 40), name->data,
                       at == PARAMS_MAX ? "" : " twice");
        values[at] = args->named[i].value;
    }
    for (size_t i = 0; i < builtin->required; i++)
        if (values[i].kind == KIND_ABSENT)
            jinja_fail(&run->heap, STATUS_INVALID, "the %s '%s' needs %u arguments", what,
                       builtin->name, builtin->required);
    return builtin->call(run, self, values, args);
}

const struct builtin *builtin_find(const struct builtin *rows, size_t count,
                                   const struct string *name)
{
    for (size_t i = 0; i < count; i++)
        if (string_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}

static struct value cycler_call(struct jinja_run *run, struct cycler *cycler, bool joiner)
{
    if (joiner && cycler->at++ == 0)
        return string_text(&run->heap, "");
    if (joiner)
        return cycler->items.items[0];
    const struct value value = cycler->items.items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.count;
    return value;
}

struct value value_call(struct jinja_run *run, struct value callee, const struct args *args)
{
    struct jinja_heap *heap = &run->heap;
    value_use(heap, callee);
    switch (callee.kind) {
    case KIND_BUILTIN:
        return builtin_call(run, callee.bound->builtin, callee.bound->self, args,
                            callee.bound->self.kind == KIND_ABSENT ? "function" : "method");
    case KIND_MACRO:
        return macro_call(run, callee.macro, args);
    case KIND_LOOP:
        if (args->count != 1 || args->named_count != 0)
            jinja_fail(heap, STATUS_INVALID, "loop() takes one argument");
        return loop_call(run, callee.loop, args->items[0]);
    case KIND_JOINER:
        return cycler_call(run, callee.cycler, true);
    default:
        jinja_fail(heap, STATUS_INVALID, "'%s' object is not callable", value_type(callee));
    }
}

static struct value call_evaluate(struct jinja_run *run, const struct node *node)
{
    const struct value callee = evaluate(run, node->a);
    const struct args args = evaluate_args(run, &node->items, 0);
    run->heap.line = node->line;
    run->heap.column = node->column;
    return value_call(run, callee, &args);
}

/* As in the reference, a name that is not known matters only where it is used. */
static struct value named_call(struct jinja_run *run, const struct node *node, struct value self,
                               const struct args *args)
{
    const char *what = node->kind == NODE_FILTER ? "filter" : "test";
    run->heap.line = node->line;
    run->heap.column = node->column;
    if (node->builtin == NULL)
        jinja_fail(&run->heap, STATUS_INVALID, "there is no %s named '%.*s'", what,
                   (int)(node->text.bytes < 40 ? node->text.bytes : 40), node->text.data);
    return builtin_call(run, node->builtin, self, args, what);
}

struct value filter_apply(struct jinja_run *run, struct value input, const struct node *node)
{
    const struct value value = node->a != NULL ? filter_apply(run, input, node->a) : input;
    const struct args args = evaluate_args(run, &node->items, 0);
    return named_call(run, node, value, &args);
}

static struct value builtin_evaluate(struct jinja_run *run, const struct node *node)
{
    const struct value input = evaluate(run, node->a);
    const struct args args = evaluate_args(run, &node->items, 0);
    const struct value value = named_call(run, node, input, &args);
    return node->kind == NODE_TEST ? value_bool(value_true(&run->heap, value) != node->op) : value;
}

static struct value arithmetic_evaluate(struct jinja_run *run, const struct node *node)
{
    const struct value left = evaluate(run, node->a);
    const struct value right = evaluate(run, node->b);
    run->heap.line = node->line;
    run->heap.column = node->column;
    return arithmetic(run, (enum arithmetic)node->op, left, right);
}

static struct value condition_evaluate(struct jinja_run *run, const struct node *node)
{
    if (value_true(&run->heap, evaluate(run, node->b)))
        return evaluate(run, node->a);
    return node->c != NULL
               ? evaluate(run, node->c)
               : value_undefined(&run->heap, "the inline if-expression evaluated to false and no "
                                             "else section was defined");
}

static struct value evaluate_inside(struct jinja_run *run, const struct node *node)
{
    struct value value;
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->value;
    case NODE_NAME:
        return variable_get(run, node->symbol, &node->text);
    case NODE_LIST:
        return list_evaluate(run, node, KIND_LIST);
    case NODE_TUPLE:
        return list_evaluate(run, node, KIND_TUPLE);
    case NODE_DICT:
        return dict_evaluate(run, node);
    case NODE_NOT:
        return value_bool(!value_true(&run->heap, evaluate(run, node->a)));
    case NODE_NEGATIVE:
        return negative(run, evaluate(run, node->a));
    case NODE_POSITIVE:
        value = evaluate(run, node->a);
        value_use(&run->heap, value);
        if (!value_is_number(value))
            jinja_fail(&run->heap, STATUS_INVALID, "a value of type '%s' has no sign",
                       value_type(value));
        return value.kind == KIND_BOOL ? value_int(value.boolean) : value;
    case NODE_AND:
        value = evaluate(run, node->a);
        return value_true(&run->heap, value) ? evaluate(run, node->b) : value;
    case NODE_OR:
        value = evaluate(run, node->a);
        return value_true(&run->heap, value) ? value : evaluate(run, node->b);
    case NODE_ARITHMETIC:
        return arithmetic_evaluate(run, node);
    case NODE_CONCAT:
        return concat_evaluate(run, node);
    case NODE_COMPARE:
        return compare_evaluate(run, node);
    case NODE_CONDITION:
        return condition_evaluate(run, node);
    case NODE_ATTRIBUTE:
        value = evaluate(run, node->a);
        run->heap.line = node->line;
        run->heap.column = node->column;
        return attribute_get(run, value, node->value.string);
    case NODE_ITEM:
        return item_evaluate(run, node);
    case NODE_CALL:
        return call_evaluate(run, node);
    case NODE_FILTER:
    case NODE_TEST:
        return builtin_evaluate(run, node);
    default:
        CHECK(!"no expression");
    }
    return value_none();
}

struct value evaluate(struct jinja_run *run, const struct node *node)
{
    jinja_enter(&run->heap);
    jinja_charge(&run->heap, 1);
    run->heap.line = node->line;
    run->heap.column = node->column;
    const struct value value = evaluate_inside(run, node);
    jinja_leave(&run->heap);
    return value;
}
