/* What readers are told of a tree that changes all the time: always enough to know its pages. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "model/kv/prefix_tree.h"
#include "tests/model/kv/pool_fixture.h"

enum { SLOTS = 48, PAGE = 16, DEPTH = 4, KINDS = 5, KNOWN_MAX = 4096 };

static struct prefix_tree *tree;

static void open_pool(void)
{
    static const struct kv_layout layout = {.version = KV_LAYOUT_VERSION,
                                            .layers = 1,
                                            .kv_heads = 1,
                                            .head_dim = 16,
                                            .page_tokens = PAGE,
                                            .dtype = KV_BF16};
    struct error error = {0};
    pool_fixture_open(&layout, SLOTS);
    cr_assert_eq(prefix_tree_create(pool, NULL, &tree, &error), STATUS_OK, "%s", error.text);
}

static void close_pool(void)
{
    prefix_tree_destroy(tree);
    pool_fixture_close();
}

TestSuite(prefix_tree_news, .init = open_pool, .fini = close_pool);

/* What somebody far away knows of the tree. */
struct mirror {
    struct prefix_reader reader;
    uint64_t known[KNOWN_MAX]; /* [count] hashes with the lowest bit set */
    uint32_t count, resets;
};

static bool mirror_has(const struct mirror *mirror, uint64_t hash, uint32_t *at_out)
{
    for (uint32_t i = 0; i < mirror->count; i++) {
        if (mirror->known[i] == (hash | 1)) {
            *at_out = i;
            return true;
        }
    }
    return false;
}

/* One message of at most so many events; how many they were. */
static uint32_t listen(struct mirror *mirror, uint32_t capacity)
{
    uint64_t events[SLOTS];
    bool anew;
    cr_assert_leq(capacity, SLOTS);
    const uint32_t count = prefix_tree_news(tree, &mirror->reader, capacity, events, &anew);
    cr_assert_leq(count, capacity);
    if (anew) {
        mirror->count = 0;
        mirror->resets++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at;
        const bool has = mirror_has(mirror, events[i], &at);
        if ((events[i] & 1) != 0 && !has)
            mirror->known[mirror->count++] = events[i];
        else if ((events[i] & 1) == 0 && has)
            mirror->known[at] = mirror->known[--mirror->count];
        cr_assert_lt(mirror->count, KNOWN_MAX);
    }
    return count;
}

static uint32_t make_tokens(const uint32_t kinds[DEPTH], uint32_t pages,
                            int32_t tokens[PAGE * DEPTH])
{
    for (uint32_t i = 0; i < pages * PAGE; i++)
        tokens[i] = (int32_t)kinds[i / PAGE];
    return pages * PAGE;
}

static void remember(const uint32_t kinds[DEPTH], uint32_t pages)
{
    int32_t tokens[PAGE * DEPTH];
    uint32_t slots[DEPTH];
    const uint32_t count = make_tokens(kinds, pages, tokens);
    cr_assert_eq(prefix_tree_reserve(tree, pages), STATUS_OK);
    page_pool_take(pool, pages, slots);
    cr_assert_eq(prefix_tree_insert(tree, 0, tokens, count, slots), pages);
    page_pool_free(pool, slots, pages);
}

static void change_at_random(struct random *random)
{
    uint32_t kinds[DEPTH];
    for (uint32_t i = 0; i < DEPTH; i++)
        kinds[i] = (uint32_t)random_below(random, KINDS);
    if (random_below(random, 8) == 0)
        prefix_tree_evict(tree, (uint32_t)random_below(random, SLOTS));
    else
        remember(kinds, 1 + (uint32_t)random_below(random, DEPTH));
}

/* Exactly the pages of the tree: as many, and each found under the hash of its path. */
static void expect_equal(const struct mirror *mirror)
{
    struct prefix_tree_counts counts;
    prefix_tree_count(tree, &counts);
    cr_assert_eq(mirror->count, counts.pages, "%u are known, %u are there", mirror->count,
                 counts.pages);
    uint32_t found = 0;
    for (uint32_t path = 0; path < KINDS * KINDS * KINDS * KINDS; path++) {
        uint32_t kinds[DEPTH], rest = path;
        for (uint32_t i = 0; i < DEPTH; i++, rest /= KINDS)
            kinds[i] = rest % KINDS;
        int32_t tokens[PAGE * DEPTH];
        struct prefix_match match;
        prefix_tree_peek(tree, 0, tokens, make_tokens(kinds, DEPTH, tokens), &match);
        uint64_t hash = 0;
        for (uint32_t page = 0; page < match.page_count; page++) {
            uint32_t at;
            hash = hash64(tokens + (size_t)page * PAGE, PAGE * sizeof *tokens, hash);
            cr_assert(mirror_has(mirror, hash, &at), "a page is there that is not known");
            found++;
        }
    }
    cr_assert_geq(found, counts.pages);
}

Test(prefix_tree_news, a_reader_that_keeps_up_hears_of_every_change_once)
{
    static const uint32_t kinds[DEPTH] = {1, 2, 3, 4};
    struct mirror mirror = {0};
    cr_expect_eq(listen(&mirror, SLOTS), 0);
    cr_expect_eq(mirror.resets, 1, "it begins");
    remember(kinds, 3);
    cr_expect_eq(listen(&mirror, SLOTS), 3);
    expect_equal(&mirror);
    remember(kinds, 3);
    cr_expect_eq(listen(&mirror, SLOTS), 0, "what is there already is no news");
    prefix_tree_evict(tree, 1);
    cr_expect_eq(listen(&mirror, SLOTS), 1);
    expect_equal(&mirror);
    cr_expect_eq(mirror.resets, 1);
}

/* Changes go on while the beginning is told in small pieces; other readers have heard more. */
Test(prefix_tree_news, any_changes_between_any_pieces)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct random random;
        struct mirror *mirrors = calloc(3, sizeof *mirrors);
        cr_assert_not_null(mirrors);
        random_init(&random, seed);
        for (int turn = 0; turn < 60; turn++) {
            change_at_random(&random);
            for (uint32_t i = 0; i < 3; i++) {
                if (random_below(&random, i + 1) == 0)
                    listen(&mirrors[i], 1 + (uint32_t)random_below(&random, 7));
            }
        }
        for (uint32_t i = 0; i < 3; i++) {
            while (listen(&mirrors[i], 7) > 0)
                continue;
            expect_equal(&mirrors[i]);
        }
        free(mirrors);
    }
}

Test(prefix_tree_news, who_falls_too_far_behind_begins_anew)
{
    struct random random;
    struct mirror *mirror = calloc(1, sizeof *mirror);
    cr_assert_not_null(mirror);
    random_init(&random, 7);
    listen(mirror, SLOTS);
    struct prefix_tree_counts counts = {0};
    while (counts.inserted + counts.evicted <= SLOTS) {
        change_at_random(&random);
        prefix_tree_count(tree, &counts);
    }
    while (listen(mirror, 5) > 0)
        continue;
    cr_expect_eq(mirror->resets, 2);
    expect_equal(mirror);
    free(mirror);
}

/* ---- threads ---- */

enum { CHANGES = 3000 };

static void *change(void *arg)
{
    struct random random;
    random_init(&random, *(const uint64_t *)arg);
    for (int i = 0; i < CHANGES; i++) {
        if (random_below(&random, 8) == 0) {
            prefix_tree_evict(tree, (uint32_t)random_below(&random, SLOTS));
            continue;
        }
        /* Room is made again and again, so a reservation may be refused for another's sake. */
        const uint32_t kinds[DEPTH] = {(uint32_t)random_below(&random, KINDS), 1, 2, 3};
        const uint32_t pages = 1 + (uint32_t)random_below(&random, DEPTH);
        int32_t tokens[PAGE * DEPTH];
        uint32_t slots[DEPTH];
        const uint32_t count = make_tokens(kinds, pages, tokens);
        if (prefix_tree_reserve(tree, pages) != STATUS_OK)
            continue;
        page_pool_take(pool, pages, slots);
        prefix_tree_insert(tree, 0, tokens, count, slots);
        page_pool_free(pool, slots, pages);
    }
    return NULL;
}

/* Control reads while the engine changes the tree. */
Test(prefix_tree_news, readers_and_changes_at_once)
{
    static const uint64_t seeds[] = {11, 12};
    pthread_t threads[2];
    struct mirror *mirror = calloc(1, sizeof *mirror);
    cr_assert_not_null(mirror);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, change, (void *)&seeds[i]), 0);
    for (int i = 0; i < CHANGES; i++)
        listen(mirror, 1 + (uint32_t)i % 9);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    while (listen(mirror, 9) > 0)
        continue;
    expect_equal(mirror);
    free(mirror);
}
