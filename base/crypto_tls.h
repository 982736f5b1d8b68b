/* TLS 1.3 over non-blocking sockets of the caller, both sides always authenticated: by a key they
 * share or by certificates of one authority. One thread a connection; with crypto.c the only
 * wrapper of OpenSSL. */
#ifndef BATON_BASE_CRYPTO_TLS_H
#define BATON_BASE_CRYPTO_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tls_context; /* who we are, for all connections */
struct tls;         /* one connection */

enum { TLS_KEY_BYTES = 32 };

/* Either a key, or all three files (PEM). With files, whoever has a certificate of that authority
 * is let in: give a cluster one of its own. */
struct tls_identity {
    const uint8_t *key; /* [TLS_KEY_BYTES] */
    const char *cert_file, *key_file, *ca_file;
};

/* INVALID with the file and the reason when something of it cannot be used. Copies the key. */
enum status tls_context_create(const struct tls_identity *identity, struct tls_context **out,
                               struct error *error);
void tls_context_destroy(struct tls_context *context); /* after its connections; NULL is fine */

/* The socket stays the caller's, connected and non-blocking. */
struct tls *tls_create(struct tls_context *context, int fd, bool dialled);
/* Sends nothing more; closing the socket tells the other side. NULL is fine. */
void tls_destroy(struct tls *tls);

/* These give OK, AGAIN (call again when tls_wants is met), CLOSED by the other side or the network,
 * MISMATCH when one of the two did not prove who it is, CORRUPT for anything else that is no TLS.
 */
enum status tls_greet(struct tls *tls, struct error *error);
/* At least one byte, at most `bytes`, when OK. Bytes taken from the socket may wait inside: after
 * the greeting, and after any OK, read until AGAIN before waiting for the socket. */
enum status tls_read(struct tls *tls, void *data, size_t bytes, size_t *done_out,
                     struct error *error);
/* After AGAIN the same bytes have to be offered again, though they may have moved. */
enum status tls_write(struct tls *tls, const void *data, size_t bytes, size_t *done_out,
                      struct error *error);
/* LOOP_READ or LOOP_WRITE, of the last AGAIN. */
unsigned tls_wants(const struct tls *tls);

#endif
