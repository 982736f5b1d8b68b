#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "tests/transfer/random_message.h"
#include "transfer/wire.h"

enum { ARENA_BYTES = 1 << 20 };

struct codec {
    struct random random;
    struct wire_arena source, arena;
    struct buffer frame;
    void *sent, *got;
    struct error error;
};

static void codec_init(struct codec *codec, uint64_t seed)
{
    *codec = (struct codec){0};
    random_init(&codec->random, seed);
    wire_arena_init(&codec->source, ARENA_BYTES);
    wire_arena_init(&codec->arena, ARENA_BYTES);
    codec->sent = malloc(wire_message_bytes_max());
    codec->got = malloc(wire_message_bytes_max());
}

static void codec_free(struct codec *codec)
{
    wire_arena_free(&codec->source);
    wire_arena_free(&codec->arena);
    buffer_free(&codec->frame);
    free(codec->sent);
    free(codec->got);
}

static enum status encode(struct codec *codec, enum message_id id)
{
    buffer_clear(&codec->frame);
    return wire_encode(id, codec->sent, &codec->frame, &codec->error);
}

/* Decodes from an exact-size heap copy, so that a sanitizer sees one byte too many. */
static enum status decode(struct codec *codec, uint32_t type, const void *payload, size_t bytes,
                          enum message_id *id_out)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, payload, bytes);
    codec->error = (struct error){0};
    const enum status status = wire_decode(type, copy, bytes, &codec->arena, id_out, codec->got,
                                           wire_message_bytes_max(), &codec->error);
    cr_assert(codec->arena.used <= codec->arena.capacity);
    free(copy);
    return status;
}

Test(wire, every_message_comes_back_as_it_was)
{
    struct codec codec;
    codec_init(&codec, 1);
    for (int id = 0; id < MESSAGE_ID_COUNT; id++) {
        if (wire_message((enum message_id)id)->type == 0)
            continue;
        for (int turn = 0; turn < 200; turn++) {
            codec.source.used = 0;
            random_message((enum message_id)id, &codec.random, &codec.source, codec.sent);
            cr_assert_eq(encode(&codec, (enum message_id)id), STATUS_OK, "%s", codec.error.text);
            struct wire_prefix prefix;
            cr_assert_eq(wire_prefix_read(codec.frame.data, codec.frame.size, ARENA_BYTES, &prefix,
                                          &codec.error),
                         STATUS_OK);
            cr_assert_eq(prefix.payload_bytes, codec.frame.size - WIRE_PREFIX_BYTES);
            enum message_id got = MESSAGE_ID_COUNT;
            const enum status status =
                wire_decode(prefix.type, codec.frame.data + WIRE_PREFIX_BYTES, prefix.payload_bytes,
                            &codec.arena, &got, codec.got, wire_message_bytes_max(), &codec.error);
            cr_assert_eq(status, STATUS_OK, "%s", codec.error.text);
            cr_assert_eq((int)got, id);
            const char *name = message_difference(got, codec.sent, codec.got);
            cr_assert_null(name, "%s.%s differs", wire_message_name(got), name);
            cr_assert(codec.arena.used <= wire_arena_bytes(prefix.payload_bytes));
        }
    }
    codec_free(&codec);
}

Test(wire, a_message_cut_anywhere_is_refused)
{
    struct codec codec;
    codec_init(&codec, 2);
    for (int id = 0; id < MESSAGE_ID_COUNT; id++) {
        const struct wire_message *table = wire_message((enum message_id)id);
        if (table->type == 0)
            continue;
        codec.source.used = 0;
        random_message((enum message_id)id, &codec.random, &codec.source, codec.sent);
        cr_assert_eq(encode(&codec, (enum message_id)id), STATUS_OK);
        const size_t step = codec.frame.size > 2000 ? 13 : 1;
        for (size_t cut = 0; cut < codec.frame.size - WIRE_PREFIX_BYTES; cut += step) {
            enum message_id got;
            cr_assert_eq(
                decode(&codec, table->type, codec.frame.data + WIRE_PREFIX_BYTES, cut, &got),
                STATUS_CORRUPT);
            cr_assert(strstr(codec.error.text, table->name), "%s", codec.error.text);
        }
    }
    codec_free(&codec);
}

Test(wire, flipped_bits_never_crash_or_pass_the_budget)
{
    struct codec codec;
    codec_init(&codec, 3);
    uint32_t refused = 0, taken = 0;
    for (int turn = 0; turn < 20000; turn++) {
        const enum message_id id = (enum message_id)random_below(&codec.random, MESSAGE_ID_COUNT);
        const struct wire_message *table = wire_message(id);
        if (table->type == 0)
            continue;
        codec.source.used = 0;
        random_message(id, &codec.random, &codec.source, codec.sent);
        cr_assert_eq(encode(&codec, id), STATUS_OK);
        const size_t bytes = codec.frame.size - WIRE_PREFIX_BYTES;
        uint8_t *payload = (uint8_t *)codec.frame.data + WIRE_PREFIX_BYTES;
        for (uint64_t flips = 1 + random_below(&codec.random, 4); flips > 0; flips--)
            payload[random_below(&codec.random, bytes)] ^=
                (uint8_t)(1 << random_below(&codec.random, 8));
        enum message_id got;
        if (decode(&codec, table->type, payload, bytes, &got) == STATUS_OK) {
            taken++;
        } else {
            refused++;
            cr_assert(codec.error.text[0], "a refusal without a sentence");
        }
        cr_assert(codec.arena.used <= wire_arena_bytes(bytes));
    }
    cr_assert(refused > 1000 && taken > 1000, "%u refused, %u taken", refused, taken);
    codec_free(&codec);
}

Test(wire, random_bytes_never_crash)
{
    struct codec codec;
    codec_init(&codec, 4);
    for (int turn = 0; turn < 50000; turn++) {
        uint8_t bytes[64];
        const size_t count = random_below(&codec.random, sizeof bytes + 1);
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)random_next(&codec.random);
        if (count > 0)
            bytes[0] = (uint8_t)(0x80 | (bytes[0] & 0xf)); /* a map, so that it gets further */
        if (count > 1)
            bytes[1] &= 15;
        enum message_id got;
        decode(&codec, (uint32_t)random_below(&codec.random, 40), bytes, count, &got);
    }
    codec_free(&codec);
}

/* A count far over what follows: refused before anything is set aside for it. */
Test(wire, x1_huge_counts_take_no_memory)
{
    static const struct {
        const char *bytes;
        size_t count;
    } cases[] = {
        {"\xdd\xff\x00\x00\x00", 5},
        {"\xdd\xff\xff\xff\xff", 5},
        {"\xdf\xff\xff\xff\xff", 5},
        {"\xdf\x80\x00\x00\x00", 5},
        {"\x81\x01\xdd\xff\xff\xff\xff", 7},              /* tokens.steps */
        {"\x81\x01\x91\x81\x05\xdd\x7f\xff\xff\xff", 10}, /* tokens.steps[0].tokens */
        {"\x81\x7f\xdd\xff\xff\xff\xff", 7},              /* below a key that is not known */
        {"\x81\x7f\xdb\xff\xff\xff\xff", 7},              /* a string of 4 GiB */
        {"\x81\x7f\xc6\xff\xff\xff\xff", 7},
        {"\x81\x7f\xc9\xff\xff\xff\xff\x01", 8}, /* an extension whose length wraps */
    };
    struct codec codec;
    codec_init(&codec, 5);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum message_id got;
        const enum status status = decode(&codec, 13, cases[i].bytes, cases[i].count, &got);
        cr_assert(status == STATUS_CORRUPT || status == STATUS_LIMIT, "case %zu", i);
        cr_assert(codec.error.text[0]);
        cr_assert(codec.arena.used < 4096, "case %zu took %zu bytes", i, codec.arena.used);
    }
    codec_free(&codec);
}

/* Arrays inside arrays, below a key that is not known: a budget of items and a depth stop it. */
Test(wire, x2_nested_arrays_stay_within_the_budget)
{
    struct codec codec;
    codec_init(&codec, 6);
    struct buffer payload = {0};
    buffer_add(&payload, "\x81\x7f", 2);
    for (int i = 0; i < 24000; i++)
        buffer_add(&payload, "\xdc\xff\xff", 3);
    enum message_id got;
    const enum status status = decode(&codec, 13, payload.data, payload.size, &got);
    cr_assert(status == STATUS_CORRUPT || status == STATUS_LIMIT);
    cr_assert_eq(codec.arena.used, 0u);
    buffer_free(&payload);
    codec_free(&codec);
}

Test(wire, x4_the_depth_is_capped_and_messages_stay_far_below)
{
    struct codec codec;
    codec_init(&codec, 7);
    struct buffer payload = {0};
    for (int depth = 1; depth < 40; depth++) {
        buffer_clear(&payload);
        buffer_add(&payload, "\x81\x7f", 2);
        for (int i = 1; i < depth; i++)
            buffer_add(&payload, "\x91", 1);
        buffer_add(&payload, "\x01", 1);
        enum message_id got;
        const enum status status = decode(&codec, 38, payload.data, payload.size, &got);
        cr_assert_eq(status, depth <= WIRE_DEPTH_MAX ? STATUS_OK : STATUS_LIMIT, "depth %d: %s",
                     depth, codec.error.text);
    }
    buffer_free(&payload);
    codec_free(&codec);
}

/* The largest prompt passes, one more token does not, and the field is named. */
Test(wire, x6_limits_hold_exactly)
{
    const uint32_t most = 4194304;
    struct codec codec;
    codec_init(&codec, 8);
    int32_t *tokens = calloc(most + 1, sizeof *tokens);
    for (uint32_t i = 0; i <= most; i++)
        tokens[i] = (int32_t)(i * 2654435761u >> 12);
    struct msg_prefill prefill = {.job = {.request = 7, .tokens = {tokens, most}}};
    memcpy(codec.sent, &prefill, sizeof prefill);
    cr_assert_eq(encode(&codec, MESSAGE_ID_PREFILL), STATUS_OK, "%s", codec.error.text);
    wire_arena_free(&codec.arena);
    wire_arena_init(&codec.arena, wire_arena_bytes(codec.frame.size));
    enum message_id got;
    cr_assert_eq(decode(&codec, 12, codec.frame.data + WIRE_PREFIX_BYTES,
                        codec.frame.size - WIRE_PREFIX_BYTES, &got),
                 STATUS_OK, "%s", codec.error.text);
    const struct msg_prefill *back = codec.got;
    cr_assert_eq(back->job.tokens.count, most);
    cr_assert_arr_eq(back->job.tokens.items, tokens, most * sizeof *tokens);

    prefill.job.tokens.count = most + 1;
    memcpy(codec.sent, &prefill, sizeof prefill);
    buffer_clear(&codec.frame);
    buffer_add_text(&codec.frame, "kept");
    cr_assert_eq(wire_encode(MESSAGE_ID_PREFILL, codec.sent, &codec.frame, &codec.error),
                 STATUS_LIMIT);
    cr_assert_str_eq(codec.error.text, "job.tokens has 4194305 items, the limit is 4194304");
    cr_assert_str_eq(codec.frame.data, "kept");
    free(tokens);
    codec_free(&codec);
}

Test(wire, limits_are_checked_on_arrival_by_field)
{
    static const struct {
        uint32_t type;
        const char *bytes;
        size_t count;
        enum status status;
        const char *text;
    } cases[] = {
        {14, "\x81\x02\xce\x00\x01\x00\x00", 7, STATUS_LIMIT,
         "cancel.attempt has 65536, the limit is 65535"},
        {2,
         "\x81\x01\xc4\x11"
         "0123456789abcdefg",
         21, STATUS_LIMIT, "welcome.boot_id has 17 bytes, the limit is 16"},
        {14, "\x81\x01\xff", 3, STATUS_CORRUPT, "cancel.request has the wrong type"},
        {14, "\x81\x01\xa1x", 4, STATUS_CORRUPT, "cancel.request has the wrong type"},
        {14, "\x82\x01\x05\x01\x06", 5, STATUS_CORRUPT, "cancel.request comes twice"},
        {14, "\x81\xa1x\x05", 4, STATUS_CORRUPT, "cancel is not a map with integer keys"},
        {14, "\x91\x05", 2, STATUS_CORRUPT, "cancel is not a map with integer keys"},
        {14, "\x05", 1, STATUS_CORRUPT, "cancel is not a map with integer keys"},
        {14, "\x80\x80", 2, STATUS_CORRUPT, "cancel has 1 bytes after its end"},
        {14, "\xc1", 1, STATUS_CORRUPT, "cancel is not msgpack at byte 0"},
        {1, "\x81\x0b\x05", 3, STATUS_CORRUPT, "hello.tokens_per_s has the wrong type"},
        {13, "\x81\x01\x91\x05", 4, STATUS_CORRUPT, "tokens.steps has the wrong type"},
        {13, "\x81\x01\x80", 3, STATUS_CORRUPT, "tokens.steps has the wrong type"},
        {13, "\x81\x01\x91\x81\x05\x91\xa1y", 8, STATUS_CORRUPT, "step.tokens has the wrong type"},
    };
    struct codec codec;
    codec_init(&codec, 9);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum message_id got;
        cr_assert_eq(decode(&codec, cases[i].type, cases[i].bytes, cases[i].count, &got),
                     cases[i].status, "case %zu: %s", i, codec.error.text);
        cr_assert_str_eq(codec.error.text, cases[i].text, "case %zu", i);
    }
    codec_free(&codec);
}

Test(wire, keys_that_are_not_known_are_skipped)
{
    /* {request: 7, 99: {"a": [1, {2: nil}, 1.5], "b": bin, 3: []}, choice: 3} */
    static const char payload[] = "\x83\x01\x07\x63\x83\xa1"
                                  "a\x93\x01\x81\x02\xc0\xcb\x3f\xf8\0\0\0\0\0\0\xa1"
                                  "b\xc4\x03xyz\x03\x90\x03\x03";
    struct codec codec;
    codec_init(&codec, 10);
    enum message_id got;
    cr_assert_eq(decode(&codec, 14, payload, sizeof payload - 1, &got), STATUS_OK, "%s",
                 codec.error.text);
    const struct msg_cancel *cancel = codec.got;
    cr_assert_eq(cancel->request, 7u);
    cr_assert_eq(cancel->attempt, 0u);
    cr_assert_eq(cancel->choice, 3u);
    codec_free(&codec);
}

Test(wire, unknown_types_and_majors_are_refused_with_a_sentence)
{
    struct codec codec;
    codec_init(&codec, 11);
    enum message_id got;
    cr_assert_eq(decode(&codec, 999, "\x80", 1, &got), STATUS_UNSUPPORTED);
    cr_assert_str_eq(codec.error.text, "message type 999 is not known here");
    cr_assert_eq(decode(&codec, 0, "\x80", 1, &got), STATUS_UNSUPPORTED);

    const struct msg_ping ping = {.sequence = 5};
    memcpy(codec.sent, &ping, sizeof ping);
    cr_assert_eq(encode(&codec, MESSAGE_ID_PING), STATUS_OK);
    struct wire_prefix prefix;
    for (size_t bytes = 0; bytes < WIRE_PREFIX_BYTES; bytes++)
        cr_assert_eq(wire_prefix_read(codec.frame.data, bytes, 100, &prefix, &codec.error),
                     STATUS_AGAIN);
    for (size_t bit = 0; bit < 8 * codec.frame.size; bit++) {
        cr_assert_eq(wire_frame_check(codec.frame.data, codec.frame.size, NULL), STATUS_OK);
        codec.frame.data[bit / 8] ^= (char)(1 << bit % 8);
        cr_assert_eq(wire_frame_check(codec.frame.data, codec.frame.size, NULL), STATUS_CORRUPT);
        codec.frame.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    codec.frame.data[6] = 9; /* another minor is fine */
    cr_assert_eq(wire_prefix_read(codec.frame.data, WIRE_PREFIX_BYTES, 100, &prefix, &codec.error),
                 STATUS_OK);
    codec.frame.data[4] = 3;
    cr_assert_eq(wire_prefix_read(codec.frame.data, WIRE_PREFIX_BYTES, 100, &prefix, &codec.error),
                 STATUS_MISMATCH);
    cr_assert(strstr(codec.error.text, "protocol 3.9, this one 2.0"), "%s", codec.error.text);
    /* What an older side says may be shorter than a prefix of today. */
    cr_assert_eq(wire_prefix_read(codec.frame.data, 8, 100, &prefix, &codec.error),
                 STATUS_MISMATCH);
    codec.frame.data[4] = WIRE_MAJOR;
    store_le32(codec.frame.data + 12, 101);
    cr_assert_eq(wire_prefix_read(codec.frame.data, WIRE_PREFIX_BYTES, 100, &prefix, &codec.error),
                 STATUS_LIMIT);
    cr_assert_eq(wire_prefix_read("GET / HTTP/1.1", 3, 100, &prefix, &codec.error), STATUS_CORRUPT);
    codec_free(&codec);
}

Test(wire, messages_that_only_stand_inside_others_are_not_sent)
{
    struct codec codec;
    codec_init(&codec, 12);
    memset(codec.sent, 0, wire_message_bytes_max());
    cr_assert_eq(encode(&codec, MESSAGE_ID_STEP), STATUS_INVALID);
    cr_assert_eq(codec.frame.size, 0u);
    codec_free(&codec);
}

Test(wire, an_arena_that_is_too_small_is_a_limit)
{
    struct codec codec;
    codec_init(&codec, 13);
    wire_arena_free(&codec.arena);
    wire_arena_init(&codec.arena, 8);
    enum message_id got;
    cr_assert_eq(decode(&codec, 33, "\x81\x03\x92\x01\x02", 5, &got), STATUS_OK);
    cr_assert_eq(decode(&codec, 33, "\x81\x03\x93\x01\x02\x03", 6, &got), STATUS_LIMIT);
    cr_assert(strstr(codec.error.text, "grant.slots"), "%s", codec.error.text);
    codec_free(&codec);
}
