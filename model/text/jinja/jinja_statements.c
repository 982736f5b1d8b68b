/* Statements, and compiling. */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/text/jinja/jinja_internal.h"

static const struct token *statement_word(const struct parser *parser)
{
    const struct token *word = parser_peek(parser, 1);
    return parser_peek(parser, 0)->kind == TOKEN_OPEN_BLOCK && word->kind == TOKEN_WORD ? word
                                                                                        : NULL;
}

static bool ends_here(const struct parser *parser, const char *const *words)
{
    const struct token *word = statement_word(parser);
    for (; word != NULL && *words != NULL; words++)
        if (string_is(&word->text, *words))
            return true;
    return false;
}

static struct node *parse_statement(struct parser *parser);

static void close_block(struct parser *parser)
{
    if (parser_peek(parser, 0)->kind != TOKEN_CLOSE_BLOCK)
        parser_unexpected(parser, "'%}'");
    parser->at++;
}

/* words: NULL-terminated; NULL: to the end of the template. begin: of whom it is the body. */
static void parse_body(struct parser *parser, struct node_list *body, const char *const *words,
                       const struct node *begin)
{
    static const char *const none[] = {NULL};
    jinja_enter(parser->heap);
    for (;;) {
        const struct token *token = parser_peek(parser, 0);
        struct node *node;
        if (token->kind == TOKEN_END) {
            if (words == NULL)
                break;
            parser->heap->line = begin->line;
            parser->heap->column = begin->column;
            jinja_fail(parser->heap, STATUS_INVALID, "the block that begins here has no '%s'",
                       words[0]);
        }
        if (token->kind == TOKEN_DATA) {
            node = parser_node(parser, NODE_TEXT);
            node->text = token->text;
            parser->at++;
        } else if (token->kind == TOKEN_OPEN_PRINT) {
            node = parser_node(parser, NODE_PRINT);
            parser->at++;
            node->a = parse_tuple(parser, true, false);
            if (parser_peek(parser, 0)->kind != TOKEN_CLOSE_PRINT)
                parser_unexpected(parser, "'}}'");
            parser->at++;
        } else if (ends_here(parser, words != NULL ? words : none)) {
            break;
        } else {
            node = parse_statement(parser);
        }
        node_add(parser->heap, body, node);
    }
    jinja_leave(parser->heap);
}

/* Skips "{%" and the word, which is there. */
static void skip_end(struct parser *parser)
{
    parser->at += 2;
}

static void parse_block_to(struct parser *parser, struct node *node, const char *end)
{
    const char *const words[] = {end, NULL};
    close_block(parser);
    parse_body(parser, &node->body, words, node);
    skip_end(parser);
}

static struct node *parse_if(struct parser *parser)
{
    static const char *const words[] = {"endif", "elif", "else", NULL};
    static const char *const last_words[] = {"endif", NULL};
    struct node *node = parser_node(parser, NODE_IF);
    bool last = false;
    for (;;) {
        struct node *branch = parser_node(parser, NODE_BRANCH);
        node_add(parser->heap, &node->items, branch);
        if (!last)
            branch->a = parse_tuple(parser, false, false);
        close_block(parser);
        parse_body(parser, &branch->body, last ? last_words : words, node);
        parser->at++;
        if (parser_skip_word(parser, "endif"))
            return node;
        last = parser_is_word(parser, "else");
        parser->at++;
    }
}

/* One name, or names and nested lists of names. */
static struct node *parse_target_one(struct parser *parser)
{
    const struct token *token = parser_peek(parser, 0);
    struct node *node;
    jinja_enter(parser->heap);
    if (parser_skip_op(parser, "(")) {
        node = parse_target(parser);
        parser_expect_op(parser, ")");
    } else {
        static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
        node = parser_node(parser, NODE_NAME);
        if (token->kind != TOKEN_WORD)
            parser_unexpected(parser, "a name");
        for (size_t i = 0; i < ARRAY_COUNT(reserved); i++)
            if (string_is(&token->text, reserved[i]))
                parser_unexpected(parser, "a name that can be set");
        node->symbol = parser_symbol(parser, &token->text);
        node->text = token->text;
        parser->at++;
        if (parser_is_op(parser, ".")) {
            parser->at++;
            if (parser_peek(parser, 0)->kind != TOKEN_WORD)
                parser_unexpected(parser, "a name");
            node->kind = NODE_ATTRIBUTE_SET;
            node->text = parser_peek(parser, 0)->text;
            parser->at++;
        }
    }
    jinja_leave(parser->heap);
    return node;
}

struct node *parse_target(struct parser *parser)
{
    struct node *tuple = parser_node(parser, NODE_TUPLE);
    bool comma;
    do {
        node_add(parser->heap, &tuple->items, parse_target_one(parser));
        comma = parser_skip_op(parser, ",");
    } while (comma && !parser_is_op(parser, "=") && !parser_is_word(parser, "in") &&
             !parser_is_op(parser, ")"));
    return tuple->items.count == 1 && !comma ? tuple->items.items[0] : tuple;
}

static struct node *parse_for(struct parser *parser)
{
    static const char *const words[] = {"endfor", "else", NULL};
    struct node *node = parser_node(parser, NODE_FOR);
    node->target = parse_target(parser);
    parser_expect_word(parser, "in");
    node->a = parse_tuple(parser, false, false);
    if (parser_skip_word(parser, "if"))
        node->b = parse_expression(parser);
    node->op = parser_skip_word(parser, "recursive");
    close_block(parser);
    parser->loops++;
    parse_body(parser, &node->body, words, node);
    parser->loops--;
    parser->at++;
    if (parser_skip_word(parser, "else")) {
        close_block(parser);
        const char *const end[] = {"endfor", NULL};
        parse_body(parser, &node->other, end, node);
        parser->at++;
        parser_expect_word(parser, "endfor");
    } else {
        parser->at++;
    }
    return node;
}

static struct node *parse_set(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SET);
    node->target = parse_target(parser);
    if (parser_skip_op(parser, "=")) {
        node->a = parse_tuple(parser, true, false);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    if (parser_skip_op(parser, "|"))
        node->a = parse_filter_chain(parser);
    parse_block_to(parser, node, "endset");
    return node;
}

/* "(a, b=1)" of a macro or a call block. */
static void parse_signature(struct parser *parser, struct node *macro)
{
    bool defaults = false;
    parser_expect_op(parser, "(");
    while (!parser_skip_op(parser, ")")) {
        if (macro->items.count > 0) {
            parser_expect_op(parser, ",");
            if (parser_skip_op(parser, ")"))
                break;
        }
        struct node *parameter = parser_node(parser, NODE_KEYWORD);
        const struct token *token = parser_peek(parser, 0);
        if (token->kind != TOKEN_WORD)
            parser_unexpected(parser, "the name of a parameter");
        parameter->text = token->text;
        parameter->symbol = parser_symbol(parser, &token->text);
        parser->at++;
        if (parser_skip_op(parser, "=")) {
            parameter->a = parse_expression(parser);
            defaults = true;
        } else if (defaults) {
            jinja_fail(parser->heap, STATUS_INVALID,
                       "a parameter without a default stands behind one with a default");
        }
        node_add(parser->heap, &macro->items, parameter);
    }
}

static void parse_macro_rest(struct parser *parser, struct node *macro, const char *end)
{
    struct node *const around = parser->macro;
    const uint32_t loops = parser->loops;
    parser->macro = macro;
    parser->loops = 0;
    parse_block_to(parser, macro, end);
    parser->macro = around;
    parser->loops = loops;
    if (around != NULL && (macro->op & MACRO_CALLER) != 0 && macro->symbol < 0)
        around->op |= MACRO_CALLER; // a call block within a macro that hands its caller on
}

static struct node *parse_macro(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_MACRO);
    const struct token *token = parser_peek(parser, 0);
    if (token->kind != TOKEN_WORD)
        parser_unexpected(parser, "the name of the macro");
    node->text = token->text;
    node->symbol = parser_symbol(parser, &token->text);
    parser->at++;
    parse_signature(parser, node);
    parse_macro_rest(parser, node, "endmacro");
    return node;
}

static struct node *parse_call(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_CALL_BLOCK);
    node->b = parser_node(parser, NODE_MACRO);
    node->b->text = (struct string){.data = "caller", .bytes = 6};
    if (parser_is_op(parser, "("))
        parse_signature(parser, node->b);
    node->a = parse_unary(parser, true);
    if (node->a->kind != NODE_CALL)
        jinja_fail(parser->heap, STATUS_INVALID, "a call block needs a call");
    parse_macro_rest(parser, node->b, "endcall");
    return node;
}

static struct node *parse_filter_block(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_FILTER_BLOCK);
    node->a = parse_filter_chain(parser);
    parse_block_to(parser, node, "endfilter");
    return node;
}

static struct node *parse_with(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_WITH);
    while (parser_peek(parser, 0)->kind != TOKEN_CLOSE_BLOCK) {
        if (node->items.count > 0)
            parser_expect_op(parser, ",");
        node_add(parser->heap, &node->items, parse_target_one(parser));
        parser_expect_op(parser, "=");
        node_add(parser->heap, &node->items, parse_expression(parser));
    }
    parse_block_to(parser, node, "endwith");
    return node;
}

/* Marks what the model says itself, for training: its text alone counts here. */
static struct node *parse_generation(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SCOPE);
    parse_block_to(parser, node, "endgeneration");
    return node;
}

static struct node *parse_jump(struct parser *parser)
{
    const struct token *word = &parser->tokens.items[parser->at - 1];
    struct node *node =
        parser_node(parser, string_is(&word->text, "break") ? NODE_BREAK : NODE_CONTINUE);
    node->line = word->line;
    node->column = word->column;
    if (parser->loops == 0) {
        parser->at--;
        parser_unexpected(parser, "a loop around");
    }
    return node;
}

static const struct {
    const char *word;
    struct node *(*parse)(struct parser *parser); /* from behind the word to before "%}" */
} statements[] = {
    {"if", parse_if},         {"for", parse_for},
    {"set", parse_set},       {"macro", parse_macro},
    {"call", parse_call},     {"filter", parse_filter_block},
    {"with", parse_with},     {"break", parse_jump},
    {"continue", parse_jump}, {"generation", parse_generation},
};

static struct node *parse_statement(struct parser *parser)
{
    const struct token *place = parser_peek(parser, 1);
    parser->at++;
    for (size_t i = 0; i < ARRAY_COUNT(statements); i++) {
        if (!parser_skip_word(parser, statements[i].word))
            continue;
        struct node *node = statements[i].parse(parser);
        node->line = place->line;
        node->column = place->column;
        close_block(parser);
        return node;
    }
    parser_unexpected(parser, "a statement");
}

/* Whether this is the content of something: x.content, x['content'], also filtered. */
static bool is_content(const struct node *node)
{
    while (node != NULL && (node->kind == NODE_FILTER || node->kind == NODE_TEST))
        node = node->a;
    if (node == NULL)
        return false;
    if (node->kind == NODE_ITEM && node->b->kind == NODE_SLICE)
        return is_content(node->a);
    if (node->kind == NODE_ATTRIBUTE)
        return string_is(&node->text, "content");
    if (node->kind == NODE_ITEM)
        return node->b->kind == NODE_CONSTANT && node->b->value.kind == KIND_STRING &&
               string_is(node->b->value.string, "content");
    return node->kind == NODE_NAME && string_is(&node->text, "content");
}

static void habits_read(const struct node *node, struct jinja_habits *habits, uint32_t depth);

static void habits_read_list(const struct node_list *list, struct jinja_habits *habits,
                             uint32_t depth)
{
    for (size_t i = 0; i < list->count; i++)
        habits_read(list->items[i], habits, depth);
}

static void habits_read(const struct node *node, struct jinja_habits *habits, uint32_t depth)
{
    if (node == NULL || depth == 0)
        return;
    if (node->kind == NODE_FOR && is_content(node->a))
        habits->content_parts = true;
    if (node->kind == NODE_TEST && is_content(node->a) &&
        (string_is(&node->text, "string") || string_is(&node->text, "iterable") ||
         string_is(&node->text, "sequence")))
        habits->content_string = true;
    habits_read(node->a, habits, depth - 1);
    habits_read(node->b, habits, depth - 1);
    habits_read(node->c, habits, depth - 1);
    habits_read_list(&node->items, habits, depth - 1);
    habits_read_list(&node->body, habits, depth - 1);
    habits_read_list(&node->other, habits, depth - 1);
}

struct jinja_habits jinja_habits(const struct jinja *template)
{
    return template->habits;
}

static void compile(struct jinja *template, const char *source, size_t bytes)
{
    enum { HABIT_DEPTH = 4 * JINJA_DEPTH_MAX };
    struct parser parser = {.template = template, .heap = &template->heap};
    template->source = jinja_lex(parser.heap, source, bytes, &parser.tokens);
    parse_body(&parser, &template->body, NULL, NULL);
    habits_read_list(&template->body, &template->habits, HABIT_DEPTH);
    template->habits.developer = memmem(source, bytes, "developer", 9) != NULL;
}

enum status jinja_compile(const char *source, size_t bytes, struct jinja **out, struct error *error)
{
    enum { MEMORY_PER_BYTE = 1024, MEMORY_MIN = 1 << 20, STEPS_PER_BYTE = 64, STEPS_MIN = 10000 };
    if (bytes > JINJA_SOURCE_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "the template has %zu bytes, the limit is %d", bytes,
                         JINJA_SOURCE_BYTES_MAX);
    if (!utf8_valid(source, bytes))
        return error_set(error, STATUS_INVALID, "the template is not UTF-8");
    struct jinja *template = calloc(1, sizeof *template);
    CHECK(template != NULL);
    template->heap.limit = MEMORY_MIN + bytes *MEMORY_PER_BYTE;
    template->heap.steps_left = STEPS_MIN + bytes *STEPS_PER_BYTE;
    template->heap.depth_max = 2 * JINJA_DEPTH_MAX; // a bracket takes two
    template->heap.error = error;
    if (setjmp(template->heap.failed) == 0) {
        compile(template, source, bytes);
        *out = template;
        return STATUS_OK;
    }
    const enum status status = template->heap.status;
    jinja_free(template);
    return status;
}

const char *jinja_source(const struct jinja *template, size_t *bytes_out)
{
    *bytes_out = template->source.bytes;
    return template->source.data;
}

enum status jinja_open(const char *path, struct jinja **out, struct error *error)
{
    struct buffer source = {0};
    struct error reason;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    buffer_reserve(&source, JINJA_SOURCE_BYTES_MAX + 1); // one more, to see that it is too long
    source.size = fread(source.data, 1, JINJA_SOURCE_BYTES_MAX + 1, file);
    enum status status = STATUS_OK;
    if (ferror(file))
        status = error_set_errno(error, STATUS_IO, "cannot read %s", path);
    fclose(file);
    if (status == STATUS_OK) {
        status = jinja_compile(source.data, source.size, out, &reason);
        if (status != STATUS_OK)
            error_set(error, status, "%s, %s", path, reason.text);
    }
    buffer_free(&source);
    return status;
}

void jinja_free(struct jinja *template)
{
    if (template == NULL)
        return;
    jinja_heap_free(&template->heap);
    free(template);
}
