/* A secret that several processes share through a file.
 *
 * The bytes of the file are the secret, without the line break at its end. Keys for different uses
 * are derived from it, so that no use can be turned against another. */
#ifndef BATON_BASE_SECRET_H
#define BATON_BASE_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SECRET_BYTES_MIN = 16, SECRET_BYTES_MAX = 4096, SECRET_KEY_BYTES = 32 };

struct secret {
    uint8_t bytes[SECRET_BYTES_MAX];
    size_t count;
};

/* INVALID for what is no ordinary file or has fewer than 16 bytes, LIMIT for more than 4096, IO
 * when it cannot be read. A file that others than its owner may read is taken, with a warning. */
enum status secret_load(const char *path, struct secret *out, struct error *error);
/* Writes a new secret of 256 random bits with mode 0600, unless a file is there already. */
enum status secret_make(const char *path, struct error *error);
/* The key for one use, named by a text such as "gate". */
void secret_key(const struct secret *secret, const char *use, uint8_t out[SECRET_KEY_BYTES]);

#endif
