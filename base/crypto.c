/* The only file that names OpenSSL. */
#include "base/crypto.h"

#include <limits.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

void crypto_mac(const void *key, size_t key_bytes, const void *data, size_t bytes,
                uint8_t out[CRYPTO_MAC_BYTES])
{
    unsigned out_bytes = 0;
    CHECK(key_bytes <= INT_MAX);
    CHECK(HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, &out_bytes) != NULL);
    CHECK(out_bytes == CRYPTO_MAC_BYTES);
}

bool crypto_equal(const void *a, const void *b, size_t bytes)
{
    return CRYPTO_memcmp(a, b, bytes) == 0;
}

void crypto_wipe(void *data, size_t bytes)
{
    OPENSSL_cleanse(data, bytes);
}
