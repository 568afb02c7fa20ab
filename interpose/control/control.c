#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "agent/protocol/common_messages.h"
#include "agent/protocol/program_messages.h"
#include "interpose/control/control_priv.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/span.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/command/power.h"
#include "state/image/park.h"

#define RETRY_MS       500
#define STATUS_MS      250
#define COSTS_MS       1000
#define NEED_MS        2000 /* Time between two counts of the host memory that a suspend would need. */
#define FLUSH_MS       10 /* Time between two attempts to send, while the agent reads slowly. */
#define LISTEN_MS      500
#define FLUSH_WHOLE_MS 1000
#define JOBS_MAX       (2 * PROTOCOL_PREWARM_MAX)
#define STACK_SMALL    (256u << 10)

/** A request of the agent. It runs on a thread of its own, and goes on if the connection ends. */
struct job {
    struct job *next;
    struct control_request request;
    atomic_bool cancel;
    struct move_change change;
    struct move_progress progress; /**< Guarded by control.lock, like all below. */
    struct control_report report;
    bool progress_new;
    bool finished;
    uint64_t connection; /**< Number of the connection that the request came by. */
};

/** State of the connection. Only the control thread uses it. */
struct link {
    struct wire wire;
    bool welcome;
    bool status_due;
    bool seeks;     /**< The agent was told that the program waits for another device. */
    uint64_t asked; /**< Time when the agent was told so, for traces; or 0. */
    struct control_power power;
    bool power_due;      /**< The agent's last MSG_POWER was not answered yet. */
    uint64_t wish;       /**< Edition of the wish that was sent last. */
    uint64_t sent;       /**< Digest of the status that was sent last. */
    uint64_t next_costs; /**< Time of the next report of launch times. */
    bool learns;         /**< The agent keeps launch times. */
    uint64_t next_tend,
        next_need;  /**< Times of the next care for warm pages, and of the next count of `needs`. */
    uint64_t needs; /**< Bytes of host memory that a suspend would take. */
};

/** There is one for a process. */
static struct control {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    pthread_cond_t woken;    /**< `due` became true. */
    pthread_cond_t listened; /**< `listens` became true. */
    bool listener, started; /**< The listening thread and the control thread run in this process. */
    bool resolved;          /**< The first attempt to ask the agent has ended. */
    bool welcome;           /**< An agent listens. */
    bool places;            /**< The agent chooses devices for programs that lost theirs. */
    uint32_t
        device_count; /**< Number of `devices`: where the agent said that the program starts. */
    struct device_key devices[PROTOCOL_VDEVS_MAX];
    struct job *jobs;
    unsigned job_count;
    uint64_t connection; /**< Number of the connection: a report is sent only by the one that its
                            request came by. */
    bool parked;         /**< The program is parked (park.h); a job waits until it is resumed. */
    bool due;            /**< The control thread has something to do. */
    struct owned heard;  /**< Socket that the listening thread polls; owned by the wire. */
    bool listens;        /**< The listening thread polls until something arrives. */
    struct link link;    /**< Of the control thread; not guarded. */
} control = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .answered = PTHREAD_COND_INITIALIZER,
             .woken = PTHREAD_COND_INITIALIZER,
             .listened = PTHREAD_COND_INITIALIZER,
             .heard = {.fd = -1},
             .link = {.wire.socket.fd = -1}};

static void control_wake_locked(void)
{
    control.due = true;
    pthread_cond_signal(&control.woken);
}

static void control_wake_thread(void)
{
    pthread_mutex_lock(&control.lock);
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
}

static void control_resolve_locked(void)
{
    control.resolved = true;
    pthread_cond_broadcast(&control.answered);
}

/* ---- moves, each on its own thread ---- */

static void control_job_progress(void *data, const struct move_progress *progress)
{
    struct job *job = data;

    pthread_mutex_lock(&control.lock);
    job->progress = *progress;
    job->progress_new = true;
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
}

static void *control_job_main(void *data)
{
    struct job *job = data;
    struct control_report report;

    control_job_run(&job->request, &report);
    bool parked = report.parked;
    if (parked)
        report.box = control_park_begin();
    pthread_mutex_lock(&control.lock);
    control.parked = control.parked || parked;
    job->report = report;
    job->finished = true;
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
    if (!parked)
        return NULL;
    control_park_wait();
    if (control_park_restored())
        lease_renewer_restored();
    park_end();
    pthread_mutex_lock(&control.lock);
    control.parked = false;
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
    return NULL;
}

/* ---- the connection ---- */

static void control_link_drop(struct link *link)
{
    wire_close(&link->wire);
    link->welcome = false;
    link->power.turn = 0;
    power_set(false, 0); /* without an agent nobody grants power */
    control_budget_alone();
    control_trace_drop();

    /* Cancel the moves: whoever asked for them cannot be told the result any more. */
    pthread_mutex_lock(&control.lock);
    for (struct job *job = control.jobs; job; job = job->next)
        atomic_store(&job->cancel, true);
    control.welcome = false;
    control_resolve_locked();
    pthread_mutex_unlock(&control.lock);
}

static void control_link_send(struct link *link, struct frame *frame)
{
    if (!wire_is_open(&link->wire))
        frame_finish(frame);
    else if (wire_send(&link->wire, frame))
        control_link_drop(link);
}

static void control_send_frame(void *data, struct frame *frame)
{
    control_link_send(data, frame);
}

static void control_send_status(struct link *link)
{
    struct frame frame;

    control_frame_status(&frame);
    uint64_t digest = XXH64(frame.buffer.data, frame.buffer.size, 0);
    if (!link->status_due && digest == link->sent) {
        frame_finish(&frame);
        return;
    }
    link->sent = digest;
    link->status_due = false;
    control_link_send(link, &frame);
}

static void control_send_wish(struct link *link)
{
    struct aware_wish wish;
    struct frame frame;

    aware_wish(&wish);
    if (wish.edition == link->wish)
        return;
    link->wish = wish.edition;
    frame_init(&frame, MSG_WISH);
    put_wish(&frame, &wish);
    control_link_send(link, &frame);
}

/** Send launch times. Samples stay with the engine while earlier messages wait to be sent. */
static void control_send_costs(struct link *link)
{
    struct pace_sample samples[PROTOCOL_SAMPLES_MAX];
    struct frame frame;

    if (!link->learns || clock_now_ns() < link->next_costs || link->wire.out.size != 0)
        return;
    link->next_costs = clock_now_ns() + COSTS_MS * NS_PER_MS;
    uint32_t count = pace_samples_take(samples, PROTOCOL_SAMPLES_MAX);
    if (count == 0)
        return;
    frame_init(&frame, MSG_COSTS);
    frame_array(&frame, "samples");
    for (uint32_t i = 0; i < count; i++) {
        frame_map(&frame, NULL);
        put_sample(&frame, &samples[i]);
        frame_end(&frame);
    }
    frame_end(&frame);
    control_link_send(link, &frame);
}

/** Whether launches wait for power or have ended, where a power cap matters. */
static void control_send_power(struct link *link)
{
    struct power_state state;
    struct frame frame;

    if (link->power.turn == 0)
        return;
    power_read(&state);
    if (!link->power_due && state.runs == link->power.runs && state.wants == link->power.wants)
        return;
    link->power_due = false;
    link->power.runs = state.runs;
    link->power.wants = state.wants;
    frame_init(&frame, MSG_POWER);
    put_power_use(&frame, &link->power);
    control_link_send(link, &frame);
}

static void control_send_report(struct link *link, uint64_t id, const struct control_report *report)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", id);
    put_report(&frame, report);
    control_link_send(link, &frame);
}

/** Send the progress and reports of all jobs, and free the jobs that ended. */
static void control_serve_jobs(struct link *link)
{
    for (;;) {
        struct job *job, **at, copy;
        bool finished = false, progress = false, mine = false;

        pthread_mutex_lock(&control.lock);
        for (at = &control.jobs; (job = *at); at = &job->next)
            if (job->finished || job->progress_new)
                break;
        if (job) {
            copy.request.id = job->request.id;
            copy.report = job->report;
            copy.progress = job->progress;
            mine = job->connection == control.connection;
            progress = job->progress_new;
            finished = job->finished;
            job->progress_new = false;
            if (finished) {
                *at = job->next;
                control.job_count--;
            }
        }
        pthread_mutex_unlock(&control.lock);
        if (!job)
            return;
        if (mine && progress && !finished) {
            struct frame frame;
            frame_init(&frame, MSG_PROGRESS);
            frame_u64(&frame, "request", copy.request.id);
            put_progress(&frame, &copy.progress);
            control_link_send(link, &frame);
        }
        if (finished) {
            if (mine) {
                link->status_due = true;
                control_send_status(link);
                control_send_report(link, copy.request.id, &copy.report);
            } else if (copy.report.parked) {
                control_park_cancel();
            }
            free(job);
        }
    }
}

static void control_report_refusal(const char *why, struct control_report *ret_report)
{
    struct move_report *whole = &ret_report->whole;

    *whole = (struct move_report){.result = MOVE_ROLLED_BACK, .reached = MOVE_PLAN};
    snprintf(whole->reason, sizeof(whole->reason), "%s", why);
}

static void control_refuse(uint64_t id, const char *why)
{
    struct control_report report = {0};

    control_report_refusal(why, &report);
    control_send_report(&control.link, id, &report);
}

static void control_take_request(const msgpack_object *map)
{
    uint64_t id = field_u64(map, "request", 0);

    struct job *job = calloc(1, sizeof(*job));
    if (!job) {
        control_refuse(id, "no memory for the request");
        return;
    }
    atomic_init(&job->cancel, false);
    job->request.move.cancel = &job->cancel;
    job->request.move.change = &job->change;
    job->request.move.progress = control_job_progress;
    job->request.move.data = job;
    const char *wrong = control_request_read(map, &job->request);
    if (wrong) {
        control_refuse(id, wrong);
        free(job);
        return;
    }
    pthread_mutex_lock(&control.lock);
    if (control.job_count >= JOBS_MAX) {
        pthread_mutex_unlock(&control.lock);
        free(job);
        control_refuse(id, "too many requests wait for this program; try again later");
        return;
    }
    span_end(control.link.asked, "recovery", "choose", NULL, 0);
    control.link.asked = 0;
    job->connection = control.connection;
    job->next = control.jobs;
    control.jobs = job;
    control.job_count++;
    pthread_mutex_unlock(&control.lock);

    int error = thread_start("reseat-move", 0, control_job_main, job, NULL);
    if (!error)
        return;
    pthread_mutex_lock(&control.lock);
    control_report_refusal("the program can start no more threads", &job->report);
    job->finished = true;
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
}

static void control_take_cancel(const msgpack_object *map)
{
    uint64_t id = field_u64(map, "request", 0);

    pthread_mutex_lock(&control.lock);
    for (struct job *job = control.jobs; job; job = job->next)
        if (job->request.id == id && job->connection == control.connection)
            atomic_store(&job->cancel, true);
    pthread_mutex_unlock(&control.lock);
}

static void control_take_adjust(const msgpack_object *map)
{
    struct control_request asked = {0};

    program_take_request(map, &asked);
    pthread_mutex_lock(&control.lock);
    for (struct job *job = control.jobs; job; job = job->next) {
        if (job->request.id != asked.id || job->connection != control.connection)
            continue;
        if (asked.move.bandwidth)
            atomic_store(&job->change.bandwidth, asked.move.bandwidth);
        if (asked.move.max_downtime_ns)
            atomic_store(&job->change.max_downtime_ns, asked.move.max_downtime_ns);
    }
    pthread_mutex_unlock(&control.lock);
}

static void control_take_welcome(const msgpack_object *map)
{
    struct control_welcome welcome;

    take_welcome(map, &welcome);
    control.link.welcome = true;
    control.link.status_due = true;
    control.link.learns = welcome.learns;
    if (welcome.capped)
        power_set(true, 0);
    control_budget_connected(&welcome);
    pthread_mutex_lock(&control.lock);
    if (!control.resolved) {
        memcpy(control.devices, welcome.devices, sizeof(control.devices));
        control.device_count = (uint32_t)welcome.device_count;
    }
    control.welcome = true;
    control.places = welcome.places;
    control_resolve_locked();
    pthread_mutex_unlock(&control.lock);
    control_follow_lease(&welcome.lease);
}

static void control_take_query(const msgpack_object *map)
{
    (void)map;
    control.link.status_due = true;
}

static void control_take_power(const msgpack_object *map)
{
    struct control_power *power = &control.link.power;

    take_power(map, power);
    bool ends = power->timed && power->for_ms < UINT64_MAX / NS_PER_MS;
    power_set(power->capped, !power->granted ? 0 : ends ? power->for_ms * NS_PER_MS : UINT64_MAX);
    control.link.power_due = true;
}

/** Handlers of the agent's messages. Other types, of later versions, are ignored. */
static const struct {
    const char *type;
    void (*take)(const msgpack_object *map);
} messages[] = {
    {MSG_TRACE, control_trace_take},        {MSG_WELCOME, control_take_welcome},
    {MSG_MOVE, control_take_request},       {MSG_SUSPEND, control_take_request},
    {MSG_RESUME, control_take_request},     {MSG_PREWARM, control_take_request},
    {MSG_CHECKPOINT, control_take_request}, {MSG_PROTECT, control_take_request},
    {MSG_SPREAD, control_take_spread},      {MSG_CANCEL, control_take_cancel},
    {MSG_ADJUST, control_take_adjust},      {MSG_QUERY, control_take_query},
    {MSG_NOTICE, control_take_notice},      {MSG_ANSWER, control_budget_answer},
    {MSG_GRANT, control_budget_granted},    {MSG_SHRINK, control_budget_shrink},
    {MSG_WARM, control_take_warm},          {MSG_POWER, control_take_power},
    {MSG_COSTS, control_take_costs},
};

static void control_take_message(struct link *link, const msgpack_object *map)
{
    if (!link->welcome && !field_is(map, "type", MSG_WELCOME)) {
        control_link_drop(link);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
        if (field_is(map, "type", messages[i].type)) {
            messages[i].take(map);
            return;
        }
    }
}

static void control_link_receive(struct link *link)
{
    if (wire_receive(&link->wire))
        control_link_drop(link);
    while (wire_is_open(&link->wire)) {
        struct message message;
        int got = frame_reader_next(&link->wire.reader, &message);
        if (got == 0)
            return;
        if (got < 0) {
            control_link_drop(link);
            return;
        }
        control_budget_heard();
        control_take_message(link, &message.root);
        message_finish(&message);
    }
}

static void control_link_connect(struct link *link)
{
    const char *other = control_park_socket(), *path = other ? other : getenv(CONTROL_ENV_SOCKET);
    const char *id = control_park_restored() ? NULL : getenv(CONTROL_ENV_ID);
    const char *name = getenv(CONTROL_ENV_NAME);
    struct control_hello hello = {
        .name = name ? name : "", .id = id ? id : "", .program = program_invocation_short_name};
    struct frame frame;

    if (!path || wire_open(&link->wire, path))
        return;
    pthread_mutex_lock(&control.lock);
    control.connection++;
    pthread_mutex_unlock(&control.lock);
    aware_wish(&hello.wish);
    link->wish = hello.wish.edition;
    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "program");
    put_hello(&frame, &hello);
    control_link_send(link, &frame);
}

/* ---- parked ---- */

static bool control_is_parked(void)
{
    pthread_mutex_lock(&control.lock);
    bool parked = control.parked;
    pthread_mutex_unlock(&control.lock);
    return parked;
}

/** Send what is left to send, and close the connection until the program is resumed. If the report
 * of the parking cannot be sent, the program is resumed at once. */
static void control_stay_parked(struct link *link)
{
    uint64_t until = clock_now_ns() + FLUSH_WHOLE_MS * NS_PER_MS;

    while (wire_is_open(&link->wire) && link->wire.out.size && clock_now_ns() < until)
        if (wire_flush(&link->wire))
            control_link_drop(link);
        else if (link->wire.out.size)
            clock_sleep(NS_PER_MS);
    if (!wire_is_open(&link->wire) || link->wire.out.size)
        control_park_cancel();
    if (wire_is_open(&link->wire))
        control_link_drop(link);
    pthread_mutex_lock(&control.lock);
    control.heard = OWNED_NONE;
    control.listens = false;
    pthread_mutex_unlock(&control.lock);
    control_park_closed();
    pthread_mutex_lock(&control.lock);
    while (control.parked)
        pthread_cond_wait(&control.woken, &control.lock);
    pthread_mutex_unlock(&control.lock);
    control_budget_again();
}

/* ---- threads ---- */

/** True when the program has begun or ceased to wait for another device, which the agent has to be
 * told at once. */
static bool control_seeks_anew(struct link *link)
{
    struct protect_status status;
    bool before = link->seeks;

    protect_read(&status);
    link->seeks = recovery_is_under_way(status.recovery);
    if (link->seeks != before)
        link->asked = link->seeks ? span_begin() : 0;
    return link->seeks != before;
}

bool control_agent_chooses(void)
{
    pthread_mutex_lock(&control.lock);
    bool finds = control.started && control.welcome && control.places;
    if (finds)
        control_wake_locked();
    pthread_mutex_unlock(&control.lock);
    return finds;
}

/** Send and receive what is due. */
static void control_turn(struct link *link, uint64_t *next_status)
{
    if (!wire_is_open(&link->wire))
        control_link_connect(link);
    else
        control_link_receive(link);
    if (wire_is_open(&link->wire) && wire_flush(&link->wire))
        control_link_drop(link);
    if (!wire_is_open(&link->wire)) {
        pthread_mutex_lock(&control.lock);
        control_resolve_locked();
        pthread_mutex_unlock(&control.lock);
    }
    control_serve_jobs(link);
    link->status_due = link->status_due || control_budget_needs() || control_seeks_anew(link);
    if (link->welcome && (link->status_due || clock_now_ns() >= *next_status)) {
        control_send_status(link);
        *next_status = clock_now_ns() + STATUS_MS * 1000000ull;
    }
    if (link->welcome)
        control_send_wish(link);
    if (link->welcome)
        control_send_power(link);
    if (link->welcome)
        control_send_costs(link);
    if (link->wire.out.size == 0)
        control_trace_serve(link, control_send_frame); /* not while earlier messages wait */
    if (!link->welcome) {
        control_budget_alone();
    } else if (!control_budget_serve(link->seeks || link->power.wants, link, control_send_frame)) {
        log_warn("the agent does not answer: the program goes on without it until it does");
        control_link_drop(link);
    }
}

/** Make or return warm pages, where that is due. */
static void control_tend_pages(struct link *link)
{
    uint64_t now = clock_now_ns();

    if (now < link->next_tend)
        return;
    if (now >= link->next_need) {
        link->needs = status_host_need();
        link->next_need = now + NEED_MS * NS_PER_MS;
    }
    pages_tend(link->needs);
    link->next_tend = clock_now_ns() + STATUS_MS * NS_PER_MS;
}

/** Wait until a message arrives, another thread wakes this one, or the next turn is due. */
static void control_rest(const struct link *link)
{
    bool open = wire_is_open(&link->wire);
    uint64_t quiet = control_trace_ms() ? control_trace_ms() : STATUS_MS;
    uint64_t ms = !open ? RETRY_MS : link->wire.out.size ? FLUSH_MS : quiet;
    uint64_t until = clock_now_ns() + ms * NS_PER_MS;

    pthread_mutex_lock(&control.lock);
    control.heard = link->wire.socket;
    if (open && !control.listens) {
        control.listens = true;
        pthread_cond_signal(&control.listened);
    }
    while (!control.due && clock_wait(&control.woken, &control.lock, until) == 0) {
    }
    control.due = false;
    pthread_mutex_unlock(&control.lock);
}

static void *control_main(void *data)
{
    struct link *link = data;
    uint64_t next_status = 0;

    for (;;) {
        control_turn(link, &next_status);
        if (control_is_parked()) {
            control_stay_parked(link);
            link->next_tend = link->next_need = next_status = 0;
            continue;
        }
        control_tend_pages(link);
        control_rest(link);
    }
    return NULL;
}

/**
 * Wakes the control thread when the agent has sent something. This thread only polls: it does no
 * harm if the program has taken the descriptor's number for something else meanwhile.
 */
static void *control_listen_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&control.lock);
    for (;;) {
        while (!control.listens)
            pthread_cond_wait(&control.listened, &control.lock);
        struct pollfd polled = {.fd = control.heard.fd, .events = POLLIN};
        pthread_mutex_unlock(&control.lock);
        int ready = poll(&polled, 1, LISTEN_MS);
        pthread_mutex_lock(&control.lock);
        if (ready > 0) {
            control.listens = false;
            control_wake_locked();
        }
    }
    return NULL;
}

/* ---- fork, and start ---- */

/**
 * The child has no control threads, and the connection is the parent's. Memory that those threads
 * used is leaked, because they may have been changing it at the time of the fork.
 */
static void control_in_child(void)
{
    owned_close(&control.link.wire.socket);
    control.link = (struct link){.wire.socket = OWNED_NONE};
    control.heard = OWNED_NONE;
    control.listens = control.listener = control.due = false;
    control.jobs = NULL;
    control.job_count = 0;
    control.started = control.parked = false;
    control.resolved = false;
    control.welcome = false;
    control.device_count = 0;
}

FORK_PART = {.rank = FORK_TABLE,
             .lock = &control.lock,
             .changed = {&control.answered, &control.woken, &control.listened},
             .in_child = control_in_child};

static int control_start_locked(void)
{
    int error = fork_watch();

    if (error)
        return error;
    control_budget_start(control_wake_thread);
    power_set_waker(control_wake_thread);
    if (!control.listener) {
        error = thread_start("reseat-listen", STACK_SMALL, control_listen_main, NULL, NULL);
        control.listener = error == 0;
    }
    if (!error) {
        error = thread_start("reseat-control", STACK_SMALL, control_main, &control.link, NULL);
        control.started = error == 0;
    }
    return error;
}

int control_start(void)
{
    const char *path = getenv(CONTROL_ENV_SOCKET);
    int error = 0;

    if (!path || !*path)
        return 0;
    pthread_mutex_lock(&control.lock);
    if (!control.started)
        error = control_start_locked();
    pthread_mutex_unlock(&control.lock);
    return error;
}

bool control_wake(void)
{
    pthread_mutex_lock(&control.lock);
    bool listens = control.started && control.welcome;
    control_wake_locked();
    pthread_mutex_unlock(&control.lock);
    return listens;
}

uint32_t control_start_devices(unsigned timeout_ms, struct device_key *ret_keys)
{
    (void)!control_start();
    uint64_t until = clock_now_ns() + timeout_ms * NS_PER_MS;
    pthread_mutex_lock(&control.lock);
    while (control.started && !control.resolved)
        if (clock_wait(&control.answered, &control.lock, until) != 0)
            break;
    uint32_t count = control.device_count;
    memcpy(ret_keys, control.devices, count * sizeof(ret_keys[0]));
    pthread_mutex_unlock(&control.lock);
    return count ? count : control_environment_devices(ret_keys);
}
