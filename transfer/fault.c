#include "transfer/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"

enum { ORDERS_MAX = 16, DELAY_MS = 500, PASSAGE_MAX = 1000000000 };

enum {
    DIE = 1u << FAULT_DIE,
    STOP = 1u << FAULT_STOP,
    DELAY = 1u << FAULT_DELAY,
    DROP = 1u << FAULT_DROP,
    CORRUPT = 1u << FAULT_CORRUPT,
    SHORT = 1u << FAULT_SHORT,
    REFUSE = 1u << FAULT_REFUSE,
};

static const struct point_row {
    const char *name;
    unsigned actions;
} points[FAULT_POINT_COUNT] = {
#define FAULT(name, text, actions, where) {text, actions},
#include "transfer/fault.def"
#undef FAULT
};

static const char *const actions[FAULT_ACTION_COUNT] = {
    [FAULT_DIE] = "die",       [FAULT_STOP] = "stop",       [FAULT_DELAY] = "delay",
    [FAULT_DROP] = "drop",     [FAULT_CORRUPT] = "corrupt", [FAULT_SHORT] = "short",
    [FAULT_REFUSE] = "refuse",
};

struct order {
    enum fault_point point;
    enum fault_action action;
    uint64_t passage;
    bool and_later;
};

bool fault_armed;
static struct order orders[ORDERS_MAX];
static uint32_t order_count;
static atomic_uint_fast64_t passages[FAULT_POINT_COUNT];

/* ---- arming ---- */

static void list_points(struct buffer *out)
{
    for (int i = 0; i < FAULT_POINT_COUNT; i++)
        buffer_printf(out, "%s%s", i ? ", " : "", points[i].name);
}

static void list_actions(unsigned mask, struct buffer *out)
{
    const char *comma = "";
    for (int i = FAULT_DIE; i < FAULT_ACTION_COUNT; i++) {
        if (!(mask >> i & 1))
            continue;
        buffer_printf(out, "%s%s", comma, actions[i]);
        comma = ", ";
    }
}

static enum status find_point(const char *name, enum fault_point *out, struct error *error)
{
    for (int i = 0; i < FAULT_POINT_COUNT; i++) {
        if (strcmp(points[i].name, name) != 0)
            continue;
        *out = (enum fault_point)i;
        return STATUS_OK;
    }
    struct buffer names = {0};
    list_points(&names);
    error_set(error, STATUS_INVALID, "--fault: there is no point \"%.40s\", there are %s", name,
              names.data);
    buffer_free(&names);
    return STATUS_INVALID;
}

static enum status find_action(const char *name, enum fault_point point, enum fault_action *out,
                               struct error *error)
{
    for (int i = FAULT_DIE; i < FAULT_ACTION_COUNT; i++) {
        if (strcmp(actions[i], name) != 0 || !(points[point].actions >> i & 1))
            continue;
        *out = (enum fault_action)i;
        return STATUS_OK;
    }
    struct buffer names = {0};
    list_actions(points[point].actions, &names);
    error_set(error, STATUS_INVALID, "--fault: the point %s has no action \"%.40s\", it has %s",
              points[point].name, name, names.data);
    buffer_free(&names);
    return STATUS_INVALID;
}

static enum status read_passage(const char *text, struct order *order, struct error *error)
{
    char *end;
    const unsigned long long passage = strtoull(text, &end, 10);
    order->and_later = *end == '+';
    if (text[0] < '0' || text[0] > '9' || end[order->and_later] != '\0' || passage == 0 ||
        passage > PASSAGE_MAX)
        return error_set(error, STATUS_INVALID,
                         "--fault: \"%.40s\" is no passage: a number from 1 to %d, and a + for all "
                         "later ones too",
                         text, PASSAGE_MAX);
    order->passage = passage;
    return STATUS_OK;
}

/* One POINT[:N[+]]:ACTION, taken apart in place. */
static enum status read_order(char *text, struct order *order, struct error *error)
{
    char *parts[3];
    uint32_t count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ':';
    if (count < 2 || count > ARRAY_COUNT(parts))
        return error_set(error, STATUS_INVALID,
                         "--fault: \"%.60s\" is not of the form POINT[:N[+]]:ACTION", text);
    char *rest = text;
    for (uint32_t i = 0; i < count; i++)
        parts[i] = strsep(&rest, ":");
    *order = (struct order){.passage = 1};
    TRY(find_point(parts[0], &order->point, error));
    if (count == 3)
        TRY(read_passage(parts[1], order, error));
    return find_action(parts[count - 1], order->point, &order->action, error);
}

static enum status read_orders(char *text, struct error *error)
{
    for (char *rest = text; rest;) {
        if (order_count == ORDERS_MAX)
            return error_set(error, STATUS_LIMIT, "--fault: more than %d faults are ordered",
                             ORDERS_MAX);
        TRY(read_order(strsep(&rest, ","), &orders[order_count], error));
        order_count++;
    }
    return STATUS_OK;
}

enum status fault_arm(const char *spec, bool enabled, struct error *error)
{
    order_count = 0;
    fault_armed = false;
    for (int i = 0; i < FAULT_POINT_COUNT; i++)
        atomic_store(&passages[i], 0);
    if (!spec || !spec[0])
        return STATUS_OK;
    if (!enabled) {
        LOG_WARN(
            "faults are ordered (%.100s) and not injected: that takes --enable-fault-injection",
            spec);
        return STATUS_OK;
    }
    char *text = strdup(spec);
    CHECK(text != NULL);
    const enum status status = read_orders(text, error);
    free(text);
    if (status != STATUS_OK) {
        order_count = 0;
        return status;
    }
    for (uint32_t i = 0; i < order_count; i++)
        LOG_WARN("fault armed: %s at passage %llu%s of %s", actions[orders[i].action],
                 (unsigned long long)orders[i].passage, orders[i].and_later ? " and all later" : "",
                 points[orders[i].point].name);
    fault_armed = true;
    return STATUS_OK;
}

/* ---- firing ---- */

static void stand_still(void)
{
    struct timespec left = {.tv_sec = DELAY_MS / 1000, .tv_nsec = DELAY_MS % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0)
        continue;
}

static enum fault_action fire(const struct order *order, uint64_t passage)
{
    LOG_WARN("fault fired: %s at passage %llu of %s", actions[order->action],
             (unsigned long long)passage, points[order->point].name);
    switch (order->action) {
    case FAULT_DIE:
        kill(getpid(), SIGKILL);
        break;
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_DELAY:
        stand_still();
        break;
    default:
        return order->action;
    }
    return FAULT_NO;
}

enum fault_action fault_pass(enum fault_point point)
{
    const uint64_t passage = atomic_fetch_add(&passages[point], 1) + 1;
    for (uint32_t i = 0; i < order_count; i++) {
        const struct order *order = &orders[i];
        if (order->point == point &&
            (order->passage == passage || (order->and_later && passage > order->passage)))
            return fire(order, passage);
    }
    return FAULT_NO;
}
