/* Python's operators on numbers, strings and lists. Integers have 64 bits; more is an error. */
#include <math.h>

#include "model/text/jinja/jinja_internal.h"

static _Noreturn void unsupported(struct jinja_run *run, const char *op, struct value a,
                                  struct value b)
{
    jinja_fail(&run->heap, STATUS_INVALID, "unsupported operand types for %s: '%s' and '%s'", op,
               value_type(a), value_type(b));
}

static _Noreturn void too_large(struct jinja_run *run)
{
    jinja_fail(&run->heap, STATUS_LIMIT, "the integer does not fit into 64 bits");
}

static int64_t integer(struct value value)
{
    return value.kind == KIND_BOOL ? value.boolean : value.integer;
}

static void divisor_check(struct jinja_run *run, struct value b)
{
    if (value_number(b) == 0)
        jinja_fail(&run->heap, STATUS_INVALID, "division by zero");
}

static struct value integer_power(struct jinja_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0) {
        divisor_check(run, value_int(base));
        return value_real(pow((double)base, (double)exponent));
    }
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            too_large(run);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            too_large(run);
    }
    return value_int(result);
}

static struct value integers(struct jinja_run *run, enum arithmetic op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool fits = true;
    switch (op) {
    case OP_ADD:
        fits = !__builtin_add_overflow(a, b, &result);
        break;
    case OP_SUBTRACT:
        fits = !__builtin_sub_overflow(a, b, &result);
        break;
    case OP_MULTIPLY:
        fits = !__builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIVIDE:
        divisor_check(run, value_int(b));
        return value_real((double)a / (double)b);
    case OP_FLOOR:
        divisor_check(run, value_int(b));
        fits = !(a == INT64_MIN && b == -1);
        if (fits)
            result = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MODULO:
        divisor_check(run, value_int(b));
        result = b == -1 ? 0 : a % b;
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    case OP_POWER:
        return integer_power(run, a, b);
    }
    if (!fits)
        too_large(run);
    return value_int(result);
}

/* As CPython's float_divmod: the rest has the divisor's sign, also where it is zero. */
static double real_modulo(double a, double b)
{
    const double rest = fmod(a, b);
    if (rest == 0)
        return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

/* The same one's quotient, from the rest, since a / b may be rounded to the integer above. */
static double real_floor(double a, double b)
{
    const double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0, a / b);
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct value reals(struct jinja_run *run, enum arithmetic op, double a, double b)
{
    switch (op) {
    case OP_ADD:
        return value_real(a + b);
    case OP_SUBTRACT:
        return value_real(a - b);
    case OP_MULTIPLY:
        return value_real(a * b);
    case OP_DIVIDE:
        divisor_check(run, value_real(b));
        return value_real(a / b);
    case OP_FLOOR:
        divisor_check(run, value_real(b));
        return value_real(real_floor(a, b));
    case OP_MODULO:
        divisor_check(run, value_real(b));
        return value_real(real_modulo(a, b));
    case OP_POWER:
        if (a == 0 && b < 0)
            divisor_check(run, value_real(0));
        return value_real(pow(a, b));
    }
    return value_none();
}

static struct value joined(struct jinja_run *run, struct value a, struct value b)
{
    struct jinja_heap *heap = &run->heap;
    if (a.kind == KIND_STRING) {
        struct builder text = {.heap = heap};
        const bool safe = a.string->safe || b.string->safe;
        builder_add_string(&text, safe ? string_escaped(heap, a.string) : a.string);
        builder_add_string(&text, safe ? string_escaped(heap, b.string) : b.string);
        struct value both = builder_value(&text);
        both.string->safe = safe;
        return both;
    }
    struct value list = value_list(heap, a.kind);
    for (size_t i = 0; i < a.list->count; i++)
        list_add(heap, list.list, a.list->items[i]);
    for (size_t i = 0; i < b.list->count; i++)
        list_add(heap, list.list, b.list->items[i]);
    return list;
}

static struct value repeated(struct jinja_run *run, struct value value, int64_t count)
{
    struct jinja_heap *heap = &run->heap;
    if (value.kind == KIND_STRING) {
        struct builder text = {.heap = heap};
        for (int64_t i = 0; i < count && value.string->bytes > 0; i++) {
            jinja_charge(heap, 1);
            builder_add_string(&text, value.string);
        }
        struct value all = builder_value(&text);
        all.string->safe = value.string->safe;
        return all;
    }
    struct value list = value_list(heap, value.kind);
    for (int64_t i = 0; i < count && value.list->count > 0; i++)
        for (size_t item = 0; item < value.list->count; item++)
            list_add(heap, list.list, value.list->items[item]);
    return list;
}

static bool can_repeat(struct value value, struct value count)
{
    return (value.kind == KIND_STRING || value.kind == KIND_LIST || value.kind == KIND_TUPLE) &&
           (count.kind == KIND_INT || count.kind == KIND_BOOL);
}

struct value arithmetic(struct jinja_run *run, enum arithmetic op, struct value a, struct value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    value_use(&run->heap, a);
    if (op == OP_MODULO && a.kind == KIND_STRING) {
        if (b.kind == KIND_TUPLE)
            return string_format(run, a.string, b.list->items, b.list->count, NULL);
        return string_format(run, a.string, &b, 1, b.kind == KIND_DICT ? &b : NULL);
    }
    value_use(&run->heap, b);
    if (value_is_number(a) && value_is_number(b))
        return a.kind == KIND_FLOAT || b.kind == KIND_FLOAT
                   ? reals(run, op, value_number(a), value_number(b))
                   : integers(run, op, integer(a), integer(b));
    if (op == OP_ADD && a.kind == b.kind &&
        (a.kind == KIND_STRING || a.kind == KIND_LIST || a.kind == KIND_TUPLE))
        return joined(run, a, b);
    if (op == OP_MULTIPLY && can_repeat(a, b))
        return repeated(run, a, integer(b));
    if (op == OP_MULTIPLY && can_repeat(b, a))
        return repeated(run, b, integer(a));
    unsupported(run, names[op], a, b);
}

struct value negative(struct jinja_run *run, struct value a)
{
    value_use(&run->heap, a);
    if (a.kind == KIND_FLOAT)
        return value_real(-a.real);
    if (a.kind != KIND_INT && a.kind != KIND_BOOL)
        jinja_fail(&run->heap, STATUS_INVALID, "a value of type '%s' has no sign", value_type(a));
    return arithmetic(run, OP_SUBTRACT, value_int(0), a);
}
