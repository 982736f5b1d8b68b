/* Any bytes as the three parts of a split GGUF file: opened by any of them, or refused with a
 * sentence; of what opened every tensor is found by its name and read. */
#include <stdio.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/format/model_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

const char *const fuzz_words[] = {
    FUZZ_DIVIDER,
    "GGUF",
    "split.no",
    "split.count",
    "split.tensors.count",
    "\xff\xff\xff\xff\xff\xff\xff\xff",
    NULL,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    char path[160];
    struct model_file *file = NULL;
    struct error error = {0};
    const char *folder = fuzz_folder(names, ARRAY_COUNT(names));
    fuzz_files_divide(data, bytes, ARRAY_COUNT(names));
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, names[bytes % ARRAY_COUNT(names)]) <
          (int)sizeof path);
    if (model_file_open(path, &file, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < model_file_tensor_count(file); i++) {
        const struct tensor_view *tensor = model_file_tensor_at(file, i);
        CHECK(model_file_tensor_find(file, tensor->name, NULL) == tensor);
        sum += hash64(tensor->data, tensor->bytes, sum);
    }
    CHECK(sum != 1);
    model_file_close(file);
    return 0;
}
