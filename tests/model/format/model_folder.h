/* Folders and safetensors files put together by hand, right or wrong. */
#ifndef BATON_TESTS_MODEL_MODEL_FOLDER_H
#define BATON_TESTS_MODEL_MODEL_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* A new empty folder; its name lasts until model_folder_remove, which deletes what is in it. */
const char *model_folder_make(void);
void model_folder_remove(void);
/* Writes a file into it; returns its path, valid until the next call. */
const char *model_folder_write(const char *name, const void *data, size_t bytes);
const char *model_folder_write_text(const char *name, const char *text);
/* Writes a safetensors file: the length of the header (of the text, where length is 0), the text,
 * and `data_bytes` bytes that count up from 0. */
const char *model_folder_write_tensors(const char *name, uint64_t length, const char *header,
                                       size_t data_bytes);

#endif
