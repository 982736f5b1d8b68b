/* Any bytes as a safetensors file: opened or refused with a sentence; of what opened every byte of
 * the tensors is read. */
#include "base/check.h"
#include "model/format/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

const char *const fuzz_words[] = {
    "\"dtype\":\"F32\"",
    "\"shape\":[",
    "\"data_offsets\":[0,",
    "\"__metadata__\":{",
    "\"F8_E4M3\"",
    "\"BF16\"",
    "9007199254740992",
    "18446744073709551615",
    "4294967296",
    "-1",
    "1e3",
    "null",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\xff\xff\xff\xff\xff\xff\xff\xff",
    NULL,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct safetensors *file = NULL;
    struct error error = {0};
    if (safetensors_open(fuzz_file_fill(0, data, bytes), &file, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    size_t sum = 0;
    for (size_t i = 0; i < safetensors_tensor_count(file); i++) {
        const struct tensor_view *tensor = safetensors_tensor_at(file, i);
        CHECK(tensor_views_digest(&tensor, 1).low != 1);
        CHECK(safetensors_tensor_find(file, tensor->name) == tensor);
        sum += tensor->bytes;
    }
    CHECK(sum <= bytes);
    safetensors_close(file);
    return 0;
}
