/* A filter for differential tests: templates on standard input, what they render to on standard
 * output, so that the reference implementation can be compared over many with one process.
 *
 * A line in is a JSON object with `template`, `variables` and `now`; a line out has `text` or
 * `error`. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json.h"
#include "model/text/jinja/jinja.h"

static void fill(struct jinja_run *run, void *arg)
{
    jinja_set_members(run, arg);
}

static enum status render(const struct json *line, struct jinja_prompt *prompt, struct error *error)
{
    size_t bytes;
    struct jinja *template;
    const char *source = json_string(json_get(line, "template"), &bytes);
    TRY(jinja_compile(source, bytes, &template, error));
    const enum status status =
        jinja_render(template, &jinja_limits_default, bytes, json_int(json_get(line, "now")), fill,
                     (void *)json_get(line, "variables"), prompt, error);
    jinja_free(template);
    return status;
}

static void answer(const char *text, size_t bytes)
{
    struct json *line;
    struct error error = {0};
    struct buffer out = {0};
    struct jinja_prompt prompt = {0};
    struct json_writer writer;
    if (json_parse(text, bytes, &line, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"a line of input is no JSON");
    }
    const enum status status = render(line, &prompt, &error);
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    if (status == STATUS_OK) {
        json_key(&writer, "text");
        json_put_string(&writer, prompt.text.data != NULL ? prompt.text.data : "",
                        prompt.text.size);
    } else {
        json_key(&writer, "error");
        json_put_text(&writer, error.text);
    }
    json_close_object(&writer);
    puts(out.data);
    jinja_prompt_free(&prompt);
    buffer_free(&out);
    json_free(line);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t bytes; (bytes = getline(&line, &room, stdin)) > 0;)
        answer(line, (size_t)bytes);
    free(line);
    return fflush(stdout) == 0 ? 0 : 1;
}
