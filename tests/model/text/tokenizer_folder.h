/* Hugging Face folders made on the spot, for tests. */
#ifndef BATON_TESTS_MODEL_TOKENIZER_FOLDER_H
#define BATON_TESTS_MODEL_TOKENIZER_FOLDER_H

#include "model/text/text.h"

enum { FOLDER_FILES_MAX = 8 };

struct folder_file {
    const char *name, *content;
};

/* Ends at a NULL name. */
struct folder {
    struct folder_file files[FOLDER_FILES_MAX];
};

/* Writes the folder, opens it and takes it away again. */
enum status folder_try(const struct folder *folder, struct text **out, struct error *error);
/* The same, failing the test when it does not open. */
struct text *folder_open(const struct folder *folder);
/* A folder with this tokenizer.json alone. */
enum status folder_try_tokenizer(const char *json, size_t bytes, struct text **out,
                                 struct error *error);

#endif
