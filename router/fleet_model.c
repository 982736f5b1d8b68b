/* Whose worker is it: the model that a newcomer serves. Pure comparisons with sentences.
 *
 * A router has the text half of each model and no weight. The tokenizer tells most models apart;
 * where several share one (the sizes of a family do), a worker's own --model-name does, or the name
 * in its file, which is that of the file the router read. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "router/fleet.h"

static bool has_tokenizer(const struct fleet_model *model, const struct fleet_identity *identity)
{
    uint8_t own[16];
    store_le64(own, model->text->digest.low);
    store_le64(own + 8, model->text->digest.high);
    return memcmp(own, identity->tokenizer_digest, sizeof own) == 0;
}

/* The names of some models, "a", "b" and so on, as many as have room. */
static const char *list_names(const struct fleet_rules *rules, const bool *wanted, char *out,
                              size_t capacity)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < rules->model_count; i++) {
        if (wanted && !wanted[i])
            continue;
        const int bytes = snprintf(out + used, capacity - used, "%s\"%.40s\"", used > 0 ? ", " : "",
                                   rules->models[i].name);
        if (bytes < 0 || (size_t)bytes >= capacity - used) {
            out[used] = '\0';
            break;
        }
        used += (size_t)bytes;
    }
    return out;
}

static enum status tokenizer_differs(const struct fleet_model *model,
                                     const struct fleet_identity *identity, struct error *error)
{
    char own[DIGEST_TEXT_BYTES], other[DIGEST_TEXT_BYTES];
    digest128_text(model->text->digest, own);
    fleet_digest_text(identity->tokenizer_digest, other);
    return error_set(error, STATUS_MISMATCH,
                     "tokenizer_digest is %s at the worker (model %.64s) and %s at the router "
                     "(model %.64s)",
                     other, identity->model, own, model->text->name);
}

/* By the name that the worker was told to serve. */
static enum status find_named(const struct fleet_rules *rules, struct wire_str name,
                              const struct fleet_identity *identity, uint32_t *model_out,
                              struct error *error)
{
    char served[160];
    for (uint32_t i = 0; i < rules->model_count; i++) {
        const struct fleet_model *model = &rules->models[i];
        if (strlen(model->name) != name.bytes || memcmp(model->name, name.data, name.bytes) != 0)
            continue;
        if (!has_tokenizer(model, identity))
            return tokenizer_differs(model, identity, error);
        *model_out = i;
        return STATUS_OK;
    }
    return error_set(error, STATUS_MISMATCH,
                     "model_name is \"%.*s\" at the worker and the router serves %s",
                     (int)(name.bytes < 64 ? name.bytes : 64), name.data,
                     list_names(rules, NULL, served, sizeof served));
}

static enum status fits_none(const struct fleet_rules *rules, const struct fleet_identity *identity,
                             struct error *error)
{
    if (rules->model_count == 1)
        return tokenizer_differs(&rules->models[0], identity, error);
    char other[DIGEST_TEXT_BYTES], served[160];
    fleet_digest_text(identity->tokenizer_digest, other);
    return error_set(error, STATUS_MISMATCH,
                     "tokenizer_digest is %s at the worker (model %.64s) and that of none of the "
                     "router's models, which are %s",
                     other, identity->model, list_names(rules, NULL, served, sizeof served));
}

enum status fleet_model_find(const struct fleet_rules *rules, struct wire_str model_name,
                             const struct fleet_identity *identity, uint32_t *model_out,
                             struct error *error)
{
    bool fit[FLEET_MODELS_MAX] = {false};
    uint32_t count = 0, namesakes = 0, last = 0, namesake = 0;
    if (model_name.bytes > 0)
        return find_named(rules, model_name, identity, model_out, error);
    for (uint32_t i = 0; i < rules->model_count; i++) {
        if (!has_tokenizer(&rules->models[i], identity))
            continue;
        fit[i] = true;
        last = i;
        count++;
        if (strcmp(rules->models[i].text->name, identity->model) == 0) {
            namesake = i;
            namesakes++;
        }
    }
    if (count == 0)
        return fits_none(rules, identity, error);
    if (count == 1 || namesakes == 1) {
        *model_out = count == 1 ? last : namesake;
        return STATUS_OK;
    }
    char fitting[160];
    return error_set(error, STATUS_MISMATCH,
                     "the model %.64s of the worker may be each of %s: they share its tokenizer, "
                     "and their files are called %s; give it one of these names as --model-name",
                     identity->model, list_names(rules, fit, fitting, sizeof fitting),
                     namesakes > 0 ? "the same" : "otherwise");
}
