#include "router/session_affinity.h"

#include <stdlib.h>

#include "base/check.h"

enum { WAYS = 4 };

struct way {
    uint64_t key;  /* 0: free */
    uint64_t used; /* turn of the table's clock */
    struct affinity_pair pair;
};

struct session_affinity {
    struct way *ways;   /* [set_count][WAYS] */
    uint64_t set_count; /* a power of two */
    uint64_t clock;
};

struct session_affinity *session_affinity_create(uint32_t sessions_max)
{
    struct session_affinity *table = calloc(1, sizeof *table);
    CHECK(table != NULL);
    table->set_count = 1;
    while (table->set_count * WAYS < sessions_max)
        table->set_count *= 2;
    table->ways = calloc(table->set_count * WAYS, sizeof *table->ways);
    CHECK(table->ways != NULL);
    return table;
}

void session_affinity_destroy(struct session_affinity *table)
{
    if (table == NULL)
        return;
    free(table->ways);
    free(table);
}

static struct way *set_of(const struct session_affinity *table, uint64_t key)
{
    return &table->ways[(key & (table->set_count - 1)) * WAYS];
}

static struct way *find(const struct session_affinity *table, uint64_t key)
{
    struct way *set = set_of(table, key);
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].key == key)
            return &set[i];
    }
    return NULL;
}

struct affinity_pair session_affinity_find(struct session_affinity *table, uint64_t key)
{
    struct way *way = key != 0 ? find(table, key) : NULL;
    if (way == NULL)
        return (struct affinity_pair){0, 0};
    way->used = ++table->clock;
    return way->pair;
}

void session_affinity_note(struct session_affinity *table, uint64_t key, struct affinity_pair pair)
{
    if (key == 0)
        return;
    struct way *way = find(table, key);
    if (way == NULL) {
        way = set_of(table, key);
        for (uint32_t i = 1; i < WAYS; i++) {
            struct way *other = set_of(table, key) + i;
            way = other->used < way->used ? other : way;
        }
        *way = (struct way){.key = key};
    }
    way->used = ++table->clock;
    if (pair.prefill != 0)
        way->pair.prefill = pair.prefill;
    if (pair.decode != 0)
        way->pair.decode = pair.decode;
}
