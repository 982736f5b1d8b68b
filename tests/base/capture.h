/* What a piece of the program writes to standard output or standard error, as text. */
#ifndef BATON_TESTS_BASE_CAPTURE_H
#define BATON_TESTS_BASE_CAPTURE_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

struct capture {
    int fd, saved, memory;
    char text[65536];
};

static inline void capture_begin(struct capture *capture, int fd)
{
    fflush(stdout);
    capture->fd = fd;
    capture->saved = dup(fd);
    capture->memory = memfd_create("capture", 0);
    CHECK(capture->saved >= 0 && capture->memory >= 0);
    /* As for any log file: only appending writes of several threads never overwrite each other. */
    CHECK(fcntl(capture->memory, F_SETFL, O_APPEND) == 0);
    CHECK(dup2(capture->memory, fd) >= 0);
}

static inline const char *capture_end(struct capture *capture)
{
    fflush(stdout);
    CHECK(dup2(capture->saved, capture->fd) >= 0);
    const ssize_t bytes = pread(capture->memory, capture->text, sizeof capture->text - 1, 0);
    CHECK(bytes >= 0);
    capture->text[bytes] = '\0';
    close(capture->saved);
    close(capture->memory);
    return capture->text;
}

#endif
