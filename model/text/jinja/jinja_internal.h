/* The inside of the template engine: memory, values, syntax trees and the running state.
 *
 * All memory of a compilation or a rendering is in one arena with a limit and goes at once, so
 * nothing in here is freed piece by piece. A failure anywhere jumps out to the one place that
 * began the compilation or rendering (jinja_fail): an interpreter has hundreds of places that can
 * fail, and each would else have to unwind through every level of the template. No function of the
 * engine holds anything but arena memory, so that nothing is lost on the way. */
#ifndef BATON_MODEL_TEXT_JINJA_JINJA_INTERNAL_H
#define BATON_MODEL_TEXT_JINJA_JINJA_INTERNAL_H

#include <setjmp.h>

#include "base/check.h"
#include "model/text/jinja/jinja.h"

/* Memory and the way out. First member of whoever compiles or renders. */
struct jinja_heap {
    struct heap_block *blocks;
    char *at; /* free memory of the newest block */
    size_t left;
    uint64_t taken, limit; /* bytes */
    uint64_t steps_left;
    uint32_t depth, depth_max;
    uint32_t line, column; /* what is being read or run; 0: nothing of the template */
    struct error *error;
    enum status status;
    jmp_buf failed;
};
void jinja_heap_free(struct jinja_heap *heap);
/* Zeroed, aligned for everything. */
void *jinja_take(struct jinja_heap *heap, size_t bytes);
/* The same memory with more room behind, moved if need be. Not zeroed. */
void *jinja_grow(struct jinja_heap *heap, void *memory, size_t bytes, size_t new_bytes);
/* Fills the error, "line 3, column 14: " first where a place is known, and jumps. */
_Noreturn void jinja_fail(struct jinja_heap *heap, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails when the run has used up its steps. */
void jinja_charge(struct jinja_heap *heap, uint64_t steps);
/* One level deeper, paired with jinja_leave. Fails at the limit. */
void jinja_enter(struct jinja_heap *heap);
static inline void jinja_leave(struct jinja_heap *heap)
{
    heap->depth--;
}

/* Text, well-formed UTF-8, not terminated. */
enum origin { FROM_TEMPLATE, FROM_INPUT, FROM_BOTH };
struct string {
    const char *data;
    const uint8_t *marks; /* FROM_BOTH: a byte for each of data, 1: input */
    size_t bytes;
    enum origin origin;
    bool safe; /* jinja2's Markup: what is joined to it is escaped for HTML */
};

enum kind {
    KIND_ABSENT, /* an argument that was not given; no value of a template */
    KIND_UNDEFINED,
    KIND_NONE,
    KIND_BOOL,
    KIND_INT,
    KIND_FLOAT,
    KIND_STRING,
    KIND_LIST,
    KIND_TUPLE,
    KIND_RANGE,     /* a list that says it is a range */
    KIND_VIEW,      /* keys(), values(), items(): has a length, but no items by number */
    KIND_GENERATOR, /* can be walked once */
    KIND_DICT,
    KIND_NAMESPACE, /* a dict whose members are attributes that can be set */
    KIND_BUILTIN,   /* a function of the engine, bound where it is a method */
    KIND_MACRO,
    KIND_LOOP,
    KIND_CYCLER,
    KIND_JOINER
};

struct value {
    enum kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct string *string;
        struct list *list;
        struct dict *dict;
        const char *why; /* of KIND_UNDEFINED: what is missing, a sentence without its end */
        struct bound *bound;
        struct macro *macro;
        struct loop_state *loop;
        struct cycler *cycler;
    };
};

struct list {
    struct value *items;
    size_t count, capacity;
    size_t taken;              /* KIND_GENERATOR: walked this far */
    int64_t start, stop, step; /* KIND_RANGE */
};

struct dict_entry {
    struct value key, value;
    uint64_t hash;
};
/* In the order of insertion. */
struct dict {
    struct dict_entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* entry + 1, 0: empty; NULL while there are few */
    size_t slot_mask;
};

struct cycler {
    struct list items; /* of a joiner: the separator */
    size_t at;
};

/* Arguments of a call. */
struct named {
    const struct string *name;
    struct value value;
};
struct args {
    struct value *items;
    struct named *named;
    size_t count, named_count;
};

enum { PARAMS_MAX = 6 };

/* A function, filter, test or method. call gets its parameters in order, KIND_ABSENT for those not
 * given. params "*": all arguments come as they are, a is then NULL. */
struct builtin {
    const char *name;
    const char *params; /* names with spaces between */
    uint32_t required;
    struct value (*call)(struct jinja_run *run, struct value self, const struct value *a,
                         const struct args *args);
};
struct bound {
    const struct builtin *builtin;
    struct value self;
};

/* Syntax. What the members hold stands beside each kind. */
enum node_kind {
    /* expressions */
    NODE_CONSTANT,   /* value */
    NODE_NAME,       /* symbol */
    NODE_LIST,       /* items */
    NODE_TUPLE,      /* items */
    NODE_DICT,       /* items: key, value, key, value ... */
    NODE_NOT,        /* a */
    NODE_NEGATIVE,   /* a */
    NODE_POSITIVE,   /* a */
    NODE_AND,        /* a, b */
    NODE_OR,         /* a, b */
    NODE_ARITHMETIC, /* op, a, b */
    NODE_CONCAT,     /* items */
    NODE_COMPARE,    /* a, items: NODE_OPERAND */
    NODE_OPERAND,    /* op, a */
    NODE_CONDITION,  /* a if b else c, c may be NULL */
    NODE_ATTRIBUTE,  /* a.text */
    NODE_ITEM,       /* a[b] */
    NODE_SLICE,      /* a:b:c, each may be NULL */
    NODE_CALL,       /* a, items: arguments */
    NODE_FILTER,     /* a (NULL: the block's text), text, builtin, items: arguments */
    NODE_TEST,       /* a, text, builtin, items: arguments; op 1: is not */
    NODE_KEYWORD,    /* an argument text=a */
    NODE_SPREAD,     /* an argument *a, op 2: **a */
    /* statements */
    NODE_TEXT,   /* value */
    NODE_PRINT,  /* a */
    NODE_IF,     /* items: NODE_BRANCH */
    NODE_BRANCH, /* a (NULL: else), body */
    NODE_FOR,    /* target, a: what is walked, b: condition or NULL, body, other; op 1: recursive */
    NODE_SET,    /* target, a */
    NODE_SET_BLOCK,     /* target, a: filters or NULL, body */
    NODE_ATTRIBUTE_SET, /* only as a target: symbol.text */
    NODE_MACRO, /* symbol (-1: of a call block), text, items: NODE_KEYWORD with a or NULL, body */
    NODE_CALL_BLOCK,   /* a: NODE_CALL, b: NODE_MACRO */
    NODE_FILTER_BLOCK, /* a: filters, body */
    NODE_WITH,         /* items: target, value, target, value ...; body */
    NODE_SCOPE,        /* body */
    NODE_BREAK,
    NODE_CONTINUE
};

enum arithmetic { OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_FLOOR, OP_MODULO, OP_POWER };
enum compare { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

/* Of a NODE_MACRO. */
enum { MACRO_VARARGS = 1, MACRO_KWARGS = 2, MACRO_CALLER = 4 };

struct node_list {
    struct node **items;
    size_t count, capacity;
};
struct node {
    enum node_kind kind;
    uint8_t op;
    uint32_t line, column;
    int32_t symbol;
    struct string text;
    const struct builtin *builtin;
    struct value value;
    struct node *a, *b, *c, *target;
    struct node_list items, body, other;
};

enum token_kind {
    TOKEN_DATA,
    TOKEN_OPEN_PRINT,
    TOKEN_CLOSE_PRINT,
    TOKEN_OPEN_BLOCK,
    TOKEN_CLOSE_BLOCK,
    TOKEN_WORD,
    TOKEN_TEXT,
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_OPERATOR,
    TOKEN_END
};
struct token {
    enum token_kind kind;
    char op[3]; /* TOKEN_OPERATOR: terminated */
    uint32_t line, column;
    struct string text; /* TOKEN_DATA, TOKEN_WORD, TOKEN_TEXT (escapes undone) */
    int64_t integer;
    double real;
};
struct tokens {
    struct token *items;
    size_t count, capacity;
};

struct jinja {
    struct jinja_heap heap;
    struct string source;
    struct node_list body;
    struct dict symbols; /* name to number */
    struct jinja_habits habits;
};

/* Names that blocks, loops and macros bring with them. */
struct binding {
    int32_t symbol;
    struct value value;
    struct binding *next;
};
struct scope {
    struct scope *parent; /* NULL: what is around is the whole template */
    struct binding *bindings;
};

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

struct loop_state {
    const struct node *node;
    struct scope *scope; /* around the loop */
    const struct value *items;
    size_t count, at;
    uint32_t depth;
    bool changed_called;
    struct value changed;
};

struct builder {
    struct jinja_heap *heap;
    char *data;
    uint8_t *marks;
    size_t bytes, capacity, limit; /* limit 0: that of the heap */
    bool has_input, has_template;
};

struct jinja_run {
    struct jinja_heap heap; /* first */
    const struct jinja *template;
    int64_t now_s;
    struct value *globals;   /* [symbols] what was put in, and functions */
    struct value *variables; /* [symbols] what the template set outside of blocks; KIND_ABSENT */
    struct scope *scope;
    struct builder *out;
    struct json_root *roots; /* parsed for this run, freed at its end */
};

/* jinja_messages.c */
void jinja_roots_free(struct jinja_run *run);

/* jinja_heap.c */
void builder_add(struct builder *builder, const char *data, size_t bytes, const uint8_t *marks,
                 enum origin origin);
void builder_add_string(struct builder *builder, const struct string *string);
void builder_add_text(struct builder *builder, const char *text); /* of the engine */
void builder_add_char(struct builder *builder, char c);
struct value builder_value(struct builder *builder);

/* jinja_text.c */
struct value string_value(struct jinja_heap *heap, const char *data, size_t bytes,
                          enum origin origin);
struct value string_text(struct jinja_heap *heap, const char *text); /* of the template */
struct value string_copy(struct jinja_heap *heap, const char *data, size_t bytes);
struct value string_part(struct jinja_heap *heap, const struct string *string, size_t from,
                         size_t to); /* bytes */
bool string_is(const struct string *string, const char *text);
size_t string_count(struct jinja_heap *heap, const struct string *string); /* characters */
size_t string_offset(const struct string *string, size_t character);       /* in bytes */
size_t string_next(const struct string *string, size_t at, uint32_t *point_out);
/* Where needle is at or behind from; SIZE_MAX: nowhere. Linear time. */
size_t string_find(struct jinja_heap *heap, const struct string *string,
                   const struct string *needle, size_t from);
struct value string_strip(struct jinja_heap *heap, const struct string *string,
                          const struct string *characters, bool left, bool right);
/* For HTML; what is safe stays. The result is safe. */
const struct string *string_escaped(struct jinja_heap *heap, const struct string *string);
/* characters of a string as a list of strings */
struct value string_characters(struct jinja_heap *heap, const struct string *string);
struct value string_replace(struct jinja_heap *heap, const struct string *string,
                            const struct string *old, const struct string *new, int64_t count);
/* splitlines() */
struct value string_lines(struct jinja_heap *heap, const struct string *text, bool keep_ends);
struct value string_method_format(struct jinja_run *run, struct value self, const struct value *a,
                                  const struct args *args);
/* printf's conversions with Python's values: format % self. */
struct value string_format(struct jinja_run *run, const struct string *format,
                           const struct value *items, size_t count, const struct value *mapping);

/* jinja_value.c */
static inline struct value value_none(void)
{
    return (struct value){.kind = KIND_NONE};
}
static inline struct value value_bool(bool boolean)
{
    return (struct value){.kind = KIND_BOOL, .boolean = boolean};
}
static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = KIND_INT, .integer = integer};
}
static inline struct value value_real(double real)
{
    return (struct value){.kind = KIND_FLOAT, .real = real};
}
struct value value_undefined(struct jinja_heap *heap, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct value value_list(struct jinja_heap *heap, enum kind kind);
void list_add(struct jinja_heap *heap, struct list *list, struct value value);
struct value value_dict(struct jinja_heap *heap);
/* Fails for a key that can not be one. */
void dict_set(struct jinja_heap *heap, struct dict *dict, struct value key, struct value value);
struct value *dict_find(struct jinja_heap *heap, const struct dict *dict, struct value key);
struct value *dict_find_text(struct jinja_heap *heap, const struct dict *dict, const char *text,
                             size_t bytes);
bool value_is_sequence(struct value value); /* list, tuple, range */
bool value_is_number(struct value value);   /* bool, int, float */
double value_number(struct value value);
bool value_true(struct jinja_heap *heap, struct value value);
bool value_equal(struct jinja_heap *heap, struct value a, struct value b);
/* < 0, 0, > 0; fails where Python can not compare. what: the operator, for the message. */
int value_compare(struct jinja_heap *heap, struct value a, struct value b, const char *what);
bool value_contains(struct jinja_heap *heap, struct value container, struct value item);
/* len(); fails for what has none. */
size_t value_length(struct jinja_heap *heap, struct value value);
/* The items of what can be walked; fails for what can not. A generator is used up. */
struct list *value_items(struct jinja_heap *heap, struct value value);
const char *value_type(struct value value); /* as Python calls it */
/* A defined value, or the failure that its use is in jinja2. */
void value_use(struct jinja_heap *heap, struct value value);
int64_t value_as_int(struct jinja_heap *heap, struct value value, const char *what);
const struct string *value_as_string(struct jinja_heap *heap, struct value value, const char *what);
struct value value_from_json(struct jinja_heap *heap, const struct json *json);

/* jinja_print.c */
void print_value(struct builder *builder, struct value value); /* str() */
void print_repr(struct builder *builder, struct value value);
const struct string *value_str(struct jinja_heap *heap, struct value value);
struct json_style {
    const struct string *item_separator, *key_separator;
    struct value indent; /* none, or a string for each level */
    bool ascii, sort_keys;
};
void print_json(struct builder *builder, struct value value, const struct json_style *style,
                uint32_t level);
void print_real(struct builder *builder, double real);

/* jinja_arithmetic.c */
struct value arithmetic(struct jinja_run *run, enum arithmetic op, struct value a, struct value b);
struct value negative(struct jinja_run *run, struct value a);

/* jinja_attribute.c */
struct value attribute_get(struct jinja_run *run, struct value of, const struct string *name);
struct value item_get(struct jinja_run *run, struct value of, struct value key);
struct value slice_get(struct jinja_run *run, struct value of, struct value start,
                       struct value stop, struct value step);
/* "a.b.0" of a filter's attribute argument, or a number. */
struct value attribute_path(struct jinja_run *run, struct value of, struct value path);

/* jinja_lexer.c, jinja_parser.c, jinja_statements.c */
/* The source as it is cut is returned, in the heap. */
struct string jinja_lex(struct jinja_heap *heap, const char *source, size_t bytes,
                        struct tokens *out);
struct parser {
    struct jinja *template;
    struct jinja_heap *heap; /* the template's */
    struct tokens tokens;
    size_t at;
    struct node *macro; /* whose body is being read */
    uint32_t loops;     /* around, within the macro */
};
const struct token *parser_peek(const struct parser *parser, size_t ahead);
bool parser_is_op(const struct parser *parser, const char *op);
bool parser_is_word(const struct parser *parser, const char *word);
bool parser_skip_op(struct parser *parser, const char *op);
bool parser_skip_word(struct parser *parser, const char *word);
void parser_expect_op(struct parser *parser, const char *op);
void parser_expect_word(struct parser *parser, const char *word);
_Noreturn void parser_unexpected(struct parser *parser, const char *wanted);
struct node *parser_node(struct parser *parser, enum node_kind kind);
int32_t parser_symbol(struct parser *parser, const struct string *name);
void node_add(struct jinja_heap *heap, struct node_list *list, struct node *node);
struct node *parse_expression(struct parser *parser);
struct node *parse_expression_plain(struct parser *parser); /* without `a if b` */
struct node *parse_tuple(struct parser *parser, bool with_condition, bool parenthesised);
struct node *parse_target(struct parser *parser);
struct node *parse_unary(struct parser *parser, bool with_filter);
struct node *parse_filters(struct parser *parser, struct node *of); /* | a | b ... */
struct node *parse_filter_chain(struct parser *parser);             /* a | b ... of a block */
void parse_template(struct parser *parser);

/* jinja_evaluate.c, jinja_call.c */
struct value evaluate(struct jinja_run *run, const struct node *node);
struct args evaluate_args(struct jinja_run *run, const struct node_list *items, size_t room);
struct value builtin_call(struct jinja_run *run, const struct builtin *builtin, struct value self,
                          const struct args *args, const char *what);
struct value value_call(struct jinja_run *run, struct value callee, const struct args *args);
struct value filter_apply(struct jinja_run *run, struct value input, const struct node *node);

/* jinja_execute.c */
void jinja_set_value(struct jinja_run *run, const char *name, struct value value);
struct value macro_call(struct jinja_run *run, struct macro *macro, const struct args *args);
struct value loop_call(struct jinja_run *run, struct loop_state *loop, struct value items);
struct value variable_get(struct jinja_run *run, int32_t symbol, const struct string *name);

/* The tables. NULL: there is no such thing. */
const struct builtin *filter_find(const struct string *name);
const struct builtin *text_filter_find(const struct string *name);
const struct builtin *test_find(const struct string *name);
const struct builtin *string_method_find(const struct string *name);
const struct builtin *dict_method_find(const struct string *name);
const struct builtin *list_method_find(const struct string *name);
const struct builtin *loop_method_find(const struct string *name);
const struct builtin *cycler_method_find(const struct string *name);
void globals_fill(struct jinja_run *run);
const struct builtin *builtin_find(const struct builtin *rows, size_t count,
                                   const struct string *name);

#endif
