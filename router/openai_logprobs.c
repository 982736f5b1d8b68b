#include "router/openai_logprobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

/* JSON has no infinity; this is what others send for "impossible". */
static const double LOGPROB_MIN = -9999.0;

/* Of a completion, in the order in which they are told. */
enum { LIST_TOKENS, LIST_LOGPROBS, LIST_TOPS, LIST_OFFSETS };
static const char *const list_names[OPENAI_LOGPROB_LISTS] = {
    [LIST_TOKENS] = "tokens",
    [LIST_LOGPROBS] = "token_logprobs",
    [LIST_TOPS] = "top_logprobs",
    [LIST_OFFSETS] = "text_offset",
};

/* Of an answer or of its prompt. */
struct entry {
    int32_t id;
    float logprob;
    bool unscored; /* the first of a prompt: nothing was before it */
    uint32_t top_count;
    const int32_t *top_ids;
    const float *top_logprobs;
    size_t offset; /* in the text */
};

/* What names and words of tokens depend on. */
struct manner {
    const struct text *text;
    bool ids_as_text;
};

static struct json_writer next_member(struct buffer *list)
{
    struct json_writer writer;
    if (list->size > 0)
        buffer_add_char(list, ',');
    json_writer_init(&writer, list);
    return writer;
}

static void put_logprob(struct json_writer *writer, float logprob)
{
    json_put_number(writer, logprob < LOGPROB_MIN ? LOGPROB_MIN : logprob, 9);
}

/* ---- of a chat ---- */

static void put_bytes(struct json_writer *writer, const char *data, size_t bytes)
{
    json_open_array(writer);
    for (size_t i = 0; i < bytes; i++)
        json_put_int(writer, (unsigned char)data[i]);
    json_close_array(writer);
}

static void put_token_name(struct json_writer *writer, int32_t id)
{
    char name[32];
    snprintf(name, sizeof name, "token_id:%" PRId32, id);
    json_put_text(writer, name);
}

static void put_chat_token(struct json_writer *writer, const struct manner *manner, int32_t id,
                           float logprob)
{
    size_t bytes;
    const char *data = text_token_bytes(manner->text, id, &bytes);
    json_key(writer, "token");
    if (manner->ids_as_text)
        put_token_name(writer, id);
    else
        json_put_string(writer, data, bytes);
    json_key(writer, "logprob");
    put_logprob(writer, logprob);
    json_key(writer, "bytes");
    put_bytes(writer, data, bytes);
}

static void add_to_chat(struct openai_logprobs *logprobs, const struct manner *manner,
                        const struct entry *entry)
{
    struct json_writer writer = next_member(&logprobs->lists[0]);
    json_open_object(&writer);
    put_chat_token(&writer, manner, entry->id, entry->logprob);
    json_key(&writer, "top_logprobs");
    json_open_array(&writer);
    for (uint32_t k = 0; k < entry->top_count; k++) {
        json_open_object(&writer);
        put_chat_token(&writer, manner, entry->top_ids[k], entry->top_logprobs[k]);
        json_close_object(&writer);
    }
    json_close_array(&writer);
    json_close_object(&writer);
}

/* ---- of a completion ---- */

void openai_token_text(const struct text *text, int32_t id, struct buffer *out)
{
    size_t bytes;
    const char *data = text_token_bytes(text, id, &bytes);
    buffer_clear(out);
    if (utf8_valid(data, bytes) && !(bytes > 0 && memchr(data, 0, bytes))) {
        buffer_add(out, data, bytes);
        return;
    }
    buffer_add_text(out, "bytes:");
    for (size_t i = 0; i < bytes; i++)
        buffer_printf(out, "\\x%02X", (unsigned char)data[i]);
}

static void name_token(const struct manner *manner, int32_t id, struct buffer *out)
{
    if (!manner->ids_as_text) {
        openai_token_text(manner->text, id, out);
        return;
    }
    buffer_clear(out);
    buffer_printf(out, "token_id:%" PRId32, id);
}

static void put_top_map(struct json_writer *writer, const struct manner *manner,
                        const struct entry *entry, struct buffer *scratch)
{
    bool own_listed = false;
    json_open_object(writer);
    for (uint32_t k = 0; k < entry->top_count; k++) {
        name_token(manner, entry->top_ids[k], scratch);
        json_key(writer, scratch->data);
        put_logprob(writer, entry->top_logprobs[k]);
        own_listed = own_listed || entry->top_ids[k] == entry->id;
    }
    if (!own_listed) {
        name_token(manner, entry->id, scratch);
        json_key(writer, scratch->data);
        put_logprob(writer, entry->logprob);
    }
    json_close_object(writer);
}

static void add_to_completion(struct openai_logprobs *logprobs, const struct manner *manner,
                              const struct entry *entry, struct buffer *scratch)
{
    struct json_writer writer = next_member(&logprobs->lists[LIST_TOKENS]);
    name_token(manner, entry->id, scratch);
    json_put_string(&writer, scratch->data, scratch->size);
    writer = next_member(&logprobs->lists[LIST_LOGPROBS]);
    if (entry->unscored)
        json_put_null(&writer);
    else
        put_logprob(&writer, entry->logprob);
    writer = next_member(&logprobs->lists[LIST_TOPS]);
    if (entry->unscored)
        json_put_null(&writer);
    else
        put_top_map(&writer, manner, entry, scratch);
    writer = next_member(&logprobs->lists[LIST_OFFSETS]);
    json_put_u64(&writer, entry->offset);
}

/* ---- both ---- */

static void add(struct openai_logprobs *logprobs, const struct text *text,
                const struct openai_request *request, const struct entry *entry,
                struct buffer *scratch)
{
    const struct manner manner = {text, request->token_ids_as_text};
    logprobs->count++;
    if (!request->logprobs)
        return;
    if (request->endpoint == OPENAI_CHAT)
        add_to_chat(logprobs, &manner, entry);
    else
        add_to_completion(logprobs, &manner, entry, scratch);
}

void openai_logprobs_take(struct openai_logprobs *logprobs, struct answer *answer)
{
    for (size_t i = 0; i < answer->ready_count; i++) {
        const struct answer_token *token = &answer->tokens[i];
        const struct entry entry = {.id = token->id,
                                    .logprob = token->logprob,
                                    .top_count = token->top_count,
                                    .top_ids = token->top_ids,
                                    .top_logprobs = token->top_logprobs,
                                    .offset = token->start};
        add(logprobs, answer->text, answer->request, &entry, &answer->fresh);
        if (answer->request->return_token_ids) {
            struct json_writer writer = next_member(&logprobs->ids);
            json_put_int(&writer, token->id);
        }
    }
    answer_take_tokens(answer);
}

void openai_logprobs_clear(struct openai_logprobs *logprobs)
{
    logprobs->count = 0;
    buffer_clear(&logprobs->ids);
    for (uint32_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buffer_clear(&logprobs->lists[i]);
}

void openai_logprobs_free(struct openai_logprobs *logprobs)
{
    buffer_free(&logprobs->ids);
    for (uint32_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buffer_free(&logprobs->lists[i]);
}

void openai_logprobs_put(struct json_writer *writer, enum openai_endpoint endpoint,
                         const struct openai_logprobs *echoed,
                         const struct openai_logprobs *logprobs)
{
    const uint32_t count = endpoint == OPENAI_CHAT ? 1 : OPENAI_LOGPROB_LISTS;
    json_open_object(writer);
    for (uint32_t i = 0; i < count; i++) {
        json_key(writer, endpoint == OPENAI_CHAT ? "content" : list_names[i]);
        json_open_array(writer);
        if (echoed)
            json_put_written(writer, &echoed->lists[i]);
        json_put_written(writer, &logprobs->lists[i]);
        json_close_array(writer);
    }
    json_close_object(writer);
}

/* ---- of a prompt ---- */

static void put_score(struct json_writer *writer, const struct text *text, int32_t id,
                      float logprob, uint32_t rank, struct buffer *scratch)
{
    char key[16];
    snprintf(key, sizeof key, "%" PRId32, id);
    json_key(writer, key);
    json_open_object(writer);
    json_key(writer, "logprob");
    put_logprob(writer, logprob);
    json_key(writer, "rank");
    json_put_u64(writer, rank);
    json_key(writer, "decoded_token");
    openai_token_text(text, id, scratch);
    json_put_string(writer, scratch->data, scratch->size);
    json_close_object(writer);
}

/* In vLLM's shape: by ids, its own first. */
static void add_beside(struct openai_scores *scores, const struct entry *entry, uint32_t rank)
{
    const uint32_t wanted = scores->request->prompt_logprobs;
    struct json_writer writer = next_member(&scores->beside);
    if (entry->unscored) {
        json_put_null(&writer);
        return;
    }
    json_open_object(&writer);
    put_score(&writer, scores->text, entry->id, entry->logprob, rank, &scores->fresh);
    for (uint32_t k = 0; k < entry->top_count && k < wanted; k++) {
        if (entry->top_ids[k] != entry->id)
            put_score(&writer, scores->text, entry->top_ids[k], entry->top_logprobs[k], k + 1,
                      &scores->fresh);
    }
    json_close_object(&writer);
}

static void add_echoed(struct openai_scores *scores, struct entry entry)
{
    const uint32_t wanted = scores->request->top_logprobs;
    entry.top_count = entry.top_count < wanted ? entry.top_count : wanted;
    entry.offset = scores->echo_bytes;
    add(&scores->echoed, scores->text, scores->request, &entry, &scores->fresh);
    buffer_clear(&scores->fresh);
    text_stream_push(&scores->stream, entry.id, &scores->fresh);
    scores->echo_bytes += scores->fresh.size;
}

static void add_entry(struct openai_scores *scores, const struct entry *entry, uint32_t rank)
{
    if (scores->request->prompt_scores)
        add_beside(scores, entry, rank);
    if (scores->request->echo_scores)
        add_echoed(scores, *entry);
}

void openai_scores_init(struct openai_scores *scores, const struct text *text,
                        const struct openai_request *request)
{
    *scores = (struct openai_scores){.request = request, .text = text};
    text_stream_init_whole(&scores->stream, text, request->skip_special);
    const struct entry first = {.id = request->prompt.ids[0], .unscored = true};
    add_entry(scores, &first, 0);
}

void openai_scores_free(struct openai_scores *scores)
{
    openai_logprobs_free(&scores->echoed);
    buffer_free(&scores->beside);
    buffer_free(&scores->fresh);
}

void openai_scores_add(struct openai_scores *scores, uint32_t position, float logprob,
                       uint32_t rank, uint32_t top_count, const int32_t *top_ids,
                       const float *top_logprobs)
{
    CHECK(position > 0 && position < scores->request->prompt.count);
    const struct entry entry = {.id = scores->request->prompt.ids[position],
                                .logprob = logprob,
                                .top_count = top_count,
                                .top_ids = top_ids,
                                .top_logprobs = top_logprobs};
    add_entry(scores, &entry, rank);
}
