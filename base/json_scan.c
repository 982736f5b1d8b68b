#include "base/json_scan.h"

#include <string.h>

#include "base/check.h"

void json_scan_init(struct json_scan *scan)
{
    *scan = (struct json_scan){.state = JSON_SCAN_BEGIN};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const struct json_scan *scan)
{
    const uint32_t level = scan->depth - 1;
    return (scan->objects[level / 64] >> level % 64 & 1) != 0;
}

static enum json_scan_result move(struct json_scan *scan, enum json_scan_state state)
{
    scan->state = state;
    return JSON_SCAN_MORE;
}

static enum json_scan_result open_level(struct json_scan *scan, bool object)
{
    if (scan->depth == JSON_DEPTH_MAX)
        return JSON_SCAN_BAD;
    const uint64_t bit = (uint64_t)1 << scan->depth % 64;
    uint64_t *bits = &scan->objects[scan->depth / 64];
    *bits = object ? *bits | bit : *bits & ~bit;
    scan->depth++;
    return move(scan, object ? JSON_SCAN_KEY_OR_CLOSE : JSON_SCAN_VALUE_OR_CLOSE);
}

static enum json_scan_result close_level(struct json_scan *scan)
{
    scan->depth--;
    scan->state = JSON_SCAN_AFTER;
    return scan->depth == 0 ? JSON_SCAN_DONE : JSON_SCAN_MORE;
}

static enum json_scan_result begin_string(struct json_scan *scan, bool key)
{
    scan->in_key = key;
    return move(scan, JSON_SCAN_STRING);
}

static enum json_scan_result begin_literal(struct json_scan *scan, const char *rest)
{
    scan->literal = rest;
    return move(scan, JSON_SCAN_LITERAL);
}

static enum json_scan_result begin_value(struct json_scan *scan, char byte)
{
    switch (byte) {
    case '{':
    case '[':
        return open_level(scan, byte == '{');
    case '"':
        return begin_string(scan, false);
    case '-':
        return move(scan, JSON_SCAN_MINUS);
    case '0':
        return move(scan, JSON_SCAN_ZERO);
    case 't':
        return begin_literal(scan, "rue");
    case 'f':
        return begin_literal(scan, "alse");
    case 'n':
        return begin_literal(scan, "ull");
    default:
        return is_digit(byte) ? move(scan, JSON_SCAN_DIGITS) : JSON_SCAN_BAD;
    }
}

static enum json_scan_result after_value(struct json_scan *scan, char byte)
{
    const bool object = in_object(scan);
    if (byte == (object ? '}' : ']'))
        return close_level(scan);
    if (byte == ',')
        return move(scan, object ? JSON_SCAN_KEY : JSON_SCAN_VALUE);
    return is_blank(byte) ? move(scan, JSON_SCAN_AFTER) : JSON_SCAN_BAD;
}

static enum json_scan_result in_string(struct json_scan *scan, char byte)
{
    if (byte == '"')
        return move(scan, scan->in_key ? JSON_SCAN_COLON : JSON_SCAN_AFTER);
    if (byte == '\\')
        return move(scan, JSON_SCAN_ESCAPE);
    return (unsigned char)byte < 0x20 ? JSON_SCAN_BAD : JSON_SCAN_MORE;
}

static enum json_scan_result in_escape(struct json_scan *scan, char byte)
{
    if (scan->state == JSON_SCAN_HEX) {
        if (!is_digit(byte) && !(byte >= 'a' && byte <= 'f') && !(byte >= 'A' && byte <= 'F'))
            return JSON_SCAN_BAD;
        return --scan->hex_left > 0 ? JSON_SCAN_MORE : move(scan, JSON_SCAN_STRING);
    }
    if (byte == 'u') {
        scan->hex_left = 4;
        return move(scan, JSON_SCAN_HEX);
    }
    return byte != '\0' && strchr("\"\\/bfnrt", byte) ? move(scan, JSON_SCAN_STRING)
                                                      : JSON_SCAN_BAD;
}

/* RFC 8259, section 6. */
static enum json_scan_result in_number(struct json_scan *scan, char byte)
{
    const enum json_scan_state state = scan->state;
    const bool whole = state == JSON_SCAN_ZERO || state == JSON_SCAN_DIGITS;
    if (is_digit(byte)) {
        switch (state) {
        case JSON_SCAN_ZERO:
            return JSON_SCAN_BAD;
        case JSON_SCAN_MINUS:
            return move(scan, byte == '0' ? JSON_SCAN_ZERO : JSON_SCAN_DIGITS);
        case JSON_SCAN_POINT:
            return move(scan, JSON_SCAN_FRACTION);
        case JSON_SCAN_EXPONENT:
        case JSON_SCAN_EXPONENT_SIGN:
            return move(scan, JSON_SCAN_EXPONENT_DIGITS);
        default:
            return JSON_SCAN_MORE;
        }
    }
    if (byte == '.' && whole)
        return move(scan, JSON_SCAN_POINT);
    if ((byte == 'e' || byte == 'E') && (whole || state == JSON_SCAN_FRACTION))
        return move(scan, JSON_SCAN_EXPONENT);
    if ((byte == '+' || byte == '-') && state == JSON_SCAN_EXPONENT)
        return move(scan, JSON_SCAN_EXPONENT_SIGN);
    if (whole || state == JSON_SCAN_FRACTION || state == JSON_SCAN_EXPONENT_DIGITS)
        return after_value(scan, byte);
    return JSON_SCAN_BAD;
}

/* Where structure is expected: blanks, brackets, commas, colons and what begins a value. */
static enum json_scan_result in_structure(struct json_scan *scan, char byte)
{
    if (is_blank(byte))
        return JSON_SCAN_MORE;
    switch (scan->state) {
    case JSON_SCAN_BEGIN:
        return byte == '{' ? open_level(scan, true) : JSON_SCAN_BAD;
    case JSON_SCAN_KEY_OR_CLOSE:
        if (byte == '}')
            return close_level(scan);
        return byte == '"' ? begin_string(scan, true) : JSON_SCAN_BAD;
    case JSON_SCAN_KEY:
        return byte == '"' ? begin_string(scan, true) : JSON_SCAN_BAD;
    case JSON_SCAN_COLON:
        return byte == ':' ? move(scan, JSON_SCAN_VALUE) : JSON_SCAN_BAD;
    case JSON_SCAN_VALUE_OR_CLOSE:
        return byte == ']' ? close_level(scan) : begin_value(scan, byte);
    case JSON_SCAN_VALUE:
        return begin_value(scan, byte);
    default:
        return after_value(scan, byte);
    }
}

enum json_scan_result json_scan_byte(struct json_scan *scan, char byte)
{
    CHECK(scan->depth > 0 || scan->state == JSON_SCAN_BEGIN);
    switch (scan->state) {
    case JSON_SCAN_STRING:
        return in_string(scan, byte);
    case JSON_SCAN_ESCAPE:
    case JSON_SCAN_HEX:
        return in_escape(scan, byte);
    case JSON_SCAN_LITERAL:
        if (byte != *scan->literal)
            return JSON_SCAN_BAD;
        return *++scan->literal ? JSON_SCAN_MORE : move(scan, JSON_SCAN_AFTER);
    case JSON_SCAN_MINUS:
    case JSON_SCAN_ZERO:
    case JSON_SCAN_DIGITS:
    case JSON_SCAN_POINT:
    case JSON_SCAN_FRACTION:
    case JSON_SCAN_EXPONENT:
    case JSON_SCAN_EXPONENT_SIGN:
    case JSON_SCAN_EXPONENT_DIGITS:
        return in_number(scan, byte);
    default:
        return in_structure(scan, byte);
    }
}
