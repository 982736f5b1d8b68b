#include "tests/model/text/tokenizer_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

enum { PATH_BYTES = 256 };

static void file_write(const char *folder, const char *name, const char *content, size_t bytes)
{
    char path[PATH_BYTES];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_BYTES);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void file_remove(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_BYTES);
    unlink(path);
}

static void folder_make(char path[PATH_BYTES])
{
    const char *temporary = getenv("TMPDIR");
    snprintf(path, PATH_BYTES, "%s/baton-folder-XXXXXX", temporary != NULL ? temporary : "/tmp");
    CHECK(mkdtemp(path) != NULL);
}

enum status folder_try(const struct folder *folder, struct text **out, struct error *error)
{
    char path[PATH_BYTES];
    folder_make(path);
    for (size_t i = 0; i < FOLDER_FILES_MAX && folder->files[i].name != NULL; i++)
        file_write(path, folder->files[i].name, folder->files[i].content,
                   strlen(folder->files[i].content));
    const enum status status = text_open(path, out, error);
    for (size_t i = 0; i < FOLDER_FILES_MAX && folder->files[i].name != NULL; i++)
        file_remove(path, folder->files[i].name);
    CHECK(rmdir(path) == 0);
    return status;
}

enum status folder_try_tokenizer(const char *json, size_t bytes, struct text **out,
                                 struct error *error)
{
    char path[PATH_BYTES];
    folder_make(path);
    file_write(path, "tokenizer.json", json, bytes);
    const enum status status = text_open(path, out, error);
    file_remove(path, "tokenizer.json");
    CHECK(rmdir(path) == 0);
    return status;
}

struct text *folder_open(const struct folder *folder)
{
    struct text *text = NULL;
    struct error error = {0};
    if (folder_try(folder, &text, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"the folder does not open");
    }
    return text;
}
