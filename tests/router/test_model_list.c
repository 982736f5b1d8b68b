/* What --model says: names and paths, and what is wrong with them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "router/model_list.h"
#include "tests/router/scratch_folder.h"
#include "tests/router/tiny_text.h"

static struct error error;
static struct model_list list;

static enum status open_list(const char *only_name, const char *const *operands)
{
    struct config_texts texts = {.count = 0};
    for (; *operands; operands++)
        texts.items[texts.count++] = *operands;
    error.text[0] = '\0';
    list.count = 77; /* set on success only */
    return model_list_open(&texts, only_name, &list, &error);
}

#define OPEN(only_name, ...) open_list(only_name, (const char *const[]){__VA_ARGS__, NULL})

static void expect_refused(enum status status, const char *a, const char *b)
{
    cr_expect_eq(status, STATUS_INVALID);
    cr_expect(strstr(error.text, a) && strstr(error.text, b), "%s", error.text);
    cr_expect_eq(list.count, 77);
}

static const char *named(const char *name, const char *path)
{
    static char operands[4][1000];
    static uint32_t turn;
    char *operand = operands[turn++ % ARRAY_COUNT(operands)];
    snprintf(operand, sizeof operands[0], "%s=%s", name, path);
    return operand;
}

Test(model_list, models_in_their_order)
{
    cr_assert_eq(OPEN(NULL, tiny_twin_path(), named("Org/Tiny 1", tiny_model_path()),
                      named("x", tiny_other_path())),
                 STATUS_OK, "%s", error.text);
    cr_assert_eq(list.count, 3);
    cr_expect_str_eq(list.items[0].name, "twin", "after the file, without its ending");
    cr_expect_str_eq(list.items[1].name, "Org/Tiny 1");
    cr_expect_str_eq(list.items[2].name, "x");
    cr_expect_str_eq(text_info(list.items[0].text)->name, "twin");
    cr_expect_str_eq(text_info(list.items[1].text)->name, "tiny");
    cr_expect_str_eq(text_info(list.items[2].text)->name, "other");
    model_list_close(&list);
    cr_expect_eq(list.count, 0);
}

Test(model_list, the_only_one_may_be_called_by_another_option)
{
    cr_assert_eq(OPEN("m", tiny_model_path()), STATUS_OK, "%s", error.text);
    cr_expect_str_eq(list.items[0].name, "m");
    model_list_close(&list);
    cr_assert_eq(OPEN("m", named("n", tiny_model_path())), STATUS_OK, "%s", error.text);
    cr_expect_str_eq(list.items[0].name, "m");
    model_list_close(&list);
    expect_refused(OPEN("m", tiny_model_path(), tiny_other_path()), "--model-name", "names 2");
}

/* A path may have the sign that parts a name from one. */
Test(model_list, a_path_with_an_equals_sign)
{
    char path[700];
    snprintf(path, sizeof path, "%s/a=b.gguf", scratch_folder());
    cr_assert_eq(symlink(tiny_model_path(), path), 0);
    cr_assert_eq(OPEN(NULL, path, named("c", path)), STATUS_OK, "%s", error.text);
    cr_expect_str_eq(list.items[0].name, "a=b");
    cr_expect_str_eq(list.items[1].name, "c");
    model_list_close(&list);
    cr_assert_eq(chdir(scratch_folder()), 0);
    cr_assert_eq(OPEN(NULL, "a=b.gguf"), STATUS_OK, "%s", error.text);
    cr_expect_str_eq(list.items[0].name, "a=b");
    model_list_close(&list);
}

Test(model_list, names_that_are_none)
{
    char name[MODEL_LIST_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[MODEL_LIST_NAME_MAX + 1] = '\0';
    expect_refused(OPEN(NULL, named(name, tiny_model_path())), "129 bytes", "1 to 128");
    name[MODEL_LIST_NAME_MAX] = '\0';
    cr_assert_eq(OPEN(NULL, named(name, tiny_model_path())), STATUS_OK, "%s", error.text);
    model_list_close(&list);
    expect_refused(OPEN(NULL, named("", tiny_model_path())), "0 bytes", "1 to 128");
    expect_refused(OPEN(NULL, named("a\nb", tiny_model_path())), "0x0a", "at 1");
    expect_refused(OPEN(NULL, named("a\xff", tiny_model_path())), "2 bytes", "UTF-8");
    expect_refused(OPEN(NULL, named("a", "")), "\"a=\"", "no path");
    expect_refused(OPEN(NULL, named("a", tiny_model_path()), named("a", tiny_other_path())),
                   "two models", "\"a\"");
    expect_refused(OPEN(NULL, tiny_model_path(), tiny_model_path()), "two models", "\"tiny\"");
}

Test(model_list, a_file_that_is_not_there)
{
    cr_expect_neq(OPEN(NULL, tiny_model_path(), "b=/nowhere/b.gguf"), STATUS_OK);
    cr_expect(strstr(error.text, "/nowhere/b.gguf"), "%s", error.text);
}

static const char *template_file(const char *name, const char *source)
{
    static char paths[2][700];
    static uint32_t turn;
    char *path = paths[turn++ % ARRAY_COUNT(paths)];
    snprintf(path, sizeof paths[0], "%s/%s.jinja", scratch_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(source, file) >= 0 && fclose(file) == 0);
    return path;
}

static const char *template_of(const char *name)
{
    size_t bytes;
    for (uint32_t i = 0; i < list.count; i++) {
        if (strcmp(list.items[i].name, name) == 0)
            return list.items[i].template ? jinja_source(list.items[i].template, &bytes) : "";
    }
    return NULL;
}

#define TEXTS(...)                                                                                 \
    (&(struct config_texts){.items = {__VA_ARGS__},                                                \
                            .count = sizeof((const char *const[]){__VA_ARGS__}) /                  \
                                     sizeof(const char *)})

/* What nobody's name is before is a value for all, and "=" may stand in names and in paths. */
Test(model_list, names_and_files_with_an_equals_sign)
{
    const char *odd = template_file("x=y", "3");
    const char *one = template_file("one", "1");
    cr_assert_eq(OPEN("a=b", tiny_model_path()), STATUS_OK, "%s", error.text);
    cr_expect_eq(model_list_templates(&list, TEXTS(odd, named("a=b", one)), &error), STATUS_OK,
                 "%s", error.text);
    cr_expect_str_eq(template_of("a=b"), "1");
    model_list_close(&list);
    cr_assert_eq(OPEN("a", tiny_model_path()), STATUS_OK, "%s", error.text);
    cr_expect_eq(model_list_templates(&list, TEXTS(odd), &error), STATUS_OK, "%s", error.text);
    cr_expect_str_eq(template_of("a"), "3");
    model_list_close(&list);
}

/* One model's own goes before the one that is of all others. */
Test(model_list, templates_and_styles_of_one_model_and_of_the_others)
{
    const char *one = template_file("one", "1");
    const char *all = template_file("all", "2");
    cr_assert_eq(OPEN(NULL, named("a", tiny_twin_path()), named("c", tiny_other_path())), STATUS_OK,
                 "%s", error.text);
    cr_expect_str_eq(template_of("a"), "");
    cr_expect_eq(list.items[0].tool_style, TOOL_STYLE_COUNT);
    cr_expect_eq(model_list_templates(&list, TEXTS(all, named("c", one)), &error), STATUS_OK, "%s",
                 error.text);
    cr_expect_eq(model_list_tool_styles(&list, TEXTS("c=mistral", "none"), &error), STATUS_OK, "%s",
                 error.text);
    cr_expect_str_eq(template_of("a"), "2");
    cr_expect_str_eq(template_of("c"), "1");
    cr_expect_eq(list.items[0].tool_style, TOOL_STYLE_NONE);
    cr_expect_eq(list.items[1].tool_style, TOOL_STYLE_MISTRAL);
    model_list_close(&list);
}

Test(model_list, what_is_said_twice_or_of_nobody)
{
    const char *one = template_file("one", "1");
    const struct {
        const struct config_texts *operands;
        const char *a, *b;
    } templates[] = {
        {TEXTS(one, one), "both for the models that none names", "one.jinja"},
        {TEXTS("a=x.jinja", "a=y.jinja"), "both of the model a", "y.jinja"},
        {TEXTS("b=/nowhere.jinja"), "\"b=/nowhere.jinja\" names none", "--model: \"a\""},
        {TEXTS("a=x.jinja", "b=/nowhere.jinja"), "\"b=/nowhere.jinja\" names none", "\"a\""},
        {TEXTS("/no=where.jinja"), "of the model \"a\"", "/no=where.jinja"},
        {TEXTS(template_file("bad", "{% if %}")), "\"a\"", "line 1"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(templates); i++) {
        cr_assert_eq(OPEN(NULL, named("a", tiny_model_path())), STATUS_OK, "%s", error.text);
        cr_expect_neq(model_list_templates(&list, templates[i].operands, &error), STATUS_OK);
        cr_expect(strstr(error.text, templates[i].a) && strstr(error.text, templates[i].b), "%s",
                  error.text);
        model_list_close(&list);
    }
    cr_assert_eq(OPEN(NULL, named("a", tiny_model_path())), STATUS_OK, "%s", error.text);
    cr_expect_eq(model_list_tool_styles(&list, TEXTS("a=qwen"), &error), STATUS_INVALID);
    cr_expect(strstr(error.text, "\"qwen\"") && strstr(error.text, "granite, auto"), "%s",
              error.text);
    cr_expect_eq(model_list_tool_styles(&list, TEXTS("a=hermes", "b=none"), &error),
                 STATUS_INVALID);
    cr_expect(strstr(error.text, "\"b=none\" names none") && strstr(error.text, "--model: \"a\""),
              "%s", error.text);
    cr_expect_eq(list.items[0].tool_style, TOOL_STYLE_COUNT, "nothing is taken of what is refused");
    model_list_close(&list);
}
