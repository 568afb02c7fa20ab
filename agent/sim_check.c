#include "agent/sim_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* While it moves a program holds two devices. */
#define HOLDS 2
#define WHOLE 1000000

enum stage { FUTURE, PRESENT, ENDED, REFUSED };

struct hold {
    uint32_t device;
    uint64_t bytes;
};

struct book {
    enum stage stage;
    uint32_t rate;
    uint32_t last; /**< The rate of the last time that passed. */
    uint32_t on;   /**< The device it works on. */
    uint64_t since_ms;
    uint64_t asked, done, lost;
    struct hold holds[HOLDS];
};

struct sim_check {
    const struct sim_trace *trace;
    struct book *books;
    struct {
        uint64_t memory, held;
        uint64_t used; /**< Millionths of its time, by the programs that work on it. */
        uint64_t changed_ms;
        uint32_t workers;
    } * devices;
    uint64_t time_ms, events;
    char problem[SIM_ERROR];
};

struct sim_check *sim_check_create(const struct sim_trace *trace)
{
    struct sim_check *check = calloc(1, sizeof(*check));

    if (!check) {
        return NULL;
    }
    check->trace = trace;
    check->books = calloc(trace->task_count, sizeof(*check->books));
    check->devices = calloc(trace->device_count, sizeof(*check->devices));
    if (!check->books || !check->devices) {
        sim_check_destroy(check);
        return NULL;
    }
    for (uint32_t i = 0; i < trace->task_count; i++) {
        check->books[i].on = SIM_NONE;
        for (size_t j = 0; j < HOLDS; j++) {
            check->books[i].holds[j].device = SIM_NONE;
        }
    }
    return check;
}

void sim_check_destroy(struct sim_check *check)
{
    if (check) {
        free(check->books);
        free(check->devices);
        free(check);
    }
}

static PRINTF(2, 3) bool wrong(struct sim_check *check, const char *format, ...)
{
    char what[SIM_ERROR - 64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    snprintf(check->problem, sizeof(check->problem), "event %" PRIu64 ", at %" PRIu64 " ms: %s",
             check->events, check->time_ms, what);
    return false;
}

/* Millionths of a device's time that a rate takes. */
static uint64_t used_by(const struct sim_check *check, uint32_t program, uint32_t device,
                        uint64_t rate)
{
    uint32_t model = check->trace->devices[device].model;

    return rate * check->trace->tasks[program].share * 1000 /
           check->trace->models.items[model].speed;
}

/*
 * Rates change one after the other, so what they come to counts when time goes on. They are whole
 * numbers and at least 1: each may take a device a thousandth of the reference's speed too much.
 */
static bool within_time(struct sim_check *check, uint32_t device)
{
    uint32_t speed = check->trace->models.items[check->trace->devices[device].model].speed;
    uint64_t rounding = (uint64_t)check->devices[device].workers * WHOLE / speed;

    if (check->devices[device].changed_ms < check->time_ms &&
        check->devices[device].used > WHOLE + rounding) {
        return wrong(check, "programs kept device %u busy for %" PRIu64 " millionths of its time",
                     device, check->devices[device].used);
    }
    check->devices[device].changed_ms = check->time_ms;
    return true;
}

static struct hold *find_hold(struct book *book, uint32_t device)
{
    for (size_t i = 0; i < HOLDS; i++) {
        if (book->holds[i].device == device) {
            return &book->holds[i];
        }
    }
    return NULL;
}

static bool on_device(struct sim_check *check, const struct sim_event *event)
{
    if (!event->amount && check->devices[event->device].held) {
        return wrong(check, "device %u goes while %" PRIu64 " bytes of it are held", event->device,
                     check->devices[event->device].held);
    }
    check->devices[event->device].memory = event->amount;
    return true;
}

static bool on_hold(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];
    struct hold *hold = find_hold(book, event->device);

    hold = hold ? hold : find_hold(book, SIM_NONE);
    if (!hold) {
        return wrong(check, "program %u holds a third device, %u", event->program, event->device);
    }
    if (!event->amount && book->rate && book->on == event->device) {
        return wrong(check, "program %u leaves device %u while it works there", event->program,
                     event->device);
    }
    uint64_t before = hold->device == SIM_NONE ? 0 : hold->bytes;
    uint64_t held = check->devices[event->device].held - before + event->amount;
    if (event->amount > before && held > check->devices[event->device].memory) {
        return wrong(check,
                     "%" PRIu64 " bytes of device %u are held, of %" PRIu64 ": program %u "
                     "was given too much",
                     held, event->device, check->devices[event->device].memory, event->program);
    }
    check->devices[event->device].held = held;
    *hold = (struct hold){event->amount ? event->device : SIM_NONE, event->amount};
    return true;
}

/* Bring a program's work up to date. */
static void settle(struct sim_check *check, struct book *book)
{
    if (check->time_ms > book->since_ms) {
        book->done += (check->time_ms - book->since_ms) * book->rate;
        book->last = book->rate;
        book->since_ms = check->time_ms;
    }
}

static bool on_rate(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    if (event->amount && !find_hold(book, event->device)) {
        return wrong(check, "program %u works on device %u, of which it holds nothing",
                     event->program, event->device);
    }
    settle(check, book);
    if (book->rate) {
        if (!within_time(check, book->on)) {
            return false;
        }
        check->devices[book->on].used -= used_by(check, event->program, book->on, book->rate);
        check->devices[book->on].workers--;
    }
    book->rate = (uint32_t)event->amount;
    book->on = event->amount ? event->device : SIM_NONE;
    if (event->amount) {
        if (!within_time(check, event->device)) {
            return false;
        }
        check->devices[event->device].used +=
            used_by(check, event->program, event->device, event->amount);
        check->devices[event->device].workers++;
    }
    return true;
}

static bool on_lose(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    settle(check, book);
    book->lost += event->amount;
    if (book->lost > book->done) {
        return wrong(check, "program %u lost %" PRIu64 " in all, but did only %" PRIu64,
                     event->program, book->lost, book->done);
    }
    return true;
}

/* Who ends works until then: the last millisecond may be longer than its work. */
static bool on_end(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    settle(check, book);
    uint64_t kept = book->done - book->lost;
    if (kept < book->asked || kept >= book->asked + (book->last ? book->last : 1)) {
        return wrong(check,
                     "program %u ends having done %" PRIu64 " and lost %" PRIu64
                     " of that, asked for %" PRIu64,
                     event->program, book->done, book->lost, book->asked);
    }
    book->done = book->asked + book->lost;
    book->stage = ENDED;
    return true;
}

static bool on_refuse(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    settle(check, book);
    if (book->lost != book->done) {
        return wrong(check, "program %u is refused: it did %" PRIu64 " and lost only %" PRIu64,
                     event->program, book->done, book->lost);
    }
    book->stage = REFUSED;
    return true;
}

static bool on_arrive(struct sim_check *check, const struct sim_event *event)
{
    check->books[event->program].stage = PRESENT;
    check->books[event->program].asked = event->amount;
    check->books[event->program].since_ms = event->time_ms;
    return true;
}

static bool dispatch(struct sim_check *check, const struct sim_event *event)
{
    static bool (*const handlers[])(struct sim_check *, const struct sim_event *) = {
        [SIM_DEVICE] = on_device, [SIM_ARRIVE] = on_arrive, [SIM_HOLD] = on_hold,
        [SIM_RATE] = on_rate,     [SIM_LOSE] = on_lose,     [SIM_END] = on_end,
        [SIM_REFUSE] = on_refuse,
    };

    return handlers[event->kind](check, event);
}

static bool known(struct sim_check *check, const struct sim_event *event)
{
    bool device = event->kind == SIM_DEVICE || event->kind == SIM_HOLD ||
                  (event->kind == SIM_RATE && event->amount);

    if (device && event->device >= check->trace->device_count) {
        return wrong(check, "there is no device %u", event->device);
    }
    if (event->kind == SIM_DEVICE) {
        return true;
    }
    if (event->program >= check->trace->task_count) {
        return wrong(check, "there is no program %u", event->program);
    }
    /* Who ended still gives back what it held, and stands. */
    bool leaves = (event->kind == SIM_HOLD || event->kind == SIM_RATE) && !event->amount;
    enum stage stage = check->books[event->program].stage;
    if (stage != (event->kind == SIM_ARRIVE ? FUTURE : PRESENT) && !(leaves && stage > PRESENT)) {
        return wrong(check, "program %u is not there, or there already", event->program);
    }
    return true;
}

bool sim_check_event(struct sim_check *check, const struct sim_event *event)
{
    if (check->problem[0]) {
        return false;
    }
    check->events++;
    if (event->time_ms < check->time_ms) {
        return wrong(check, "the next event is at %" PRIu64 " ms", event->time_ms);
    }
    check->time_ms = event->time_ms;
    return known(check, event) && dispatch(check, event);
}

bool sim_check_end(struct sim_check *check, uint64_t asked, uint64_t lost)
{
    uint64_t books_asked = 0, books_lost = 0;

    if (check->problem[0]) {
        return false;
    }
    for (uint32_t i = 0; i < check->trace->task_count; i++) {
        struct book *book = &check->books[i];
        if (book->stage > PRESENT && (find_hold(book, SIM_NONE) != &book->holds[0] || book->rate)) {
            return wrong(check, "program %u ended and still holds a device", i);
        }
        books_asked += book->stage == ENDED ? book->asked : 0;
        books_lost += book->lost;
    }
    if (books_asked != asked || books_lost != lost) {
        return wrong(check,
                     "the totals are %" PRIu64 " asked and %" PRIu64 " lost, but the log "
                     "comes to %" PRIu64 " and %" PRIu64,
                     asked, lost, books_asked, books_lost);
    }
    return true;
}

const char *sim_check_problem(const struct sim_check *check)
{
    return check->problem;
}

uint64_t sim_check_events(const struct sim_check *check)
{
    return check->events;
}
