/* Follows a JSON object byte by byte, without keeping it.
 *
 * For text that arrives in pieces: says after each byte whether what came so far can still become
 * an object, and where in it the byte stands. As strict as json.h, but for what needs memory of the
 * text: keys may repeat, numbers may be of any size, and bytes over 0x7f are not looked at. Any
 * thread, one at a time. */
#ifndef BATON_BASE_JSON_SCAN_H
#define BATON_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

enum json_scan_state {
    JSON_SCAN_BEGIN,        /* the object has not opened */
    JSON_SCAN_KEY_OR_CLOSE, /* behind { */
    JSON_SCAN_KEY,          /* behind a comma in an object */
    JSON_SCAN_COLON,
    JSON_SCAN_VALUE,
    JSON_SCAN_VALUE_OR_CLOSE, /* behind [ */
    JSON_SCAN_AFTER,          /* behind a value: a comma or a closing bracket */
    JSON_SCAN_STRING,
    JSON_SCAN_ESCAPE,
    JSON_SCAN_HEX,
    JSON_SCAN_MINUS,
    JSON_SCAN_ZERO,
    JSON_SCAN_DIGITS,
    JSON_SCAN_POINT,
    JSON_SCAN_FRACTION,
    JSON_SCAN_EXPONENT,
    JSON_SCAN_EXPONENT_SIGN,
    JSON_SCAN_EXPONENT_DIGITS,
    JSON_SCAN_LITERAL
};

struct json_scan {
    enum json_scan_state state;
    uint32_t depth;                        /* open brackets; 0 before and after the object */
    bool in_key;                           /* the string is a key */
    uint8_t hex_left;                      /* digits of \u */
    const char *literal;                   /* what is left of true, false or null */
    uint64_t objects[JSON_DEPTH_MAX / 64]; /* one bit a level: an object, not an array */
};

enum json_scan_result { JSON_SCAN_MORE, JSON_SCAN_DONE, JSON_SCAN_BAD };

void json_scan_init(struct json_scan *scan);
/* DONE with the bracket that closes the object: nothing more is to be fed. BAD leaves the scan as
 * it was. */
enum json_scan_result json_scan_byte(struct json_scan *scan, char byte);

#endif
