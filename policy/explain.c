#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy_priv.h"

/* Append a line. If it does not fit, leave it and all further lines out. */
struct page {
    char *text;
    size_t size, used;
    bool full;
};

static void LIKE_PRINTF(2, 3) explain_line(struct page *page, const char *format, ...)
{
    char text[2 * POLICY_REASON];
    va_list arguments;
    size_t length;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text) - 1, format, arguments);
    va_end(arguments);
    length = strlen(text);
    text[length++] = '\n';
    if (page->full || length >= page->size - page->used) {
        page->full = true;
        return;
    }
    memcpy(page->text + page->used, text, length);
    page->used += length;
    page->text[page->used] = '\0';
}

static uint32_t explain_place_in_queue(const struct view *view, uint32_t program)
{
    uint32_t place = 1;

    for (uint32_t i = 0; i < view->world->queue_count; i++) {
        uint32_t other = view->world->queue[i];

        place += other != program && goes_before(view, other, program);
    }
    return place;
}

static void explain_say_state(struct page *page, const struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    const char *where = p->device == POLICY_NONE ? "" : device_at(view, p->device)->name;
    uint64_t more = p->need > p->granted ? p->need - p->granted : 0;

    switch (p->state) {
    case POLICY_RUNNING:
        if (p->wanted > p->granted)
            explain_line(page,
                         "%s has run on %s for %" PRIu64
                         " s, with %s of %s on the device and the rest in host memory.",
                         p->name, where, p->stayed_s, size_text(p->granted).text,
                         size_text(p->wanted).text);
        else
            explain_line(
                page, "%s has run on %s for %" PRIu64 " s; it has %s and may have %s there.",
                p->name, where, p->stayed_s, size_text(p->wanted).text, size_text(p->granted).text);
        break;
    case POLICY_WAITING:
        explain_line(page, "%s waits on %s for %s more, number %u in the queue for %" PRIu64 " s.",
                     p->name, where, size_text(more).text, explain_place_in_queue(view, program),
                     p->waited_s);
        break;
    case POLICY_SUSPENDED:
        explain_line(page,
                     "%s is on no device and needs %s, number %u in the queue for %" PRIu64 " s.",
                     p->name, size_text(program_full(p)).text,
                     explain_place_in_queue(view, program), p->waited_s);
        break;
    case POLICY_STOPPED:
        explain_line(page, "%s is suspended until an operator resumes it.", p->name);
        break;
    }
}

static void explain_say_device(struct page *page, struct view *view, uint32_t program,
                               uint32_t device)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_device *d = device_at(view, device);
    uint64_t free = device_free(d), room = room_for(view, program, device);
    uint64_t full = program_full(p);
    const char *name = d->name;

    if (program_barred(p, device))
        explain_line(page, "%s: %s would not run there.", name, p->name);
    else if (d->drains)
        explain_line(page, "%s: is drained.", name);
    else if (d->closed)
        explain_line(page, "%s: takes no programs now.", name);
    else if (full > d->memory)
        explain_line(page, "%s: too small, it has %s and %s needs %s.", name,
                     size_text(d->memory).text, p->name, size_text(full).text);
    else if (free < full)
        explain_line(page, "%s: %s free of %s, %s needs %s.", name, size_text(free).text,
                     size_text(d->memory).text, p->name, size_text(full).text);
    else if (room < full)
        explain_line(page, "%s: %s free of %s, kept for %s, which is first in the queue.", name,
                     size_text(free).text, size_text(d->memory).text,
                     name_for(view, view->head, program));
    else if (program_stays_away(view, p, device))
        explain_line(page,
                     "%s: fits, but the policy moved %s away from it %" PRIu64
                     " s ago and does not move it back for another %" PRIu64 " s.",
                     name, p->name, view->world->now_s - visits_find(p->visits, device)->left_s,
                     visits_bar_s(p->visits, device, view->settings->return_s, view->world->now_s));
    else if (p->device != POLICY_NONE && program_is_measured(p, device))
        explain_line(page,
                     "%s: fits, %s free of %s, busy %u%%, measured at %.2f times its speed on %s, "
                     "price %u.%02u.",
                     name, size_text(free).text, size_text(d->memory).text, d->busy / 10,
                     p->measured[device].speed / 1e3, device_at(view, p->device)->name,
                     d->price / 1000, d->price % 1000 / 10);
    else
        explain_line(page, "%s: fits, %s free of %s, busy %u%%, speed %u.%03u%s, price %u.%02u.",
                     name, size_text(free).text, size_text(d->memory).text, d->busy / 10,
                     d->speed / 1000, d->speed % 1000, d->guessed ? " (a guess)" : "",
                     d->price / 1000, d->price % 1000 / 10);
}

/* Append what keeps a running program from being moved unasked. Returns false if nothing does. */
static bool explain_say_held(struct page *page, const struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_settings *s = view->settings;

    if (p->pinned)
        explain_line(page, "It is pinned: nothing moves it.");
    else if (!s->automatic)
        explain_line(page, "It moves only when an operator says so: automatic is off.");
    else if (!(ways_of(view, p) & POLICY_UPGRADE))
        explain_line(page,
                     "It moves only when an operator says so: upgrade is not among its ways.");
    else if (p->kept)
        explain_line(page, "It stays where an operator put it; reseat rebalance may move it.");
    else if (p->stayed_s < s->stay_s)
        explain_line(page,
                     "The policy may move it in %" PRIu64 " s: the minimum stay is %" PRIu64 " s.",
                     s->stay_s - p->stayed_s, s->stay_s);
    else if (p->recent_moves >= s->budget_program || view->world->recent_moves >= s->budget)
        explain_line(
            page, "It may move later: %u moves of it and %u of all in %" PRIu64 " s are used up.",
            p->recent_moves, view->world->recent_moves, s->budget_s);
    else
        return false;
    return true;
}

/* Returns false if no move is left out because it would not pay back. */
static bool explain_say_unpaid(struct page *page, struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    struct payback payback;
    uint32_t to = automatic_next_unpaid(view, program, &payback);
    char doubt[128] = "";

    if (to == POLICY_NONE)
        return false;
    if (payback.all_s != payback.own_s)
        snprintf(doubt, sizeof(doubt),
                 ", whose speed for it is unknown and may be %.1f times less,",
                 (double)program_speed_off(view, p, to) / 1000);
    explain_line(page,
                 "A move to %s%s would pay back after %" PRIu64 " s; it has run for %" PRIu64
                 " s and is expected to run for as long again, so it stays.",
                 device_at(view, to)->name, doubt, payback.all_s, p->age_s);
    return true;
}

static void explain_say_change_running(struct page *page, struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_settings *s = view->settings;
    const struct policy_device *d = device_at(view, p->device);
    uint64_t most = least_of(p->wanted, p->quota);

    if (program_barred(p, p->device) && !p->pinned)
        explain_line(
            page,
            "%s no longer meets its requirements: it moves as soon as another device has room.",
            d->name);
    if (most > p->granted)
        explain_line(page, "With %s more free on %s it takes back what it spilled.",
                     size_text(most - p->granted).text, d->name);
    if (p->wanted > p->quota) {
        explain_line(page, "Its quota of %s keeps it from having all there.",
                     size_text(p->quota).text);
        return;
    }
    if (explain_say_held(page, view, program) || explain_say_unpaid(page, view, program))
        return;
    if (most > p->granted)
        explain_line(page, "It moves to a device with %s free, if it runs %u%% faster there.",
                     size_text(p->wanted).text, s->gain / 10);
    else if (program_light(view, p))
        explain_line(
            page,
            "It keeps %s busy %u%% of the time: a device %u%% cheaper with %s free, or one in "
            "use while it is alone here, takes it.",
            d->name, p->busy / 10, 100 - 100000 / (1000 + s->gain),
            size_text(program_full(p)).text);
    else if (d->busy > s->busy_high)
        explain_line(page,
                     "%s is busy %u%% of the time: a device that is %u%% faster as loaded, with %s "
                     "free, takes it up.",
                     d->name, d->busy / 10, s->gain / 10, size_text(program_full(p)).text);
    else
        explain_line(
            page,
            "It moves up when %s is busy more than %u%% of the time (now %u%%), down when it "
            "uses less than %u%% (now %u%%).",
            d->name, s->busy_high / 10, d->busy / 10, s->busy_low / 10, p->busy / 10);
}

static void explain_say_prefers(struct page *page, struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    const char *here = device_at(view, p->device)->name;
    struct prefer_text text = prefer_text(view, p);
    uint32_t now = prefer_best(view, program, true), other = prefer_best(view, program, false);
    uint32_t to = now != POLICY_NONE ? now : other;
    const char *amount;

    if (!*text.text)
        return;
    if (prefer_met(view, p, p->device)) {
        explain_line(page, "It prefers %s; %s has them.", text.text, here);
        return;
    }
    if (to == POLICY_NONE) {
        explain_line(page, "It prefers %s; no device has more of that for it than %s.", text.text,
                     here);
        return;
    }
    amount = prefer_met(view, p, to) ? "them" : "more of that";
    if (now != POLICY_NONE)
        explain_line(page, "It prefers %s; %s has %s.", text.text, device_at(view, to)->name,
                     amount);
    else if (room_for(view, program, to) < prefer_room(view, p, to))
        explain_line(page, "It prefers %s; %s has %s, once %s are free there.", text.text,
                     device_at(view, to)->name, amount, size_text(prefer_room(view, p, to)).text);
    else
        explain_line(page, "It prefers %s; %s has %s, but would hold it up.", text.text,
                     device_at(view, to)->name, amount);
}

/* The program of the lowest rank on the device that could be displaced. */
static void explain_say_displaceable(struct page *page, const struct view *view, uint32_t program,
                                     uint32_t device)
{
    uint32_t lowest = POLICY_NONE;

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);

        if (v == program || !p->granted || !(ways_of(view, p) & POLICY_SUSPEND))
            continue;
        if (lowest == POLICY_NONE || p->priority < program_at(view, lowest)->priority)
            lowest = v;
    }
    if (lowest != POLICY_NONE)
        explain_line(page, "A priority above %d displaces %s there.",
                     program_at(view, lowest)->priority, name_for(view, lowest, program));
}

/* What waiting is expected to take, against what a program would lose that makes room. */
static void explain_say_expected(struct page *page, struct view *view, uint32_t program,
                                 const struct room *room)
{
    uint64_t wait_ms = expect_room_ms(view, program, program_full(program_at(view, program)));
    struct policy_step step = {.action = POLICY_NOTHING};
    char wait[96];

    if (wait_ms == UINT64_MAX)
        snprintf(wait, sizeof(wait), "No program runs that would release enough at its end");
    else
        snprintf(wait, sizeof(wait), "Waiting is expected to take %.1f s", (double)wait_ms / 1000);
    if (room->victim == POLICY_NONE) {
        explain_line(page, "%s.", wait);
        return;
    }
    displace(view, program, room, &step);
    explain_line(page, "%s; making room would take %.1f s of the time of %s.", wait,
                 (double)expect_displaced_ms(view, program, room, &step) / 1000,
                 name_for(view, step.program, program));
}

static void explain_say_change_waiting(struct page *page, struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    struct policy_step step;
    struct room room;

    answer(view, program, &step);
    explain_line(page, "Next: %s (%s).", policy_action_name(step.action), step.reason);
    if (step.action != POLICY_DO_WAIT && step.program == program)
        return;
    room = find_room(view, program, program_full(p), view->head == program);
    explain_say_expected(page, view, program, &room);
    if (step.action != POLICY_DO_WAIT)
        return;
    if (room.device != POLICY_NONE && room.missing) {
        explain_line(page, "It goes on when %s more are free on %s.", size_text(room.missing).text,
                     device_at(view, room.device)->name);
        explain_say_displaceable(page, view, program, room.device);
    }
    if (waits_behind_head(view, program))
        explain_line(page, "A priority above %d puts it in front.",
                     program_at(view, view->head)->priority);
    if (view->settings->wait_deadline_s && p->need)
        explain_line(page, "It is refused when it has waited %" PRIu64 " s.",
                     view->settings->wait_deadline_s);
}

void policy_explain(const struct policy_world *world, const struct policy_settings *settings,
                    uint32_t program, char *ret_text, size_t size)
{
    const struct policy_program *p = &world->programs[program];
    struct page page = {.text = ret_text, .size = size};
    struct view view;

    if (!size)
        return;
    *ret_text = '\0';
    view_init(&view, world, settings);
    view.reader = program;
    explain_say_state(&page, &view, program);
    if (p->peak > program_full(p))
        explain_line(&page, "In former runs it needed up to %s.", size_text(p->peak).text);
    if (p->silent)
        explain_line(&page, "It does not answer, or cannot carry out its step: nothing is decided "
                            "for it until it does.");
    else if (p->busy_moving)
        explain_line(&page, "It is being moved; nothing else is decided for it until that ends.");
    if (p->prefers && p->state == POLICY_RUNNING && p->device != POLICY_NONE)
        explain_say_prefers(&page, &view, program);
    if (p->state == POLICY_RUNNING && p->device != POLICY_NONE)
        explain_say_change_running(&page, &view, program);
    else if (program_queues(p))
        explain_say_change_waiting(&page, &view, program);
    for (uint32_t i = 0; i < world->device_count; i++)
        if (i != p->device && !device_at(&view, i)->gone)
            explain_say_device(&page, &view, program, i);
}
