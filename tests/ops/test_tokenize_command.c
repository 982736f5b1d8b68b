/* `baton tokenize`, `detokenize` and `make-model` as a user meets them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "model/format/gguf.h"
#include "ops/baton/commands.h"
#include "tests/model/net/tiny_model.h"

enum { ARGUMENTS_MAX = 12 };

/* What a command wrote; filled by the last call. */
static struct buffer out_text, error_text;

static void file_read(const char *path, struct buffer *bytes)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    buffer_clear(bytes);
    for (int c; (c = fgetc(file)) != EOF;)
        buffer_add_char(bytes, (char)c);
    buffer_add(bytes, "", 0);
    fclose(file);
    unlink(path);
}

/* Runs a command on `input`; arguments end with NULL. Returns its exit code. */
static int call(int (*command)(int, char **), const char *input, size_t input_bytes,
                const char *const *arguments)
{
    char in[] = "/tmp/baton-in-XXXXXX";
    char out[] = "/tmp/baton-out-XXXXXX";
    char error[] = "/tmp/baton-err-XXXXXX";
    const int fd = mkstemp(in);
    CHECK(write(fd, input, input_bytes) == (ssize_t)input_bytes);
    close(fd);
    close(mkstemp(out));
    close(mkstemp(error));
    CHECK(freopen(in, "r", stdin) && freopen(out, "w", stdout) && freopen(error, "w", stderr));
    char *argv[ARGUMENTS_MAX] = {(char *)"baton"};
    int argc = 1;
    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = (char *)arguments[argc - 1];
    const int code = command(argc, argv);
    fflush(stdout);
    fflush(stderr);
    unlink(in);
    file_read(out, &out_text);
    file_read(error, &error_text);
    return code;
}

#define CALL(command, input, ...)                                                                  \
    call(command, input, sizeof input - 1, (const char *const[]){__VA_ARGS__, NULL})

static const char *tiny_path(const char *arch)
{
    struct buffer bytes = tiny_model_bytes(arch, "q4_0", NULL);
    const char *path = tiny_model_write(&bytes);
    buffer_free(&bytes);
    return path;
}

Test(tokenize_command, text_goes_to_ids_and_back)
{
    const char *const arches[] = {"llama", "qwen2"};
    for (size_t i = 0; i < 2; i++) {
        const char *model = tiny_path(arches[i]);
        static const char text[] =
            "The other day\n\nat 12:30 a\0b \xff \xc3\xa9\xf0\x9f\x98\x80 <|im_end|>";
        cr_assert_eq(CALL(command_tokenize, text, "--model", model), 0, "%s", error_text.data);
        cr_assert_eq(out_text.data[0], '[');
        cr_assert_eq(out_text.data[out_text.size - 1], '\n');
        struct buffer ids = {0};
        buffer_add(&ids, out_text.data, out_text.size);
        const char *const arguments[] = {"--model", model, NULL};
        cr_assert_eq(call(command_detokenize, ids.data, ids.size, arguments), 0);
        cr_assert_eq(out_text.size, sizeof text - 1);
        cr_assert_eq(memcmp(out_text.data, text, sizeof text - 1), 0);
        buffer_free(&ids);
        tiny_model_unlink();
    }
}

Test(tokenize_command, special_tokens_only_on_request)
{
    const char *model = tiny_path("llama");
    cr_assert_eq(CALL(command_tokenize, "<|im_end|>", "--model", model, "--special"), 0);
    cr_assert_str_eq(out_text.data, "[2]\n");
    cr_assert_eq(CALL(command_tokenize, "<|im_end|>", "--model", model), 0);
    cr_assert_null(strstr(out_text.data, "[2]"));
    cr_assert_eq(CALL(command_tokenize, "", "--model", model), 0);
    cr_assert_str_eq(out_text.data, "[]\n");
    tiny_model_unlink();
}

Test(tokenize_command, bad_ids_are_named)
{
    static const struct {
        const char *input, *words;
    } cases[] = {
        {"[1, 2, 100000]", "item 2 is 100000, ids go from 0 to"},
        {"[-1]", "item 0 is -1, ids go from 0 to"},
        {"[5279552648203111001]", "item 0 is 5279552648203111001"},
        {"[1, \"2\"]", "item 1 is a string, an id is needed"},
        {"[1.5]", "item 0 is "},
        {"{}", "an array of ids is needed"},
        {"[1", "line 1"},
        {"", "line 1"},
    };
    const char *model = tiny_path("llama");
    const char *const arguments[] = {"--model", model, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(call(command_detokenize, cases[i].input, strlen(cases[i].input), arguments),
                     1);
        cr_assert_not_null(strstr(error_text.data, cases[i].words), "wanted '%s', got: %s",
                           cases[i].words, error_text.data);
        cr_assert_eq(out_text.size, 0);
    }
    tiny_model_unlink();
}

Test(tokenize_command, a_missing_model_is_said)
{
    unsetenv("BATON_MODEL");
    cr_assert_eq(call(command_tokenize, "", 0, (const char *const[]){NULL}), 2);
    cr_assert_not_null(strstr(error_text.data, "--model PATH is needed"));
    cr_assert_eq(CALL(command_tokenize, "", "--model", "/no/such.gguf"), 1);
    cr_assert_not_null(strstr(error_text.data, "/no/such.gguf"));
}

Test(make_model_command, the_same_seed_gives_the_same_file)
{
    const struct buffer one = tiny_model_bytes("llama", "q8_0", "--seed=5");
    const struct buffer two = tiny_model_bytes("llama", "q8_0", "--seed=5");
    const struct buffer other = tiny_model_bytes("llama", "q8_0", "--seed=6");
    cr_assert(one.size == two.size && memcmp(one.data, two.data, one.size) == 0);
    cr_assert(one.size == other.size && memcmp(one.data, other.data, one.size) != 0);
}

Test(make_model_command, shapes_and_padding_are_as_asked)
{
    const struct buffer bytes = tiny_model_bytes("qwen2", "f32", "--vocab=1000");
    const char *path = tiny_model_write(&bytes);
    struct gguf *file;
    struct error error;
    cr_assert_eq(gguf_open(path, &file, &error), STATUS_OK, "%s", error.text);
    const struct tensor_view *embedding = gguf_tensor_find(file, "token_embd.weight");
    cr_assert(embedding->dimensions[0] == 128 && embedding->dimensions[1] == 1000);
    cr_assert_not_null(gguf_tensor_find(file, "blk.0.attn_q.bias"));
    cr_assert_null(gguf_tensor_find(file, "output.weight"));
    enum gguf_value_type type;
    uint64_t count;
    cr_assert_eq(gguf_get_array(file, "tokenizer.ggml.tokens", &type, &count, NULL), STATUS_OK);
    cr_assert_eq(count, 1000);
    gguf_close(file);
    tiny_model_unlink();
}

Test(make_model_command, layers_are_as_many_as_asked)
{
    const struct buffer bytes = tiny_model_bytes("llama", "f32", "--layers=1");
    const char *path = tiny_model_write(&bytes);
    struct gguf *file;
    struct error error;
    cr_assert_eq(gguf_open(path, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_not_null(gguf_tensor_find(file, "blk.0.attn_q.weight"));
    cr_assert_null(gguf_tensor_find(file, "blk.1.attn_q.weight"));
    gguf_close(file);
    tiny_model_unlink();
}

Test(make_model_command, wrong_usage_is_said)
{
    cr_assert_eq(CALL(command_make_model, "", "--vocab", "3", "/tmp/never.gguf"), 2);
    cr_assert_not_null(strstr(error_text.data, "--vocab is 3"));
    cr_assert_eq(call(command_make_model, "", 0, (const char *const[]){NULL}), 2);
    cr_assert_not_null(strstr(error_text.data, "one output file is needed, 0 are named"));
    cr_assert_eq(CALL(command_make_model, "", "--type", "q9", "/tmp/never.gguf"), 2);
    cr_assert_eq(CALL(command_make_model, "", "/no/such/folder/x.gguf"), 1);
    cr_assert_not_null(strstr(error_text.data, "/no/such/folder/x.gguf"));
    cr_assert_neq(access("/tmp/never.gguf", F_OK), 0);
}
