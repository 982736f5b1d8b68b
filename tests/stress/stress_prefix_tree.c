/* Four threads over one prefix index and a pool that is too small for them: each finds, claims,
 * computes, finishes or withdraws, and lets go. The bytes of a page are a function of the tokens up
 * to it, written as plain memory by its owner and read by whoever finds it: the index has to order
 * that, and a page that went to somebody else shows. Each also reads the news of it meanwhile. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/team.h"
#include "model/kv/prefix_tree.h"
#include "tests/stress/rounds.h"

enum { THREADS = 4, SLOTS = 24, PAGE = 16, DEPTH = 6, ROUNDS = 300000 };

static struct page_pool *pool;
static struct prefix_tree *tree;

struct member {
    pthread_t thread;
    uint32_t index;
    uint64_t rounds, found, computed, withdrawn, inserted, told;
    struct prefix_reader reader;
};

static uint32_t read_news(struct prefix_reader *reader)
{
    uint64_t events[SLOTS];
    bool anew;
    return prefix_tree_news(tree, reader, SLOTS, events, &anew);
}

static uint64_t page_value(const int32_t *tokens, uint32_t page)
{
    return hash64(tokens, (page + 1) * PAGE * sizeof *tokens, 1);
}

static void write_page(uint32_t slot, uint64_t value)
{
    CHECK(page_pool_is_sole(pool, &slot, 1));
    memcpy(page_pool_strip(pool, 0, slot), &value, sizeof value);
}

static void check_pages(const int32_t *tokens, const uint32_t *slots, uint32_t count)
{
    for (uint32_t page = 0; page < count; page++) {
        uint64_t value;
        memcpy(&value, page_pool_strip(pool, 0, slots[page]), sizeof value);
        CHECK(value == page_value(tokens, page));
    }
}

/* As a prefill node: claims, then finishes page by page or gives up in the middle. */
static void compute_claimed(struct member *member, struct random *random, const int32_t *tokens,
                            uint32_t count, uint32_t *slots, uint32_t found)
{
    const uint32_t pages = count / PAGE;
    prefix_tree_claim(tree, 0, tokens, count, slots, member->index);
    const uint32_t end = found + (uint32_t)random_below(random, pages - found + 1);
    for (uint32_t page = found; page < end; page++) {
        write_page(slots[page], page_value(tokens, page));
        prefix_tree_finish(tree, slots + page, 1);
        member->computed++;
    }
    member->withdrawn += pages - end;
    prefix_tree_withdraw(tree, slots, pages);
}

/* As a decode node: the pages are there, and equal ones may be by now. */
static void insert_computed(struct member *member, const int32_t *tokens, uint32_t count,
                            uint32_t *slots, uint32_t found)
{
    for (uint32_t page = found; page < count / PAGE; page++)
        write_page(slots[page], page_value(tokens, page));
    const uint32_t in = prefix_tree_insert(tree, 0, tokens, count, slots);
    check_pages(tokens, slots, count / PAGE);
    member->inserted += in;
}

static void *run(void *arg)
{
    struct member *member = arg;
    struct random random;
    random_init(&random, member->index);
    for (uint64_t round = 0; round < member->rounds; round++) {
        int32_t tokens[DEPTH * PAGE];
        uint32_t slots[DEPTH];
        const uint32_t pages = 1 + (uint32_t)random_below(&random, DEPTH), count = pages * PAGE;
        for (uint32_t page = 0; page < pages; page++) {
            const int32_t kind = (int32_t)random_below(&random, 2);
            for (uint32_t i = 0; i < PAGE; i++)
                tokens[page * PAGE + i] = kind;
        }
        uint32_t held = prefix_tree_lookup(tree, 0, tokens, count, slots);
        const uint32_t found = held;
        check_pages(tokens, slots, found);
        member->found += found;
        if (prefix_tree_reserve(tree, pages - found) == STATUS_OK) {
            page_pool_take(pool, pages - found, slots + found);
            held = pages;
            if (random_below(&random, 2) == 0)
                compute_claimed(member, &random, tokens, count, slots, found);
            else
                insert_computed(member, tokens, count, slots, found);
        }
        page_pool_free(pool, slots, held);
        member->told += read_news(&member->reader);
    }
    return NULL;
}

int main(void)
{
    const struct kv_layout layout = {.version = KV_LAYOUT_VERSION,
                                     .layers = 1,
                                     .kv_heads = 1,
                                     .head_dim = 16,
                                     .page_tokens = PAGE,
                                     .dtype = KV_BF16};
    const struct backend_limits limits = {
        .rows = 1, .width = 16, .heads = 1, .kv_heads = 1, .head_dim = 16, .context_tokens = 64};
    struct team *team = team_create(1);
    struct backend *backend;
    struct error error;
    CHECK(backend_cpu_create(team, "ref", ACTIVATION_F32, &limits, &backend, &error) == STATUS_OK);
    CHECK(page_pool_create(backend, &layout, SLOTS, &pool, &error) == STATUS_OK);
    CHECK(prefix_tree_create(pool, NULL, &tree, &error) == STATUS_OK);
    page_pool_poison(pool, true);
    struct member members[THREADS] = {0};
    for (uint32_t i = 0; i < THREADS; i++) {
        members[i].index = i;
        members[i].rounds = stress_rounds(ROUNDS);
        CHECK(pthread_create(&members[i].thread, NULL, run, &members[i]) == 0);
    }
    struct member sum = {0};
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(members[i].thread, NULL) == 0);
        sum.found += members[i].found;
        sum.computed += members[i].computed;
        sum.withdrawn += members[i].withdrawn;
        sum.inserted += members[i].inserted;
        sum.told += members[i].told;
    }
    struct prefix_tree_counts counts;
    prefix_tree_count(tree, &counts);
    CHECK(sum.found > 0 && sum.computed > 0 && sum.withdrawn > 0 && counts.evicted > 0);
    CHECK(prefix_tree_available(tree) == SLOTS);
    CHECK(sum.told > 0 && read_news(&(struct prefix_reader){.begun = false}) == counts.pages);
    printf("%llu pages found, %llu computed, %llu withdrawn, %llu inserted, %llu evicted\n",
           (unsigned long long)sum.found, (unsigned long long)sum.computed,
           (unsigned long long)sum.withdrawn, (unsigned long long)sum.inserted,
           (unsigned long long)counts.evicted);
    prefix_tree_destroy(tree);
    page_pool_destroy(pool);
    backend->ops->destroy(backend);
    team_destroy(team);
    return 0;
}
