/* Keyed digests and comparisons for secrets. The one wrapper of OpenSSL; any thread. */
#ifndef BATON_BASE_CRYPTO_H
#define BATON_BASE_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CRYPTO_MAC_BYTES = 32 };

/* HMAC-SHA256 (RFC 2104, FIPS 180-4). */
void crypto_mac(const void *key, size_t key_bytes, const void *data, size_t bytes,
                uint8_t out[CRYPTO_MAC_BYTES]);
/* Takes the same time wherever the two differ. */
bool crypto_equal(const void *a, const void *b, size_t bytes);
/* Zeroes memory that held a secret; the compiler may not leave it out. */
void crypto_wipe(void *data, size_t bytes);

#endif
