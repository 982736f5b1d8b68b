#include <criterion/criterion.h>
#include <signal.h>

#include "base/bytes.h"

Test(bytes, loads_and_stores_are_little_endian_and_unaligned)
{
    uint8_t raw[16] = {0};
    store_le64(raw + 1, 0x0807060504030201);
    for (uint8_t i = 1; i <= 8; i++)
        cr_assert_eq(raw[i], i);
    cr_assert_eq(load_le16(raw + 1), 0x0201);
    cr_assert_eq(load_le32(raw + 3), 0x06050403);
    cr_assert_eq(load_le64(raw + 1), 0x0807060504030201);
    store_le16(raw, 0xBEEF);
    store_le32(raw + 4, 0xDEADBEEF);
    cr_assert_eq(raw[0], 0xEF);
    cr_assert_eq(raw[7], 0xDE);
}

Test(bytes, a_buffer_grows_and_stays_terminated)
{
    struct buffer buffer = {0};
    for (int i = 0; i < 1000; i++) {
        buffer_add_char(&buffer, (char)('a' + i % 26));
        cr_assert_eq(buffer.data[buffer.size], '\0');
    }
    cr_assert_eq(buffer.size, 1000);
    cr_assert_eq(buffer.data[999], 'a' + 999 % 26);
    buffer_add(&buffer, NULL, 0);
    buffer_add(&buffer, "x\0y", 3);
    cr_assert_eq(buffer.size, 1003);
    cr_assert_arr_eq(buffer.data + 1000, "x\0y", 4);
    buffer_free(&buffer);
    cr_assert_null(buffer.data);
}

Test(bytes, printf_appends_short_and_long_texts)
{
    struct buffer buffer = {0};
    buffer_printf(&buffer, "%d-", 7);
    buffer_printf(&buffer, "%0500d", 1);
    cr_assert_eq(buffer.size, 502);
    cr_assert_eq(strlen(buffer.data), 502);
    cr_assert_eq(buffer.data[501], '1');
    /* Exactly the room that is left, and one more. */
    for (int extra = 0; extra < 2; extra++) {
        buffer_clear(&buffer);
        const int length = (int)buffer.capacity - 1 + extra;
        buffer_printf(&buffer, "%*s", length, "z");
        cr_assert_eq(buffer.size, (size_t)length);
        cr_assert_eq(buffer.data[length - 1], 'z');
    }
    buffer_free(&buffer);
}

Test(bytes, consume_drops_from_the_front)
{
    struct buffer buffer = {0};
    buffer_consume(&buffer, 0);
    buffer_add_text(&buffer, "hello world");
    buffer_consume(&buffer, 6);
    cr_assert_str_eq(buffer.data, "world");
    buffer_consume(&buffer, 5);
    cr_assert_eq(buffer.size, 0);
    cr_assert_str_eq(buffer.data, "");
    buffer_free(&buffer);
}

Test(bytes, consuming_more_than_there_is_is_a_fault, .signal = SIGABRT)
{
    struct buffer buffer = {0};
    buffer_add_text(&buffer, "abc");
    buffer_consume(&buffer, 4);
}

Test(bytes, a_reader_walks_and_stops_at_the_end)
{
    const uint8_t raw[] = {1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    struct reader reader;
    reader_init(&reader, raw, sizeof raw);
    cr_assert_eq(reader_u8(&reader), 1);
    cr_assert_eq(reader_u16(&reader), 2);
    cr_assert_eq(reader_u32(&reader), 3);
    cr_assert_eq(reader_u64(&reader), 4);
    cr_assert_eq(reader_left(&reader), 2);
    const char *text = reader_bytes(&reader, 2);
    cr_assert_arr_eq(text, "ab", 2);
    cr_assert_not(reader.failed);
    cr_assert_not_null(reader_bytes(&reader, 0));
    cr_assert_eq(reader_u8(&reader), 0);
    cr_assert(reader.failed);
}

Test(bytes, a_failed_reader_stays_failed_and_gives_zero)
{
    const uint8_t raw[] = {9, 9, 9};
    struct reader reader;
    reader_init(&reader, raw, sizeof raw);
    cr_assert_eq(reader_u32(&reader), 0);
    cr_assert(reader.failed);
    cr_assert_eq(reader_u8(&reader), 0);
    cr_assert_null(reader_bytes(&reader, 1));
    reader_init(&reader, raw, sizeof raw);
    cr_assert_null(reader_bytes(&reader, UINT64_MAX));
    cr_assert(reader.failed);
}

Test(bytes, size_arithmetic_sees_overflow)
{
    uint64_t out = 0;
    cr_assert(size_multiply(1ull << 32, (1ull << 32) - 1, &out));
    cr_assert_eq(out, 0xFFFFFFFF00000000);
    cr_assert_not(size_multiply(1ull << 32, 1ull << 32, &out));
    cr_assert(size_add(UINT64_MAX - 1, 1, &out));
    cr_assert_eq(out, UINT64_MAX);
    cr_assert_not(size_add(UINT64_MAX, 1, &out));
}
