/* The small parts of the room, each by itself. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/loop.h"
#include "worker/engine_port.h"
#include "worker/notify.h"
#include "worker/rate.h"
#include "worker/request_table.h"
#include "worker/token_batch.h"

/* ---- notify ---- */

Test(notify, writes_whole_lines_without_breaks_inside)
{
    int fds[2];
    char got[256] = "";
    struct notify notify;
    struct error error;
    cr_assert_eq(pipe(fds), 0);
    cr_assert_eq(notify_open(&notify, (uint32_t)fds[1], &error), STATUS_OK);
    notify_line(&notify, "STATUS=a\nb %d", 7);
    notify_line(&notify, "READY=1");
    cr_assert_gt(read(fds[0], got, sizeof got - 1), 0);
    cr_assert_str_eq(got, "STATUS=a b 7\nREADY=1\n");
}

Test(notify, refuses_what_cannot_be_written_and_survives_a_reader_that_left)
{
    int fds[2];
    struct notify notify;
    struct error error;
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(notify_open(&notify, 777, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "777"));
    cr_assert_eq(pipe(fds), 0);
    cr_assert_eq(notify_open(&notify, (uint32_t)fds[0], &error), STATUS_INVALID);
    cr_assert_eq(notify_open(&notify, 0, &error), STATUS_OK);
    notify_line(&notify, "to nobody");
    cr_assert_eq(notify_open(&notify, (uint32_t)fds[1], &error), STATUS_OK);
    close(fds[0]);
    notify_line(&notify, "x");
    cr_assert_eq(notify.fd, -1);
}

/* ---- request table ---- */

Test(request_table, finds_by_the_whole_key_and_reuses_places)
{
    struct request_table table;
    request_table_create(&table, 3);
    const struct request_key a = {.request = 1, .attempt = 1};
    struct request_key others[] = {a, a, a, a, a};
    others[0].request = 2;
    others[1].attempt = 2;
    others[2].choice = 1;
    others[3].router.index = 1;
    others[4].router.generation = 1;
    const uint32_t place = request_table_add(&table, &a);
    cr_assert_eq(request_table_find(&table, &a), place);
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(request_table_find(&table, &others[i]), REQUEST_NONE);
    cr_assert_neq(request_table_add(&table, &others[0]), REQUEST_NONE);
    cr_assert_neq(request_table_add(&table, &others[1]), REQUEST_NONE);
    cr_assert_eq(request_table_add(&table, &others[2]), REQUEST_NONE);
    request_table_remove(&table, place);
    cr_assert_eq(request_table_find(&table, &a), REQUEST_NONE);
    cr_assert_eq(request_table_add(&table, &others[2]), place);
    request_table_destroy(&table);
}

/* ---- rate ---- */

Test(rate, follows_what_was_measured_and_ignores_idle_time)
{
    struct rate rate;
    rate_init(&rate, 10);
    cr_assert_float_eq(rate_per_s(&rate), 10, 1e-9);
    for (int i = 0; i < 1000; i++)
        rate_add(&rate, 100, 100000000);
    cr_assert_float_eq(rate_per_s(&rate), 1000, 1);
    for (int i = 0; i < 1000; i++)
        rate_add(&rate, 10, 100000000);
    cr_assert_float_eq(rate_per_s(&rate), 100, 1);
}

/* ---- steps ---- */

Test(step, carries_the_token_or_the_stop_id)
{
    const struct request_key key = {.request = 9, .attempt = 3, .choice = 1};
    struct job job = {
        .given_count = 12, .cached_tokens = 7, .sampling = {.logprobs = 1, .top_logprobs = 2}};
    const struct sampled sampled = {.id = 44,
                                    .logprob = -0.5f,
                                    .top_count = 2,
                                    .top_ids = {44, 5},
                                    .top_logprobs = {-0.5f, -2}};
    struct step_storage storage;
    struct msg_step step;
    step_fill(&key, &job, 12, &sampled, FINISH_LENGTH, &storage, &step);
    cr_assert_eq(step.request, 9);
    cr_assert_eq(step.attempt, 3);
    cr_assert_eq(step.choice, 1);
    cr_assert_eq(step.first_position, 12);
    cr_assert_eq(step.finish, FINISH_LENGTH);
    cr_assert_eq(step.cached_tokens, 7);
    cr_assert_eq(step.tokens.count, 1);
    cr_assert_eq(step.tokens.items[0], 44);
    cr_assert_eq(step.logprobs.count, 1);
    cr_assert_eq(step.top_ids.count, 2);
    cr_assert_eq(step.top_ids.items[1], 5);
    cr_assert_eq(step.stop_id, 0);

    step_fill(&key, &job, 12, &sampled, FINISH_STOP, &storage, &step);
    cr_assert_eq(step.tokens.count, 0);
    cr_assert_eq(step.logprobs.count, 0);
    cr_assert_eq(step.top_count, 0);
    cr_assert_eq(step.stop_id, 44);

    job.end_logprobs = true;
    step_fill(&key, &job, 12, &sampled, FINISH_STOP, &storage, &step);
    cr_assert_eq(step.tokens.count, 0);
    cr_assert_eq(step.logprobs.count, 1);
    cr_assert_eq(step.logprobs.items[0], -0.5f);
    cr_assert_eq(step.top_ids.count, 2);
    cr_assert_eq(step.stop_id, 44);

    job.sampling.logprobs = 0;
    step_fill(&key, &job, 13, &sampled, FINISH_NONE, &storage, &step);
    cr_assert_eq(step.cached_tokens, 0, "it was told with the first token");
    cr_assert_eq(step.tokens.count, 1);
    cr_assert_eq(step.logprobs.count, 0);
}

/* ---- engine port: commands come back as events, many more than the ring holds ---- */

enum { ROUNDS = 2000, PORT_EVENTS = 8 };

struct port_scene {
    struct loop *loop;
    struct engine_port *port;
    uint32_t sent, received;
    atomic_uint engine_rounds;
};

static void port_engine(void *arg)
{
    struct port_scene *scene = arg;
    /* Three events a command, so the ring is full most of the time. */
    while (engine_port_room(scene->port, 3)) {
        uint32_t command;
        if (!engine_port_pop_command(scene->port, &command)) {
            engine_port_sleep(scene->port);
            if (engine_port_stopping(scene->port))
                return;
            continue;
        }
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t event = command * 3 + i;
            engine_port_event(scene->port, &event);
        }
        engine_port_ring(scene->port);
        atomic_fetch_add(&scene->engine_rounds, 1);
    }
}

static void port_events(void *arg)
{
    struct port_scene *scene = arg;
    uint32_t event;
    while (engine_port_pop_event(scene->port, &event))
        cr_assert_eq(event, scene->received++);
    engine_port_poke(scene->port);
    while (scene->sent < ROUNDS && scene->sent - scene->received / 3 < PORT_EVENTS) {
        engine_port_command(scene->port, &scene->sent);
        scene->sent++;
    }
    if (scene->received == ROUNDS * 3)
        loop_stop(scene->loop);
}

Test(engine_port, nothing_is_lost_when_the_ring_is_full)
{
    struct port_scene scene = {.loop = loop_create()};
    const struct engine_port_sizes sizes = {.command_bytes = 4,
                                            .command_count = PORT_EVENTS,
                                            .event_bytes = 4,
                                            .event_count = PORT_EVENTS};
    scene.port = engine_port_create(scene.loop, &sizes, port_events, &scene);
    engine_port_start(scene.port, port_engine, &scene);
    port_events(&scene);
    loop_run(scene.loop);
    engine_port_join(scene.port);
    cr_assert_eq(scene.received, ROUNDS * 3);
    engine_port_destroy(scene.port);
    loop_destroy(scene.loop);
}

Test(engine_port, join_ends_an_engine_that_waits_for_room)
{
    struct port_scene scene = {.loop = loop_create()};
    const struct engine_port_sizes sizes = {.command_bytes = 4,
                                            .command_count = PORT_EVENTS,
                                            .event_bytes = 4,
                                            .event_count = PORT_EVENTS};
    scene.port = engine_port_create(scene.loop, &sizes, port_events, &scene);
    engine_port_start(scene.port, port_engine, &scene);
    /* Three commands fit as events twice; nobody takes them. */
    for (uint32_t i = 0; i < 3; i++)
        engine_port_command(scene.port, &i);
    while (atomic_load(&scene.engine_rounds) < 2)
        usleep(100);
    engine_port_join(scene.port);
    engine_port_destroy(scene.port);
    loop_destroy(scene.loop);
}
