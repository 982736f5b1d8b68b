/* Source to tokens, as jinja2 cuts it with trim_blocks and lstrip_blocks. */
#include <errno.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

struct lexer {
    struct jinja_heap *heap;
    const char *source;
    size_t bytes, at;
    size_t seen; /* line and column are those of this place */
    uint32_t line, column;
    struct tokens *out;
};

/* Moves the place that failures name. Only forward. */
static void place_set(struct lexer *lexer, size_t at)
{
    for (; lexer->seen < at; lexer->seen++) {
        const char c = lexer->source[lexer->seen];
        if (c == '\n') {
            lexer->line++;
            lexer->column = 1;
        } else if (((uint8_t)c & 0xc0) != 0x80) {
            lexer->column++;
        }
    }
    lexer->heap->line = lexer->line;
    lexer->heap->column = lexer->column;
}

static struct token *token_new(struct lexer *lexer, enum token_kind kind, size_t at)
{
    struct tokens *out = lexer->out;
    place_set(lexer, at);
    if (out->count == out->capacity) {
        const size_t capacity = out->capacity * 2 + 64;
        out->items = jinja_grow(lexer->heap, out->items, out->capacity * sizeof *out->items,
                                capacity * sizeof *out->items);
        out->capacity = capacity;
    }
    struct token *token = &out->items[out->count++];
    *token = (struct token){.kind = kind, .line = lexer->heap->line, .column = lexer->heap->column};
    return token;
}

static bool looks_at(const struct lexer *lexer, size_t at, const char *text)
{
    const size_t bytes = strlen(text);
    return at <= lexer->bytes && lexer->bytes - at >= bytes &&
           memcmp(lexer->source + at, text, bytes) == 0;
}

/* Length of the white space at `at`, 0 if there is none. */
static size_t space_at(const struct lexer *lexer, size_t at)
{
    uint32_t point;
    const int length =
        utf8_sequence((const uint8_t *)lexer->source + at, lexer->bytes - at, &point);
    return length > 0 && (unicode_is_space(point) || (point >= 0x1c && point <= 0x1f))
               ? (size_t)length
               : 0;
}

static size_t spaces_skip(const struct lexer *lexer, size_t at)
{
    for (size_t length; at < lexer->bytes && (length = space_at(lexer, at)) > 0;)
        at += length;
    return at;
}

/* The text before a tag at `end`, without what the tag's sign takes off it. */
static void data_add(struct lexer *lexer, size_t end, char sign, bool takes_indent)
{
    const size_t start = lexer->at;
    struct string text = {.data = lexer->source + start, .bytes = end - start};
    if (sign == '-') {
        text = *string_strip(lexer->heap, &text, NULL, false, true).string;
    } else if (sign != '+' && takes_indent) {
        size_t line = end;
        while (line > start && lexer->source[line - 1] != '\n')
            line--;
        const bool whole = line > start || start == 0 || lexer->source[start - 1] == '\n';
        if (whole && spaces_skip(lexer, line) >= end)
            text.bytes = line - start;
    }
    if (text.bytes > 0)
        token_new(lexer, TOKEN_DATA, start)->text = text;
}

/* Behind the end of a tag: `-` takes all white space, else a block takes one line end. */
static size_t tag_end(const struct lexer *lexer, size_t at, char sign, bool takes_line)
{
    if (sign == '-')
        return spaces_skip(lexer, at);
    return sign != '+' && takes_line && looks_at(lexer, at, "\n") ? at + 1 : at;
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    return at < lexer->bytes && (lexer->source[at] == '-' || lexer->source[at] == '+')
               ? lexer->source[at]
               : '\0';
}

static size_t find_from(const struct lexer *lexer, size_t at, const char *what)
{
    const char *found = memmem(lexer->source + at, lexer->bytes - at, what, strlen(what));
    return found != NULL ? (size_t)(found - lexer->source) : SIZE_MAX;
}

static void comment_skip(struct lexer *lexer, size_t begin)
{
    const size_t close = find_from(lexer, begin + 2, "#}");
    place_set(lexer, begin);
    if (close == SIZE_MAX)
        jinja_fail(lexer->heap, STATUS_INVALID, "the comment that begins here has no end");
    const char sign = close > begin + 2 ? sign_at(lexer, close - 1) : '\0';
    lexer->at = tag_end(lexer, close + 2, sign, true);
}

static bool is_name_byte(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (uint8_t)c >= 0x80 ||
           (!first && c >= '0' && c <= '9');
}

/* `at` is behind "{%" and its sign. Where the word ends, if it stands there. */
static size_t word_end(const struct lexer *lexer, size_t at, const char *word)
{
    at = spaces_skip(lexer, at);
    if (!looks_at(lexer, at, word))
        return SIZE_MAX;
    return spaces_skip(lexer, at + strlen(word));
}

/* {% raw %} ... {% endraw %}. False when it is another block. */
static bool raw_read(struct lexer *lexer, size_t begin, size_t inside)
{
    size_t at = word_end(lexer, inside, "raw");
    if (at == SIZE_MAX || (!looks_at(lexer, at, "%}") && !looks_at(lexer, at, "-%}")))
        return false;
    const char sign = sign_at(lexer, at);
    lexer->at = tag_end(lexer, at + (sign != '\0') + 2, sign, false);
    for (size_t open = lexer->at; (open = find_from(lexer, open, "{%")) != SIZE_MAX; open += 2) {
        const char left = sign_at(lexer, open + 2);
        at = word_end(lexer, open + 2 + (left != '\0'), "endraw");
        if (at == SIZE_MAX)
            continue;
        const char right = sign_at(lexer, at);
        at += right != '\0';
        if (!looks_at(lexer, at, "%}"))
            continue;
        data_add(lexer, open, left, true);
        lexer->at = tag_end(lexer, at + 2, right, true);
        return true;
    }
    place_set(lexer, begin);
    jinja_fail(lexer->heap, STATUS_INVALID, "the raw block that begins here has no end");
}

static void point_add(char *out, size_t *count, uint32_t point)
{
    const int extra = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    out[(*count)++] = (char)(leads[extra] | point >> (6 * extra));
    for (int i = extra - 1; i >= 0; i--)
        out[(*count)++] = (char)(0x80 | (point >> (6 * i) & 0x3f));
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 16;
}

/* An escape of Python's strings behind its backslash. Returns where it ends. */
static size_t escape_read(struct lexer *lexer, size_t at, char *out, size_t *count)
{
    static const char letters[] = "a\ab\bf\fn\nr\rt\tv\v\\\\''\"\"";
    const char c = lexer->source[at];
    if (c == '\n') // a line that goes on
        return at + 1;
    for (size_t i = 0; letters[i] != '\0'; i += 2) {
        if (letters[i] == c) {
            out[(*count)++] = letters[i + 1];
            return at + 1;
        }
    }
    if (c == 'N') {
        place_set(lexer, at);
        jinja_fail(lexer->heap, STATUS_UNSUPPORTED, "characters by their names are not known");
    }
    const int wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : digit_of(c) < 8 ? 3 : 0;
    const int base = digit_of(c) < 8 ? 8 : 16;
    if (wanted == 0) { // no escape: both characters stay
        out[(*count)++] = '\\';
        return at;
    }
    uint32_t point = 0;
    int read = 0;
    size_t from = base == 16 ? at + 1 : at;
    for (; read < wanted && from < lexer->bytes && digit_of(lexer->source[from]) < base; read++)
        point = point * (uint32_t)base + (uint32_t)digit_of(lexer->source[from++]);
    if ((base == 16 && read < wanted) || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        place_set(lexer, at);
        jinja_fail(lexer->heap, STATUS_INVALID, "this escape gives no character");
    }
    point_add(out, count, point);
    return from;
}

static size_t string_read(struct lexer *lexer, size_t at)
{
    const char quote = lexer->source[at];
    size_t end = at + 1;
    while (end < lexer->bytes && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' ? 2 : 1;
    struct token *token = token_new(lexer, TOKEN_TEXT, at);
    if (end >= lexer->bytes)
        jinja_fail(lexer->heap, STATUS_INVALID, "the string that begins here has no end");
    token->text.data = lexer->source + at + 1;
    token->text.bytes = end - at - 1;
    if (token->text.bytes == 0 || memchr(token->text.data, '\\', token->text.bytes) == NULL)
        return end + 1;
    char *out = jinja_take(lexer->heap, 2 * token->text.bytes);
    size_t count = 0;
    for (size_t from = at + 1; from < end;) {
        if (lexer->source[from] == '\\')
            from = escape_read(lexer, from + 1, out, &count);
        else
            out[count++] = lexer->source[from++];
    }
    token->text.data = out;
    token->text.bytes = count;
    return end + 1;
}

/* Digits and single underscores between them. */
static size_t digits_end(const struct lexer *lexer, size_t at, int base)
{
    while (at < lexer->bytes && (digit_of(lexer->source[at]) < base ||
                                 (lexer->source[at] == '_' && at + 1 < lexer->bytes &&
                                  digit_of(lexer->source[at + 1]) < base)))
        at++;
    return at;
}

static size_t number_read(struct lexer *lexer, size_t at)
{
    enum { NUMBER_BYTES_MAX = 400 };
    static const char prefixes[] = "bBoOxX";
    struct token *token = token_new(lexer, TOKEN_INTEGER, at);
    int base = 10;
    size_t from = at;
    const char *prefix =
        at + 1 < lexer->bytes && lexer->source[at] == '0' && lexer->source[at + 1] != '\0'
            ? strchr(prefixes, lexer->source[at + 1])
            : NULL;
    if (prefix != NULL) {
        base = (int[]){2, 8, 16}[(prefix - prefixes) / 2];
        from = at + 2;
    }
    size_t end = digits_end(lexer, from, base);
    if (base == 10) {
        if (end + 1 < lexer->bytes && lexer->source[end] == '.' &&
            digit_of(lexer->source[end + 1]) < 10) {
            token->kind = TOKEN_REAL;
            end = digits_end(lexer, end + 1, 10);
        }
        if (end < lexer->bytes && (lexer->source[end] == 'e' || lexer->source[end] == 'E')) {
            const size_t digits = end + 1 + (sign_at(lexer, end + 1) != '\0');
            if (digits < lexer->bytes && digit_of(lexer->source[digits]) < 10) {
                token->kind = TOKEN_REAL;
                end = digits_end(lexer, digits, 10);
            }
        }
    }
    char text[NUMBER_BYTES_MAX + 1];
    size_t count = 0;
    for (size_t i = from; i < end && count < NUMBER_BYTES_MAX; i++)
        if (lexer->source[i] != '_')
            text[count++] = lexer->source[i];
    text[count] = '\0';
    errno = 0;
    if (token->kind == TOKEN_REAL)
        token->real = strtod(text, NULL);
    else
        token->integer = strtoll(text, NULL, base);
    if (token->kind == TOKEN_INTEGER && base == 10 && text[0] == '0' && strspn(text, "0") != count)
        jinja_fail(lexer->heap, STATUS_INVALID, "an integer does not begin with 0");
    if (count == 0 || count == NUMBER_BYTES_MAX || (token->kind == TOKEN_INTEGER && errno != 0))
        jinja_fail(lexer->heap, STATUS_INVALID, "this number does not fit into 64 bits");
    return end;
}

/* Brackets that are open within a tag, as in the reference: they hide its end. */
struct brackets {
    char *items;
    size_t count, capacity;
};

static void bracket_note(struct lexer *lexer, struct brackets *brackets, char c)
{
    static const char pairs[] = "(){}[]";
    const char *at = strchr(pairs, c);
    if ((at - pairs) % 2 == 0) {
        if (brackets->count == brackets->capacity) {
            brackets->items = jinja_grow(lexer->heap, brackets->items, brackets->capacity,
                                         brackets->capacity * 2 + 16);
            brackets->capacity = brackets->capacity * 2 + 16;
        }
        brackets->items[brackets->count++] = at[1];
    } else if (brackets->count == 0 || brackets->items[--brackets->count] != c) {
        jinja_fail(lexer->heap, STATUS_INVALID, "the bracket '%c' closes none", c);
    }
}

static size_t operator_read(struct lexer *lexer, size_t at, struct brackets *brackets)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < ARRAY_COUNT(operators); i++) {
        if (!looks_at(lexer, at, operators[i]))
            continue;
        struct token *token = token_new(lexer, TOKEN_OPERATOR, at);
        memcpy(token->op, operators[i], strlen(operators[i]) + 1);
        if (strchr("(){}[]", token->op[0]) != NULL)
            bracket_note(lexer, brackets, token->op[0]);
        return at + strlen(operators[i]);
    }
    place_set(lexer, at);
    char shown[8] = "";
    const int length = utf8_sequence((const uint8_t *)lexer->source + at, lexer->bytes - at, NULL);
    memcpy(shown, lexer->source + at, length > 0 ? (size_t)length : 1);
    jinja_fail(lexer->heap, STATUS_INVALID, "the character '%s' has no meaning here", shown);
}

/* From behind "{{" or "{%" and its sign to behind the end. */
static void tag_read(struct lexer *lexer, size_t begin, size_t at, bool block)
{
    const char *const close = block ? "%}" : "}}";
    struct brackets brackets = {0};
    token_new(lexer, block ? TOKEN_OPEN_BLOCK : TOKEN_OPEN_PRINT, begin);
    for (;;) {
        at = spaces_skip(lexer, at);
        if (at >= lexer->bytes) {
            place_set(lexer, lexer->bytes);
            jinja_fail(lexer->heap, STATUS_INVALID, "the template ends within a tag, before '%s'",
                       close);
        }
        char sign = sign_at(lexer, at);
        if (sign == '+' && !block)
            sign = '\0';
        if (brackets.count == 0 && looks_at(lexer, at + (sign != '\0'), close)) {
            token_new(lexer, block ? TOKEN_CLOSE_BLOCK : TOKEN_CLOSE_PRINT, at);
            lexer->at = tag_end(lexer, at + (sign != '\0') + 2, sign, block);
            return;
        }
        const char c = lexer->source[at];
        if (c == '\'' || c == '"') {
            at = string_read(lexer, at);
        } else if (c >= '0' && c <= '9') {
            at = number_read(lexer, at);
        } else if (is_name_byte(c, true)) {
            size_t end = at;
            while (end < lexer->bytes && is_name_byte(lexer->source[end], false))
                end++;
            token_new(lexer, TOKEN_WORD, at)->text =
                (struct string){.data = lexer->source + at, .bytes = end - at};
            at = end;
        } else {
            at = operator_read(lexer, at, &brackets);
        }
    }
}

/* Line ends become "\n"; one at the end of the template goes. */
static void source_take(struct lexer *lexer, const char *source, size_t bytes)
{
    char *copy = jinja_take(lexer->heap, bytes + 1);
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n')
            continue;
        copy[count++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (count > 0 && copy[count - 1] == '\n')
        count--;
    lexer->source = copy;
    lexer->bytes = count;
}

struct string jinja_lex(struct jinja_heap *heap, const char *source, size_t bytes,
                        struct tokens *out)
{
    struct lexer lexer = {.heap = heap, .line = 1, .column = 1, .out = out};
    source_take(&lexer, source, bytes);
    while (lexer.at < lexer.bytes) {
        size_t open = find_from(&lexer, lexer.at, "{");
        while (open != SIZE_MAX && !looks_at(&lexer, open, "{{") && !looks_at(&lexer, open, "{%") &&
               !looks_at(&lexer, open, "{#"))
            open = find_from(&lexer, open + 1, "{");
        if (open == SIZE_MAX) {
            data_add(&lexer, lexer.bytes, '+', false);
            break;
        }
        const char second = lexer.source[open + 1];
        const char sign = sign_at(&lexer, open + 2);
        data_add(&lexer, open, sign, second != '{');
        const size_t inside = open + 2 + (sign != '\0');
        if (second == '#')
            comment_skip(&lexer, open);
        else if (second != '%' || !raw_read(&lexer, open, inside))
            tag_read(&lexer, open, inside, second == '%');
    }
    token_new(&lexer, TOKEN_END, lexer.bytes);
    return (struct string){.data = lexer.source, .bytes = lexer.bytes};
}
