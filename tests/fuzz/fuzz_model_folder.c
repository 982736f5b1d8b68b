/* Any bytes as a folder of config.json, the index of its files of weights and two of those: opened
 * or refused with a sentence; of what opened every tensor is found by its name and read, and it is
 * asked what model it is. */
#include "base/check.h"
#include "base/hash.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

const char *const fuzz_words[] = {
    FUZZ_DIVIDER,
    "\"weight_map\":{",
    "\"one.safetensors\"",
    "\"two.safetensors\"",
    "\"dtype\":\"F8_E4M3\"",
    "\"shape\":[",
    "\"data_offsets\":[0,",
    "\"quantization_config\":{\"quant_method\":\"fp8\"},",
    "weight_scale_inv",
    "model.layers.0.",
    "{",
    "}",
    "null",
    NULL,
};

static void use(const struct model_file *file)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < model_file_tensor_count(file); i++) {
        const struct tensor_view *tensor = model_file_tensor_at(file, i);
        CHECK(model_file_tensor_find(file, tensor->name, NULL) == tensor);
        sum += hash64(tensor->data, tensor->bytes, sum);
    }
    CHECK(sum != 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"config.json", "model.safetensors.index.json",
                                        "one.safetensors", "two.safetensors"};
    struct model_file *file = NULL;
    struct model_outline outline;
    struct error error = {0};
    const char *folder = fuzz_folder(names, ARRAY_COUNT(names));
    fuzz_files_divide(data, bytes, ARRAY_COUNT(names));
    if (model_file_open(folder, &file, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    use(file);
    model_file_close(file);
    if (model_outline_read(folder, &outline, &error) != STATUS_OK)
        CHECK(error.text[0] != '\0');
    return 0;
}
