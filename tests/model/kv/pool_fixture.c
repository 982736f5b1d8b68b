#include "tests/model/kv/pool_fixture.h"

#include <criterion/criterion.h>

#include "base/team.h"

struct backend *backend;
struct page_pool *pool;

static struct team *team;

void pool_fixture_open(const struct kv_layout *layout, uint32_t slots)
{
    const struct backend_limits limits = {.rows = 1,
                                          .width = layout->kv_heads * layout->head_dim,
                                          .heads = layout->kv_heads,
                                          .kv_heads = layout->kv_heads,
                                          .head_dim = layout->head_dim,
                                          .context_tokens = 64};
    struct error error = {0};
    team = team_create(1);
    cr_assert_eq(backend_cpu_create(team, "ref", ACTIVATION_F32, &limits, &backend, &error),
                 STATUS_OK, "%s", error.text);
    cr_assert_eq(page_pool_create(backend, layout, slots, &pool, &error), STATUS_OK, "%s",
                 error.text);
}

void pool_fixture_close(void)
{
    page_pool_destroy(pool);
    backend->ops->destroy(backend);
    team_destroy(team);
}
