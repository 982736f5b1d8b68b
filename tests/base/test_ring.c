#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/ring.h"

Test(ring, items_come_out_in_order_and_whole)
{
    struct item {
        uint32_t number;
        char text[13];
    };
    struct ring *ring = ring_create(sizeof(struct item), 4);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            struct item item = {.number = round * 3 + i};
            snprintf(item.text, sizeof item.text, "n%u", item.number);
            cr_assert_eq(ring_push(ring, &item), STATUS_OK);
            cr_assert_eq(ring_count(ring), i + 1);
        }
        for (uint32_t i = 0; i < 3; i++) {
            struct item item;
            cr_assert_eq(ring_pop(ring, &item), STATUS_OK);
            cr_assert_eq(item.number, round * 3 + i);
            char text[13];
            snprintf(text, sizeof text, "n%u", item.number);
            cr_assert_str_eq(item.text, text);
        }
        cr_assert_eq(ring_count(ring), 0);
    }
    ring_destroy(ring);
}

Test(ring, full_and_empty_are_again_and_change_nothing)
{
    struct ring *ring = ring_create(sizeof(int), 5); /* rounded up to 8 */
    int value = -1;
    cr_assert_eq(ring_pop(ring, &value), STATUS_AGAIN);
    cr_assert_eq(value, -1);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(ring_push(ring, &i), STATUS_OK);
    const int extra = 99;
    cr_assert_eq(ring_push(ring, &extra), STATUS_AGAIN);
    cr_assert_eq(ring_count(ring), 8);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(ring_pop(ring, &value), STATUS_OK);
        cr_assert_eq(value, i);
    }
    cr_assert_eq(ring_pop(ring, &value), STATUS_AGAIN);
    ring_destroy(ring);
    ring_destroy(NULL);
}

Test(ring, a_ring_of_one)
{
    struct ring *ring = ring_create(1, 1);
    for (uint8_t i = 0; i < 200; i++) {
        uint8_t out;
        cr_assert_eq(ring_push(ring, &i), STATUS_OK);
        cr_assert_eq(ring_push(ring, &i), STATUS_AGAIN);
        cr_assert_eq(ring_pop(ring, &out), STATUS_OK);
        cr_assert_eq(out, i);
    }
    ring_destroy(ring);
}

Test(ring, wait_sees_an_item_that_is_there_and_gives_up_otherwise)
{
    struct ring *ring = ring_create(sizeof(int), 2);
    cr_assert_not(ring_wait(ring, 0));
    const uint64_t before_ns = clock_now_ns(clock_monotonic());
    cr_assert_not(ring_wait(ring, 30));
    cr_assert_geq(clock_now_ns(clock_monotonic()) - before_ns, 30 * (uint64_t)NS_PER_MS);
    const int one = 1;
    ring_push(ring, &one);
    cr_assert(ring_wait(ring, 60000));
    cr_assert(ring_wait(ring, 0));
    ring_destroy(ring);
}

static void *push_one(void *arg)
{
    const int one = 1;
    CHECK(ring_push(arg, &one) == STATUS_OK);
    return NULL;
}

static void *interrupt(void *arg)
{
    ring_interrupt(arg);
    return NULL;
}

/* Each wait would take ten minutes if the other thread did not end it. */
Test(ring, push_and_interrupt_end_a_wait, .timeout = 60)
{
    struct ring *ring = ring_create(sizeof(int), 2);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        int value;
        CHECK(pthread_create(&thread, NULL, push_one, ring) == 0);
        cr_assert(ring_wait(ring, 600000));
        cr_assert_eq(ring_pop(ring, &value), STATUS_OK);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, interrupt, ring) == 0);
        cr_assert_not(ring_wait(ring, 600000));
        CHECK(pthread_join(thread, NULL) == 0);
    }
    ring_destroy(ring);
}

Test(ring, an_interrupt_before_the_wait_is_not_lost)
{
    struct ring *ring = ring_create(sizeof(int), 2);
    ring_interrupt(ring);
    ring_interrupt(ring);
    cr_assert_not(ring_wait(ring, 600000));
    cr_assert_not(ring_wait(ring, 1)); /* and counts once */
    ring_destroy(ring);
}
