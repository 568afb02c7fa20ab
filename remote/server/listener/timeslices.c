#include "remote/server/listener/devices.h"

#include <stddef.h>

static void timeslices_take_out(struct timeslice_user **list, const struct timeslice_user *user)
{
    for (struct timeslice_user **at = list; *at; at = &(*at)->next)
        if (*at == user) {
            *at = user->next;
            return;
        }
}

static void timeslices_put_in(struct timeslice_user **list, struct timeslice_user *user)
{
    while (*list)
        list = &(*list)->next;
    user->next = NULL;
    *list = user;
}

/* Charge the user for its time slice. */
static void timeslices_pay(struct timeslice_user *user, uint64_t now_ns)
{
    uint64_t used = now_ns > user->since_ns ? now_ns - user->since_ns : 0;
    used = used < user->most_ns ? used : user->most_ns;
    user->end = user->start + used / user->share * TIMESLICE_SHARE_MAX;
}

/* Of the waiting users, the one with the least virtual time; of equals, the one that asked first.
 */
static struct timeslice_user *timeslices_least(const struct timeslices *timeslices)
{
    struct timeslice_user *found = timeslices->waiting;
    for (struct timeslice_user *user = found; user; user = user->next)
        if (user->start < found->start)
            found = user;
    return found;
}

static void timeslices_begin(struct timeslices *timeslices, struct timeslice_user *user,
                             uint64_t now_ns)
{
    timeslices_take_out(&timeslices->waiting, user);
    user->waits = false;
    user->since_ns = now_ns;
    user->most_ns = UINT64_MAX;
    timeslices->now = user->start > timeslices->now ? user->start : timeslices->now;
    timeslices->holder = user;
    timeslices->alone = timeslices->waiting == NULL;
    timeslices->until_ns =
        timeslices->alone ? UINT64_MAX : now_ns + TIMESLICE_NS + TIMESLICE_OVERTIME_NS;
    timeslices->tell(timeslices->data, user, TIMESLICE_BEGINS,
                     timeslices->alone ? UINT64_MAX : TIMESLICE_NS);
}

static void timeslices_next(struct timeslices *timeslices, uint64_t now_ns)
{
    if (!timeslices->holder && timeslices->waiting)
        timeslices_begin(timeslices, timeslices_least(timeslices), now_ns);
}

/* A user that was alone pays from now on. For commands that it gave before, it pays at most for one
 * time slice. */
static void timeslices_recall(struct timeslices *timeslices, uint64_t now_ns)
{
    timeslices->alone = false;
    timeslices->holder->since_ns = now_ns;
    timeslices->holder->most_ns = TIMESLICE_NS + TIMESLICE_OVERTIME_NS;
    timeslices->holder->start =
        timeslices->holder->start > timeslices->now ? timeslices->holder->start : timeslices->now;
    timeslices->until_ns = now_ns + TIMESLICE_NS + TIMESLICE_OVERTIME_NS;
    timeslices->tell(timeslices->data, timeslices->holder, TIMESLICE_RECALLED, TIMESLICE_NS);
}

static void timeslices_wait(struct timeslices *timeslices, struct timeslice_user *user)
{
    user->waits = true;
    user->start = user->end > timeslices->now ? user->end : timeslices->now;
    timeslices_put_in(&timeslices->waiting, user);
}

void timeslices_want(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns)
{
    if (user->waits || timeslices->holder == user)
        return;
    if (user->owes) {
        user->waits = true;
        user->beside_ns = now_ns + TIMESLICE_BESIDE_NS;
        return;
    }
    timeslices_wait(timeslices, user);
    if (timeslices->holder && timeslices->alone)
        timeslices_recall(timeslices, now_ns);
    timeslices_next(timeslices, now_ns);
}

void timeslices_over(struct timeslices *timeslices, struct timeslice_user *user, bool again,
                     uint64_t now_ns)
{
    if (timeslices->holder != user && !user->owes)
        return;
    timeslices_pay(user, now_ns);
    again |= user->waits;
    if (user->owes)
        timeslices_take_out(&timeslices->owing, user);
    else
        timeslices->holder = NULL;
    user->owes = user->waits = false;
    if (again && timeslices->holder && timeslices->alone)
        timeslices_recall(timeslices, now_ns);
    if (again)
        timeslices_wait(timeslices, user);
    timeslices_next(timeslices, now_ns);
}

void timeslices_leave(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns)
{
    if (user->owes)
        timeslices_take_out(&timeslices->owing, user);
    else if (user->waits)
        timeslices_take_out(&timeslices->waiting, user);
    if (timeslices->holder == user)
        timeslices->holder = NULL;
    user->owes = user->waits = false;
    timeslices_next(timeslices, now_ns);
}

uint64_t timeslices_tick(struct timeslices *timeslices, uint64_t now_ns)
{
    struct timeslice_user *holder = timeslices->holder;
    if (holder && now_ns >= timeslices->until_ns) {
        holder->owes = true;
        timeslices_put_in(&timeslices->owing, holder);
        timeslices->holder = NULL;
        timeslices->tell(timeslices->data, holder, TIMESLICE_LOST, 0);
        timeslices_next(timeslices, now_ns);
    }
    uint64_t soonest = timeslices->holder ? timeslices->until_ns : UINT64_MAX;
    for (struct timeslice_user *user = timeslices->owing; user; user = user->next) {
        if (!user->waits)
            continue;
        if (now_ns >= user->beside_ns) {
            user->waits = false;
            timeslices->tell(timeslices->data, user, TIMESLICE_BEGINS, TIMESLICE_NS);
        } else if (user->beside_ns < soonest) {
            soonest = user->beside_ns;
        }
    }
    return soonest;
}
