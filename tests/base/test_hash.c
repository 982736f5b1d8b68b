#include <criterion/criterion.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/hash_internal.h"
#include "base/random.h"

Test(hash, known_answers)
{
    cr_assert_eq(hash64(NULL, 0, 0), 0x2D06800538D394C2);
    const struct digest128 empty = hash128(NULL, 0, 0);
    cr_assert_eq(empty.low, 0x6001C324468D497F);
    cr_assert_eq(empty.high, 0x99AA06D3014798D8);
    char text[DIGEST_TEXT_BYTES];
    digest128_text(empty, text);
    cr_assert_str_eq(text, "99aa06d3014798d86001c324468d497f");
    digest128_text((struct digest128){.low = 1, .high = 0}, text);
    cr_assert_str_eq(text, "00000000000000000000000000000001");
}

Test(hash, every_bit_and_the_seed_matter)
{
    uint8_t data[300] = {0};
    const uint64_t plain = hash64(data, sizeof data, 1);
    const struct digest128 digest = hash128(data, sizeof data, 1);
    cr_assert_neq(hash64(data, sizeof data, 2), plain);
    cr_assert_neq(hash64(data, sizeof data - 1, 1), plain);
    cr_assert_not(digest128_equal(hash128(data, sizeof data, 2), digest));
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_neq(hash64(data, sizeof data, 1), plain);
        cr_assert_not(digest128_equal(hash128(data, sizeof data, 1), digest));
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    cr_assert(digest128_equal(hash128(data, sizeof data, 1), digest));
}

/* RFC 3720, appendix B.4, and the check value of the CRC catalogue. */
Test(hash, crc32c_known_answers)
{
    uint8_t data[32];
    memset(data, 0, sizeof data);
    cr_assert_eq(crc32c(0, data, sizeof data), 0x8A9136AA);
    memset(data, 0xFF, sizeof data);
    cr_assert_eq(crc32c(0, data, sizeof data), 0x62A8AB43);
    for (uint8_t i = 0; i < 32; i++)
        data[i] = i;
    cr_assert_eq(crc32c(0, data, sizeof data), 0x46DD794E);
    for (uint8_t i = 0; i < 32; i++)
        data[i] = (uint8_t)(31 - i);
    cr_assert_eq(crc32c(0, data, sizeof data), 0x113FDB5C);
    cr_assert_eq(crc32c(0, "123456789", 9), 0xE3069283);
    cr_assert_eq(crc32c(0, NULL, 0), 0);
}

Test(hash, crc32c_may_be_computed_in_pieces)
{
    uint8_t data[1000];
    for (size_t i = 0; i < sizeof data; i += 8)
        store_le64(data + i, random_at(3, i, 0));
    const uint32_t whole = crc32c(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++)
        cr_assert_eq(crc32c(crc32c(0, data, cut), data + cut, sizeof data - cut), whole);
}

Test(hash, both_ways_to_crc32c_agree)
{
    if (!crc32c_has_instruction())
        cr_skip_test("this CPU has no CRC32 instruction");
    uint8_t data[512];
    struct random random;
    random_init(&random, 17);
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof data; i += 8)
            store_le64(data + i, random_next(&random));
        const size_t first = random_below(&random, 16);
        const size_t bytes = random_below(&random, sizeof data - first);
        const uint32_t state = (uint32_t)random_next(&random);
        cr_assert_eq(crc32c_instruction(state, data + first, bytes),
                     crc32c_portable(state, data + first, bytes));
    }
}

/* Lengths around the blocks of three streams, against the one way that has none. */
Test(hash, long_crc32c_agrees_with_the_table)
{
    if (!crc32c_has_instruction())
        cr_skip_test("this CPU has no CRC32 instruction");
    enum { BYTES = 40000 };
    static uint8_t data[BYTES];
    struct random random;
    random_init(&random, 18);
    for (size_t i = 0; i < BYTES; i += 8)
        store_le64(data + i, random_next(&random));
    static const size_t edges[] = {767, 768, 769, 1536, 12287, 12288, 12289, 13056, 24576, 37632};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        for (size_t first = 0; first < 9; first++)
            cr_assert_eq(crc32c_instruction(7, data + first, edges[i]),
                         crc32c_portable(7, data + first, edges[i]), "%zu bytes from %zu", edges[i],
                         first);
    for (int round = 0; round < 300; round++) {
        const size_t first = random_below(&random, 64);
        const size_t bytes = random_below(&random, BYTES - first);
        const uint32_t state = (uint32_t)random_next(&random);
        cr_assert_eq(crc32c_instruction(state, data + first, bytes),
                     crc32c_portable(state, data + first, bytes));
    }
}
