/* The page pool: reservations, runs, generations, holders, poison, and the misuse it must catch. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/random.h"
#include "tests/model/kv/pool_fixture.h"

enum { SLOTS = 200 };

static const struct kv_layout layout = {
    .version = KV_LAYOUT_VERSION,
    .layers = 3,
    .kv_heads = 2,
    .head_dim = 16,
    .page_tokens = 32,
    .dtype = KV_BF16,
};

static void open_pool(void)
{
    pool_fixture_open(&layout, SLOTS);
    page_pool_poison(pool, false);
}

TestSuite(page_pool, .init = open_pool, .fini = pool_fixture_close);

static void take(uint32_t count, uint32_t *slots)
{
    cr_assert_eq(page_pool_reserve(pool, count), STATUS_OK);
    page_pool_take(pool, count, slots);
}

static bool is_run(const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (slots[i] != slots[0] + i)
            return false;
    }
    return true;
}

Test(page_pool, sizes_are_those_of_the_layout)
{
    const size_t strip = 2 * 2 * 32 * 16 * 2; // K and V, heads, tokens, dims, bytes
    cr_assert_eq(kv_layout_strip_bytes(&layout), strip);
    cr_assert_eq(kv_layout_page_bytes(&layout), 3 * strip);
    cr_assert_eq(page_pool_slot_count(pool), SLOTS);
    const uint8_t *first = page_pool_strip(pool, 0, 0);
    for (uint32_t layer = 0; layer < 3; layer++) {
        const struct kv_view view = page_pool_view(pool, layer);
        cr_assert_eq(page_pool_strip(pool, layer, 7), first + (layer * SLOTS + 7) * strip);
        cr_assert_eq(backend->ops->host_view(backend, view.base), first + layer * SLOTS * strip);
        cr_assert_eq(view.page_bytes, strip);
    }
}

Test(page_pool, reserving_takes_from_the_free_count)
{
    uint32_t slots[SLOTS];
    cr_assert_eq(page_pool_reserve(pool, SLOTS - 1), STATUS_OK);
    cr_assert_eq(page_pool_free_count(pool), 1);
    cr_assert_eq(page_pool_reserve(pool, 2), STATUS_BUSY);
    cr_assert_eq(page_pool_free_count(pool), 1);
    page_pool_take(pool, 10, slots);
    cr_assert_eq(page_pool_free_count(pool), 1, "taking names what was reserved");
    page_pool_unreserve(pool, SLOTS - 1 - 10);
    cr_assert_eq(page_pool_free_count(pool), SLOTS - 10);
    page_pool_free(pool, slots, 10);
    cr_assert_eq(page_pool_free_count(pool), SLOTS);
    cr_assert_eq(page_pool_reserve(pool, UINT32_MAX), STATUS_BUSY);
    cr_assert_eq(page_pool_reserve(pool, 0), STATUS_OK);
}

Test(page_pool, consecutive_slots_where_there_is_a_run)
{
    uint32_t all[SLOTS], slots[SLOTS];
    take(SLOTS, all);
    cr_assert(is_run(all, SLOTS));
    /* Holes of one, then one of 70 over a word's edge, then the end. */
    for (uint32_t i = 0; i < 50; i += 2)
        page_pool_free(pool, &all[i], 1);
    page_pool_free(pool, &all[60], 70);
    take(70, slots);
    cr_assert(is_run(slots, 70) && slots[0] == all[60]);
    page_pool_free(pool, slots, 70);
    take(3, slots);
    cr_assert(is_run(slots, 3) && slots[0] == all[60]);
    take(1, &slots[3]);
    cr_assert_eq(slots[3], all[0], "one slot fills the first hole");
    /* No run of 68 is left (67 in the hole, single ones before it): the lowest ones, ascending. */
    take(68, &slots[4]);
    cr_assert_eq(slots[4], all[2]);
    for (uint32_t i = 5; i < 72; i++)
        cr_assert_lt(slots[i - 1], slots[i]);
    for (uint32_t i = 0; i < SLOTS; i++) {
        const bool freed = (i < 50 && i % 2 == 0) || (i >= 60 && i < 130);
        if (!freed)
            page_pool_free(pool, &all[i], 1);
    }
    page_pool_free(pool, slots, 72);
    cr_assert_eq(page_pool_free_count(pool), SLOTS);
}

Test(page_pool, generations_rise_with_every_taking)
{
    uint32_t slot;
    take(1, &slot);
    const uint32_t first = page_pool_generation(pool, slot);
    for (uint32_t i = 1; i <= 5; i++) {
        page_pool_free(pool, &slot, 1);
        cr_assert_eq(page_pool_generation(pool, slot), first + i - 1);
        take(1, &slot);
        cr_assert_eq(page_pool_generation(pool, slot), first + i);
    }
    page_pool_free(pool, &slot, 1);
}

Test(page_pool, freed_pages_are_poisoned_when_asked)
{
    uint32_t slots[2];
    take(2, slots);
    for (uint32_t layer = 0; layer < 3; layer++)
        memset(page_pool_strip(pool, layer, slots[1]), 0, kv_layout_strip_bytes(&layout));
    page_pool_free(pool, &slots[0], 1);
    page_pool_poison(pool, true);
    page_pool_free(pool, &slots[1], 1);
    for (uint32_t layer = 0; layer < 3; layer++) {
        const uint16_t *poisoned = page_pool_strip(pool, layer, slots[1]);
        const float *whole = page_pool_strip(pool, layer, slots[1]);
        const uint16_t *clean = page_pool_strip(pool, layer, slots[0]);
        for (size_t i = 0; i < kv_layout_strip_bytes(&layout) / 2; i++) {
            cr_assert_eq(poisoned[i] & 0x7fc0, 0x7fc0, "half %zu is no bf16 NaN", i);
            cr_assert_eq(clean[i], 0);
            cr_assert(isnan(whole[i / 2]));
        }
    }
}

Test(page_pool, a_page_is_free_when_its_last_holder_let_go)
{
    uint32_t slots[2];
    take(2, slots);
    memset(page_pool_strip(pool, 0, slots[0]), 1, kv_layout_strip_bytes(&layout));
    page_pool_poison(pool, true);
    page_pool_hold(pool, slots, 2);
    page_pool_hold(pool, slots, 1);
    cr_assert_eq(page_pool_hold_count(pool, slots[0]), 3);
    cr_assert_not(page_pool_is_sole(pool, slots, 1));
    page_pool_free(pool, slots, 2);
    cr_assert_eq(page_pool_free_count(pool), SLOTS - 2);
    cr_assert(page_pool_is_sole(pool, &slots[1], 1));
    page_pool_free(pool, slots, 2);
    cr_assert_eq(page_pool_free_count(pool), SLOTS - 1);
    const uint8_t *bytes = page_pool_strip(pool, 0, slots[0]);
    cr_assert_eq(bytes[0], 1, "it is still held by one");
    page_pool_free(pool, slots, 1);
    cr_assert_neq(bytes[0], 1);
    cr_assert_eq(page_pool_hold_count(pool, slots[0]), 0);
    cr_assert_not(page_pool_is_sole(pool, slots, 1), "nobody's page is not to be written either");
}

Test(page_pool, idle_pages_are_those_that_only_the_index_holds)
{
    uint32_t slot;
    take(1, &slot);
    page_pool_keep(pool, slot);
    cr_assert_eq(page_pool_idle_count(pool), 0);
    page_pool_free(pool, &slot, 1);
    cr_assert_eq(page_pool_idle_count(pool), 1);
    cr_assert(page_pool_is_idle(pool, slot));
    page_pool_hold(pool, &slot, 1);
    cr_assert_eq(page_pool_idle_count(pool), 0);
    page_pool_unkeep(pool, slot);
    cr_assert(page_pool_is_sole(pool, &slot, 1));
    page_pool_keep(pool, slot);
    page_pool_free(pool, &slot, 1);
    page_pool_unkeep(pool, slot);
    cr_assert_eq(page_pool_idle_count(pool), 0);
    cr_assert_eq(page_pool_free_count(pool), SLOTS);
}

Test(page_pool, a_copy_has_the_bytes_of_every_layer)
{
    uint32_t slots[3];
    take(3, slots);
    const size_t bytes = kv_layout_strip_bytes(&layout);
    for (uint32_t layer = 0; layer < 3; layer++) {
        memset(page_pool_strip(pool, layer, slots[0]), 10 + (int)layer, bytes);
        memset(page_pool_strip(pool, layer, slots[2]), 99, bytes);
    }
    page_pool_copy(pool, slots[0], slots[1]);
    for (uint32_t layer = 0; layer < 3; layer++) {
        cr_assert_arr_eq(page_pool_strip(pool, layer, slots[1]),
                         page_pool_strip(pool, layer, slots[0]), bytes);
        const uint8_t *next = page_pool_strip(pool, layer, slots[2]);
        cr_assert(next[0] == 99 && next[bytes - 1] == 99);
    }
    page_pool_free(pool, slots, 3);
}

/* Random takes and gives against a model of the pool. */
Test(page_pool, random_use_never_gives_a_slot_twice)
{
    uint32_t held[SLOTS], held_count = 0, slots[SLOTS];
    bool taken[SLOTS] = {false};
    struct random random;
    random_init(&random, 5);
    for (uint32_t round = 0; round < 20000; round++) {
        const uint32_t count = (uint32_t)random_below(&random, 12);
        if (random_below(&random, 2) == 0) {
            const bool fits = count <= SLOTS - held_count;
            cr_assert_eq(page_pool_reserve(pool, count), fits ? STATUS_OK : STATUS_BUSY);
            if (!fits)
                continue;
            page_pool_take(pool, count, slots);
            for (uint32_t i = 0; i < count; i++) {
                cr_assert(slots[i] < SLOTS && !taken[slots[i]]);
                taken[slots[i]] = true;
                held[held_count++] = slots[i];
            }
        } else {
            for (uint32_t i = 0; i < count && held_count > 0; i++) {
                const uint64_t victim = random_below(&random, held_count);
                page_pool_free(pool, &held[victim], 1);
                taken[held[victim]] = false;
                held[victim] = held[--held_count];
            }
        }
        cr_assert_eq(page_pool_free_count(pool), SLOTS - held_count);
    }
    page_pool_free(pool, held, held_count);
}

static void *take_and_give(void *arg)
{
    struct page_pool *shared = arg;
    uint32_t slots[7];
    for (uint32_t round = 0; round < 5000; round++) {
        if (page_pool_reserve(shared, 7) != STATUS_OK)
            continue;
        page_pool_take(shared, 5, slots);
        page_pool_unreserve(shared, 2);
        page_pool_free(shared, slots, 5);
    }
    return NULL;
}

Test(page_pool, two_threads_share_it)
{
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, take_and_give, pool), 0);
    take_and_give(pool);
    pthread_join(other, NULL);
    cr_assert_eq(page_pool_free_count(pool), SLOTS);
}

/* Misuse ends the process: each of these must abort. */
Test(page_pool, freeing_twice_aborts, .signal = SIGABRT)
{
    uint32_t slot;
    take(1, &slot);
    page_pool_free(pool, &slot, 1);
    page_pool_free(pool, &slot, 1);
}

Test(page_pool, freeing_one_slot_twice_in_a_call_aborts, .signal = SIGABRT)
{
    uint32_t slots[2];
    take(1, slots);
    slots[1] = slots[0];
    page_pool_free(pool, slots, 2);
}

Test(page_pool, holding_a_free_slot_aborts, .signal = SIGABRT)
{
    const uint32_t slot = 3;
    page_pool_hold(pool, &slot, 1);
}

Test(page_pool, copying_over_a_shared_page_aborts, .signal = SIGABRT)
{
    uint32_t slots[2];
    take(2, slots);
    page_pool_hold(pool, &slots[1], 1);
    page_pool_copy(pool, slots[0], slots[1]);
}

Test(page_pool, taking_more_than_reserved_aborts, .signal = SIGABRT)
{
    uint32_t slots[2];
    cr_assert_eq(page_pool_reserve(pool, 1), STATUS_OK);
    page_pool_take(pool, 2, slots);
}

Test(page_pool, unreserving_more_than_reserved_aborts, .signal = SIGABRT)
{
    page_pool_unreserve(pool, 1);
}

Test(page_pool, a_leaked_slot_aborts, .signal = SIGABRT)
{
    uint32_t slot;
    take(1, &slot);
    page_pool_destroy(pool);
}

Test(page_pool, a_leaked_reservation_aborts, .signal = SIGABRT)
{
    cr_assert_eq(page_pool_reserve(pool, 1), STATUS_OK);
    page_pool_destroy(pool);
}

Test(page_pool, odd_layouts_are_refused)
{
    struct error error = {0};
    struct page_pool *other = NULL;
    struct kv_layout odd = layout;
    odd.page_tokens = 24;
    cr_assert_eq(page_pool_create(backend, &odd, 1, &other, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "24 tokens"));
    cr_assert_eq(page_pool_create(backend, &layout, 0, &other, &error), STATUS_INVALID);
    odd = layout;
    odd.layers = UINT32_MAX;
    odd.head_dim = 1 << 20;
    cr_assert_eq(page_pool_create(backend, &odd, UINT32_MAX, &other, &error), STATUS_LIMIT);
    cr_assert_null(other);
}
