#include <criterion/criterion.h>

#include "router/session_affinity.h"

static void expect_pair(struct affinity_pair pair, worker_handle prefill, worker_handle decode)
{
    cr_expect_eq(pair.prefill, prefill);
    cr_expect_eq(pair.decode, decode);
}

Test(session_affinity, remembers_the_last_workers)
{
    struct session_affinity *table = session_affinity_create(16);
    expect_pair(session_affinity_find(table, 7), 0, 0);
    session_affinity_note(table, 7, (struct affinity_pair){1, 2});
    session_affinity_note(table, 8, (struct affinity_pair){3, 4});
    expect_pair(session_affinity_find(table, 7), 1, 2);
    /* Without a prefill node this time: the one before is kept. */
    session_affinity_note(table, 7, (struct affinity_pair){0, 5});
    expect_pair(session_affinity_find(table, 7), 1, 5);
    expect_pair(session_affinity_find(table, 8), 3, 4);
    session_affinity_note(table, 0, (struct affinity_pair){9, 9});
    expect_pair(session_affinity_find(table, 0), 0, 0);
    session_affinity_destroy(table);
}

Test(session_affinity, the_one_not_used_for_longest_goes)
{
    struct session_affinity *table = session_affinity_create(4);
    for (uint64_t key = 1; key <= 4; key++)
        session_affinity_note(table, key, (struct affinity_pair){key, key});
    session_affinity_find(table, 1);
    session_affinity_note(table, 5, (struct affinity_pair){5, 5});
    expect_pair(session_affinity_find(table, 2), 0, 0);
    expect_pair(session_affinity_find(table, 1), 1, 1);
    for (uint64_t key = 100; key < 10000; key++) {
        session_affinity_note(table, key, (struct affinity_pair){key, key});
        expect_pair(session_affinity_find(table, key), key, key);
    }
    session_affinity_destroy(table);
}
