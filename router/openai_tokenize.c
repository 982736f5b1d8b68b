#include "router/openai_tokenize.h"

#include "base/json.h"
#include "base/utf8.h"
#include "router/openai_fields.h"
#include "router/openai_prompt.h"
#include "router/openai_response.h"

static enum status parse_object(const char *body, size_t bytes, struct json **root_out,
                                struct openai_error *error)
{
    TRY(openai_body_parse(body, bytes, root_out, error));
    if (json_kind(*root_out) == JSON_OBJECT)
        return STATUS_OK;
    json_free(*root_out);
    return openai_error_set(error, 400, NULL, NULL, "The request body must be a JSON object.");
}

/* llama-server's form: an array of ids, or of {id, piece}. A piece that is no text is an array of
 * its bytes. */
static void put_piece(struct json_writer *writer, const struct text *text, int32_t id)
{
    size_t bytes;
    const char *data = text_token_bytes(text, id, &bytes);
    json_open_object(writer);
    json_key(writer, "id");
    json_put_int(writer, id);
    json_key(writer, "piece");
    if (utf8_valid(data, bytes)) {
        json_put_string(writer, data, bytes);
    } else {
        json_open_array(writer);
        for (size_t i = 0; i < bytes; i++)
            json_put_u64(writer, (unsigned char)data[i]);
        json_close_array(writer);
    }
    json_close_object(writer);
}

static enum status write_content(const struct json *body, const struct openai_rules *rules,
                                 struct token_list *ids, struct buffer *out,
                                 struct openai_error *error)
{
    bool pieces = false;
    TRY(openai_content_read(body, rules, ids, error));
    TRY(field_bool(body, "with_pieces", &pieces, error));
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "tokens");
    json_open_array(&writer);
    for (size_t i = 0; i < ids->count; i++) {
        if (pieces)
            put_piece(&writer, rules->text, ids->ids[i]);
        else
            json_put_int(&writer, ids->ids[i]);
    }
    json_close_array(&writer);
    json_close_object(&writer);
    return STATUS_OK;
}

static void put_token_strings(struct json_writer *writer, const struct text *text,
                              const struct token_list *ids)
{
    struct buffer scratch = {0};
    json_open_array(writer);
    for (size_t i = 0; i < ids->count; i++) {
        openai_token_text(text, ids->ids[i], &scratch);
        json_put_string(writer, scratch.data, scratch.size);
    }
    json_close_array(writer);
    buffer_free(&scratch);
}

/* Tools are shown as in a chat; what they ask of the answer does not matter here. */
static enum status read_messages(const struct json *body, const struct openai_rules *rules,
                                 struct token_list *ids, struct openai_error *error)
{
    struct openai_tools tools;
    struct openai_grammar grammar = {0};
    const struct json *list;
    enum status status =
        openai_tools_read(body, &rules->tools, rules->text, &tools, &list, &grammar, error);
    if (status == STATUS_OK)
        status = openai_messages_read(body, list, rules, ids, NULL, error);
    openai_tools_free(&tools);
    buffer_free(&grammar.source);
    return status;
}

static enum status write_prompt(const struct json *body, const struct openai_rules *rules,
                                struct token_list *ids, struct buffer *out,
                                struct openai_error *error)
{
    bool strings = false;
    const struct json *prompt = field_get(body, "prompt");
    if (prompt && json_kind(prompt) != JSON_STRING)
        return field_wrong(prompt, "prompt", "a string", error);
    TRY(field_bool(body, "return_token_strs", &strings, error));
    if (prompt)
        TRY(openai_text_read(body, rules, ids, error));
    else
        TRY(read_messages(body, rules, ids, error));
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "count");
    json_put_u64(&writer, ids->count);
    json_key(&writer, "max_model_len");
    json_put_u64(&writer, rules->context_tokens);
    json_key(&writer, "tokens");
    json_open_array(&writer);
    for (size_t i = 0; i < ids->count; i++)
        json_put_int(&writer, ids->ids[i]);
    json_close_array(&writer);
    json_key(&writer, "token_strs");
    if (strings)
        put_token_strings(&writer, rules->text, ids);
    else
        json_put_null(&writer);
    json_close_object(&writer);
    return STATUS_OK;
}

static enum status tokenize(const struct json *body, const struct openai_rules *rules,
                            struct buffer *out, struct openai_error *error)
{
    TRY(openai_model_find(body, rules, &rules, error));
    const struct json *content = field_get(body, "content");
    const int forms = (field_get(body, "prompt") != NULL) + (field_get(body, "messages") != NULL) +
                      (content != NULL);
    if (forms != 1)
        return openai_error_set(error, 400, "prompt", NULL,
                                "Exactly one of `prompt`, `messages` and `content` must be set, "
                                "but %d are.",
                                forms);
    struct token_list ids = {0};
    const enum status status = content ? write_content(body, rules, &ids, out, error)
                                       : write_prompt(body, rules, &ids, out, error);
    token_list_free(&ids);
    return status;
}

enum status openai_tokenize(const char *body, size_t bytes, const struct openai_rules *rules,
                            struct buffer *out, struct openai_error *error)
{
    struct json *root;
    TRY(parse_object(body, bytes, &root, error));
    const enum status status = tokenize(root, rules, out, error);
    json_free(root);
    return status;
}

static enum status detokenize(const struct json *body, const struct openai_rules *rules,
                              struct buffer *out, struct openai_error *error)
{
    TRY(openai_model_find(body, rules, &rules, error));
    if (!field_get(body, "tokens"))
        return openai_error_set(error, 400, "tokens", NULL, "`tokens` is missing.");
    struct token_list ids = {0};
    const enum status status = field_ids(body, "tokens", OPENAI_PROMPT_TOKENS_MAX,
                                         text_info(rules->text)->vocab_count, &ids, error);
    if (status == STATUS_OK) {
        struct buffer text = {0};
        text_decode(rules->text, ids.ids, ids.count, &text);
        struct json_writer writer;
        json_writer_init(&writer, out);
        json_open_object(&writer);
        json_key(&writer, "prompt");
        json_put_string(&writer, text.data ? text.data : "", text.size);
        json_close_object(&writer);
        buffer_free(&text);
    }
    token_list_free(&ids);
    return status;
}

enum status openai_detokenize(const char *body, size_t bytes, const struct openai_rules *rules,
                              struct buffer *out, struct openai_error *error)
{
    struct json *root;
    TRY(parse_object(body, bytes, &root, error));
    const enum status status = detokenize(root, rules, out, error);
    json_free(root);
    return status;
}
