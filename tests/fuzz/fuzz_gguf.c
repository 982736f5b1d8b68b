/* Any bytes as a GGUF file: opened or refused with a sentence; of what opened every value and every
 * byte of the tensors is read, and it is asked what model it is. */
#include "base/check.h"
#include "base/hash.h"
#include "model/format/gguf.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

/* No NUL in a word: what is binary comes with the corpus. */
const char *const fuzz_words[] = {
    "GGUF",
    "\xff\xff\xff\xff\xff\xff\xff\xff",
    "\xff\xff\xff\x7f",
    "split.count",
    "general.alignment",
    "general.architecture",
    "llama.expert_count",
    "llama.attention.head_count_kv",
    "llama.rope.scaling.type",
    "blk.0.",
    "token_embd.weight",
    "gemma3",
    "gpt2",
    "yarn",
    NULL,
};

static void use(const struct gguf *file)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_key_count(file); i++) {
        const struct gguf_raw_key key = gguf_key_at(file, i);
        sum += hash64(key.value.data, key.value.bytes, 0) + key.name.bytes;
    }
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct tensor_view *tensor = gguf_tensor_at(file, i);
        CHECK(gguf_tensor_find(file, tensor->name) == tensor);
        sum += hash64(tensor->data, tensor->bytes, sum);
    }
    CHECK(sum != 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file_fill(0, data, bytes);
    struct gguf *file = NULL;
    struct model_outline outline;
    struct error error = {0};
    if (gguf_open(path, &file, &error) == STATUS_OK) {
        use(file);
        gguf_close(file);
    }
    if (model_outline_read(path, &outline, &error) != STATUS_OK)
        CHECK(error.text[0] != '\0');
    return 0;
}
