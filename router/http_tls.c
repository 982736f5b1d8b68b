#include "router/http_tls_internal.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"
#include "base/log.h"

struct http_tls {
    SSL_CTX *context;
};

static const char *reason(void)
{
    const char *words = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return words ? words : "no reason was given";
}

/* A passphrase can not be asked for. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
    return -1;
}

static void look_at_mode(const char *key_file)
{
    struct stat found;
    if (stat(key_file, &found) == 0 && (found.st_mode & (S_IRWXG | S_IRWXO)))
        LOG_WARN("the key file %s has mode %04o: others than its owner may use it, chmod 600 it",
                 key_file, (unsigned)found.st_mode & 07777u);
}

static enum status load(SSL_CTX *context, const char *cert_file, const char *key_file,
                        struct error *error)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(context, cert_file) != 1)
        return error_set(error, STATUS_INVALID, "--http-cert: %s can not be used: %s", cert_file,
                         reason());
    /* Which has to fit the certificate, also when it is of another kind. */
    if (SSL_CTX_use_PrivateKey_file(context, key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return error_set(error, STATUS_INVALID, "--http-key: %s can not be used: %s", key_file,
                         reason());
    look_at_mode(key_file);
    return STATUS_OK;
}

enum status http_tls_create(const char *cert_file, const char *key_file, struct http_tls **out,
                            struct error *error)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    CHECK(context != NULL);
    CHECK(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    const enum status status = load(context, cert_file, key_file, error);
    if (status != STATUS_OK) {
        SSL_CTX_free(context);
        return status;
    }
    struct http_tls *tls = calloc(1, sizeof *tls);
    CHECK(tls != NULL);
    tls->context = context;
    *out = tls;
    return STATUS_OK;
}

void http_tls_destroy(struct http_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context); /* connections hold on to it */
    free(tls);
}

struct bufferevent *http_tls_stream(struct http_tls *tls, struct event_base *base)
{
    SSL *ssl = SSL_new(tls->context);
    CHECK(ssl != NULL);
    struct bufferevent *stream = bufferevent_openssl_socket_new(
        base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    CHECK(stream != NULL);
    /* Clients that just close are no fault: what they asked for is known by its own framing. */
    bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
    return stream;
}

void http_tls_say_last(struct bufferevent *stream, const void *data, size_t bytes)
{
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    size_t sent = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl, data, bytes, &sent) != 1 || sent != bytes)
        LOG_DEBUG("a refusal did not reach its client whole");
    SSL_shutdown(ssl);
    ERR_clear_error();
}
