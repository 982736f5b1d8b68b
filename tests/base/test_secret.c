/* Digests against published vectors; what is taken as a secret file. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/secret.h"
#include "tests/base/capture.h"

static void expect_mac(const void *key, size_t key_bytes, const void *data, size_t bytes,
                       const char *hex)
{
    uint8_t out[CRYPTO_MAC_BYTES];
    char text[2 * CRYPTO_MAC_BYTES + 1];
    crypto_mac(key, key_bytes, data, bytes, out);
    for (size_t i = 0; i < sizeof out; i++)
        snprintf(text + 2 * i, 3, "%02x", out[i]);
    cr_expect_str_eq(text, hex);
}

/* RFC 4231, cases 1, 2 and 6. */
Test(secret, digests_are_those_of_the_standard)
{
    uint8_t key[131];
    memset(key, 0x0b, 20);
    expect_mac(key, 20, "Hi There", 8,
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    expect_mac("Jefe", 4, "what do ya want for nothing?", 28,
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    expect_mac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

Test(secret, equality_and_wiping)
{
    uint8_t a[64], b[64];
    memset(a, 7, sizeof a);
    memset(b, 7, sizeof b);
    cr_expect(crypto_equal(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] ^= 1;
        cr_expect_not(crypto_equal(a, b, sizeof a));
        b[i] ^= 1;
    }
    crypto_wipe(a, sizeof a);
    for (size_t i = 0; i < sizeof a; i++)
        cr_expect_eq(a[i], 0);
}

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/baton-secret-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(secret_file, .init = make_folder, .fini = remove_folder);

static const char *file(const char *name, const void *data, size_t bytes, mode_t mode)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "we");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(data, 1, bytes, out), bytes);
    fclose(out);
    cr_assert_eq(chmod(path, mode), 0);
    return path;
}

static void expect_refused(const char *path, enum status status, const char *a, const char *b)
{
    struct secret secret;
    struct error error = {.text = ""};
    cr_expect_eq(secret_load(path, &secret, &error), status);
    cr_expect(strstr(error.text, a) && strstr(error.text, b), "%s", error.text);
}

Test(secret_file, is_its_bytes_without_the_last_line_break)
{
    struct secret secret;
    struct error error = {.text = ""};
    cr_assert_eq(secret_load(file("a", "0123456789abcdef\n", 17, 0600), &secret, &error), STATUS_OK,
                 "%s", error.text);
    cr_expect_eq(secret.count, 16);
    cr_expect_eq(memcmp(secret.bytes, "0123456789abcdef", 16), 0);
    static uint8_t large[SECRET_BYTES_MAX];
    memset(large, 0x80, sizeof large);
    cr_assert_eq(secret_load(file("b", large, sizeof large, 0600), &secret, &error), STATUS_OK,
                 "%s", error.text);
    cr_expect_eq(secret.count, sizeof large);
}

Test(secret_file, of_another_size_or_kind_is_refused)
{
    static uint8_t large[SECRET_BYTES_MAX + 100];
    memset(large, 'x', sizeof large);
    expect_refused(file("a", "0123456789abcde\n", 16, 0600), STATUS_INVALID, "15 bytes",
                   "16 to 4096");
    expect_refused(file("b", "", 0, 0600), STATUS_INVALID, "0 bytes", "16");
    expect_refused(file("c", large, SECRET_BYTES_MAX + 1, 0600), STATUS_LIMIT, "4097 bytes",
                   "16 to 4096");
    expect_refused(file("d", large, sizeof large, 0600), STATUS_LIMIT, "at least", "4096");
    expect_refused(folder, STATUS_INVALID, folder, "no ordinary file");
    expect_refused("/nowhere/secret", STATUS_IO, "/nowhere/secret", "No such file");
    char pipe_path[128];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    cr_assert_eq(mkfifo(pipe_path, 0600), 0);
    expect_refused(pipe_path, STATUS_INVALID, pipe_path, "no ordinary file");
}

Test(secret_file, that_others_may_read_is_warned_about)
{
    struct secret secret;
    struct capture capture;
    log_init("test", LOG_LEVEL_WARN);
    const char *path = file("a", "0123456789abcdef", 16, 0644);
    capture_begin(&capture, 2);
    const enum status status = secret_load(path, &secret, NULL);
    const char *text = capture_end(&capture);
    cr_expect_eq(status, STATUS_OK);
    cr_expect(strstr(text, "0644") && strstr(text, "chmod 600"), "%s", text);
    path = file("b", "0123456789abcdef", 16, 0600);
    capture_begin(&capture, 2);
    cr_expect_eq(secret_load(path, &secret, NULL), STATUS_OK);
    cr_expect_str_eq(capture_end(&capture), "");
}

Test(secret_file, is_made_once_and_private)
{
    char path[128];
    struct secret first, second;
    struct stat found;
    struct error error = {.text = ""};
    snprintf(path, sizeof path, "%s/made", folder);
    cr_assert_eq(secret_make(path, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(stat(path, &found), 0);
    cr_expect_eq(found.st_mode & 07777u, 0600u);
    cr_assert_eq(secret_load(path, &first, &error), STATUS_OK, "%s", error.text);
    cr_expect_eq(first.count, 64);
    cr_assert_eq(secret_make(path, &error), STATUS_OK);
    cr_assert_eq(secret_load(path, &second, &error), STATUS_OK);
    cr_expect_eq(memcmp(first.bytes, second.bytes, 64), 0);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(secret_make(path, &error), STATUS_OK);
    cr_assert_eq(secret_load(path, &second, &error), STATUS_OK);
    cr_expect_neq(memcmp(first.bytes, second.bytes, 64), 0);
    cr_expect_eq(secret_make("/nowhere/made", &error), STATUS_IO);
}

Test(secret, keys_differ_by_use)
{
    const struct secret secret = {.bytes = "0123456789abcdef", .count = 16};
    uint8_t a[SECRET_KEY_BYTES], b[SECRET_KEY_BYTES];
    secret_key(&secret, "one", a);
    secret_key(&secret, "two", b);
    cr_expect_neq(memcmp(a, b, sizeof a), 0);
    secret_key(&secret, "one", b);
    cr_expect_eq(memcmp(a, b, sizeof a), 0);
}
