#include "router/api_keys.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/random.h"

enum { LINE_BYTES = 1024, WORDS_MAX = 5, MINUTE_S = 60 };

struct bucket {
    uint64_t per_minute; /* 0: no limit */
    double level;        /* below 0 it owes */
    uint64_t filled_ns;
};

struct api_key {
    uint8_t digest[CRYPTO_MAC_BYTES];
    char tenant[API_TENANT_BYTES];
    bool is_operator;
    struct bucket requests, tokens;
};

struct api_keys {
    uint8_t secret[CRYPTO_MAC_BYTES]; /* of this process, so that digests tell nothing */
    uint32_t count;
    struct api_key keys[API_KEYS_MAX];
};

/* ---- buckets ---- */

static void fill(struct bucket *bucket, uint64_t now_ns)
{
    const double full = (double)bucket->per_minute;
    if (bucket->filled_ns == 0)
        bucket->level = full;
    else if (now_ns > bucket->filled_ns)
        bucket->level += full * (double)(now_ns - bucket->filled_ns) / NS_PER_S / MINUTE_S;
    if (bucket->level > full)
        bucket->level = full;
    bucket->filled_ns = now_ns;
}

/* Seconds until the level is `wanted`, 0 when it is. */
static uint32_t wait_s(struct bucket *bucket, double wanted, uint64_t now_ns)
{
    if (bucket->per_minute == 0)
        return 0;
    fill(bucket, now_ns);
    if (bucket->level >= wanted)
        return 0;
    const double seconds = ceil((wanted - bucket->level) * MINUTE_S / (double)bucket->per_minute);
    return seconds < 1 ? 1 : seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

enum api_limit api_key_admit(struct api_key *key, uint64_t now_ns, uint32_t *retry_s_out)
{
    const uint32_t requests_s = wait_s(&key->requests, 1, now_ns);
    if (requests_s > 0) {
        *retry_s_out = requests_s;
        return API_OVER_REQUESTS;
    }
    const uint32_t tokens_s = wait_s(&key->tokens, 1, now_ns);
    if (tokens_s > 0) {
        *retry_s_out = tokens_s;
        return API_OVER_TOKENS;
    }
    key->requests.level -= key->requests.per_minute > 0;
    return API_WITHIN;
}

void api_key_charge(struct api_key *key, uint64_t tokens, uint64_t now_ns)
{
    if (key->tokens.per_minute == 0)
        return;
    fill(&key->tokens, now_ns);
    key->tokens.level -= (double)tokens;
}

uint64_t api_key_limit(const struct api_key *key, enum api_limit which)
{
    return which == API_OVER_REQUESTS ? key->requests.per_minute : key->tokens.per_minute;
}

const char *api_key_tenant(const struct api_key *key)
{
    return key->tenant;
}

bool api_key_is_operator(const struct api_key *key)
{
    return key->is_operator;
}

/* ---- finding ---- */

static void digest(const struct api_keys *keys, const char *key, uint8_t out[CRYPTO_MAC_BYTES])
{
    crypto_mac(keys->secret, sizeof keys->secret, key, strlen(key), out);
}

/* All are looked at, equal or not. */
static const struct api_key *find(const struct api_keys *keys, const char *presented)
{
    uint8_t wanted[CRYPTO_MAC_BYTES];
    const struct api_key *found = NULL;
    digest(keys, presented, wanted);
    for (uint32_t i = 0; i < keys->count; i++) {
        if (crypto_equal(keys->keys[i].digest, wanted, sizeof wanted))
            found = &keys->keys[i];
    }
    return found;
}

struct api_key *api_keys_find(const struct api_keys *keys, const char *presented)
{
    return (struct api_key *)find(keys, presented);
}

uint32_t api_keys_count(const struct api_keys *keys)
{
    return keys->count;
}

void api_keys_destroy(struct api_keys *keys)
{
    if (!keys)
        return;
    crypto_wipe(keys, sizeof *keys);
    free(keys);
}

/* ---- the file ---- */

struct place {
    const char *path;
    unsigned line;
};

static enum status wrong(const struct place *place, struct error *error, const char *what)
{
    return error_set(error, STATUS_INVALID, "line %u of the key file %s %s", place->line,
                     place->path, what);
}

static enum status read_key(struct api_keys *keys, const struct place *place, const char *word,
                            struct error *error)
{
    const size_t bytes = strlen(word);
    if (bytes < API_KEY_BYTES_MIN || bytes > API_KEY_BYTES_MAX)
        return error_set(error, STATUS_INVALID,
                         "line %u of the key file %s begins with a key of %zu bytes; it must have "
                         "%d to %d",
                         place->line, place->path, bytes, API_KEY_BYTES_MIN, API_KEY_BYTES_MAX);
    for (const char *c = word; *c; c++) {
        if (*c <= ' ' || *c > '~')
            return wrong(place, error, "has a key with a byte that is not printable ASCII");
    }
    if (find(keys, word))
        return wrong(place, error, "has a key that an earlier line has as well");
    digest(keys, word, keys->keys[keys->count].digest);
    return STATUS_OK;
}

static enum status read_tenant(struct api_key *key, const struct place *place, const char *word,
                               struct error *error)
{
    if (!word)
        return wrong(place, error, "has no tenant name behind its key");
    if (strlen(word) >= API_TENANT_BYTES)
        return error_set(error, STATUS_INVALID,
                         "line %u of the key file %s has a tenant name of %zu bytes; the limit is "
                         "%d",
                         place->line, place->path, strlen(word), API_TENANT_BYTES - 1);
    for (const char *c = word; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            return wrong(place, error,
                         "has a tenant name with something else in it than letters, digits, -, _ "
                         "and .");
    }
    snprintf(key->tenant, sizeof key->tenant, "%s", word);
    return STATUS_OK;
}

static enum status read_right(struct api_key *key, const struct place *place, const char *word,
                              struct error *error)
{
    static const char requests[] = "requests=", tokens[] = "tokens=";
    const bool is_requests = strncmp(word, requests, sizeof requests - 1) == 0;
    if (strcmp(word, "operator") == 0) {
        key->is_operator = true;
        return STATUS_OK;
    }
    if (!is_requests && strncmp(word, tokens, sizeof tokens - 1) != 0)
        return wrong(place, error, "has a word that is none of operator, requests=N and tokens=N");
    struct bucket *bucket = is_requests ? &key->requests : &key->tokens;
    const char *digits = strchr(word, '=') + 1;
    uint64_t value = 0;
    for (const char *c = digits; *c; c++) {
        if (!isdigit((unsigned char)*c) || value > API_PER_MINUTE_MAX)
            value = UINT64_MAX / 20;
        else
            value = value * 10 + (uint64_t)(*c - '0');
    }
    if (value == 0 || value > API_PER_MINUTE_MAX)
        return error_set(error, STATUS_INVALID,
                         "line %u of the key file %s has the limit %.40s; it goes from 1 to %d a "
                         "minute",
                         place->line, place->path, word, API_PER_MINUTE_MAX);
    if (bucket->per_minute != 0)
        return wrong(place, error, "has one limit twice");
    bucket->per_minute = value;
    return STATUS_OK;
}

static enum status read_line(struct api_keys *keys, const struct place *place, char *line,
                             struct error *error)
{
    char *rest = line;
    char *words[WORDS_MAX + 1] = {NULL};
    uint32_t count = 0;
    for (char *word; count <= WORDS_MAX && (word = strtok_r(rest, " \t\r\n", &rest)) != NULL;)
        words[count++] = word;
    if (count == 0 || words[0][0] == '#')
        return STATUS_OK;
    if (count > WORDS_MAX)
        return wrong(place, error, "has more than a key, a name, operator and two limits");
    if (keys->count == API_KEYS_MAX)
        return error_set(error, STATUS_LIMIT, "the key file %s has more than %d keys", place->path,
                         API_KEYS_MAX);
    struct api_key *key = &keys->keys[keys->count];
    TRY(read_key(keys, place, words[0], error));
    TRY(read_tenant(key, place, words[1], error));
    for (uint32_t i = 2; i < count; i++)
        TRY(read_right(key, place, words[i], error));
    keys->count++;
    return STATUS_OK;
}

static enum status read_file(FILE *file, const char *path, struct api_keys *keys,
                             struct error *error)
{
    char line[LINE_BYTES];
    struct place place = {.path = path};
    enum status status = STATUS_OK;
    while (status == STATUS_OK && fgets(line, sizeof line, file)) {
        place.line++;
        const size_t bytes = strlen(line);
        status = bytes == sizeof line - 1 && line[bytes - 1] != '\n'
                     ? wrong(&place, error, "has more than 1022 bytes")
                     : read_line(keys, &place, line, error);
    }
    if (status == STATUS_OK && ferror(file))
        status = error_set_errno(error, STATUS_IO, "the key file %s cannot be read", path);
    crypto_wipe(line, sizeof line);
    if (status == STATUS_OK && keys->count == 0)
        return error_set(error, STATUS_INVALID,
                         "the key file %s has no key: nobody could use the API", path);
    return status;
}

/* A pipe or a device that never answers must not hold up the start. */
static enum status open_file(const char *path, FILE **out, struct error *error)
{
    struct stat found;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "the key file %s cannot be opened", path);
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        close(fd);
        return error_set(error, STATUS_INVALID, "the key file %s is no ordinary file", path);
    }
    if (found.st_mode & (S_IRWXG | S_IRWXO))
        LOG_WARN("the key file %s has mode %04o: others than its owner may use it, chmod 600 it",
                 path, (unsigned)found.st_mode & 07777u);
    *out = fdopen(fd, "r");
    CHECK(*out != NULL);
    return STATUS_OK;
}

enum status api_keys_load(const char *path, struct api_keys **out, struct error *error)
{
    FILE *file = NULL;
    TRY(open_file(path, &file, error));
    struct api_keys *keys = calloc(1, sizeof *keys);
    CHECK(keys != NULL);
    random_os_bytes(keys->secret, sizeof keys->secret);
    const enum status status = read_file(file, path, keys, error);
    fclose(file);
    if (status != STATUS_OK) {
        api_keys_destroy(keys);
        return status;
    }
    *out = keys;
    return STATUS_OK;
}
