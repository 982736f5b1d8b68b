/* Expressions, by recursive descent. Precedences are jinja2's: `not`, comparisons, + and -, `~`,
 * * / // and %, **, signs, then what stands behind a value. */
#include <stdio.h>

#include "model/text/jinja/jinja_internal.h"

const struct token *parser_peek(const struct parser *parser, size_t ahead)
{
    const size_t last = parser->tokens.count - 1; // TOKEN_END
    return &parser->tokens.items[parser->at + ahead < last ? parser->at + ahead : last];
}

bool parser_is_op(const struct parser *parser, const char *op)
{
    const struct token *token = parser_peek(parser, 0);
    return token->kind == TOKEN_OPERATOR && strcmp(token->op, op) == 0;
}

bool parser_is_word(const struct parser *parser, const char *word)
{
    const struct token *token = parser_peek(parser, 0);
    return token->kind == TOKEN_WORD && string_is(&token->text, word);
}

bool parser_skip_op(struct parser *parser, const char *op)
{
    const bool there = parser_is_op(parser, op);
    parser->at += there;
    return there;
}

bool parser_skip_word(struct parser *parser, const char *word)
{
    const bool there = parser_is_word(parser, word);
    parser->at += there;
    return there;
}

static const char *token_text(const struct token *token, int *bytes_out)
{
    static const char *const names[] = {[TOKEN_DATA] = "text",
                                        [TOKEN_OPEN_PRINT] = "{{",
                                        [TOKEN_CLOSE_PRINT] = "}}",
                                        [TOKEN_OPEN_BLOCK] = "{%",
                                        [TOKEN_CLOSE_BLOCK] = "%}",
                                        [TOKEN_TEXT] = "a string",
                                        [TOKEN_INTEGER] = "a number",
                                        [TOKEN_REAL] = "a number",
                                        [TOKEN_END] = "the end of the template"};
    const char *text = names[token->kind];
    if (token->kind == TOKEN_OPERATOR)
        text = token->op;
    if (token->kind == TOKEN_WORD) {
        *bytes_out = token->text.bytes < 40 ? (int)token->text.bytes : 40;
        return token->text.data;
    }
    *bytes_out = (int)strlen(text);
    return text;
}

_Noreturn void parser_unexpected(struct parser *parser, const char *wanted)
{
    const struct token *token = parser_peek(parser, 0);
    int bytes;
    const char *text = token_text(token, &bytes);
    parser->heap->line = token->line;
    parser->heap->column = token->column;
    jinja_fail(parser->heap, STATUS_INVALID, "%s is wanted here, but there is '%.*s'", wanted,
               bytes, text);
}

void parser_expect_op(struct parser *parser, const char *op)
{
    char wanted[8];
    if (parser_skip_op(parser, op))
        return;
    snprintf(wanted, sizeof wanted, "'%s'", op);
    parser_unexpected(parser, wanted);
}

void parser_expect_word(struct parser *parser, const char *word)
{
    if (!parser_skip_word(parser, word))
        parser_unexpected(parser, word);
}

struct node *parser_node(struct parser *parser, enum node_kind kind)
{
    const struct token *token = parser_peek(parser, 0);
    struct node *node = jinja_take(parser->heap, sizeof *node);
    node->kind = kind;
    node->symbol = -1;
    node->line = token->line;
    node->column = token->column;
    parser->heap->line = token->line;
    parser->heap->column = token->column;
    return node;
}

/* A node that stands where another one does. */
static struct node *node_at(struct parser *parser, enum node_kind kind, const struct node *place)
{
    struct node *node = parser_node(parser, kind);
    node->line = place->line;
    node->column = place->column;
    return node;
}

void node_add(struct jinja_heap *heap, struct node_list *list, struct node *node)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 4;
        list->items = jinja_grow(heap, list->items, list->capacity * sizeof *list->items,
                                 capacity * sizeof *list->items);
        list->capacity = capacity;
    }
    list->items[list->count++] = node;
}

int32_t parser_symbol(struct parser *parser, const struct string *name)
{
    struct dict *symbols = &parser->template->symbols;
    const struct value *known = dict_find_text(parser->heap, symbols, name->data, name->bytes);
    if (known != NULL)
        return (int32_t)known->integer;
    const int32_t symbol = (int32_t)symbols->count;
    dict_set(parser->heap, symbols,
             string_value(parser->heap, name->data, name->bytes, FROM_TEMPLATE), value_int(symbol));
    return symbol;
}

static struct node *name_node(struct parser *parser)
{
    const struct token *token = parser_peek(parser, 0);
    struct node *node = parser_node(parser, NODE_NAME);
    static const struct {
        const char *word;
        struct value value;
    } constants[] = {
        {"true", {.kind = KIND_BOOL, .boolean = true}},
        {"True", {.kind = KIND_BOOL, .boolean = true}},
        {"false", {.kind = KIND_BOOL, .boolean = false}},
        {"False", {.kind = KIND_BOOL, .boolean = false}},
        {"none", {.kind = KIND_NONE}},
        {"None", {.kind = KIND_NONE}},
    };
    parser->at++;
    for (size_t i = 0; i < ARRAY_COUNT(constants); i++) {
        if (string_is(&token->text, constants[i].word)) {
            node->kind = NODE_CONSTANT;
            node->value = constants[i].value;
            return node;
        }
    }
    if (parser->macro != NULL) {
        static const char *const special[] = {"varargs", "kwargs", "caller"};
        for (size_t i = 0; i < ARRAY_COUNT(special); i++)
            if (string_is(&token->text, special[i]))
                parser->macro->op |= (uint8_t)(1 << i);
    }
    node->text = token->text;
    node->symbol = parser_symbol(parser, &token->text);
    return node;
}

/* Strings beside one another are one. */
static struct node *string_node(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_CONSTANT);
    struct builder text = {.heap = parser->heap};
    while (parser_peek(parser, 0)->kind == TOKEN_TEXT)
        builder_add_string(&text, &parser->tokens.items[parser->at++].text);
    node->value = builder_value(&text);
    return node;
}

static struct node *list_node(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_LIST);
    parser->at++;
    while (!parser_skip_op(parser, "]")) {
        if (node->items.count > 0) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, "]"))
                break;
        }
        node_add(parser->heap, &node->items, parse_expression(parser));
    }
    return node;
}

static struct node *dict_node(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_DICT);
    parser->at++;
    while (!parser_skip_op(parser, "}")) {
        if (node->items.count > 0) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, "}"))
                break;
        }
        node_add(parser->heap, &node->items, parse_expression(parser));
        parser_expect_op(parser, ":");
        node_add(parser->heap, &node->items, parse_expression(parser));
    }
    return node;
}

static struct node *parse_primary(struct parser *parser)
{
    const struct token *token = parser_peek(parser, 0);
    struct node *node;
    switch (token->kind) {
    case TOKEN_WORD:
        return name_node(parser);
    case TOKEN_TEXT:
        return string_node(parser);
    case TOKEN_INTEGER:
    case TOKEN_REAL:
        node = parser_node(parser, NODE_CONSTANT);
        node->value =
            token->kind == TOKEN_REAL ? value_real(token->real) : value_int(token->integer);
        parser->at++;
        return node;
    default:
        break;
    }
    if (parser_skip_op(parser, "(")) {
        node = parse_tuple(parser, true, true);
        parser_expect_op(parser, ")");
        return node;
    }
    if (parser_is_op(parser, "["))
        return list_node(parser);
    if (parser_is_op(parser, "{"))
        return dict_node(parser);
    parser_unexpected(parser, "a value");
}

/* Behind "(" to behind ")". */
static void arguments_read(struct parser *parser, struct node *call)
{
    bool first = true;
    while (!parser_skip_op(parser, ")")) {
        if (!first) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, ")"))
                break;
        }
        first = false;
        struct node *argument;
        const bool stars = parser_is_op(parser, "**");
        if (stars || parser_is_op(parser, "*")) {
            argument = parser_node(parser, NODE_SPREAD);
            argument->op = stars ? 2 : 1;
            parser->at++;
            argument->a = parse_expression(parser);
        } else if (parser_peek(parser, 0)->kind == TOKEN_WORD &&
                   parser_peek(parser, 1)->kind == TOKEN_OPERATOR &&
                   strcmp(parser_peek(parser, 1)->op, "=") == 0) {
            argument = parser_node(parser, NODE_KEYWORD);
            argument->text = parser_peek(parser, 0)->text;
            parser->at += 2;
            argument->a = parse_expression(parser);
        } else {
            argument = parse_expression(parser);
            if (call->items.count > 0 &&
                call->items.items[call->items.count - 1]->kind == NODE_KEYWORD)
                jinja_fail(parser->heap, STATUS_INVALID,
                           "an argument without a name stands behind one with a name");
        }
        node_add(parser->heap, &call->items, argument);
    }
}

/* What stands in [ ]: an expression, or a slice. */
static struct node *parse_subscript(struct parser *parser)
{
    struct node *slice = parser_node(parser, NODE_SLICE);
    struct node **parts[] = {&slice->a, &slice->b, &slice->c};
    size_t colons = 0;
    while (!parser_is_op(parser, "]") && !parser_is_op(parser, ",")) {
        if (parser_skip_op(parser, ":")) {
            if (++colons > 2)
                parser_unexpected(parser, "']'");
            continue;
        }
        if (*parts[colons] != NULL)
            parser_unexpected(parser, "']'");
        *parts[colons] = parse_expression(parser);
    }
    if (colons == 0 && slice->a == NULL)
        parser_unexpected(parser, "an index");
    return colons == 0 ? slice->a : slice;
}

static struct node *attribute_node(struct parser *parser, struct node *of)
{
    const struct token *token = parser_peek(parser, 0);
    struct node *node = parser_node(parser, NODE_ATTRIBUTE);
    node->a = of;
    if (token->kind == TOKEN_WORD) {
        node->text = token->text;
        node->value =
            string_value(parser->heap, token->text.data, token->text.bytes, FROM_TEMPLATE);
    } else if (token->kind == TOKEN_INTEGER) {
        node->kind = NODE_ITEM;
        node->b = parser_node(parser, NODE_CONSTANT);
        node->b->value = value_int(token->integer);
    } else {
        parser_unexpected(parser, "a name");
    }
    parser->at++;
    return node;
}

static struct node *call_node(struct parser *parser, struct node *callee)
{
    struct node *node = node_at(parser, NODE_CALL, callee);
    node->a = callee;
    parser->at++;
    arguments_read(parser, node);
    return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
    for (uint32_t depth = 0;; depth++) {
        if (depth >= JINJA_DEPTH_MAX)
            jinja_fail(parser->heap, STATUS_LIMIT, "more than %d accesses in a row, the limit",
                       JINJA_DEPTH_MAX);
        if (parser_skip_op(parser, ".")) {
            node = attribute_node(parser, node);
        } else if (parser_is_op(parser, "[")) {
            struct node *item = parser_node(parser, NODE_ITEM);
            parser->at++;
            item->a = node;
            item->b = parse_subscript(parser);
            if (parser_is_op(parser, ",")) {
                struct node *tuple = node_at(parser, NODE_TUPLE, item->b);
                node_add(parser->heap, &tuple->items, item->b);
                while (parser_skip_op(parser, ","))
                    if (!parser_is_op(parser, "]"))
                        node_add(parser->heap, &tuple->items, parse_subscript(parser));
                for (size_t i = 0; i < tuple->items.count; i++)
                    if (tuple->items.items[i]->kind == NODE_SLICE)
                        jinja_fail(parser->heap, STATUS_INVALID,
                                   "a slice can not be one of several indices");
                item->b = tuple;
            }
            parser_expect_op(parser, "]");
            node = item;
        } else if (parser_is_op(parser, "(")) {
            node = call_node(parser, node);
        } else {
            return node;
        }
    }
}

/* The name of a filter or test, which may have dots. */
static void dotted_name(struct parser *parser, struct node *node)
{
    if (parser_peek(parser, 0)->kind != TOKEN_WORD)
        parser_unexpected(parser, "a name");
    struct builder name = {.heap = parser->heap};
    builder_add_string(&name, &parser_peek(parser, 0)->text);
    parser->at++;
    while (parser_is_op(parser, ".") && parser_peek(parser, 1)->kind == TOKEN_WORD) {
        builder_add_char(&name, '.');
        builder_add_string(&name, &parser_peek(parser, 1)->text);
        parser->at += 2;
    }
    node->text = *builder_value(&name).string;
}

static struct node *filter_node(struct parser *parser, struct node *of)
{
    struct node *node = parser_node(parser, NODE_FILTER);
    node->a = of;
    dotted_name(parser, node);
    node->builtin = filter_find(&node->text);
    if (parser_skip_op(parser, "("))
        arguments_read(parser, node);
    return node;
}

static struct node *test_node(struct parser *parser, struct node *of)
{
    struct node *node = parser_node(parser, NODE_TEST);
    node->a = of;
    node->op = parser_skip_word(parser, "not");
    dotted_name(parser, node);
    node->builtin = test_find(&node->text);
    const struct token *token = parser_peek(parser, 0);
    if (parser_skip_op(parser, "(")) {
        arguments_read(parser, node);
    } else if (token->kind == TOKEN_TEXT || token->kind == TOKEN_INTEGER ||
               token->kind == TOKEN_REAL || parser_is_op(parser, "[") ||
               parser_is_op(parser, "{") ||
               (token->kind == TOKEN_WORD && !parser_is_word(parser, "else") &&
                !parser_is_word(parser, "or") && !parser_is_word(parser, "and"))) {
        if (parser_is_word(parser, "is"))
            parser_unexpected(parser, "something other than a second test");
        node_add(parser->heap, &node->items, parse_postfix(parser, parse_primary(parser)));
    }
    return node;
}

struct node *parse_filters(struct parser *parser, struct node *node)
{
    for (uint32_t depth = 0;; depth++) {
        if (depth >= JINJA_DEPTH_MAX)
            jinja_fail(parser->heap, STATUS_LIMIT, "more than %d filters in a row, the limit",
                       JINJA_DEPTH_MAX);
        if (parser_skip_op(parser, "|"))
            node = filter_node(parser, node);
        else if (parser_skip_word(parser, "is"))
            node = test_node(parser, node);
        else if (parser_is_op(parser, "("))
            node = call_node(parser, node);
        else
            return node;
    }
}

struct node *parse_filter_chain(struct parser *parser)
{
    struct node *node = filter_node(parser, NULL);
    for (uint32_t depth = 0; parser_skip_op(parser, "|"); depth++) {
        if (depth >= JINJA_DEPTH_MAX)
            jinja_fail(parser->heap, STATUS_LIMIT, "more than %d filters in a row, the limit",
                       JINJA_DEPTH_MAX);
        node = filter_node(parser, node);
    }
    return node;
}

struct node *parse_unary(struct parser *parser, bool with_filter)
{
    struct node *node;
    jinja_enter(parser->heap);
    if (parser_is_op(parser, "-") || parser_is_op(parser, "+")) {
        node = parser_node(parser, parser_is_op(parser, "-") ? NODE_NEGATIVE : NODE_POSITIVE);
        parser->at++;
        node->a = parse_unary(parser, false);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    if (with_filter)
        node = parse_filters(parser, node);
    jinja_leave(parser->heap);
    return node;
}

/* Operators of two sides, all from left to right. */
static const struct {
    const char *op;
    enum arithmetic arithmetic;
    int level; /* 0: sums, 1: products, 2: powers */
} binary_operators[] = {
    {"+", OP_ADD, 0},    {"-", OP_SUBTRACT, 0}, {"*", OP_MULTIPLY, 1}, {"/", OP_DIVIDE, 1},
    {"//", OP_FLOOR, 1}, {"%", OP_MODULO, 1},   {"**", OP_POWER, 2},
};

static struct node *parse_binary(struct parser *parser, int level);

static struct node *parse_concat(struct parser *parser)
{
    struct node *first = parse_binary(parser, 1);
    if (!parser_is_op(parser, "~"))
        return first;
    struct node *node = node_at(parser, NODE_CONCAT, first);
    node_add(parser->heap, &node->items, first);
    while (parser_skip_op(parser, "~"))
        node_add(parser->heap, &node->items, parse_binary(parser, 1));
    return node;
}

static struct node *parse_side(struct parser *parser, int level)
{
    return level == 0   ? parse_concat(parser)
           : level == 1 ? parse_binary(parser, 2)
                        : parse_unary(parser, true);
}

static struct node *parse_binary(struct parser *parser, int level)
{
    struct node *left = parse_side(parser, level);
    for (uint32_t depth = 0;; depth++) {
        size_t i = 0;
        while (i < ARRAY_COUNT(binary_operators) && (binary_operators[i].level != level ||
                                                     !parser_is_op(parser, binary_operators[i].op)))
            i++;
        if (i == ARRAY_COUNT(binary_operators))
            return left;
        struct node *node = parser_node(parser, NODE_ARITHMETIC);
        if (depth >= JINJA_DEPTH_MAX)
            jinja_fail(parser->heap, STATUS_LIMIT, "more than %d operators in a row, the limit",
                       JINJA_DEPTH_MAX);
        parser->at++;
        node->op = (uint8_t)binary_operators[i].arithmetic;
        node->a = left;
        node->b = parse_side(parser, level);
        left = node;
    }
}

static bool compare_skip(struct parser *parser, uint8_t *op_out)
{
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < ARRAY_COUNT(operators); i++) {
        if (parser_skip_op(parser, operators[i])) {
            *op_out = (uint8_t)i;
            return true;
        }
    }
    if (parser_skip_word(parser, "in")) {
        *op_out = CMP_IN;
        return true;
    }
    const struct token *next = parser_peek(parser, 1);
    if (parser_is_word(parser, "not") && next->kind == TOKEN_WORD && string_is(&next->text, "in")) {
        parser->at += 2;
        *op_out = CMP_NOT_IN;
        return true;
    }
    return false;
}

static struct node *parse_compare(struct parser *parser)
{
    struct node *first = parse_binary(parser, 0);
    struct node *node = NULL;
    for (;;) {
        struct node *operand = parser_node(parser, NODE_OPERAND);
        if (!compare_skip(parser, &operand->op))
            return node != NULL ? node : first;
        if (node == NULL) {
            node = node_at(parser, NODE_COMPARE, first);
            node->a = first;
        }
        operand->a = parse_binary(parser, 0);
        node_add(parser->heap, &node->items, operand);
    }
}

static struct node *parse_not(struct parser *parser)
{
    struct node *node;
    if (!parser_is_word(parser, "not"))
        return parse_compare(parser);
    jinja_enter(parser->heap);
    node = parser_node(parser, NODE_NOT);
    parser->at++;
    node->a = parse_not(parser);
    jinja_leave(parser->heap);
    return node;
}

/* a and b and c: the right side holds the rest, which is as deep as the chain is long. */
static struct node *parse_logic(struct parser *parser, enum node_kind kind)
{
    struct node *left = kind == NODE_OR ? parse_logic(parser, NODE_AND) : parse_not(parser);
    for (uint32_t depth = 0; parser_skip_word(parser, kind == NODE_OR ? "or" : "and"); depth++) {
        struct node *node = node_at(parser, kind, left);
        if (depth >= JINJA_DEPTH_MAX)
            jinja_fail(parser->heap, STATUS_LIMIT, "more than %d operators in a row, the limit",
                       JINJA_DEPTH_MAX);
        node->a = left;
        node->b = kind == NODE_OR ? parse_logic(parser, NODE_AND) : parse_not(parser);
        left = node;
    }
    return left;
}

struct node *parse_expression_plain(struct parser *parser)
{
    jinja_enter(parser->heap);
    struct node *node = parse_logic(parser, NODE_OR);
    jinja_leave(parser->heap);
    return node;
}

struct node *parse_expression(struct parser *parser)
{
    jinja_enter(parser->heap);
    struct node *node = parse_logic(parser, NODE_OR);
    while (parser_skip_word(parser, "if")) {
        struct node *condition = node_at(parser, NODE_CONDITION, node);
        condition->a = node;
        condition->b = parse_logic(parser, NODE_OR);
        if (parser_skip_word(parser, "else"))
            condition->c = parse_expression(parser);
        node = condition;
    }
    jinja_leave(parser->heap);
    return node;
}

static bool tuple_ends(const struct parser *parser)
{
    const enum token_kind kind = parser_peek(parser, 0)->kind;
    return kind == TOKEN_CLOSE_PRINT || kind == TOKEN_CLOSE_BLOCK || parser_is_op(parser, ")") ||
           parser_is_word(parser, "recursive");
}

struct node *parse_tuple(struct parser *parser, bool with_condition, bool parenthesised)
{
    struct node *tuple = parser_node(parser, NODE_TUPLE);
    bool comma = false;
    while (!tuple_ends(parser)) {
        node_add(parser->heap, &tuple->items,
                 with_condition ? parse_expression(parser) : parse_expression_plain(parser));
        comma = parser_skip_op(parser, ",");
        if (!comma)
            break;
    }
    if (tuple->items.count == 0 && !parenthesised)
        parser_unexpected(parser, "an expression");
    return tuple->items.count == 1 && !comma ? tuple->items.items[0] : tuple;
}
