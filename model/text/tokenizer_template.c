/* What a tokenizer.json puts around a text: its post-processor. */
#include "base/check.h"
#include "base/log.h"
#include "model/text/tokenizer_json_internal.h"

enum { STEP_DEPTH_MAX = 8 };

/* The tokens before and behind a text that are found so far. */
struct frame {
    struct text *text;
    const char *path;
    struct error *error;
    size_t before_count, behind_count;
    int32_t first; /* before the text */
};

static void frame_add(struct frame *frame, bool behind, int32_t id)
{
    if (behind)
        frame->behind_count++;
    else if (frame->before_count++ == 0)
        frame->first = id;
}

/* The ids of a special token that a template names. */
static enum status special_add(struct frame *frame, const struct json *step,
                               const struct json *piece, bool behind)
{
    const char *name;
    size_t bytes;
    TRY(json_member_string(piece, "id", frame->path, &name, &bytes, frame->error));
    const struct json *specials = json_get(step, "special_tokens");
    const struct json *special =
        specials != NULL && json_kind(specials) == JSON_OBJECT ? json_get(specials, name) : NULL;
    const struct json *ids =
        special != NULL && json_kind(special) == JSON_OBJECT ? json_get(special, "ids") : NULL;
    if (ids == NULL || json_kind(ids) != JSON_ARRAY)
        return error_set(frame->error, STATUS_CORRUPT,
                         "%s: the template's token '%.40s' has no ids", frame->path, name);
    for (size_t i = 0; i < json_count(ids); i++) {
        const struct json *id = json_at(ids, i);
        TRY(vocabulary_check_id(&frame->text->vocabulary, "an id of the template",
                                json_kind(id) == JSON_INT ? json_int(id) : -1, frame->error));
        frame_add(frame, behind, (int32_t)json_int(id));
    }
    return STATUS_OK;
}

/* "single" of a TemplateProcessing: special tokens around the sequence A. */
static enum status template_read(struct frame *frame, const struct json *step)
{
    const struct json *single = json_get(step, "single");
    bool behind = false;
    if (single == NULL || json_kind(single) != JSON_ARRAY)
        return error_set(frame->error, STATUS_CORRUPT, "%s: a template has no array 'single'",
                         frame->path);
    for (size_t i = 0; i < json_count(single); i++) {
        const struct json *piece = json_at(single, i);
        if (json_kind(piece) != JSON_OBJECT)
            return error_set(frame->error, STATUS_CORRUPT,
                             "%s: part %zu of a template is no object", frame->path, i);
        if (json_get(piece, "Sequence") != NULL)
            behind = true;
        const struct json *special = json_get(piece, "SpecialToken");
        if (special != NULL && json_kind(special) == JSON_OBJECT)
            TRY(special_add(frame, step, special, behind));
    }
    return STATUS_OK;
}

/* ["text", id] under key. */
static enum status pair_add(struct frame *frame, const struct json *step, const char *key,
                            bool behind)
{
    const struct json *pair = json_get(step, key);
    const struct json *id = pair != NULL && json_kind(pair) == JSON_ARRAY && json_count(pair) == 2
                                ? json_at(pair, 1)
                                : NULL;
    TRY(vocabulary_check_id(&frame->text->vocabulary, key,
                            id != NULL && json_kind(id) == JSON_INT ? json_int(id) : -1,
                            frame->error));
    frame_add(frame, behind, (int32_t)json_int(id));
    return STATUS_OK;
}

static enum status step_read(struct frame *frame, const struct json *step, int depth)
{
    const char *name;
    size_t bytes;
    if (step == NULL || json_kind(step) == JSON_NULL)
        return STATUS_OK;
    if (json_kind(step) != JSON_OBJECT || depth > STEP_DEPTH_MAX)
        return error_set(frame->error, STATUS_CORRUPT,
                         "%s: a post_processor step is %s at depth %d, it must be an object, and "
                         "the limit is %d",
                         frame->path, json_kind_name(json_kind(step)), depth, STEP_DEPTH_MAX);
    TRY(json_member_string(step, "type", frame->path, &name, &bytes, frame->error));
    if (strcmp(name, "ByteLevel") == 0) // moves offsets, which nobody asks for
        return STATUS_OK;
    if (strcmp(name, "TemplateProcessing") == 0)
        return template_read(frame, step);
    if (strcmp(name, "RobertaProcessing") == 0 || strcmp(name, "BertProcessing") == 0) {
        TRY(pair_add(frame, step, "cls", false));
        return pair_add(frame, step, "sep", true);
    }
    const struct json *members = json_get(step, "processors");
    if (strcmp(name, "Sequence") != 0 || members == NULL || json_kind(members) != JSON_ARRAY)
        return error_set(frame->error, STATUS_UNSUPPORTED,
                         "%s: the post_processor step '%.40s' is not known, Baton has: Sequence "
                         "ByteLevel TemplateProcessing RobertaProcessing BertProcessing",
                         frame->path, name);
    for (size_t i = 0; i < json_count(members); i++)
        TRY(step_read(frame, json_at(members, i), depth + 1));
    return STATUS_OK;
}

enum status tokenizer_json_template(struct text *text, const struct json *step, const char *path,
                                    struct error *error)
{
    struct frame frame = {.text = text, .path = path, .error = error, .first = -1};
    TRY(step_read(&frame, step, 0));
    text->info.bos = frame.first;
    text->info.add_bos = frame.before_count > 0;
    /* An encoder's habit; a prompt is to be continued, not closed. */
    if (frame.before_count > 1 || frame.behind_count > 0)
        LOG_WARN("%s puts %zu tokens before a text and %zu behind it, of which Baton uses the "
                 "first one",
                 path, frame.before_count, frame.behind_count);
    return STATUS_OK;
}
