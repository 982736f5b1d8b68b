/* The tokenizer of a Hugging Face folder in the words of a GGUF file. */
#ifndef BATON_MODEL_TEXT_TEXT_EXPORT_H
#define BATON_MODEL_TEXT_TEXT_EXPORT_H

#include <stdint.h>

#include "base/status.h"

struct gguf_writer;

/* Writes the keys tokenizer.* so that the file gives every text the ids that the folder gives it: a
 * byte-level BPE ("gpt2") whose steps are those of a name in tokenizer.ggml.pre. row_count: rows of
 * the embedding; rows that have no token get padding ones, because readers count tokens and rows
 * alike. On failure no key has been written: NOT_FOUND without a tokenizer.json, UNSUPPORTED with
 * what a GGUF file cannot say, else what is wrong with the folder. */
enum status text_export(const char *folder, uint32_t row_count, struct gguf_writer *writer,
                        struct error *error);

#endif
