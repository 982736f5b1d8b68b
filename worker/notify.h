/* What a daemon tells the one that started it, one line at a time on an inherited file descriptor:
 *
 *   STATUS=<sentence>   what it is doing now
 *   DATA=<host:port>    a decode node: where prefill nodes dial
 *   READY=1             the model is loaded and a router has welcomed it
 *   FAILED=<sentence>   it is about to exit with code 1
 *
 * The form is sd_notify's, so a reader skips keys it does not know. Main thread only. */
#ifndef BATON_WORKER_NOTIFY_H
#define BATON_WORKER_NOTIFY_H

#include <stdint.h>

#include "base/status.h"

struct notify {
    int fd; /* -1: nobody listens, or nobody does any more */
};

/* fd 0 means none. INVALID when the descriptor is not open for writing. */
enum status notify_open(struct notify *notify, uint32_t fd, struct error *error);
/* One line, formatted; line breaks in it become spaces. A reader that is gone is no error. */
void notify_line(struct notify *notify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
