#include "ops/baton/make_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/text/byte_alphabet.h"

/* In order of preference, each as its two parts; a part is a byte or the result of an earlier row.
 */
static const char *const merges[][2] = {
    {" ", "t"},    {"h", "e"},  {"i", "n"},   {" ", "a"},  {"r", "e"},   {"o", "n"},  {" t", "he"},
    {"e", "r"},    {" ", "s"},  {"a", "t"},   {" ", "w"},  {" ", "o"},   {"e", "n"},  {"i", "t"},
    {"o", "r"},    {"a", "n"},  {"e", "s"},   {"i", "s"},  {" ", "c"},   {" ", "b"},  {" ", "f"},
    {" ", "p"},    {" ", "m"},  {" ", "h"},   {"e", "d"},  {"n", "d"},   {"in", "g"}, {"o", "u"},
    {"a", "l"},    {"a", "r"},  {" a", "nd"}, {" ", "in"}, {" t", "o"},  {" o", "f"}, {"l", "l"},
    {"s", "t"},    {"l", "e"},  {"r", "o"},   {"i", "c"},  {"v", "e"},   {"i", "on"}, {" ", "d"},
    {" ", "l"},    {" ", "n"},  {"o", "m"},   {"u", "r"},  {"c", "h"},   {"t", "h"},  {"en", "t"},
    {"at", "ion"}, {" b", "e"}, {" h", "e"},  {" w", "h"}, {"l", "y"},   {"i", "d"},  {" ", "is"},
    {" ", "g"},    {"a", "y"},  {"u", "t"},   {" ", "y"},  {" y", "ou"}, {" ", " "},  {"  ", "  "},
    {"\n", "\n"},  {".", "\n"},
};

enum { BYTE_COUNT = 256, TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

static const char *const control_tokens[MAKE_CONTROL_COUNT] = {
    [MAKE_ID_END_OF_TEXT] = "<|endoftext|>",
    [MAKE_ID_TURN_START] = "<|im_start|>",
    [MAKE_ID_TURN_END] = "<|im_end|>",
};

static const char chat_template[] =
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a small model with random weights.<|im_end|>\n' }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* Strings one after another in one buffer, as the writer wants them: pointers and lengths. */
struct string_list {
    struct buffer text;
    size_t *starts;
    uint32_t *bytes;
    size_t count, capacity;
};

static void list_create(struct string_list *list, size_t capacity)
{
    *list = (struct string_list){.capacity = capacity};
    list->starts = calloc(capacity, sizeof *list->starts);
    list->bytes = calloc(capacity, sizeof *list->bytes);
    CHECK(list->starts != NULL && list->bytes != NULL);
}

/* What is added to list->text from here on belongs to a new string. */
static void list_begin(struct string_list *list)
{
    CHECK(list->count < list->capacity);
    list->starts[list->count++] = list->text.size;
}

static void list_write(struct string_list *list, struct gguf_writer *writer, const char *key)
{
    const char **values = calloc(list->count + 1, sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < list->count; i++) {
        const size_t end = i + 1 < list->count ? list->starts[i + 1] : list->text.size;
        values[i] = list->text.data + list->starts[i];
        list->bytes[i] = (uint32_t)(end - list->starts[i]);
    }
    gguf_writer_put_strings(writer, key, values, list->bytes, list->count);
    free(values);
    free(list->starts);
    free(list->bytes);
    buffer_free(&list->text);
}

static void alphabet_add(struct buffer *out, const char *bytes)
{
    for (; *bytes != '\0'; bytes++)
        byte_alphabet_add((uint8_t)*bytes, out);
}

uint32_t make_vocabulary_count(void)
{
    return MAKE_CONTROL_COUNT + BYTE_COUNT + (uint32_t)ARRAY_COUNT(merges);
}

static void tokens_write(struct gguf_writer *writer, uint32_t row_count)
{
    struct string_list tokens;
    list_create(&tokens, row_count);
    for (size_t i = 0; i < MAKE_CONTROL_COUNT; i++) {
        list_begin(&tokens);
        buffer_add_text(&tokens.text, control_tokens[i]);
    }
    for (int byte = 0; byte < BYTE_COUNT; byte++) {
        list_begin(&tokens);
        byte_alphabet_add((uint8_t)byte, &tokens.text);
    }
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++) {
        list_begin(&tokens);
        alphabet_add(&tokens.text, merges[i][0]);
        alphabet_add(&tokens.text, merges[i][1]);
    }
    while (tokens.count < row_count) {
        list_begin(&tokens);
        buffer_printf(&tokens.text, "[PAD%zu]", tokens.count - 1);
    }
    list_write(&tokens, writer, "tokenizer.ggml.tokens");
}

static void types_write(struct gguf_writer *writer, uint32_t row_count)
{
    int32_t *types = calloc(row_count, sizeof *types);
    CHECK(types != NULL);
    for (uint32_t i = 0; i < row_count; i++)
        types[i] = i < MAKE_CONTROL_COUNT        ? TOKEN_CONTROL
                   : i < make_vocabulary_count() ? TOKEN_NORMAL
                                                 : TOKEN_UNUSED;
    gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", types, row_count);
    free(types);
}

static void merges_write(struct gguf_writer *writer)
{
    struct string_list lines;
    list_create(&lines, ARRAY_COUNT(merges));
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++) {
        list_begin(&lines);
        alphabet_add(&lines.text, merges[i][0]);
        buffer_add_char(&lines.text, ' ');
        alphabet_add(&lines.text, merges[i][1]);
    }
    list_write(&lines, writer, "tokenizer.ggml.merges");
}

void make_vocabulary_write(struct gguf_writer *writer, const char *pre, uint32_t row_count)
{
    CHECK(row_count >= make_vocabulary_count());
    gguf_writer_put_string(writer, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_put_string(writer, "tokenizer.ggml.pre", pre, strlen(pre));
    tokens_write(writer, row_count);
    types_write(writer, row_count);
    merges_write(writer);
    gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", MAKE_ID_TURN_START);
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", MAKE_ID_TURN_END);
    gguf_writer_put_u32(writer, "tokenizer.ggml.padding_token_id", MAKE_ID_END_OF_TEXT);
    gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_put_string(writer, "tokenizer.chat_template", chat_template,
                           sizeof chat_template - 1);
}
