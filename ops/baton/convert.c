/* `baton convert`: a model of either kind as one GGUF file. */
#include "model/model_convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "ops/baton/commands.h"

static const char *const type_names[] = {"Q8_0", "Q4_0", "Q4_K", "BF16", "F32"};

struct options {
    uint32_t type;
};

static const struct config_row option_rows[] = {
    {"type", CONFIG_CHOICE, offsetof(struct options, type), "q8_0", "q8_0|q4_0|q4_k|bf16|f32",
     "type of the matrices; with one of 4 bits embedding and head are Q8_0", 0, 0},
};

static const struct config_command description = {
    .program = "baton convert",
    .summary = "Writes a model, GGUF file or Hugging Face folder, as one GGUF file.",
    .examples = "  baton convert --type q4_k folder model.gguf\n",
    .operands = "IN OUT",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

static void show_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    uint32_t *told = arg;
    const uint32_t percent = (uint32_t)(100.0 * (double)done_bytes / (double)total_bytes);
    if (percent == *told)
        return;
    *told = percent;
    fprintf(stderr, "\rconverting %3" PRIu32 " %%%s", percent, percent == 100 ? "\n" : "");
}

int command_convert(int argc, char **argv)
{
    struct options options;
    int first_operand;
    const int code = config_begin(&description, argc, argv, &options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    if (argc - first_operand != 2)
        return config_misused(&description, "IN and OUT are needed, %d names are given",
                              argc - first_operand);
    uint32_t told = 0;
    bool text = true;
    struct error error;
    const struct model_conversion conversion = {
        .in = argv[first_operand],
        .out = argv[first_operand + 1],
        .type = quant_type_by_name(type_names[options.type]),
        .progress = isatty(STDERR_FILENO) ? show_progress : NULL,
        .progress_arg = &told,
    };
    const enum status status = model_convert(&conversion, &text, &error);
    if (status == STATUS_OK && !text)
        fprintf(stderr, "baton convert: %s has no tokenizer: it is computed on token ids\n",
                conversion.out);
    return config_end(&description, status, &error);
}
