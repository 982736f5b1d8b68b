#include "ops/baton/up_report.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"

enum { COLUMNS_DEFAULT = 80, PROGRESS_BYTES = 512 };

struct up_report {
    bool is_terminal;
    bool line_open; /* a progress line stands on the terminal */
    char last[PROGRESS_BYTES];
};

struct up_report *report_create(void)
{
    struct up_report *report = calloc(1, sizeof *report);
    CHECK(report != NULL);
    report->is_terminal = isatty(STDERR_FILENO) == 1;
    return report;
}

/* Takes the progress line away, so that whatever follows begins in the first column. */
static void progress_clear(struct up_report *report)
{
    if (report->line_open)
        fputs("\r\033[K", stderr);
    report->line_open = false;
}

void report_destroy(struct up_report *report)
{
    progress_clear(report);
    free(report);
}

void report_line(struct up_report *report, const char *format, ...)
{
    progress_clear(report);
    fputs("baton up: ", stderr);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return COLUMNS_DEFAULT;
}

void report_progress(struct up_report *report, const struct child *child)
{
    char text[PROGRESS_BYTES];
    snprintf(text, sizeof text, "%s: %s", child->name,
             child->ready ? "ready" : (child->status[0] != '\0' ? child->status : "starting"));
    if (strcmp(text, report->last) == 0)
        return;
    memcpy(report->last, text, sizeof text);
    if (!report->is_terminal) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    fprintf(stderr, "\r\033[K%.*s", terminal_columns() - 1, text);
    report->line_open = true;
}

/* A wildcard address is for listening; a client needs one to dial. */
static void url_make(const char *http, char *url, size_t bytes)
{
    const char *port = strrchr(http, ':');
    if (port && (strncmp(http, "0.0.0.0:", 8) == 0 || strncmp(http, "[::]:", 5) == 0))
        snprintf(url, bytes, "http://127.0.0.1%s", port);
    else
        snprintf(url, bytes, "http://%s", http);
}

static void row_print(const struct child *child)
{
    printf("  %-12s pid %d", child->name, (int)child->pid);
    if (child->label)
        printf(", model %s", child->label);
    if (child->http[0] != '\0')
        printf(", http %s", child->http);
    if (child->control[0] != '\0')
        printf(", control %s", child->control);
    if (child->data[0] != '\0')
        printf(", data %s", child->data);
    putchar('\n');
}

void report_ready(struct up_report *report, const struct cluster_options *options,
                  const struct child *const *children, uint32_t count)
{
    progress_clear(report);
    char url[CHILD_ADDRESS_BYTES + 16];
    url_make(children[0]->http, url, sizeof url);
    for (uint32_t i = 0; i < options->model_count; i++) {
        const char *slash = strrchr(options->models[i].path, '/');
        const char *only = slash ? slash + 1 : options->models[i].path;
        printf("%s%s",
               i == 0                          ? ""
               : i + 1 == options->model_count ? " and "
                                               : ", ",
               options->model_count > 1 ? options->models[i].name : only);
    }
    printf(" %s served at %s\n\n", options->model_count > 1 ? "are" : "is", url);
    for (uint32_t i = 0; i < count; i++)
        row_print(children[i]);
    printf("\n  logs in %s; Ctrl-C stops the cluster\n\n"
           "  baton ask --url %s 'Hello!'\n"
           "  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}'\n",
           options->folder, url, url);
    fflush(stdout);
}

static void ready_json(const struct cluster_options *options, const struct child *const *children,
                       uint32_t count, struct buffer *out)
{
    char url[CHILD_ADDRESS_BYTES + 16];
    url_make(children[0]->http, url, sizeof url);
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "http");
    json_put_text(&writer, children[0]->http);
    json_key(&writer, "url");
    json_put_text(&writer, url);
    json_key(&writer, "control");
    json_put_text(&writer, children[0]->control);
    json_key(&writer, "model");
    json_put_text(&writer, options->models[0].path);
    json_key(&writer, "workdir");
    json_put_text(&writer, options->folder);
    json_key(&writer, "pids");
    json_open_object(&writer);
    for (uint32_t i = 0; i < count; i++) {
        if (!children[i]->ready || children[i]->pid == 0)
            continue;
        json_key(&writer, children[i]->name);
        json_put_int(&writer, children[i]->pid);
    }
    json_close_object(&writer);
    json_close_object(&writer);
    buffer_add_char(out, '\n');
}

enum status report_ready_file(const struct cluster_options *options,
                              const struct child *const *children, uint32_t count,
                              struct error *error)
{
    if (!options->ready_file)
        return STATUS_OK;
    char scratch[PATH_MAX];
    if (snprintf(scratch, sizeof scratch, "%s.new", options->ready_file) >= PATH_MAX)
        return error_set(error, STATUS_LIMIT, "--ready-file is longer than %d bytes", PATH_MAX - 5);
    FILE *file = fopen(scratch, "we");
    if (!file)
        return error_set_errno(error, STATUS_IO, "the ready file %s cannot be written", scratch);
    struct buffer json = {0};
    ready_json(options, children, count, &json);
    bool written = fwrite(json.data, 1, json.size, file) == json.size;
    written = fclose(file) == 0 && written;
    buffer_free(&json);
    if (!written || rename(scratch, options->ready_file) != 0)
        return error_set_errno(error, STATUS_IO, "the ready file %s cannot be written",
                               options->ready_file);
    return STATUS_OK;
}
