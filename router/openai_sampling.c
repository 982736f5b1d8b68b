#include "router/openai_sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "router/openai_fields.h"

static enum status read_draw(const struct json *body, struct openai_sampling *out,
                             struct openai_error *error)
{
    double temperature = 1, top_p = 1, min_p = 0;
    int64_t top_k = 0;
    TRY(field_number(body, "temperature", 0, false, 2, &temperature, error));
    TRY(field_number(body, "top_p", 0, true, 1, &top_p, error));
    TRY(field_number(body, "min_p", 0, false, 1, &min_p, error));
    TRY(field_int(body, "top_k", -1, INT32_MAX, &top_k, error));
    out->temperature = (float)temperature;
    out->top_p = fmaxf((float)top_p, FLT_MIN); /* what is above 0 stays above it */
    out->min_p = (float)min_p;
    out->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    int64_t seed = 0;
    TRY(field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, error));
    out->seed = field_get(body, "seed") ? (uint64_t)seed : random_os_u64();
    return STATUS_OK;
}

static enum status read_penalties(const struct json *body, struct openai_sampling *out,
                                  struct openai_error *error)
{
    /* Beyond these bounds nothing differs but the risk of an overflow. */
    static const double repetition_min = 1e-6, repetition_max = 1e6;
    double repetition = 1, presence = 0, frequency = 0;
    TRY(field_number(body, "repetition_penalty", repetition_min, false, repetition_max, &repetition,
                     error));
    TRY(field_number(body, "presence_penalty", -2, false, 2, &presence, error));
    TRY(field_number(body, "frequency_penalty", -2, false, 2, &frequency, error));
    out->repetition_penalty = (float)repetition;
    out->presence_penalty = (float)presence;
    out->frequency_penalty = (float)frequency;
    return STATUS_OK;
}

/* "151645" as it stands among JSON keys: digits and nothing else. */
static bool parse_id(const char *key, uint32_t vocab_count, int32_t *id_out)
{
    uint64_t id = 0;
    if (key[0] == '\0' || (key[0] == '0' && key[1] != '\0'))
        return false;
    for (const char *at = key; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        id = id * 10 + (uint64_t)(*at - '0');
        if (id >= vocab_count)
            return false;
    }
    *id_out = (int32_t)id;
    return true;
}

static enum status add_bias(const char *key, const struct json *value, uint32_t vocab_count,
                            struct openai_sampling *out, struct openai_error *error)
{
    static const double bias_max = 100;
    char text[FIELD_VALUE_BYTES];
    int32_t id;
    if (!parse_id(key, vocab_count, &id))
        return openai_error_set(error, 400, "logit_bias", NULL,
                                "`logit_bias` has the key \"%.40s\", but token ids of this model "
                                "go from 0 to %u.",
                                key, vocab_count - 1);
    const bool number = json_kind(value) == JSON_INT || json_kind(value) == JSON_REAL;
    if (!number || !(json_number(value) >= -bias_max && json_number(value) <= bias_max))
        return openai_error_set(error, 400, "logit_bias", NULL,
                                "`logit_bias[%d]` must be a number from -100 to 100, but is %s.",
                                id, field_value_text(value, text));
    out->biases[out->biased.count] = (float)json_number(value);
    token_list_add(&out->biased, id);
    return STATUS_OK;
}

static enum status read_biases(const struct json *body, uint32_t vocab_count,
                               struct openai_sampling *out, struct openai_error *error)
{
    const struct json *map = field_get(body, "logit_bias");
    if (!map)
        return STATUS_OK;
    if (json_kind(map) != JSON_OBJECT)
        return field_wrong(map, "logit_bias", "an object of token ids and numbers", error);
    const size_t count = json_count(map);
    if (count > OPENAI_BIASES_MAX)
        return openai_error_set(error, 400, "logit_bias", NULL,
                                "`logit_bias` holds %zu ids; the limit is %d.", count,
                                OPENAI_BIASES_MAX);
    if (count == 0)
        return STATUS_OK;
    out->biases = calloc(count, sizeof *out->biases);
    CHECK(out->biases != NULL);
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    while (json_next(map, &cursor, &key, &value))
        TRY(add_bias(key, value, vocab_count, out, error));
    return STATUS_OK;
}

static enum status read_allowed(const struct json *body, uint32_t vocab_count,
                                struct openai_sampling *out, struct openai_error *error)
{
    if (!field_get(body, "allowed_token_ids"))
        return STATUS_OK;
    TRY(field_ids(body, "allowed_token_ids", OPENAI_ALLOWED_IDS_MAX, vocab_count, &out->allowed,
                  error));
    if (out->allowed.count == 0)
        return openai_error_set(error, 400, "allowed_token_ids", NULL,
                                "`allowed_token_ids` is empty, which forbids every token.");
    return STATUS_OK;
}

/* One spelling of a word as a banned sequence; a repeated one adds nothing. */
static enum status ban(const struct text *text, const char *word, size_t bytes,
                       struct openai_sampling *out, struct openai_error *error)
{
    const size_t before = out->banned.count;
    struct error cause;
    const enum status status =
        text_encode(text, word, bytes, false, OPENAI_BANNED_IDS_MAX, &out->banned, &cause);
    if (status == STATUS_LIMIT)
        return openai_error_set(error, 400, "bad_words", NULL,
                                "`bad_words` has more than %d tokens in all spellings.",
                                OPENAI_BANNED_IDS_MAX);
    if (status != STATUS_OK)
        return openai_error_set(error, 400, "bad_words", NULL, "%s", cause.text);
    const size_t length = out->banned.count - before;
    const uint32_t last = out->banned_count == 0 ? 0 : out->banned_lengths[out->banned_count - 1];
    if (length == 0 ||
        (length == last && memcmp(out->banned.ids + before - last, out->banned.ids + before,
                                  length * sizeof *out->banned.ids) == 0)) {
        out->banned.count = before;
        return STATUS_OK;
    }
    CHECK(out->banned_count < OPENAI_BANNED_MAX);
    out->banned_lengths[out->banned_count++] = (uint32_t)length;
    return STATUS_OK;
}

/* At the start of the answer and of a line a word has no space before it, elsewhere it has. */
static enum status add_bad_word(const struct json *value, const struct text *text,
                                struct openai_sampling *out, struct openai_error *error)
{
    if (json_kind(value) != JSON_STRING)
        return field_wrong(value, "bad_words", "an array of strings", error);
    size_t bytes;
    const char *word = json_string(value, &bytes);
    while (bytes > 0 && *word == ' ')
        word++, bytes--;
    if (bytes == 0)
        return openai_error_set(error, 400, "bad_words", NULL,
                                "`bad_words` holds an empty string.");
    struct buffer spaced = {0};
    buffer_add_text(&spaced, " ");
    buffer_add(&spaced, word, bytes);
    enum status status = ban(text, word, bytes, out, error);
    if (status == STATUS_OK)
        status = ban(text, spaced.data, spaced.size, out, error);
    buffer_free(&spaced);
    return status;
}

static enum status read_bad_words(const struct json *body, const struct text *text,
                                  struct openai_sampling *out, struct openai_error *error)
{
    const struct json *list = field_get(body, "bad_words");
    if (!list)
        return STATUS_OK;
    if (json_kind(list) != JSON_ARRAY)
        return field_wrong(list, "bad_words", "an array of strings", error);
    if (json_count(list) > OPENAI_BAD_WORDS_MAX)
        return openai_error_set(error, 400, "bad_words", NULL,
                                "`bad_words` holds %zu words; the limit is %d.", json_count(list),
                                OPENAI_BAD_WORDS_MAX);
    for (size_t i = 0; i < json_count(list); i++)
        TRY(add_bad_word(json_at(list, i), text, out, error));
    return STATUS_OK;
}

enum status openai_sampling_read(const struct json *body, const struct text *text,
                                 struct openai_sampling *out, struct openai_error *error)
{
    const uint32_t vocab_count = text_info(text)->vocab_count;
    TRY(read_draw(body, out, error));
    TRY(read_penalties(body, out, error));
    TRY(read_biases(body, vocab_count, out, error));
    TRY(read_allowed(body, vocab_count, out, error));
    return read_bad_words(body, text, out, error);
}

void openai_sampling_free(struct openai_sampling *sampling)
{
    token_list_free(&sampling->biased);
    token_list_free(&sampling->allowed);
    token_list_free(&sampling->banned);
    free(sampling->biases);
    sampling->biases = NULL;
}

static struct wire_i32s ids_of(const struct token_list *list)
{
    return (struct wire_i32s){.items = list->ids, .count = (uint32_t)list->count};
}

void openai_sampling_tell(const struct openai_sampling *sampling, struct msg_sampling *out)
{
    *out = (struct msg_sampling){
        .temperature = sampling->temperature,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .top_k = sampling->top_k,
        .seed = sampling->seed,
        .repetition_penalty = sampling->repetition_penalty,
        .presence_penalty = sampling->presence_penalty,
        .frequency_penalty = sampling->frequency_penalty,
        .bias_ids = ids_of(&sampling->biased),
        .biases = {sampling->biases, (uint32_t)sampling->biased.count},
        .allowed_ids = ids_of(&sampling->allowed),
        .banned_ids = ids_of(&sampling->banned),
        .banned_lengths = {sampling->banned_lengths, sampling->banned_count},
    };
}
