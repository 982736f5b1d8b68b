/* Finds the matrices that can take 4 bits: all of them if the divergence allows it, else what each
 * role costs by itself, and then as much as the limit has room for. Weights at 4 bits are loaded
 * beside those at 8 and take their places for a measurement. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/net/quantize_internal.h"
#include "model/net/tensor_walk_internal.h"

enum { SPENDINGS = 4, STEPS = SPENDINGS + 2 };

struct chooser {
    const struct quantize_choice *choice;
    struct quantize_measure *measure;
    struct weights narrow; /* every matrix that may take 4 bits, with 4 bits */
    struct quantize_role *roles;
    size_t role_count;
    uint64_t values; /* of all roles */
    uint32_t steps_done;
};

static void report(struct chooser *chooser)
{
    const struct load_progress *progress = chooser->choice->progress;
    const uint32_t steps = (uint32_t)chooser->role_count + STEPS;
    load_progress_report(progress, ++chooser->steps_done, steps);
}

/* ---- what there is to choose from ---- */

static struct quantize_role *role_of(struct chooser *chooser, size_t row)
{
    for (size_t i = 0; i < chooser->role_count; i++)
        if (chooser->roles[i].row == row)
            return &chooser->roles[i];
    struct quantize_role *role = &chooser->roles[chooser->role_count];
    *role = (struct quantize_role){
        .row = row, .values = calloc(chooser->choice->config->layers, sizeof *role->values)};
    if (role->values == NULL)
        return NULL;
    chooser->role_count++;
    return role;
}

static enum status count_place(void *arg, struct tensor_place *place, struct error *error)
{
    struct chooser *chooser = arg;
    size_t count;
    if (!place->narrowable)
        return STATUS_OK;
    struct quantize_role *role = role_of(chooser, (size_t)(place->row - tensor_rows(&count)));
    if (role == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory to choose widths in %u layers",
                         chooser->choice->config->layers);
    const uint64_t values = (uint64_t)place->outputs * place->inputs;
    role->values[place->layer] += values;
    role->total += values;
    chooser->values += values;
    return STATUS_OK;
}

static enum status list_roles(struct chooser *chooser, const struct quantize_plan *plan,
                              struct error *error)
{
    const struct quantize_choice *choice = chooser->choice;
    size_t count;
    (void)tensor_rows(&count);
    chooser->roles = calloc(count, sizeof *chooser->roles);
    if (chooser->roles == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory to choose widths of %zu roles", count);
    return weights_each(choice->file, choice->config, choice->backend, plan, count_place, chooser,
                        error);
}

/* ---- trying a plan ---- */

static enum status try_plan(struct chooser *chooser, const struct quantize_plan *plan,
                            double *nats_out, struct error *error)
{
    struct weights *weights = chooser->choice->weights;
    weights_exchange(weights, &chooser->narrow, plan);
    const enum status status = quantize_measure_run(chooser->measure, nats_out, error);
    weights_exchange(weights, &chooser->narrow, plan);
    if (status == STATUS_OK)
        report(chooser);
    return status;
}

static void set_role(struct quantize_plan *plan, const struct quantize_role *role, bool narrow)
{
    for (uint32_t layer = 0; layer < plan->layers; layer++)
        *quantize_plan_at(plan, layer, role->row) = narrow && role->values[layer] != 0;
}

static void set_all(struct chooser *chooser, struct quantize_plan *plan, bool narrow)
{
    for (size_t i = 0; i < chooser->role_count; i++)
        set_role(plan, &chooser->roles[i], narrow);
}

static enum status price_roles(struct chooser *chooser, struct quantize_plan *plan,
                               struct error *error)
{
    set_all(chooser, plan, false);
    for (size_t i = 0; i < chooser->role_count; i++) {
        struct quantize_role *role = &chooser->roles[i];
        set_role(plan, role, true);
        TRY(try_plan(chooser, plan, &role->cost, error));
        set_role(plan, role, false);
        /* Weights that overflow at 4 bits give NaN: never to be taken. */
        role->cost = isfinite(role->cost) ? role->cost : 1e9;
    }
    return STATUS_OK;
}

/* Costs of roles do not add up exactly: what a plan really costs corrects the budget of the next.
 */
static enum status spend(struct chooser *chooser, struct quantize_plan *plan, struct error *error)
{
    double budget = QUANTIZE_LIMIT_NATS, best_budget = 0, nats = 0;
    uint64_t best = 0;
    for (int i = 0; i < SPENDINGS; i++) {
        const uint64_t narrow =
            quantize_plan_spend(plan, chooser->roles, chooser->role_count, budget);
        if (narrow == 0)
            break;
        TRY(try_plan(chooser, plan, &nats, error));
        if (nats <= QUANTIZE_LIMIT_NATS && narrow > best) {
            best = narrow;
            best_budget = budget;
        }
        /* Rounding may leave nothing, or less than nothing: then twice as much is tried, too. */
        budget *= !isfinite(nats)                  ? 0.5
                  : nats > QUANTIZE_LIMIT_NATS / 2 ? QUANTIZE_LIMIT_NATS / nats
                                                   : 2.0;
    }
    if (best == 0)
        set_all(chooser, plan, false);
    else
        (void)quantize_plan_spend(plan, chooser->roles, chooser->role_count, best_budget);
    plan->share = (double)best / (double)chooser->values;
    return STATUS_OK;
}

static enum status choose(struct chooser *chooser, struct quantize_plan *plan, struct error *error)
{
    const struct quantize_choice *choice = chooser->choice;
    double nats = 0;
    TRY(list_roles(chooser, plan, error));
    if (chooser->role_count == 0)
        return STATUS_OK;
    TRY(quantize_measure_open(choice, &chooser->measure, error));
    TRY(quantize_measure_run(chooser->measure, &nats, error));
    if (!isfinite(nats)) // a model of NaN: there is nothing to hold 4 bits against
        return STATUS_OK;
    set_all(chooser, plan, true);
    TRY(weights_load_narrow(choice->file, choice->config, choice->backend, plan, &chooser->narrow,
                            error));
    report(chooser);
    TRY(try_plan(chooser, plan, &nats, error));
    plan->share = 1;
    if (nats <= QUANTIZE_LIMIT_NATS)
        return STATUS_OK;
    TRY(price_roles(chooser, plan, error));
    return spend(chooser, plan, error);
}

enum status quantize_choose(const struct quantize_choice *choice, struct quantize_plan *plan,
                            struct error *error)
{
    struct chooser chooser = {.choice = choice};
    const enum status status = choose(&chooser, plan, error);
    quantize_measure_close(chooser.measure);
    weights_release(&chooser.narrow, choice->backend);
    for (size_t i = 0; i < chooser.role_count; i++)
        free(chooser.roles[i].values);
    free(chooser.roles);
    return status;
}
