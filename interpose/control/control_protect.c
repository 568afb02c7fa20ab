#include "interpose/control/control_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/recovery/protect.h"

static struct {
    pthread_mutex_t change;    /* Held by a thread while it changes the protection. */
    uint64_t done;             /* The last order that was carried out; guarded by change. */
    struct device_key *places; /* Owned; written once, at the start. */
    size_t place_count;        /* The same. */
    pthread_mutex_t lock;      /* Guards: */
    struct protection now;
    uint64_t ordered; /* Used by the control thread only. */
} own = {.change = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static void control_protect_note(const struct protection *protection)
{
    pthread_mutex_lock(&own.lock);
    own.now = *protection;
    pthread_mutex_unlock(&own.lock);
}

static int control_protect_begin(const struct protection *protection)
{
    const struct protect_settings settings = {.interval_ns = protection->seconds * NS_PER_S,
                                              .bytes = protection->bytes,
                                              .keys = own.places,
                                              .key_count = own.place_count};
    return protect_begin(&settings);
}

bool control_protect_is_wanted(const char *text)
{
    struct protection protection = {.word = PROTECTION_ON};
    char reason[128];
    return text && text[0] &&
           (protection_parse(text, &protection, reason, sizeof(reason)) != 0 ||
            protection.word == PROTECTION_ON);
}

void control_protect_start(const struct device_key *places, size_t count, const char *text)
{
    struct protection protection = {.word = PROTECTION_OFF};
    char reason[128];
    own.places = count ? malloc(count * sizeof(*places)) : NULL;
    if (own.places) {
        memcpy(own.places, places, count * sizeof(*places));
        own.place_count = count;
    }
    if (text && text[0] && protection_parse(text, &protection, reason, sizeof(reason)) != 0) {
        log_warn("RESEAT_PROTECTION: %s: taken as on", reason);
        protection = (struct protection){.word = PROTECTION_ON};
    }
    int error = protection.word == PROTECTION_ON ? control_protect_begin(&protection) : 0;
    if (error != 0) {
        log_warn("the program is not protected: %s", strerror(-error));
        protection.word = PROTECTION_OFF;
    }
    control_protect_note(&protection);
}

uint64_t control_protect_order(void)
{
    return ++own.ordered;
}

int control_protect_apply(const struct protection *protection, uint64_t order)
{
    int error = 0;
    pthread_mutex_lock(&own.change);
    if (order > own.done) {
        own.done = order;
        if (protection->word == PROTECTION_ON)
            error = control_protect_begin(protection);
        else
            protect_end();
        if (error == 0)
            control_protect_note(protection);
    }
    pthread_mutex_unlock(&own.change);
    return error;
}

void control_protect_read(struct protection *ret_protection)
{
    pthread_mutex_lock(&own.lock);
    *ret_protection = own.now;
    pthread_mutex_unlock(&own.lock);
}

/* A child is protected when its agent says so. The thread that held `change` may be missing in it.
 */
static void control_protect_in_child(void)
{
    own.done = own.ordered = 0;
    if (own.now.word == PROTECTION_ON)
        own.now.word = PROTECTION_OFF;
}

FORK_PART = {.rank = FORK_TABLE,
             .lock = &own.lock,
             .long_lock = &own.change,
             .in_child = control_protect_in_child};
