/* `baton bench placement`: what a choice of workers costs the router's loop, by the pages it knows
 * of and the length of the prompt. The parts are those of router/fleet_place.c. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "base/random.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/bench_time.h"
#include "router/placement.h"
#include "router/prefix_index.h"

enum {
    PAGE_TOKENS = 64,
    PROMPTS = 256, /* that take turns, so that none stays in the processor's cache */
    SEED = 7,
    DIGITS = 4,
};

static const double NS_A_US = 1e3;

struct options {
    uint32_t workers, pages, budget_ms;
    bool json;
};

static const struct config_row option_rows[] = {
    {"workers", CONFIG_U32, offsetof(struct options, workers), "64", "N",
     "workers, half of them prefill nodes", 2, PLACEMENT_WORKERS_MAX},
    {"pages", CONFIG_U32, offsetof(struct options, pages), "1000000", "N",
     "pages in the largest index; two smaller ones are measured too", 1024, 16777216},
    {"budget-ms", CONFIG_U32, offsetof(struct options, budget_ms), "300", "N",
     "time for each figure", 1, 60000},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object a line", 0,
     0},
};

static const struct config_command description = {
    .program = "baton bench placement",
    .summary = "Measures the choice of workers beside the hashing of the prompt that goes before.",
    .examples = "  baton bench placement\n"
                "  baton bench placement --workers 256 --pages 4000000 --json\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

static const uint32_t prompt_tokens[] = {200, 3000, 30000};

struct world {
    uint32_t worker_count;
    struct placement_worker workers[PLACEMENT_WORKERS_MAX];
    uint32_t holders[PLACEMENT_WORKERS_MAX];
    struct prefix_index *index;
    uint32_t tokens, pages; /* of each prompt */
    int32_t *prompts;       /* [PROMPTS][tokens] */
    uint64_t *hashes;       /* [PROMPTS][pages] */
    uint64_t sum;           /* so that nothing is left out */
};

static uint64_t *hashes_of(const struct world *world, uint64_t turn)
{
    return world->hashes + turn % PROMPTS * world->pages;
}

static void call_hash(void *arg, uint64_t turn)
{
    struct world *world = arg;
    world->sum += prefix_hashes(world->prompts + turn % PROMPTS * world->tokens, world->tokens,
                                PAGE_TOKENS, 0, hashes_of(world, turn));
}

/* The whole choice: who holds the beginning, and who costs least. */
static void call_choose(void *arg, uint64_t turn)
{
    struct world *world = arg;
    uint32_t held[PREFIX_HOLDERS_MAX];
    struct placement_view views[PLACEMENT_WORKERS_MAX] = {{0}};
    prefix_index_match(world->index, hashes_of(world, turn), world->pages, held);
    for (uint32_t i = 0; i < world->worker_count; i++)
        views[i].cached_tokens = held[world->holders[i]] * PAGE_TOKENS;
    const struct placement_snapshot snapshot = {world->workers, world->worker_count,
                                                (uint32_t)turn};
    const struct placement_request request = {world->tokens, 256, 32, views};
    world->sum += (uint64_t)placement_choose(&placement_default_policy, &snapshot, &request).decode;
}

/* What is booked afterwards, for one node that holds half of the prompt. */
static void call_expect(void *arg, uint64_t turn)
{
    struct world *world = arg;
    for (uint32_t i = world->pages / 2; i < world->pages; i++)
        prefix_index_add(world->index, world->holders[0], hashes_of(world, turn)[i]);
}

static void make_workers(struct world *world, struct random *random)
{
    for (uint32_t i = 0; i < world->worker_count; i++) {
        world->workers[i] = (struct placement_worker){
            .role = i % 2 == 0 ? WORKER_PREFILL : WORKER_DECODE,
            .up = true,
            .context_tokens = 1 << 20,
            .page_tokens = PAGE_TOKENS,
            .pages_total = 1 << 20,
            .pages_used = (uint32_t)random_below(random, 1 << 19),
            .inflight_tokens = random_below(random, 4000),
            .tokens_per_s = 1000 + (double)random_below(random, 1000),
            .running = (uint32_t)random_below(random, 16),
            .age_ms = 1 << 20,
        };
        world->holders[i] = prefix_index_join(world->index);
    }
}

/* Each prompt is held by several workers, each to a depth of its own; the rest of the index are
 * pages of others. */
static void fill_index(struct world *world, uint32_t pages_max, struct random *random)
{
    for (uint64_t i = 0; i < (uint64_t)PROMPTS * world->tokens; i++)
        world->prompts[i] = (int32_t)random_below(random, 50000);
    for (uint64_t turn = 0; turn < PROMPTS; turn++) {
        call_hash(world, turn);
        for (uint32_t holder = 0; holder < 4; holder++) {
            const uint32_t worker = (uint32_t)random_below(random, world->worker_count);
            const uint32_t depth = (uint32_t)random_below(random, world->pages + 1);
            for (uint32_t page = 0; page < depth; page++)
                prefix_index_add(world->index, world->holders[worker],
                                 hashes_of(world, turn)[page]);
        }
    }
    while (prefix_index_count(world->index) < pages_max)
        prefix_index_add(world->index, world->holders[random_below(random, world->worker_count)],
                         random_next(random));
}

static void print_row(const struct options *options, const struct world *world, uint32_t pages,
                      const double us[3])
{
    if (!options->json) {
        printf("%8u  %8u  %8.2f  %8.2f  %8.2f\n", pages, world->tokens, us[0], us[1], us[2]);
        return;
    }
    struct buffer out = {0};
    struct json_writer writer;
    static const char *const names[] = {"hash_us", "choose_us", "expect_us"};
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    json_key(&writer, "workers");
    json_put_u64(&writer, world->worker_count);
    json_key(&writer, "index_pages");
    json_put_u64(&writer, pages);
    json_key(&writer, "prompt_tokens");
    json_put_u64(&writer, world->tokens);
    for (uint32_t i = 0; i < ARRAY_COUNT(names); i++) {
        json_key(&writer, names[i]);
        json_put_number(&writer, us[i], DIGITS);
    }
    json_close_object(&writer);
    puts(out.data);
    buffer_free(&out);
}

static enum status measure(const struct options *options, uint32_t pages, uint32_t tokens,
                           struct error *error)
{
    static const bench_call calls[] = {call_hash, call_choose, call_expect};
    struct world world = {
        .worker_count = options->workers, .tokens = tokens, .pages = tokens / PAGE_TOKENS};
    struct random random;
    random_init(&random, SEED);
    TRY(prefix_index_create(pages, &world.index, error));
    world.prompts = malloc((size_t)PROMPTS * tokens * sizeof *world.prompts);
    world.hashes = malloc((size_t)PROMPTS * world.pages * sizeof *world.hashes);
    CHECK(world.prompts != NULL && world.hashes != NULL);
    make_workers(&world, &random);
    fill_index(&world, pages, &random);
    double us[ARRAY_COUNT(calls)];
    for (uint32_t i = 0; i < ARRAY_COUNT(calls); i++)
        us[i] = bench_measure(calls[i], &world, options->budget_ms).median_ns / NS_A_US;
    print_row(options, &world, pages, us);
    free(world.prompts);
    free(world.hashes);
    prefix_index_destroy(world.index);
    return STATUS_OK;
}

static enum status run(const struct options *options, struct error *error)
{
    const uint32_t sizes[] = {options->pages / 1024, options->pages / 32, options->pages};
    if (!options->json)
        printf("%u workers; microseconds: of hashing (text thread), choosing, expecting half\n"
               "   index    prompt      hash    choose    expect\n",
               options->workers);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        for (size_t k = 0; k < ARRAY_COUNT(prompt_tokens); k++)
            TRY(measure(options, sizes[i], prompt_tokens[k], error));
    }
    return STATUS_OK;
}

int bench_placement(int argc, char **argv)
{
    struct options options;
    int first_operand;
    const int code = config_begin(&description, argc, argv, &options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error;
    return config_end(&description, run(&options, &error), &error);
}
