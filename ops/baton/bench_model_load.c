/* `baton bench model --load`: how long a model takes to open, and its packing beside a mere copy of
 * the same bytes from the file into fresh memory: what a file of packed weights could save. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ops/baton/bench_model.h"
#include "ops/baton/bench_time.h"

enum { PIECE_BYTES = 1 << 20, HUGE_PAGE = 2 << 20 };

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_now_ns(clock_monotonic()) - begin_ns) / NS_PER_S;
}

static void copy_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct copy *copy = arg;
    const size_t first = (size_t)piece * PIECE_BYTES, rest = copy->bytes - first;
    memcpy(copy->to + first, copy->from + first, rest < PIECE_BYTES ? rest : PIECE_BYTES);
}

/* The mapped file into large pages that nobody has touched, by the whole team. */
static double copy_measure(struct team *team, const void *from, size_t bytes)
{
    const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    struct copy copy = {aligned_alloc(HUGE_PAGE, whole), from, bytes};
    CHECK(copy.to != NULL);
    (void)madvise(copy.to, whole, MADV_HUGEPAGE); /* only advice */
    const uint64_t begin_ns = clock_now_ns(clock_monotonic());
    team_share(team, copy_piece, &copy, (uint32_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES));
    const double seconds = seconds_since(begin_ns);
    free(copy.to);
    return seconds;
}

/* As the loader maps it. `bytes` of it are copied; the file may have changed since it was opened.
 */
static enum status copy_file(struct team *team, const char *path, uint64_t bytes,
                             double *seconds_out, struct error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        const enum status status = error_set_errno(error, STATUS_IO, "cannot read %s", path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    const size_t mapped = (uint64_t)stat.st_size < bytes ? (size_t)stat.st_size : (size_t)bytes;
    void *map = mapped > 0 ? mmap(NULL, mapped, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return error_set_errno(error, STATUS_IO, "cannot map %s", path);
    *seconds_out = copy_measure(team, map, mapped);
    munmap(map, mapped);
    return STATUS_OK;
}

static enum status load_once(const struct model_options *options, struct team *team,
                             struct load_result *out, struct error *error)
{
    struct model *model;
    const uint64_t begin_ns = clock_now_ns(clock_monotonic());
    TRY(model_open(options, &model, error));
    out->open_seconds = seconds_since(begin_ns);
    out->pack_seconds = model_info(model)->pack_seconds;
    out->bytes = model_info(model)->tensor_bytes;
    model_close(model);
    return copy_file(team, options->path, out->bytes, &out->copy_seconds, error);
}

enum status bench_load(const struct model_options *options, struct team *team, uint32_t run_count,
                       struct load_result *out, struct error *error)
{
    double *seconds = malloc(3 * run_count * sizeof *seconds);
    double *const open = seconds, *const pack = open + run_count, *const copy = pack + run_count;
    enum status status = STATUS_OK;
    CHECK(seconds != NULL);
    for (uint32_t i = 0; i < run_count && status == STATUS_OK; i++) {
        struct load_result once = {0};
        status = load_once(options, team, &once, error);
        open[i] = once.open_seconds;
        pack[i] = once.pack_seconds;
        copy[i] = once.copy_seconds;
        out->bytes = once.bytes;
    }
    if (status == STATUS_OK) {
        out->open_seconds = bench_median(open, run_count);
        out->pack_seconds = bench_median(pack, run_count);
        out->copy_seconds = bench_median(copy, run_count);
    }
    free(seconds);
    return status;
}
