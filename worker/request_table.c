#include "worker/request_table.h"

#include <stdlib.h>

#include "base/check.h"

void request_table_create(struct request_table *table, uint32_t capacity)
{
    *table = (struct request_table){
        .keys = calloc(capacity, sizeof *table->keys),
        .used = calloc(capacity, sizeof *table->used),
        .free_places = calloc(capacity, sizeof *table->free_places),
        .free_count = capacity,
        .capacity = capacity,
    };
    CHECK(table->keys != NULL && table->used != NULL && table->free_places != NULL);
    for (uint32_t i = 0; i < capacity; i++)
        table->free_places[i] = capacity - 1 - i;
}

void request_table_destroy(struct request_table *table)
{
    free(table->keys);
    free(table->used);
    free(table->free_places);
    *table = (struct request_table){0};
}

bool router_ref_equal(struct router_ref a, struct router_ref b)
{
    return a.index == b.index && a.generation == b.generation;
}

uint32_t request_table_find(const struct request_table *table, const struct request_key *key)
{
    for (uint32_t i = 0; i < table->capacity; i++) {
        const struct request_key *k = &table->keys[i];
        if (table->used[i] && k->request == key->request && k->attempt == key->attempt &&
            k->choice == key->choice && router_ref_equal(k->router, key->router))
            return i;
    }
    return REQUEST_NONE;
}

uint32_t request_table_add(struct request_table *table, const struct request_key *key)
{
    if (table->free_count == 0)
        return REQUEST_NONE;
    const uint32_t place = table->free_places[--table->free_count];
    table->keys[place] = *key;
    table->used[place] = true;
    return place;
}

void request_table_remove(struct request_table *table, uint32_t place)
{
    CHECK(place < table->capacity && table->used[place]);
    table->used[place] = false;
    table->free_places[table->free_count++] = place;
}
