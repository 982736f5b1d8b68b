#include "tests/model/format/model_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"

static char folder[64];

const char *model_folder_make(void)
{
    snprintf(folder, sizeof folder, "/tmp/baton-folder-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    return folder;
}

void model_folder_remove(void)
{
    char path[512];
    DIR *list = opendir(folder);
    CHECK(list != NULL);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        CHECK(unlink(path) == 0);
    }
    closedir(list);
    CHECK(rmdir(folder) == 0);
}

const char *model_folder_write(const char *name, const void *data, size_t bytes)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(bytes == 0 || fwrite(data, 1, bytes, file) == bytes);
    CHECK(fclose(file) == 0);
    return path;
}

const char *model_folder_write_text(const char *name, const char *text)
{
    return model_folder_write(name, text, strlen(text));
}

const char *model_folder_write_tensors(const char *name, uint64_t length, const char *header,
                                       size_t data_bytes)
{
    struct buffer file = {0};
    const uint64_t written = length == 0 ? strlen(header) : length;
    buffer_add(&file, &written, sizeof written);
    buffer_add_text(&file, header);
    for (size_t i = 0; i < data_bytes; i++)
        buffer_add_char(&file, (char)i);
    const char *path = model_folder_write(name, file.data, file.size);
    buffer_free(&file);
    return path;
}
