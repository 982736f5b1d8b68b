#include <criterion/criterion.h>

#include "base/random.h"
#include "decode_node/batch_admission.h"

enum { PLACES = 6 };

struct row {
    const char *what;
    uint32_t running[PLACES], running_count;
    uint32_t waiting[PLACES], waiting_count;
    uint32_t batch_max;
    uint32_t joining, rows[PLACES];
};

static const struct row rows[] = {
    {"nobody", {0}, 0, {0}, 0, 4, 0, {0}},
    {"who runs goes on", {1, 1}, 2, {0}, 0, 4, 0, {1, 1}},
    {"who waits joins", {1}, 1, {1, 1}, 2, 4, 2, {1, 1, 1}},
    {"as many as there are places", {1, 1, 1}, 3, {1, 1, 1}, 3, 4, 1, {1, 1, 1, 1}},
    {"a full batch takes nobody", {1, 1}, 2, {1}, 1, 2, 0, {1, 1}},
    {"a prompt is read by the chunk", {1}, 1, {1000}, 1, 4, 1, {1, 256}},
    {"its end is shorter", {1, 100}, 2, {0}, 0, 4, 0, {1, 100}},
    {"one prompt at a time, the oldest", {500, 1, 300}, 3, {0}, 0, 4, 0, {256, 1, 0}},
    {"one that joins waits for its turn", {500}, 1, {400, 1}, 2, 4, 2, {256, 0, 1}},
    {"a prompt of one token is a row like any", {300}, 1, {1}, 1, 4, 1, {256, 1}},
};

Test(batch_admission, rows_of_the_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        uint32_t out[PLACES] = {0};
        const struct batch_snapshot snapshot = {.running_rows = row->running,
                                                .running_count = row->running_count,
                                                .waiting_rows = row->waiting,
                                                .waiting_count = row->waiting_count,
                                                .batch_max = row->batch_max,
                                                .chunk_tokens = 256};
        cr_assert_eq(batch_admission_plan(&snapshot, out), row->joining, "%s", row->what);
        for (uint32_t k = 0; k < row->running_count + row->joining; k++)
            cr_assert_eq(out[k], row->rows[k], "%s: member %u has %u rows", row->what, k, out[k]);
    }
}

/* Whoever decodes gets a row in every step, prompts are read in order, the step stays bounded. */
Test(batch_admission, random_batches_keep_the_rules)
{
    struct random random;
    random_init(&random, 12);
    for (int round = 0; round < 2000; round++) {
        uint32_t running[32], waiting[32], out[32];
        const uint32_t batch_max = 1 + (uint32_t)random_below(&random, 32);
        const struct batch_snapshot s = {
            .running_rows = running,
            .running_count = (uint32_t)random_below(&random, batch_max + 1),
            .waiting_rows = waiting,
            .waiting_count = (uint32_t)random_below(&random, 33),
            .batch_max = batch_max,
            .chunk_tokens = 1 + (uint32_t)random_below(&random, 300),
        };
        for (uint32_t i = 0; i < 32; i++) {
            running[i] = random_below(&random, 2) ? 1 : 1 + (uint32_t)random_below(&random, 900);
            waiting[i] = random_below(&random, 2) ? 1 : 1 + (uint32_t)random_below(&random, 900);
        }
        const uint32_t joining = batch_admission_plan(&s, out);
        const uint32_t members = s.running_count + joining;
        cr_assert_leq(members, batch_max);
        cr_assert(members == batch_max || joining == s.waiting_count);
        uint32_t prompts = 0;
        for (uint32_t i = 0; i < members; i++) {
            const uint32_t left = i < s.running_count ? running[i] : waiting[i - s.running_count];
            if (left == 1) {
                cr_assert_eq(out[i], 1);
                continue;
            }
            const uint32_t chunk = left < s.chunk_tokens ? left : s.chunk_tokens;
            cr_assert_eq(out[i], prompts++ == 0 ? chunk : 0);
        }
    }
}
