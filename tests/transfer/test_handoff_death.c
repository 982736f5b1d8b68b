/* The hand-off between processes: killed and stopped peers. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"

#define PROCESS_MOVER(name) PROCESS_MOVER_OF(handoff_death, name)

enum { LAYERS = 8, STRIP_BYTES = 65536, JOBS = 4, PAGES = 20 };

/* What the parent tells the child: whom to dial and what to deliver. */
struct order {
    char address[128];
    uint64_t handoffs[JOBS], tickets[JOBS];
    bool finish; /* else it stops before the last strip and waits */
};

/* The other process may have to wait for a processor on a busy machine; that is not its death. Only
 * where one is to be found by its silence is the time for that short. */
enum { PATIENT_MS = 50000, SILENT_MS = 2000 };

static void be_patient(struct pair_fix *fix, uint32_t progress_ms)
{
    fix->limits.progress_ms = progress_ms;
    fix->limits.hello_ms = PATIENT_MS;
    fix->connect_ms = PATIENT_MS;
}

/* A prefill node that delivers what it is told and then only turns its loop, until it is killed. */
static void run_prefill(const struct mover_ops *ops, int from, uint32_t progress_ms)
{
    static struct pair_fix fix;
    struct order order;
    if (read(from, &order, sizeof order) != (ssize_t)sizeof order)
        _exit(1);
    fix_init(&fix, ops, LAYERS, STRIP_BYTES);
    be_patient(&fix, progress_ms);
    snprintf(fix.address, sizeof fix.address, "%s", order.address);
    fix_start_prefill(&fix);
    for (uint32_t i = 0; i < JOBS; i++) {
        struct fix_job *job = &fix.jobs[i];
        *job = (struct fix_job){.fix = &fix,
                                .index = i,
                                .page_count = PAGES,
                                .first_page = i % 3 * 7,
                                .handoff = order.handoffs[i],
                                .ticket = order.tickets[i]};
        for (uint32_t p = 0; p < PAGES; p++)
            job->source_slots[p] = i * PAGES + p;
        fix_open(job);
        for (uint32_t layer = 0; layer + 1 < LAYERS; layer++)
            fix_post(job, layer, 0, PAGES);
        if (order.finish)
            fix_post(job, LAYERS - 1, 0, PAGES);
        fix_first(job);
    }
    for (;;)
        loop_run_once(fix.loop, 2);
}

struct two {
    struct pair_fix fix;
    pid_t child;
    int pipe[2];
};

/* The child is made before UCX starts in the parent. */
static void two_start(struct two *two, const struct mover_ops *ops, bool finish,
                      uint32_t progress_ms)
{
    struct order order = {.finish = finish};
    cr_assert_eq(pipe(two->pipe), 0);
    two->child = fork_mortal();
    if (two->child == 0)
        run_prefill(ops, two->pipe[0], progress_ms);
    fix_init(&two->fix, ops, LAYERS, STRIP_BYTES);
    be_patient(&two->fix, progress_ms);
    fix_start_decode(&two->fix);
    for (uint32_t i = 0; i < JOBS; i++) {
        struct fix_job *job = fix_reserve(&two->fix, PAGES, PATIENT_MS);
        order.handoffs[i] = job->handoff;
        order.tickets[i] = job->ticket;
    }
    snprintf(order.address, sizeof order.address, "%s", two->fix.address);
    cr_assert_eq(write(two->pipe[1], &order, sizeof order), (ssize_t)sizeof order);
}

static void two_kill(struct two *two)
{
    if (two->child == 0)
        return;
    cr_assert_eq(kill(two->child, SIGKILL), 0);
    cr_assert_eq(waitpid(two->child, NULL, 0), two->child);
    two->child = 0;
}

static uint64_t bytes_so_far(const struct two *two)
{
    struct handoff_totals totals;
    handoff_receiver_totals(two->fix.decode.receiver, &totals);
    return totals.bytes;
}

PROCESS_MOVER(between_processes_pages_arrive_byte_for_byte)
{
    static struct two two;
    two_start(&two, ops, true, PATIENT_MS);
    TURN_UNTIL(two.fix.loop, two.fix.decode.landed == JOBS);
    for (uint32_t i = 0; i < JOBS; i++)
        fix_check(&two.fix.jobs[i]);
    two_kill(&two);
    fix_end(&two.fix);
}

PROCESS_MOVER(a_sender_is_killed_at_any_moment)
{
    for (uint64_t bytes = 0; bytes < JOBS * PAGES * LAYERS * STRIP_BYTES; bytes += 5u << 20) {
        static struct two two;
        memset(&two, 0, sizeof two);
        two_start(&two, ops, false, PATIENT_MS);
        TURN_UNTIL(two.fix.loop, two.fix.decode.reserved_count < JOBS * PAGES);
        TURN_UNTIL(two.fix.loop,
                   bytes_so_far(&two) >= bytes ||
                       bytes_so_far(&two) == (uint64_t)JOBS * PAGES * (LAYERS - 1) * STRIP_BYTES);
        two_kill(&two);
        TURN_UNTIL(two.fix.loop, two.fix.decode.failed + two.fix.decode.landed == JOBS ||
                                     two.fix.decode.reserved_count > 0);
        for (uint32_t i = 0; i < JOBS; i++)
            handoff_cancel(two.fix.decode.receiver, two.fix.jobs[i].handoff, STATUS_CANCELED, "");
        TURN_UNTIL(two.fix.loop, fix_pages_are_back(&two.fix));
        fix_end(&two.fix);
    }
}

/* A stopped sender is found by its silence; its pages are poisoned when they are free again, and
 * when it goes on nothing of it arrives any more. */
static void stop_sender(const struct mover_ops *ops, uint64_t bytes)
{
    static struct two two;
    memset(&two, 0, sizeof two);
    two_start(&two, ops, false, SILENT_MS);
    TURN_UNTIL(two.fix.loop, two.fix.decode.reserved_count == 0);
    TURN_UNTIL(two.fix.loop, bytes_so_far(&two) >= bytes);
    cr_assert_eq(kill(two.child, SIGSTOP), 0);
    TURN_UNTIL(two.fix.loop, two.fix.decode.failed == JOBS);
    cr_assert_eq(two.fix.jobs[0].failed_status, STATUS_TIMEOUT, "%s", two.fix.jobs[0].failed_text);
    TURN_UNTIL(two.fix.loop, fix_pages_are_back(&two.fix));
    const struct handoff_region *region = &two.fix.decode.region;
    const size_t region_bytes = (size_t)LAYERS * FIX_SLOTS * STRIP_BYTES;
    memset(region->base, 0xee, region_bytes);
    if (getenv("BATON_TEST_LONG") != NULL)
        turn_for(two.fix.loop, 10000);
    cr_assert_eq(kill(two.child, SIGCONT), 0);
    turn_for(two.fix.loop, 500);
    for (size_t i = 0; i < region_bytes; i++)
        if (region->base[i] != 0xee)
            cr_assert_fail("byte %zu was written after its page was free", i);
    two_kill(&two);
    fix_end(&two.fix);
}

PROCESS_MOVER(a_stopped_sender_is_found_and_writes_nothing_later)
{
    stop_sender(ops, 0);
    stop_sender(ops, 16 << 20);
}

/* ---- the same by rendezvous ---- */

/* As over RDMA: the receiver has room and a place before a byte leaves the sender's pages. */
static const struct mover_ops *ucx_by_rendezvous(void)
{
    cr_assert_eq(setenv("UCX_RNDV_THRESH", "1024", 1), 0);
    return mover_of_case("ucx");
}

Test(handoff_death, ucx_rendezvous_arrives_byte_for_byte)
{
    between_processes_pages_arrive_byte_for_byte(ucx_by_rendezvous());
}

Test(handoff_death, ucx_rendezvous_sender_is_killed_at_any_moment)
{
    a_sender_is_killed_at_any_moment(ucx_by_rendezvous());
}

Test(handoff_death, ucx_rendezvous_stopped_sender_is_found_and_writes_nothing_later)
{
    a_stopped_sender_is_found_and_writes_nothing_later(ucx_by_rendezvous());
}

/* ---- the receiver dies ---- */

/* A decode node that reserves what it was asked and tells the ids. */
static void run_decode(const struct mover_ops *ops, int to)
{
    static struct pair_fix fix;
    struct order order = {0};
    fix_init(&fix, ops, LAYERS, STRIP_BYTES);
    be_patient(&fix, PATIENT_MS);
    fix_start_decode(&fix);
    for (uint32_t i = 0; i < JOBS; i++) {
        struct fix_job *job = fix_reserve(&fix, PAGES, PATIENT_MS);
        order.handoffs[i] = job->handoff;
        order.tickets[i] = job->ticket;
    }
    snprintf(order.address, sizeof order.address, "%s", fix.address);
    if (write(to, &order, sizeof order) != (ssize_t)sizeof order)
        _exit(1);
    for (;;)
        loop_run_once(fix.loop, 2);
}

static void lose_receiver(const struct mover_ops *ops, int signal_number, enum status status,
                          uint64_t bytes)
{
    static struct two two;
    struct order order;
    struct handoff_totals totals;
    memset(&two, 0, sizeof two);
    cr_assert_eq(pipe(two.pipe), 0);
    two.child = fork_mortal();
    if (two.child == 0)
        run_decode(ops, two.pipe[1]);
    cr_assert_eq(read(two.pipe[0], &order, sizeof order), (ssize_t)sizeof order);
    fix_init(&two.fix, ops, LAYERS, STRIP_BYTES);
    be_patient(&two.fix, signal_number == SIGSTOP ? SILENT_MS : PATIENT_MS);
    snprintf(two.fix.address, sizeof two.fix.address, "%s", order.address);
    fix_start_prefill(&two.fix);
    for (uint32_t i = 0; i < JOBS; i++) {
        struct fix_job *job = &two.fix.jobs[i];
        *job = (struct fix_job){.fix = &two.fix,
                                .index = i,
                                .page_count = PAGES,
                                .first_page = i % 3 * 7,
                                .handoff = order.handoffs[i],
                                .ticket = order.tickets[i]};
        for (uint32_t p = 0; p < PAGES; p++)
            job->source_slots[p] = i * PAGES + p;
        two.fix.job_count++;
        fix_open(job);
        for (uint32_t layer = 0; layer + 1 < LAYERS; layer++)
            fix_post(job, layer, 0, PAGES);
    }
    TURN_UNTIL(two.fix.loop,
               (handoff_sender_totals(two.fix.prefill.sender, &totals), totals.bytes >= bytes));
    cr_assert_eq(kill(two.child, signal_number), 0);
    for (uint32_t i = 0; i < JOBS; i++) { /* and more to send */
        fix_post(&two.fix.jobs[i], LAYERS - 1, 0, PAGES);
        fix_first(&two.fix.jobs[i]);
    }
    TURN_UNTIL(two.fix.loop, two.fix.prefill.ended == JOBS);
    for (uint32_t i = 0; i < JOBS; i++)
        cr_assert_eq(two.fix.jobs[i].ended_status, status, "%s", two.fix.jobs[i].ended_text);
    handoff_sender_totals(two.fix.prefill.sender, &totals);
    cr_assert_eq(totals.pages, 0u);
    cr_assert_eq(totals.failed, (uint64_t)JOBS);
    two_kill(&two);
    fix_end(&two.fix);
}

PROCESS_MOVER(a_receiver_is_killed)
{
    lose_receiver(ops, SIGKILL, STATUS_CLOSED, 1);
    lose_receiver(ops, SIGKILL, STATUS_CLOSED, 10 << 20);
}

PROCESS_MOVER(a_stopped_receiver_is_found)
{
    lose_receiver(ops, SIGSTOP, STATUS_TIMEOUT, 1);
    lose_receiver(ops, SIGSTOP, STATUS_TIMEOUT, 10 << 20);
}

Test(handoff_death, ucx_rendezvous_receiver_is_killed)
{
    a_receiver_is_killed(ucx_by_rendezvous());
}

Test(handoff_death, ucx_rendezvous_stopped_receiver_is_found)
{
    a_stopped_receiver_is_found(ucx_by_rendezvous());
}
