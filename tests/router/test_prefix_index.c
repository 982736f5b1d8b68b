/* The index of prefix caches against a naive one; what it forgets, and how it grows. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/team.h"
#include "model/kv/prefix_tree.h"
#include "router/prefix_index.h"

enum { PAGE = 4, PAGES_MAX = 24 };

static struct prefix_index *create(uint32_t pages_max)
{
    struct prefix_index *index = NULL;
    struct error error = {.text = ""};
    cr_assert_eq(prefix_index_create(pages_max, &index, &error), STATUS_OK, "%s", error.text);
    return index;
}

/* A prompt of which page i is made of kinds[i]. */
static uint32_t hash_kinds(const char *kinds, uint64_t salt, uint64_t hashes[PAGES_MAX])
{
    int32_t tokens[PAGES_MAX * PAGE];
    const uint32_t pages = (uint32_t)strlen(kinds);
    for (uint32_t i = 0; i < pages * PAGE; i++)
        tokens[i] = kinds[i / PAGE];
    return prefix_hashes(tokens, pages * PAGE, PAGE, salt, hashes);
}

static void add(struct prefix_index *index, uint32_t holder, const char *kinds)
{
    uint64_t hashes[PAGES_MAX];
    const uint32_t pages = hash_kinds(kinds, 0, hashes);
    for (uint32_t i = 0; i < pages; i++)
        prefix_index_add(index, holder, hashes[i]);
}

static uint32_t match(struct prefix_index *index, const char *kinds, uint32_t holder)
{
    uint64_t hashes[PAGES_MAX];
    uint32_t held[PREFIX_HOLDERS_MAX];
    prefix_index_match(index, hashes, hash_kinds(kinds, 0, hashes), held);
    return held[holder];
}

Test(prefix_index, each_holder_has_its_own_depth)
{
    struct prefix_index *index = create(100);
    const uint32_t a = prefix_index_join(index), b = prefix_index_join(index),
                   c = prefix_index_join(index);
    cr_expect(a != b && b != c && a != c);
    add(index, a, "xyzw");
    add(index, b, "xy");
    add(index, c, "yx");
    cr_expect_eq(match(index, "xyzw", a), 4);
    cr_expect_eq(match(index, "xyzw", b), 2);
    cr_expect_eq(match(index, "xyzw", c), 0);
    cr_expect_eq(match(index, "xyzwv", a), 4);
    cr_expect_eq(match(index, "xw", a), 1);
    cr_expect_eq(match(index, "yx", c), 2, "the same page after another is another");
    cr_expect_eq(match(index, "", a), 0);
    uint64_t hashes[PAGES_MAX];
    uint32_t held[PREFIX_HOLDERS_MAX];
    prefix_index_match(index, hashes, hash_kinds("xyzw", 99, hashes), held);
    cr_expect_eq(held[a], 0, "under another salt nothing is found");
    prefix_index_destroy(index);
}

Test(prefix_index, removed_pages_and_holders_that_left_are_not_found)
{
    struct prefix_index *index = create(100);
    const uint32_t a = prefix_index_join(index), b = prefix_index_join(index);
    uint64_t hashes[PAGES_MAX];
    hash_kinds("xyz", 0, hashes);
    add(index, a, "xyz");
    add(index, b, "xy");
    prefix_index_remove(index, a, hashes[2]);
    prefix_index_remove(index, a, hashes[2]); /* of nothing */
    cr_expect_eq(match(index, "xyz", a), 2);
    cr_expect_eq(prefix_index_count(index), 2);
    prefix_index_leave(index, a);
    cr_expect_eq(match(index, "xyz", a), 0);
    cr_expect_eq(match(index, "xyz", b), 2);
    /* Its number is not given out before the last entry is rid of it. */
    const uint32_t next = prefix_index_join(index);
    cr_expect_neq(next, a);
    add(index, next, "q");
    prefix_index_sweep(index, 1);
    cr_expect_neq(prefix_index_join(index), a);
    prefix_index_sweep(index, 100);
    cr_expect_eq(prefix_index_join(index), a);
    cr_expect_eq(match(index, "xyz", a), 0);
    prefix_index_leave(index, b);
    prefix_index_sweep(index, 100);
    cr_expect_eq(prefix_index_count(index), 1, "what nobody holds is gone");
    prefix_index_destroy(index);
}

/* What was sent may come to nothing, but what a holder has told stays until it tells otherwise. */
Test(prefix_index, an_expectation_takes_back_only_itself)
{
    struct prefix_index *index = create(100);
    const uint32_t a = prefix_index_join(index), b = prefix_index_join(index);
    uint64_t hashes[PAGES_MAX];
    const uint32_t pages = hash_kinds("xyzw", 0, hashes);
    for (uint32_t i = 0; i < pages; i++)
        prefix_index_expect(index, a, hashes[i]);
    cr_expect_eq(match(index, "xyzw", a), 4);
    add(index, a, "xy");
    add(index, b, "xyz");
    for (uint32_t i = 0; i < pages; i++)
        prefix_index_expect_not(index, a, hashes[i]);
    cr_expect_eq(match(index, "xyzw", a), 2, "what it has told of");
    cr_expect_eq(match(index, "xyzw", b), 3, "of another nothing was taken");
    cr_expect_eq(prefix_index_count(index), 3, "nobody holds the last page");
    /* Expecting what was told before changes nothing either way. */
    prefix_index_expect(index, a, hashes[1]);
    prefix_index_expect_not(index, a, hashes[1]);
    cr_expect_eq(match(index, "xyzw", a), 2);
    prefix_index_remove(index, a, hashes[1]);
    cr_expect_eq(match(index, "xyzw", a), 1);
    prefix_index_expect(index, a, hashes[1]);
    cr_expect_eq(match(index, "xyzw", a), 2);
    prefix_index_expect_not(index, a, hashes[1]);
    cr_expect_eq(match(index, "xyzw", a), 1, "it was told once, and then that it went");
    /* Whoever gets the number of one that left has told of nothing. */
    prefix_index_leave(index, a);
    prefix_index_sweep(index, 100);
    cr_assert_eq(prefix_index_join(index), a);
    prefix_index_expect(index, a, hashes[0]);
    prefix_index_expect_not(index, a, hashes[0]);
    cr_expect_eq(match(index, "xyzw", a), 0);
    prefix_index_destroy(index);
}

Test(prefix_index, holders_are_limited)
{
    struct prefix_index *index = create(4);
    for (uint32_t i = 0; i < PREFIX_HOLDERS_MAX; i++)
        cr_assert_eq(prefix_index_join(index), i);
    cr_expect_eq(prefix_index_join(index), PREFIX_NO_HOLDER);
    prefix_index_leave(index, 200);
    cr_expect_eq(prefix_index_join(index), PREFIX_NO_HOLDER);
    prefix_index_sweep(index, 1);
    cr_expect_eq(prefix_index_join(index), 200);
    prefix_index_destroy(index);
    struct error error;
    cr_expect_eq(prefix_index_create(0, &index, &error), STATUS_LIMIT);
}

/* The oldest goes, but not what prompts were looked up by since. */
Test(prefix_index, there_is_no_more_than_the_limit)
{
    struct prefix_index *index = create(4);
    const uint32_t a = prefix_index_join(index);
    const char *const kinds[] = {"p", "q", "r", "s", "t", "u"};
    for (int i = 0; i < 4; i++)
        add(index, a, kinds[i]);
    cr_expect_eq(match(index, "p", a), 1);
    add(index, a, kinds[4]);
    cr_expect_eq(prefix_index_count(index), 4);
    cr_expect_eq(match(index, "q", a), 0, "the oldest that nobody asked for");
    cr_expect_eq(match(index, "p", a), 1);
    for (int round = 0; round < 1000; round++) {
        const char kind[2] = {(char)('A' + round % 26), '\0'};
        add(index, a, kind);
        match(index, "p", a);
        cr_assert_eq(prefix_index_count(index), 4);
    }
    cr_expect_eq(match(index, "p", a), 1, "it was asked for all the time");
    prefix_index_destroy(index);
}

/* Trees of random depth for random holders, next to a table of what each was given. */
Test(prefix_index, agrees_with_a_naive_one)
{
    enum { HOLDERS = 70, PATHS = 40, DEPTH = 9 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct random random;
        random_init(&random, seed);
        struct prefix_index *index = create(4000);
        char paths[PATHS][DEPTH + 1];
        static uint32_t depths[PATHS][HOLDERS];
        memset(depths, 0, sizeof depths);
        for (int p = 0; p < PATHS; p++) {
            for (int i = 0; i < DEPTH; i++)
                paths[p][i] = (char)(i == 0 ? 'A' + p : 'a' + (int)random_below(&random, 4));
            paths[p][DEPTH] = '\0';
        }
        for (uint32_t h = 0; h < HOLDERS; h++)
            cr_assert_eq(prefix_index_join(index), h);
        for (int step = 0; step < 2000; step++) {
            const uint32_t p = (uint32_t)random_below(&random, PATHS);
            const uint32_t h = (uint32_t)random_below(&random, HOLDERS);
            const uint32_t depth = (uint32_t)random_below(&random, DEPTH + 1);
            uint64_t hashes[PAGES_MAX];
            hash_kinds(paths[p], 0, hashes);
            while (depths[p][h] < depth)
                prefix_index_add(index, h, hashes[depths[p][h]++]);
            while (depths[p][h] > depth)
                prefix_index_remove(index, h, hashes[--depths[p][h]]);
            const uint32_t asked = (uint32_t)random_below(&random, PATHS);
            uint32_t held[PREFIX_HOLDERS_MAX];
            prefix_index_match(index, hashes, hash_kinds(paths[asked], 0, hashes), held);
            for (uint32_t i = 0; i < HOLDERS; i++)
                cr_assert_eq(held[i], depths[asked][i], "holder %u", i);
        }
        prefix_index_destroy(index);
    }
}

/* Steps of one match of a prompt of so many pages, beside so many other pages. */
static uint64_t steps_of_match(uint32_t prompt_pages, uint32_t other_pages)
{
    struct prefix_index *index = create(other_pages + prompt_pages);
    const uint32_t holders[] = {prefix_index_join(index), prefix_index_join(index),
                                prefix_index_join(index)};
    struct random random;
    random_init(&random, 3);
    for (uint32_t i = 0; i < other_pages; i++)
        prefix_index_add(index, holders[i % 3], random_next(&random));
    uint64_t *hashes = malloc(prompt_pages * sizeof *hashes);
    cr_assert_not_null(hashes);
    for (uint32_t i = 0; i < prompt_pages; i++) {
        hashes[i] = random_next(&random);
        for (uint32_t h = 0; h < 3; h++) {
            if (i < prompt_pages * (h + 1) / 4)
                prefix_index_add(index, holders[h], hashes[i]);
        }
    }
    const uint64_t before = prefix_index_steps(index);
    uint32_t held[PREFIX_HOLDERS_MAX];
    prefix_index_match(index, hashes, prompt_pages, held);
    for (uint32_t h = 0; h < 3; h++)
        cr_assert_eq(held[holders[h]], prompt_pages * (h + 1) / 4);
    const uint64_t steps = prefix_index_steps(index) - before;
    free(hashes);
    prefix_index_destroy(index);
    return steps;
}

Test(prefix_index, a_match_grows_with_the_logarithm)
{
    /* Of the prompt: three holders of different depths, each a search by halving. An entry looked
     * for takes a step for its bucket and about one and a half in its chain. */
    const uint64_t small = steps_of_match(64, 1 << 14), large = steps_of_match(4096, 1 << 14);
    cr_expect_leq(small, 3 * 6 * 4, "%lu steps for 64 pages", (unsigned long)small);
    cr_expect_leq(large, 3 * 12 * 4, "%lu steps for 4096 pages", (unsigned long)large);
    /* Of the index: not at all. */
    const uint64_t crowded = steps_of_match(64, 1 << 20);
    cr_expect_leq(crowded, 3 * 6 * 4, "%lu steps among 2^20", (unsigned long)crowded);
}

/* The hashes that the router computes are those that workers tell of. */
Test(prefix_index, hashes_as_workers_do)
{
    enum { TREE_PAGE = 16, SLOTS = 8, TOKENS = 3 * TREE_PAGE + 5 };
    static const struct kv_layout layout = {.version = KV_LAYOUT_VERSION,
                                            .layers = 1,
                                            .kv_heads = 1,
                                            .head_dim = 16,
                                            .page_tokens = TREE_PAGE,
                                            .dtype = KV_BF16};
    const struct backend_limits limits = {
        .rows = 1, .width = 16, .heads = 1, .kv_heads = 1, .head_dim = 16, .context_tokens = 64};
    struct team *team = team_create(1);
    struct backend *backend;
    struct page_pool *pool;
    struct prefix_tree *tree;
    struct error error = {.text = ""};
    cr_assert_eq(backend_cpu_create(team, "ref", ACTIVATION_F32, &limits, &backend, &error),
                 STATUS_OK, "%s", error.text);
    cr_assert_eq(page_pool_create(backend, &layout, SLOTS, &pool, &error), STATUS_OK);
    cr_assert_eq(prefix_tree_create(pool, NULL, &tree, &error), STATUS_OK);
    int32_t tokens[TOKENS];
    uint32_t slots[3];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * i % 101;
    for (uint64_t salt = 0; salt < 2; salt++) {
        cr_assert_eq(prefix_tree_reserve(tree, 3), STATUS_OK);
        page_pool_take(pool, 3, slots);
        cr_assert_eq(prefix_tree_insert(tree, salt, tokens, TOKENS, slots), 3);
        page_pool_free(pool, slots, 3);
        uint64_t events[SLOTS], hashes[PAGES_MAX];
        struct prefix_reader reader = {0};
        bool anew;
        const uint32_t count = prefix_tree_news(tree, &reader, SLOTS, events, &anew);
        cr_assert_eq(prefix_hashes(tokens, TOKENS, TREE_PAGE, salt, hashes), 3);
        for (uint32_t page = 0; page < 3; page++) {
            bool found = false;
            for (uint32_t i = 0; i < count; i++)
                found = found || events[i] == (hashes[page] | 1);
            cr_expect(found, "page %u is not as the worker has it", page);
        }
    }
    prefix_tree_destroy(tree);
    page_pool_destroy(pool);
    backend->ops->destroy(backend);
    team_destroy(team);
}
