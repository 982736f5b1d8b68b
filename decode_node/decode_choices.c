/* Several answers to one prompt. The place of the first choice is the leader: the prompt's pages
 * come to it, by a hand-off or by reading it here. When they are there the others begin: full pages
 * are shared, the last one is copied unless it is full too, for each of them writes on in it. From
 * then on every choice is a sequence like any other. */
#include "decode_node/decode_internal.h"

#include <string.h>

#include "base/check.h"

void decode_choice_fork(struct page_pool *pages, uint32_t page_tokens,
                        const struct decode_request *from, struct decode_request *to)
{
    const uint32_t given = from->job.given_count, full = given / page_tokens;
    CHECK(to->engine.page_count == 0 && full + to->pages_aside == to->pages_first);
    memcpy(to->slots, from->slots, full * sizeof *to->slots);
    page_pool_hold(pages, to->slots, full);
    page_pool_take(pages, to->pages_aside, to->slots + full);
    if (given % page_tokens != 0)
        page_pool_copy(pages, from->slots[full], to->slots[full]);
    to->engine.page_count = to->pages_first;
    to->engine.computed = given;
}

/* ---- engine thread ---- */

static void end_unborn(struct decode_engine *engine, struct decode_request *leader, uint32_t place,
                       const struct decode_event *event)
{
    const uint32_t aside = engine->requests[place].pages_aside;
    if (leader->engine.unborn_aside > 0) {
        page_pool_unreserve(engine->worker->pages, aside);
        leader->engine.unborn_aside -= aside;
    }
    engine_port_event(engine->port, event);
}

uint32_t decode_choices_aside(const struct decode_engine *engine,
                              const struct decode_request *leader)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < leader->engine.unborn_count; i++)
        pages += engine->requests[leader->engine.unborn[i]].pages_aside;
    return pages;
}

static bool drop_from(struct decode_engine *engine, const uint32_t *list, uint32_t count,
                      uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        struct decode_request *leader = &engine->requests[list[i]];
        for (uint32_t k = 0; k < leader->engine.unborn_count; k++) {
            if (leader->engine.unborn[k] != place)
                continue;
            leader->engine.unborn[k] = leader->engine.unborn[--leader->engine.unborn_count];
            const struct decode_event event = {.kind = EVENT_DROPPED, .place = place};
            end_unborn(engine, leader, place, &event);
            return true;
        }
    }
    return false;
}

bool decode_choice_drop(struct decode_engine *engine, uint32_t place)
{
    return drop_from(engine, engine->running, engine->running_count, place) ||
           drop_from(engine, engine->waiting, engine->waiting_count, place);
}

void decode_choices_fail(struct decode_engine *engine, uint32_t leader, enum status status,
                         const char *text)
{
    struct decode_request *request = &engine->requests[leader];
    for (uint32_t i = 0; i < request->engine.unborn_count; i++) {
        struct decode_event event = {.kind = EVENT_FAILED, .place = request->engine.unborn[i]};
        error_set(&event.failed, status, "%s", text);
        end_unborn(engine, request, event.place, &event);
    }
    request->engine.unborn_count = 0;
}

/* ---- control thread ---- */

void decode_choices_release(struct decode_node *node, const struct decode_request *leader)
{
    /* The leader's place is free, and no longer to be read, after its release. */
    const uint32_t count = leader->member_count;
    uint32_t members[JOB_CHOICES_MAX];
    memcpy(members, leader->members, count * sizeof *members);
    for (uint32_t i = 0; i < count; i++) {
        struct decode_request *member = &node->requests[members[i]];
        decode_request_let_go(node, member);
        decode_request_release(node, member);
    }
}

/* The first token of a member; NULL when it ended with that. */
static const struct msg_step *step_of(const struct msg_done *done, uint32_t choice)
{
    if (done->first.choice == choice)
        return &done->first;
    for (uint32_t i = 0; i < done->others.count; i++) {
        if (done->others.items[i].choice == choice)
            return &done->others.items[i];
    }
    return NULL;
}

/* The prompt's pages become those of one member, which writes on in the last one. */
static void inherit(struct decode_node *node, struct decode_request *leader,
                    struct decode_request *heir)
{
    struct page_pool *pages = node->worker->pages;
    const uint32_t prompt = leader->prompt_pages, rest = heir->pages_first - prompt;
    if (heir != leader)
        memcpy(heir->slots, leader->slots, prompt * sizeof *heir->slots);
    page_pool_take(pages, rest, heir->slots + prompt);
    page_pool_unreserve(pages, heir->pages_aside - rest); /* for a copy that need not be made */
    heir->engine.page_count = heir->pages_first;
    heir->engine.computed = heir->job.given_count;
}

static void begin(struct decode_request *member, const struct msg_step *first)
{
    member->job.tokens[member->job.given_count] = first->tokens.items[0];
    member->engine.token_count = member->job.given_count + 1;
    member->control.written++;
}

/* One that does not go on; the pages of the prompt are not its own any more. */
static void end(struct decode_node *node, struct decode_request *member)
{
    page_pool_unreserve(node->worker->pages, member->pages_aside);
    decode_request_release(node, member);
}

void decode_choices_land(struct decode_node *node, struct decode_request *leader,
                         const struct msg_done *done)
{
    const uint32_t page_tokens = node->worker->limits.page_tokens;
    struct decode_request *members[JOB_CHOICES_MAX], *heir = NULL;
    const uint32_t count = leader->member_count;
    bool goes_on[JOB_CHOICES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        members[i] = &node->requests[leader->members[i]];
        const struct msg_step *first = step_of(done, members[i]->job.choice);
        goes_on[i] = first != NULL && !members[i]->control.given_up;
        if (!goes_on[i])
            continue;
        if (heir == NULL)
            inherit(node, leader, heir = members[i]);
        else
            decode_choice_fork(node->worker->pages, page_tokens, heir, members[i]);
        begin(members[i], first);
    }
    if (heir == NULL)
        page_pool_free(node->worker->pages, leader->slots, leader->prompt_pages);
    /* Not before the last copy is made. */
    for (uint32_t i = 0; i < count; i++) {
        if (goes_on[i])
            decode_request_admit(node, members[i]);
        else
            end(node, members[i]);
    }
    engine_port_poke(node->port); /* it may wait for pages */
}
