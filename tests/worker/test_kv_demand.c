/* The size of the page pool as a function of what is asked for and what there is. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "worker/worker_memory.h"

enum { CONTEXT_BYTES = 1 << 20 };

Test(kv_demand, sizes)
{
    static const struct {
        struct config_amount amount;
        uint64_t of;
        uint32_t contexts;
        uint64_t bytes;
    } rows[] = {
        /* A size is a size. */
        {{.bytes = 12345}, 1 << 30, 4, 12345},
        {{.bytes = 1ull << 40}, 1 << 30, 4, 1ull << 40},
        /* A share is a share, however many contexts it holds. */
        {{.share = 0.25}, 1 << 30, 4, 1 << 28},
        {{.share = 1}, 1 << 30, 4, 1 << 30},
        /* Nothing said: half, or what so many requests can use. */
        {{0}, 100 << 20, 1000, 50 << 20},
        {{0}, 100 << 20, 50, 50 << 20},
        {{0}, 100 << 20, 49, 49 << 20},
        {{0}, 1 << 20, 128, 1 << 19},
        /* Nobody knows what there is. */
        {{0}, 0, 128, 4 << 20},
        {{0}, 0, 3, 3 << 20},
        {{.share = 0.5}, 0, 128, 4 << 20},
        {{.bytes = 77}, 0, 128, 77},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct kv_demand demand = {.amount = rows[i].amount,
                                         .share_of_bytes = rows[i].of,
                                         .context_bytes = CONTEXT_BYTES,
                                         .contexts = rows[i].contexts};
        cr_assert_eq(kv_demand_bytes(&demand), rows[i].bytes, "row %zu", i);
    }
}
