/* Any bytes as a model to be converted, a GGUF file where they begin as one, else a folder of
 * config.json, model.safetensors and tokenizer.json: written as a GGUF file that opens, or refused
 * with a sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "model/format/gguf.h"
#include "model/model_convert.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

const char *const fuzz_words[] = {
    FUZZ_DIVIDER,
    "GGUF",
    "\"model_type\":\"gpt2\"",
    "\"model_type\":\"gemma2\"",
    "\"sliding_window\":4,",
    "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2},",
    "\"tie_word_embeddings\":false,",
    "\"num_key_value_heads\":1,",
    "llama.attention.head_count_kv",
    "token_embd.weight",
    "F8_E4M3",
    "BF16",
    "weight_scale",
    "\"type\":\"ByteLevel\"",
    "\"pretokenizers\":[",
    "\"use_regex\":true",
    "\"merges\":[",
    NULL,
};

static char out[160];

static void out_remove(void)
{
    unlink(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json"};
    static const char *const types[] = {"F32", "Q8_0", "Q4_K", "BF16", "Q4_0"};
    struct error error = {0};
    bool text;
    const char *folder = fuzz_folder(names, ARRAY_COUNT(names));
    if (out[0] == '\0') {
        CHECK(snprintf(out, sizeof out, "%s.gguf", folder) < (int)sizeof out);
        atexit(out_remove);
    }
    struct model_conversion conversion = {
        .in = folder, .out = out, .type = quant_type_by_name(types[bytes % ARRAY_COUNT(types)])};
    if (bytes >= 4 && memcmp(data, "GGUF", 4) == 0)
        conversion.in = fuzz_file_fill(0, data, bytes);
    else
        fuzz_files_divide(data, bytes, ARRAY_COUNT(names));
    if (model_convert(&conversion, &text, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    struct gguf *file = NULL;
    CHECK(gguf_open(out, &file, &error) == STATUS_OK);
    gguf_close(file);
    return 0;
}
