#include "simulate/sim_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* While a program moves, it holds its memory twice. */
#define TIMES 2
#define WHOLE 1000000

enum stage { FUTURE, PRESENT, ENDED, REFUSED };

/* Memory held on a device, or in a node's host memory. */
struct hold {
    uint32_t where; /**< The device, or the node; SIM_NONE: not used. */
    uint64_t bytes;
};

/* A program, as far as the events told. */
struct book {
    enum stage stage;
    uint32_t rate; /**< Speed of its work; 0: it does not work. */
    uint32_t last; /**< The rate when time last advanced. */
    uint32_t on;   /**< The device it works on. */
    uint64_t since_ms;
    uint64_t asked, done, lost;
    uint64_t kept; /**< Progress saved in storage. */
    struct hold *holds;
    uint32_t hold_count, held; /**< Room for holds, and their number. */
    struct hold hosts[TIMES];
};

struct sim_check {
    const struct sim_trace *trace;
    bool between;
    struct book *books;
    struct hold *holds; /**< The holds of all books. */
    struct {
        uint64_t held;
        uint32_t up; /**< Devices. */
    } * nodes;
    struct {
        uint64_t memory, held;
        uint64_t used; /**< Millionths of its time, by the programs that work on it. */
        uint64_t changed_ms;
        uint32_t workers;
    } * devices;
    uint64_t time_ms, events;
    char problem[SIM_ERROR];
};

struct sim_check *sim_check_create(const struct sim_trace *trace, bool between)
{
    struct sim_check *check = calloc(1, sizeof(*check));
    size_t holds = 0;

    if (!check)
        return NULL;
    for (uint32_t i = 0; i < trace->task_count; i++)
        holds += TIMES * (trace->tasks[i].more + 1u);
    check->trace = trace;
    check->between = between;
    check->books = calloc(trace->task_count, sizeof(*check->books));
    check->holds = calloc(holds, sizeof(*check->holds));
    check->nodes = calloc(trace->node_count, sizeof(*check->nodes));
    check->devices = calloc(trace->device_count, sizeof(*check->devices));
    if (!check->books || !check->holds || !check->nodes || !check->devices) {
        sim_check_destroy(check);
        return NULL;
    }
    holds = 0;
    for (uint32_t i = 0; i < trace->task_count; i++) {
        struct book *book = &check->books[i];
        book->on = SIM_NONE;
        book->holds = &check->holds[holds];
        book->hold_count = TIMES * (trace->tasks[i].more + 1u);
        for (uint32_t j = 0; j < book->hold_count; j++)
            book->holds[j].where = SIM_NONE;
        for (size_t j = 0; j < TIMES; j++)
            book->hosts[j].where = SIM_NONE;
        holds += book->hold_count;
    }
    return check;
}

void sim_check_destroy(struct sim_check *check)
{
    if (check) {
        free(check->books);
        free(check->holds);
        free(check->nodes);
        free(check->devices);
        free(check);
    }
}

static PRINTF(2, 3) bool sim_check_wrong(struct sim_check *check, const char *format, ...)
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
static uint64_t sim_check_used_by(const struct sim_check *check, uint32_t program, uint32_t device,
                                  uint64_t rate)
{
    uint32_t model = check->trace->devices[device].model;

    return rate * check->trace->tasks[program].share * 1000 /
           check->trace->models.items[model].speed;
}

/*
 * Checked when time advances, since the rates on a device change one after the other. Rates are
 * rounded up to whole numbers of at least 1, so each may exceed its share by a thousandth of the
 * reference's speed.
 */
static bool sim_check_within_time(struct sim_check *check, uint32_t device)
{
    uint32_t speed = check->trace->models.items[check->trace->devices[device].model].speed;
    uint64_t rounding = (uint64_t)check->devices[device].workers * WHOLE / speed;

    if (check->devices[device].changed_ms < check->time_ms &&
        check->devices[device].used > WHOLE + rounding) {
        return sim_check_wrong(
            check, "programs kept device %u busy for %" PRIu64 " millionths of its time", device,
            check->devices[device].used);
    }
    check->devices[device].changed_ms = check->time_ms;
    return true;
}

static struct hold *sim_check_find(struct hold *holds, size_t count, uint32_t where)
{
    for (size_t i = 0; i < count; i++)
        if (holds[i].where == where)
            return &holds[i];
    return NULL;
}

static struct hold *sim_check_find_hold(struct book *book, uint32_t device)
{
    return sim_check_find(book->holds, book->hold_count, device);
}

static uint32_t sim_check_node_of(const struct sim_check *check, uint32_t device)
{
    return check->trace->devices[device].node;
}

static bool sim_check_on_device(struct sim_check *check, const struct sim_event *event)
{
    uint32_t node = sim_check_node_of(check, event->device);
    bool was = check->devices[event->device].memory, is = event->amount;

    if (!is && check->devices[event->device].held) {
        return sim_check_wrong(check, "device %u goes while %" PRIu64 " bytes of it are held",
                               event->device, check->devices[event->device].held);
    }
    check->nodes[node].up += is && !was;
    check->nodes[node].up -= was && !is;
    if (!check->nodes[node].up && check->nodes[node].held) {
        return sim_check_wrong(check,
                               "node %u goes while %" PRIu64 " bytes of its host memory are held",
                               node, check->nodes[node].held);
    }
    check->devices[event->device].memory = event->amount;
    return true;
}

static bool sim_check_has_memory(const struct book *book)
{
    bool host = false;

    for (size_t i = 0; i < TIMES; i++)
        host = host || book->hosts[i].where != SIM_NONE;
    return host || book->held;
}

/* Check a program that gets memory of a node: its progress must come from somewhere, and all of it
 * must be on that node. */
static bool sim_check_may_have(struct sim_check *check, uint32_t program, uint32_t node)
{
    struct book *book = &check->books[program];

    if (!sim_check_has_memory(book) && book->done - book->lost > book->kept) {
        return sim_check_wrong(
            check, "program %u begins with %" PRIu64 " done, but only %" PRIu64 " was saved",
            program, book->done - book->lost, book->kept);
    }
    for (uint32_t i = 0; !check->between && i < book->hold_count; i++) {
        if (book->holds[i].where != SIM_NONE &&
            sim_check_node_of(check, book->holds[i].where) != node) {
            return sim_check_wrong(check, "program %u is on two nodes, %u and %u", program,
                                   sim_check_node_of(check, book->holds[i].where), node);
        }
    }
    for (size_t i = 0; !check->between && i < TIMES; i++) {
        if (book->hosts[i].where != SIM_NONE && book->hosts[i].where != node) {
            return sim_check_wrong(check, "program %u is on two nodes, %u and %u", program,
                                   book->hosts[i].where, node);
        }
    }
    return true;
}

static bool sim_check_on_hold(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];
    struct hold *hold = sim_check_find_hold(book, event->device);

    if (event->amount &&
        !sim_check_may_have(check, event->program, sim_check_node_of(check, event->device)))
        return false;
    hold = hold ? hold : sim_check_find_hold(book, SIM_NONE);
    if (!hold) {
        return sim_check_wrong(check, "program %u holds too many devices, and now %u",
                               event->program, event->device);
    }
    if (!event->amount && book->rate &&
        sim_check_node_of(check, book->on) == sim_check_node_of(check, event->device)) {
        return sim_check_wrong(check, "program %u leaves device %u while it works there",
                               event->program, event->device);
    }
    uint64_t before = hold->where == SIM_NONE ? 0 : hold->bytes;
    uint64_t held = check->devices[event->device].held - before + event->amount;
    if (event->amount > before && held > check->devices[event->device].memory) {
        return sim_check_wrong(
            check,
            "%" PRIu64 " bytes of device %u are held, of %" PRIu64 ": program %u "
            "was given too much",
            held, event->device, check->devices[event->device].memory, event->program);
    }
    check->devices[event->device].held = held;
    book->held += event->amount && !before;
    book->held -= before && !event->amount;
    *hold = (struct hold){event->amount ? event->device : SIM_NONE, event->amount};
    return true;
}

static bool sim_check_on_host(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];
    uint32_t node = event->device;
    struct hold *hold = sim_check_find(book->hosts, TIMES, node);

    if (event->amount && !sim_check_may_have(check, event->program, node))
        return false;
    hold = hold ? hold : sim_check_find(book->hosts, TIMES, SIM_NONE);
    if (!hold)
        return sim_check_wrong(check, "program %u is on a third node, %u", event->program, node);
    uint64_t before = hold->where == SIM_NONE ? 0 : hold->bytes;
    uint64_t held = check->nodes[node].held - before + event->amount;
    if (event->amount > before &&
        (held > check->trace->nodes[node].host || !check->nodes[node].up)) {
        return sim_check_wrong(
            check,
            "%" PRIu64 " bytes of host memory of node %u are held, of %" PRIu64
            ": program %u was given too much",
            held, node, check->nodes[node].up ? check->trace->nodes[node].host : 0, event->program);
    }
    check->nodes[node].held = held;
    *hold = (struct hold){event->amount ? node : SIM_NONE, event->amount};
    return true;
}

/* Bring a program's work up to date. */
static void sim_check_settle(struct sim_check *check, struct book *book)
{
    if (check->time_ms > book->since_ms) {
        book->done += (check->time_ms - book->since_ms) * book->rate;
        book->last = book->rate;
        book->since_ms = check->time_ms;
    }
}

/* True when the program has all devices that it asked for, on one node. */
static bool sim_check_is_whole(struct sim_check *check, uint32_t program, uint32_t device)
{
    struct book *book = &check->books[program];
    uint32_t asked = check->trace->tasks[program].more + 1u;

    if (!sim_check_find_hold(book, device)) {
        return sim_check_wrong(check, "program %u works on device %u, of which it holds nothing",
                               program, device);
    }
    if (book->held != asked) {
        return sim_check_wrong(check, "program %u works with %u devices and asked for %u", program,
                               book->held, asked);
    }
    for (uint32_t i = 0; i < book->hold_count; i++) {
        if (book->holds[i].where != SIM_NONE &&
            sim_check_node_of(check, book->holds[i].where) != sim_check_node_of(check, device)) {
            return sim_check_wrong(check, "program %u works on node %u and has a device of node %u",
                                   program, sim_check_node_of(check, device),
                                   sim_check_node_of(check, book->holds[i].where));
        }
    }
    return true;
}

static bool sim_check_on_rate(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    if (event->amount && !sim_check_is_whole(check, event->program, event->device))
        return false;
    sim_check_settle(check, book);
    if (book->rate) {
        if (!sim_check_within_time(check, book->on))
            return false;
        check->devices[book->on].used -=
            sim_check_used_by(check, event->program, book->on, book->rate);
        check->devices[book->on].workers--;
    }
    book->rate = (uint32_t)event->amount;
    book->on = event->amount ? event->device : SIM_NONE;
    if (event->amount) {
        if (!sim_check_within_time(check, event->device))
            return false;
        check->devices[event->device].used +=
            sim_check_used_by(check, event->program, event->device, event->amount);
        check->devices[event->device].workers++;
    }
    return true;
}

static bool sim_check_on_save(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    sim_check_settle(check, book);
    if (!book->held || book->rate || event->amount != book->done - book->lost) {
        return sim_check_wrong(
            check,
            "program %u saves %" PRIu64 " of %" PRIu64 " done, with %u devices and at "
            "the speed %u",
            event->program, event->amount, book->done - book->lost, book->held, book->rate);
    }
    book->kept = event->amount;
    return true;
}

static bool sim_check_on_lose(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    sim_check_settle(check, book);
    book->lost += event->amount;
    if (book->lost > book->done) {
        return sim_check_wrong(check, "program %u lost %" PRIu64 " in all, but did only %" PRIu64,
                               event->program, book->lost, book->done);
    }
    return true;
}

/* A program works until its end: the last millisecond may be longer than its work. */
static bool sim_check_on_end(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    sim_check_settle(check, book);
    uint64_t kept = book->done - book->lost;
    if (kept < book->asked || kept >= book->asked + (book->last ? book->last : 1)) {
        return sim_check_wrong(check,
                               "program %u ends having done %" PRIu64 " and lost %" PRIu64
                               " of that, asked for %" PRIu64,
                               event->program, book->done, book->lost, book->asked);
    }
    book->done = book->asked + book->lost;
    book->stage = ENDED;
    return true;
}

static bool sim_check_on_refuse(struct sim_check *check, const struct sim_event *event)
{
    struct book *book = &check->books[event->program];

    sim_check_settle(check, book);
    if (book->lost != book->done) {
        return sim_check_wrong(check,
                               "program %u is refused: it did %" PRIu64 " and lost only %" PRIu64,
                               event->program, book->done, book->lost);
    }
    book->stage = REFUSED;
    return true;
}

static bool sim_check_on_arrive(struct sim_check *check, const struct sim_event *event)
{
    check->books[event->program].stage = PRESENT;
    check->books[event->program].asked = event->amount;
    check->books[event->program].since_ms = event->time_ms;
    return true;
}

static bool sim_check_dispatch(struct sim_check *check, const struct sim_event *event)
{
    static bool (*const handlers[])(struct sim_check *, const struct sim_event *) = {
        [SIM_DEVICE] = sim_check_on_device, [SIM_ARRIVE] = sim_check_on_arrive,
        [SIM_HOLD] = sim_check_on_hold,     [SIM_HOST] = sim_check_on_host,
        [SIM_RATE] = sim_check_on_rate,     [SIM_SAVE] = sim_check_on_save,
        [SIM_LOSE] = sim_check_on_lose,     [SIM_END] = sim_check_on_end,
        [SIM_REFUSE] = sim_check_on_refuse,
    };

    return handlers[event->kind](check, event);
}

static bool sim_check_known(struct sim_check *check, const struct sim_event *event)
{
    bool device = event->kind == SIM_DEVICE || event->kind == SIM_HOLD ||
                  (event->kind == SIM_RATE && event->amount);

    if (device && event->device >= check->trace->device_count)
        return sim_check_wrong(check, "there is no device %u", event->device);
    if (event->kind == SIM_HOST && event->device >= check->trace->node_count)
        return sim_check_wrong(check, "there is no node %u", event->device);
    if (event->kind == SIM_DEVICE)
        return true;
    if (event->program >= check->trace->task_count)
        return sim_check_wrong(check, "there is no program %u", event->program);
    /* A program that ended may only give back what it held, and stands. */
    bool leaves = (event->kind == SIM_HOLD || event->kind == SIM_HOST || event->kind == SIM_RATE) &&
                  !event->amount;
    enum stage stage = check->books[event->program].stage;
    if (stage != (event->kind == SIM_ARRIVE ? FUTURE : PRESENT) && !(leaves && stage > PRESENT))
        return sim_check_wrong(check, "program %u is not there, or there already", event->program);
    return true;
}

bool sim_check_event(struct sim_check *check, const struct sim_event *event)
{
    if (check->problem[0])
        return false;
    check->events++;
    if (event->time_ms < check->time_ms)
        return sim_check_wrong(check, "the next event is at %" PRIu64 " ms", event->time_ms);
    check->time_ms = event->time_ms;
    return sim_check_known(check, event) && sim_check_dispatch(check, event);
}

bool sim_check_end(struct sim_check *check, uint64_t asked, uint64_t lost)
{
    uint64_t books_asked = 0, books_lost = 0;

    if (check->problem[0])
        return false;
    for (uint32_t i = 0; i < check->trace->task_count; i++) {
        struct book *book = &check->books[i];
        if (book->stage > PRESENT && (sim_check_has_memory(book) || book->rate))
            return sim_check_wrong(check,
                                   "program %u ended and still holds a device or host memory", i);
        books_asked += book->stage == ENDED ? book->asked : 0;
        books_lost += book->lost;
    }
    if (books_asked != asked || books_lost != lost) {
        return sim_check_wrong(check,
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
