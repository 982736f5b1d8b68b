/* The prefix index against a naive one, with honest and with useless hashes; and the order in which
 * pages go, what concurrent requests see of one another, and the misuse it must catch. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/random.h"
#include "model/kv/prefix_tree.h"
#include "tests/model/kv/pool_fixture.h"

enum { SLOTS = 40, PAGE = 16, DEPTH = 5, TOKENS = PAGE * DEPTH + PAGE - 1, USERS = 8 };

static struct prefix_tree *tree;

static const struct kv_layout layout = {
    .version = KV_LAYOUT_VERSION,
    .layers = 2,
    .kv_heads = 1,
    .head_dim = 16,
    .page_tokens = PAGE,
    .dtype = KV_BF16,
};

static uint64_t hash_to_one_value(const void *data, size_t bytes, uint64_t seed)
{
    (void)data, (void)bytes, (void)seed;
    return 7;
}

static uint64_t hash_to_two_values(const void *data, size_t bytes, uint64_t seed)
{
    (void)bytes, (void)seed;
    return *(const uint8_t *)data & 1;
}

static void open_tree(prefix_hash hash)
{
    struct error error = {0};
    cr_assert_eq(prefix_tree_create(pool, hash, &tree, &error), STATUS_OK, "%s", error.text);
}

static void open_pool(void)
{
    pool_fixture_open(&layout, SLOTS);
    page_pool_poison(pool, true);
    open_tree(NULL);
}

static void close_pool(void)
{
    prefix_tree_destroy(tree);
    pool_fixture_close();
}

TestSuite(prefix_tree, .init = open_pool, .fini = close_pool);

/* A sequence of which page i is made of kinds[i]; the first kind is kinds[0] - 'a'. */
static uint32_t make_tokens(const char *kinds, int32_t tokens[TOKENS])
{
    uint32_t count = 0;
    for (; *kinds != '\0'; kinds++) {
        for (uint32_t i = 0; i < PAGE; i++)
            tokens[count++] = (*kinds - 'a') * 2 + (i == PAGE - 1);
    }
    return count;
}

static void take(uint32_t count, uint32_t *slots)
{
    cr_assert_eq(prefix_tree_reserve(tree, count), STATUS_OK);
    page_pool_take(pool, count, slots);
}

/* Puts a computed sequence into the tree and lets go of it. */
static void remember(const char *kinds)
{
    int32_t tokens[TOKENS];
    uint32_t slots[DEPTH];
    const uint32_t count = make_tokens(kinds, tokens), pages = count / PAGE;
    take(pages, slots);
    cr_assert_eq(prefix_tree_insert(tree, 0, tokens, count, slots), pages);
    page_pool_free(pool, slots, pages);
}

static uint32_t pages_found(uint64_t salt, const char *kinds)
{
    int32_t tokens[TOKENS];
    struct prefix_match match;
    prefix_tree_peek(tree, salt, tokens, make_tokens(kinds, tokens), &match);
    return match.page_count;
}

Test(prefix_tree, the_longest_beginning_of_full_pages_is_found_and_held)
{
    remember("abc");
    int32_t tokens[TOKENS];
    uint32_t slots[DEPTH];
    const uint32_t count = make_tokens("abd", tokens);
    cr_assert_eq(prefix_tree_lookup(tree, 0, tokens, count - 1, slots), 2);
    cr_assert_eq(page_pool_hold_count(pool, slots[0]), 2);
    cr_assert_eq(page_pool_hold_count(pool, slots[1]), 2);
    cr_assert_not(page_pool_is_sole(pool, slots, 2));
    cr_assert_eq(prefix_tree_available(tree), SLOTS - 2);
    cr_assert_eq(prefix_tree_evict(tree, SLOTS), 1, "only the page behind those that are held");
    cr_assert_eq(pages_found(0, "abc"), 2);
    page_pool_free(pool, slots, 2);
    cr_assert_eq(prefix_tree_available(tree), SLOTS);
    cr_assert_eq(pages_found(0, "ab"), 2);
    cr_assert_eq(pages_found(0, "a"), 1);
    cr_assert_eq(pages_found(0, "ba"), 0);
    cr_assert_eq(pages_found(0, ""), 0);
    cr_assert_eq(prefix_tree_lookup(tree, 0, tokens, PAGE - 1, slots), 0, "no full page");
    struct prefix_tree_counts counts;
    prefix_tree_count(tree, &counts);
    cr_assert_eq(counts.hits, 1);
    cr_assert_eq(counts.misses, 1);
    cr_assert_eq(counts.hit_tokens, 2 * PAGE);
    cr_assert_eq(counts.miss_tokens, PAGE - 1 + PAGE - 1);
    cr_assert_eq(counts.inserted, 3);
    cr_assert_eq(counts.evicted, 1);
    cr_assert_eq(counts.pages, 2);
}

Test(prefix_tree, tenants_do_not_see_each_other)
{
    remember("ab");
    cr_assert_eq(pages_found(0, "ab"), 2);
    cr_assert_eq(pages_found(1, "ab"), 0);
    prefix_tree_destroy(tree);
    open_tree(hash_to_one_value);
    remember("ab");
    cr_assert_eq(pages_found(0, "ab"), 2);
    cr_assert_eq(pages_found(1, "ab"), 0, "not by the hash alone");
    cr_assert_eq(pages_found(0, "bb"), 0);
    cr_assert_eq(pages_found(0, "aa"), 1);
}

Test(prefix_tree, the_least_recently_used_leaf_goes_first)
{
    remember("ab");
    remember("ac");
    remember("d");
    cr_assert_eq(prefix_tree_evict(tree, 1), 1);
    cr_assert_eq(pages_found(0, "ab"), 1, "the oldest leaf, not the page it leans on");
    int32_t tokens[TOKENS];
    uint32_t slots[DEPTH];
    cr_assert_eq(prefix_tree_lookup(tree, 0, tokens, make_tokens("ac", tokens), slots), 2);
    page_pool_free(pool, slots, 2);
    cr_assert_eq(prefix_tree_evict(tree, 1), 1);
    cr_assert_eq(pages_found(0, "d"), 0, "the other one was used since");
    cr_assert_eq(pages_found(0, "ac"), 2);
    cr_assert_eq(prefix_tree_evict(tree, 2), 2, "a branch in one call");
    cr_assert_eq(prefix_tree_evict(tree, 1), 0);
    cr_assert_eq(page_pool_free_count(pool), SLOTS);
}

Test(prefix_tree, an_equal_page_is_given_back_for_the_one_that_is_there)
{
    remember("ab");
    int32_t tokens[TOKENS];
    uint32_t slots[DEPTH], own[DEPTH];
    const uint32_t count = make_tokens("abc", tokens);
    take(3, slots);
    memcpy(own, slots, sizeof own);
    cr_assert_eq(prefix_tree_insert(tree, 0, tokens, count, slots), 3);
    cr_assert(slots[0] != own[0] && slots[1] != own[1] && slots[2] == own[2]);
    cr_assert_eq(page_pool_hold_count(pool, own[0]), 0);
    cr_assert_eq(page_pool_hold_count(pool, slots[0]), 2);
    cr_assert_eq(page_pool_free_count(pool), SLOTS - 3);
    cr_assert_eq(prefix_tree_available(tree), SLOTS - 3, "whoever holds c holds what it leans on");
    page_pool_free(pool, slots, 3);
    cr_assert_eq(prefix_tree_available(tree), SLOTS);
}

Test(prefix_tree, pages_being_computed_are_waited_for)
{
    int32_t tokens[TOKENS], other[TOKENS];
    uint32_t slots[DEPTH], mine[DEPTH];
    struct prefix_match match;
    const uint32_t count = make_tokens("abc", tokens), other_count = make_tokens("abd", other);
    take(3, slots);
    cr_assert_eq(prefix_tree_claim(tree, 0, tokens, count, slots, 5), 3);
    cr_assert(page_pool_is_sole(pool, slots, 3), "its owner writes them");
    prefix_tree_peek(tree, 0, other, other_count, &match);
    cr_assert(match.page_count == 0 && match.owner == 5);
    cr_assert_eq(prefix_tree_lookup(tree, 0, other, other_count, mine), 0);
    prefix_tree_finish(tree, slots, 1);
    prefix_tree_peek(tree, 0, other, other_count, &match);
    cr_assert(match.page_count == 1 && match.owner == 5 && match.idle_count == 0);
    prefix_tree_finish(tree, slots, 2);
    prefix_tree_peek(tree, 0, other, other_count, &match);
    cr_assert(match.page_count == 2 && match.owner == PREFIX_NOBODY);
    /* Another one goes on behind the two, and the first gives up: what was computed stays. */
    cr_assert_eq(prefix_tree_lookup(tree, 0, other, other_count, mine), 2);
    take(1, &mine[2]);
    cr_assert_eq(prefix_tree_claim(tree, 0, other, other_count, mine, 6), 3);
    prefix_tree_withdraw(tree, slots, 3);
    page_pool_free(pool, slots, 3);
    cr_assert_eq(pages_found(0, "abc"), 2);
    prefix_tree_peek(tree, 0, other, other_count, &match);
    cr_assert_eq(match.owner, 6);
    prefix_tree_withdraw(tree, mine, 3);
    page_pool_free(pool, mine, 3);
    cr_assert_eq(prefix_tree_available(tree), SLOTS);
}

Test(prefix_tree, what_somebody_computes_is_neither_inserted_nor_claimed_again)
{
    int32_t tokens[TOKENS];
    uint32_t slots[DEPTH], mine[DEPTH];
    const uint32_t count = make_tokens("ab", tokens);
    take(2, slots);
    take(2, mine);
    cr_assert_eq(prefix_tree_claim(tree, 0, tokens, PAGE, slots, 1), 1);
    cr_assert_eq(prefix_tree_claim(tree, 0, tokens, count, mine, 2), 0);
    cr_assert_eq(prefix_tree_insert(tree, 0, tokens, count, mine), 0);
    cr_assert_eq(pages_found(0, "ab"), 0);
    prefix_tree_withdraw(tree, slots, 2);
    cr_assert_eq(prefix_tree_insert(tree, 0, tokens, count, mine), 2);
    page_pool_free(pool, slots, 2);
    page_pool_free(pool, mine, 2);
}

Test(prefix_tree, reserving_makes_room_only_when_that_is_enough)
{
    uint32_t slots[SLOTS];
    remember("abcde");
    take(SLOTS - 7, slots);
    cr_assert_eq(page_pool_free_count(pool), 2);
    cr_assert_eq(prefix_tree_available(tree), 7);
    cr_assert_eq(prefix_tree_reserve(tree, 8), STATUS_BUSY);
    cr_assert_eq(pages_found(0, "abcde"), 5, "nothing went in vain");
    cr_assert_eq(prefix_tree_reserve(tree, 4), STATUS_OK);
    cr_assert_eq(pages_found(0, "abcde"), 3, "no more went than was short");
    page_pool_unreserve(pool, 4);
    page_pool_free(pool, slots, SLOTS - 7);
}

/* ---- against a naive index ---- */

/* A page of the naive index is the text of its path, salt first: "0abc". */
struct naive_page {
    char path[DEPTH + 2];
    uint32_t slot, owner; /* PREFIX_NOBODY: computed */
    uint64_t used;
};

struct user {
    char path[DEPTH + 2];
    uint32_t slots[DEPTH], page_count;
    uint32_t claimed_from, claimed_to; /* pages being computed: [from, to) */
};

static struct naive_page naive[SLOTS];
static uint32_t naive_count;
static uint64_t naive_clock;
static struct user users[USERS];

static struct naive_page *naive_find(const char *path, uint32_t pages)
{
    for (uint32_t i = 0; i < naive_count; i++) {
        if (strlen(naive[i].path) == pages + 1 && strncmp(naive[i].path, path, pages + 1) == 0)
            return &naive[i];
    }
    return NULL;
}

static void naive_touch(const char *path, uint32_t pages)
{
    for (; pages > 0; pages--)
        naive_find(path, pages)->used = ++naive_clock;
}

static struct naive_page *naive_add(const char *path, uint32_t pages, uint32_t slot, uint32_t owner)
{
    struct naive_page *page = &naive[naive_count++];
    *page = (struct naive_page){.slot = slot, .owner = owner};
    memcpy(page->path, path, pages + 1);
    return page;
}

static uint32_t naive_holders(uint32_t slot)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < USERS; u++) {
        for (uint32_t i = 0; i < users[u].page_count; i++)
            count += users[u].slots[i] == slot;
    }
    return count;
}

static bool naive_is_leaf(const struct naive_page *page)
{
    for (uint32_t i = 0; i < naive_count; i++) {
        const size_t length = strlen(page->path);
        if (strlen(naive[i].path) > length && strncmp(naive[i].path, page->path, length) == 0)
            return false;
    }
    return true;
}

static uint32_t naive_evict(uint32_t count)
{
    uint32_t freed = 0;
    for (; freed < count; freed++) {
        struct naive_page *oldest = NULL;
        for (uint32_t i = 0; i < naive_count; i++) {
            if (naive[i].owner == PREFIX_NOBODY && naive_holders(naive[i].slot) == 0 &&
                naive_is_leaf(&naive[i]) && (oldest == NULL || naive[i].used < oldest->used))
                oldest = &naive[i];
        }
        if (oldest == NULL)
            break;
        *oldest = naive[--naive_count];
    }
    return freed;
}

static uint32_t path_tokens(const char *path, int32_t tokens[TOKENS])
{
    return make_tokens(path + 1, tokens);
}

static uint64_t path_salt(const char *path)
{
    return (uint64_t)(path[0] - '0');
}

static void check_equal(void)
{
    uint32_t idle = 0, computed = 0, held = 0;
    for (uint32_t i = 0; i < naive_count; i++) {
        const uint32_t holders = naive_holders(naive[i].slot);
        const bool in_tree = naive[i].owner == PREFIX_NOBODY;
        cr_assert_eq(page_pool_hold_count(pool, naive[i].slot), holders + in_tree);
        idle += in_tree && holders == 0;
        computed += in_tree;
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        held += naive_holders(slot) > 0;
    cr_assert_eq(page_pool_free_count(pool), SLOTS - held - idle);
    cr_assert_eq(prefix_tree_available(tree), SLOTS - held);
    struct prefix_tree_counts counts;
    prefix_tree_count(tree, &counts);
    cr_assert_eq(counts.pages, computed);
}

/* What a request does at its start: look up, take the rest, claim. */
static void begin(struct random *random, struct user *user, uint32_t index)
{
    const uint32_t depth = 1 + (uint32_t)random_below(random, DEPTH);
    user->path[0] = (char)('0' + random_below(random, 2));
    for (uint32_t i = 0; i < depth; i++)
        user->path[1 + i] = (char)('a' + random_below(random, 2));
    user->path[1 + depth] = '\0';
    int32_t tokens[TOKENS];
    const uint32_t count = path_tokens(user->path, tokens);
    uint32_t found = 0, idle = 0;
    while (found < depth && naive_find(user->path, found + 1) != NULL &&
           naive_find(user->path, found + 1)->owner == PREFIX_NOBODY)
        idle += naive_holders(naive_find(user->path, ++found)->slot) == 0;
    const struct naive_page *next = found < depth ? naive_find(user->path, found + 1) : NULL;
    struct prefix_match match;
    prefix_tree_peek(tree, path_salt(user->path), tokens, count, &match);
    cr_assert_eq(match.page_count, found);
    cr_assert_eq(match.idle_count, idle);
    cr_assert_eq(match.owner, next == NULL ? PREFIX_NOBODY : next->owner);

    cr_assert_eq(prefix_tree_lookup(tree, path_salt(user->path), tokens, count, user->slots),
                 found);
    for (uint32_t i = 0; i < found; i++)
        cr_assert_eq(user->slots[i], naive_find(user->path, i + 1)->slot);
    naive_touch(user->path, found);
    user->page_count = found;
    const uint32_t rest = depth - found, free_count = page_pool_free_count(pool);
    const bool fits = prefix_tree_available(tree) >= rest;
    cr_assert_eq(prefix_tree_reserve(tree, rest), fits ? STATUS_OK : STATUS_BUSY);
    if (!fits) {
        user->claimed_from = user->claimed_to = 0;
        return;
    }
    naive_evict(rest > free_count ? rest - free_count : 0);
    page_pool_take(pool, rest, user->slots + found);
    user->page_count = depth;
    const uint32_t claimed = next != NULL ? found : depth;
    /* Some compute first and add later, as after a hand-off. */
    user->claimed_from = user->claimed_to = found;
    if (random_below(random, 3) == 0)
        return;
    cr_assert_eq(prefix_tree_claim(tree, path_salt(user->path), tokens, count, user->slots, index),
                 claimed);
    for (uint32_t i = found; i < claimed; i++)
        naive_add(user->path, i + 1, user->slots[i], index);
    user->claimed_to = claimed;
}

static void finish_some(struct random *random, struct user *user)
{
    const uint32_t left = user->claimed_to - user->claimed_from;
    const uint32_t count = (uint32_t)random_below(random, left + 1);
    prefix_tree_finish(tree, user->slots + user->claimed_from, count);
    for (uint32_t i = 0; i < count; i++)
        naive_find(user->path, ++user->claimed_from)->owner = PREFIX_NOBODY;
    if (count > 0)
        naive_touch(user->path, user->claimed_from);
}

static void insert_all(struct user *user)
{
    int32_t tokens[TOKENS];
    const uint32_t count = path_tokens(user->path, tokens);
    if (user->claimed_from < user->claimed_to || user->page_count != count / PAGE)
        return;
    const uint32_t pages =
        prefix_tree_insert(tree, path_salt(user->path), tokens, count, user->slots);
    for (uint32_t i = 0; i < user->page_count; i++) {
        struct naive_page *page = naive_find(user->path, i + 1);
        if (page != NULL && page->owner != PREFIX_NOBODY) {
            cr_assert_eq(pages, i, "it stops where somebody computes");
            naive_touch(user->path, i);
            return;
        }
        if (page == NULL)
            page = naive_add(user->path, i + 1, user->slots[i], PREFIX_NOBODY);
        cr_assert_eq(user->slots[i], page->slot);
    }
    naive_touch(user->path, user->page_count);
    cr_assert_eq(pages, user->page_count);
}

static void leave(struct user *user)
{
    prefix_tree_withdraw(tree, user->slots, user->page_count);
    page_pool_free(pool, user->slots, user->page_count);
    for (uint32_t i = user->claimed_to; i-- > user->claimed_from;) {
        struct naive_page *page = naive_find(user->path, i + 1);
        *page = naive[--naive_count];
    }
    memset(user, 0, sizeof *user);
}

static void random_use(uint64_t seed, prefix_hash hash)
{
    prefix_tree_destroy(tree);
    open_tree(hash);
    struct random random;
    random_init(&random, seed);
    for (uint32_t round = 0; round < 6000; round++) {
        const uint32_t index = (uint32_t)random_below(&random, USERS);
        struct user *user = &users[index];
        if (user->page_count == 0) {
            begin(&random, user, index);
        } else {
            switch (random_below(&random, 5)) {
            case 0:
                leave(user);
                break;
            case 1:
                insert_all(user);
                break;
            case 2: {
                const uint32_t count = (uint32_t)random_below(&random, 4);
                cr_assert_eq(prefix_tree_evict(tree, count), naive_evict(count));
                break;
            }
            default:
                finish_some(&random, user);
            }
        }
        check_equal();
    }
    struct prefix_tree_counts counts;
    prefix_tree_count(tree, &counts);
    cr_assert(counts.hits > 500 && counts.misses > 100 && counts.evicted > 200,
              "the test is not vacuous");
    for (uint32_t u = 0; u < USERS; u++)
        leave(&users[u]);
    cr_assert_eq(prefix_tree_available(tree), SLOTS);
}

Test(prefix_tree, random_use_is_that_of_the_naive_index)
{
    random_use(1, NULL);
}

Test(prefix_tree, random_use_with_every_hash_equal)
{
    random_use(2, hash_to_one_value);
}

Test(prefix_tree, random_use_with_two_hashes)
{
    random_use(3, hash_to_two_values);
}

/* ---- threads and misuse ---- */

static void *use_it(void *arg)
{
    struct random random;
    random_init(&random, (uint64_t)(uintptr_t)arg);
    for (uint32_t round = 0; round < 3000; round++) {
        char kinds[DEPTH + 1] = {0};
        int32_t tokens[TOKENS];
        uint32_t slots[DEPTH];
        for (uint32_t i = 0; i < DEPTH; i++)
            kinds[i] = (char)('a' + random_below(&random, 3));
        const uint32_t count = make_tokens(kinds, tokens);
        uint32_t held = prefix_tree_lookup(tree, 0, tokens, count, slots);
        if (prefix_tree_reserve(tree, DEPTH - held) == STATUS_OK) {
            page_pool_take(pool, DEPTH - held, slots + held);
            held = DEPTH;
            prefix_tree_insert(tree, 0, tokens, count, slots);
        }
        page_pool_free(pool, slots, held);
    }
    return NULL;
}

Test(prefix_tree, two_threads_share_it)
{
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, use_it, (void *)11), 0);
    use_it((void *)12);
    pthread_join(other, NULL);
    cr_assert_eq(prefix_tree_available(tree), SLOTS);
}

Test(prefix_tree, letting_go_of_what_the_tree_holds_aborts, .signal = SIGABRT)
{
    int32_t tokens[TOKENS];
    uint32_t slot;
    take(1, &slot);
    prefix_tree_insert(tree, 0, tokens, make_tokens("a", tokens), &slot);
    page_pool_free(pool, &slot, 1);
    page_pool_free(pool, &slot, 1);
}

Test(prefix_tree, a_forgotten_claim_aborts, .signal = SIGABRT)
{
    int32_t tokens[TOKENS];
    uint32_t slot;
    take(1, &slot);
    const uint32_t count = make_tokens("a", tokens);
    prefix_tree_claim(tree, 0, tokens, count, &slot, 1);
    page_pool_free(pool, &slot, 1);
    prefix_tree_destroy(tree);
}
