/* Grammars at work, for tests in other languages. A line in is a JSON object:
 *
 *   {"kind":0,"source":"…","seed":1,"walks":3,"budget":80,"texts":["…"]}
 *
 * and so is a line out: {"status":"INVALID","error":"…"} for a source that is refused, else
 * {"answers":["…"],"whole":[true],"fits":[false]}: `walks` answers of tokens picked at random from
 * the masks, whether each was whole when its budget ran out, and whether each text fits. At every
 * step the mask is compared with what the matcher accepts, id by id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "model/text/grammar/grammar.h"
#include "tests/model/grammar/json_vocabulary.h"

enum { CACHE_BYTES = 1 << 20 };

struct filter {
    struct text *text;
    struct grammar_tokens *tokens;
    struct grammar_matcher *matcher, *copy;
    uint32_t *mask;
    uint64_t random;
};

static uint32_t pick(struct filter *filter, uint32_t count)
{
    filter->random = filter->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((filter->random >> 33) % count);
}

static bool allowed(const struct filter *filter, uint32_t id)
{
    return (filter->mask[id / 32] >> id % 32 & 1) != 0;
}

/* The mask without a limit is what the matcher accepts. */
static void mask_check(struct filter *filter)
{
    const int32_t end = json_vocabulary_end(filter->text);
    const enum status status = grammar_matcher_mask(filter->matcher, 0, &end, 1, filter->mask);
    CHECK(status == STATUS_OK);
    for (uint32_t id = 0; id < text_info(filter->text)->vocab_count; id++) {
        grammar_matcher_copy(filter->copy, filter->matcher);
        const bool fits = (int32_t)id == end ? grammar_matcher_can_end(filter->copy)
                                             : grammar_matcher_accept(filter->copy, (int32_t)id);
        if (fits != allowed(filter, id)) {
            fprintf(stderr, "token %u: allowed %d, accepted %d\n", id, allowed(filter, id), fits);
            CHECK(!"a mask is not what the matcher accepts");
        }
    }
}

/* One answer; true when it is whole. */
static bool walk(struct filter *filter, struct grammar_program *program, uint32_t budget,
                 struct buffer *out)
{
    const int32_t end = json_vocabulary_end(filter->text);
    const uint32_t vocab_count = text_info(filter->text)->vocab_count;
    grammar_matcher_init(filter->matcher, program);
    for (uint32_t left = budget; left > 0; left--) {
        mask_check(filter);
        CHECK(grammar_matcher_mask(filter->matcher, left, &end, 1, filter->mask) == STATUS_OK);
        uint32_t count = 0;
        uint32_t chosen = 0;
        for (uint32_t id = 0; id < vocab_count; id++)
            if (allowed(filter, id) && pick(filter, ++count) == 0)
                chosen = id;
        if ((int32_t)chosen == end)
            return true;
        CHECK(grammar_matcher_accept(filter->matcher, (int32_t)chosen));
        size_t bytes;
        const char *token = text_token_bytes(filter->text, (int32_t)chosen, &bytes);
        buffer_add(out, token, bytes);
    }
    return grammar_matcher_can_end(filter->matcher);
}

/* By tokens of one byte each, which come first in this vocabulary. */
static bool fits(struct filter *filter, struct grammar_program *program, const char *text,
                 size_t bytes)
{
    grammar_matcher_init(filter->matcher, program);
    for (size_t i = 0; i < bytes; i++)
        if (!grammar_matcher_accept(filter->matcher, (uint8_t)text[i]))
            return false;
    return grammar_matcher_can_end(filter->matcher);
}

static int64_t number_of(const struct json *request, const char *key)
{
    const struct json *value = json_get(request, key);
    return value != NULL ? json_int(value) : 0;
}

static void answer(struct filter *filter, const struct json *request,
                   struct grammar_program *program, struct json_writer *writer)
{
    const uint32_t walks = (uint32_t)number_of(request, "walks");
    uint32_t budget = (uint32_t)number_of(request, "budget");
    const struct json *texts = json_get(request, "texts");
    bool *whole = calloc(walks + 1, sizeof *whole);
    CHECK(whole != NULL);
    filter->random = (uint64_t)number_of(request, "seed");
    grammar_matcher_init(filter->matcher, program);
    const uint32_t rest = grammar_matcher_rest(filter->matcher);
    json_key(writer, "rest");
    json_put_u64(writer, rest);
    json_key(writer, "answers");
    json_open_array(writer);
    for (uint32_t i = 0; i < walks; i++) {
        struct buffer out = {0};
        /* The first answers have just enough tokens, with and without one for the end. */
        whole[i] = walk(filter, program, i < 3 ? rest + i + (rest + i == 0) : rest + budget, &out);
        json_put_string(writer, out.data, out.size);
        buffer_free(&out);
    }
    json_close_array(writer);
    json_key(writer, "whole");
    json_open_array(writer);
    for (uint32_t i = 0; i < walks; i++)
        json_put_bool(writer, whole[i]);
    json_close_array(writer);
    json_key(writer, "fits");
    json_open_array(writer);
    for (size_t i = 0; texts != NULL && i < json_count(texts); i++) {
        size_t bytes;
        const char *text = json_string(json_at(texts, i), &bytes);
        json_put_bool(writer, fits(filter, program, text, bytes));
    }
    json_close_array(writer);
    free(whole);
}

static void line_answer(struct filter *filter, const char *line, size_t bytes)
{
    struct json *request;
    struct error error = {0};
    struct buffer out = {0};
    struct json_writer writer;
    CHECK(json_parse(line, bytes, &request, &error) == STATUS_OK);
    size_t source_bytes;
    const char *source = json_string(json_get(request, "source"), &source_bytes);
    struct grammar *grammar;
    struct grammar_program *program = NULL;
    enum status status = grammar_compile((enum grammar_kind)number_of(request, "kind"), source,
                                         source_bytes, &grammar, &error);
    if (status == STATUS_OK)
        status = grammar_program_create(grammar, filter->tokens, CACHE_BYTES, &program, &error);
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    if (status == STATUS_OK) {
        answer(filter, request, program, &writer);
    } else {
        json_key(&writer, "status");
        json_put_text(&writer, status_name(status));
        json_key(&writer, "error");
        json_put_text(&writer, error.text);
    }
    json_close_object(&writer);
    puts(out.data);
    fflush(stdout);
    grammar_program_destroy(program);
    buffer_free(&out);
    json_free(request);
}

int main(void)
{
    struct filter filter = {.text = json_vocabulary_open(),
                            .matcher = grammar_matcher_create(),
                            .copy = grammar_matcher_create()};
    filter.tokens = grammar_tokens_create(filter.text);
    filter.mask = calloc(grammar_mask_words(filter.tokens), sizeof *filter.mask);
    CHECK(filter.mask != NULL);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    while ((bytes = getline(&line, &capacity, stdin)) > 0)
        line_answer(&filter, line, (size_t)bytes);
    free(line);
    free(filter.mask);
    grammar_tokens_destroy(filter.tokens);
    grammar_matcher_destroy(filter.matcher);
    grammar_matcher_destroy(filter.copy);
    text_close(filter.text);
    return 0;
}
