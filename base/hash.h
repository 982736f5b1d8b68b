/* Digests (XXH3) for identity and lookup, CRC32C for integrity. Not for secrets. */
#ifndef BATON_BASE_HASH_H
#define BATON_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest128 {
    uint64_t low, high;
};

uint64_t hash64(const void *data, size_t bytes, uint64_t seed);
struct digest128 hash128(const void *data, size_t bytes, uint64_t seed);

/* For tables whose keys come from outside: random, the same for the life of the process, so that
 * nobody can write keys that all fall on one slot. Any thread. */
uint64_t hash_process_key(void);
/* A 64-bit value mixed with a key (multiply-shift, Dietzfelbinger et al. 1997, and a finish that
 * brings the good upper bits down). */
static inline uint64_t hash_u64_keyed(uint64_t value, uint64_t key)
{
    uint64_t mixed = (value ^ key) * (key | 1);
    mixed = (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

static inline bool digest128_equal(struct digest128 a, struct digest128 b)
{
    return a.low == b.low && a.high == b.high;
}
enum { DIGEST_TEXT_BYTES = 33 };
/* 32 hex digits and a NUL. */
void digest128_text(struct digest128 digest, char out[DIGEST_TEXT_BYTES]);

/* CRC-32C (Castagnoli, RFC 3720), SSE4.2 where the CPU has it. crc starts as 0. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
