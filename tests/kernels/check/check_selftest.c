/* Deliberately wrong kernels, each with a fault of its own kind. A check that passes one of them
 * proves nothing about the right ones. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"

/* The last bit of one output. */
static void matmul_last_bit(const struct matmul_task *task)
{
    matmul_i8_q4a__ref(task);
    if (task->rows > 2 && task->panel_first == 0 && task->panel_end > 0)
        task->out[2 * (size_t)task->n] =
            float_from_bits(float_bits(task->out[2 * (size_t)task->n]) ^ 1);
}

/* A row's bits depend on how many rows share the call: not batch-invariant. */
static void matmul_variant(const struct matmul_task *task)
{
    matmul_f32__ref(task);
    if (task->rows % 2 == 0 || task->panel_first == task->panel_end)
        return;
    float *last = &task->out[(size_t)task->rows * task->n - 1];
    *last = nextafterf(*last, INFINITY);
}

static void matmul_past_the_end(const struct matmul_task *task)
{
    matmul_bf16__ref(task);
    if (task->rows > 0 && task->panel_end * 16 > task->n)
        task->out[(size_t)task->rows * task->n] = 1.0f;
}

/* A NaN turns into a number. */
static void matmul_swallows_nan(const struct matmul_task *task)
{
    matmul_i8_q8__ref(task);
    const uint32_t end = task->panel_end * 16 < task->n ? task->panel_end * 16 : task->n;
    for (size_t row = 0; row < task->rows; row++)
        for (size_t i = (size_t)task->panel_first * 16; i < end; i++)
            if (isnan(task->out[row * task->n + i]))
                task->out[row * task->n + i] = 0.0f;
}

static void norm_crashes(const struct rms_norm_task *task)
{
    raise(SIGSEGV);
}

/* Sees one token too few. */
static void attention_too_short(const struct attention_task *task)
{
    struct attention_task shorter = *task;
    if (task->position > 0)
        shorter.position--;
    attention_bf16__ref(&shorter);
}

/* Of equal values the last one wins. */
static void top_takes_the_last(const struct top_task *task)
{
    top_f32__ref(task);
    for (size_t row = 0; row < task->rows; row++)
        for (uint32_t i = 0; i < task->columns; i++)
            if (task->values[row * task->stride + i] == task->lists[row * task->list_stride].value)
                task->lists[row * task->list_stride].id = task->first_id + (int32_t)i;
}

/* The window is one token too wide. */
static void attention_too_wide(const struct attention_task *task)
{
    struct attention_task wider = *task;
    if (task->window > 0)
        wider.window++;
    attention_i8__ref(&wider);
}

#define ROW(operation_, dtype_, function_)                                                         \
    {                                                                                              \
        .operation = #operation_, .dtype = #dtype_, .name = #function_,                            \
        .slot = KERNEL_SLOT_##operation_##_##dtype_, .isa = KERNEL_ISA_ref, .tile = 4,             \
        .function = (void (*)(void))(function_)                                                    \
    }

int selftest_run(uint64_t seed)
{
    static const struct kernel_row wrong[] = {
        ROW(matmul, i8_q4a, matmul_last_bit),   ROW(matmul, f32, matmul_variant),
        ROW(matmul, bf16, matmul_past_the_end), ROW(matmul, i8_q8, matmul_swallows_nan),
        ROW(rms_norm, f32, norm_crashes),       ROW(attention, bf16, attention_too_short),
        ROW(top, f32, top_takes_the_last),      ROW(attention, i8, attention_too_wide),
    };
    static const struct kernel_row right = ROW(matmul, f32, matmul_f32__ref);
    uint32_t missed = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        const bool passed = check_run_row(&wrong[i], seed, true);
        printf("%-6s %s\n", passed ? "MISSED" : "caught", wrong[i].name);
        missed += passed;
    }
    if (!check_run_row(&right, seed, false))
        missed++;
    return missed > 0;
}
