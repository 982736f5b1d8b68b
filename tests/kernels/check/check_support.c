/* What all checkers share: cases, inputs, guards, comparisons. */
#include "tests/kernels/check/kernel_check.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/float_bits.h"

enum { FAILURES_PRINTED = 3, GUARD_BYTES = 128, GUARD_BYTE = 0xa7, BUFFERS_MAX = 64 };

const char *flavour_name(enum flavour flavour)
{
    static const char *const names[FLAVOUR_COUNT] = {"normal",   "heavy", "extreme",
                                                     "denormal", "zero",  "nonfinite"};
    return names[flavour];
}

static float random_float(struct check *check, enum flavour flavour)
{
    const float normal = (float)random_normal(&check->random);
    switch (flavour) {
    case FLAVOUR_HEAVY:
        return ldexpf(normal, (int)random_below(&check->random, 41) - 20);
    case FLAVOUR_EXTREME:
        return copysignf(FLT_MAX, normal) * (float)random_unit(&check->random);
    case FLAVOUR_DENORMAL:
        return normal * (random_below(&check->random, 2) ? 0x1p-130f : 0x1p-124f);
    case FLAVOUR_ZERO:
        return copysignf(0.0f, normal);
    case FLAVOUR_NONFINITE:
        switch (random_below(&check->random, 64)) {
        case 0:
            return NAN;
        case 1:
            return INFINITY;
        case 2:
            return -INFINITY;
        default:
            return normal;
        }
    default:
        return normal;
    }
}

void fill_floats(struct check *check, enum flavour flavour, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = random_float(check, flavour);
}

void check_fail(struct check *check, const char *format, ...)
{
    if (check->failures++ >= FAILURES_PRINTED)
        return;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("  %s [%s]: %s\n", check->row->name, check->shape, text);
}

void check_case(struct check *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(check->shape, sizeof(check->shape), format, args);
    va_end(args);
    check->cases++;
}

uint32_t check_pick(struct check *check, uint32_t low, uint32_t high)
{
    return low + (uint32_t)random_below(&check->random, (uint64_t)high - low + 1);
}

static struct {
    uint8_t *memory; /* guard, data, guard */
    size_t bytes;    /* of the data */
} buffers[BUFFERS_MAX];
static uint32_t buffer_count;

void *guard_allocate(size_t bytes)
{
    CHECK(buffer_count < BUFFERS_MAX);
    const size_t total = (bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
    uint8_t *memory = aligned_alloc(64, total);
    CHECK(memory);
    memset(memory, GUARD_BYTE, total);
    buffers[buffer_count].memory = memory;
    buffers[buffer_count].bytes = bytes;
    buffer_count++;
    return memory + GUARD_BYTES;
}

void guards_check(struct check *check)
{
    for (uint32_t i = 0; i < buffer_count; i++) {
        const uint8_t *data = buffers[i].memory + GUARD_BYTES;
        for (size_t at = 0; at < GUARD_BYTES; at++) {
            if (buffers[i].memory[at] != GUARD_BYTE) {
                check_fail(check, "wrote %zu bytes before a buffer of %zu", GUARD_BYTES - at,
                           buffers[i].bytes);
                return;
            }
            if (data[buffers[i].bytes + at] != GUARD_BYTE) {
                check_fail(check, "wrote %zu bytes past a buffer of %zu", at + 1, buffers[i].bytes);
                return;
            }
        }
    }
}

void guards_release(void)
{
    while (buffer_count > 0)
        free(buffers[--buffer_count].memory);
}

bool floats_equal(struct check *check, const char *what, const float *expected, const float *actual,
                  size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows * columns; i++) {
        if (float_bits(expected[i]) == float_bits(actual[i]))
            continue;
        if (isnan(expected[i]) && isnan(actual[i]))
            continue;
        check_fail(check, "%s (%zu, %zu) is %.9g (0x%08x), not %.9g (0x%08x)", what, i / columns,
                   i % columns, (double)actual[i], float_bits(actual[i]), (double)expected[i],
                   float_bits(expected[i]));
        return false;
    }
    return true;
}

bool bytes_equal(struct check *check, const char *what, const void *expected, const void *actual,
                 size_t bytes)
{
    const uint8_t *a = expected;
    const uint8_t *b = actual;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            check_fail(check, "byte %zu of %s is 0x%02x, not 0x%02x", i, what, b[i], a[i]);
            return false;
        }
    }
    return true;
}

void precision_check(struct check *check, const double *exact, const float *plain,
                     const float *actual, size_t count)
{
    double signal = 0;
    double plain_error = 0;
    double actual_error = 0;
    double shifted_error = 0; /* of a result that is off by 10 %: must not pass */
    for (size_t i = 0; i < count; i++) {
        const double off = exact[i] * 1.1 - exact[i];
        signal += exact[i] * exact[i];
        plain_error += (plain[i] - exact[i]) * (plain[i] - exact[i]);
        actual_error += (actual[i] - exact[i]) * (actual[i] - exact[i]);
        shifted_error += off * off;
    }
    signal = sqrt(signal / (double)count);
    plain_error = sqrt(plain_error / (double)count);
    actual_error = sqrt(actual_error / (double)count);
    shifted_error = sqrt(shifted_error / (double)count);
    if (!(signal > 0) || !(plain_error > 0) || !(shifted_error > 2 * plain_error))
        check_fail(check, "the comparison is empty: signal %g, plain error %g", signal,
                   plain_error);
    if (!(actual_error <= 2 * plain_error))
        check_fail(check, "error %g against double is more than twice the plain %g (signal %g)",
                   actual_error, plain_error, signal);
}
