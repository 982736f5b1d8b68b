#include "base/crypto_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"
#include "base/crypto.h"
#include "base/loop.h"

enum { READ_AHEAD_BYTES = 128 << 10, PSK_SUITE_ID = 0x1301 };

/* The hash of the suite is that of the key. */
#define PSK_SUITE    "TLS_AES_128_GCM_SHA256"
#define PSK_IDENTITY "baton"
#define FILE_SUITES  "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"

/* The library asks for one where sessions and certificates are both looked at. */
static const unsigned char session_context[] = {'b', 'a', 't', 'o', 'n'};

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *socket;
    bool has_key;
    uint8_t key[TLS_KEY_BYTES];
};

struct tls {
    SSL *ssl;
    int fd;
    bool dialled, keyed, heard; /* heard: something came after the greeting */
    unsigned wants;
};

/* ---- the socket ---- */

/* OpenSSL's own would raise SIGPIPE. */
static int socket_write(BIO *bio, const char *data, int bytes)
{
    const struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t done = send(tls->fd, data, (size_t)bytes, MSG_NOSIGNAL);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)done;
}

static int socket_read(BIO *bio, char *data, int bytes)
{
    const struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t done = recv(tls->fd, data, (size_t)bytes, 0);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)done;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "baton socket");
    CHECK(method != NULL && BIO_meth_set_write(method, socket_write) &&
          BIO_meth_set_read(method, socket_read) && BIO_meth_set_ctrl(method, socket_control));
    return method;
}

/* ---- who we are ---- */

/* The newest of what went wrong inside the library, in its words. */
static const char *library_words(void)
{
    const char *words = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return words ? words : "no reason was given";
}

/* The shared key as the session that both sides claim to resume. */
static SSL_SESSION *key_session(SSL *ssl)
{
    static const unsigned char suite[] = {PSK_SUITE_ID >> 8, PSK_SUITE_ID & 0xff};
    const struct tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    CHECK(session != NULL && cipher != NULL);
    CHECK(SSL_SESSION_set1_master_key(session, context->key, sizeof context->key) &&
          SSL_SESSION_set_cipher(session, cipher) &&
          SSL_SESSION_set1_id_context(session, session_context, sizeof session_context) &&
          SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION));
    return session;
}

static int on_key_wanted(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                         size_t *identity_bytes, SSL_SESSION **session)
{
    *identity = (const unsigned char *)PSK_IDENTITY;
    *identity_bytes = strlen(PSK_IDENTITY);
    *session = key_session(ssl);
    return 1;
}

static int on_key_named(SSL *ssl, const unsigned char *identity, size_t identity_bytes,
                        SSL_SESSION **session)
{
    *session = NULL;
    if (identity_bytes == strlen(PSK_IDENTITY) &&
        memcmp(identity, PSK_IDENTITY, identity_bytes) == 0)
        *session = key_session(ssl);
    return 1;
}

static void use_key(struct tls_context *context, const uint8_t *key)
{
    context->has_key = true;
    memcpy(context->key, key, sizeof context->key);
    SSL_CTX_set_psk_use_session_callback(context->ssl, on_key_wanted);
    SSL_CTX_set_psk_find_session_callback(context->ssl, on_key_named);
    CHECK(SSL_CTX_set_ciphersuites(context->ssl, PSK_SUITE));
}

static enum status use_files(struct tls_context *context, const struct tls_identity *identity,
                             struct error *error)
{
    SSL_CTX *ssl = context->ssl;
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ssl, identity->cert_file) != 1)
        return error_set(error, STATUS_INVALID, "the certificate %s cannot be used: %s",
                         identity->cert_file, library_words());
    if (SSL_CTX_use_PrivateKey_file(ssl, identity->key_file, SSL_FILETYPE_PEM) != 1)
        return error_set(error, STATUS_INVALID, "the key %s cannot be used with %s: %s",
                         identity->key_file, identity->cert_file, library_words());
    if (SSL_CTX_load_verify_locations(ssl, identity->ca_file, NULL) != 1)
        return error_set(error, STATUS_INVALID, "the authority %s cannot be used: %s",
                         identity->ca_file, library_words());
    CHECK(SSL_CTX_set_ciphersuites(ssl, FILE_SUITES));
    return STATUS_OK;
}

enum status tls_context_create(const struct tls_identity *identity, struct tls_context **out,
                               struct error *error)
{
    const bool files = identity->cert_file && identity->key_file && identity->ca_file;
    if (!identity->key && !files)
        return error_set(error, STATUS_INVALID,
                         "TLS needs a shared secret, or a certificate, its key and an authority");
    struct tls_context *context = calloc(1, sizeof *context);
    CHECK(context != NULL);
    context->ssl = SSL_CTX_new(TLS_method());
    context->socket = socket_method();
    CHECK(context->ssl != NULL && SSL_CTX_set_min_proto_version(context->ssl, TLS1_3_VERSION));
    SSL_CTX_set_app_data(context->ssl, context);
    /* No certificate is shown where there is a key: then whatever is shown is refused. */
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    CHECK(SSL_CTX_set_session_id_context(context->ssl, session_context, sizeof session_context));
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context->ssl, 0);
    SSL_CTX_set_mode(context->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                       SSL_MODE_RELEASE_BUFFERS);
    /* Frames have their own lengths: an end inside one is noticed without the library. */
    SSL_CTX_set_options(context->ssl, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_read_ahead(context->ssl, 1);
    SSL_CTX_set_default_read_buffer_len(context->ssl, READ_AHEAD_BYTES);
    enum status status = STATUS_OK;
    if (files)
        status = use_files(context, identity, error);
    else
        use_key(context, identity->key);
    if (status != STATUS_OK) {
        tls_context_destroy(context);
        return status;
    }
    *out = context;
    return STATUS_OK;
}

void tls_context_destroy(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->socket);
    crypto_wipe(context->key, sizeof context->key);
    free(context);
}

/* ---- one connection ---- */

struct tls *tls_create(struct tls_context *context, int fd, bool dialled)
{
    struct tls *tls = calloc(1, sizeof *tls);
    CHECK(tls != NULL);
    tls->fd = fd;
    tls->dialled = dialled;
    tls->keyed = context->has_key;
    tls->ssl = SSL_new(context->ssl);
    BIO *bio = BIO_new(context->socket);
    CHECK(tls->ssl != NULL && bio != NULL);
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    if (dialled)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
    return tls;
}

void tls_destroy(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

/* What a call that did not succeed means; `cause` is errno right after it. */
static enum status outcome(struct tls *tls, int result, int cause, struct error *error)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        tls->wants = LOOP_READ;
        return STATUS_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        tls->wants = LOOP_WRITE;
        return STATUS_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return error_set(error, STATUS_CLOSED, "the other side closed the connection");
    case SSL_ERROR_SYSCALL:
        errno = cause;
        return cause ? error_set_errno(error, STATUS_CLOSED, "the connection broke")
                     : error_set(error, STATUS_CLOSED, "the other side closed the connection");
    default:
        break;
    }
    /* The side that answers a greeting learns last whether it was believed. */
    if (!tls->heard)
        return error_set(error, STATUS_MISMATCH,
                         "the two sides did not prove to each other who they are (%s): both need "
                         "the same secret, or certificates of one authority",
                         library_words());
    return error_set(error, STATUS_CORRUPT, "what came is not TLS: %s", library_words());
}

enum status tls_greet(struct tls *tls, struct error *error)
{
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(tls->ssl);
    if (result != 1)
        return outcome(tls, result, errno, error);
    /* The library would also be content with a certificate that it trusts. */
    if (tls->keyed && !SSL_session_reused(tls->ssl))
        return error_set(error, STATUS_MISMATCH, "the other side did not use the shared secret");
    return STATUS_OK;
}

enum status tls_read(struct tls *tls, void *data, size_t bytes, size_t *done_out,
                     struct error *error)
{
    size_t done = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_read_ex(tls->ssl, data, bytes, &done);
    if (result != 1)
        return outcome(tls, result, errno, error);
    tls->heard = true;
    *done_out = done;
    return STATUS_OK;
}

enum status tls_write(struct tls *tls, const void *data, size_t bytes, size_t *done_out,
                      struct error *error)
{
    size_t done = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_write_ex(tls->ssl, data, bytes, &done);
    if (result != 1)
        return outcome(tls, result, errno, error);
    *done_out = done;
    return STATUS_OK;
}

unsigned tls_wants(const struct tls *tls)
{
    return tls->wants;
}
