#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash_internal.h"
#include "base/random.h"

uint64_t hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

struct digest128 hash128(const void *data, size_t bytes, uint64_t seed)
{
    const XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, seed);
    return (struct digest128){.low = hash.low64, .high = hash.high64};
}

static uint64_t process_key;

static void process_key_draw(void)
{
    process_key = random_os_u64();
}

uint64_t hash_process_key(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CHECK(pthread_once(&once, process_key_draw) == 0);
    return process_key;
}

void digest128_text(struct digest128 digest, char out[DIGEST_TEXT_BYTES])
{
    snprintf(out, DIGEST_TEXT_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

/* Slicing by eight: table[k][b] is the effect of byte b followed by k zero bytes. */
static uint32_t table[8][256];

static void table_fill(void)
{
    const uint32_t polynomial = 0x82F63B78; /* Castagnoli, bits reversed */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (polynomial & (0 - (value & 1)));
        table[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int k = 1; k < 8; k++)
            table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xFF];
    }
}

uint32_t crc32c_portable(uint32_t state, const uint8_t *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CHECK(pthread_once(&once, table_fill) == 0);
    for (; bytes >= 8; bytes -= 8, data += 8) {
        const uint32_t low = load_le32(data) ^ state, high = load_le32(data + 4);
        state = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
                table[4][low >> 24] ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^
                table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; bytes > 0; bytes--, data++)
        state = state >> 8 ^ table[0][(state ^ *data) & 0xFF];
    return state;
}

#ifdef __x86_64__
/* ---- three streams ----
 *
 * The instruction takes three cycles and one can begin in every cycle, so three independent streams
 * are computed side by side. A stream is moved behind the one that follows it by what appending so
 * many zero bytes does to it, which is linear: one table lookup a byte of the state. */

enum { LONG_BYTES = 4096, SHORT_BYTES = 256 };

struct zeros {
    uint32_t table[4][256];
};
static struct zeros long_zeros, short_zeros;

static void zeros_fill(struct zeros *zeros, size_t bytes)
{
    static const uint8_t nothing[LONG_BYTES];
    uint32_t image[32];
    for (uint32_t bit = 0; bit < 32; bit++)
        image[bit] = crc32c_portable(UINT32_C(1) << bit, nothing, bytes);
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = 0;
            for (uint32_t bit = 0; bit < 8; bit++)
                value ^= image[8 * k + bit] & (0 - (byte >> bit & 1));
            zeros->table[k][byte] = value;
        }
    }
}

static void all_zeros_fill(void)
{
    zeros_fill(&long_zeros, LONG_BYTES);
    zeros_fill(&short_zeros, SHORT_BYTES);
}

static inline uint32_t zeros_append(const struct zeros *zeros, uint32_t state)
{
    return zeros->table[0][state & 0xFF] ^ zeros->table[1][state >> 8 & 0xFF] ^
           zeros->table[2][state >> 16 & 0xFF] ^ zeros->table[3][state >> 24];
}

/* Three neighbouring blocks of `bytes`, a multiple of eight. */
__attribute__((target("sse4.2"))) static inline uint32_t
three_blocks(uint32_t state, const uint8_t *data, size_t bytes, const struct zeros *zeros)
{
    uint64_t first = state, second = 0, third = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        first = __builtin_ia32_crc32di(first, load_le64(data + i));
        second = __builtin_ia32_crc32di(second, load_le64(data + bytes + i));
        third = __builtin_ia32_crc32di(third, load_le64(data + 2 * bytes + i));
    }
    const uint32_t two = zeros_append(zeros, (uint32_t)first) ^ (uint32_t)second;
    return zeros_append(zeros, two) ^ (uint32_t)third;
}

bool crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(uint32_t state, const uint8_t *data,
                                                              size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (bytes >= (size_t)3 * SHORT_BYTES)
        CHECK(pthread_once(&once, all_zeros_fill) == 0);
    for (; bytes >= (size_t)3 * LONG_BYTES; bytes -= 3 * LONG_BYTES, data += 3 * LONG_BYTES)
        state = three_blocks(state, data, LONG_BYTES, &long_zeros);
    for (; bytes >= (size_t)3 * SHORT_BYTES; bytes -= 3 * SHORT_BYTES, data += 3 * SHORT_BYTES)
        state = three_blocks(state, data, SHORT_BYTES, &short_zeros);
    uint64_t wide = state;
    for (; bytes >= 8; bytes -= 8, data += 8)
        wide = __builtin_ia32_crc32di(wide, load_le64(data));
    state = (uint32_t)wide;
    for (; bytes > 0; bytes--, data++)
        state = __builtin_ia32_crc32qi(state, *data);
    return state;
}
#else
bool crc32c_has_instruction(void)
{
    return false;
}

uint32_t crc32c_instruction(uint32_t state, const uint8_t *data, size_t bytes)
{
    return crc32c_portable(state, data, bytes);
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_has_instruction() ? ~crc32c_instruction(~crc, data, bytes)
                                    : ~crc32c_portable(~crc, data, bytes);
}
